"""The witness side of `searchable`: its broker searches ciphertexts and hands on what publishers sealed. Both can be
done again with the broker's halves, and without a key of what is sealed."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from functools import cached_property, lru_cache
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from sealcast.broker.served import ServedInterval
from sealcast.filters.explain import ExplainedPart
from sealcast.log.piece_reader import PieceReader
from sealcast.model.stages import Admitted
from sealcast.protections.enveloped.audit import EnvelopedAudit
from sealcast.protections.port import Explanation, WitnessSide
from sealcast.protections.searchable import asking
from sealcast.protections.searchable.asking import StatedFilter, asked
from sealcast.protections.searchable.exposure import explained
from sealcast.protections.searchable.halves import BrokerHalves, Searched, refused_filters, searched
from sealcast.protections.searchable.interests import own_id
from sealcast.protections.witness.answer import TracedInterest
from sealcast.protections.witness.decided import BrokerDecisions, SeenEvent
from sealcast.protections.witness.expected import Expectation
from sealcast.protections.witness.frames import MAX_VERSIONS
from sealcast.protections.witness.sides import ReadingWitness
from sealcast.trust.handles import BrokerRealm
from sealcast.trust.realm.machine import RealmState, Topic
from sealcast.wire.sealed import SealedPiece
from sealcast.wire.searching import block_size

Ints = NDArray[np.int64]
#: What stands for a filter whose text its subscriber keeps.
UNKNOWN: Final = "(its subscriber's own)"


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


class SearchableAudit(EnvelopedAudit):
    expectation = SealedExpectation

    def before(self, body: bytes) -> int:
        return block_size(body)


class SealedDecided(BrokerDecisions):
    audit = SearchableAudit

    def interests(
        self, state: RealmState, subscriber: str, interval: dict[str, ServedInterval], seen: SeenEvent
    ) -> tuple[TracedInterest, ...]:
        """Which of the sealed filters match, as the broker finds out. What they say, only their subscriber knows."""
        assert seen.admitted is not None
        about, events = state.topic(self._topic), searched(seen.admitted)
        only = slice(seen.number, seen.number + 1)
        one = Searched(events.senders[only], events.blocks[only])
        halves = BrokerHalves(state, about, self._realm.broker(self.name))
        made = []
        for id, each in interval.items():
            stated = asked(each.filter, subscriber, about, halves)
            result = bool(next(asking.true([stated], one, halves)).size)
            made.append(
                TracedInterest(own_id(id)[0], UNKNOWN, ExplainedPart(UNKNOWN, 0, len(UNKNOWN), result, True, (), ()))
            )
        return tuple(made)


class SearchableWitness(ReadingWitness):
    audit = SearchableAudit
    decided = SealedDecided

    def describe(self, realm: BrokerRealm, topic: str, broker: str, reader: PieceReader[SealedPiece]) -> dict[str, Any]:
        state = realm.state()
        refused = refused_filters(state, topic, state.subscriptions_at(topic, broker))
        return {**super().describe(realm, topic, broker, reader), "filters_refused": refused}

    def rows(self, found: Mapping[str, Any]) -> list[tuple[str, object]]:
        bad = "{filters_refused:,} have points that are none, and match nothing".format(**found)
        first, *rest = super().rows(found)
        return [first, *([("sealed filters", bad)] if found["filters_refused"] else []), *rest]

    def explain(self, state: RealmState, topic: str) -> Explanation:
        return explained(state, topic)


WITNESS: Final[WitnessSide] = SearchableWitness()
