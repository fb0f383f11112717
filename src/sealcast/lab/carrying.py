"""A topic that peers carry, as a Spark batch: what publishers, a relay and subscribers each do, spread over processes.

    publish    a task for each publisher: it seals its share of the events, and appends them to its own log
    route      what publishers' peers take out of their logs goes through one relay, to which every subscriber has
               given its tokens (`pipeline.relay`)
    open       a task for some subscribers: each one's peer checks what it was handed, opens it with its own keys, and
               keeps it in its own inbox

Plans have names in them and sealed events. Keys are read where they are used, from the files of whom they belong to.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np
import pyarrow as pa

from sealcast.clients.publisher import Publisher
from sealcast.errors import Bug, EventRejected
from sealcast.lab.prove import OpenedSample, place
from sealcast.model.event import Event, Position
from sealcast.pipeline.failures import explained
from sealcast.pipeline.queries import parallelism
from sealcast.pipeline.relay import routed
from sealcast.protections.attribute import relay
from sealcast.protections.attribute.incoming import SubscriberPeer
from sealcast.protections.attribute.keys import CredentialRing
from sealcast.protections.attribute.outgoing import OutgoingBatch, PublisherPeer
from sealcast.protections.attribute.scheme import PublicParameters, SubscriptionKey
from sealcast.trust.handles import EntityRealm
from sealcast.wire.carried import CarriedEvent

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_OPENED: Final = "subscriber bigint, partition bigint, place bigint, why string"
_EVENTS: Final = pa.schema([("event", pa.binary())])
#: Events that a subscriber's peer looks at together.
_TOGETHER: Final = 256


class SealedShare(NamedTuple):
    """What became of one publisher's share: the indices of its events with where they went, and those refused."""

    positions: list[tuple[int, Position]]
    refused: list[tuple[int, str | None, str]]


def publish_all(
    spark: SparkSession, realm: str, topic: str, shares: Mapping[str, Sequence[tuple[int, Event]]]
) -> list[SealedShare]:
    """Every publisher publishes its events, each given with its index."""

    def run(share: tuple[str, Sequence[tuple[int, Event]]]) -> SealedShare:
        name, mine = share
        with Publisher(realm, topic, as_=name) as publisher:
            result = publisher.publish_admissible(event for _, event in mine)
        refused = {refusal.index: refusal.error for refusal in result.refusals}
        went = [index for at, (index, _) in enumerate(mine) if at not in refused]
        named = [(mine[at][0], *_told(error, at)) for at, error in refused.items()]
        return SealedShare(list(zip(went, result.positions, strict=True)), named)

    with explained():
        return spark.sparkContext.parallelize(list(shares.items()), max(1, len(shares))).map(run).collect()


def _told(error: EventRejected, at: int) -> tuple[str | None, str]:
    return error.attribute, error.message.removeprefix(f"event {at}: ")


class RelayedTopic:
    """One topic whose subscribers all gave their tokens to one relay. What it hands on lies in `directory`."""

    def __init__(
        self, spark: SparkSession, realm: EntityRealm, topic: str, subscribers: Sequence[str], directory: Path
    ) -> None:
        self._spark, self._realm, self._topic, self._subscribers = spark, realm, topic, subscribers
        self._tasks = parallelism(spark)["tasks"]
        self._table, self._handed = directory / "tokens.arrow", directory / "handed"
        directory.mkdir(mode=0o700)
        parameters, children = self._tokens()
        #: Whether anybody asks for anything; else there are no keys, and nothing to route by.
        self._asked = parameters is not None
        if parameters is not None:
            relay.write(self._table, parameters, children)

    def _tokens(self) -> tuple[PublicParameters | None, dict[int, list[SubscriptionKey]]]:
        """Of each subscriber, by its number; they say what to look for, and open nothing."""
        parameters, children, epoch = None, dict[int, list[SubscriptionKey]](), self._epoch
        for number, name in enumerate(self._subscribers):
            with CredentialRing(self._realm, self._topic, self._realm.identity(name)) as ring:
                for held in ring.subscribing(epoch):
                    parameters = parameters or PublicParameters.from_bytes(held.parameters)
                    children.setdefault(number, []).extend(map(SubscriptionKey.parse, held.keys))
        return parameters, children

    @property
    def _epoch(self) -> int:
        return self._realm.state().topic(self._topic).epoch

    def route(self, publishers: Iterable[str]) -> None:
        """Takes everything out of these publishers' logs, and hands it on."""
        for name in publishers:
            with ExitStack() as held:
                peer = PublisherPeer(self._realm, self._topic, name)
                held.callback(peer.close)
                held.enter_context(peer.alone())
                for batch in peer.batches():
                    self._hand_on(batch)
                    peer.sent(batch)

    def _hand_on(self, batch: OutgoingBatch) -> None:
        if batch.rejected:
            first = batch.rejected[0]
            raise Bug(f"a publisher's own peer refused {len(batch.rejected)} of its frames: {first.detail}")
        if not self._asked or not batch.events:
            return
        events = pa.table([pa.array([event.to_bytes() for event in batch.events], pa.binary())], schema=_EVENTS)
        with explained():
            found = self._spark.createDataFrame(events).repartition(self._tasks)
            routed(found, self._table).write.mode("append").parquet(str(self._handed))

    def open(self) -> OpenedSample:
        """Every subscriber's peer takes what was handed to it."""
        from pyspark.sql import functions as f

        if not self._handed.exists():
            nothing = np.empty(0, np.int64)
            return OpenedSample(nothing, nothing, nothing, 0, None)
        with explained():
            handed = self._spark.read.parquet(str(self._handed))
            mail = handed.select(f.explode("children").alias("child"), "event")
            ordered = mail.repartition(self._tasks, "child").sortWithinPartitions("child")
            opening = _opening(str(self._realm.paths.root), self._topic, tuple(self._subscribers))
            rows = ordered.mapInArrow(opening, _OPENED).toArrow()
        why = rows.column("why")
        good = rows.filter(why.is_null())
        reasons = why.drop_null().to_pylist()
        subscriber, partition, at = (good.column(name).to_numpy() for name in ("subscriber", "partition", "place"))
        return OpenedSample(subscriber, partition, at, len(reasons), next(iter(reasons), None))


def _opening(
    realm: str, topic: str, subscribers: Sequence[str]
) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """What a task does for its subscribers, one after the other."""

    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from sealcast.lab.prove import SettledRealm

        opened, rows = SettledRealm(realm), (row for batch in batches for row in _rows_of(batch))
        for number, mine in groupby(rows, key=lambda row: row[0]):
            peer = SubscriberPeer(opened, topic, subscribers[number])
            with peer, peer.alone():
                yield from _taken(peer, number, (event for _, event in mine))

    return run


def _taken(peer: SubscriberPeer, number: int, events: Iterable[bytes]) -> Iterator[pa.RecordBatch]:
    waiting: list[CarriedEvent] = []
    for data in events:
        waiting.append(CarriedEvent.from_bytes(data))
        if len(waiting) == _TOGETHER:
            yield _kept(peer, number, waiting)
            waiting = []
    if waiting:
        yield _kept(peer, number, waiting)


def _kept(peer: SubscriberPeer, number: int, events: Sequence[CarriedEvent]) -> pa.RecordBatch:
    """Keeps what is its own in its inbox. The relay's test is exact, so that all of it is: else it is said why not."""
    found = peer.look_at(events)
    peer.keep(found)
    why = [refusal.detail for refusal in found.rejected]
    why += ["it was handed on, and is nobody's"] * (len(events) - len(found.events) - len(why))
    at = [event.position for event in found.events]
    nothing = [-1] * len(why)
    columns = [
        [number] * len(events),
        [position.partition for position in at] + nothing,
        [int(place(position.offset, position.row)) for position in at] + nothing,
    ]
    reasons = pa.array([None] * len(at) + why, pa.string())
    arrays = [*(pa.array(column, pa.int64()) for column in columns), reasons]
    return pa.RecordBatch.from_arrays(arrays, names=["subscriber", "partition", "place", "why"])


def _rows_of(batch: pa.RecordBatch) -> Iterator[tuple[int, bytes]]:
    return zip(batch.column("child").to_pylist(), batch.column("event").to_pylist(), strict=True)
