"""Small backlogs, drained in this process: Spark's source, kernels and sink, without Spark between them.

Starting Spark takes seconds, and the few events that a `run --once` often finds take milliseconds. So a run that may
choose for itself takes a small backlog here. The parts are those that Spark runs (sources.py, sinks.py, the steps'
kernels), and so is their order: plan and pin, read, rule on replay, make pieces, commit. What Spark adds is left out,
because it is not needed: nothing runs in parallel, and no checkpoint is kept. Each batch goes on where the ledger ends,
under the name of a query of one batch, as a batch job does (`run.run_batch`). Replay windows are worked out from the
ledger's frames, as those of a new checkpoint are. From then on a checkpoint that Spark left before belongs to another
query than the ledger's last record, and the next run that uses Spark drops it (checkpoints.py).
"""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any, Final

import pyarrow as pa

from sealcast.broker.columns import COUNTS, REJECTED, TRACED
from sealcast.broker.replay import Windows
from sealcast.broker.rulings import ruled_rows
from sealcast.log.offsets import PinnedOffset
from sealcast.pipeline import offsets
from sealcast.pipeline.metrics import FinishedBatch
from sealcast.pipeline.sinks import BatchPieces
from sealcast.pipeline.sources import Limits, StepsStream, backlog_of, limits_of
from sealcast.protections.frame_steps import FramesStep, kernel
from sealcast.protections.steps import OpenStep, StepName

#: What is read here at most: what waits, and the frames that replay windows are worked out from. Reading and handling
#: that much takes less than starting Spark does.
MOST_BYTES: Final = 4 << 20
#: What reports call a query that is none of Spark's.
INLINE: Final = "inline"
_COUNTED: Final = (*COUNTS, *REJECTED.values())


class InlineSteps:
    """The steps of one query, run here. Whoever has it holds their ledgers."""

    def __init__(self, names: tuple[StepName, ...], terms: Mapping[str, str], limits: Mapping[str, int]) -> None:
        self._names, self._terms = names, json.dumps(terms)
        step, (_, (max_bytes, _)) = names[0].open(), limits_of(names[0])
        options = {max_bytes: step.max_bytes, **limits, "tasks": 1}
        self._source = StepsStream(names, Limits.from_options({name: str(n) for name, n in options.items()}, names[0]))
        self._start = self._source.initialOffset()
        self._number = 0
        #: Kept from batch to batch; worked out when the first comes.
        self._windows: Windows | None = None

    def is_small(self) -> bool:
        """Whether what waits for the steps is better taken here."""
        room = MOST_BYTES
        for step in (name.open() for name in self._names):
            done = step.committed()
            room = _left(room, step, done, step.available())
            if isinstance(step, FramesStep) and self._windows is None:
                first = step.history().needed(step.ledger.end())
                room = room if first is None else _left(room, step, first, done.partitions)
            end = PinnedOffset(step.available() or done.partitions, step.version(), time.time_ns() // 1000)
            room -= sum(sum(sizes) for _, sizes in step.beside(done, end))
            if room < 0:
                return False
        return True

    def waits(self) -> bool:
        """Whether there is anything to take. Filters are taken in meanwhile, as often as Spark's source does it."""
        steps = [name.open() for name in self._names]
        steps[0].look(self._names)
        self._source.turn()
        return any(step.awaits(step.committed(), step.available()) for step in steps)

    def drain(self) -> Iterator[FinishedBatch]:
        """Takes everything that waits now, batch by batch."""
        step = self._names[0].open()
        if isinstance(step, FramesStep) and self._windows is None:
            self._windows = step.history().windows(step.ledger.end())
        self._source.prepareForTriggerAvailableNow()
        began = time.monotonic()
        while (end := self._source.latestOffset(self._start, self._source.getDefaultReadLimit())) != self._start:
            sink, counts = BatchPieces(self._names, self._terms), _Counted(self._names)
            try:
                sink.commit([sink.write(counts.seen(self._pieces(end)))])
            except BaseException:
                sink.abort([])
                raise
            self._start = end
            yield counts.finished(self._number, end, time.monotonic() - began)
            self._number, began = self._number + 1, time.monotonic()

    def _pieces(self, end: dict[str, Any]) -> Iterator[pa.RecordBatch]:
        for task in self._source.partitions(self._start, end):
            rows = self._source.read(task)
            if self._windows is None:
                yield from rows
            else:
                yield from kernel(self._names[0])(ruled_rows(self._windows, list(rows)))


def _left(room: int, step: OpenStep, start: PinnedOffset, ends: tuple[int, ...]) -> int:
    """What is left of so many bytes when the input between the two is read; less than nothing if it is not enough."""
    for partition, first, end in backlog_of(start, ends):
        if room < 0:
            break
        sizes = step.sizes(partition, first, end, room + 1)
        room = room - sum(sizes) if len(sizes) == end - first else -1
    return room


class _Counted:
    """What Spark would observe of the pieces of a batch (metrics.py)."""

    def __init__(self, names: tuple[StepName, ...]) -> None:
        self._names = names
        self._by_broker = {name.broker: Counter[str]() for name in names}
        self._traced: list[str] = []

    def seen(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for row in batch.select(["node", TRACED, *_COUNTED]).to_pylist():
                traced = row.pop(TRACED)
                self._traced += [] if traced is None else [traced]
                self._by_broker[row.pop("node")].update(row)
            yield batch

    def finished(self, number: int, end: dict[str, Any], seconds: float) -> FinishedBatch:
        reached = offsets.from_json(end, self._names)
        return FinishedBatch(
            query=INLINE,
            number=number,
            counts={name: sum(counts[name] for counts in self._by_broker.values()) for name in _COUNTED},
            seconds=seconds,
            backlog=sum(max(0, sum(name.open().available()) - sum(at.partitions)) for name, at in reached.items()),
            version=max(at.version for at in reached.values()) if self._names[0].reads_frames else 0,
            topic=self._names[0].topic,
            by_broker=self._by_broker,
            traced="\n".join(self._traced),
            ended_ns=time.time_ns(),
        )
