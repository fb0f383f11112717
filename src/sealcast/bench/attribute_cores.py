"""Suite `attribute`, the row about processes.

    cores   what two workers of Spark gain over one in bulk sealing, over what two bare processes gain over one in calls
            of the library. A gain is how many times as much is done in a second; pairings hold the interpreter's lock,
            so that only processes gain anything

Four things are timed in turn, each on the machine as it then is: one and two workers, one and two processes. The best
round of each counts. Workers read their publisher's key from a file that only its owner can read, as publishers do.
"""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import SparkSession

from sealcast.bench.attribute import bare
from sealcast.bench.report import BenchRow
from sealcast.errors import Bug
from sealcast.lab import scratch
from sealcast.lab.tariq.topic import SchemeTopic, counted, labels
from sealcast.log import files
from sealcast.pipeline.session import session
from sealcast.primitives.pairing import named
from sealcast.protections.attribute.scheme import AttributeSealer, OutgoingEvent, PublicParameters, PublisherKey

EVENTS: Final = 300
ROUNDS: Final = 5
WORKERS: Final = 2
_PAYLOAD: Final = bytes(200)
_ROWS: Final = "sealed bigint"


def rows() -> Iterator[BenchRow]:
    yield cores_row(session(app_name="sealcast bench", short_lived=True))


def cores_row(spark: SparkSession, events: int = EVENTS, rounds: int = ROUNDS) -> BenchRow:
    topic = SchemeTopic()
    spent = counted(topic, lambda parameters: _sealing(topic, parameters))
    work = bare(spent)
    with scratch.directory(1 << 20) as directory:
        files.replace_file(directory / "parameters", topic.parameters.to_bytes())
        files.replace_file(directory / "key", topic.publisher_key.to_bytes())
        timed: dict[tuple[str, int], float] = {}
        for number in range(rounds + 1):
            for workers in (1, WORKERS):
                for what, run in (
                    ("ours", lambda n=workers: seal_all(spark, directory, events * n, n)),
                    ("bare", lambda n=workers: _in_processes(work, events, n)),
                ):
                    taken = _seconds(run)
                    if number:  # the first round wakes workers up
                        timed[what, workers] = min(taken, timed.get((what, workers), taken))
    gains = {what: WORKERS * timed[what, 1] / timed[what, WORKERS] for what in ("ours", "bare")}
    unit = f"times as much in a second, {WORKERS} instead of 1"
    return BenchRow("cores", gains["ours"], gains["bare"], "bare processes", gains["ours"] / gains["bare"], unit)


def seal_all(spark: SparkSession, directory: Path, events: int, workers: int) -> None:
    """Seals so many events in as many tasks as there are workers."""
    place = str(directory)

    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            sealed = sealed_sizes(place, batch.column("id").to_pylist())
            yield pa.RecordBatch.from_arrays([pa.array(sealed, pa.int64())], names=["sealed"])

    done = spark.range(0, events, 1, workers).mapInArrow(run, _ROWS).toArrow()
    if done.num_rows != events or pc.min(done.column("sealed")).as_py() < len(_PAYLOAD):
        raise Bug(f"{events} events, and {done.num_rows} were sealed")


def sealed_sizes(place: str, numbers: list[int]) -> list[int]:
    """In a worker: seals an event for each number."""
    names, sealer = _sealer(place)
    return [len(sealed) for sealed in sealer.seal([_event(names, number) for number in numbers])]


@lru_cache(1)
def _sealer(place: str) -> tuple[tuple[str, ...], AttributeSealer]:
    parameters = PublicParameters.from_bytes((Path(place) / "parameters").read_bytes(), named("fast"))
    key = PublisherKey.parse((Path(place) / "key").read_bytes())
    return tuple(one.attribute for one in key.credentials), AttributeSealer(parameters, key)


def _event(names: tuple[str, ...], number: int) -> OutgoingEvent:
    return OutgoingEvent({name: labels((number * 37 + at * 11) % 32) for at, name in enumerate(names)}, _PAYLOAD)


def _sealing(topic: SchemeTopic, parameters: PublicParameters) -> Callable[[], object]:
    sealer = AttributeSealer(parameters, topic.publisher_key)
    return lambda: sealer.seal([topic.event(5)])


def _in_processes(work: Callable[[], None], times: int, processes: int) -> None:
    """The library's own calls of so many events, in each of so many processes."""

    def run() -> None:
        for _ in range(times):
            work()

    fork = multiprocessing.get_context("fork")
    running = [fork.Process(target=run) for _ in range(processes)]
    for process in running:
        process.start()
    for process in running:
        process.join()
        if process.exitcode:
            raise Bug("a bare process failed")


def _seconds(work: Callable[[], object]) -> float:
    began = time.monotonic()
    work()
    return time.monotonic() - began
