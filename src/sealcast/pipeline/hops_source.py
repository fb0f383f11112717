"""Hops as a Spark source: `sealcast-hops`, for the pipeline itself. One hop a batch, for every broker that runs here.

    latestOffset   has the brokers' desks take the filters that wait, those below first, then pins: how many records of
                   the ledgers above this micro-batch takes, and the version of each broker's table
    partitions     refuses what does not follow a broker's ledger; divides the rest among the cores, by bytes
    read           in a worker: opens the broker's own keys, routes (`kernel.hop`), yields a piece a row

A broker whose part of the batch is in its ledger already, because a driver died between two brokers' commits, has no
part in the batch when it is run again. What one hop makes is the input of others in the next batch, also when all
that is there is being drained (availableNow): that ends, since a forest has an end.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from sealcast.broker.columns import COUNTS, HOP_PIECES, REJECTED, ddl
from sealcast.log.offsets import PinnedOffset, Planned, check_continuity
from sealcast.pipeline import hops_offsets as offsets
from sealcast.pipeline.hops_offsets import Offsets
from sealcast.pipeline.options import positive
from sealcast.protections.layered.hop import hop
from sealcast.protections.layered.node import NodeName, OpenNode, named
from sealcast.wire import hops

#: Of one broker in one micro-batch: what is redone after a crash, and how long others wait for a new filter.
DEFAULT_MAX_RECORDS: Final = 1_024
DEFAULT_MAX_BYTES: Final = 16 << 20
#: How often desks look for filters while no events come.
TURN_SECONDS: Final = 0.25
#: Of all desks, before events are looked at: filters that never end do not keep them waiting for ever.
MAX_PASSES: Final = 16


@dataclass(frozen=True, slots=True)
class HopSpan:
    """Records [first, end) of one of the ledgers above a broker."""

    name: NodeName
    partition: int
    first: int
    end: int
    #: What the broker's part of the batch is pinned to.
    pinned: PinnedOffset
    size: int

    def meets(self, other: HopSpan) -> bool:
        """Whether the other goes on where this one ends."""
        return (self.name, self.partition, self.end) == (other.name, other.partition, other.first)


@dataclass(frozen=True)
class HopSpans(InputPartition):
    """What one task does."""

    spans: tuple[HopSpan, ...]


@dataclass(frozen=True, slots=True)
class HopLimits:
    """What a micro-batch may take of each broker's input, and how many tasks it is divided into."""

    records: int
    bytes: int
    tasks: int

    @classmethod
    def from_options(cls, options: Mapping[str, str]) -> HopLimits:
        return cls(
            positive(options, "max_records_per_trigger", DEFAULT_MAX_RECORDS),
            positive(options, "max_hop_bytes_per_trigger", DEFAULT_MAX_BYTES),
            positive(options, "tasks", 2),
        )


class HopsSource(DataSource):
    """Options: `realm`, `topic`, `nodes` (names, with commas between them); `max_records_per_trigger`,
    `max_hop_bytes_per_trigger`; `tasks`, how many run at once."""

    @classmethod
    def name(cls) -> str:
        return "sealcast-hops"

    def schema(self) -> str:
        return ddl(HOP_PIECES)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        get = self.options.get
        return HopsStream(named(get("realm"), get("topic"), get("nodes")), HopLimits.from_options(self.options))


class HopsStream(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Lives in a process of the driver for as long as the query does; a copy without state reads in the workers."""

    def __init__(self, names: tuple[NodeName, ...], limits: HopLimits) -> None:
        self._names = names
        self._limits = limits
        self._turn_at = 0.0

    def initialOffset(self) -> dict[str, Any]:
        """A new checkpoint goes on where the ledgers end."""
        return offsets.to_json({name: name.open().committed() for name in self._names})

    def getDefaultReadLimit(self) -> ReadLimit:
        return ReadMaxRows(self._limits.records)

    def prepareForTriggerAvailableNow(self) -> None:
        """Nothing is noted: what is drained here makes more to be drained here."""

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        begin = offsets.from_json(start, self._names)
        waiting = self._waiting(begin)
        # Before anything is pinned; and now and then while nothing comes, so that filters do not wait for events.
        if waiting or time.monotonic() >= self._turn_at:
            turn_desks(self._names)
            self._turn_at = time.monotonic() + TURN_SECONDS
        records = None if isinstance(limit, ReadAllAvailable) else getattr(limit, "max_rows", self._limits.records)
        ends = {name: self._end(name.open(), begin[name], records) for name in waiting}
        # As it came, without any: a table's new version alone is no reason for a batch.
        return offsets.to_json(begin | ends) if ends else start

    def _waiting(self, begin: Offsets) -> list[NodeName]:
        """The brokers that have something to take."""
        overlay = self._names[0].open().realm.state().overlay(self._names[0].topic)
        for name in self._names:
            name.open().look_up(overlay)
        return [name for name, at in begin.items() if name.open().awaits(at, overlay)]

    def reportLatestOffset(self) -> dict[str, Any] | None:
        nodes = [name.open() for name in self._names]
        return offsets.to_json(
            {node.name: PinnedOffset(node.available(), node.desk.version()) for node in nodes if node.upstreams()}
        )

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        first, last = (offsets.from_json(at, self._names) for at in (start, end))
        spans = [
            span
            for name in self._names
            if first[name] != last[name] and not _again(name, first[name], last[name])
            for span in _spans(name, first[name], last[name])
        ]
        return divide(spans, self._limits.tasks)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, HopSpans)
        for span in partition.spans:
            yield route(span)

    def __reduce__(self) -> tuple[Any, ...]:
        return HopsStream, (self._names, self._limits)

    def _end(self, node: OpenNode, begin: PinnedOffset, records: int | None) -> PinnedOffset:
        """Where this micro-batch ends for one broker that has something to take."""
        available = node.available()
        ends = list(begin.partitions) + [0] * (len(available) - len(begin.partitions))
        left, room = records, self._limits.bytes
        for partition, last in enumerate(available):
            first = ends[partition]
            for size in node.sizes(partition, first, last):
                if left == 0 or (records is not None and room <= 0):
                    break
                ends[partition] += 1
                room -= size
                left = None if left is None else left - 1
        # A ledger that came to stand above and has nothing yet is not of this batch: the broker's own learns of it with
        # a piece.
        used = max((n for n, end in enumerate(ends, 1) if end), default=0)
        reached = tuple(ends[: max(used, len(begin.partitions))])
        now = max(time.time_ns() // 1000, begin.time_us)
        return PinnedOffset(reached, node.desk.version(), now)


def turn_desks(names: Sequence[NodeName]) -> int:
    """The desks of these brokers take the filters that wait, those below first, so that a filter goes all the way up at
    once; how many changed a table. Until none does: one may have waited for another's key, and in a generation that is
    over, who is above now may have been below."""
    if not names:
        return 0
    overlay = names[0].open().realm.state().overlay(names[0].topic)
    here = {name.node: name for name in names}
    desks = [here[node].open().desk for node in reversed(overlay.downwards()) if node in here]
    moved = 0
    for _ in range(MAX_PASSES):
        now = sum(desk.turn() for desk in desks)
        moved += now
        if not now:
            break
    return moved


def route(span: HopSpan) -> pa.RecordBatch:
    """One hop of one broker over some records: a piece, as a row."""
    node = span.name.open()
    piece = hop(
        node.upstream(span.partition).pieces(span.first, span.end),
        span.name.node,
        node.tables.at(span.pinned.version),
        node.tables.kept_at(span.pinned.version),
        topic=node.about.id,
        version=span.pinned.version,
        partition=span.partition,
        first=span.first,
        end=span.end,
    )
    row = {
        "node": span.name.node,
        "partition": span.partition,
        "first_offset": span.first,
        "end_offset": span.end,
        "version": span.pinned.version,
        "time": span.pinned.time_us,
        "settled": span.pinned.settled_us,
        **{count: piece.counts.get(count, 0) for count in (*COUNTS, *REJECTED.values())},
        "slots": b"",  # recipients have names
        "piece": hops.encode(piece),
    }
    return pa.RecordBatch.from_pylist([row], schema=HOP_PIECES)


def _again(name: NodeName, first: PinnedOffset, last: PinnedOffset) -> bool:
    """In the ledger already, when the driver died before Spark noted that."""
    return check_continuity(name.open().ledger, first, last) is Planned.AGAIN


def _spans(name: NodeName, first: PinnedOffset, last: PinnedOffset) -> Iterator[HopSpan]:
    node = name.open()
    for partition, begin, end in first.ranges(last):
        for index, size in enumerate(node.sizes(partition, begin, end), begin):
            yield HopSpan(name, partition, index, index + 1, last, size)


def divide(spans: Sequence[HopSpan], tasks: int) -> list[HopSpans]:
    """Records packed into at most so many tasks of about equal bytes, in order; neighbours of one ledger together."""
    total, filled, packed = sum(span.size for span in spans) or 1, 0, list[list[HopSpan]]()
    for span in spans:
        task = min(tasks - 1, filled * tasks // total)
        if task >= len(packed):
            packed.append([])
        filled += span.size
        before = packed[-1][-1] if packed[-1] else None
        if before is not None and (before.name, before.partition, before.end) == (
            span.name,
            span.partition,
            span.first,
        ):
            packed[-1][-1] = HopSpan(
                span.name, span.partition, before.first, span.end, span.pinned, before.size + span.size
            )
        else:
            packed[-1].append(span)
    return [HopSpans(tuple(task)) for task in packed]
