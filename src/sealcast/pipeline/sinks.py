"""The ledgers of steps as a Spark sink, streaming and batch: `sealcast-pieces`, for the pipeline itself. Two phases.

    write    in a worker: notes the pieces that its task has staged, durable files that nobody knows of yet
    commit   in the driver: one ledger record for each broker names its pieces. From then on they exist; before, nothing
             happened

A batch that Spark runs again has the same id, and a ledger takes an id once. A batch of several brokers is several
commits, one after the other: a driver that dies between two of them leaves some brokers committed and others not, and
only the others have a part in the batch when it is run again (sources.py). What a killed driver left running is
recognised by its term and refused (`Ledger.exclusive`).
"""

from __future__ import annotations

import json
import time
import uuid
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final

import numpy as np
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

from sealcast.broker.columns import COUNTED, PINNED, PLACES, REFERRED, STAGED, TAKEN, counts_in
from sealcast.errors import Bug, Corrupt, Misuse, Unavailable
from sealcast.log.entry import Entry, PieceRef
from sealcast.log.ledger import Committed
from sealcast.log.offsets import PinnedOffset
from sealcast.protections.steps import OpenStep, StepName, names_from

#: Spark gives its writers no batch id, but its tasks carry it. Not documented, so a test holds on to it.
_QUERY: Final = "sql.streaming.queryId"


@dataclass
class TaskPart:
    """What a task did for one broker: names, digests and numbers."""

    #: What the broker's part of the batch is pinned to, by PINNED.
    pinned: set[tuple[int, ...]] = field(default_factory=set)
    pieces: list[PieceRef] = field(default_factory=list)
    #: Those of frames that earlier batches took.
    late: list[PieceRef] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
    #: What replay took of its frames.
    taken: list[bytes] = field(default_factory=list)
    #: In how many pieces a subscription was suspended, by its place in the table.
    suspended: Counter[int] = field(default_factory=Counter)


@dataclass(frozen=True)
class StagedTask(WriterCommitMessage):
    """What a task tells the driver, by broker."""

    query: str | None
    parts: Mapping[str, TaskPart]


class PiecesSink(DataSource):
    """Options: `realm`, `topic`, `step`, `brokers`; `terms`, of the pipeline that runs it, by broker, as JSON."""

    @classmethod
    def name(cls) -> str:
        return "sealcast-pieces"

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        _check(schema, overwrite)
        return BatchPieces(names_from(self.options), self.options.get("terms"))

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        _check(schema, overwrite)
        return StreamPieces(names_from(self.options), self.options.get("terms"))


def _check(schema: StructType, overwrite: bool) -> None:
    if overwrite:
        raise Misuse("what was delivered stays delivered: append to a topic, there is no overwriting")
    if schema.fieldNames() != STAGED.names:
        raise Misuse("this sink takes pieces, as the pipeline makes them")


class _Pieces:
    """What both writers do."""

    def __init__(self, names: tuple[StepName, ...], terms: str | None = None) -> None:
        self._names = {name.broker: name for name in names}
        self._terms: dict[str, str] = json.loads(terms) if terms else {}

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        parts: dict[str, TaskPart] = {}
        for batch in iterator:
            for row in batch.to_pylist():
                part = parts.setdefault(row["node"], TaskPart())
                part.pinned.add(tuple(row[name] for name in PINNED))
                span = row["partition"], row["first_offset"], row["end_offset"]
                counts = counts_in(row[COUNTED])
                about = [*map(counts.__getitem__, REFERRED), row["slots"]]
                kind = part.late if row["late"] else part.pieces
                kind.append(PieceRef(row["name"], row["digest"], row["size"], *span, *about))
                part.counts.update(counts)
                part.taken += [row[TAKEN]] if row[TAKEN] else []
                part.suspended.update(np.frombuffer(row["suspensions"] or b"", PLACES).tolist())
        return StagedTask(_query_of_task(), parts)

    def _commit(self, staged: Sequence[StagedTask], query: str, batch: int | None = None) -> None:
        """Broker by broker; without a number, the batch is the one after the ledger's last."""
        for node in sorted({node for message in staged for node in message.parts}):
            step = self._names[node].open()
            parts = [message.parts[node] for message in staged if node in message.parts]
            last = step.ledger.newest()
            number = batch if batch is not None else 0 if last is None else last.index + 1
            entry = _entry(step, query, number, parts, last)
            if step.ledger.commit(entry, self._terms.get(node), last):
                step.took(last, entry, [each for part in parts for each in part.taken])
                step.note_suspended(entry, sum((part.suspended for part in parts), Counter()))

    def _discard(self) -> None:
        """What the failed batch has staged so far. What its tasks may still stage is collected at the next start. So is
        what cannot be removed now: if this failed, too, Spark would not say any more why the batch did."""
        now = time.time_ns() // 1000
        for name in self._names.values():
            with suppress(Unavailable):
                name.open().collect_garbage(now, self._terms.get(name.broker))


class StreamPieces(_Pieces, DataSourceStreamArrowWriter):
    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        staged = _received(messages)
        queries = {message.query for message in staged}
        if len(queries) == 1 and (query := queries.pop()) is not None:
            self._commit(staged, query, batchId)
        elif staged:
            raise Bug("the tasks of one micro-batch do not agree on the query they belong to")

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        self._discard()


class BatchPieces(_Pieces, DataSourceArrowWriter):
    """A batch job is a query of one batch, under a name that no other has."""

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        self._commit(_received(messages), f"batch-{uuid.uuid4()}")

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        self._discard()


def _query_of_task() -> str | None:
    """The streaming query that this task belongs to."""
    task = TaskContext.get()
    return task.getLocalProperty(_QUERY) if task is not None else None


def _received(messages: Sequence[WriterCommitMessage | None]) -> list[StagedTask]:
    staged = [message for message in messages if isinstance(message, StagedTask)]
    if len(staged) != len(messages):
        raise Bug("Spark asks to commit a batch of which a task is missing")
    return [message for message in staged if message.parts]


def _entry(step: OpenStep, query: str, batch: int, parts: Sequence[TaskPart], last: Committed | None) -> Entry:
    refs, late = _sorted(part.pieces for part in parts), _sorted(part.late for part in parts)
    pinned = {at for part in parts for at in part.pinned}
    if len(pinned) != 1:
        raise Bug(f"one micro-batch, but tasks of broker {step.name.broker} worked under {sorted(pinned)}")
    # Where the batch must start: at the ledger's end, or where it started when it was committed before.
    start = step.initial if last is None else last.entry.end
    if last is not None and (last.entry.query, last.entry.batch) == (query, batch):
        start = last.entry.start
    counts = sum((part.counts for part in parts), Counter())  # leaves out what is zero
    end = _end_of(start, refs, *pinned.pop())
    return Entry(query, batch, start, end, (*late, *refs), dict(counts), len(late), step.chain(end.version))


def _sorted(parts: Iterable[Sequence[PieceRef]]) -> list[PieceRef]:
    return sorted((ref for part in parts for ref in part), key=lambda ref: (ref.partition, ref.first))


def _end_of(start: PinnedOffset, refs: Sequence[PieceRef], *pinned: int) -> PinnedOffset:
    """Where the pieces lead from there: without a gap, or something was lost between source and sink."""
    reached = list(start.partitions)
    reached += [0] * (max((ref.partition for ref in refs), default=-1) + 1 - len(reached))  # a topic may gain some
    for ref in refs:
        if ref.first != reached[ref.partition]:
            raise Corrupt(
                f"{ref.first} to {ref.end} of partition {ref.partition} do not follow what the ledger has "
                f"delivered ({start}); nothing was committed",
                hint="is another pipeline running this topic?",
            )
        reached[ref.partition] = ref.end
    return PinnedOffset(tuple(reached), *pinned)
