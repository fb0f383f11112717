"""From the labels that an event has to the subscriptions that it matches: conjunctions, counted on arrays.

    slots met   --each once-->  conjunctions met as often as they have slots  --each once-->  subscriptions

What was counted for one set of tokens is kept for the next event with that set, by reference.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import numpy as np

from sealcast.filters.bits import Indices
from sealcast.protections.searchable.entries import REMOVED, Entries

#: Names the tokens of an event that match something. A token whose slots change gets another number.
Signature = tuple[int, ...]

#: Matches that are kept, over all sets of tokens.
MAX_KEPT: Final = 1 << 24
#: Slots that are counted at once: bounds what a batch of popular events takes.
_MAX_AT_ONCE: Final = 1 << 22
_NONE: Final = np.empty(0, np.int64)


class Combined:
    def __init__(self, entries: Entries) -> None:
        self._entries = entries
        self.clear()

    def clear(self) -> None:
        self._known: dict[Signature, Indices] = {(): _NONE}
        self._kept = 0

    def __contains__(self, signature: Signature) -> bool:
        return signature in self._known

    def matches(self, signatures: Sequence[Signature], fresh: Mapping[Signature, Sequence[Indices]]) -> list[Indices]:
        """The subscriptions of each event, given its signature, and the slots of each token of the fresh ones."""
        learned = dict(zip(fresh, self._counted(list(fresh.values())), strict=True))
        known = self._known
        found = [known[each] if each in known else learned[each] for each in signatures]
        self._kept += sum(map(len, learned.values())) + len(learned)
        if self._kept > MAX_KEPT:
            self.clear()
        self._known.update(learned)
        return found

    def _counted(self, met: Sequence[Sequence[Indices]]) -> Iterator[Indices]:
        """The subscriptions of each of these sets of slots, some sets at a time."""
        start = 0
        while start < len(met):
            end, total = start, 0
            while end < len(met) and (end == start or total < _MAX_AT_ONCE):
                total += sum(map(len, met[end]))
                end += 1
            yield from self._subscriptions(met[start:end])
            start = end

    def _subscriptions(self, met: Sequence[Sequence[Indices]]) -> list[Indices]:
        table = self._entries
        slots = np.concatenate([_NONE, *(part for parts in met for part in parts)])
        sets = np.repeat(np.arange(len(met)), [sum(map(len, parts)) for parts in met])
        sets, slots = _each_once(sets, slots, table.conjunctions.size)
        sets, conjunctions, times = _counts(sets, table.conjunctions.values[slots], table.needed.size)
        subscriptions = table.subscriptions.values[conjunctions]
        full = (times == table.needed.values[conjunctions]) & (subscriptions != REMOVED)
        wide = int(subscriptions.max(initial=0)) + 1
        sets, subscriptions = _each_once(sets[full], subscriptions[full], wide)
        return np.split(subscriptions, np.searchsorted(sets, np.arange(1, len(met))))


def _each_once(rows: Indices, values: Indices, wide: int) -> tuple[Indices, Indices]:
    found, at, _ = _counts(rows, values, wide)
    return found, at


def _counts(rows: Indices, values: Indices, wide: int) -> tuple[Indices, Indices, Indices]:
    """Distinct (row, value) in order, and how often each is there; values are below `wide`."""
    codes, times = np.unique(rows * wide + values, return_counts=True)
    return codes // max(1, wide), codes % max(1, wide), times
