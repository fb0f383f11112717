"""`sealcast match`: events against subscriptions with the protection really at work, as a Spark batch.

    keys       a private realm for this run: publishers, and an entity with its own keys for every subscription
    filters    every subscriber states its filter, the way subscribers of the topic's protection do
    publish    events are checked, sealed and signed, as publishers do it
    spark      a Spark session, unless there is one
    deliver    the steps that brokers run, by the pipeline itself, until everything is drained
    open       every subscriber opens what it was sent, with its own keys only

Nothing here knows one protection from another. A pair (event, subscription) counts when it was opened, and for no other
reason. All keys are gone afterwards.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Final

import numpy as np
from numpy.typing import NDArray

from sealcast.clients.publisher import Publisher, admissible
from sealcast.errors import Bug, EventRejected
from sealcast.lab import scratch
from sealcast.lab.match_input import Asked, GivenEvent, Inputs, naming
from sealcast.lab.match_outcome import MatchOutcome, Refused
from sealcast.log.forwarded import publishers_for
from sealcast.model.event import Position
from sealcast.model.protection import DEFAULT_PROTECTION, Protection, protection_of
from sealcast.model.schema import Schema
from sealcast.protections.port import client_side
from sealcast.trust.deployment import Realm
from sealcast.trust.realm.changes import Access
from sealcast.trust.realm.topics import FIRST_EPOCH, Topic

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from sealcast.lab.prove import OpenedSample

STAGES: Final = ("keys", "filters", "publish", "spark", "deliver", "open")
TOPIC: Final = "match"
#: Publishers, and partitions for them: several, so that nothing here relies on there being one. But in an overlay every
#: subscriber states its filter to every publisher's brokers, so that one has to do.
MAX_PUBLISHERS: Final = 4
EVENTS_PER_PUBLISHER: Final = 2_000
#: Of a publisher that takes milliseconds to seal an event: several share the work.
EVENTS_PER_PEER: Final = 50
#: Brokers right below each broker, where a topic has a tree of them: publishers encrypt for each that is deep enough.
FAN_OUT: Final = 1
#: What one delivery takes in a piece at most: its wrapped key and its place in two indices.
_BYTES_PER_DELIVERY: Final = 64
_BYTES_PER_EVENT: Final = 16_384
_BYTES_PER_SUBSCRIBER: Final = 32_768
#: Deliveries that one job may make if everybody gets everything; more events go through the pipeline in several jobs.
MAX_DELIVERIES_PER_JOB: Final = 16_000_000

Ints = NDArray[np.int64]


def protection_named(
    name: str, layers: int | None = None, profile: str | None = None, joint: bool | None = None
) -> Protection:
    """The protection of that name; Misuse or ParameterRejected for any other, and for settings that it cannot have."""
    given = {"layers": layers, "profile": profile, "joint": joint}
    return protection_of(name, {setting: value for setting, value in given.items() if value is not None})


def match(
    inputs: Inputs,
    protection: Protection = DEFAULT_PROTECTION,
    *,
    spark: SparkSession | None = None,
    told: Callable[[str], None] = lambda stage: None,
) -> MatchOutcome:
    """Run the protection over the inputs; `told` hears of each stage as it begins. FilterRejected names the first
    subscription that the protection cannot express."""
    warnings = remarks(inputs.subscriptions, inputs.schema, protection)
    clock, published = _Clock(told), _Published()
    event = subscription = np.empty(0, np.int64)
    if not inputs.events or not inputs.subscriptions:
        published.refuse(inputs)
    else:
        event, subscription = _matched(inputs, protection, clock, published, spark)
    return MatchOutcome(inputs, event, subscription, tuple(published.refused), str(protection), clock.seconds, warnings)


def remarks(subscriptions: Sequence[Asked], schema: Schema, protection: Protection) -> tuple[str, ...]:
    """What the protection has to say about filters; FilterRejected for the first that it cannot express."""
    side, found = client_side(protection), list[str]()
    topic = Topic(TOPIC, b"", schema, 1, protection, FIRST_EPOCH, Access.MEMBERS)
    for asked in subscriptions:
        with naming(asked.name, asked.filter):
            side.vet(asked.filter, topic)
        found += [f"{asked.name}: {remark}" for remark in side.cost(asked.filter, schema).remarks]
    return tuple(found)


def _matched(
    inputs: Inputs, protection: Protection, clock: _Clock, published: _Published, spark: SparkSession | None
) -> tuple[Ints, Ints]:
    count = len(inputs.subscriptions)
    need = len(inputs.events) * (_BYTES_PER_EVENT + _BYTES_PER_DELIVERY * count) + _BYTES_PER_SUBSCRIBER * count
    with scratch.realm(need) as realm, ExitStack() as held:
        with clock("keys"):
            publishers = [held.enter_context(made) for made in _populate(realm, inputs, protection)]
        with clock("filters"):
            wanted = [(_subscriber(n), asked.filter, None) for n, asked in enumerate(inputs.subscriptions)]
            client_side(protection).subscribe_many(realm, TOPIC, wanted)
        with clock("spark"):
            spark = spark or _session()
        subscribers = list(map(_subscriber, range(count)))
        way = (_ByPeers if protection.peers else _ByBrokers)(spark, realm, subscribers)
        for some in _jobs(inputs):
            with clock("publish"):
                way.publish(publishers, inputs.events, some, published)
            with clock("deliver"):
                way.deliver()
        with clock("open"):
            opened = way.open()
        if opened.unopened:
            raise Bug(f"{opened.unopened} deliveries did not open for whom they were sealed; the first: {opened.why}")
        return _pairs(opened, published)


# --- the stages -----------------------------------------------------------------------------------------


def _populate(realm: Realm, inputs: Inputs, protection: Protection) -> Iterator[Publisher]:
    """The topic, an entity a subscription, and publishers, each of which writes to a partition of its own."""
    most = 1 if protection.overlay else MAX_PUBLISHERS
    count = max(1, min(most, len(inputs.events) // (EVENTS_PER_PEER if protection.peers else EVENTS_PER_PUBLISHER)))
    partitions = 1 if protection.peers else count  # a peer has a log of its own
    realm.create_topic(
        TOPIC, inputs.schema, partitions=partitions, protection=protection, fan_out=FAN_OUT, access="members"
    )
    names = publishers_for(count, "p")
    realm.enrol_many([*names, *map(_subscriber, range(len(inputs.subscriptions)))])
    return (Publisher(realm, TOPIC, as_=name) for name in names)


def _subscriber(number: int) -> str:
    return f"s{number}"


def _jobs(inputs: Inputs) -> Iterator[range]:
    """Events in parts that the pipeline handles at a time, whatever they match."""
    size = max(1, MAX_DELIVERIES_PER_JOB // max(1, len(inputs.subscriptions)))
    return (range(start, min(start + size, len(inputs.events))) for start in range(0, len(inputs.events), size))


class _Published:
    """Where events went, and which were refused."""

    def __init__(self) -> None:
        self.refused: list[Refused] = []
        self.index: list[int] = []
        self.positions: list[Position] = []

    def refuse(self, inputs: Inputs) -> None:
        """Where nobody is there to publish for."""
        for given in inputs.events:
            try:
                admissible(inputs.schema, given.event)
            except EventRejected as error:
                self.refused.append(Refused(given.id, error.attribute, error.message))


def _publish(publishers: Sequence[Publisher], events: Sequence[GivenEvent], some: range, to: _Published) -> None:
    for publisher, mine in zip(publishers, _shares(some, len(publishers)), strict=True):
        result = publisher.publish_admissible(events[i].event for i in mine)
        refused = {refusal.index: refusal.error for refusal in result.refusals}
        for index, error in refused.items():
            message = error.message.removeprefix(f"event {index}: ")
            to.refused.append(Refused(events[mine[index]].id, error.attribute, message))
        to.index += [i for index, i in enumerate(mine) if index not in refused]
        to.positions += result.positions


def _shares(some: range, publishers: int) -> list[range]:
    """Neighbouring events for each publisher."""
    share = -(-len(some) // publishers)
    return [some[number * share : (number + 1) * share] for number in range(publishers)]


def _session() -> SparkSession:
    from sealcast.pipeline.session import session

    return session(app_name="sealcast match", short_lived=True)


def _deliver(spark: SparkSession, realm: Realm) -> None:
    from sealcast.pipeline.run import start

    with start(realm, [TOPIC], once=True, spark=spark) as pipeline:
        pipeline.wait()


def _open(spark: SparkSession, realm: Realm, subscribers: Sequence[str]) -> OpenedSample:
    # Here, so that checking the input does not wait for Spark to be imported.
    from sealcast.lab.prove import open_all

    return open_all(spark, str(realm.paths.root), TOPIC, subscribers)


def _pairs(opened: OpenedSample, published: _Published) -> tuple[Ints, Ints]:
    """Positions back to where the events stood in the file."""
    from sealcast.lab.prove import place

    event = np.empty(opened.place.size, np.int64)
    index = np.array(published.index, np.int64)
    at = np.array([(p.partition, p.offset, p.row) for p in published.positions], np.int64).reshape(-1, 3)
    for partition in np.unique(opened.partition).tolist():
        here = np.flatnonzero(at[:, 0] == partition)
        places = place(at[here, 1], at[here, 2])  # ascending: a publisher's events keep their order
        asked = opened.place[opened.partition == partition]
        found = np.searchsorted(places, asked)
        if not np.isin(asked, places).all():
            raise Bug("an event was opened that nobody published")
        event[opened.partition == partition] = index[here[found]]
    order = np.lexsort((opened.subscriber, event))
    return event[order], opened.subscriber[order]


class _ByBrokers:
    """The way of events whose topic has brokers: their pipeline, until everything is drained."""

    def __init__(self, spark: SparkSession, realm: Realm, subscribers: Sequence[str]) -> None:
        self._spark, self._realm, self._subscribers = spark, realm, subscribers

    def publish(
        self, publishers: Sequence[Publisher], events: Sequence[GivenEvent], some: range, to: _Published
    ) -> None:
        _publish(publishers, events, some, to)

    def deliver(self) -> None:
        _deliver(self._spark, self._realm)

    def open(self) -> OpenedSample:
        return _open(self._spark, self._realm, self._subscribers)


class _ByPeers(_ByBrokers):
    """The way of events that peers carry: sealed, routed and opened by tasks of Spark."""

    def __init__(self, spark: SparkSession, realm: Realm, subscribers: Sequence[str]) -> None:
        from sealcast.lab.carrying import RelayedTopic

        super().__init__(spark, realm, subscribers)
        self._relayed = RelayedTopic(spark, realm, TOPIC, subscribers, realm.paths.root.parent / "relay")
        self._names: list[str] = []

    def publish(
        self, publishers: Sequence[Publisher], events: Sequence[GivenEvent], some: range, to: _Published
    ) -> None:
        from sealcast.lab.carrying import publish_all

        self._names = [publisher.name for publisher in publishers]
        shares = {
            name: [(i, events[i].event) for i in mine]
            for name, mine in zip(self._names, _shares(some, len(publishers)), strict=True)
        }
        for share in publish_all(self._spark, str(self._realm.paths.root), TOPIC, shares):
            to.refused += [Refused(events[i].id, attribute, message) for i, attribute, message in share.refused]
            to.index += [i for i, _ in share.positions]
            to.positions += [position for _, position in share.positions]

    def deliver(self) -> None:
        self._relayed.route(self._names)

    def open(self) -> OpenedSample:
        return self._relayed.open()


# --- odds and ends --------------------------------------------------------------------------------------


class _Clock:
    """Seconds by stage."""

    def __init__(self, told: Callable[[str], None]) -> None:
        self._told = told
        self.seconds: dict[str, float] = dict.fromkeys(STAGES, 0.0)

    @contextmanager
    def __call__(self, stage: str) -> Iterator[None]:
        self._told(stage)
        began = time.monotonic()
        try:
            yield
        finally:
            self.seconds[stage] += time.monotonic() - began
