"""Versions of a schema: what may change, and that events and filters of every version go on."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sealcast import Event, Publisher, Realm, Schema, Subscriber
from sealcast.errors import CannotOpen, EventRejected, SchemaRejected
from sealcast.filters.labels import Labeller
from sealcast.model.evolution import check_evolution
from sealcast.model.protection import protection_of
from sealcast.protections.checked import CheckedRows
from sealcast.trust.realm.changes import Access, AlterTopic
from sealcast.trust.realm.state import RealmState
from sealcast.trust.realm.stored import from_json, to_json
from sealcast.trust.realm.topics import Topic
from sealcast.wire.lifting import NO_MESSAGE, Lift
from sealcast.wire.records import RecordCodec
from tests.cli.shell import sealcast, write_lines
from tests.clients.pump import pump
from tests.soak.small_realm import carried

TOPIC = "quotes"


def schema(*attributes: dict[str, object]) -> Schema:
    return Schema.from_json({"attributes": list(attributes)})


def named(name: str, type: str = "int", **more: object) -> dict[str, object]:
    return {"name": name, "type": type, **more}


FIRST = schema(named("symbol", "string", max_length=4), named("price", min=0, max=100))
SECOND = schema(
    named("symbol", "string", max_length=8), named("price", min=-10, max=1000), named("venue", "string"), named("lot")
)
THIRD = schema(*SECOND.to_json()["attributes"], *(named(f"n{i}") for i in range(12)))


# --- what may change ------------------------------------------------------------------------------------------

REFUSED = {
    "attribute 'price' is not in": (FIRST, schema(named("symbol", "string", max_length=4))),
    "in another order": (schema(named("a"), named("b")), schema(named("b"), named("a"))),
    "another order": (schema(named("a"), named("b")), schema(named("a"), named("c"), named("b"))),
    "it was int, and would be decimal": (schema(named("a")), schema(named("a", "decimal", step="0.01"))),
    "minimum would rise from 0 to 1": (schema(named("a", min=0)), schema(named("a", min=1))),
    "minimum would rise from none to 1": (schema(named("a")), schema(named("a", min=1))),
    "maximum would fall from 9 to 8": (schema(named("a", max=9)), schema(named("a", max=8))),
    "maximum would fall from none": (schema(named("a")), schema(named("a", max=8))),
    "max_length would fall from none": (schema(named("a", "string")), schema(named("a", "string", max_length=8))),
    "max_length would fall from 9": (
        schema(named("a", "string", max_length=9)),
        schema(named("a", "string", max_length=8)),
    ),
    "digits after the point": (
        schema(named("a", "decimal", step="0.1")),
        schema(named("a", "decimal", step="0.01")),
    ),
    "does not divide it": (schema(named("a", step=10)), schema(named("a", step=4))),
    "step would change from none": (schema(named("a")), schema(named("a", step=4))),
    "would begin elsewhere": (schema(named("a", min=10, step=4)), schema(named("a", min=9, step=4))),
}
TAKEN = {
    "nothing": (FIRST, FIRST),
    "new attributes, wider domains": (FIRST, SECOND),
    "no bounds any more": (FIRST, schema(named("symbol", "string"), named("price"))),
    "a finer step": (schema(named("a", min=10, step=4)), schema(named("a", min=2, step=2))),
    "no step any more": (schema(named("a", step=4)), schema(named("a"))),
    "a finer step of decimals": (
        schema(named("a", "decimal", step="0.05")),
        schema(named("a", "decimal", step="0.01")),
    ),
    "earlier timestamps": (
        schema(named("t", "timestamp", min="2026-01-01T00:00:00Z", step=1000)),
        schema(named("t", "timestamp", min="2025-01-01T00:00:00Z", step=500)),
    ),
}


@pytest.mark.parametrize("why", REFUSED)
def test_what_is_refused_says_why(why: str) -> None:
    with pytest.raises(SchemaRejected, match=why):
        check_evolution(*REFUSED[why])


@pytest.mark.parametrize("what", TAKEN)
def test_what_is_taken(what: str) -> None:
    check_evolution(*TAKEN[what])


@given(
    old=st.tuples(st.integers(-20, 0), st.integers(0, 20), st.sampled_from([None, 1, 2, 3, 4, 6])),
    new=st.tuples(st.integers(-20, 0), st.integers(0, 20), st.sampled_from([None, 1, 2, 3, 4, 6])),
)
def test_it_is_taken_if_and_only_if_every_value_still_fits(
    old: tuple[int, int, int | None], new: tuple[int, int, int | None]
) -> None:
    """Against brute force over all values; rules by bounds may be stricter where no value shows it."""

    def made(of: tuple[int, int, int | None]) -> Schema:
        return schema(named("a", min=of[0], max=of[1], **({} if of[2] is None else {"step": of[2]})))

    def fits(of: Schema, value: int) -> bool:
        try:
            of.attributes[0].parse(value)
        except EventRejected:
            return False
        return True

    before, after = made(old), made(new)
    every = all(fits(after, value) for value in range(-20, 21) if fits(before, value))
    try:
        check_evolution(before, after)
    except SchemaRejected:
        return
    assert every


# --- bytes ------------------------------------------------------------------------------------------------------


@given(symbol=st.none() | st.text(max_size=4), price=st.none() | st.integers(0, 100), payload=st.binary(max_size=20))
def test_a_lifted_message_says_the_same(symbol: str | None, price: int | None, payload: bytes) -> None:
    (message,) = RecordCodec(FIRST).encode([{"symbol": symbol, "price": price}], [payload])
    for later in (SECOND, THIRD):
        lifted = Lift(FIRST, later)(message)
        values, rest, _ = RecordCodec(later).decode_one(lifted)
        absent = dict.fromkeys(later.names[2:])
        assert (values, rest) == ({"symbol": symbol, "price": price, **absent}, payload)
        again = RecordCodec(later).encode([values], [payload], salts=message[1:17])
        assert again == [lifted], "the one encoding of that event"


@given(st.binary(max_size=80), st.integers(0, 255))
def test_what_is_no_message_does_not_become_one(junk: bytes, bits: int) -> None:
    lift, codec = Lift(FIRST, SECOND), RecordCodec(SECOND)
    for raw in (junk, bytes(17) + bytes([bits]) + junk):
        lifted = lift(raw)
        try:
            RecordCodec(FIRST).decode_one(raw)
        except EventRejected:
            with pytest.raises(EventRejected):
                codec.decode_one(lifted)


def test_bits_of_attributes_that_a_version_lacks_are_refused() -> None:
    (message,) = RecordCodec(FIRST).encode([{"symbol": None, "price": 1}], [b"x"])
    forged = message[:17] + bytes([message[17] | 0b1000]) + message[18:]
    assert Lift(FIRST, SECOND)(forged) == NO_MESSAGE


# --- end to end -------------------------------------------------------------------------------------------------


def a_realm(directory: Path, protection: str = "endpoint", first: Schema = FIRST, **settings: object) -> Realm:
    realm = Realm.create(directory / "realm")
    realm.create_topic(TOPIC, first, protection=protection_of(protection, settings), access="members")
    realm.enrol_many(["nyse", "alice", "bob"])
    realm.subscribe(TOPIC, "alice", "price >= 0")
    return realm


def publish(publisher: Publisher, *payloads: bytes, **attributes: object) -> None:
    publisher.publish([Event(dict(attributes), each) for each in payloads])


def read(subscriber: Subscriber) -> list[tuple[bytes, object, object]]:
    return [(e.payload, e.attributes["price"], e.attributes.get("venue", "no such attribute")) for e in subscriber]


@pytest.mark.parametrize("protection", ["endpoint", "payload"])
def test_events_of_every_version_are_read_in_order(tmp_path: Path, protection: str) -> None:
    realm = a_realm(tmp_path, protection)
    with Publisher(realm, TOPIC, "nyse") as nyse, Subscriber(realm, TOPIC, "alice") as alice:
        publish(nyse, b"a", price=1, symbol="IBM")
        publish(nyse, b"waits", price=2)  # taken by a batch after the change
        pump(realm, TOPIC)
        assert read(alice) == [(b"a", 1, "no such attribute"), (b"waits", 2, "no such attribute")]
        publish(nyse, b"b", price=3)
        realm.alter_topic(TOPIC, schema=SECOND)
        publish(nyse, b"c", price=999, venue="XNYS", lot=7, symbol="LONGER")  # the same publisher goes on
        realm.subscribe(TOPIC, "bob", "venue = 'XNYS' OR price < 10")
        pump(realm, TOPIC)
        assert read(alice) == [(b"b", 3, None), (b"c", 999, "XNYS")], "and so does the same reader"
        realm.alter_topic(TOPIC, schema=THIRD)
        publish(nyse, *(b"%d" % n for n in range(40)), price=5, n3=9)
        pump(realm, TOPIC)
    for rows in (1, 1_000):
        with Subscriber(realm, TOPIC, "alice", from_=0) as again:
            got = [event for _ in range(50) for event in again.poll(rows)]
        assert [e.payload for e in got[:4]] == [b"a", b"waits", b"b", b"c"] and len(got) == 44
        assert got[0].attributes == {**dict.fromkeys(THIRD.names), "symbol": "IBM", "price": 1}
        assert got[3].attributes["lot"] == 7 and got[-1].attributes["n3"] == 9
    with Subscriber(realm, TOPIC, "alice", from_=0) as columns:
        table = columns.poll_arrow()
    assert table.num_rows == 44 and table["venue"].to_pylist()[:4] == [None, None, None, "XNYS"]
    with Subscriber(realm, TOPIC, "bob") as bob:
        assert [e.payload for e in bob][:2] == [b"b", b"c"], "a filter meets old events: what they lack is unknown"
    check = sealcast("check", "--json", "--realm", realm.paths.root)
    assert check.code == 0, check.out
    shown = sealcast("why", f"{TOPIC}/0/2/0", "alice", "--realm", realm.paths.root)
    assert shown.code == 0 and "delivered" in shown.out


def test_frames_of_another_schema_are_still_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also of one that would be a next version, and that nobody has stated."""
    realm = a_realm(tmp_path)
    realm.alter_topic(TOPIC, schema=SECOND)
    monkeypatch.setattr("sealcast.clients.publisher.RecordCodec", lambda _: RecordCodec(THIRD))
    with Publisher(realm, TOPIC, "nyse") as nyse:
        publish(nyse, b"x", price=1)
    assert pump(realm, TOPIC)["rejected_schema"] == 1


ADDED = schema(*FIRST.to_json()["attributes"], named("venue", "string"), named("lot", min=0, max=9))


@pytest.mark.parametrize("protection", ["payload", "searchable"])
def test_where_brokers_do_not_read_events_of_every_version_open(tmp_path: Path, protection: str) -> None:
    """Readers make again, byte by byte, what brokers were shown, by the version that each event's frame names: one by
    one, and many at once."""
    sealed = {"sealed_attributes": ("symbol",)} if protection == "payload" else {}
    realm = a_realm(tmp_path, protection, **sealed)
    with Publisher(realm, TOPIC, "nyse") as nyse, Subscriber(realm, TOPIC, "alice") as alice:
        publish(nyse, *(b"%d" % n for n in range(40)), price=1, symbol="IBM")
        realm.alter_topic(TOPIC, schema=ADDED)
        publish(nyse, b"waits", price=2, symbol="BP")
        realm.subscribe(TOPIC, "bob", "venue = 'XNYS'")
        publish(nyse, *(b"n%d" % n for n in range(40)), price=3, venue="XNYS", lot=7)
        pump(realm, TOPIC)
        got = [event for _ in range(5) for event in alice.poll(50)]
        assert [e.payload for e in got] == [*(b"%d" % n for n in range(40)), b"waits", *(b"n%d" % n for n in range(40))]
        assert got[0].attributes == {"symbol": "IBM", "price": 1, "venue": None, "lot": None}
        assert got[40].attributes["symbol"] == "BP" and got[-1].attributes["lot"] == 7
    for rows in (1, 81):
        with Subscriber(realm, TOPIC, "alice", from_=0) as again:
            assert [e.attributes for _ in range(81) for e in again.poll(rows)] == [e.attributes for e in got]
    with Subscriber(realm, TOPIC, "bob") as bob:
        assert [e.payload for e in bob] == [b"n%d" % n for n in range(40)], "filters know the new attributes"
    assert sealcast("check", "--realm", realm.paths.root).code == 0


def test_what_brokers_were_shown_is_held_to_the_version_that_was_signed(tmp_path: Path) -> None:
    """The weakened variant: an opener that takes every event for one of the present version opens no old one."""
    realm = a_realm(tmp_path, "payload")
    with Publisher(realm, TOPIC, "nyse") as nyse:
        publish(nyse, b"a", price=1)
        pump(realm, TOPIC)
    realm.alter_topic(TOPIC, schema=SECOND)
    with Subscriber(realm, TOPIC, "alice", from_=0) as alice:
        assert [event.payload for event in alice] == [b"a"]
    with Subscriber(realm, TOPIC, "alice", from_=0) as alice:
        opener = alice._inbox._opener  # type: ignore[attr-defined]
        present = opener._versions[SECOND.digest]
        opener._versions = dict.fromkeys(opener._versions, present)
        assert list(alice) == [] and alice.dropped.poisoned.total() == 1


def test_a_publisher_cannot_claim_a_version_that_its_record_is_not_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Brokers cannot look inside: what is sealed by one version under the name of another is poison, and is passed."""
    realm = a_realm(tmp_path, "payload")
    realm.alter_topic(TOPIC, schema=SECOND)
    with Publisher(realm, TOPIC, "nyse") as nyse:
        publish(nyse, b"good", price=1)
        records = CheckedRows.records

        def of_the_first(self: CheckedRows, codec: RecordCodec, salts: bytes) -> list[bytes]:
            return [record[:-1] for record in records(self, codec, salts)]

        monkeypatch.setattr(CheckedRows, "records", of_the_first)
        publish(nyse, b"bad", price=1)
        monkeypatch.setattr(CheckedRows, "records", records)
        publish(nyse, b"later", price=1)
    pump(realm, TOPIC)
    with Subscriber(realm, TOPIC, "alice") as alice:
        assert [event.payload for event in alice] == [b"good", b"later"] and alice.dropped.poisoned.total() == 1


def test_layered_topics_route_and_open_events_of_every_version(tmp_path: Path) -> None:
    """Readers and publishers run on meanwhile; filters of before go on, and those of new attributes find new events."""
    realm = Realm.create(tmp_path / "realm")
    realm.create_topic(TOPIC, FIRST, protection="layered", access="members", nodes=2)
    realm.enrol_many(["nyse", "alice", "bob", "carol"])
    realm.subscribe(TOPIC, "alice", "price >= 0")
    with Publisher(realm, TOPIC, "nyse") as nyse, Subscriber(realm, TOPIC, "alice") as alice:
        publish(nyse, *(b"%d" % n for n in range(9)), price=1, symbol="IBM")
        publish(nyse, b"waits", price=2)
        realm.alter_topic(TOPIC, schema=ADDED)
        realm.subscribe(TOPIC, "bob", "venue = 'XNYS' AND lot > 5")
        realm.subscribe(TOPIC, "carol", "venue IS NOT NULL OR price = 2")
        publish(nyse, *(b"n%d" % n for n in range(9)), price=3, venue="XNYS", lot=7)
        publish(nyse, b"old shape", price=4)
        carried(realm)
        got = list(alice)
        new = [b"n%d" % n for n in range(9)]
        assert [e.payload for e in got] == [*(b"%d" % n for n in range(9)), b"waits", *new, b"old shape"]
        assert got[0].attributes == {"symbol": "IBM", "price": 1, "venue": None, "lot": None}
        assert got[10].attributes == {"symbol": None, "price": 3, "venue": "XNYS", "lot": 7}
        assert not alice.dropped
    for rows in (1, 81):
        with Subscriber(realm, TOPIC, "alice", from_=0) as again:
            assert [e.attributes for _ in range(81) for e in again.poll(rows)] == [e.attributes for e in got]
    for reader, wanted in {"bob": new, "carol": new}.items():
        with Subscriber(realm, TOPIC, reader, from_=0) as reading:
            assert [e.payload for e in reading if e.payload != b"waits"] == wanted, reader
    assert sealcast("check", "--realm", realm.paths.root).code == 0
    wider = schema(named("symbol", "string", max_length=4), named("price", min=0, max=1000))
    with pytest.raises(SchemaRejected, match="its domain cannot widen|is not in the new schema"):
        realm.alter_topic(TOPIC, schema=wider)


def test_a_layered_reader_holds_records_to_the_version_that_was_signed(tmp_path: Path) -> None:
    """The weakened variant: an opener that takes every event for one of the present version opens no old one."""
    realm = Realm.create(tmp_path / "realm")
    realm.create_topic(TOPIC, FIRST, protection="layered", access="members", nodes=2)
    realm.enrol_many(["nyse", "alice"])
    realm.subscribe(TOPIC, "alice", "price >= 0")
    with Publisher(realm, TOPIC, "nyse") as nyse:
        publish(nyse, b"a", price=1)
        carried(realm)
    realm.alter_topic(TOPIC, schema=ADDED)
    with Subscriber(realm, TOPIC, "alice", from_=0) as alice:
        opener = alice._inbox._opener  # type: ignore[attr-defined]
        right, opener._lifts = opener._lifts, dict.fromkeys(opener._lifts, opener._lifts[ADDED.digest])
        assert list(alice) == [] and alice.dropped.poisoned.total() == 1
        opener._lifts = right
    with Subscriber(realm, TOPIC, "alice", from_=0) as alice:
        assert [event.payload for event in alice] == [b"a"]


@pytest.mark.parametrize("settings", [{}, {"joint": True}, {"profile": "P"}, {"routing": True, "split": 2}], ids=str)
def test_where_keys_are_made_for_a_schema_a_version_begins_with_an_epoch(
    tmp_path: Path, settings: dict[str, object]
) -> None:
    """Everybody runs on meanwhile: what was published before opens with the keys from before, and the rest with new
    ones, which readers get as in every epoch."""
    realm = Realm.create(tmp_path / "realm")
    realm.create_topic(TOPIC, FIRST, protection=protection_of("attribute", settings), access="members")
    realm.enrol_many(["nyse", "alice", "bob"])
    realm.subscribe(TOPIC, "alice", "price >= 1")
    more = schema(*FIRST.to_json()["attributes"], named("lot", min=0, max=9), named("firm", "bool"))
    with Publisher(realm, TOPIC, "nyse") as nyse, Subscriber(realm, TOPIC, "alice") as alice:
        publish(nyse, b"a", price=1, symbol="IBM")
        carried(realm)
        publish(nyse, b"waits", price=2)
        epoch = realm.state().topic(TOPIC).epoch
        after = realm.alter_topic(TOPIC, schema=more)
        assert after.epoch == epoch + 1 and after.in_epoch(epoch).schema == FIRST and after.in_epoch(epoch + 1) == after
        realm.subscribe(TOPIC, "bob", "lot > 5 OR firm = TRUE")
        publish(nyse, b"b", price=3, lot=7)
        publish(nyse, b"c", price=4, lot=1, firm=True)
        publish(nyse, b"old shape", price=5)
        carried(realm)
        got = list(alice)
        assert [e.payload for e in got] == [b"a", b"waits", b"b", b"c", b"old shape"] and not alice.dropped
        assert got[0].attributes == {"symbol": "IBM", "price": 1, "lot": None, "firm": None}
        assert got[3].attributes == {"symbol": None, "price": 4, "lot": 1, "firm": True}
    with Subscriber(realm, TOPIC, "alice", from_=0) as again:
        assert [e.attributes for e in again] == [e.attributes for e in got]
    with Subscriber(realm, TOPIC, "bob") as bob:
        assert [e.payload for e in bob] == [b"b", b"c"]
    checked = sealcast("check", "--json", "--realm", realm.paths.root)
    assert checked.code == 0, checked.out
    why = sealcast("why", f"{TOPIC}/{got[1].position}", "alice", "--realm", realm.paths.root)
    assert why.code == 0 and "it is in the inbox of 'alice'" in why.out, why.out + why.err
    third = schema(*more.to_json()["attributes"], named("n"))
    assert realm.alter_topic(TOPIC, schema=third).in_epoch(epoch + 1).schema == more
    with pytest.raises(SchemaRejected, match="its domain cannot widen on this topic: places among peers"):
        realm.alter_topic(TOPIC, schema=schema(*SECOND.to_json()["attributes"][:2], *third.to_json()["attributes"][2:]))


def a_topic_of_peers(directory: Path) -> Realm:
    realm = Realm.create(directory / "realm")
    realm.create_topic(TOPIC, FIRST, protection="attribute", access="members")
    realm.enrol_many(["nyse", "lse", "alice"])
    realm.subscribe(TOPIC, "alice", "price >= 1")
    return realm


MORE = schema(*FIRST.to_json()["attributes"], named("lot", min=0, max=9))


def test_a_reader_of_peers_holds_events_to_the_schema_of_their_epoch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The weakened variant: an opener that takes every event for one of the present version opens no old one."""
    realm = a_topic_of_peers(tmp_path)
    with Publisher(realm, TOPIC, "nyse") as nyse:
        publish(nyse, b"a", price=1)
    carried(realm)
    realm.alter_topic(TOPIC, schema=MORE)
    with Subscriber(realm, TOPIC, "alice", from_=0) as alice:
        assert [event.payload for event in alice] == [b"a"]
    monkeypatch.setattr(Topic, "in_epoch", lambda self, epoch: self)
    with Subscriber(realm, TOPIC, "alice", from_=0) as alice, pytest.raises(CannotOpen, match="another schema"):
        list(alice)


def test_processes_of_peers_go_on_with_a_new_version(tmp_path: Path) -> None:
    """Over links, with places and roots in the trees of the new attributes."""
    realm = a_topic_of_peers(tmp_path)
    run = ("peer", "run", "--once", "--realm", realm.paths.root)
    with Publisher(realm, TOPIC, "nyse") as nyse:
        publish(nyse, b"a", price=1)
        assert sealcast(*run).code == 0
        publish(nyse, b"waits", price=2)
        realm.alter_topic(TOPIC, schema=MORE)
        realm.subscribe(TOPIC, "lse", "lot >= 3")
        publish(nyse, b"b", price=3, lot=4)
    assert sealcast(*run).code == 0
    found = {"alice": [(b"a", None), (b"waits", None), (b"b", 4)], "lse": [(b"b", 4)]}
    for name, wanted in found.items():
        with Subscriber(realm, TOPIC, name) as reader:
            assert [(event.payload, event.attributes["lot"]) for event in reader] == wanted
    assert sealcast("check", "--realm", realm.paths.root).code == 0


def test_an_event_in_the_schema_of_an_earlier_epoch_is_refused_by_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A publisher that goes on in the version from before, under the keys of now."""
    realm = a_topic_of_peers(tmp_path)
    realm.alter_topic(TOPIC, schema=MORE)
    stale = replace(realm.state().topic(TOPIC), schema=FIRST, earlier_schemas=(), schemas_until=())
    with monkeypatch.context() as behind:
        behind.setattr(RealmState, "topic", lambda self, name: stale)
        with Publisher(realm, TOPIC, "nyse") as nyse:
            publish(nyse, b"x", price=1)
    with Publisher(realm, TOPIC, "lse") as lse:
        publish(lse, b"y", price=1)
    carried(realm)
    with Subscriber(realm, TOPIC, "alice") as alice:
        assert [event.payload for event in alice] == [b"y"]
    refused = sealcast("rejected", "list", TOPIC, "--json", "--realm", realm.paths.root).document["rejected"]
    assert [each["reason"] for each in refused] == ["schema"]


def test_labels_are_made_from_domains_so_these_stay(tmp_path: Path) -> None:
    realm = a_realm(tmp_path, "searchable")
    wider = schema(named("symbol", "string", max_length=4), named("price", min=0, max=1000))
    with pytest.raises(SchemaRejected, match="'price': its domain cannot widen on this topic: labels of filters"):
        realm.alter_topic(TOPIC, schema=wider)
    with pytest.raises(SchemaRejected, match="'symbol': its domain cannot widen"):
        realm.alter_topic(TOPIC, schema=SECOND)
    assert realm.state().topic(TOPIC).schema == FIRST


def test_where_domains_widen_labels_do_not_meet() -> None:
    """Why: the same price has other labels in a wider domain. Of what stays, all labels stay."""
    values = {"symbol": "IBM", "price": 42}
    before, added = Labeller(FIRST).labels(values), Labeller(ADDED).labels(values)
    assert set(before) < set(added)
    wider = schema(named("symbol", "string", max_length=4), named("price", min=-10, max=1000))
    of_price = {label for label in before if b"price" in label and label not in Labeller(wider).labels(values)}
    assert of_price


def test_the_rules_and_what_is_stored(tmp_path: Path) -> None:
    realm = a_realm(tmp_path)
    with pytest.raises(SchemaRejected, match="maximum would fall"):
        realm.alter_topic(TOPIC, schema=schema(named("symbol", "string"), named("price", max=Decimal(5))))
    before = realm.registry.version()
    realm.alter_topic(TOPIC, schema=FIRST)
    assert realm.registry.version() == before, "the same again changes nothing"
    realm.alter_topic(TOPIC, schema=SECOND)
    about = Realm(realm.paths.root).state().topic(TOPIC)
    assert (about.schema, about.earlier_schemas) == (SECOND, (FIRST,))
    change = AlterTopic(TOPIC, Access.MEMBERS, schema=SECOND)
    assert from_json(change.kind, to_json(change)) == change


def test_the_commands(tmp_path: Path) -> None:
    realm = a_realm(tmp_path)
    at = ("--realm", realm.paths.root)
    file = write_lines(tmp_path / "next.json", SECOND.to_json())
    altered = sealcast("topic", "alter", TOPIC, "--schema", file, *at)
    assert altered.code == 0 and "its schema is at version 2" in altered.out, altered.err
    assert sealcast("topic", "show", TOPIC, "--json", *at).document["earlier_schemas"] == [FIRST.to_json()]
    back = sealcast("topic", "alter", TOPIC, "--schema", write_lines(tmp_path / "back.json", FIRST.to_json()), *at)
    assert back.code == 1 and "'venue' is not in the new schema" in back.err
