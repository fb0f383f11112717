"""A driver without Spark, that dies on order: before any one of the writes, syncs and renames that a run makes.

What is simulated is Spark alone, and of Spark only its protocol: plan a micro-batch, note its offsets, run its tasks,
commit, note the commit; keep a version of the state for each batch; after a restart, run the batch again that was noted
and not noted as committed, on the state of the one before. Source,
kernels, sink, log, pieces and ledger are the real ones. So every moment of a batch can be its last, one after the
other, in milliseconds; that Spark does follow this protocol is what the other tests see.

    python -m tests.pipeline.steps REALM TOPIC    for each number k on stdin: a run that dies at its k-th step

Run as a process of its own: it forks, which a process with threads must not.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import pyarrow as pa
from pyspark.sql.streaming.datasource import ReadMaxRows

from sealcast.broker import rulings as ruling
from sealcast.broker.columns import REFUSED, RULINGS
from sealcast.broker.gate import bounds_of
from sealcast.broker.replay import CLAIM, Windows
from sealcast.pipeline import sinks
from sealcast.pipeline.checkpoints import LocalCheckpoint, drop_foreign, initial_windows
from sealcast.pipeline.sinks import StreamPieces
from sealcast.pipeline.sources import Limits, StepsStream
from sealcast.protections.frame_steps import FramesStep, kernel
from sealcast.protections.steps import StepName
from tests.death import Death

FRAMES = 4
QUERY = "3c1f6f2e-0000-4000-8000-000000000000"


class MicroBatches:
    """Spark's driver loop over a checkpoint directory: offsets/N is written before batch N runs, commits/N after."""

    def __init__(self, name: StepName, term: str) -> None:
        self._name = name
        self._checkpoint = name.open().paths.checkpoint
        self._source = StepsStream((name,), Limits(FRAMES, 1 << 20, 2))
        self._sink = StreamPieces((name,), terms(name, term))
        self._offsets, self._commits = self._checkpoint / "offsets", self._checkpoint / "commits"
        self._state = self._checkpoint / "state"
        for directory in (self._offsets, self._commits, self._state):
            directory.mkdir(parents=True, exist_ok=True)
        if not (self._checkpoint / "metadata").exists():
            _put(self._checkpoint / "metadata", {"id": QUERY})

    def drain(self) -> None:
        noted, done = _numbers(self._offsets), _numbers(self._commits)
        batch = len(noted)
        start = _get(self._offsets / str(batch - 1)) if batch else self._source.initialOffset()
        if len(done) < batch:
            # Noted, not committed as far as Spark knows: the same batch again.
            batch -= 1
            end, start = start, _get(self._offsets / str(batch - 1)) if batch else self._source.initialOffset()
            self._run(batch, start, end)
            batch, start = batch + 1, end
        while (end := self._source.latestOffset(start, ReadMaxRows(FRAMES))) != start:
            _put(self._offsets / str(batch), end)
            self._run(batch, start, end)
            batch, start = batch + 1, end

    def _run(self, batch: int, start: dict[str, Any], end: dict[str, Any]) -> None:
        windows = self._windows(batch)
        rulings = rule(self._source, start, end, windows)
        _put(self._state / str(batch), windows.pack().hex())
        messages = [self._sink.write(kernel(self._name)(iter(mine))) for mine in rulings]
        self._sink.commit([*messages], batch)
        _put(self._commits / str(batch), {})

    def _windows(self, batch: int) -> Windows:
        """The state that batch `batch` begins with."""
        if not batch:
            step = FramesStep.of(self._name)
            found = initial_windows(step, LocalCheckpoint(step.paths.checkpoint))
            assert found is not None
            return found
        return Windows.unpack(bytes.fromhex(_get(self._state / str(batch - 1))), bounds_of(self._name.open().about))


def rule_rows(windows: Windows, batches: Sequence[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Replay without Spark: all claims of a batch, and the windows of all buckets in one."""
    given = [row for batch in batches for row in batch.to_pylist()]
    asked = [row for row in given if row["bucket"] != REFUSED]
    parts = [np.frombuffer(row["claims"], CLAIM) for row in asked]
    if not given:
        return
    rulings = ruling.rule(windows, np.concatenate([np.empty(0, CLAIM), *parts]), given[0]["settled"])
    ends = np.cumsum([part.size for part in parts])
    done = [(row, row["claims"]) for row in given if row["bucket"] == REFUSED]
    done += [(row, part.tobytes()) for row, part in zip(asked, np.split(rulings, ends[:-1]), strict=False)]
    for row, packed in done:
        if packed and not row["again"]:
            yield pa.RecordBatch.from_pylist([{**row, "rulings": packed}], schema=RULINGS)


def rule(
    source: StepsStream, start: dict[str, Any], end: dict[str, Any], windows: Windows
) -> list[list[pa.RecordBatch]]:
    """What the source reads and replay rules, by task."""
    claims = [batch for task in source.partitions(start, end) for batch in source.read(task)]
    by_task: dict[int, list[pa.RecordBatch]] = {}
    for batch in rule_rows(windows, claims):
        by_task.setdefault(batch.column("task")[0].as_py(), []).append(batch)
    return list(by_task.values())


def stage(name: StepName, sink: StreamPieces) -> list[Any]:
    """All that waits in the log, staged as one batch: what its tasks would tell the driver."""
    source = StepsStream((name,), Limits(1000, 1 << 30, 2))
    start = source.initialOffset()
    end = source.latestOffset(start, ReadMaxRows(1000))
    rulings = rule(source, start, end, FramesStep.of(name).history().windows(name.open().ledger.end()))
    asked = sinks.TaskContext
    sinks.TaskContext = Task  # type: ignore[misc,assignment]
    try:
        return [sink.write(kernel(name)(iter(mine))) for mine in rulings]
    finally:
        sinks.TaskContext = asked  # type: ignore[misc]


def terms(name: StepName, term: str) -> str:
    """As the sink's option names them."""
    return json.dumps({name.broker: term})


class Task:
    """What a task of Spark's says of itself."""

    @staticmethod
    def get() -> Task:
        return Task()

    def getLocalProperty(self, name: str) -> str:
        assert name == "sql.streaming.queryId"
        return QUERY


def _live(name: StepName, death_at: int) -> NoReturn:
    """One run, in a child: dead at that step, or done."""
    sinks.TaskContext = Task  # type: ignore[misc,assignment]
    if death_at:
        Death(death_at)
    topic = name.open()
    with topic.ledger.exclusive() as term:
        topic.prepare()
        drop_foreign(LocalCheckpoint(topic.paths.checkpoint), [topic])
        MicroBatches(name, term).drain()
    os._exit(0)


def _get(path: Path) -> Any:
    return json.loads(path.read_text())


def _put(path: Path, body: object) -> None:
    temporary = path.with_name(f".{path.name}.tmp")
    fd = os.open(temporary, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o600)
    os.write(fd, json.dumps(body).encode())
    os.close(fd)
    os.rename(temporary, path)


def _numbers(directory: Path) -> list[int]:
    return sorted(int(path.name) for path in directory.iterdir() if path.name.isdigit())


def main(realm: str, topic: str) -> None:
    for line in sys.stdin:
        child = os.fork()
        if not child:
            _live(StepName(realm, topic), int(line))
        _, status = os.waitpid(child, 0)
        print(os.waitstatus_to_exitcode(status), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
