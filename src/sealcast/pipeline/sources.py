"""The input of steps as a Spark source, streaming and batch: `sealcast-input`, for the pipeline itself.

    latestOffset   how far this micro-batch goes, bounded in number and bytes, and what it is pinned to
    partitions     refuses what does not follow a ledger, then divides the rest among the cores, by bytes
    read           in a worker: stages the pieces that the step makes of its part, and yields their names

A broker whose part of a batch is in its ledger already, because a driver died before Spark noted that or between two
brokers' commits, has no part in the batch when it is run again.

Offsets are pinned and carry a MAC (log/offsets.py), because Spark believes whatever stands in its checkpoint.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from sealcast.broker.columns import STAGED, ddl
from sealcast.broker.rulings import Span as Range
from sealcast.errors import Misuse
from sealcast.log.ledger import Committed
from sealcast.log.offsets import PinnedOffset, Planned, check_continuity
from sealcast.pipeline import offsets
from sealcast.pipeline.options import positive
from sealcast.protections.steps import OpenStep, Span, StepName, Task, names_from

#: The options that bound a micro-batch of each broker, in number and in bytes, with their defaults.
FRAME_LIMITS: Final = (("max_frames_per_trigger", 8_192), ("max_bytes_per_trigger", 64 << 20))
RECORD_LIMITS: Final = (("max_records_per_trigger", 1_024), ("max_hop_bytes_per_trigger", 16 << 20))
#: How often filters are taken in while no events come.
TURN_SECONDS: Final = 0.25


@dataclass(frozen=True, slots=True)
class Limits:
    """What a micro-batch may take of each broker's input, and how many tasks it is divided into."""

    number: int
    bytes: int
    tasks: int

    @classmethod
    def from_options(cls, options: Mapping[str, str], name: StepName) -> Limits:
        number, size = FRAME_LIMITS if name.reads_frames else RECORD_LIMITS
        return cls(positive(options, *number), positive(options, *size), positive(options, "tasks", 2))


class StepsSource(DataSource):
    """Options: `realm`, `topic`, `step`, `brokers`; the limits above; `tasks`, how many run at once; of a batch,
    `continues`, the incarnation to go on with."""

    @classmethod
    def name(cls) -> str:
        return "sealcast-input"

    def schema(self) -> str:
        return ddl(STAGED)

    def reader(self, schema: StructType) -> DataSourceReader:
        names = names_from(self.options)
        if len(names) > 1 or not names[0].reads_frames:
            raise Misuse("a batch reads the frames of one broker")
        continues = bytes.fromhex(self.options.get("continues") or "")
        return StepsBatch(names[0], Limits.from_options(self.options, names[0]), continues)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        names = names_from(self.options)
        return StepsStream(names, Limits.from_options(self.options, names[0]))


class StepsStream(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Lives in a process of the driver for as long as the query does; a copy without state reads in the workers."""

    def __init__(self, names: tuple[StepName, ...], limits: Limits) -> None:
        self._names = names
        self._limits = limits
        self._turn_at = 0.0
        #: With availableNow: where the log ended when the query began.
        self._targets: dict[StepName, tuple[int, ...]] = {}
        #: Where the input ended when that was last asked, until it is reported.
        self._seen: dict[StepName, tuple[int, ...]] = {}
        self._begun: set[StepName] = set()
        #: The newest record of ledgers as far as it is known, and those that a batch was planned for since.
        self._newest: dict[StepName, Committed | None] = {}
        self._planned: set[StepName] = set()

    def initialOffset(self) -> dict[str, Any]:
        """A new checkpoint goes on where the ledgers end: a ledger is the truth, a checkpoint Spark's note of it."""
        return offsets.to_json({name: name.open().committed() for name in self._names})

    def getDefaultReadLimit(self) -> ReadLimit:
        return ReadMaxRows(self._limits.number)

    def prepareForTriggerAvailableNow(self) -> None:
        """Of records nothing is noted: those that are drained here make more to be drained here. That ends, since a
        forest has an end."""
        self._targets = {name: name.open().available() for name in self._names if name.reads_frames}

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        now, kind = time.time_ns() // 1000, self._names[0].open()
        begin = offsets.from_json(start, self._names)
        kind.look(self._names)
        self._seen = {name: name.open().available() for name in self._names if name not in self._targets}
        available = self._seen | self._targets
        waiting = [name for name in self._names if name.open().awaits(begin[name], available[name])]
        for name in set(waiting) - self._begun:
            name.open().begin()
            self._begun.add(name)
        if not waiting:
            self._look_at_ledgers()
        # Before anything is pinned; and now and then while nothing comes, so that filters do not wait for events.
        if waiting or time.monotonic() >= self._turn_at:
            kind.turn(self._names)
            self._turn_at = time.monotonic() + TURN_SECONDS
        number = None if isinstance(limit, ReadAllAvailable) else getattr(limit, "max_rows", self._limits.number)
        ends = {name: self._end(name.open(), begin[name], available[name], number, now) for name in waiting}
        # As it came, without any: a new version alone is no reason for a batch.
        return offsets.to_json(begin | ends) if ends else start

    def _look_at_ledgers(self) -> None:
        """While nothing waits: the next batch need not wait for that."""
        while self._planned:
            name = self._planned.pop()
            self._newest[name] = name.open().ledger.newest()

    def _before(self, step: OpenStep, begin: PinnedOffset) -> Committed | None:
        """The newest record of the ledger. Where this reader's last batch ended with it and the next one begins there,
        there is no other: Spark runs no batch of a query twice, unless it begins the query anew with another reader."""
        known = self._newest.get(step.name)
        self._planned.add(step.name)
        return known if known is not None and known.entry.end == begin else step.ledger.newest()

    def _end(
        self, step: OpenStep, begin: PinnedOffset, available: tuple[int, ...], number: int | None, now_us: int
    ) -> PinnedOffset:
        """Where this micro-batch ends for one broker that has something to take."""
        backlog = _backlog(begin, available)
        ends = list(begin.partitions) + [0] * (len(available) - len(begin.partitions))
        share = None if number is None else max(1, self._limits.bytes // max(1, len(backlog)))
        for partition, first, end in cut(backlog, number):
            # One is taken in any case, however large it is: then nobody has to look.
            ends[partition] = end if end - first == 1 else first + len(step.sizes(partition, first, end, share))
        return step.pinned(begin, tuple(ends), now_us)

    def reportLatestOffset(self) -> dict[str, Any] | None:
        # Spark asks this right after `latestOffset`, many times in a second while nothing comes.
        seen, self._seen = self._seen, {}
        steps = [name.open() for name in self._names]
        found = [(step, seen.get(step.name) or step.available()) for step in steps]
        ends = {step.name: PinnedOffset(ends, step.version()) for step, ends in found if ends}
        return offsets.to_json(ends) if ends else None

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        first, end_of = (offsets.from_json(at, self._names) for at in (start, end))
        sized, last = list[tuple[Span, Sequence[int]]](), None
        for name in self._names:
            step, begin, stop = name.open(), first[name], end_of[name]
            if begin == stop:
                continue
            # In the ledger already, when the driver died before Spark noted that.
            last = self._before(step, begin)
            if check_continuity(None if last is None else last.entry, begin, stop) is Planned.AGAIN:
                continue
            # Looked up again, not remembered: a batch from before a restart is divided as it was, into the same pieces.
            sized += [(Span(name, *part, stop), _weights(step, *part)) for part in begin.ranges(stop)]
            sized += step.beside(begin, stop)
        kind, only = self._names[0].open(), self._names[0]
        divided = divide(sized, self._limits.tasks, kind.min_task_bytes) if sized else []
        return [InputPartition(task) for task in kind.tasks(divided, first[only], end_of[only], last)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return _read(partition.value)

    def __reduce__(self) -> tuple[Any, ...]:
        return StepsStream, (self._names, self._limits)


class StepsBatch(DataSourceReader):
    """Every frame beyond the ledger's end, as one batch."""

    def __init__(self, name: StepName, limits: Limits, continues: bytes = b"") -> None:
        self._name = name
        self._limits = limits
        self._continues = continues

    def partitions(self) -> list[InputPartition]:
        step, now = self._name.open(), time.time_ns() // 1000
        start = step.committed()
        step.begin(self._continues)
        end, least = step.pinned(start, step.available(), now), step.min_task_bytes
        # A batch can be of any size, so frames are not looked at twice: equal numbers of them must do.
        sized: list[tuple[Span, Sequence[int]]] = [
            (Span(self._name, p, first, stop, end), [least] * (stop - first)) for p, first, stop in start.ranges(end)
        ]
        sized += step.beside(start, end)
        divided = divide(sized, batch_tasks(self._limits.tasks), least) if sized else []
        # Spark wants a task at least.
        return [InputPartition(task) for task in step.tasks(divided, start, end, step.ledger.newest()) or [Task(())]]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return _read(partition.value)


def batch_tasks(tasks: int) -> int:
    """A batch job is divided further than a micro-batch: its tasks are long, and the last one should not be alone."""
    return 4 * tasks


def _weights(step: OpenStep, partition: int, first: int, end: int) -> Sequence[int]:
    """What is in a span, in bytes. A single frame is not divided, and nobody asks a carrier how large it is."""
    return [1] if step.name.reads_frames and end - first == 1 else step.sizes(partition, first, end)


def _read(task: Task) -> Iterator[pa.RecordBatch]:
    if not task.spans:
        return iter(())
    step = task.spans[0].name.open()
    return step.staged(step.read(task))


def _backlog(start: PinnedOffset, available: tuple[int, ...]) -> list[Range]:
    """What there is beyond `start`. With availableNow, `start` may already be beyond it: that is nothing."""
    begin = start.partitions + (0,) * (len(available) - len(start.partitions))
    return [(p, first, end) for p, (first, end) in enumerate(zip(begin, available, strict=True)) if end > first]


def cut(backlog: list[Range], limit: int | None) -> list[Range]:
    """The backlog cut to `limit` in number: equal shares for all partitions; what one does not use goes to the
    others."""
    if limit is None:
        return backlog
    taken: list[Range] = []
    left = limit
    waiting = sorted(backlog, key=lambda span: span[2] - span[1])
    for at, (partition, first, end) in enumerate(waiting):
        share = min(end - first, -(-left // (len(waiting) - at)))
        if share:
            taken.append((partition, first, first + share))
        left -= share
    return sorted(taken)


def divide(sized: Sequence[tuple[Span, Sequence[int]]], tasks: int, least: int) -> list[tuple[Span, ...]]:
    """Spans, each with the sizes of what is in it, cut and packed into at most `tasks` tasks of about equal bytes, in
    order. How does not change what becomes of an event, only which events share a piece."""
    total = sum(sum(sizes) for _, sizes in sized)
    wanted = max(1, min(tasks, total // least))
    share, filled, done = total / wanted, 0, list[list[Span]]([[]])
    for span, sizes in sized:
        begin = span.first
        for offset, size in enumerate(sizes, span.first):
            if filled >= share * len(done) and len(done) < wanted:
                if offset > begin:
                    done[-1].append(replace(span, first=begin, end=offset))
                done.append([])
                begin = offset
            filled += size
        done[-1].append(replace(span, first=begin))
    return [tuple(task) for task in done if task]
