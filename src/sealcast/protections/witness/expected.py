"""What should have been delivered of some frames: worked out again, without the index that matched them.

Admission is done again by its numbered checks, at the version that the batch was pinned to, with replay windows that
are filled again batch by batch (frames.py). Then every filter is asked about every event, one filter at a time. Where
brokers read, `ReadExpectation` asks: by the vectorised evaluator, or by the reference evaluator event by event, which
shares nothing with the index and takes a thousand times as long.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property, lru_cache
from typing import Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from sealcast.broker.admit import admit
from sealcast.broker.budgets import over_budget
from sealcast.broker.filter_conditions import UNREADABLE, OpenedFilters
from sealcast.broker.filter_conditions import condition as condition_of
from sealcast.broker.gate import Gate
from sealcast.broker.served import ServedInterval, served_intervals
from sealcast.filters.evaluate import evaluate
from sealcast.filters.index import Index
from sealcast.filters.readers import may_open
from sealcast.filters.tree import Condition
from sealcast.filters.vector.evaluator import Evaluator
from sealcast.model.schema import Schema, Value
from sealcast.model.stages import Admitted, Ruled
from sealcast.model.subscription import Subscription
from sealcast.protections.witness.frames import MAX_VERSIONS
from sealcast.trust.handles import BrokerRealm
from sealcast.trust.keys.filter_texts import BrokerFilters
from sealcast.trust.realm.machine import RealmState, Topic

Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Asking:
    slots: Ints
    from_us: Ints
    until_us: Ints
    #: Which subscription of the table each is.
    places: Ints

    def at(self, time_us: int, suspended: Bools | None) -> Ints:
        """The slots that are served then, ascending."""
        served = (self.from_us <= time_us) & (time_us < self.until_us)
        return np.unique(self.slots[served if suspended is None else served & ~suspended[self.places]])


#: A filter as it is asked.
F = TypeVar("F")


@dataclass(frozen=True, slots=True)
class Pinned(Generic[F]):
    """The realm at one version, as far as deliveries depend on it."""

    topic: Topic
    #: Every distinct filter, with who asked for it: slot, and when it is served.
    filters: tuple[tuple[F, Asking], ...]
    #: Subscribers, by slot.
    names: tuple[str, ...]
    #: Every subscription of the table.
    ids: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Expected:
    """Who should get which event (by its place in `admitted`), each pair once, ordered by slot and event."""

    admitted: Admitted
    slot: Ints
    event: Ints
    #: How many subscriptions are suspended for these events.
    suspended: int = 0


class Expectation(ABC, Generic[F]):
    """Recomputes what a topic should deliver."""

    def __init__(
        self, realm: BrokerRealm, topic: str, broker: str, gate: Callable[[int], Gate], *, by_reference: bool = False
    ) -> None:
        """`gate` has the broker's gate at any version."""
        self._realm, self._topic, self._broker, self._gate = realm, topic, broker, gate
        self.by_reference = by_reference
        self._at = lru_cache(MAX_VERSIONS)(self._pin)

    def stated(self, state: RealmState, subscriptions: Mapping[str, Subscription]) -> Mapping[str, Subscription]:
        """Subscriptions with their filters as they are asked: as the registry has them."""
        return subscriptions

    @abstractmethod
    def name(self, interval: ServedInterval, subscriber: str) -> Hashable:
        """Names a filter: equal ones are asked once, whoever they are of."""

    @abstractmethod
    def filter(self, interval: ServedInterval, subscriber: str, state: RealmState) -> F:
        """A subscriber's filter, ready to be asked."""

    @abstractmethod
    def true(self, filters: Sequence[F], admitted: Admitted, topic: Topic) -> Iterator[Ints]:
        """Returns for each filter the events that it is true of, ascending."""

    def of(self, ruled: Ruled, version: int, time_us: int) -> Expected:
        """What a batch pinned to that version and time should deliver of these frames."""
        admitted = admit(ruled, self._gate(version))
        suspended = self.suspended(admitted, version)
        slot, event = self._deliveries(admitted, self._at(version), time_us, suspended)
        return Expected(admitted, slot, event, 0 if suspended is None else int(suspended.sum()))

    def suspended(self, admitted: Admitted, version: int) -> Bools | None:
        """Which subscriptions get nothing of one piece's events, because they ask for too much work; None for none."""
        return None

    def suspended_ids(self, ruled: Ruled, version: int) -> list[str]:
        """Names the subscriptions that get nothing of a piece's frames."""
        found = self.suspended(admit(ruled, self._gate(version)), version)
        return [] if found is None else [self._at(version).ids[place] for place in np.flatnonzero(found).tolist()]

    def of_those(self, expected: Expected, version: int, time_us: int) -> Expected:
        """Keeps what goes to those who may read at another version and time. That is what should be there after
        everything was sealed again for them."""
        allowed = list(self._realm.state(version).authorised_slots(self._topic, time_us))
        stays = np.isin(expected.slot, allowed)
        return replace(expected, slot=expected.slot[stays], event=expected.event[stays])

    def _deliveries(
        self, admitted: Admitted, pinned: Pinned[F], time_us: int, suspended: Bools | None
    ) -> tuple[Ints, Ints]:
        count = len(admitted.messages)
        if not count:
            return np.empty(0, np.int64), np.empty(0, np.int64)
        found = [np.empty(0, np.int64)]
        # Whom nobody may ask is not asked here either.
        asked = [
            (each, asking) for each, asking in pinned.filters if suspended is None or not suspended[asking.places].all()
        ]
        matches = self.true([each for each, _ in asked], admitted, pinned.topic)
        for (_, asking), true in zip(asked, matches, strict=True):
            # Slot and event in one number: two subscriptions of one subscriber are one delivery.
            found.append((asking.at(time_us, suspended)[:, None] * count + true[None, :]).reshape(-1))
        both = np.unique(np.concatenate(found))
        return _let_in(both // count, both % count, admitted, pinned.names)

    def _pin(self, version: int) -> Pinned[F]:
        state = self._realm.state(version)
        topic = state.topic(self._topic)
        asked: dict[Hashable, tuple[F, list[tuple[int, int, int, int]]]] = {}
        slots, subscriptions = state.slots_of(topic.name), state.subscriptions_at(topic.name, self._broker)
        for place, (id, interval) in enumerate(served_intervals(state, topic, self.stated(state, subscriptions))):
            who = subscriptions[id].subscriber
            name = self.name(interval, who)
            if name not in asked:
                asked[name] = (self.filter(interval, who, state), [])
            asked[name][1].append((slots[who], interval.from_us, interval.until_us, place))
        filters = tuple((each, Asking(*np.array(who, np.int64).T)) for each, who in asked.values())
        return Pinned(topic, filters, tuple(slots), tuple(subscriptions))


class ReadExpectation(Expectation[Condition]):
    """What brokers that read should have delivered: filters are asked about attributes."""

    def suspended(self, admitted: Admitted, version: int) -> Bools | None:
        index, owners, unreadable = self._metered(version)
        over = over_budget(index, owners, admitted)
        if not unreadable.any():
            return over
        return unreadable if over is None else over | unreadable

    @cached_property
    def filters(self) -> OpenedFilters:
        """With the broker's own keys."""
        return OpenedFilters(BrokerFilters(self._realm.broker(self._broker)))

    def stated(self, state: RealmState, subscriptions: Mapping[str, Subscription]) -> Mapping[str, Subscription]:
        return self.filters.stated(state, subscriptions)

    @cached_property
    def _metered(self) -> Callable[[int], tuple[Index, Ints, Bools]]:
        """By version, the filters of all subscriptions, whose they are, and which cannot be read. What filters cost is
        counted by the index, which is the same for every index; what they match is not asked there."""

        def load(version: int) -> tuple[Index, Ints, Bools]:
            pinned = self._at(version)
            owners = np.zeros(len(pinned.ids), np.int64)
            conditions = dict[int, Condition]()
            for each, asking in pinned.filters:
                owners[asking.places] = asking.slots
                conditions |= dict.fromkeys(asking.places.tolist(), each)
            ordered = [conditions[place] for place in range(owners.size)]
            unreadable = np.array([each is UNREADABLE for each in ordered], np.bool_)
            return Index.build(ordered, pinned.topic.schema), owners, unreadable

        return lru_cache(MAX_VERSIONS)(load)

    @cached_property
    def _condition(self) -> Callable[[str, str], Condition]:
        # Of a topic, neither schema nor protection ever changes.
        about = self._realm.state().topic(self._topic)
        return cache(lambda text, template: condition_of(text, template, about))

    def name(self, interval: ServedInterval, subscriber: str) -> Hashable:
        return interval.filter, interval.template

    def filter(self, interval: ServedInterval, subscriber: str, state: RealmState) -> Condition:
        return self._condition(interval.filter, interval.template)

    def true(self, filters: Sequence[Condition], admitted: Admitted, topic: Topic) -> Iterator[Ints]:
        ask = _true_by_reference if self.by_reference else _true_vectorised
        return ask(filters, admitted, topic.schema)


def _let_in(slot: Ints, event: Ints, admitted: Admitted, names: Sequence[str]) -> tuple[Ints, Ints]:
    """Those among the pairs whom the event's publisher lets open it."""
    for index, readers in admitted.readers.items():
        narrowed = admitted.frame_index[event] == index
        refused = [s for s in np.unique(slot[narrowed]).tolist() if not may_open(readers, names[s])]
        stays = ~(narrowed & np.isin(slot, refused))
        slot, event = slot[stays], event[stays]
    return slot, event


def _true_vectorised(conditions: Sequence[Condition], admitted: Admitted, schema: Schema) -> Iterator[Ints]:
    evaluator = Evaluator(admitted.columns, schema, admitted.payloads())
    return (np.flatnonzero(evaluator.true(condition)) for condition in conditions)


def _true_by_reference(conditions: Sequence[Condition], admitted: Admitted, schema: Schema) -> Iterator[Ints]:
    events, payloads = list(values(admitted, schema)), admitted.payloads()
    for condition in conditions:
        answers = (evaluate(condition, event, payload) for event, payload in zip(events, payloads, strict=True))
        yield np.flatnonzero(np.fromiter((answer is True for answer in answers), np.bool_, len(events)))


def values(admitted: Admitted, schema: Schema) -> Iterator[dict[str, Value]]:
    """The events' attributes as people and filters see them."""
    for row in admitted.columns.to_pylist():
        yield {name: schema.by_name[name].from_physical(physical) for name, physical in row.items()}
