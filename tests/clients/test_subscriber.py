"""What subscribers get, through the pipeline's own kernels: exactly what their filters match, verified, once."""

from __future__ import annotations

import dataclasses
import shutil
import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from sealcast.clients.publisher import Publisher
from sealcast.clients.subscriber import Subscriber
from sealcast.errors import CannotOpen, Corrupt, Misuse, NotFound, Rejected
from sealcast.filters.check import fit
from sealcast.filters.evaluate import evaluate
from sealcast.filters.parse import parse
from sealcast.log.mailbox import slot_mailbox
from sealcast.log.piece_reader import sealed_reader
from sealcast.model import Event, OpenedEvent, Position, Schema
from sealcast.primitives.secrets import Secret
from sealcast.primitives.sign import VerifyKey
from sealcast.protections.endpoint.open import Opener
from sealcast.protections.witness.mailboxes import cursors, lags
from sealcast.trust.deployment import Realm
from sealcast.trust.keys.identity import Identity
from sealcast.trust.realm.changes import Right
from sealcast.wire.sealed import SealedPiece
from tests.clients.pump import pump

SCHEMA = Schema.from_json(
    {
        "attributes": [
            {"name": "symbol", "type": "string", "max_length": 8},
            {"name": "price", "type": "decimal", "min": "0", "max": "1000", "step": "0.01"},
        ]
    }
)
FILTERS = {
    "alice": ["price > 10", "symbol = 'IBM'"],
    "bob": ["symbol LIKE 'I%' AND price BETWEEN 5 AND 15"],
    "carol": ["price IS NULL"],
    "dave": ["symbol = 'NONE'"],
}
EVENTS = [
    Event({"symbol": symbol, "price": price}, f"{symbol} {price}".encode())
    for symbol in ("IBM", "INTC", "AAPL")
    for price in ("4.99", "5.00", "12.50", "15.00", None)
]


@pytest.fixture
def realm(tmp_path: Path) -> Realm:
    made = Realm.create(tmp_path / "realm")
    made.create_topic("quotes", SCHEMA, partitions=2, access="members")
    made.enrol_many(["nyse", "nasdaq", "mallory", *FILTERS])
    for name, filters in FILTERS.items():
        made.subscribe_many("quotes", [(name, text, None) for text in filters])
    return made


@pytest.fixture
def delivered(realm: Realm) -> Realm:
    publish(realm, EVENTS)
    pump(realm, "quotes")
    return realm


def publish(realm: Realm, events: list[Event], as_: str = "nyse") -> list[Position]:
    with Publisher(realm, "quotes", as_=as_) as publisher:
        return publisher.publish(events)


def wanted(name: str) -> list[bytes]:
    """What a filter's reference evaluation says, event by event."""
    conditions = [fit(parse(text), SCHEMA) for text in FILTERS[name]]
    values = [SCHEMA.parse(e.attributes) for e in EVENTS]
    return [e.payload for e, v in zip(EVENTS, values, strict=True) if any(evaluate(c, v) is True for c in conditions)]


def payloads(events: list[OpenedEvent]) -> list[bytes]:
    return [e.payload for e in events]


# --- exactly what was asked for ---------------------------------------------------------------------------


@pytest.mark.parametrize("name", FILTERS)
def test_each_gets_exactly_what_its_filters_match(delivered: Realm, name: str) -> None:
    with Subscriber(delivered, "quotes", as_=name) as subscriber:
        got = list(subscriber)
    assert payloads(got) == wanted(name)
    for event in got:
        assert event.publisher == "nyse"
        assert event.content_type == "application/octet-stream"
        assert abs(event.published_at - datetime.now(UTC)) < timedelta(minutes=5)
        original = EVENTS[event.sequence]
        assert event.attributes == SCHEMA.parse(original.attributes)


def test_nobodys_keys_but_the_members_open_an_event(delivered: Realm) -> None:
    """Every identity of the realm tries every delivery of everyone, also claiming the owner's slot."""
    state = delivered.state()
    about, slots = state.topic("quotes"), state.slots_of("quotes")
    reader = sealed_reader(delivered.paths.topic("quotes").root)
    opened = 0
    for owner, slot in slots.items():
        deliveries = list(slot_mailbox(reader, slot, owner).deliveries())
        for thief in (e.name for e in state.entities.values() if e.member):
            pair = delivered.identity(thief).pair_key(state, "quotes")
            opener = Opener(SCHEMA, about.id, 1, slot, pair, lambda n: VerifyKey(state.entity(n).verify_key))
            for delivery in deliveries:
                if thief == owner:
                    opener.open(delivery.piece, delivery.event, delivery.handle)
                    opened += 1
                else:
                    with pytest.raises(CannotOpen):
                        opener.open(delivery.piece, delivery.event, delivery.handle)
    assert opened == sum(len(wanted(name)) for name in FILTERS)


def test_order_per_publisher_is_kept(realm: Realm) -> None:
    for start in (0, 40, 80):
        for name in ("nyse", "nasdaq"):
            publish(realm, [Event({"symbol": "IBM", "price": i}) for i in range(start, start + 40)], name)
        pump(realm, "quotes")
    got = list(Subscriber(realm, "quotes", as_="alice"))
    for name in ("nyse", "nasdaq"):
        assert [int(e.attributes["price"]) for e in got if e.publisher == name] == list(range(120))  # type: ignore[arg-type]


# --- the cursor -----------------------------------------------------------------------------------------------


def test_what_is_acknowledged_never_comes_again(delivered: Realm) -> None:
    expected = wanted("alice")
    with Subscriber(delivered, "quotes", as_="alice") as first:
        assert payloads(first.poll(max_events=3)) == expected[:3]
        assert first.lag() == len(expected)
        first.ack()
        assert first.lag() == len(expected) - 3
        assert payloads(first.poll(max_events=2)) == expected[3:5], "handed out, not acknowledged"
    with Subscriber(delivered, "quotes", as_="alice") as second:
        assert payloads(list(second)) == expected[3:], "what was not acknowledged comes again"
        second.ack()
    with Subscriber(delivered, "quotes", as_="alice") as third:
        assert list(third) == []
        third.ack()
        publish(delivered, EVENTS[:3])
        pump(delivered, "quotes")
        assert payloads(list(third)) == payloads(list(Subscriber(delivered, "quotes", as_="alice")))


def test_from_anywhere_and_the_cursor_stays(delivered: Realm) -> None:
    expected = wanted("alice")
    with Subscriber(delivered, "quotes", as_="alice") as subscriber:
        events = list(subscriber)
        subscriber.ack()

    def read(from_: object) -> list[bytes]:
        with Subscriber(delivered, "quotes", as_="alice", from_=from_) as subscriber:  # type: ignore[arg-type]
            got = payloads(list(subscriber))
            subscriber.ack()
            return got

    assert read(0) == expected
    assert read(2) == expected[2:]
    assert read(events[3].position) == expected[3:]
    assert read(str(events[3].position)) == expected[3:]
    assert read("end") == []
    assert read(datetime.now(UTC) - timedelta(hours=1)) == expected
    assert read(datetime.now(UTC) + timedelta(hours=1)) == []
    assert read(None) == [], "reading the past again moved no cursor"
    with pytest.raises(Misuse, match="is not a valid start position"):
        read("yesterday")


def test_poll_waits_and_gives_up(delivered: Realm) -> None:
    with Subscriber(delivered, "quotes", as_="dave") as subscriber:
        before = time.monotonic()
        assert subscriber.poll(timeout=0.2) == []
        assert time.monotonic() - before >= 0.2


def test_follow_gets_what_comes_later(delivered: Realm) -> None:
    expected, done, got = len(wanted("alice")), threading.Event(), list[bytes]()

    def follow() -> None:
        with Subscriber(delivered.paths.root, "quotes", as_="alice") as subscriber:
            for event in subscriber.follow(done.is_set):
                got.append(event.payload)
                subscriber.ack()

    thread = threading.Thread(target=follow)
    thread.start()
    try:
        publish(delivered, [Event({"symbol": "IBM"}, b"later")])
        pump(delivered, "quotes")
        deadline = time.monotonic() + 30
        while len(got) <= expected and time.monotonic() < deadline:
            time.sleep(0.02)
    finally:
        done.set()
        thread.join()
    assert got == [*wanted("alice"), b"later"]


# --- rights ---------------------------------------------------------------------------------------------------


def test_refusals_say_what_to_do(delivered: Realm) -> None:
    with pytest.raises(NotFound, match="'mallory' has no subscription on topic 'quotes'") as refusal:
        Subscriber(delivered, "quotes", as_="mallory")
    assert refusal.value.hint == 'add one: sealcast subscription add quotes --as mallory --filter "..."'
    with pytest.raises(NotFound, match="there is no entity 'alcie'") as refusal:
        Subscriber(delivered, "quotes", as_="alcie")
    assert refusal.value.hint == "did you mean 'alice'?"
    delivered.revoke("quotes", "alice", [Right.SUBSCRIBE])
    with pytest.raises(Rejected, match="'alice' may not subscribe on topic 'quotes'"):
        Subscriber(delivered, "quotes", as_="alice")


def test_a_right_taken_away_ends_reading_and_sealing_at_once(delivered: Realm) -> None:
    with Subscriber(delivered, "quotes", as_="alice") as subscriber:
        seen = len(list(subscriber))
        Realm(delivered.paths.root).revoke("quotes", "alice", [Right.SUBSCRIBE])
        with pytest.raises(Rejected, match="may not subscribe"):
            subscriber.poll()
        publish(delivered, EVENTS)
        assert pump(delivered, "quotes")["deliveries"] == sum(len(wanted(n)) for n in FILTERS if n != "alice")
        Realm(delivered.paths.root).grant("quotes", "alice", [Right.SUBSCRIBE])
        assert subscriber.poll() == [], "what was published meanwhile was never sealed for it"
        publish(delivered, EVENTS)
        pump(delivered, "quotes")
        assert len(subscriber.poll()) == seen


def test_a_revoked_publishers_past_stays_readable(delivered: Realm) -> None:
    delivered.revoke_entity("nyse")
    assert payloads(list(Subscriber(delivered, "quotes", as_="alice"))) == wanted("alice")


def test_only_its_own_key_file_is_read(delivered: Realm) -> None:
    shutil.rmtree(delivered.paths.secrets)
    shutil.rmtree(delivered.paths.topic("quotes").frames_root)
    for path in delivered.paths.entities.iterdir():
        if path.name != "alice.key":
            path.unlink()
    with Subscriber(Realm(delivered.paths.root), "quotes", as_="alice") as subscriber:
        assert payloads(list(subscriber)) == wanted("alice")
        subscriber.ack()


# --- damage and lies ------------------------------------------------------------------------------------------


def _flip_body(piece: SealedPiece) -> SealedPiece:
    """A bad broker alters the third event, and makes piece and ledger as if nothing were wrong."""
    body = bytearray(piece.bodies)
    body[int(piece.body_start[2])] ^= 1
    return dataclasses.replace(piece, bodies=bytes(body))


@pytest.fixture
def altered(realm: Realm) -> Iterator[Realm]:
    publish(realm, EVENTS)
    pump(realm, "quotes", _flip_body)
    yield realm


def test_an_altered_event_is_refused_and_the_good_ones_before_it_are_not(altered: Realm) -> None:
    expected = wanted("alice")
    with Subscriber(altered, "quotes", as_="alice") as subscriber:
        assert payloads(subscriber.poll()) == expected[:2]
        for _ in range(2):
            with pytest.raises(CannotOpen):
                subscriber.poll()
        subscriber.ack()
        assert subscriber.lag() == len(expected) - 2, "it stays where it is"


def test_unopenable_events_can_be_passed_over_with_a_report(altered: Realm) -> None:
    reports: list[Position] = []
    with Subscriber(altered, "quotes", as_="alice", unopenable=lambda p, _: reports.append(p)) as subscriber:
        expected = wanted("alice")
        assert payloads(list(subscriber)) == expected[:2] + expected[3:]
    assert len(reports) == 1


def test_a_damaged_piece_is_named(delivered: Realm) -> None:
    (piece,) = delivered.paths.topic("quotes").pieces.glob("*.piece")
    data = bytearray(piece.read_bytes())
    data[len(data) // 2] ^= 1
    piece.write_bytes(data)
    with Subscriber(delivered, "quotes", as_="alice") as subscriber, pytest.raises(Corrupt, match=piece.name):
        subscriber.poll()


def test_another_entitys_key_file_under_its_name_is_no_use(delivered: Realm) -> None:
    mallory = delivered.identity("mallory")
    delivered.paths.entity_key("alice").unlink()
    Identity("alice", mallory.signer, mallory.kem, mallory.key).save(delivered.paths.entity_key("alice"))
    with pytest.raises(CannotOpen, match="does not open with the keys in its file"):
        Subscriber(delivered, "quotes", as_="alice")


def test_a_forged_pair_key_opens_nothing(delivered: Realm) -> None:
    state = delivered.state()
    about = state.topic("quotes")
    opener = Opener(SCHEMA, about.id, 1, 0, Secret(bytes(32)), lambda n: VerifyKey(state.entity(n).verify_key))
    for delivery in slot_mailbox(delivered.paths.topic("quotes").root, 0, "alice").deliveries():
        with pytest.raises(CannotOpen):
            opener.open(delivery.piece, delivery.event, delivery.handle)


# --- lag ------------------------------------------------------------------------------------------------------


def test_all_lags_in_one_pass_are_each_ones_own(delivered: Realm) -> None:
    publish(delivered, EVENTS, "nasdaq")
    pump(delivered, "quotes")
    for name, count in (("alice", 3), ("bob", 100)):
        with Subscriber(delivered, "quotes", as_=name) as subscriber:
            subscriber.poll(max_events=count)
            subscriber.ack()
    paths, slots = delivered.paths.topic("quotes"), delivered.state().slots_of("quotes")
    reader = sealed_reader(paths.root)
    together = lags(reader, cursors(paths, slots))
    assert together == {name: slot_mailbox(reader, slot, name).lag() for name, slot in slots.items()}
    assert together["alice"] == 2 * len(wanted("alice")) - 3
    assert together["bob"] == 0
