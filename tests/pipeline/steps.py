"""A driver without Spark, that dies on order: before any one of the writes, syncs and renames that a run makes.

What is simulated is Spark alone, and of Spark only its protocol: plan a micro-batch, note its offsets, run its tasks,
commit, note the commit; after a restart, run the batch again that was noted and not noted as committed. Source,
kernels, sink, log, pieces, ledger and replay windows are the real ones. So every moment of a batch can be its last, one
after the other, in milliseconds; that Spark does follow this protocol is what the other tests see.

    python -m tests.pipeline.steps REALM TOPIC    for each number k on stdin: a run that dies at its k-th step

Run as a process of its own: it forks, which a process with threads must not.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any, NoReturn

from pyspark.sql.streaming.datasource import ReadMaxRows

from sealcast.pipeline import sinks
from sealcast.pipeline.checkpoints import LocalCheckpoint, drop_foreign
from sealcast.pipeline.sinks import StreamPieces
from sealcast.pipeline.sources import Limits, StepsStream
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
        for directory in (self._offsets, self._commits):
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
        messages = [self._sink.write(self._source.read(task)) for task in self._source.partitions(start, end)]
        self._sink.commit([*messages], batch)
        _put(self._commits / str(batch), {})


def stage(name: StepName, sink: StreamPieces) -> list[Any]:
    """All that waits in the log, staged as one batch: what its tasks would tell the driver."""
    source = StepsStream((name,), Limits(1000, 1 << 30, 2))
    start = source.initialOffset()
    end = source.latestOffset(start, ReadMaxRows(1000))
    asked = sinks.TaskContext
    sinks.TaskContext = Task  # type: ignore[misc,assignment]
    try:
        return [sink.write(source.read(task)) for task in source.partitions(start, end)]
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
