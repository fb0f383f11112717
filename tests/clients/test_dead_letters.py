"""Dead letters: what does not open or cannot be processed is put aside, listed and replayed, and not copied."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from sealcast.clients.publisher import Publisher
from sealcast.clients.subscriber import Subscriber
from sealcast.errors import CannotOpen, Corrupt
from sealcast.log.dead_letters import DeadLetter, DeadLetters
from sealcast.model import Event, Schema
from sealcast.trust.deployment import Realm
from sealcast.wire.sealed import SealedPiece
from tests.cli.shell import sealcast
from tests.clients.pump import pump

SCHEMA = Schema.from_json({"attributes": [{"name": "price", "type": "int", "min": 0, "max": 1000}]})
CANARY = b"a payload that lies nowhere in clear"


@pytest.fixture
def realm(tmp_path: Path) -> Realm:
    made = Realm.create(tmp_path / "realm")
    made.create_topic("quotes", SCHEMA, access="members")
    made.enrol_many(["alice", "nyse"])
    made.subscribe("quotes", "alice", "price >= 0")
    with Publisher(made, "quotes", as_="nyse") as publisher:
        publisher.publish([Event({"price": n}, CANARY) for n in range(4)])
    return made


def command(realm: Realm, *arguments: str, code: int = 0):  # type: ignore[no-untyped-def]
    done = sealcast("--realm", realm.paths.root, "dead-letters", *arguments)
    assert done.code == code, done.err
    return done


def test_what_a_program_rejects_is_listed_replayed_and_gone(realm: Realm) -> None:
    pump(realm, "quotes")
    with Subscriber(realm, "quotes", as_="alice") as reader:
        events = reader.poll()
        reader.reject(events[1], "no such account")
        reader.reject(events[3], "too late")
        reader.reject(events[1], "still no such account")
        reader.ack()
        assert reader.poll() == []
    places = [str(events[3].position), str(events[1].position)]
    listed = command(realm, "list", "quotes", "--as", "alice", "--json").document["dead_letters"]
    assert [(each["position"], each["why"]) for each in listed] == list(
        zip(places, ["too late", "still no such account"], strict=True)
    )
    assert [each["sequence"] for each in listed] == [3, 1]
    again = command(realm, "replay", "quotes", "--as", "alice", places[1]).lines
    assert [each["payload"] for each in again] == [CANARY.decode()]
    assert [each["position"] for each in _left(realm)] == places[:1]
    for verb in (["replay"], ["remove", "--yes"]):
        # One of the two exists. The other is a slip, and nothing is done.
        refused = command(realm, *verb, "quotes", "--as", "alice", places[0], places[1], code=1)
        assert f"no dead letter of event {places[1]}:" in refused.err and "dead-letters list" in refused.err
    assert [each["position"] for each in _left(realm)] == places[:1]
    assert command(realm, "remove", "quotes", "--as", "alice", "--yes", "--json").document == {"removed": 1}
    assert _left(realm) == []


def test_what_does_not_open_is_put_aside_and_reading_goes_on(realm: Realm) -> None:
    pump(realm, "quotes", altered)
    with Subscriber(realm, "quotes", as_="alice") as stops, pytest.raises(CannotOpen):
        list(stops)
    with Subscriber(realm, "quotes", as_="alice", dead_letters=True) as reader:
        assert [event.attributes["price"] for event in reader.poll()] == [0, 2, 3]
        reader.ack()
        (letter,) = reader.letters.all()
        assert (letter.position, letter.code) == ("0/0/1", "cannot-open")
    failed = command(realm, "replay", "quotes", "--as", "alice", "--json", code=1).document["failed"]
    assert [each["position"] for each in failed] == ["0/0/1"]
    assert len(_left(realm)) == 1


def test_a_letter_holds_nothing_of_its_event(realm: Realm) -> None:
    pump(realm, "quotes")
    with Subscriber(realm, "quotes", as_="alice") as reader:
        reader.reject(reader.poll()[0], "no")
    assert not [path for path in realm.paths.root.rglob("*") if path.is_file() and CANARY in path.read_bytes()]


def test_a_line_that_was_never_finished_is_written_over(tmp_path: Path) -> None:
    letters = DeadLetters(tmp_path / "alice.jsonl")
    letters.add(DeadLetter("0/1/2", 7, "rejected", "no"))
    whole = letters.path.read_bytes()
    letters.path.write_bytes(whole + whole[:20])
    letters.add(DeadLetter("0/1/3", 8, "rejected", "no"))
    assert [letter.position for letter in letters.all()] == ["0/1/2", "0/1/3"]
    letters.path.write_bytes(b"{}\n" + whole)
    with pytest.raises(Corrupt, match="line 1 is no dead letter"):
        letters.all()


def altered(piece: SealedPiece) -> SealedPiece:
    """A broker spoils one event."""
    bodies = bytearray(piece.bodies)
    bodies[int(piece.body_start[1]) + 3] ^= 1
    return dataclasses.replace(piece, bodies=bytes(bodies))


def _left(realm: Realm) -> list[dict[str, str]]:
    found: list[dict[str, str]] = command(realm, "list", "quotes", "--as", "alice", "--json").document["dead_letters"]
    return found
