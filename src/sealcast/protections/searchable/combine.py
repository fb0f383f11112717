"""From the labels that an event has to the subscriptions that it matches: conjunctions, counted on arrays.

    anchors met  -->  conjunctions that may match  --the tokens of their labels-->  slots met, each once
                 -->  conjunctions with as many slots met as they have  -->  subscriptions, each once

So the work follows the anchors that an event meets, not all labels that it has in common with anybody. What was counted
for one set of tokens is kept for the next event with that set, by reference.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple

import numpy as np

from sealcast.filters.bits import Indices, runs
from sealcast.protections.searchable.entries import REMOVED, Entries

#: Names the tokens of an event that match something. A token that matches more gets another number.
Signature = tuple[int, ...]

#: Numbers that are kept, over all sets of tokens: the tokens of each, and what they match.
MAX_KEPT: Final = 1 << 24
#: What a set takes beside its numbers, in numbers.
_SET: Final = 32
#: Anchors that are followed at once: bounds what a batch of popular events takes.
_MAX_AT_ONCE: Final = 1 << 22
_NONE: Final = np.empty(0, np.int64)


class Met(NamedTuple):
    """A set of tokens: the anchors that each of them matches, and their names."""

    anchors: Sequence[Indices]
    names: Sequence[int]


class Combined:
    def __init__(self, entries: Entries) -> None:
        self._entries = entries
        self.clear()

    def clear(self) -> None:
        self._known: dict[Signature, Indices] = {(): _NONE}
        self._kept = 0

    def __contains__(self, signature: Signature) -> bool:
        return signature in self._known

    def matches(self, signatures: Sequence[Signature], fresh: Mapping[Signature, Met]) -> list[Indices]:
        """The subscriptions of each event, given its signature, and what the tokens of the fresh ones meet."""
        learned = dict(zip(fresh, self._counted(list(fresh.values())), strict=True))
        known = self._known
        found = [known[each] if each in known else learned[each] for each in signatures]
        self._kept += sum(_SET + len(tokens) + len(matched) for tokens, matched in learned.items())
        if self._kept > MAX_KEPT:
            self.clear()
        self._known.update(learned)
        return found

    def _counted(self, met: Sequence[Met]) -> Iterator[Indices]:
        """The subscriptions of each of these sets, some sets at a time."""
        start = 0
        while start < len(met):
            end, total = start, 0
            while end < len(met) and (end == start or total < _MAX_AT_ONCE):
                total += sum(map(len, met[end].anchors))
                end += 1
            yield from self._subscriptions(met[start:end])
            start = end

    def _subscriptions(self, met: Sequence[Met]) -> list[Indices]:
        table = self._entries
        anchors = np.concatenate([_NONE, *(part for each in met for part in each.anchors)])
        sets = np.repeat(np.arange(len(met)), [sum(map(len, each.anchors)) for each in met])
        sets, conjunctions, _ = _counts(sets, table.conjunctions.values[anchors], table.needed.size)
        living = table.subscriptions.values[conjunctions] != REMOVED
        sets, conjunctions = sets[living], conjunctions[living]
        alone = table.needed.values[conjunctions] == 1
        full = self._full(met, sets[~alone], conjunctions[~alone])
        sets = np.concatenate([sets[alone], full[0]])
        subscriptions = table.subscriptions.values[np.concatenate([conjunctions[alone], full[1]])]
        sets, subscriptions, _ = _counts(sets, subscriptions, int(subscriptions.max(initial=0)) + 1)
        return np.split(subscriptions, np.searchsorted(sets, np.arange(1, len(met))))

    def _full(self, met: Sequence[Met], sets: Indices, conjunctions: Indices) -> tuple[Indices, Indices]:
        """Those pairs of a set and a conjunction where a token of the set has claimed a label of every slot."""
        if not sets.size:
            return sets, conjunctions
        table = self._entries
        firsts, sizes = table.of_conjunctions(conjunctions)
        entries, sets = runs(firsts, sizes), np.repeat(sets, sizes)
        names = np.fromiter((name for each in met for name in each.names), np.int64)
        of = np.repeat(np.arange(len(met)), [len(each.names) for each in met])
        tokens, wide = table.tokens.values[entries], int(names.max()) + 1
        # A token of a higher name than all of these is in none of the sets.
        hit = (tokens < wide) & np.isin(sets * wide + np.minimum(tokens, wide - 1), of * wide + names)
        sets, slots, _ = _counts(sets[hit], table.slots.values[entries[hit]], table.conjunctions.size)
        sets, conjunctions, times = _counts(sets, table.conjunctions.values[slots], table.needed.size)
        full = times == table.needed.values[conjunctions]
        return sets[full], conjunctions[full]


def _counts(rows: Indices, values: Indices, wide: int) -> tuple[Indices, Indices, Indices]:
    """Distinct (row, value) in order, and how often each is there; values are below `wide`."""
    codes, times = np.unique(rows * wide + values, return_counts=True)
    return codes // max(1, wide), codes % max(1, wide), times
