"""The brokers' hop ledgers as a Spark sink: `sealcast-hops`. Two phases, as for sealed pieces (pipeline/sinks.py).

    write    in a worker: every piece becomes a durable file in its broker's directory
    commit   in the driver: one record in the ledger of each broker that had a part in the batch

A batch is several commits, one after the other. A driver that dies between two of them leaves some brokers committed
and others not; run again, the batch has only the others left (`source.py`), and the ledgers take the rest.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceStreamArrowWriter,
    DataSourceStreamWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

from sealcast.broker.columns import COUNTS, HOP_PIECES, REJECTED
from sealcast.errors import Bug, Misuse
from sealcast.log.entry import Entry, PieceRef
from sealcast.log.offsets import PinnedOffset
from sealcast.pipeline.sinks import end_of, query_of_task, start_of
from sealcast.protections.layered.node import NodeName, named

_COUNTED = (*COUNTS, *REJECTED.values())


@dataclass(frozen=True)
class StagedPart:
    """What a task did for one broker."""

    pinned: tuple[int, int, int]
    pieces: tuple[PieceRef, ...]
    counts: Counter[str] = field(default_factory=Counter)


@dataclass(frozen=True)
class StagedHops(WriterCommitMessage):
    """What a task tells the driver: names, digests and numbers, by broker."""

    query: str | None
    parts: tuple[tuple[str, StagedPart], ...]


class HopsSink(DataSource):
    """Options: `realm`, `topic`, `nodes`; `terms`, of the pipeline that runs it, by broker, as JSON."""

    @classmethod
    def name(cls) -> str:
        return "sealcast-hop-ledgers"

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        if overwrite or schema.fieldNames() != HOP_PIECES.names:
            raise Misuse("this sink takes hop pieces, as the pipeline makes them, and appends them")
        get = self.options.get
        return HopsWriter(named(get("realm"), get("topic"), get("nodes")), get("terms"))


class HopsWriter(DataSourceStreamArrowWriter):
    def __init__(self, names: tuple[NodeName, ...], terms: str | None = None) -> None:
        self._names = {name.node: name for name in names}
        self._terms: dict[str, str] = json.loads(terms) if terms else {}

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        parts: dict[str, list[tuple[PieceRef, tuple[int, int, int], Counter[str]]]] = {}
        for batch in iterator:
            for row in batch.to_pylist():
                parts.setdefault(row["node"], []).append(self._stage(row))
        return StagedHops(query_of_task(), tuple((node, _part(staged)) for node, staged in sorted(parts.items())))

    def _stage(self, row: dict[str, object]) -> tuple[PieceRef, tuple[int, int, int], Counter[str]]:
        node = self._names[str(row["node"])].open()
        partition, first, end, version, at, settled, events, deliveries, encryptions = (
            int(str(row[name]))
            for name in (
                "partition",
                "first_offset",
                "end_offset",
                "version",
                "time",
                "settled",
                "matched",
                "deliveries",
                "encryptions",
            )
        )
        data = row["piece"]
        assert isinstance(data, bytes)
        file = node.pieces.stage(partition, first, end, data)
        about = (partition, first, end, events, deliveries, encryptions)
        ref = PieceRef(file.name, file.digest, file.size, *about)
        return ref, (version, at, settled), Counter({name: int(str(row[name])) for name in _COUNTED})

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        staged = [message for message in messages if isinstance(message, StagedHops)]
        if len(staged) != len(messages):
            raise Bug("Spark asks to commit a batch of which a task is missing")
        staged = [message for message in staged if message.parts]
        queries = {message.query for message in staged}
        if not staged:
            return
        query = queries.pop()
        if queries or query is None:
            raise Bug("the tasks of one micro-batch do not agree on the query they belong to")
        for node in sorted({node for message in staged for node, _ in message.parts}):
            mine = [part for message in staged for name, part in message.parts if name == node]
            self._commit(node, query, batchId, mine)

    def _commit(self, node: str, query: str, batch: int, parts: Sequence[StagedPart]) -> None:
        ledger = self._names[node].open().ledger
        refs = sorted((ref for part in parts for ref in part.pieces), key=lambda ref: (ref.partition, ref.first))
        pinned = {part.pinned for part in parts}
        if len(pinned) != 1:
            raise Bug(f"one micro-batch, but the tasks of broker {node} worked under {sorted(pinned)}")
        start = start_of(ledger, 1, query, batch)
        end: PinnedOffset = end_of(start, refs, pinned.pop())
        counts = sum((part.counts for part in parts), Counter())  # leaves out what is zero
        ledger.commit(Entry(query, batch, start, end, tuple(refs), dict(counts)), self._terms.get(node))

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        now = time.time_ns() // 1000
        for name in self._names.values():
            name.open().collect_garbage(now, self._terms.get(name.node))


def _part(staged: Sequence[tuple[PieceRef, tuple[int, int, int], Counter[str]]]) -> StagedPart:
    pinned = {at for _, at, _ in staged}
    if len(pinned) != 1:
        raise Bug("one task has rows of several batches")
    return StagedPart(pinned.pop(), tuple(ref for ref, _, _ in staged), sum((c for _, _, c in staged), Counter()))
