"""Publishers and subscribers of layered topics, through the brokers' own kernels: who gets what, who learns what."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest

from sealcast.clients.publisher import Publisher
from sealcast.clients.subscriber import Subscriber
from sealcast.errors import CannotOpen, Corrupt, EventRejected, FilterRejected, Misuse, NotFound, Poisoned, Rejected
from sealcast.filters.check import fit
from sealcast.filters.evaluate import evaluate
from sealcast.filters.parse import parse
from sealcast.log.post_log import PostLog
from sealcast.model import Event, Position, Schema
from sealcast.model.protection import Layered
from sealcast.protections.layered.interests import LayeredInterests
from sealcast.protections.layered.together import refresh_all
from sealcast.trust.deployment import Realm
from sealcast.trust.realm.changes import Right
from sealcast.wire.hops import HopPiece
from tests.clients.layered_pump import pump
from tests.copies import copy_realm

SCHEMA = Schema.from_json(
    {
        "attributes": [
            {"name": "symbol", "type": "string", "max_length": 12},
            {"name": "price", "type": "decimal", "min": "0", "max": "100", "step": "0.5"},
            {"name": "urgent", "type": "bool"},
        ]
    }
)
SYMBOLS = ["ZYMURGY", "ZYGOTE", "QUETZAL", "QUIVER", "XYLEM"]


def random_filter(random: Random) -> str:
    low = random.randrange(0, 100)
    parts = [
        f"symbol = '{random.choice(SYMBOLS)}'",
        f"symbol LIKE '{random.choice(SYMBOLS)[:2]}%'",
        f"symbol LIKE '%{random.choice(SYMBOLS)[-2:]}'",
        f"price BETWEEN {low} AND {low + random.randrange(0, 40)}",
        f"price > {low}",
        f"NOT (price < {low})",
        "urgent",
        f"symbol IN ('{random.choice(SYMBOLS)}', '{random.choice(SYMBOLS)}')",
    ]
    return random.choice([" AND ", " OR "]).join(random.sample(parts, random.randint(1, 3)))


def random_event(random: Random, number: int) -> Event:
    attributes = {
        "symbol": random.choice([*SYMBOLS, None]),
        "price": random.choice([None, str(random.randrange(0, 201) / 2)]),
        "urgent": random.choice([True, False, None]),
    }
    return Event(attributes, f"payload {number}".encode(), "text/plain")


def wanted(filters: list[str], event: Event) -> bool:
    values = SCHEMA.parse(event.attributes)
    return any(evaluate(fit(parse(text), SCHEMA), values) is True for text in filters)


class World:
    """A realm, and what its subscribers should have got."""

    def __init__(self, realm: Realm) -> None:
        self.realm = realm
        self.filters: dict[str, dict[str, str]] = {}
        self.truth: dict[str, list[tuple[str, bytes]]] = {}
        self._number = 0

    def add(self, name: str, text: str) -> None:
        with LayeredInterests(self.realm, "quotes", name) as interests:
            made = interests.add(text)
            assert interests.trouble is None
        self.filters.setdefault(name, {})[made.id] = text
        self.truth.setdefault(name, [])

    def remove(self, name: str, id: str) -> None:
        with LayeredInterests(self.realm, "quotes", name) as interests:
            interests.remove([id])
        del self.filters[name][id]

    def publish(self, publisher: str, random: Random, count: int) -> list[Position]:
        events = [random_event(random, self._number + n) for n in range(count)]
        self._number += count
        with Publisher(self.realm, "quotes", publisher) as out:
            positions = out.publish(events)
        for name, filters in self.filters.items():
            if name != publisher:
                got = self.truth[name]
                got += [(publisher, e.payload) for e in events if wanted(list(filters.values()), e)]
        return positions

    def check(self) -> int:
        """Everyone has exactly the truth, from each publisher in its order; how much that was."""
        total = 0
        for name, truth in self.truth.items():
            with Subscriber(self.realm, "quotes", name, from_=0) as reader:
                events = list(reader)
            for publisher in {p for p, _ in truth} | {e.publisher for e in events}:
                mine = [e.payload for e in events if e.publisher == publisher]
                assert mine == [payload for p, payload in truth if p == publisher], (name, publisher)
            total += len(truth)
        return total


def realm_with(tmp_path: Path, layers: int = 2, nodes: int | None = None, access: str = "members") -> Realm:
    made = Realm.create(tmp_path / "realm")
    made.create_topic("quotes", SCHEMA, protection=Layered(layers), nodes=nodes, access=access)
    made.enrol_many(["nyse", "nasdaq", "alice", "bob", "carol", "dave"])
    return made


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Made once; tests work on copies."""
    return realm_with(tmp_path_factory.mktemp("made")).paths.root


@pytest.fixture
def realm(made: Path, tmp_path: Path) -> Realm:
    copy_realm(made, tmp_path / "realm")
    return Realm(tmp_path / "realm")


def everything(realm: Realm) -> Iterator[bytes]:
    return (path.read_bytes() for path in realm.paths.root.rglob("*") if path.is_file())


# --- who gets what ----------------------------------------------------------------------------------------


def test_subscribers_get_what_their_filters_are_true_of(tmp_path: Path) -> None:
    """Two roots, brokers at three depths, one of which subscribes; two publishers, one of whom subscribes; filters that
    come and go, a new epoch, a subscriber and a broker that move."""
    random, realm = Random(5), realm_with(tmp_path, layers=3, nodes=0)
    for broker, under in (("r1", None), ("r2", None), ("m1", "r1"), ("l1", "m1"), ("l2", "r2")):
        realm.place_node("quotes", broker, under=under)
    world = World(realm)
    for name, broker in (("alice", "l1"), ("bob", "r1"), ("carol", "l2"), ("nasdaq", "m1"), ("l1", "m1")):
        realm.grant("quotes", name, [Right.SUBSCRIBE]) if name == "l1" else None
        realm.place_subscriber("quotes", name, broker)
        for _ in range(2):
            world.add(name, random_filter(random))
    world.publish("nyse", random, 16)
    pump(realm, "quotes")
    world.publish("nasdaq", random, 10)
    assert pump(realm, "quotes")["admitted"] == 2 * 10
    assert world.check() > 12
    world.remove("alice", "alice-1")
    world.add("bob", random_filter(random))
    realm.rotate("quotes")
    realm.place_subscriber("quotes", "carol", "l1")
    world.publish("nyse", random, 10)
    pump(realm, "quotes")
    realm.place_node("quotes", "m1", under="r2")
    world.publish("nasdaq", random, 10)
    world.publish("nyse", random, 5)
    pump(realm, "quotes")
    assert world.check() > 25
    assert [each.id for each in LayeredInterests(realm, "quotes", "alice").filters()] == ["alice-2"]


def test_nothing_that_was_asked_or_said_is_in_any_file(realm: Realm) -> None:
    """Not in the registry, not at brokers, in no log, no piece and no wallet: neither filters nor events."""
    world, random = World(realm), Random(6)
    world.add("alice", "symbol = 'ZYMURGY' AND price BETWEEN 10 AND 77.5")
    world.add("bob", "symbol LIKE 'QUETZ%' OR urgent")
    world.publish("nyse", random, 30)
    assert pump(realm, "quotes")["deliveries"] > 0
    world.remove("bob", "bob-1")
    pump(realm, "quotes")
    assert world.check() > 0
    for content in everything(realm):
        for secret in (*SYMBOLS, "QUETZ", "LIKE", "BETWEEN", "77.5", "payload "):
            assert secret.encode() not in content, secret


def test_a_cursor_is_durable_and_from_leaves_it_alone(realm: Realm) -> None:
    world = World(realm)
    world.add("alice", "price >= 0")
    with Publisher(realm, "quotes", "nyse") as out:
        positions = out.publish([Event({"price": n}, str(n).encode()) for n in range(6)])
    pump(realm, "quotes")
    with Subscriber(realm, "quotes", "alice") as reader:
        assert reader.lag() == 6
        assert [e.payload for e in reader.poll(2)] == [b"0", b"1"]
        mark = reader.handed_out
        assert [e.payload for e in reader.poll(2)] == [b"2", b"3"]
        reader.ack(mark)
        assert reader.lag() == 4
    for place, first in ((0, b"0"), ("4", b"4"), (positions[3], b"3")):
        with Subscriber(realm, "quotes", "alice", from_=place) as reader:
            assert reader.poll(1)[0].payload == first
    with Subscriber(realm, "quotes", "alice", from_="end") as reader:
        assert reader.poll() == []
    with Subscriber(realm, "quotes", "alice") as reader:
        got = list(reader)
        assert [(e.payload, e.position, e.sequence) for e in got] == [
            (str(n).encode(), positions[n], n) for n in range(2, 6)
        ]
        reader.ack()
    with LayeredInterests(realm, "quotes", "alice") as interests:
        assert interests.matching(got[0]) == ["alice-1"]
    with pytest.raises(NotFound, match="6 deliveries so far"):
        Subscriber(realm, "quotes", "alice", from_=7)
    with Subscriber(realm, "quotes", "alice") as reader:
        assert reader.lag() == 0 and reader.poll() == []


# --- who may ----------------------------------------------------------------------------------------------


def test_a_right_that_ends_and_comes_back(tmp_path: Path) -> None:
    """Its broker has dropped what it asked for, and did not say so: it says it again, under the token that it has."""
    realm = realm_with(tmp_path, access="granted")
    for name in ("alice", "bob", "nyse"):
        realm.grant("quotes", name)
    world = World(realm)
    world.add("alice", "price >= 0")
    world.add("bob", "price >= 0")
    publish(realm, b"1")
    realm.revoke("quotes", "alice", [Right.SUBSCRIBE])
    publish(realm, b"2")
    with pytest.raises(Rejected, match="may not subscribe"):
        Subscriber(realm, "quotes", "alice")
    assert not list(refresh_all(realm))
    realm.grant("quotes", "alice", [Right.SUBSCRIBE])
    assert [name for _, name, _ in refresh_all(realm)] == ["alice"] and not list(refresh_all(realm))
    publish(realm, b"3")
    assert payloads(realm, "alice") == [b"1", b"3"]
    realm.revoke_entity("alice")
    publish(realm, b"4")
    with pytest.raises(Rejected, match="revoked"):
        Subscriber(realm, "quotes", "alice")
    assert payloads(realm, "bob") == [b"1", b"2", b"3", b"4"]


def test_what_is_wanted_is_said_again_and_counts_once(realm: Realm) -> None:
    world = World(realm)
    world.add("alice", "price >= 0")
    publish(realm, b"1")
    home = realm.state().overlay("quotes").places["alice"]
    with PostLog(realm.paths.topic("quotes", home).filter_posts) as posts:
        before = posts.end()
        again = list(posts.read(0, 1 << 20))
        posts.append([record.data for record in again])  # somebody who carries posts plays them again
        with LayeredInterests(realm, "quotes", "alice") as interests:
            assert interests.refresh().posts == 0
        assert posts.end() == before + len(again)
    publish(realm, b"2")
    (told,) = (realm.paths.root / "wallets" / "alice").rglob("told")
    told.unlink()  # lost: then it is all said afresh
    assert [(topic, name) for topic, name, _ in refresh_all(realm)] == [("quotes", "alice")]
    publish(realm, b"3")
    assert payloads(realm, "alice") == [b"1", b"2", b"3"]
    world.remove("alice", "alice-1")
    publish(realm, b"4")
    assert payloads(realm, "alice") == [b"1", b"2", b"3"]


def test_the_trouble_of_one_subscriber_is_not_the_publishers(realm: Realm) -> None:
    world = World(realm)
    world.add("alice", "price >= 0")
    world.add("bob", "price >= 0")
    realm.paths.entity_key("alice").write_bytes(b"{}")
    (kept,) = (realm.paths.root / "wallets" / "bob").rglob("told")
    told = kept.read_bytes()
    publish(realm, b"1")
    assert payloads(realm, "bob") == [b"1"]
    kept.write_bytes(told[:-3])
    troubled = {name: type(came) for _, name, came in refresh_all(realm)}
    assert troubled == {"alice": Corrupt, "bob": Corrupt}
    publish(realm, b"2")  # and goes on


def test_whoever_lost_its_place_gets_another_and_says_again_what_it_wants(tmp_path: Path) -> None:
    realm = realm_with(tmp_path, nodes=0)
    for broker in ("r1", "r2"):
        realm.place_node("quotes", broker)
    with LayeredInterests(realm, "quotes", "alice") as interests:
        interests.add("price >= 0", broker="r1")
    publish(realm, b"1")
    realm.remove_node("quotes", "r1")
    assert "alice" not in realm.state().overlay("quotes").places
    with Subscriber(realm, "quotes", "alice") as reader:
        assert [e.payload for e in reader] == [b"1"]
        publish(realm, b"2")
        assert [e.payload for e in reader] == [b"2"]
        reader.ack()
    assert realm.state().overlay("quotes").places == {"alice": "r2"}


def publish(realm: Realm, payload: bytes) -> None:
    with Publisher(realm, "quotes", "nyse") as out:
        out.publish_one(Event({"price": 1}, payload))
    pump(realm, "quotes")


def payloads(realm: Realm, name: str) -> list[bytes]:
    with Subscriber(realm, "quotes", name, from_=0) as reader:
        return [event.payload for event in reader]


# --- bad brokers ------------------------------------------------------------------------------------------


def altered(piece: HopPiece, field: str, at: int = 40) -> HopPiece:
    raw = bytearray(bytes(getattr(piece, field)))
    raw[at] ^= 1
    changed: dict[str, Any] = {field: bytes(raw)}
    return replace(piece, **changed)


def exchanged(piece: HopPiece) -> HopPiece:
    """One event's body under the other's name, both of one size."""
    half = len(piece.bodies) // 2
    return replace(piece, bodies=bytes(piece.bodies)[half:] + bytes(piece.bodies)[:half])


def resigned(piece: HopPiece) -> HopPiece:
    """As if somebody else had published it."""
    signed = piece.frames[0].signed.replace(b"nyse", b"evil")
    return replace(piece, frames=(piece.frames[0]._replace(signed=signed),))


TAMPERED: list[tuple[Callable[[HopPiece], HopPiece], str]] = [
    (lambda piece: altered(piece, "bodies"), "not among the events that nyse signed"),
    (lambda piece: altered(piece, "ids", 3), "not among the events that nyse signed"),
    (lambda piece: altered(piece, "paths"), "not among the events that nyse signed"),
    (exchanged, "not among the events that nyse signed"),
    (lambda piece: replace(piece, row=np.asarray(piece.row)[::-1].copy()), "not among the events"),
    (lambda piece: replace(piece, generation=np.asarray(piece.generation) + 1), "not among the events"),
    (lambda piece: replace(piece, entries=bytes(len(piece.entries))), "not what its topic's events are"),
    (resigned, "evil"),
]


def test_a_broker_can_withhold_and_not_invent(realm: Realm) -> None:
    """The subscriber's own broker alters what it hands on: nothing of it is taken for an event."""
    World(realm).add("alice", "price >= 0")
    with Publisher(realm, "quotes", "nyse") as out:
        out.publish([Event({"price": 1}, b"one"), Event({"price": 2}, b"two")])
    pump(realm, "quotes")
    with Subscriber(realm, "quotes", "alice") as reader:
        found = next(reader._inbox.mail.parts()).cut(0, 1)
        for tamper, why in TAMPERED:
            tampered = replace(found, part=replace(found.part, piece=tamper(found.part.piece)))
            with pytest.raises(CannotOpen, match=why):
                raise reader._inbox.open(tampered).refused[0]
        (event,) = reader._inbox.open(found).opened.events()
        assert event.payload == b"one"


def test_what_does_not_open_is_reported_and_passed(realm: Realm) -> None:
    World(realm).add("alice", "price >= 0")
    with Publisher(realm, "quotes", "nyse") as out:
        positions = out.publish([Event({"price": 1}, b"one"), Event({"price": 2}, b"two")])
    home = realm.state().overlay("quotes").places["alice"]
    pump(realm, "quotes", lambda piece: altered(piece, "bodies") if piece.node == home else piece)
    with Subscriber(realm, "quotes", "alice") as reader, pytest.raises(CannotOpen, match="nyse signed"):
        reader.poll()
    told: list[Position] = []
    with Subscriber(realm, "quotes", "alice", unopenable=lambda at, error: told.append(at)) as reader:
        assert [event.payload for event in reader] == [b"two"]
        reader.ack()
    assert told == positions[:1]


def test_an_entry_for_another_opens_nothing(realm: Realm) -> None:
    """A broker hands alice what was for bob: she has the body, its proof, and no key to it. She passes over it."""
    for name in ("alice", "bob"):
        realm.place_subscriber("quotes", name, "quotes-node-2")
        with LayeredInterests(realm, "quotes", name) as interests:
            interests.add("price = 1" if name == "alice" else "price = 2")
    with Publisher(realm, "quotes", "nyse") as out:
        out.publish([Event({"price": 2}, b"bob's alone")])

    def bad(piece: HopPiece) -> HopPiece:
        return replace(piece, recipients=("alice",)) if piece.recipients == ("bob",) else piece

    pump(realm, "quotes", bad)
    publish(realm, b"hers")
    with Subscriber(realm, "quotes", "alice") as reader:
        with pytest.raises(Poisoned, match="another key"):
            raise reader._inbox.open(next(reader._inbox.mail.parts()).cut(0, 1)).refused[0]
        assert [event.payload for event in reader] == [b"hers"]
        assert reader.dropped.poisoned == {"nyse": 1}


# --- refusals ---------------------------------------------------------------------------------------------


def test_refusals_say_what_to_do(realm: Realm) -> None:
    with LayeredInterests(realm, "quotes", "alice") as interests:
        for text, hint in (("price IS NULL", "IS NOT NULL"), ("symbol LIKE '%a%'", "LIKE with one %")):
            with pytest.raises(FilterRejected) as refused:
                interests.add(text)
            assert refused.value.kind == "inexpressible" and hint in str(refused.value.hint)
        assert interests.filters() == [] and "alice" not in realm.state().overlay("quotes").places
        interests.add("price > 1", "mine")
        with pytest.raises(Misuse, match="given before"):
            interests.add("price > 2", "mine")
        with pytest.raises(NotFound, match="no subscription 'other'"):
            interests.remove(["mine", "other"])
        assert [each.id for each in interests.filters()] == ["mine"]
        with pytest.raises(Misuse, match="is at broker 'quotes-node-2'"):
            interests.add("price > 2", broker="quotes-node-3")
    with pytest.raises(NotFound, match="no subscription on topic"):
        Subscriber(realm, "quotes", "bob")
    with pytest.raises(Misuse, match="root"):
        realm.grant("quotes", "quotes-node-1", [Right.SUBSCRIBE])
        LayeredInterests(realm, "quotes", "quotes-node-1").add("price > 1")
    with Publisher(realm, "quotes", "nyse") as out:
        with pytest.raises(EventRejected, match="event 1: .*price"):
            out.publish([Event({"price": 1}), Event({"price": 101})])
        with pytest.raises(Misuse, match="appended later"):
            out.seal([Event({"price": 1})])
    with pytest.raises(Misuse, match="every|each of them|root brokers"):
        Publisher(realm, "quotes", "nyse", broker="quotes-node-2")


def test_without_brokers_nothing_is_published(tmp_path: Path) -> None:
    realm = realm_with(tmp_path, nodes=0)
    with pytest.raises(Misuse, match="no broker") as refused:
        Publisher(realm, "quotes", "nyse")
    assert "sealcast overlay add quotes" in str(refused.value.hint)
    with pytest.raises(Misuse, match="no broker"):
        LayeredInterests(realm, "quotes", "alice").add("price > 1")
    realm.place_node("quotes", "only")
    with pytest.raises(Misuse, match="neither a broker nor a subscriber"):
        Publisher(realm, "quotes", "nyse")
