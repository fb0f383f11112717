"""The subscription table of a topic at a version: who asked for what, compiled, and who may read.

Compiling thousands of filters costs more than matching a batch, so tables are immutable and shared (decision 5): in
memory while a worker lives, and on disk, sealed, for the next worker (snapshots.py). A table that differs from the last
one by a few subscriptions is the last one with a small index on top.

What is compiled, and how a batch is matched by it, is for the topic's protection to say (`Indexing`): filters that
brokers read become an index over attributes (`FilterIndexes`).

Who is served changes with time alone, too: tokens and rights end (served.py). `SubscriptionTable.at` is the table at
a time.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from sealcast.broker.budgets import over_budget
from sealcast.broker.filter_conditions import UNREADABLE, OpenedFilters, condition
from sealcast.broker.served import ServedInterval, served_intervals
from sealcast.broker.snapshots import SealedSnapshots, StoredTable
from sealcast.errors import Corrupt, NotFound
from sealcast.filters import bits
from sealcast.filters.index import ChangedIndex, Index
from sealcast.filters.index.changed import NEW
from sealcast.filters.tree import Condition
from sealcast.model import Schema
from sealcast.model.stages import Admitted, MatchedPairs
from sealcast.trust.layout import FIRST_BROKER
from sealcast.trust.realm.machine import RealmState, Topic

#: Fewer are compiled sooner than read from a file.
MIN_SNAPSHOT: Final = 500

#: What is compiled, by subscription: its filter, and the template of its token.
Asked = Mapping[str, tuple[str, str]]
Times = NDArray[np.int64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]


class BatchIndex(Protocol):
    """The filters of a table, ready to be asked about whole batches."""

    def match(self, admitted: Admitted, /) -> bits.Words:
        """Bit i of an event's words: whether it satisfies subscription i of the table."""


@runtime_checkable
class MeteredIndex(Protocol):
    """One whose filters can cost more than they may (budgets.py)."""

    def match(self, admitted: Admitted, unasked: Bools | None = None, /) -> bits.Words:
        """Matches like the method above; whoever is not asked matches nothing."""

    def over_budget(self, admitted: Admitted, owners: Ints, /) -> Bools | None:
        """Subscriptions that are suspended for these events, by whose they are; None for none."""


@runtime_checkable
class SparseIndex(Protocol):
    """One that finds pairs at the price of the pairs, however many subscriptions there are."""

    def few_pairs(self, admitted: Admitted, unasked: Bools | None, most: int, /) -> MatchedPairs | None:
        """Matches like `match`; None if there are more than `most` pairs. Whoever is not asked matches nothing."""


class Indexing(Protocol):
    """Makes the indices of one topic's tables, one after the other. What they share it keeps."""

    def at(self, state: RealmState, topic: Topic, intervals: Mapping[str, ServedInterval], /) -> BatchIndex:
        """Makes the index of these subscriptions at the state's version."""


@dataclass(frozen=True, slots=True)
class AttributeIndex:
    """Filters that brokers read. Unknown (NULL) is not a match."""

    compiled: Index | ChangedIndex
    #: Which of them could not be read, and so are suspended (filter_conditions.py); None for none.
    unreadable: Bools | None = None

    def match(self, admitted: Admitted, unasked: Bools | None = None) -> bits.Words:
        found = self.compiled.match(admitted.columns, self._payloads(admitted), unasked)
        return found if unasked is None else found & ~bits.mask(unasked)

    def few_pairs(self, admitted: Admitted, unasked: Bools | None, most: int) -> MatchedPairs | None:
        found = self.compiled.few_pairs(admitted.columns, self._payloads(admitted), unasked, most)
        if found is None or unasked is None:
            return None if found is None else MatchedPairs(*found)
        events, subscriptions = found
        asked = ~unasked[subscriptions]
        return MatchedPairs(events[asked], subscriptions[asked])

    def _payloads(self, admitted: Admitted) -> Sequence[bytes] | None:
        """Cut out only when some filter (XPath) reads them: most tables never do."""
        return admitted.payloads() if self.compiled.reads_payloads else None

    def over_budget(self, admitted: Admitted, owners: Ints) -> Bools | None:
        over = over_budget(self.compiled, owners, admitted)
        if self.unreadable is None:
            return over
        return self.unreadable if over is None else over | self.unreadable


@dataclass(frozen=True, slots=True)
class SubscriptionTable:
    """Subscription i of `ids` is bit i of a match; its subscriber has slot `slots[i]`."""

    ids: tuple[str, ...]
    slots: NDArray[np.int64]
    #: Slots given so far: the width of a group.
    n_slots: int
    #: Every subscriber has one subscription, in order of slots: a match is the group.
    one_each: bool
    #: Of the slots, those that may read.
    authorised: bits.Words
    index: BatchIndex
    #: When each subscription is served; the end is not included.
    from_us: Times
    until_us: Times
    #: Of the subscriptions, those that are served; None for all.
    served: bits.Words | None = None

    def at(self, time_us: int) -> SubscriptionTable:
        """The table at a time: whose tokens and rights hold then."""
        holds = (self.from_us <= time_us) & (time_us < self.until_us)
        readers = np.zeros(self.n_slots, np.bool_)
        readers[self.slots[holds]] = True
        served = None if holds.all() else bits.mask(holds)
        return replace(self, authorised=bits.mask(readers), served=served)


class TableCache:
    """Tables of one topic at one broker."""

    def __init__(self, indexing: Indexing, broker: str = FIRST_BROKER) -> None:
        self._indexing = indexing
        self._broker = broker

    def at(self, state: RealmState, topic: Topic) -> SubscriptionTable:
        """The table at the state's version; at any time, until it is pinned to one."""
        slots_by_name = state.slots_of(topic.name)
        subscriptions = state.subscriptions_at(topic.name, self._broker)
        slots = np.array([slots_by_name[s.subscriber] for s in subscriptions.values()], np.int64)
        intervals = dict(served_intervals(state, topic, subscriptions))
        allowed = np.zeros(len(slots_by_name), np.bool_)
        allowed[list(state.authorised_slots(topic.name))] = True
        return SubscriptionTable(
            ids=tuple(subscriptions),
            slots=slots,
            n_slots=len(slots_by_name),
            one_each=np.array_equal(slots, np.arange(len(slots_by_name))),
            authorised=bits.mask(allowed),
            index=self._indexing.at(state, topic, intervals),
            from_us=np.array([s.from_us for s in intervals.values()], np.int64),
            until_us=np.array([s.until_us for s in intervals.values()], np.int64),
        )


class FilterIndexes:
    """Filters that brokers read, compiled: the last index is kept, and whole ones are on disk for other workers."""

    def __init__(self, filters: OpenedFilters, snapshots: SealedSnapshots) -> None:
        self._filters, self._snapshots = filters, snapshots
        #: The table last asked for, and the one that was last compiled as a whole.
        self._last: tuple[Asked, AttributeIndex] | None = None
        self._base: tuple[Asked, StoredTable] | None = None

    def at(self, state: RealmState, topic: Topic, intervals: Mapping[str, ServedInterval]) -> AttributeIndex:
        found = state.topic_state(topic.name).subscriptions
        texts = self._filters.of(state, {id: found[id] for id in intervals})
        asked = {id: (texts[id], each.template) for id, each in intervals.items()}
        if self._last is None or self._last[0] != asked:
            self._last = (asked, self._overlaid(asked, topic) or self._whole(asked, topic))
        return self._last[1]

    def _overlaid(self, asked: Asked, topic: Topic) -> AttributeIndex | None:
        """On top of the last whole table, while they have most subscriptions in common."""
        if self._base is None:
            return None
        before, base = self._base
        # Ids are never given twice; a template can change with a new token.
        place = {(id, what): i for i, (id, what) in enumerate(before.items())}
        origin = np.array([place.get(item, NEW) for item in asked.items()], np.int64)
        added = _compiled([what for id, what in asked.items() if (id, what) not in place], topic)
        overlay = ChangedIndex.build(base.index, origin, added)
        if overlay.stale:
            return None
        unreadable = np.isin(origin, np.array(base.unreadable, np.int64))
        unreadable[origin == NEW] = [each is UNREADABLE for each in added]
        return AttributeIndex(overlay, unreadable if unreadable.any() else None)

    def _whole(self, asked: Asked, topic: Topic) -> AttributeIndex:
        name = digest(asked.values(), topic.schema)
        try:
            table = self._snapshots.load(name)
        except (NotFound, Corrupt):
            conditions = _compiled(asked.values(), topic)
            unreadable = tuple(place for place, each in enumerate(conditions) if each is UNREADABLE)
            table = StoredTable(Index.build(conditions, topic.schema), unreadable)
            if len(asked) >= MIN_SNAPSHOT:
                self._snapshots.keep(name, table)
        self._base = (asked, table)
        return AttributeIndex(table.index, _mask(table.unreadable, len(asked)))


def _compiled(asked: Iterable[tuple[str, str]], topic: Topic) -> list[Condition]:
    return [condition(text, template, topic) for text, template in asked]


def _mask(places: Sequence[int], count: int) -> Bools | None:
    if not places:
        return None
    mask = np.zeros(count, np.bool_)
    mask[list(places)] = True
    return mask


def digest(asked: Iterable[tuple[str, str]], schema: Schema) -> bytes:
    """Names what a table is compiled from. It is as secret as the filters: whoever has it can try guesses."""
    hasher = hashlib.sha256(schema.digest)
    for what in asked:
        for text in what:
            encoded = text.encode()
            hasher.update(len(encoded).to_bytes(4, "big") + encoded)
    return hasher.digest()
