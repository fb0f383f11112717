"""`first-batch` and `two-workers` of suite `cluster`: a standalone cluster here, two workers of one core each.

    first-batch   `sealcast run --once` of 2,000 events in a realm that never ran, on the cluster beside `local[2]`
                  from command to end. Starts of executors count, those of master and workers do not.
    two-workers   how much faster the pipeline drains on two executor cores than on one, beside how much faster a plain
                  job is: the same matching by the same index, a row per delivery, no protection. Both are streaming
                  queries that run until they have drained, in one session, and have handled as many events before.

Clocks, not CPU: how long somebody waits is what a cluster is for. Sides take turns.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pyarrow as pa

from sealcast.bench.end_to_end_path import COLUMNS, READERS, deliver, filters_of_readers, write
from sealcast.bench.end_to_end_publish import SCHEMA, TOPIC, events
from sealcast.bench.report import BenchRow
from sealcast.bench.standalone import Standalone
from sealcast.clients.publisher import Publisher
from sealcast.errors import Bug
from sealcast.lab import scratch
from sealcast.trust.deployment import Realm

ROUNDS: Final = 3
FIRST: Final = 2_000
DRAINED: Final = 200_000
QUICK_DRAINED: Final = 40_000
_MEMORY: Final = "spark.executor.memory=768m"
_COMMAND: Final = "from sealcast.cli.main import main; main()"
_MODULE: Final = "sealcast.bench.cluster_workers"


def rows(*, quick: bool = False) -> Iterator[BenchRow]:
    rounds = 1 if quick else ROUNDS
    with scratch.directory(4 << 30) as place, Standalone(place / "spark") as cluster:
        yield _first_batch(place, cluster, rounds)
        yield _two_workers(place, cluster, rounds, QUICK_DRAINED if quick else DRAINED)


# --- first-batch --------------------------------------------------------------------------------------


def _first_batch(place: Path, cluster: Standalone, rounds: int) -> BenchRow:
    """Ratio: the cluster's / that of `local[2]`."""
    masters = {"local": ["local[2]"], "cluster": [cluster.url, "--conf", "spark.cores.max=2", "--conf", _MEMORY]}
    spent: dict[str, list[float]] = {name: [] for name in masters}
    for number in range(rounds):
        for name, master in masters.items():
            realm = _realm(place / f"first-{name}-{number}", FIRST)
            begin = time.monotonic()
            told = json.loads(_python("-c", _COMMAND, "run", "--once", "--json", "--realm", realm, "--master", *master))
            spent[name].append(time.monotonic() - begin)
            if told["admitted"] != FIRST:
                raise Bug(f"{FIRST} events were published, but the run says {told}")
    ours, reference = (statistics.median(spent[name]) for name in ("cluster", "local"))
    return BenchRow("first-batch", ours, reference, "the same on local[2]", ours / reference, "s")


def _realm(directory: Path, count: int) -> str:
    """A realm with a topic, its readers, and `count` events in its log."""
    realm = Realm.create(directory)
    names = [f"reader-{number}" for number in range(READERS)]
    realm.create_topic(TOPIC, SCHEMA, access="members")
    realm.enrol_many(["publisher", *names])
    wanted = [(name, text, None) for name, texts in zip(names, filters_of_readers(), strict=True) for text in texts]
    realm.subscribe_many(TOPIC, wanted)
    _publish(str(realm.paths.root), count)
    return str(realm.paths.root)


def _publish(realm: str, count: int) -> None:
    with Publisher(realm, TOPIC, as_="publisher") as publisher:
        publisher.publish(events(count))


def _python(*arguments: str) -> str:
    """Runs a Python of its own; what it printed. As a user's shell has it: without settings of another Spark."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYSPARK_", "SPARK_"))}
    done = subprocess.run([sys.executable, *arguments], env=kept, capture_output=True, text=True, check=False)
    if done.returncode:
        raise Bug(f"a program of the benchmark failed: {done.stderr[-1_000:]}")
    return done.stdout


# --- two-workers --------------------------------------------------------------------------------------


def _two_workers(place: Path, cluster: Standalone, rounds: int, count: int) -> BenchRow:
    """Ratio: our speed-up / the plain job's."""
    spent: dict[tuple[str, int], list[float]] = {(side, n): [] for side in ("ours", "plain") for n in (1, 2)}
    for number in range(rounds):
        for cores in (1, 2):
            here = place / f"workers-{number}-{cores}"
            realm = _realm(here / "realm", count)
            told = json.loads(_python("-m", _MODULE, cluster.url, str(cores), realm, str(here), str(count)))
            for side in ("ours", "plain"):
                spent[side, cores].append(told[side])
    times = {key: statistics.median(each) for key, each in spent.items()}
    ours, plain = (times[side, 1] / times[side, 2] for side in ("ours", "plain"))
    parts, reference = ({f"{n} cores": times[side, n] for n in (1, 2)} for side in ("ours", "plain"))
    about = "plain Spark with Arrow, a row per delivery, no protection"
    return BenchRow("two-workers", ours, plain, about, ours / plain, "times as fast", parts, reference)


def _drain(master: str, cores: int, realm: str, place: Path, count: int) -> dict[str, float]:
    """In a process of its own, since it has one session: seconds of both, each after a first time that does not
    count."""
    from sealcast.pipeline.run import run
    from sealcast.pipeline.session import session

    name, _, value = _MEMORY.partition("=")
    spark = session(master, extra={"spark.cores.max": str(cores), name: value}, clients=False)
    run(realm, [TOPIC], once=True, spark=spark)
    _publish(realm, count)
    begin = time.monotonic()
    run(realm, [TOPIC], once=True, spark=spark)
    ours = time.monotonic() - begin

    given, columns = place / "given", ", ".join(f"{name} {kind}" for name, kind in COLUMNS.items())
    given.mkdir(parents=True)
    texts = tuple(text for each in filters_of_readers() for text in each)

    def delivered(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            yield deliver(texts, batch, False)

    plain = 0.0
    for turn in ("warming", "table"):
        write(given, turn, events(count))
        rows = spark.readStream.schema(columns).parquet(str(given)).mapInArrow(delivered, f"{columns}, reader INT")
        writer = rows.writeStream.format("parquet").option("checkpointLocation", str(place / "checkpoint"))
        begin = time.monotonic()
        writer.trigger(availableNow=True).start(str(place / "out")).awaitTermination()
        plain = time.monotonic() - begin
    return {"ours": ours, "plain": plain}


if __name__ == "__main__":
    _master, _cores, _directory, _place, _count = sys.argv[1:]
    sys.stdout.write(json.dumps(_drain(_master, int(_cores), _directory, Path(_place), int(_count))))
