"""The sealed filters of a topic's tables in one search index, which every version of the table looks through.

A registered filter never changes, so that it is indexed once, under a number of its own. A table is which of the
numbers it has, and where. What the index remembers of trapdoors and tokens outlives tables that way, and a filter
leaves the index when no table in use has it any more.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping, Sequence
from weakref import WeakSet

import numpy as np
from numpy.typing import NDArray

from sealcast.broker.served import ServedInterval
from sealcast.filters import bits
from sealcast.model.stages import Admitted
from sealcast.primitives.secrets import Unpicklable
from sealcast.protections.searchable.halves import BrokerHalves, searched
from sealcast.protections.searchable.search import DEFAULT_PREFILTER, Registered, SearchIndex
from sealcast.trust.keys.broker import BrokerSecrets
from sealcast.trust.realm.machine import RealmState, Topic
from sealcast.wire.searching import SealedFilter, SealedRejected

Ints = NDArray[np.int64]


class SealedIndexes(Unpicklable):
    """Indices of one topic's tables, one after the other."""

    def __init__(self, secrets: BrokerSecrets, topic: Topic, prefilter: str = DEFAULT_PREFILTER) -> None:
        self._secrets = secrets
        self._index = SearchIndex(topic.id, topic.protection.tag_bits_shown, prefilter)
        self._numbers: dict[str, int] = {}
        self._next = 0
        self._in_use: WeakSet[SealedIndex] = WeakSet()
        self._lock = threading.Lock()

    def at(self, state: RealmState, topic: Topic, intervals: Mapping[str, ServedInterval]) -> SealedIndex:
        halves = BrokerHalves(state, topic, self._secrets)
        with self._lock:
            self._add(intervals, state, topic, halves)
            # A filter whose subscriber has no half at this version matches nothing, though others may look through it.
            columns = [
                (self._numbers[id], column)
                for column, id in enumerate(intervals)
                if id in self._numbers and halves.allowed(state.subscription(id).subscriber)
            ]
            made = SealedIndex(self._index, self._lock, halves, columns, len(intervals))
            self._in_use.add(made)
            self._drop()
        return made

    def _add(self, ids: Iterable[str], state: RealmState, topic: Topic, halves: BrokerHalves) -> None:
        rows, bits_shown = list[Registered](), topic.protection.tag_bits_shown
        for id in ids:
            if id in self._numbers:
                continue
            subscription = state.subscription(id)
            try:
                found = SealedFilter.from_text(subscription.filter, bits_shown)
            except SealedRejected:
                continue  # the registry took it under other rules: it matches nothing, and `status` counts it
            if halves.of(found.epoch, subscription.subscriber) is not None:
                self._numbers[id], self._next = self._next, self._next + 1
                rows.append(Registered(self._numbers[id], subscription.subscriber, found))
        self._index.add(rows, halves.of)  # what it refuses for its points matches nothing, and `status` counts it

    def _drop(self) -> None:
        used = {number for each in self._in_use for number in each.numbers}
        gone = {id: number for id, number in self._numbers.items() if number not in used}
        if gone:
            self._index.remove(list(gone.values()))
            self._numbers = {id: number for id, number in self._numbers.items() if id not in gone}


class SealedIndex(Unpicklable):
    """One table's view of the index."""

    def __init__(
        self,
        index: SearchIndex,
        lock: threading.Lock,
        halves: BrokerHalves,
        columns: Iterable[tuple[int, int]],
        width: int,
    ) -> None:
        self._index, self._lock, self._halves, self._width = index, lock, halves, width
        found = sorted(columns)
        self.numbers = frozenset(number for number, _ in found)
        # Numbers are never given twice, so that they grow for as long as the process lives: an array with a place for
        # each would, too.
        self._numbers: Ints = np.array([number for number, _ in found], np.int64)
        self._columns: Ints = np.array([column for _, column in found], np.int64)

    def match(self, admitted: Admitted) -> bits.Words:
        events = searched(admitted)
        epochs, publishers = [each.epoch for each in events.senders], [each.publisher for each in events.senders]
        return self.search(publishers, epochs, events.blocks)

    def search(self, publishers: Sequence[str], epochs: Sequence[int], blocks: Sequence[bytes]) -> bits.Words:
        """What events match, by who sealed the labels of each, in which epoch, and its block. A block that cannot be
        searched matches nothing."""
        return bits.pack(*self.pairs(publishers, epochs, blocks), len(blocks), self._width)

    def pairs(self, publishers: Sequence[str], epochs: Sequence[int], blocks: Sequence[bytes]) -> tuple[Ints, Ints]:
        """What `search` finds, as rows of events and columns of the table: no work for filters that nothing matches."""
        with self._lock:
            rows, numbers = self._index.search(publishers, epochs, blocks, self._halves.of).pairs()
        places = np.searchsorted(self._numbers, numbers)
        mine = places < len(self._numbers)
        mine[mine] = self._numbers[places[mine]] == numbers[mine]
        return rows[mine], self._columns[places[mine]]
