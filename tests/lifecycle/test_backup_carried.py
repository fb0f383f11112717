"""Backup and restore of topics that are on carriers: one moment of them while they run, and a restored realm that has
them in its directory and leaves the carrier to the realm that was backed up."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from secrets import token_hex

import pytest

from sealcast import Event, Publisher, Realm, Subscriber
from sealcast.bench.carrier_servers import CarrierServer
from sealcast.log import frontier
from sealcast.log.carried_pieces import CarriedPieces
from sealcast.trust.backups import carried as carrying
from sealcast.trust.backups import making
from sealcast.trust.backups.making import back_up, restore
from tests.cli.shell import sealcast
from tests.lifecycle.test_forget_carried import READERS, SOAK, deliver, forget_open
from tests.soak.small_realm import SCHEMA, TOPIC


@pytest.fixture(params=["endpoint-nats", *SOAK])
def realm(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Realm]:
    """Three batches; alice has read one event, and one frame waits. Frames of the first batch are gone."""
    protection, over = request.param.rsplit("-", 1)
    server: CarrierServer = request.getfixturevalue(over)
    made = Realm.create(tmp_path / "realm", f"r{token_hex(6)}")
    nodes = {"nodes": 2} if protection == "layered" else {}
    made.create_topic(TOPIC, SCHEMA, protection=protection, access="members", **nodes)
    made.enrol_many(["nyse", "lse", *READERS])
    made.subscribe(TOPIC, "alice", "price >= 0")
    made.add_carrier("away", server.address)
    deliver(made, "nyse", b"a", b"b")
    made.move_topic(TOPIC, "away")
    made.subscribe(TOPIC, "bob", "price >= 0")
    deliver(made, "lse", b"c")
    broker = next(broker for _, broker in made.state().carried)
    with made.frames(TOPIC, broker) as log:
        assert log.partition(log.own[0]).drop(1) == 1
    deliver(made, "lse", b"d")
    with Subscriber(made, TOPIC, "alice") as reader:
        assert [event.payload for event in reader.poll(1)] == [b"a"]
        reader.ack()
    waiting(made, b"e")
    yield made
    forget_open()


def waiting(realm: Realm, payload: bytes) -> None:
    with Publisher(realm, TOPIC, "nyse") as writing:
        writing.publish([Event({"price": 1}, payload)])


def read(realm: Realm, name: str) -> list[bytes]:
    with Subscriber(realm, TOPIC, name) as reader:
        found = [event.payload for event in reader]
        reader.ack()
        return sorted(found)


def checked(realm: Realm) -> bool:
    forget_open()
    found = sealcast("check", "--json", "--realm", realm.paths.root)
    assert found.document.get("ok"), found.out + found.err
    return True


def test_a_restored_realm_has_everything_and_leaves_the_carrier_alone(realm: Realm, tmp_path: Path) -> None:
    done = sealcast("backup", tmp_path / "b", "--json", "--realm", realm.paths.root)
    assert done.code == 0, done.err
    deliver(realm, "lse", b"only there")
    made = restore(tmp_path / "b", tmp_path / "again")
    brokers = [broker for _, broker in realm.state().carried]
    assert made.carried == tuple(f"{TOPIC} at {broker}" for broker in brokers)
    assert made.whole.pieces >= 3 and made.whole.records >= 3 and made.whole.frames == 3
    restored = Realm(made.root)
    assert not restored.state().carried and not restored.state().journals
    forget_open()
    assert checked(restored)
    deliver(restored, "nyse", b"only here")
    assert read(restored, "alice") == [b"b", b"c", b"d", b"e", b"only here"]
    assert read(restored, "bob")[-1] == b"only here"
    assert checked(restored)
    # The first realm goes on with the carrier, where nobody else was.
    deliver(realm, "nyse", b"f")
    assert read(realm, "alice") == [b"b", b"c", b"d", b"e", b"f", b"only there"]
    assert checked(realm)
    # And the restored one moves to a carrier again, under another name.
    restored.move_topic(TOPIC, "away", name=token_hex(6))
    deliver(restored, "nyse", b"g")
    assert read(restored, "alice") == [b"g"] and checked(restored)


@pytest.mark.soak
def test_a_realm_that_runs_on_meanwhile_is_backed_up_as_of_one_moment(
    realm: Realm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A batch is committed after the marks are read, and before anything is copied."""
    copy = carrying.CarriedMoment.copy

    def late(moment: carrying.CarriedMoment) -> None:
        deliver(realm, "lse", b"late")
        copy(moment)

    monkeypatch.setattr(carrying.CarriedMoment, "copy", late)
    back_up(realm, tmp_path / "b")
    restored = Realm(restore(tmp_path / "b", tmp_path / "again").root)
    assert checked(restored)
    deliver(restored, "nyse", b"f")
    assert read(restored, "alice") == [b"b", b"c", b"d", b"e", b"f"]


@pytest.mark.soak
def test_a_piece_that_goes_meanwhile_has_another_moment_taken(
    realm: Realm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried, read_piece = list[str](), CarriedPieces.read

    def gone_once(pieces: CarriedPieces, name: str, digest: bytes) -> bytes:
        tried.append(name)
        return read_piece(pieces, f"9999{name[4:]}" if len(tried) == 1 else name, digest)

    monkeypatch.setattr(CarriedPieces, "read", gone_once)
    back_up(realm, tmp_path / "b")
    monkeypatch.undo()
    assert len(tried) > 1 and checked(Realm(restore(tmp_path / "b", tmp_path / "again").root))


@pytest.mark.soak
def test_a_restored_realm_that_kept_its_carrier_would_write_into_the_first_ones_ledger(
    realm: Realm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The weakened variant: why the carrier is left to the realm that was backed up."""
    monkeypatch.setattr(making, "_off_carriers", lambda root, state: state)
    back_up(realm, tmp_path / "b")
    restored = Realm(restore(tmp_path / "b", tmp_path / "again").root)
    broker = next(broker for _, broker in realm.state().carried)
    before = realm.journal(TOPIC, broker).log("ledger")
    assert before is not None and (end := before.end())
    deliver(restored, "nyse", b"f")
    assert before.end() > end


@pytest.mark.soak
def test_nothing_is_left_beside_the_realm(realm: Realm, tmp_path: Path) -> None:
    """What is staged of carriers is in the realm's directory while the backup is made, and gone after it."""
    before = {path.relative_to(realm.paths.root) for path in realm.paths.root.rglob("*") if path.name != frontier.NAME}
    back_up(realm, tmp_path / "b")
    after = {path.relative_to(realm.paths.root) for path in realm.paths.root.rglob("*") if path.name != frontier.NAME}
    assert not {path for path in after - before if "snapshots" not in path.parts}
