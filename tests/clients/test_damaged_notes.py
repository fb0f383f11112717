"""Small files that processes keep for themselves: one flipped byte is noticed before anything is done by it."""

from __future__ import annotations

import json
import struct
from pathlib import Path

import pytest

from sealcast import Event, Publisher, Realm, Schema, Subscriber
from sealcast.errors import Corrupt
from sealcast.log import noted
from sealcast.log.forwarded import ForwardedLog
from sealcast.protections.attribute.peering import status
from sealcast.protections.layered.node import HopStep
from sealcast.protections.steps import StepName
from tests.clients.pump import pump
from tests.pipeline.layered_world import TOPIC as LAYERED
from tests.pipeline.layered_world import LayeredWorld

TOPIC = "quotes"
SCHEMA = Schema.from_json({"attributes": [{"name": "price", "type": "int"}]})


def flipped(raw: bytes, at: int) -> bytes:
    return raw[:at] + bytes([raw[at] ^ 1]) + raw[at + 1 :]


def test_a_wallet_that_was_damaged_costs_a_question_and_no_event(tmp_path: Path) -> None:
    """A token with a wrong signature would be refused by brokers, after its publisher was told that all is well."""
    realm = Realm.create(tmp_path / "realm")
    realm.create_topic(TOPIC, SCHEMA, access="members")
    realm.enrol_many(["nyse", "alice"])
    realm.subscribe(TOPIC, "alice", "price >= 0")
    with Publisher(realm, TOPIC, "nyse") as nyse:
        nyse.publish([Event({"price": 0}, b"first")])
    (wallet,) = (realm.paths.root / "wallets" / "nyse").glob("*.publish")
    good = wallet.read_bytes()
    places = range(3, len(good), len(good) // 40)
    for number, at in enumerate(places):
        wallet.write_bytes(flipped(good, at))
        with Publisher(Realm(realm.paths.root), TOPIC, "nyse") as nyse:
            nyse.publish([Event({"price": number}, b"%d" % at)])
    counts = pump(realm, TOPIC)
    assert counts["admitted"] == 1 + len(places)
    assert not any(count for name, count in counts.items() if name.startswith("rejected"))
    with Subscriber(realm, TOPIC, "alice") as reader:
        assert [event.payload for event in reader] == [b"first", *(b"%d" % at for at in places)]


def test_a_wallet_that_is_whole_asks_nobody(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    realm = Realm.create(tmp_path / "realm")
    realm.create_topic(TOPIC, SCHEMA, access="members")
    realm.enrol_many(["nyse"])
    Publisher(realm, TOPIC, "nyse").close()
    monkeypatch.setattr("sealcast.control.wallet.Wallet.ask", lambda *about: pytest.fail("it asks again"))
    with Publisher(Realm(realm.paths.root), TOPIC, "nyse") as nyse:
        nyse.publish([Event({"price": 1})])


def test_a_broker_that_cannot_tell_whom_it_takes_records_from_says_so(tmp_path: Path) -> None:
    """Another name in its place would number the records of the right one anew: everything would come twice."""
    world = LayeredWorld(tmp_path / "realm", {"ann": ["price < 80"]})
    world.publish("p0", 5)
    world.admit()
    world.drain()
    name = next(name for name in world.names if name.broker not in world.realm.state().overlay(LAYERED).roots)
    path = HopStep.of(name).paths.root / "upstreams"
    good = path.read_bytes()
    for at in range(len(good)):
        path.write_bytes(flipped(good, at))
        with pytest.raises(Corrupt, match=str(path)):
            _fresh(name)
    known = noted.decode(good)["upstreams"]
    path.write_bytes(json.dumps(known).encode())
    assert _fresh(name) == tuple(known), "a note of an earlier release has no check, and is read"
    path.write_bytes(good)
    assert _fresh(name) == tuple(known)


def _fresh(name: StepName) -> tuple[str, ...]:
    """As a process that has just begun reads it."""
    return HopStep(name)._noted()


def test_where_a_forwarded_log_goes_on_is_checked(tmp_path: Path) -> None:
    with ForwardedLog(tmp_path / "log") as log:
        log.take([(4, b"a"), (7, b"b")])
        log.drop(log.end())
        assert log.next_origin() == 8
        path = tmp_path / "log" / "next-origin"
        good = path.read_bytes()
        for at in range(len(good)):
            path.write_bytes(flipped(good, at))
            with pytest.raises(Corrupt, match="next-origin"):
                log.next_origin()
        for earlier in (good[:-8], struct.pack("<Q", 8)):
            path.write_bytes(earlier)
            assert log.next_origin() == 8, "a note of an earlier release has no check, and is read"


@pytest.mark.parametrize("said", ["[]", "{}", '{"time_us": "x"}', '{"time_us": null}', '{"time_us": [1]}', "{"])
def test_a_damaged_note_on_a_peer_says_nothing(tmp_path: Path, said: str) -> None:
    realm = Realm.create(tmp_path / "realm")
    realm.enrol_many(["nurse"])
    path = status._path(realm, "nurse")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(said)
    assert status.read(realm, "nurse") is None


def test_a_note_is_read_as_it_was_written_or_not_at_all(tmp_path: Path) -> None:
    body = {"since": 5, "names": ["a", "b"], "none": None}
    noted.write(tmp_path / "note", body)
    raw = (tmp_path / "note").read_bytes()
    assert noted.decode(raw) == body
    for at in range(len(raw)):
        for bit in range(8):
            with pytest.raises(ValueError, match="."):
                noted.decode(raw[:at] + bytes([raw[at] ^ (1 << bit)]) + raw[at + 1 :])
