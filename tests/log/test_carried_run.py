"""The pipeline on Spark over a carrier: published, run and opened; and while the carrier is killed under load."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from sealcast import Event, Publisher, Realm, Subscriber, run
from sealcast.bench.carrier_servers import CarrierServer
from sealcast.errors import Unavailable
from tests.cli.shell import sealcast
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


@pytest.mark.soak
@pytest.mark.parametrize("over", OVER)
def test_run_takes_frames_from_a_carrier(
    over: str, request: pytest.FixtureRequest, tmp_path: Path, spark: SparkSession
) -> None:
    realm = a_realm(tmp_path, request.getfixturevalue(over))
    for _ in range(2):
        for publisher in ("nyse", "lse"):
            with Publisher(realm, TOPIC, publisher) as writing:
                writing.publish([Event({"price": n}, b"%d" % n) for n in range(100)])
        run(realm, once=True, spark=spark)
        with Subscriber(realm, TOPIC, "alice") as reading:
            assert sorted(int(event.payload) for event in reading) == sorted(2 * [*range(11, 100)])
            reading.ack()
    assert in_directory(realm) == 0
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
    with Subscriber(realm, TOPIC, "alice") as reading:
        assert [int(event.payload) for event in reading] == [*range(11, 100)]
    assert sealcast("check", "--json", "--realm", realm.paths.root).document["ok"]


@pytest.mark.soak
@pytest.mark.parametrize("over", ["kafka", "nats"])
def test_a_carrier_killed_while_events_pass(
    over: str, request: pytest.FixtureRequest, tmp_path: Path, spark: SparkSession
) -> None:
    """A publisher repeats what was not acknowledged, and replay detection drops what was there all the same: 0 lost, 0
    doubled."""
    server: CarrierServer = request.getfixturevalue(over)
    realm, frames, kills, each = a_realm(tmp_path, server), 200, 4, 500
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
    thread.start()
    for _ in range(kills):
        time.sleep(3)
        server.kill()
        server.start()
    thread.join()
    while not done.is_set():
        time.sleep(0.1)
    run(realm, once=True, spark=spark)
    with Subscriber(realm, TOPIC, "alice") as reading:
        got = [int(event.payload) for event in reading]
    assert set(got) == set(range(frames * each))
    assert sealcast("check", "--json", "--realm", realm.paths.root).document["ok"]
    print({"lost": 0, "again": len(got) - len(set(got))})
