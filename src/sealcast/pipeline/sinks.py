"""The ledger as a Spark sink, streaming and batch: `sealcast-sealed`, for the pipeline itself. Two phases.

    write    in a worker: every piece becomes a durable file that nobody knows of yet
    commit   in the driver: one ledger record names the pieces. From then on they exist; before, nothing happened

A batch that Spark runs again has the same id, and the ledger takes an id once. What a killed driver left running is
recognised by its term and refused (`Ledger.exclusive`).
"""

from __future__ import annotations

import time
import uuid
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    DataSourceStreamWriter,
    DataSourceWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

from sealcast.broker.columns import COUNTS, PIECES, REJECTED
from sealcast.broker.topic import OpenTopic, TopicName
from sealcast.errors import Bug, Corrupt, Misuse
from sealcast.log.entry import Entry, PieceRef
from sealcast.log.ledger import Ledger
from sealcast.log.offsets import PinnedOffset

#: Spark gives its writers no batch id, but its tasks carry it. Not documented, so a test holds on to it.
_QUERY: Final = "sql.streaming.queryId"
_COUNTED: Final = (*COUNTS, *REJECTED.values())


@dataclass(frozen=True)
class Staged(WriterCommitMessage):
    """What a task tells the driver: names, digests and numbers."""

    query: str | None
    #: Version, time and settled time that the batch is pinned to.
    pinned: tuple[int, int, int]
    pieces: tuple[PieceRef, ...]
    counts: Counter[str] = field(default_factory=Counter)


class SealedSink(DataSource):
    """Options: `realm`, `topic`; `term`, of the pipeline that runs it."""

    @classmethod
    def name(cls) -> str:
        return "sealcast-sealed"

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        _check(schema, overwrite)
        return SealedBatchWriter(TopicName.from_options(self.options), self.options.get("term"))

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        _check(schema, overwrite)
        return SealedStreamWriter(TopicName.from_options(self.options), self.options.get("term"))


class SealedStreamWriter(DataSourceStreamArrowWriter):
    def __init__(self, name: TopicName, term: str | None = None) -> None:
        self._name = name
        self._term = term

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        return _stage(self._name, iterator)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        staged = _received(messages)
        queries = {message.query for message in staged}
        if len(queries) == 1 and (query := queries.pop()) is not None:
            _commit(self._name.open(), query, batchId, staged, self._term)
        elif staged:
            raise Bug("the tasks of one micro-batch do not agree on the query they belong to")

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        _discard(self._name, self._term)


class SealedBatchWriter(DataSourceArrowWriter):
    """A batch job is a query of one batch, under a name that no other has."""

    def __init__(self, name: TopicName, term: str | None = None) -> None:
        self._name = name
        self._term = term
        self._query = f"batch-{uuid.uuid4()}"

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        return _stage(self._name, iterator)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        if staged := _received(messages):
            topic = self._name.open()
            _commit(topic, self._query, topic.ledger.end(), staged, self._term)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        _discard(self._name, self._term)


def _check(schema: StructType, overwrite: bool) -> None:
    if overwrite:
        raise Misuse("what was delivered stays delivered: append to a topic, there is no overwriting")
    if schema.fieldNames() != PIECES.names:
        raise Misuse("this sink takes sealed pieces, as the pipeline makes them")


def _stage(name: TopicName, batches: Iterator[pa.RecordBatch]) -> Staged:
    pieces, refs, counts, pinned = name.open().pieces, list[PieceRef](), Counter[str](), (0, 0, 0)
    for batch in batches:
        for row in batch.to_pylist():
            partition, first, end = (row[n] for n in ("partition", "first_offset", "end_offset"))
            pinned = (row["version"], row["time"], row["settled"])
            file = pieces.stage(partition, first, end, row["piece"])
            about = (row["matched"], row["deliveries"], row["encryptions"], row["slots"])
            refs.append(PieceRef(file.name, file.digest, file.size, partition, first, end, *about))
            counts.update({name: row[name] for name in _COUNTED})
    return Staged(query_of_task(), pinned, tuple(refs), counts)


def query_of_task() -> str | None:
    """The streaming query that this task belongs to."""
    task = TaskContext.get()
    return task.getLocalProperty(_QUERY) if task is not None else None


def _received(messages: Sequence[WriterCommitMessage | None]) -> list[Staged]:
    staged = [message for message in messages if isinstance(message, Staged)]
    if len(staged) != len(messages):
        raise Bug("Spark asks to commit a batch of which a task is missing")
    return [message for message in staged if message.pieces]


def _commit(topic: OpenTopic, query: str, batch: int, staged: list[Staged], term: str | None) -> None:
    refs = sorted((ref for s in staged for ref in s.pieces), key=lambda ref: (ref.partition, ref.first))
    pinned = {s.pinned for s in staged}
    if len(pinned) != 1:
        raise Bug(f"one micro-batch, but its tasks worked under versions {sorted(pinned)}")
    start = start_of(topic.ledger, topic.about.partitions, query, batch)
    end = end_of(start, refs, pinned.pop())
    counts = sum((s.counts for s in staged), Counter())  # leaves out what is zero
    topic.ledger.commit(Entry(query, batch, start, end, tuple(refs), dict(counts)), term)


def start_of(ledger: Ledger, partitions: int, query: str, batch: int) -> PinnedOffset:
    """Where the batch must start: at the ledger's end, or where it started when it was committed before."""
    last = ledger.last_span()
    if last is None:
        return PinnedOffset.initial(partitions)
    return last.start if (last.query, last.batch) == (query, batch) else last.end


def end_of(start: PinnedOffset, refs: Sequence[PieceRef], pinned: tuple[int, int, int]) -> PinnedOffset:
    """Where the pieces lead from there: without a gap, or something was lost between source and sink."""
    reached = list(start.partitions)
    reached += [0] * (max((ref.partition for ref in refs), default=-1) + 1 - len(reached))  # a topic may gain some
    for ref in refs:
        if ref.first != reached[ref.partition]:
            raise Corrupt(
                f"frames {ref.first} to {ref.end} of partition {ref.partition} do not follow what the ledger has "
                f"delivered ({start}); nothing was committed",
                hint="is another pipeline running this topic?",
            )
        reached[ref.partition] = ref.end
    return PinnedOffset(tuple(reached), *pinned)


def _discard(name: TopicName, term: str | None) -> None:
    """What the failed batch has staged so far. What its tasks may still stage is collected at the next start."""
    name.open().collect_garbage(time.time_ns() // 1000, term)
