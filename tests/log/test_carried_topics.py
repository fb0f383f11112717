"""Topics whose frames are on a carrier: published, taken, opened, moved, removed; over real servers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from sealcast import Event, Publisher, Realm, Schema, Subscriber
from sealcast.bench.carrier_servers import CarrierServer, NatsServer
from sealcast.errors import Locked, Misuse, NotFound, Unavailable
from sealcast.log.carriers import Placement
from sealcast.log.driver_lock import kept_from_running
from sealcast.log.embedded import FrameLog, Moved
from sealcast.pipeline.retention import Retainer, kept_steps
from sealcast.protections import steps
from sealcast.protections.steps import StepName
from sealcast.trust.admin.deletion import delete_topic
from sealcast.trust.handles import BrokerRealm
from tests.cli.shell import sealcast
from tests.clients.pump import pump

TOPIC = "quotes"
SCHEMA = Schema.from_json({"attributes": [{"name": "price", "type": "int", "min": 0, "max": 1_000}]})


@pytest.fixture(params=["kafka", "nats"])
def server(request: pytest.FixtureRequest) -> CarrierServer:
    found: CarrierServer = request.getfixturevalue(request.param)
    return found


@pytest.fixture
def realm(tmp_path: Path) -> Iterator[Realm]:
    made = Realm.create(tmp_path / "realm", f"r{tmp_path.name[-12:]}")
    made.create_topic(TOPIC, SCHEMA, partitions=2, access="members")
    made.enrol_many(["nyse", "lse", "alice"])
    made.subscribe(TOPIC, "alice", "price > 10")
    yield made


def publish(realm: Realm, *prices: int, by: str = "nyse") -> None:
    with Publisher(realm, TOPIC, by) as writing:
        writing.publish([Event({"price": n}, b"%d" % n) for n in prices])


def deliver(realm: Realm) -> None:
    steps._open.cache_clear()
    StepName(str(realm.paths.root), TOPIC).open().begin()
    pump(realm, TOPIC)


def opened(realm: Realm) -> list[int]:
    with Subscriber(realm, TOPIC, "alice") as reading:
        found = [int(event.payload) for event in reading]
        reading.ack()
        return found


def in_directory(realm: Realm) -> int:
    """Frames in the realm's directory."""
    count = 0
    for partition in range(2):
        with FrameLog(realm.paths.topic(TOPIC).frames(partition), read_only=True) as log:
            count += log.end() - log.start()
    return count


def test_a_topic_on_a_carrier(realm: Realm, server: CarrierServer) -> None:
    assert realm.add_carrier("away", server.address) == server.address
    realm.move_topic(TOPIC, "away")
    for round in range(3):
        publish(realm, 11 + round, 5, 21 + round)
        publish(realm, 31 + round, by="lse")
        deliver(realm)
        assert sorted(opened(realm)) == [11 + round, 21 + round, 31 + round]
    assert in_directory(realm) == 0
    assert sealcast("check", "--json", "--realm", realm.paths.root).document["ok"]


def test_a_topic_that_moves_loses_no_cursor(realm: Realm, server: CarrierServer) -> None:
    realm.add_carrier("away", server.address)
    with Publisher(realm, TOPIC, "nyse") as running:
        running.publish([Event({"price": n}, b"%d" % n) for n in (11, 12)])
        deliver(realm)
        assert opened(realm) == [11, 12]
        running.publish([Event({"price": 13}, b"13")])
        publish(realm, 14, by="lse")
        before = {p: realm.frames(TOPIC).partition(p).end() for p in range(2)}
        done = realm.move_topic(TOPIC, "away")
        assert done.copied == 3
        log = realm.frames(TOPIC)
        assert {p: log.partition(p).end() for p in range(2)} == before
        running.publish([Event({"price": 15}, b"15")])  # by a handle from before
    deliver(realm)
    assert sorted(opened(realm)) == [13, 14, 15]
    publish(realm, 16)
    deliver(realm)
    assert opened(realm) == [16]
    assert sealcast("check", "--json", "--realm", realm.paths.root).document["ok"]


def test_frames_that_have_served_are_removed_from_a_carrier(realm: Realm, server: CarrierServer) -> None:
    realm.add_carrier("away", server.address)
    realm.move_topic(TOPIC, "away")
    publish(realm, 11)
    deliver(realm)
    publish(realm, 12)
    deliver(realm)
    now = realm.clock() + 30 * 86_400_000_000
    with Retainer(BrokerRealm(realm.paths.root), kept_steps(realm, [TOPIC], ["broker"])) as retainer:
        assert sum(retainer.once(now).values()) == 2
    assert opened(realm) == [11, 12]
    publish(realm, 13)
    deliver(realm)
    assert opened(realm) == [13]


def test_what_cannot_be_moved_is_refused(realm: Realm, nats: CarrierServer) -> None:
    with pytest.raises(NotFound, match="no carrier 'away'"):
        realm.move_topic(TOPIC, "away")
    for address in ("kafka://", "mqtt://h:1", "kafka://h", "nats://h:1 ", "nats://a:1,,b:2"):
        with pytest.raises(Misuse):
            realm.add_carrier("away", address)
    realm.add_carrier("away", nats.address)
    with pytest.raises(Misuse, match="of another kind"):
        realm.add_carrier("away", "kafka://127.0.0.1:1")
    with kept_from_running(realm.paths.topic(TOPIC).ledger), pytest.raises(Locked):
        realm.move_topic(TOPIC, "away")
    realm.move_topic(TOPIC, "away")
    with pytest.raises(Misuse, match="already"):
        realm.move_topic(TOPIC, "away")
    with FrameLog(realm.paths.topic(TOPIC).frames(0)) as log, pytest.raises(Moved):
        log.append([b"late"])


def test_settings_with_secrets_are_for_their_owner_alone(realm: Realm) -> None:
    realm.add_carrier("away", "kafka://127.0.0.1:1")
    path = realm.paths.carrier_settings("away")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("sasl.password = s3cret\n")
    path.chmod(0o644)
    with pytest.raises(Misuse, match="others may read") as refused:
        realm.carriers.carrier(realm.state(), "away")
    path.chmod(0o600)
    path.write_text("bootstrap.servers = elsewhere:1\nsasl.password = s3cret\n")
    with pytest.raises(Misuse, match="takes no setting 'bootstrap.servers'") as other:
        realm.carriers.carrier(realm.state(), "away")
    assert "s3cret" not in f"{refused.value}{other.value}"


def test_a_batch_over_a_carrier_is_planned_and_read_as_spark_does(realm: Realm, server: CarrierServer) -> None:
    from pyspark.sql.streaming.datasource import ReadMaxRows

    from sealcast.pipeline.sources import Limits, StepsStream

    realm.add_carrier("away", server.address)
    realm.move_topic(TOPIC, "away")
    for n in range(6):
        publish(realm, 11 + n)
    publish(realm, 50, by="lse")
    steps._open.cache_clear()
    stream = StepsStream((StepName(str(realm.paths.root), TOPIC),), Limits(100, 1 << 20, 2))
    start = stream.initialOffset()
    few, all_of_it = (stream.latestOffset(start, ReadMaxRows(most)) for most in (4, 100))
    assert few != all_of_it
    tasks = stream.partitions(start, all_of_it)
    assert sum(span.end - span.first for task in tasks for span in task.value.spans) == 7
    made = [row for task in tasks for batch in stream.read(task) for row in batch.to_pylist()]
    assert sorted(n for row in made for n in range(row["first_offset"], row["end_offset"])) == [0, *range(6)]


# --- the end of a topic ---------------------------------------------------------------------------


def test_a_topic_that_is_deleted_is_gone_from_the_carrier(realm: Realm, server: CarrierServer) -> None:
    realm.add_carrier("away", server.address)
    realm.move_topic(TOPIC, "away")
    publish(realm, 11)
    deliver(realm)
    name, there = realm.state().carried[TOPIC, "broker"].name, realm.carriers.carrier(realm.state(), "away")
    made = [name, *(f"{name}.{suffix}" for suffix in ("ledger", "reseals", "replays", "pieces", "places"))]
    assert None not in map(there.partitions, made)
    done = sealcast("topic", "delete", TOPIC, "--yes", "--json", "--realm", realm.paths.root)
    assert done.code == 0 and done.document["left"]["shared_on_carriers"] == []
    assert set(map(there.partitions, made)) == {None}
    assert sealcast("maintain", "--json", "--realm", realm.paths.root).code == 0


def test_a_topic_of_others_is_not_deleted_with_ours(realm: Realm, nats: CarrierServer) -> None:
    realm.add_carrier("away", nats.address)
    there, name = realm.carriers.carrier(realm.state(), "away"), f"theirs.{realm.name}"
    there.create(name, Placement(2))
    there.partition(name, 1).append([(b"", b"somebody else's")])
    realm.move_topic(TOPIC, "away", name=name)
    publish(realm, 11)
    done = sealcast("topic", "delete", TOPIC, "--yes", "--json", "--realm", realm.paths.root)
    assert done.document["left"]["shared_on_carriers"] == [f"{name} on away"]
    assert there.partitions(name) == 2 and there.partitions(f"{name}.ledger") is None


def test_a_carrier_that_is_away_is_cleared_later(realm: Realm, tmp_path: Path) -> None:
    with NatsServer(tmp_path / "nats") as server:
        realm.add_carrier("away", server.start().address)
        realm.move_topic(TOPIC, "away")
        there, name = realm.carriers.carrier(realm.state(), "away"), realm.state().carried[TOPIC, "broker"].name
        server.kill()
        there.patience_s = 1  # type: ignore[attr-defined]
        with pytest.raises(Unavailable, match="its carrier still has it"):
            delete_topic(realm, TOPIC)
        server.start()
        assert sealcast("maintain", "--json", "--realm", realm.paths.root).code == 0
        assert there.partitions(name) is None
