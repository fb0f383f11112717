"""The pipeline on Spark over a carrier: published, run and opened; and while the carrier is killed under load."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from sealcast import Event, Publisher, Realm, Subscriber, run
from sealcast.bench.carrier_servers import CarrierServer
from sealcast.broker.lag import waiting
from sealcast.errors import Unavailable
from sealcast.pipeline.run import start
from tests.cli.shell import sealcast
from tests.log.test_carried_journal import files_of
from tests.log.test_carried_topics import SCHEMA, TOPIC, in_directory

OVER = ["kafka", "nats"]


def a_realm(directory: Path, server: CarrierServer, protection: str = "endpoint") -> Realm:
    realm = Realm.create(directory / "realm", f"r{directory.name[-12:]}")
    realm.add_carrier("away", server.address)
    realm.create_topic(TOPIC, SCHEMA, partitions=2, access="members", protection=protection)
    realm.move_topic(TOPIC, "away")
    realm.enrol_many(["nyse", "lse", "alice"])
    realm.subscribe(TOPIC, "alice", "price > 10")
    return realm


def searched(directory: Path, canary: bytes) -> list[str]:
    """Files of a server that have something in clear."""
    return [str(path) for path in directory.rglob("*") if path.is_file() and canary in path.read_bytes()]


def test_the_search_finds_what_is_there(tmp_path: Path) -> None:
    (tmp_path / "segment").write_bytes(bytes(100) + b"canary 7")
    assert len(searched(tmp_path, b"canary")) == 1


@pytest.mark.soak
@pytest.mark.parametrize("over", OVER)
def test_run_takes_frames_from_a_carrier(
    over: str, request: pytest.FixtureRequest, tmp_path: Path, spark: SparkSession
) -> None:
    server: CarrierServer = request.getfixturevalue(over)
    realm = a_realm(tmp_path, server)
    for _ in range(2):
        for publisher in ("nyse", "lse"):
            with Publisher(realm, TOPIC, publisher) as writing:
                writing.publish([Event({"price": n}, b"canary %d" % n) for n in range(100)])
        run(realm, once=True, spark=spark)
        with Subscriber(realm, TOPIC, "alice") as reading:
            assert sorted(int(event.payload.split()[1]) for event in reading) == sorted(2 * [*range(11, 100)])
            reading.ack()
    assert in_directory(realm) == 0
    assert files_of(realm) == []
    assert searched(server.directory, b"canary") == []
    assert sealcast("check", "--json", "--realm", realm.paths.root).document["ok"]


@pytest.mark.soak
@pytest.mark.parametrize("protection", ["payload", "searchable"])
def test_other_protections_over_kafka(
    protection: str, kafka: CarrierServer, tmp_path: Path, spark: SparkSession
) -> None:
    realm = a_realm(tmp_path, kafka, protection)
    with Publisher(realm, TOPIC, "nyse") as writing:
        writing.publish([Event({"price": n}, b"%d" % n) for n in range(100)])
    run(realm, once=True, spark=spark)
    assert files_of(realm) == []
    with Subscriber(realm, TOPIC, "alice") as reading:
        assert [int(event.payload) for event in reading] == [*range(11, 100)]
    assert sealcast("check", "--json", "--realm", realm.paths.root).document["ok"]


@pytest.mark.soak
@pytest.mark.timeout(1_800)
@pytest.mark.parametrize("over", OVER)
def test_a_carrier_killed_while_events_pass(
    over: str, request: pytest.FixtureRequest, tmp_path: Path, spark: SparkSession
) -> None:
    """100,000 events, the pipeline running all the while, and the server that has frames, ledger and pieces killed -9
    six times. A publisher repeats what was not acknowledged, as the same frames, and replay detection drops what was
    there all the same; a batch that failed is run again: 0 lost, 0 doubled."""
    server: CarrierServer = request.getfixturevalue(over)
    realm, frames, kills, each = a_realm(tmp_path, server), 200, 6, 500
    done = threading.Event()

    def publish() -> None:
        with Publisher(realm.reopen(), TOPIC, "nyse") as writing:
            for frame in range(frames):
                events = [Event({"price": 11 + n % 900}, b"%d" % (frame * each + n)) for n in range(each)]
                while True:
                    try:
                        writing.publish(events)
                        break
                    except Unavailable:
                        time.sleep(0.1)
        done.set()

    thread = threading.Thread(target=publish)
    with start(realm.paths.root, spark=spark) as pipeline:
        thread.start()
        for _ in range(kills):
            time.sleep(5)
            server.kill()
            time.sleep(1)
            server.start()
        thread.join()
        assert done.is_set()
        end = time.monotonic() + 900
        while lag(realm) and time.monotonic() < end:
            time.sleep(1)
        assert not lag(realm), pipeline
    run(realm, once=True, spark=spark)
    with Subscriber(realm, TOPIC, "alice") as reading:
        got = [int(event.payload) for event in reading]
    assert set(got) == set(range(frames * each))
    assert len(got) == len(set(got))
    assert files_of(realm) == []
    assert sealcast("check", "--json", "--realm", realm.paths.root).document["ok"]


def lag(realm: Realm) -> int:
    """Frames that no batch has taken."""
    try:
        return waiting(realm, TOPIC, "broker")
    except Unavailable:
        return 1
