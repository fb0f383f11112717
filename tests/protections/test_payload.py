"""The payload protection: what brokers cannot read, who can, and what becomes of those who may no longer."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from sealcast import Event, Publisher, Realm, Right, Schema, Subscriber
from sealcast.errors import CannotOpen, EventRejected, FilterRejected, Misuse, SealcastError
from sealcast.lab import drill
from sealcast.log.piece_reader import sealed_reader
from sealcast.model.event import MAX_PAYLOAD_BYTES
from sealcast.model.protection import PAD_BYTES, Payload
from sealcast.primitives.secrets import Secret
from sealcast.protections.enveloped import client
from sealcast.protections.enveloped import publish as sealing
from sealcast.protections.enveloped.envelope import Envelope, padded, unpadded
from sealcast.protections.payload import keys
from sealcast.protections.payload.client import opener_for
from sealcast.trust.keys.topic_keys import ContentKey
from sealcast.wire.sealed import SealedPiece
from tests.clients.pump import pump

SCHEMA = Schema.from_json(
    {
        "attributes": [
            {"name": "ward", "type": "string"},
            {"name": "pulse", "type": "int", "min": 0, "max": 300},
            {"name": "name", "type": "string"},
        ]
    }
)
HOUR = 3_600_000_000
SECRET = b"the patient's own words"


def a_realm(directory: Path, *, access: str = "members", **settings: object) -> Realm:
    realm = Realm.create(directory)
    realm.create_topic("vitals", SCHEMA, protection=Payload(**settings), access=access)  # type: ignore[arg-type]
    realm.enrol_many(["monitor", "nurse", "doctor"])
    if access == "granted":
        realm.grant("vitals", "monitor", [Right.PUBLISH])
        realm.grant("vitals", "nurse")
        realm.grant("vitals", "doctor")
    realm.subscribe("vitals", "nurse", "pulse > 100")
    realm.subscribe("vitals", "doctor", "ward = 'A'")
    return realm


def publish(realm: Realm, *pulses: int, payload: bytes = SECRET) -> None:
    with Publisher(realm, "vitals", as_="monitor") as publisher:
        publisher.publish([Event({"ward": "A", "pulse": p, "name": "Ann Onymous"}, payload) for p in pulses])


def pieces(realm: Realm) -> list[SealedPiece]:
    reader = sealed_reader(realm.paths.topic("vitals").root)
    return [reader.piece(ref) for i in range(reader.ledger.end()) for ref in reader.record(i).entry.pieces]


def read(realm: Realm, name: str) -> list[tuple[object, bytes]]:
    with Subscriber(realm, "vitals", as_=name, from_=0) as reader:
        return [(event.attributes["pulse"], event.payload) for event in reader]


@pytest.fixture
def realm(tmp_path: Path) -> Realm:
    return a_realm(tmp_path / "realm")


# --- brokers ----------------------------------------------------------------------------------------------


def test_readers_open_what_matches_and_the_event_is_sealed_once(realm: Realm) -> None:
    publish(realm, 80, 120)
    pump(realm, "vitals")
    assert read(realm, "nurse") == [(120, SECRET)]
    assert read(realm, "doctor") == [(80, SECRET), (120, SECRET)]
    (piece,) = pieces(realm)
    assert len(piece) == piece.counts["encryptions"] == 2, "one encryption an event, whatever the group"


def test_a_broker_with_all_it_has_opens_no_payload(realm: Realm) -> None:
    """With the topic's key, every pair key, every frame and every piece. A center that derived the content key from the
    topic's key, which brokers have, would give every payload away: the same search finds that key then."""
    publish(realm, 120)
    pump(realm, "vitals")
    state = realm.state()
    about, broker = state.topic("vitals"), realm.broker()
    ours = broker.topic_keys(state, about)
    (piece,) = pieces(realm)
    envelope = Envelope.in_piece(piece.body(0), piece.commitment(0))
    known = [ours._key, ours.content_root(), *(ours.pair_key(name) for name in state.entities)]

    def opens(secret: Secret) -> bool:
        content = ContentKey(secret, reads=True)
        try:
            for own in (content.of_publisher("monitor"), secret):
                key = keys.boot_key(own, envelope.boot, keys.associated_data(about.id, 1), about.parameters.key_bits)
                if SECRET in key.open(keys.nonce(envelope.number), envelope.commitment, envelope.ciphertext):
                    return True
        except CannotOpen:
            pass
        return False

    assert not any(map(opens, known))
    right = realm.center().topic_keys(about)._content
    assert right is not None and opens(right), "the search finds the right key when it is there"
    with pytest.raises(Misuse, match="only the center"):
        ours.for_entity(about, state.entity("nurse"), reads=True)


def test_nothing_of_a_payload_is_in_any_file(realm: Realm) -> None:
    publish(realm, 120)
    pump(realm, "vitals")
    for path in realm.paths.root.rglob("*"):
        if path.is_file():
            data = path.read_bytes()
            assert SECRET not in data and b"Ann Onymous" not in data, path


def test_a_broker_that_hands_on_something_else_is_found_out(realm: Realm) -> None:
    publish(realm, 120, 130)
    pump(realm, "vitals")
    (piece,) = pieces(realm)
    opener = opener_for(realm, "vitals", realm.identity("nurse"))
    good, other = (Envelope.in_piece(piece.body(e), piece.commitment(e)) for e in (0, 1))
    place = (piece.position(0), piece.frame(0))
    assert opener.open_envelope(*place, good).payload == SECRET
    with pytest.raises(CannotOpen, match="not among the events"):
        opener.open_envelope(*place, other)  # one of the same publisher's, in another's place
    for envelope in (
        Envelope(good.boot, good.number + 1, good.commitment, good.ciphertext),
        Envelope(bytes(16), good.number, good.commitment, good.ciphertext),
        Envelope(good.boot, good.number, bytes(32), good.ciphertext),
        Envelope(good.boot, good.number, good.commitment, good.ciphertext[:-1] + b"\0"),
    ):
        with pytest.raises(CannotOpen):
            opener.open_envelope(*place, envelope)


def test_what_is_no_envelope_is_refused_at_admission(realm: Realm, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sealing, "joined_envelopes", lambda *parts: [b"short"])
    publish(realm, 120)
    monkeypatch.undo()
    publish(realm, 130)
    counts = pump(realm, "vitals")
    assert (counts["admitted"], counts["rejected_event"]) == (1, 1)
    assert read(realm, "nurse") == [(130, SECRET)]


# --- sealed attributes, padding ---------------------------------------------------------------------------


def test_a_sealed_attribute_reaches_readers_and_no_broker(tmp_path: Path) -> None:
    realm = a_realm(tmp_path / "realm", sealed_attributes=("name",))
    with pytest.raises(FilterRejected, match="'name' is sealed"):
        realm.subscribe("vitals", "nurse", "name = 'Ann Onymous'")
    with pytest.raises(FilterRejected, match="XPath"):
        realm.subscribe("vitals", "nurse", "xpath://order")
    publish(realm, 120)
    pump(realm, "vitals")
    with Subscriber(realm, "vitals", as_="nurse") as reader:
        (event,) = reader.poll()
    assert event.attributes["name"] == "Ann Onymous"


def test_a_publisher_that_shows_a_sealed_attribute_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    realm = a_realm(tmp_path / "realm", sealed_attributes=("name",))
    monkeypatch.setattr(Payload, "hidden", frozenset())
    publish(realm, 120)
    monkeypatch.undo()
    counts = pump(realm, "vitals")
    assert (counts.get("admitted", 0), counts["rejected_event"]) == (0, 1)


def test_only_attributes_that_exist_are_sealed(tmp_path: Path) -> None:
    with pytest.raises(Misuse, match="no attribute 'colour' to seal"):
        a_realm(tmp_path / "realm", sealed_attributes=("colour",))


def test_padding_hides_lengths_within_a_step(tmp_path: Path) -> None:
    def lengths(realm: Realm) -> set[int]:
        for size in (1, 20, 60, 100):
            publish(realm, 120, payload=b"x" * size)
        pump(realm, "vitals")
        assert [len(payload) for _, payload in read(realm, "nurse")] == [1, 20, 60, 100]
        return {len(piece.body(event)) for piece in pieces(realm) for event in range(len(piece))}

    assert len(lengths(a_realm(tmp_path / "plain"))) == 4
    assert len(lengths(a_realm(tmp_path / "padded", padded=True))) == 1


@pytest.mark.parametrize("record", [b"", b"\x80", b"\x80\0", b"abc", b"abc\x80\0\0", bytes(300)])
@pytest.mark.parametrize("step", [1, 2, PAD_BYTES])
def test_padding_comes_off_again(record: bytes, step: int) -> None:
    inside = padded(record, step)
    assert len(inside) % step == 0 and unpadded(inside) == record
    with pytest.raises(CannotOpen):
        unpadded(inside[:-1] + b"\x01")


def test_an_event_that_would_not_fit_is_refused_before_it_is_sealed(realm: Realm) -> None:
    with pytest.raises(EventRejected, match="when it is sealed"):
        publish(realm, 1, payload=bytes(MAX_PAYLOAD_BYTES))
    publish(realm, 130, payload=bytes(MAX_PAYLOAD_BYTES - 400))
    pump(realm, "vitals")
    assert len(read(realm, "nurse")) == 1


# --- who may -----------------------------------------------------------------------------------------------


def test_who_may_only_publish_cannot_read(tmp_path: Path) -> None:
    realm = a_realm(tmp_path / "realm", access="granted")
    publish(realm, 120)
    pump(realm, "vitals")
    (piece,) = pieces(realm)
    with pytest.raises(CannotOpen, match="and not read"):
        opener_for(realm, "vitals", realm.identity("monitor")).open(piece, 0, 0)
    assert opener_for(realm, "vitals", realm.identity("doctor")).open(piece, 0, 0).payload == SECRET


def test_whoever_may_read_opens_what_it_did_not_ask_for(realm: Realm) -> None:
    """As `explain` says: filters are enforced by brokers here."""
    publish(realm, 80)
    pump(realm, "vitals")
    (piece,) = pieces(realm)
    assert opener_for(realm, "vitals", realm.identity("nurse")).open(piece, 0, 0).payload == SECRET


@pytest.mark.parametrize("how", ["revoke", "revoke-entity"])
def test_a_leaver_is_cut_off_by_a_new_epoch_at_once(tmp_path: Path, how: str) -> None:
    realm = a_realm(tmp_path / "realm", access="granted")
    publish(realm, 120)
    leaver = realm.identity("nurse")
    before = realm.state()
    if how == "revoke":
        realm.revoke("vitals", "nurse", [Right.SUBSCRIBE, Right.PUBLISH])
    else:
        realm.revoke_entity("nurse")
    assert realm.state().topic("vitals").epoch == before.topic("vitals").epoch + 1
    publish(realm, 130)
    pump(realm, "vitals")
    after = [(piece, event) for piece in pieces(realm) for event in range(len(piece))]
    opener = opener_for(realm, "vitals", leaver)
    opened = []
    for piece, event in after:
        try:
            opened.append(opener.open(piece, event, event).attributes["pulse"])
        except SealcastError:
            continue
    assert opened == [120], "what was published before, and nothing after, even from the broker's own disk"
    assert read(realm, "doctor") == [(120, SECRET), (130, SECRET)]


def test_who_gains_the_right_to_read_gets_the_key_that_reads(tmp_path: Path) -> None:
    realm = a_realm(tmp_path / "realm", access="granted")
    realm.grant("vitals", "monitor", [Right.PUBLISH, Right.SUBSCRIBE])
    realm.subscribe("vitals", "monitor", "pulse > 0")
    publish(realm, 120)
    pump(realm, "vitals")
    assert read(realm, "monitor") == [(120, SECRET)]


def test_no_two_boots_share_a_key(realm: Realm) -> None:
    for _ in range(3):
        publish(realm, 120)
    pump(realm, "vitals")
    found = [
        Envelope.in_piece(piece.body(e), piece.commitment(e)) for piece in pieces(realm) for e in range(len(piece))
    ]
    assert [envelope.number for envelope in found] == [0, 0, 0], "numbers begin anew with each boot"
    assert len({envelope.boot for envelope in found}) == len({envelope.commitment for envelope in found}) == 3


def test_after_a_compromise_the_thief_opens_nothing_and_the_others_everything(tmp_path: Path) -> None:
    """Also of what lay on the broker's disk before: it is sealed again for those who may still read."""
    realm = a_realm(tmp_path / "realm")
    publish(realm, 120, 130)
    pump(realm, "vitals")
    thief = realm.identity("nurse")
    opener = opener_for(realm, "vitals", thief)
    assert all(opener.open(piece, event, event) for piece in pieces(realm) for event in range(len(piece)))
    report = drill.drill(realm, "nurse")
    assert report.over and report.unharmed
    before, after = (cells["nurse", "vitals"] for cells in (report.before, report.after))
    assert (before.opened, before.tried) == (2, 2), "the thief opens with what readers of the topic open with"
    assert (after.opened, after.publishes) == (0, "revoked")
    assert [cells["doctor", "vitals"].opened for cells in (report.before, report.after)] == [2, 2]
    publish(realm, 140)
    pump(realm, "vitals")
    found = [(piece, event) for piece in pieces(realm) for event in range(len(piece))]
    assert len(found) == 3
    for piece, event in found:
        with pytest.raises(SealcastError):
            opener_for(realm, "vitals", thief).open(piece, event, int(piece.use_start[event]))
    stolen = {path.name for path in realm.paths.topic("vitals").pieces.iterdir()}
    assert len(stolen) == len(pieces(realm)), "the pieces that the thief could open are gone"
    assert read(realm, "doctor") == [(120, SECRET), (130, SECRET), (140, SECRET)]


@pytest.mark.parametrize(("name", "opened"), [("center", 2), ("broker", 0)])
def test_a_stolen_key_center_opens_everything_and_a_stolen_broker_nothing(
    tmp_path: Path, name: str, opened: int
) -> None:
    realm = a_realm(tmp_path / "realm")
    realm.add_broker("east")
    realm.serve("vitals", "east")
    publish(realm, 120, 130)
    pump(realm, "vitals")
    report = drill.drill(realm, name)
    before, after = (cells[name, "vitals"] for cells in (report.before, report.after))
    assert (before.opened, before.tried) == (opened, 2)
    assert report.over and after.opened == 0


def test_what_was_sealed_again_is_opened_with_a_key_that_is_made_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    realm = a_realm(tmp_path / "realm")
    publish(realm, *range(120, 150))
    pump(realm, "vitals")
    drill.drill(realm, "nurse")
    made = list[int]()
    real = client.opener_at

    def counted(*arguments: Any) -> Any:
        made.append(arguments[4])
        return real(*arguments)

    monkeypatch.setattr(client, "opener_at", counted)
    assert len(read(realm, "doctor")) == 30
    assert made == [2]


@pytest.mark.parametrize("rights", [(Right.SUBSCRIBE,), (Right.PUBLISH, Right.SUBSCRIBE)])
def test_a_right_that_ends_by_its_term_ends_the_epoch_too(tmp_path: Path, rights: tuple[Right, ...]) -> None:
    """Whoever may still publish gets a key to publish with, and none to read with."""
    now = [time.time_ns() // 1000]
    realm = Realm.create(tmp_path / "realm", clock=lambda: now[0])
    realm.create_topic("vitals", SCHEMA, protection=Payload(), access="granted")
    realm.enrol_many(["monitor", "nurse", "doctor"])
    realm.grant("vitals", "monitor", [Right.PUBLISH])
    realm.grant("vitals", "doctor")
    for right in rights:
        realm.grant("vitals", "nurse", [right], until_us=now[0] + HOUR if right is Right.SUBSCRIBE else None)
    before = realm.state().topic("vitals").epoch
    now[0] += HOUR - 1
    assert not realm.maintain().rotated, "its right has not ended yet"
    now[0] += 1
    assert "whose right has ended" in realm.maintain().rotated["vitals"]
    state = realm.state()
    assert state.topic("vitals").epoch == before + 1
    issued = state.pair_key("vitals", before + 1, "nurse")
    assert (issued is not None) is (Right.PUBLISH in rights)
    if issued is not None:
        content = realm.identity("nurse").topic_keys(state, "vitals").content
        assert content is not None and not content.reads
    assert realm.identity("doctor").topic_keys(state, "vitals").content is not None
    assert not realm.maintain().rotated, "once is enough"
    realm.grant("vitals", "nurse", [Right.SUBSCRIBE])
    content = realm.identity("nurse").topic_keys(realm.state(), "vitals").content
    assert content is not None and content.reads, "a right that comes back brings a key to read with"


def test_a_term_that_is_over_ends_no_epoch_where_brokers_seal_for_readers(tmp_path: Path) -> None:
    now = [time.time_ns() // 1000]
    realm = Realm.create(tmp_path / "realm", clock=lambda: now[0])
    realm.create_topic("quotes", SCHEMA, access="granted")
    realm.enrol("nurse")
    realm.grant("quotes", "nurse", until_us=now[0] + HOUR)
    now[0] += 2 * HOUR
    assert not realm.maintain().rotated
