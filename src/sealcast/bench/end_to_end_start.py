"""`start` and `start-tuned` of suite `end-to-end`: a `sealcast run --once` of one event, beside an empty Spark query.

    start         the query as PySpark starts it: `SparkSession.builder`, nothing set but that there is no UI
    start-tuned   the same query in a session of ours: quicker flags for Java, its classes kept, Python kept ready

Both sides are processes, and all of their CPU counts: Python's, Java's, and that of the Python processes of Spark. The
event is matched, sealed, delivered and committed. The query passes one line of text to a sink that keeps nothing: the
least that a streaming query does. The realm is warm: the event is not its first, so that its checkpoint, its indexes
and its Python bytecode are there. `sealcast demo` has Java keep the classes that it loads (pipeline/class_archive.py).
Without that our side takes some five seconds more.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from sealcast.bench.report import BenchRow, tree_seconds
from sealcast.clients.publisher import Publisher
from sealcast.clients.realm import Realm as ClientRealm
from sealcast.errors import Bug
from sealcast.lab import scratch
from sealcast.model.event import Event
from sealcast.model.schema import Schema
from sealcast.pipeline import java

ROUNDS: Final = 3
TOPIC: Final = "ticks"
SCHEMA: Final = Schema.from_json({"attributes": [{"name": "price", "type": "int"}]})

_COMMAND: Final = "from sealcast.cli.main import main; main()"
_QUERY: Final = """
import pathlib, sys
place = pathlib.Path(sys.argv[1])
lines = spark.readStream.format("text").load(str(place / "in"))
begun = lines.writeStream.format("noop").option("checkpointLocation", str(place / sys.argv[2]))
query = begun.trigger(availableNow=True).start()
query.awaitTermination()
assert query.lastProgress.numInputRows == 1
"""
#: Waits for Java at the end, so that what it took counts.
_PYSPARK: Final = f"""
from pyspark.sql import SparkSession
spark = SparkSession.builder.master("local[*]").config("spark.ui.enabled", "false").getOrCreate()
{_QUERY}
gateway = spark.sparkContext._gateway
spark.stop()
gateway.shutdown()
gateway.proc.stdin.close()
gateway.proc.wait()
"""
_TUNED: Final = f"""
from sealcast.pipeline.session import session
spark = session("local[*]", short_lived=True, clients=False)
{_QUERY}
"""
REFERENCES: Final = {
    "start": ("an empty streaming query of PySpark", _PYSPARK),
    "start-tuned": ("the same query in a session of ours", _TUNED),
}


def rows() -> Iterator[BenchRow]:
    """CPU seconds from the command to its end; ratio: ours / reference."""
    with scratch.directory(64 << 20) as place:
        realm = ClientRealm.create(place / "realm", "start")
        realm.create_topic(TOPIC, SCHEMA, access="members")
        realm.enrol_many(["publisher", "reader"])
        realm.subscribe(TOPIC, "reader", "price > 0")
        (place / "in").mkdir()
        (place / "in" / "line.txt").write_text("one line\n", encoding="utf-8")
        spent: dict[str, list[float]] = {"ours": [], **{name: [] for name in REFERENCES}}
        for number in range(ROUNDS + 1):
            queries = {name: _query(text, place, name, number) for name, (_, text) in REFERENCES.items()}
            for name, work in {"ours": _ours(realm), **queries}.items():
                seconds = tree_seconds(work)
                if number:  # the first round warms up
                    spent[name].append(seconds)
    ours = statistics.median(spent["ours"])
    for name, (reference_name, _) in REFERENCES.items():
        reference = statistics.median(spent[name])
        yield BenchRow(name, ours, reference, reference_name, ours / reference, "CPU s")


def _ours(realm: ClientRealm) -> Callable[[], None]:
    with Publisher(realm, TOPIC, as_="publisher") as publisher:
        publisher.publish([Event({"price": 118}, b"...")])

    def run() -> None:
        command = ["run", "--once", "--json", "--realm", str(realm.paths.root)]
        done = json.loads(_python(_COMMAND, *command))
        if (done["admitted"], done["deliveries"]) != (1, 1):
            raise Bug(f"one event was published for one reader, but the run says {done}")

    return run


def _query(text: str, place: Path, name: str, number: int) -> Callable[[], None]:
    def run() -> None:
        _python(text, str(place), f"checkpoint-{name}-{number}")

    return run


def _python(text: str, *arguments: str) -> str:
    """Runs a program in a Python of its own; what it printed."""
    environment = {**os.environ, "JAVA_HOME": str(java.find().executable.resolve().parent.parent)}
    done = subprocess.run(
        [sys.executable, "-c", text, *arguments], env=environment, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise Bug(f"a program of the benchmark failed: {done.stderr[-500:]}")
    return done.stdout
