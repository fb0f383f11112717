"""The broker of a `searchable` topic, done again with its halves, and without a key of what is sealed."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from functools import cached_property, lru_cache

import numpy as np
from numpy.typing import NDArray

from sealcast.broker.served import ServedInterval
from sealcast.model.stages import Admitted
from sealcast.protections.searchable import asking
from sealcast.protections.searchable.asking import StatedFilter, asked
from sealcast.protections.searchable.halves import BrokerHalves, Searched, searched
from sealcast.protections.searchable.late_audit import LateAudit
from sealcast.protections.witness.expected import Expectation
from sealcast.protections.witness.frames import MAX_VERSIONS
from sealcast.trust.realm.machine import RealmState, Topic
from sealcast.wire.searching import block_size

Ints = NDArray[np.int64]


class SealedExpectation(Expectation[tuple[StatedFilter, BrokerHalves]]):
    """Sealed filters are asked one by one, with the broker's halves."""

    @cached_property
    def _halves(self) -> Callable[[int], BrokerHalves]:
        """By version."""
        secrets = self._realm.broker(self._broker)

        def load(version: int) -> BrokerHalves:
            state = self._realm.state(version)
            return BrokerHalves(state, state.topic(self._topic), secrets)

        return lru_cache(MAX_VERSIONS)(load)

    def name(self, interval: ServedInterval, subscriber: str) -> Hashable:
        return interval.filter, subscriber

    def filter(self, interval: ServedInterval, subscriber: str, state: RealmState) -> tuple[StatedFilter, BrokerHalves]:
        halves = self._halves(state.version)
        return asked(interval.filter, subscriber, state.topic(self._topic), halves), halves

    def true(
        self, filters: Sequence[tuple[StatedFilter, BrokerHalves]], admitted: Admitted, topic: Topic
    ) -> Iterator[Ints]:
        if not filters:
            return iter(())
        each, events = [found for found, _ in filters], searched(admitted)
        if not self.by_reference:
            return asking.true(each, events, filters[0][1])
        return _one_by_one(each, events, filters[0][1])


def _one_by_one(filters: Sequence[StatedFilter], events: Searched, halves: BrokerHalves) -> Iterator[Ints]:
    """Every event by itself: nothing that was computed for one is used for another."""
    for each in filters:
        true = (
            next(asking.true([each], Searched(events.senders[i : i + 1], events.blocks[i : i + 1]), halves)).size
            for i in range(len(events.blocks))
        )
        yield np.flatnonzero(np.fromiter(true, np.bool_, len(events.blocks)))


class SearchableAudit(LateAudit):
    expectation = SealedExpectation

    def before(self, body: bytes) -> int:
        return block_size(body)
