"""The pipeline as jobs: live, in batch, watched, stopped, refused; errors come back as ours, whatever Spark says."""

from __future__ import annotations

import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from py4j.protocol import Py4JError, Py4JJavaError, Py4JNetworkError
from pyspark.errors import PySparkException

from sealcast.clients.publisher import Publisher
from sealcast.clients.subscriber import Subscriber
from sealcast.errors import Bug, Corrupt, FrameRejected, Locked, Misuse, Rejected, Unavailable
from sealcast.model import Event, Schema
from sealcast.pipeline import failures, run
from sealcast.pipeline.metrics import FinishedBatch, Metrics
from sealcast.trust.deployment import Realm

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TOPIC = "flood-levels"
PUBLISHER, READER = "gauge-seven", "harbour-master"


@pytest.fixture
def realm(tmp_path: Path) -> Realm:
    realm = Realm.create(tmp_path / "realm")
    realm.create_topic(TOPIC, Schema.from_json({"attributes": [{"name": "level", "type": "int"}]}), access="members")
    realm.enrol_many([PUBLISHER, READER, "mayor"])
    realm.subscribe(TOPIC, READER, "level >= 3")
    return realm


def publish(realm: Realm, *levels: int) -> None:
    with Publisher(realm, TOPIC, PUBLISHER) as publisher:
        publisher.publish(Event({"level": level}, b"%d" % level) for level in levels)


def opened(realm: Realm, who: str = READER) -> list[int]:
    with Subscriber(realm, TOPIC, who, from_=0) as subscriber:
        return [int(event.payload) for event in subscriber]


def eventually(holds: Callable[[], bool], seconds: float = 120) -> None:
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline, "it never came to pass"
        time.sleep(0.05)


def test_live_with_a_subscription_that_comes_later(spark: SparkSession, realm: Realm) -> None:
    batches: list[FinishedBatch] = []
    with run.start(realm, spark=spark, on_batch=batches.append) as pipeline:
        publish(realm, 1, 3)
        eventually(lambda: opened(realm) == [3])
        realm.subscribe(TOPIC, "mayor", "level > 4")
        publish(realm, 4, 5)
        eventually(lambda: opened(realm) == [3, 4, 5])
        assert pipeline.running
    assert not pipeline.running
    assert opened(realm, "mayor") == [5]
    assert pipeline.totals["deliveries"] == 4 and pipeline.totals["admitted"] == 4
    assert sum(batch.counts["admitted"] for batch in batches) == 4
    assert batches[-1].version == realm.registry.version() and batches[-1].backlog == 0


def test_one_pipeline_a_topic(spark: SparkSession, realm: Realm) -> None:
    with run.start(realm, spark=spark):
        with pytest.raises(Locked, match="is being run by process"):
            run.start(realm, spark=spark)
        with pytest.raises(Locked, match="is being run by process"):
            run.run_batch(spark, realm.paths.root, TOPIC)
    publish(realm, 9)
    assert run.run(realm, once=True, spark=spark)["admitted"] == 1, "and afterwards it is free"


def test_batch_and_stream_take_turns(spark: SparkSession, realm: Realm) -> None:
    """A batch leaves the stream's checkpoint behind the ledger: the stream goes on from the ledger all the same."""
    publish(realm, 3)
    run.run(realm, once=True, spark=spark)
    publish(realm, 4, 2)
    assert run.run_batch(spark, realm.paths.root, TOPIC)["admitted"] == 2
    assert run.run_batch(spark, realm.paths.root, TOPIC) == {}
    publish(realm, 5)
    assert run.run(realm, once=True, spark=spark)["admitted"] == 1
    assert opened(realm) == [3, 4, 5]


def test_metrics_count_and_tell_nobody_who_talks_to_whom(spark: SparkSession, realm: Realm) -> None:
    metrics = Metrics()
    publish(realm, 1, 2, 3, 4)
    with metrics.serve(0) as served:
        run.run(realm, once=True, spark=spark, metrics=metrics)
        page = urllib.request.urlopen(f"http://127.0.0.1:{served.port}/metrics").read().decode()
    place = f'broker="broker",topic="{TOPIC}"'
    assert f"sealcast_admitted_total{{{place}}} 4.0" in page
    assert f"sealcast_deliveries_total{{{place}}} 2.0" in page
    assert f'sealcast_rejected_events_total{{broker="broker",reason="signature",topic="{TOPIC}"}} 0.0' in page
    assert f"sealcast_lag_frames{{{place}}} 0.0" in page
    assert metrics.value("sealcast_batches_total") == 1
    assert metrics.value("sealcast_queries_running") == 0
    for name in (PUBLISHER, READER, str(realm.paths.root), "level"):
        assert name not in page.replace(TOPIC, "")


def test_metrics_do_not_count_other_queries(spark: SparkSession, realm: Realm, tmp_path: Path) -> None:
    metrics = Metrics()
    with run.start(realm, spark=spark, metrics=metrics):
        other = spark.readStream.format("rate").load().writeStream.format("noop")
        for _ in range(3):
            query = other.option("checkpointLocation", str(tmp_path / "other")).trigger(availableNow=True).start()
            query.awaitTermination()
    # Ours has had time for the first batch of a new query, which is empty, or not.
    assert metrics.value("sealcast_batches_total") <= 1
    assert metrics.value("sealcast_queries_running") == 0


def test_a_port_that_is_taken(spark: SparkSession) -> None:
    with Metrics().serve(0) as served, pytest.raises(Unavailable, match="choose|in use|cannot be served"):
        Metrics().serve(served.port)


def test_damage_in_the_log_is_named_and_nothing_beyond_it_is_delivered(spark: SparkSession, realm: Realm) -> None:
    publish(realm, 3)
    run.run(realm, once=True, spark=spark)
    publish(realm, 4)
    (segment,) = realm.paths.topic(TOPIC).frames(0).glob("*.seg")
    raw = bytearray(segment.read_bytes())
    raw[-20] ^= 1
    segment.write_bytes(raw)
    with pytest.raises(Corrupt, match=f"{segment.name}.*record 1"):
        run.run(realm, once=True, spark=spark)
    assert opened(realm) == [3]


def test_topics_that_cannot_be_run(spark: SparkSession, realm: Realm, tmp_path: Path) -> None:
    with pytest.raises(Misuse, match="no topics to run"):
        run.start(Realm.create(tmp_path / "empty"), spark=spark)
    with pytest.raises(Misuse, match="nothing"):
        run.start(realm, ["nothing"], spark=spark)


@pytest.mark.parametrize(
    ("report", "kind", "message"),
    [
        ("...\nTraceback ...\nsealcast.errors.Corrupt: it is broken\n SQLSTATE", Corrupt, "it is broken"),
        ("x\nsealcast.errors.FrameRejected: not a frame\n", Rejected, "not a frame"),
        ("x\nsealcast.errors.Bug: we were wrong\n", Bug, "we were wrong"),
        ("x\nsealcast.errors.Nonsense: whatever\n", Unavailable, "whatever"),
        ("[FAILED] it failed\nValueError: too many\n", Unavailable, "the pipeline failed: ValueError: too many"),
        ("", Unavailable, "the pipeline failed: "),
        (
            "x\nCaused by: ChecksumException: Checksum error: file:/market/topics/t/checkpoint/offsets/1 at 0 exp: 1\n",
            Corrupt,
            "Spark's checkpoint was damaged: /market/topics/t/checkpoint/offsets/1 is not what was written",
        ),
        (
            "[CANNOT_LOAD_STATE_STORE.UNCATEGORIZED] An error occurred during loading state.  SQLSTATE: 58030",
            Corrupt,
            "the state in Spark's checkpoint cannot be loaded",
        ),
    ],
)
def test_spark_reports_become_our_errors(report: str, kind: type[Exception], message: str) -> None:
    error = failures.explain(PySparkException(report))
    assert type(error) is kind and error.message == message
    assert not isinstance(error, FrameRejected)


def test_what_java_throws_at_the_start_of_a_query_becomes_our_error() -> None:
    """PySpark has no class for it: a checksum of the checkpoint's `metadata` that is wrong, say."""

    class Thrown(Py4JJavaError):
        def __init__(self) -> None: ...
        def __str__(self) -> str:
            return (
                "An error occurred while calling o1.start.\n: ...ChecksumException: Checksum error: file:/m at 0 exp: 1"
            )

    with pytest.raises(Corrupt, match="Spark's checkpoint was damaged: /m is not") as caught, failures.explained():
        raise Thrown
    assert "remove the checkpoint" in str(caught.value.hint)


def test_a_jvm_that_dies_in_the_middle_of_a_call_is_gone_and_one_that_throws_is_not() -> None:
    for error in (
        Py4JError("An error occurred while calling o1.isActive"),
        Py4JNetworkError("empty"),
        ConnectionError(),
    ):
        with pytest.raises(Unavailable, match="JVM has ended"), failures.living_jvm():
            raise error
    thrown = Py4JJavaError.__new__(Py4JJavaError)
    with pytest.raises(Py4JError) as caught, failures.living_jvm():
        raise thrown
    assert caught.value is thrown


def test_stopped_by_a_signal_in_good_order(realm: Realm, tmp_path: Path) -> None:
    program = (
        "import sys; from sealcast.pipeline import run, session;"
        "spark = session.session('local[1]', short_lived=True);"
        "print(run.run(sys.argv[1], spark=spark, on_batch=lambda b: print('batch', flush=True))['admitted'])"
    )
    publish(realm, 3, 4)
    child = subprocess.Popen(
        [sys.executable, "-c", program, str(realm.paths.root)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert child.stdout is not None
    assert child.stdout.readline() == "batch\n"
    child.terminate()
    out, err = child.communicate(timeout=120)
    assert (child.returncode, out, err) == (0, "2\n", "")
    assert opened(realm) == [3, 4]
