"""Suite `attribute`, the row about processes.

    cores   what two workers of Spark gain over one in sealing a backlog (`df.write.format("sealcast")`), over what two
            bare processes gain over one in calls of the library. A gain is how many times as much is done in a second;
            pairings hold the interpreter's lock, so that only processes gain anything

Four things are timed in turn, each on the machine as it then is: one and two workers, one and two processes, each with
the same number of events. The median round of each counts: the best one of two workers would be that of a moment in
which nothing else ran on either core, and such moments are rarer than those for one.
"""

from __future__ import annotations

import multiprocessing
import statistics
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Final

from sealcast.bench.attribute import bare
from sealcast.bench.report import BenchRow
from sealcast.errors import Bug
from sealcast.lab import scratch
from sealcast.lab.tariq.topic import ATTRIBUTES, DEPTH, SchemeTopic, counted
from sealcast.model.protection import AttributeBased
from sealcast.model.schema import Schema
from sealcast.pipeline.session import session
from sealcast.protections.attribute.scheme import AttributeSealer, PublicParameters
from sealcast.trust.deployment import Realm

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

EVENTS: Final = 150
ROUNDS: Final = 7
WORKERS: Final = 2
TOPIC: Final = "vitals"
PUBLISHER: Final = "monitor"
SCHEMA: Final = Schema.from_json(
    {"attributes": [{"name": name, "type": "int", "min": 0, "max": 2**DEPTH - 1} for name in ATTRIBUTES]}
)


def rows() -> Iterator[BenchRow]:
    yield cores_row(session(app_name="sealcast bench", short_lived=True))


def cores_row(spark: SparkSession, events: int = EVENTS, rounds: int = ROUNDS) -> BenchRow:
    topic = SchemeTopic()
    work = bare(counted(topic, partial(_sealing, topic)))
    timed: dict[tuple[str, int], list[float]] = {}
    with scratch.realm(need_bytes=256 << 20) as realm:
        realm.create_topic(TOPIC, SCHEMA, protection=AttributeBased(), access="members")
        realm.enrol_many([PUBLISHER])
        for number in range(rounds + 1):
            for workers in (1, WORKERS):
                for what, run in (("ours", partial(seal_all, spark, realm)), ("bare", partial(_in_processes, work))):
                    began = time.monotonic()
                    run(events, workers)
                    taken = time.monotonic() - began
                    if number:  # the first round wakes workers up
                        timed.setdefault((what, workers), []).append(taken)
        with realm.outbox(TOPIC, PUBLISHER, read_only=True) as log:
            if not log.partition(0).end():
                raise Bug("nothing was sealed")
    usual = {key: statistics.median(several) for key, several in timed.items()}
    ours, reference = (WORKERS * usual[what, 1] / usual[what, WORKERS] for what in ("ours", "bare"))
    unit = f"times as much in a second, {WORKERS} instead of 1"
    return BenchRow("cores", ours, reference, "bare processes", ours / reference, unit)


def seal_all(spark: SparkSession, realm: Realm, events: int, workers: int) -> None:
    """A backlog of so many events for each worker, sealed by as many tasks. Labels come back, so that those which were
    hashed before are."""
    values = [f"(id * 37 + {number * 11}) % 32 as {name}" for number, name in enumerate(ATTRIBUTES)]
    backlog = spark.range(0, events * workers, 1, workers).selectExpr(*values, "cast('event' as binary) as payload")
    options = {"realm": str(realm.paths.root), "topic": TOPIC, "as": PUBLISHER}
    backlog.write.format("sealcast").options(**options).mode("append").save()


def _sealing(topic: SchemeTopic, parameters: PublicParameters) -> Callable[[], object]:
    sealer = AttributeSealer(parameters, topic.publisher_key)
    return lambda: sealer.seal([topic.event(5)])


def _in_processes(work: Callable[[], None], events: int, processes: int) -> None:
    """The library's own calls of so many events, in each of so many processes."""

    def run() -> None:
        for _ in range(events):
            work()

    fork = multiprocessing.get_context("fork")
    running = [fork.Process(target=run) for _ in range(processes)]
    for process in running:
        process.start()
    for process in running:
        process.join()
        if process.exitcode:
            raise Bug("a bare process failed")
