"""`format("sealcast")` through Spark Connect: a real server, and clients that are processes of their own without a JVM.

The program that docs/spark.md shows is one of them.
"""

from __future__ import annotations

import os
import re
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pytest

from sealcast.clients.publisher import Publisher
from sealcast.clients.subscriber import Subscriber
from sealcast.model import Event, Schema
from sealcast.pipeline import java
from sealcast.pipeline.class_archive import archive_for
from sealcast.pipeline.settings import THREADLESS
from sealcast.trust.deployment import Realm
from tests.clients.pump import pump
from tests.docs.paste import ROOT, blocks

pytestmark = pytest.mark.timeout(600)

SERVER: Final = "org.apache.spark.sql.connect.service.SparkConnectServer"
TOKEN: Final = "SPARK_CONNECT_AUTHENTICATE_TOKEN"
PATIENCE_S: Final = 240.0
_LISTENS: Final = re.compile(r"Spark Connect server started at: \S+:(\d+)")
SCHEMA: Final = Schema.from_json(
    {"attributes": [{"name": "symbol", "type": "string"}, {"name": "price", "type": "decimal", "step": "0.01"}]}
)
#: What the page's program does not show: streams, the subscriber's rights, and what is refused.
MORE: Final = """
from pyspark.errors import PySparkException
from sealcast.errors import Misuse
from sealcast.pipeline.run import run

def of(who, reading=spark.read):
    return reading.format("sealcast").options(**{"realm": "/srv/market", "topic": "ticks", "as": who}).load()

query = of("alice", spark.readStream).select("symbol", "price").writeStream.format("sealcast").options(
    **{"realm": "/srv/market", "topic": "copy", "as": "alice", "checkpointLocation": "/srv/checkpoint"}
).trigger(availableNow=True).start()
query.awaitTermination()
for name, refused in (
    ("eve", lambda: of("eve").count()),
    ("overwrite", lambda: df.write.format("sealcast").options(realm="/srv/market", topic="ticks", **{"as": "nyse"})
     .mode("overwrite").save()),
    ("run", lambda: run("/srv/market", once=True, spark=spark)),
):
    try:
        print(name, "succeeded", refused())
    except (PySparkException, Misuse) as error:
        print(name, str(error).replace("\\n", " "))
from pyspark import SparkContext
print("gateway", SparkContext._gateway)
"""
#: Somebody without the server's token.
STRANGER: Final = """
from pyspark.sql import SparkSession
print(SparkSession.builder.remote("sc://localhost:{port}").getOrCreate().range(1).count())
"""


@contextmanager
def server(root: Path, token: str) -> Iterator[int]:
    """A Spark Connect server as an operator starts one, on loopback; its port."""
    found, log = java.find(), root / "log"
    (root / "local").mkdir(parents=True)
    options = ["-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-XX:-UsePerfData", *archive_for(found).options]
    conf = {
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.connect.grpc.binding.port": "0",
        "spark.driver.memory": "512m",
        "spark.driver.extraJavaOptions": " ".join(options),
        "spark.sql.shuffle.partitions": "1",
        "spark.sql.warehouse.dir": str(root / "warehouse"),
        "spark.ui.enabled": "false",
    }
    told = [word for name, value in conf.items() for word in ("--conf", f"{name}={value}")]
    environment = {
        **plain_environment(),
        **java.ENVIRONMENT,
        **THREADLESS,
        TOKEN: token,
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_LOCAL_DIRS": str(root / "local"),
        "SPARK_LOCAL_IP": "127.0.0.1",
    }
    arguments = ("--master", "local[1]", "--class", SERVER, *told, "spark-internal")
    command = java.told_by_launcher(found, environment, java.SUBMIT, *arguments)
    with log.open("wb") as out:
        process = subprocess.Popen(
            command, cwd=root, stdin=subprocess.DEVNULL, stdout=out, stderr=out, env=environment, process_group=0
        )
    try:
        deadline = time.monotonic() + PATIENCE_S
        while (listens := _LISTENS.search(log.read_text(errors="replace"))) is None:
            assert process.poll() is None and time.monotonic() < deadline, log.read_text(errors="replace")[-3_000:]
            time.sleep(0.1)
        yield int(listens[1])
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def plain_environment() -> dict[str, str]:
    """That of somebody who has set nothing for another Spark."""
    return {name: value for name, value in os.environ.items() if not name.startswith(("SPARK_", "PYSPARK_"))}


def client(program: str, environment: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", program],
        env={**plain_environment(), **environment},
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )


def shown() -> str:
    """The program on the page."""
    (block,) = (block for block in blocks(ROOT / "docs" / "spark.md") if block.tag == "example")
    return block.text


def make_realm(root: Path) -> Realm:
    realm = Realm.create(root)
    for topic in ("ticks", "copy"):
        realm.create_topic(topic, SCHEMA, access="members")
    realm.enrol_many(["nyse", "alice", "bob", "eve"])
    realm.subscribe("ticks", "alice", "symbol = 'IBM' AND price < 120")
    realm.subscribe("copy", "bob", "price > 0")
    with Publisher(realm, "ticks", "nyse") as publisher:
        publisher.publish(Event({"symbol": "IBM", "price": price}, b"before") for price in ("118.50", "121.00"))
    pump(realm, "ticks")
    return realm


def test_a_remote_session_publishes_reads_and_streams_and_is_refused_what_it_may_not(tmp_path: Path) -> None:
    realm, token = make_realm(tmp_path / "market"), secrets.token_hex(32)
    with server(tmp_path / "server", token) as port:

        def here(program: str) -> str:
            places = {"localhost:15002": f"localhost:{port}", "/srv/": f"{tmp_path}/"}
            for there, place in places.items():
                assert there in program
                program = program.replace(there, place)
            return program

        done = client(here(shown() + MORE), {TOKEN: token, "JAVA_HOME": "/nowhere"})
        stranger = client(STRANGER.format(port=port), {TOKEN: secrets.token_hex(32)})
    assert done.returncode == 0, done.stderr[-3_000:]
    said = done.stdout.splitlines()
    assert said[0] == "IBM 118.50 nyse", "one of two events, opened with alice's own keys"
    told = dict(line.split(" ", 1) for line in said[1:])
    assert "no subscription" in told["eve"]
    assert "no overwriting" in told["overwrite"]
    assert "cannot run through Spark Connect" in told["run"]
    assert told["gateway"] == "None", "the client has no JVM of its own"
    assert stranger.returncode != 0 and "UNAUTHENTICATED" in stranger.stderr and not stranger.stdout
    assert (pump(realm, "ticks")["admitted"], pump(realm, "copy")["admitted"]) == (1, 1)
    with Subscriber(realm, "ticks", "alice", from_=0) as reader:
        assert [event.payload for event in reader] == [b"before", b"from afar"]
    with Subscriber(realm, "copy", "bob", from_=0) as reader:
        assert [(event.publisher, str(event.attributes["price"])) for event in reader] == [("alice", "118.50")]
