"""A machine that stands by takes over, with nothing in common with the first but PostgreSQL and a carrier."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from sealcast import Realm, Subscriber
from sealcast.bench.carrier_servers import NatsServer
from tests.copies import copy_realm
from tests.log.test_carried_journal import is_whole
from tests.log.test_carried_topics import SCHEMA, TOPIC, publish
from tests.trust.postgres import PASSWORD, Server, postgres

__all__ = ["postgres"]
pytestmark = [pytest.mark.soak, pytest.mark.timeout(2_400)]
SECONDS = 600.0


@contextmanager
def running(realm: Path, *options: str) -> Iterator[subprocess.Popen[bytes]]:
    """`sealcast run` on a machine."""
    command = [Path(sys.executable).with_name("sealcast"), "run", "--realm", realm, "--master", "local[1]", *options]
    with (realm.parent / f"{realm.name}.out").open("ab") as output:
        started = subprocess.Popen(command, stdout=output, stderr=output, start_new_session=True)
    try:
        yield started
    finally:
        os.killpg(started.pid, signal.SIGKILL)
        started.wait()


def arrives(subscriber: Subscriber, price: int) -> float:
    """How long an event takes to come."""
    began = time.monotonic()
    while time.monotonic() < began + SECONDS:
        if found := [int(event.payload) for event in subscriber.poll(timeout=0.5)]:
            assert found == [price]
            subscriber.ack()
            return time.monotonic() - began
    raise AssertionError(f"{price} did not come")


def test_a_machine_that_stands_by_takes_over(
    tmp_path: Path, postgres: Server, nats: NatsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PGPASSWORD", PASSWORD)
    registry = postgres.url(postgres.schema(), password=None)
    realm = Realm.create(tmp_path / "one", f"r{tmp_path.name[-12:]}", registry=registry)
    realm.create_topic(TOPIC, SCHEMA, access="members")
    realm.enrol_many(["nyse", "lse", "alice"])
    realm.subscribe(TOPIC, "alice", "price > 10")
    realm.add_carrier("away", nats.address)
    realm.move_topic(TOPIC, "away")
    copy_realm(tmp_path / "one", tmp_path / "two")
    with Subscriber(realm, TOPIC, "alice") as subscriber, running(tmp_path / "one") as first:
        publish(realm, 11)
        arrives(subscriber, 11)
        with running(tmp_path / "two", "--standby"):
            publish(realm, 12)
            arrives(subscriber, 12)
            time.sleep(20)  # it has Spark ready by then
            assert "stand" in (tmp_path / "two.out").read_text()
            os.kill(first.pid, signal.SIGKILL)  # and whatever it started lives on for a while
            publish(realm, 13)
            seconds = arrives(subscriber, 13)
            publish(realm, 14)
            arrives(subscriber, 14)
            print({"takeover_seconds": round(seconds, 1)})
    assert is_whole(Realm(tmp_path / "two"))
