"""The frame log as a Spark source, streaming and batch: `sealcast-frames`, for the pipeline itself.

    latestOffset   how far this micro-batch goes, bounded in frames and bytes, and the registry version it is pinned to
    partitions     refuses what does not follow the ledger, then divides the frames among the cores, by bytes
    read           in a worker: frames as Arrow batches of bounded size

Offsets are pinned and carry a MAC (log/offsets.py), because Spark believes whatever stands in its checkpoint.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from sealcast.errors import Misuse
from sealcast.log.offsets import PinnedOffset, Planned, check_continuity
from sealcast.pipeline.columns import FRAMES, ddl
from sealcast.pipeline.topic import TopicName

DEFAULT_MAX_FRAMES: Final = 8_192
#: Of frames in one micro-batch: what is redone after a crash, and how long others wait for a new subscription.
DEFAULT_MAX_BYTES: Final = 64 << 20
#: Of frames in one Arrow batch on its way to the JVM.
BYTES_PER_ARROW_BATCH: Final = 8 << 20
#: Less than this is not worth a task of its own: starting one costs as much as handling that many bytes.
MIN_BYTES_PER_TASK: Final = 512 << 10

#: (partition, first offset, end offset)
Span = tuple[int, int, int]


@dataclass(frozen=True)
class FrameSpans(InputPartition):
    """What one task reads, and under which version of the registry."""

    version: int
    spans: tuple[Span, ...]


@dataclass(frozen=True, slots=True)
class Limits:
    """What a micro-batch, and a job, may take."""

    frames: int
    bytes: int
    tasks: int

    @classmethod
    def from_options(cls, options: Mapping[str, str]) -> Limits:
        return cls(
            _positive(options, "max_frames_per_trigger", DEFAULT_MAX_FRAMES),
            _positive(options, "max_bytes_per_trigger", DEFAULT_MAX_BYTES),
            _positive(options, "tasks", 2),
        )


class FramesSource(DataSource):
    """Options: `realm`, `topic`; `max_frames_per_trigger`, `max_bytes_per_trigger`; `tasks`, how many run at once."""

    @classmethod
    def name(cls) -> str:
        return "sealcast-frames"

    def schema(self) -> str:
        return ddl(FRAMES)

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
        topic = self._name.open()
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
        return PinnedOffset(tuple(ends), topic.realm.registry.version()).to_json(topic.journal_key)

    def reportLatestOffset(self) -> dict[str, Any] | None:
        topic = self._name.open()
        version = topic.realm.registry.version()
        return PinnedOffset(topic.available(), version).to_json(topic.journal_key)

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        topic = self._name.open()
        first, last = (PinnedOffset.from_json(offset, topic.journal_key) for offset in (start, end))
        if check_continuity(topic.ledger, first, last) is Planned.AGAIN:
            return []  # it is in the ledger; the driver died before Spark noted that
        spans = first.ranges(last)
        # Looked up again, not remembered: a batch from before a restart is divided as it was, into the same pieces.
        sizes = {p: (begin, topic.frames.partition(p).sizes(begin, end)) for p, begin, end in spans}
        return _divide(spans, last.version, sizes, self._limits.tasks)

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
        topic = self._name.open()
        start = topic.committed()
        end = PinnedOffset(topic.available(), topic.realm.registry.version())
        # A batch can be of any size, so frames are not looked at twice: equal numbers of them must do.
        tasks = _divide(start.ranges(end), end.version, {}, 4 * self._limits.tasks)
        return [*tasks] or [FrameSpans(end.version, ())]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, FrameSpans)
        return _read(self._name, partition)


def _read(name: TopicName, task: FrameSpans) -> Iterator[pa.RecordBatch]:
    frames = name.open().frames
    for partition, first, end in task.spans:
        offsets: list[int] = []
        times: list[int] = []
        held: list[bytes] = []
        size = 0
        for offset, time_us, data in frames.partition(partition).read(first, end):
            if held and size + len(data) > BYTES_PER_ARROW_BATCH:
                yield _arrow(partition, task.version, offsets, times, held)
                offsets, times, held, size = [], [], [], 0
            offsets.append(offset)
            times.append(time_us)
            held.append(data)
            size += len(data)
        if held:
            yield _arrow(partition, task.version, offsets, times, held)


def _arrow(partition: int, version: int, offsets: list[int], times: list[int], frames: list[bytes]) -> pa.RecordBatch:
    count = len(frames)
    columns = [[partition] * count, offsets, times, [version] * count, frames]
    arrays = [pa.array(values, field.type) for values, field in zip(columns, FRAMES, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=FRAMES)


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


def _divide(
    spans: list[Span], version: int, sizes: Mapping[int, tuple[int, list[int]]], tasks: int
) -> list[FrameSpans]:
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
    return [FrameSpans(version, tuple(task)) for task in done if task]


def _weights(span: Span, sizes: Mapping[int, tuple[int, list[int]]]) -> list[int]:
    partition, first, end = span
    known_first, known = sizes.get(partition, (first, []))
    if known_first == first and len(known) == end - first:
        return known
    return [MIN_BYTES_PER_TASK] * (end - first)  # not looked at: frames count as equal


def _positive(options: Mapping[str, str], name: str, default: int) -> int:
    text = options.get(name)
    if text is None:
        return default
    if not text.isascii() or not text.isdigit() or not int(text):
        raise Misuse(f"option {name} is a whole number from 1 up, not {text!r}")
    return int(text)
