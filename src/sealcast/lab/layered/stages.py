"""The steps of a run as Spark stages. What is captured in each is the name of a directory and two numbers.

    subscribe   numbers of subscribers          -> filter messages for brokers            ENCRYPT FILTER
    build       a broker's filter messages      -> its table, kept; messages for parents  SECURE TABLE BUILDING
    publish     numbers of files of events      -> pieces for the publisher's children    ENCRYPT NOTIFICATION
    hop         pieces, each for one broker     -> pieces for whoever is next             SECURE LOOK-UP
    open        pieces for subscribers          -> who opened what, with its own keys

A hop is one stage: rows of all brokers that are this deep, by their `node`, in batches. What a broker computed for one
of them it still has for the next, since workers live longer than tasks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from sealcast.errors import CannotOpen
from sealcast.filters.labels import Labeller
from sealcast.lab.layered import nodes, pieces
from sealcast.lab.layered.network import HOMES
from sealcast.lab.layered.nodes import GROUP, Nodes
from sealcast.lab.layered.pieces import SUBSCRIBERS, Writer
from sealcast.model.schema import Schema
from sealcast.protections.layered.messages import FilterMessage
from sealcast.wire.records import RecordCodec

Batches = Iterator[pa.RecordBatch]

_MESSAGES: Final = pa.schema(
    [
        pa.field("node", pa.string(), nullable=False),
        pa.field("sender", pa.string(), nullable=False),
        pa.field("slots", pa.list_(pa.list_(pa.binary())), nullable=False),
        pa.field("path", pa.list_(pa.string()), nullable=False),
    ]
)
_MESSAGES_DDL: Final = "node STRING, sender STRING, slots ARRAY<ARRAY<BINARY>>, path ARRAY<STRING>"
_OPENED: Final = pa.schema(
    [
        pa.field("places", pa.binary(), nullable=False),
        pa.field("subscribers", pa.binary(), nullable=False),
        pa.field("unopened", pa.int64(), nullable=False),
        pa.field("why", pa.string()),
    ]
)
_OPENED_DDL: Final = "places BINARY, subscribers BINARY, unopened BIGINT, why STRING"
#: Tasks a core: pieces differ in what they cost, and which of them share a task is chance.
_TASKS_PER_CORE: Final = 8


@dataclass(frozen=True, slots=True)
class Stages:
    """One run's stages."""

    spark: SparkSession
    root: str
    layers: int
    subscribers: int
    #: Files of events, and pieces that the publisher makes of them.
    files: int

    @property
    def tasks(self) -> int:
        """As many as there are cores to keep busy, unless there is less to do."""
        return min(_TASKS_PER_CORE * self.spark.sparkContext.defaultParallelism, HOMES * self.files)

    def subscribe(self) -> DataFrame:
        return self._numbers(self.subscribers, min(self.subscribers, self.tasks)).mapInArrow(
            _subscribe(self._nodes()), _MESSAGES_DDL
        )

    def build(self, messages: DataFrame) -> DataFrame:
        return messages.groupBy("node").applyInArrow(_build(self._nodes()), _MESSAGES_DDL)

    def publish(self, schema: Schema) -> DataFrame:
        return self._numbers(self.files, self.files).mapInArrow(_publish(self._nodes(), schema.to_json()), pieces.DDL)

    def hop(self, arrived: DataFrame) -> DataFrame:
        """By node and piece, not by node alone: near the root there are fewer brokers than cores."""
        spread = arrived.repartition(self.tasks, "node", "number")
        return spread.mapInArrow(_hop(self._nodes()), pieces.DDL)

    def open(self, arrived: DataFrame) -> pa.Table:
        return arrived.repartition(self.tasks, "node", "number").mapInArrow(_open(self._nodes()), _OPENED_DDL).toArrow()

    def _numbers(self, count: int, tasks: int) -> DataFrame:
        return self.spark.range(0, count, 1, tasks)

    def _nodes(self) -> Callable[[], Nodes]:
        root, layers, subscribers = self.root, self.layers, self.subscribers
        return lambda: nodes.here(root, layers, subscribers)


# --- what runs in workers -------------------------------------------------------------------------------------------


def _subscribe(get: Callable[[], Nodes]) -> Callable[[Batches], Batches]:
    def run(batches: Batches) -> Batches:
        here = get()
        for batch in batches:
            rows = []
            for number in batch.column("id").to_pylist():
                name, home = here.network.subscriber(number), here.network.home(number)
                subscriber, wanted = here.subscriber(name)
                rows += [_message(home, name, message) for message in subscriber.encrypt_filter(wanted)]
            yield pa.RecordBatch.from_pylist(rows, schema=_MESSAGES)

    return run


def _build(get: Callable[[], Nodes]) -> Callable[[pa.Table], pa.Table]:
    def run(messages: pa.Table) -> pa.Table:
        here = get()
        broker = here.new_broker(messages.column("node")[0].as_py())
        rows = []
        for row in messages.to_pylist():
            message = FilterMessage(tuple(map(tuple, row["slots"])), tuple(row["path"]))
            onwards = broker.on_filter(row["sender"], message)
            rows += [_message(broker.place.parent, broker.place.name, one) for one in onwards]
        here.keep_table(broker)
        return pa.Table.from_pylist(rows, schema=_MESSAGES)

    return run


def _message(node: str, sender: str, message: FilterMessage) -> dict[str, object]:
    return {"node": node, "sender": sender, "slots": message.slots, "path": message.path}


def _publish(get: Callable[[], Nodes], schema: dict[str, Any]) -> Callable[[Batches], Batches]:
    def run(batches: Batches) -> Batches:
        here, about = get(), Schema.from_json(schema)
        publisher, labeller, codec = here.publisher(), Labeller(about), RecordCodec(about)
        for batch in batches:
            for number in batch.column("id").to_pylist():
                places, messages = here.events(number)
                labels, writers = labeller.batch(codec.decode(messages).columns), dict[str, Writer]()
                for i, (place, message) in enumerate(zip(places, messages, strict=True)):
                    for child, sent in publisher.encrypt_notification(labels.of(i), message).items():
                        _writer(writers, child, number).add(child, place, sent)
                yield pieces.batch(writers)

    return run


def _hop(get: Callable[[], Nodes]) -> Callable[[Batches], Batches]:
    def run(batches: Batches) -> Batches:
        here = get()
        brokers = frozenset(here.network.brokers)
        for batch in batches:
            for row in batch.to_pylist():
                broker, writers = here.broker(row["node"]), dict[str, Writer]()
                for _, place, message in pieces.messages(row, GROUP.wire_bytes):
                    for child, sent in broker.on_notification(message).items():
                        to = child if child in brokers else SUBSCRIBERS
                        _writer(writers, to, row["number"]).add(child, place, sent)
                if writers:
                    yield pieces.batch(writers)

    return run


def _open(get: Callable[[], Nodes]) -> Callable[[Batches], Batches]:
    def run(batches: Batches) -> Batches:
        here = get()
        for batch in batches:
            for row in batch.to_pylist():
                yield pa.RecordBatch.from_pylist([_opened(here, row)], schema=_OPENED)

    return run


def _opened(here: Nodes, row: dict[str, Any]) -> dict[str, object]:
    """Every subscriber opens what it was sent, for itself: that somebody else could proves nothing."""
    places, subscribers, unopened, why = list[int](), list[int](), 0, None
    for name, place, message in pieces.messages(row, GROUP.wire_bytes):
        try:
            here.opener(name).open(message)
        except CannotOpen as error:
            unopened, why = unopened + 1, why or error.message
        else:
            places.append(place)
            subscribers.append(here.network.number(name))
    packed = (np.array(found, "<i8").tobytes() for found in (places, subscribers))
    return dict(zip(("places", "subscribers", "unopened", "why"), (*packed, unopened, why), strict=True))


def _writer(writers: dict[str, Writer], node: str, number: int) -> Writer:
    if node not in writers:
        writers[node] = Writer(node, number)
    return writers[node]
