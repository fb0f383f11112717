"""The frame log as a Spark source, streaming and batch: `sealcast-frames`, for the pipeline itself.

    latestOffset   how far this micro-batch goes, bounded in frames and bytes, and what it is pinned to
    partitions     refuses what does not follow the ledger, then divides the frames among the cores, by bytes
    read           in a worker: authenticates the frames; what they claim, a few bytes a frame, goes on to Spark

Offsets are pinned and carry a MAC (log/offsets.py), because Spark believes whatever stands in its checkpoint.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from sealcast.broker.authenticate import authenticate
from sealcast.broker.columns import CLAIMS, ddl
from sealcast.broker.context import gate
from sealcast.broker.gate import bounds_of
from sealcast.broker.replay import SETTLING_US
from sealcast.broker.rulings import Span, claim_rows, gathered
from sealcast.broker.topic import OpenTopic, TopicName
from sealcast.log.offsets import PinnedOffset, Planned, check_continuity
from sealcast.pipeline.options import positive

DEFAULT_MAX_FRAMES: Final = 8_192
#: Of frames in one micro-batch: what is redone after a crash, and how long others wait for a new subscription.
DEFAULT_MAX_BYTES: Final = 64 << 20
#: Less than this is not worth a task of its own: starting one costs as much as handling that many bytes.
MIN_BYTES_PER_TASK: Final = 512 << 10


@dataclass(frozen=True)
class FrameSpans(InputPartition):
    """What one task reads, and what its batch is pinned to."""

    task: int
    spans: tuple[Span, ...]
    end: PinnedOffset
    #: The batch is in the ledger already: it is run for its replay state alone.
    again: bool = False
    #: With this batch a generation of replay windows ends; one task tells all buckets.
    turned: bool = False

    @property
    def pinned(self) -> dict[str, int]:
        """What every row says of its batch."""
        end = self.end
        about = {"task": self.task, "version": end.version, "time": end.time_us, "settled": end.settled_us}
        return {"again": int(self.again), **about}


@dataclass(frozen=True, slots=True)
class Limits:
    """What a micro-batch, and a job, may take."""

    frames: int
    bytes: int
    tasks: int

    @classmethod
    def from_options(cls, options: Mapping[str, str]) -> Limits:
        return cls(
            positive(options, "max_frames_per_trigger", DEFAULT_MAX_FRAMES),
            positive(options, "max_bytes_per_trigger", DEFAULT_MAX_BYTES),
            positive(options, "tasks", 2),
        )


class FramesSource(DataSource):
    """Options: `realm`, `topic`; `max_frames_per_trigger`, `max_bytes_per_trigger`; `tasks`, how many run at once."""

    @classmethod
    def name(cls) -> str:
        return "sealcast-frames"

    def schema(self) -> str:
        return ddl(CLAIMS)

    def reader(self, schema: StructType) -> DataSourceReader:
        return FramesBatch(TopicName.from_options(self.options), Limits.from_options(self.options))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        return FramesStream(TopicName.from_options(self.options), Limits.from_options(self.options))


class FramesStream(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Lives in a process of the driver for as long as the query does; a copy without state reads in the workers."""

    def __init__(self, name: TopicName, limits: Limits) -> None:
        self._name = name
        self._limits = limits
        #: With availableNow: where the log ended when the query began.
        self._target: tuple[int, ...] | None = None

    def initialOffset(self) -> dict[str, Any]:
        """A new checkpoint goes on where the ledger ends: the ledger is the truth, a checkpoint Spark's note of it."""
        topic = self._name.open()
        return topic.committed().to_json(topic.journal_key)

    def getDefaultReadLimit(self) -> ReadLimit:
        return ReadMaxRows(self._limits.frames)

    def prepareForTriggerAvailableNow(self) -> None:
        self._target = self._name.open().available()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        topic, now = self._name.open(), time.time_ns() // 1000
        begin = PinnedOffset.from_json(start, topic.journal_key)
        available = topic.available() if self._target is None else self._target
        backlog = _backlog(begin, available)
        if not backlog:
            return start  # as it came: a new registry version alone is no reason for a batch
        frames = None if isinstance(limit, ReadAllAvailable) else getattr(limit, "max_rows", self._limits.frames)
        ends = list(begin.partitions) + [0] * (len(available) - len(begin.partitions))
        for partition, first, end in _admitted(backlog, frames):
            share = None if frames is None else max(1, self._limits.bytes // len(backlog))
            log = topic.frames.partition(partition)
            ends[partition] = first + len(log.sizes(first, end, share))
        return _pinned(topic, begin, tuple(ends), now).to_json(topic.journal_key)

    def reportLatestOffset(self) -> dict[str, Any] | None:
        topic = self._name.open()
        version = topic.realm.registry.version()
        return PinnedOffset(topic.available(), version).to_json(topic.journal_key)

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        topic = self._name.open()
        first, last = (PinnedOffset.from_json(offset, topic.journal_key) for offset in (start, end))
        # In the ledger already, when the driver died before Spark noted that.
        again = check_continuity(topic.ledger, first, last) is Planned.AGAIN
        spans = first.ranges(last)
        # Looked up again, not remembered: a batch from before a restart is divided as it was, into the same pieces.
        sizes = {p: (begin, topic.frames.partition(p).sizes(begin, end)) for p, begin, end in spans}
        return _tasks(topic, first, last, _divide(spans, sizes, self._limits.tasks), again)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, FrameSpans)
        return _read(self._name, partition)

    def __reduce__(self) -> tuple[Any, ...]:
        return FramesStream, (self._name, self._limits)


class FramesBatch(DataSourceReader):
    """Everything beyond the ledger's end, as one batch."""

    def __init__(self, name: TopicName, limits: Limits) -> None:
        self._name = name
        self._limits = limits

    def partitions(self) -> list[InputPartition]:
        topic, now = self._name.open(), time.time_ns() // 1000
        start = topic.committed()
        end = _pinned(topic, start, topic.available(), now)
        # A batch can be of any size, so frames are not looked at twice: equal numbers of them must do.
        spans = _divide(start.ranges(end), {}, batch_tasks(self._limits.tasks))
        return [*_tasks(topic, start, end, spans)] or [FrameSpans(0, (), end)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, FrameSpans)
        return _read(self._name, partition)


def batch_tasks(tasks: int) -> int:
    """A batch job is divided further than a micro-batch: its tasks are long, and the last one should not be alone."""
    return 4 * tasks


def _pinned(topic: OpenTopic, start: PinnedOffset, ends: tuple[int, ...], now_us: int) -> PinnedOffset:
    """The offset where a batch ends. `now_us` was read before the log's ends were."""
    settled = now_us - SETTLING_US
    for number, end in enumerate(ends):
        log = topic.frames.partition(number)
        if end < log.end():  # what waits was appended when its first frame was, or later
            settled = min(settled, next(iter(log.read(end, end + 1))).time_us)
    version = topic.realm.registry.version()
    # Partitions that came since and have nothing yet are not of this batch: the ledger learns of them with a piece.
    used = max((n for n, end in enumerate(ends, 1) if end), default=0)
    ends = ends[: max(used, len(start.partitions))]
    return PinnedOffset(ends, version, max(now_us, start.time_us), max(settled, start.settled_us))


def _tasks(
    topic: OpenTopic, start: PinnedOffset, end: PinnedOffset, divided: list[tuple[Span, ...]], again: bool = False
) -> list[FrameSpans]:
    period = bounds_of(topic.about).period_us
    turned = start.settled_us // period != end.settled_us // period
    return [FrameSpans(n, spans, end, again, turned and not n) for n, spans in enumerate(divided)]


def _read(name: TopicName, task: FrameSpans) -> Iterator[pa.RecordBatch]:
    frames, rules = name.open().frames, gate(name.realm, name.topic, task.end.version, name.broker)
    turned = task.turned
    for partition, first, end in task.spans:
        for received in gathered(partition, frames.partition(partition).read(first, end)):
            claims, refused = authenticate(received, rules)
            rows = list(claim_rows(claims, refused, task.pinned, turned))
            turned = False
            yield pa.RecordBatch.from_pylist(rows, schema=CLAIMS)


def _backlog(start: PinnedOffset, available: tuple[int, ...]) -> list[Span]:
    """What the log has beyond `start`. With availableNow, `start` may already be beyond it: that is nothing."""
    begin = start.partitions + (0,) * (len(available) - len(start.partitions))
    return [(p, first, end) for p, (first, end) in enumerate(zip(begin, available, strict=True)) if end > first]


def _admitted(backlog: list[Span], limit: int | None) -> list[Span]:
    """The backlog cut to `limit` frames: equal shares for all partitions; what one does not use goes to the others."""
    if limit is None:
        return backlog
    taken: list[Span] = []
    left = limit
    waiting = sorted(backlog, key=lambda span: span[2] - span[1])
    for at, (partition, first, end) in enumerate(waiting):
        share = min(end - first, -(-left // (len(waiting) - at)))
        if share:
            taken.append((partition, first, first + share))
        left -= share
    return sorted(taken)


def _divide(spans: list[Span], sizes: Mapping[int, tuple[int, list[int]]], tasks: int) -> list[tuple[Span, ...]]:
    """Spans cut and packed into at most `tasks` tasks of about equal bytes, in order. How does not change what becomes
    of an event, only which events share a piece."""
    weights = [_weights(span, sizes) for span in spans]
    total = sum(map(sum, weights))
    wanted = max(1, min(tasks, total // MIN_BYTES_PER_TASK))
    share, filled, done = total / wanted, 0, list[list[Span]]([[]])
    for (partition, first, end), weight in zip(spans, weights, strict=True):
        begin = first
        for offset, size in enumerate(weight, first):
            if filled >= share * len(done) and len(done) < wanted:
                if offset > begin:
                    done[-1].append((partition, begin, offset))
                done.append([])
                begin = offset
            filled += size
        done[-1].append((partition, begin, end))
    return [tuple(task) for task in done if task]


def _weights(span: Span, sizes: Mapping[int, tuple[int, list[int]]]) -> list[int]:
    partition, first, end = span
    known_first, known = sizes.get(partition, (first, []))
    if known_first == first and len(known) == end - first:
        return known
    return [MIN_BYTES_PER_TASK] * (end - first)  # not looked at: frames count as equal
