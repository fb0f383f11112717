"""Filters that come after the events, on `searchable` topics: everything that is retained and matches, exactly once."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest

from sealcast import Event, Publisher, Realm, Right, Schema, Subscriber
from sealcast.errors import ParameterRejected, Rejected, SealcastError
from sealcast.filters.check import fit
from sealcast.filters.evaluate import evaluate
from sealcast.filters.parse import parse
from sealcast.lab import drill
from sealcast.log.embedded import EmbeddedLog
from sealcast.log.ledger import LedgerReader
from sealcast.log.piece_reader import sealed_reader
from sealcast.model.protection import PROTECTIONS, Retention, Searchable, from_json, protection_of, to_json
from sealcast.protections.port import client_side, witness_side
from sealcast.protections.searchable import late_batch
from sealcast.protections.searchable.interests import own_id
from sealcast.protections.searchable.late import PubFilters
from sealcast.protections.witness.report import CheckReport
from sealcast.trust.realm.changes import AddSubscription
from sealcast.wire.sealed import TOPIC as TOPIC_KEY
from sealcast.wire.sealed import SealedPiece
from tests.cli.shell import sealcast
from tests.clients.pump import pump

TOPIC = "vitals"
SCHEMA = Schema.from_json(
    {
        "attributes": [
            {"name": "ward", "type": "string", "max_length": 8},
            {"name": "pulse", "type": "int", "min": 0, "max": 255},
        ]
    }
)
FILTERS = ("pulse > 100", "ward = 'Hearts'", "ward LIKE 'He%' AND pulse < 90", "pulse BETWEEN 40 AND 160", "pulse = 7")


def a_realm(directory: Path, **settings: Any) -> Realm:
    realm = Realm.create(directory)
    realm.create_topic(TOPIC, SCHEMA, protection=Searchable(**settings), access="granted")
    realm.enrol_many(["monitor", "second", "nurse", "doctor", "porter"])
    for publisher in ("monitor", "second"):
        realm.grant(TOPIC, publisher, [Right.PUBLISH])
    for reader in ("nurse", "doctor", "porter"):
        realm.grant(TOPIC, reader, [Right.SUBSCRIBE])
    return realm


def publish(realm: Realm, *pulses: int, by: str = "monitor") -> list[str]:
    """The positions of the events, as `pub` prints them."""
    with Publisher(realm, TOPIC, as_=by) as publisher:
        events = [Event({"ward": "Hearts", "pulse": p}, f"{by} {p}".encode()) for p in pulses]
        return [str(position) for position in publisher.publish(events)]


def read(realm: Realm, name: str) -> list[object]:
    with Subscriber(realm, TOPIC, as_=name, from_=0) as reader:
        return [event.attributes["pulse"] for event in reader]


def mailed(realm: Realm, name: str) -> int:
    """How many deliveries lie in a mailbox, whoever may still open them."""
    if realm.state().slot_of(TOPIC, name) is None:
        return 0
    with client_side(Searchable()).mail(realm, TOPIC, name) as mail:
        return sum(1 for _ in mail.deliveries())


def audit(realm: Realm) -> CheckReport:
    report = CheckReport(TOPIC)
    for each in witness_side(Searchable()).audits(realm, TOPIC, by_reference=False):
        report = each.run(lambda done: None)
    return report


def why(realm: Realm, event: str, name: str) -> dict[str, Any]:
    found = sealcast("why", f"{TOPIC}/{event}", name, "--json", "--realm", realm.paths.root)
    assert found.code == 0, found.err
    return dict(found.document)


def records(realm: Realm) -> list[tuple[int, int]]:
    """Of each batch: late pieces, and pieces of its own."""
    with LedgerReader(realm.paths.topic(TOPIC).ledger) as ledger:
        return [(each.entry.late, len(each.entry.own)) for each in ledger.entries()]


@pytest.fixture
def realm(tmp_path: Path) -> Realm:
    return a_realm(tmp_path / "realm")


# --- once ---------------------------------------------------------------------------------------------------


def test_a_new_filter_gets_what_is_retained_once_and_before_what_comes(realm: Realm) -> None:
    events = [*publish(realm, 120, 90), *publish(realm, 130, by="second")]
    pump(realm, TOPIC)
    realm.subscribe(TOPIC, "nurse", "pulse > 100")
    publish(realm, 140)
    counts = pump(realm, TOPIC)
    assert (counts["admitted"], counts["deliveries"], counts["frames"]) == (1, 3, 1), "nothing is admitted twice"
    assert read(realm, "nurse") == [120, 130, 140]
    pump(realm, TOPIC)
    assert read(realm, "nurse") == [120, 130, 140]
    assert audit(realm).ok and records(realm) == [(0, 1), (1, 1), (0, 0)]
    late, never = why(realm, events[0], "nurse"), why(realm, events[1], "nurse")
    assert late["verdict"] == "delivered" and "came after record 0" in late["because"] and late["batch"]["record"] == 1
    assert never["verdict"] == "not-subscribed"


def test_nothing_but_a_new_filter_is_a_batch_too(realm: Realm) -> None:
    publish(realm, 120, 90)
    pump(realm, TOPIC)
    for name, text, got in (
        ("nurse", "pulse > 100", [120]),
        ("doctor", "pulse = 1", []),
        ("porter", "pulse < 100", [90]),
    ):
        realm.subscribe(TOPIC, name, text)
        pump(realm, TOPIC)
        assert read(realm, name) == got
    assert audit(realm).ok
    assert records(realm) == [(0, 1), (1, 0), (1, 0), (1, 0)], "also one that brought nothing leaves a trace"


def test_many_batches_make_one_late_piece_of_each_partition(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A record names each of its pieces, so that there must not be as many as there were batches."""
    realm = a_realm(tmp_path / "realm")
    for pulse in range(1, 13):
        publish(realm, pulse)
        pump(realm, TOPIC)
    realm.subscribe(TOPIC, "nurse", "pulse <= 11")
    pump(realm, TOPIC)
    assert read(realm, "nurse") == [*range(1, 12)] and records(realm)[-1] == (1, 0) and audit(realm).ok
    monkeypatch.setattr(late_batch, "MAX_FRAMES_PER_PIECE", 5)
    realm.subscribe(TOPIC, "nurse", "pulse = 12")
    realm.subscribe(TOPIC, "doctor", "pulse > 1")
    pump(realm, TOPIC)
    assert read(realm, "nurse") == [*range(1, 13)] and read(realm, "doctor") == [*range(2, 13)]
    assert records(realm)[-1] == (3, 0) and audit(realm).ok
    monkeypatch.setattr(late_batch, "MAX_DELIVERIES_PER_PIECE", 2)
    realm.subscribe(TOPIC, "porter", "pulse > 0")
    pump(realm, TOPIC)
    assert read(realm, "porter") == [*range(1, 13)] and records(realm)[-1] == (6, 0) and audit(realm).ok


def test_a_second_filter_brings_only_what_its_subscriber_has_not_got(realm: Realm) -> None:
    realm.subscribe(TOPIC, "nurse", "pulse > 100")
    publish(realm, 90, 120, 30)
    pump(realm, TOPIC)
    realm.subscribe(TOPIC, "nurse", "pulse > 50")
    pump(realm, TOPIC)
    assert read(realm, "nurse") == [120, 90]
    realm.subscribe(TOPIC, "nurse", "pulse >= 0")
    realm.subscribe(TOPIC, "nurse", "pulse <= 255")
    pump(realm, TOPIC)
    assert read(realm, "nurse") == [120, 90, 30] and audit(realm).ok


def test_a_filter_that_is_stated_again_brings_nothing_again(realm: Realm) -> None:
    realm.subscribe(TOPIC, "nurse", "pulse > 100")
    publish(realm, 120, 90)
    pump(realm, TOPIC)
    for _ in range(3):
        with client_side(Searchable()).interests(realm, TOPIC, "nurse") as interests:
            interests.remove([each.id for each in interests.filters() if each.id])
            interests.add("pulse > 100")
        pump(realm, TOPIC)
        assert read(realm, "nurse") == [120]
    assert audit(realm).ok


def test_who_subscribes_and_leaves_between_two_batches_gets_nothing(realm: Realm) -> None:
    publish(realm, 120)
    pump(realm, TOPIC)
    with client_side(Searchable()).interests(realm, TOPIC, "nurse") as interests:
        interests.remove([str(interests.add("pulse > 100").id)])
    pump(realm, TOPIC)
    assert read(realm, "nurse") == [] and audit(realm).ok


def test_a_cursor_lag_and_places_count_late_deliveries(realm: Realm) -> None:
    realm.subscribe(TOPIC, "nurse", "pulse > 100")
    events = publish(realm, 90, 120, 130)
    pump(realm, TOPIC)
    with Subscriber(realm, TOPIC, as_="nurse") as reader:
        assert len(list(reader)) == 2
        reader.ack()
    realm.subscribe(TOPIC, "nurse", "pulse = 90")
    publish(realm, 140)
    pump(realm, TOPIC)
    with Subscriber(realm, TOPIC, as_="nurse") as reader:
        assert reader.lag() == 2 and [e.attributes["pulse"] for e in reader] == [90, 140]
    with Subscriber(realm, TOPIC, as_="nurse", from_=events[0]) as reader:
        assert [e.attributes["pulse"] for e in reader] == [90, 140], "from where it was delivered"
    with Subscriber(realm, TOPIC, as_="nurse", from_=events[2]) as reader:
        assert [e.attributes["pulse"] for e in reader] == [130, 90, 140]
    with Subscriber(realm, TOPIC, as_="nurse", from_="3") as reader:
        assert [e.attributes["pulse"] for e in reader] == [140]
    (facts,) = witness_side(Searchable()).status(realm, TOPIC)
    assert facts.document["lag"]["subscribers"] == {"nurse": 2}
    assert facts.document["retained"] == {"batches": 2, "events": 4}


# --- how far back ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "got"), [({"retain_events": 3}, [3, 4, 5]), ({"retain_events": 0}, []), ({"retain_s": 0}, [])]
)
def test_only_the_newest_batches_are_retained(tmp_path: Path, settings: dict[str, int], got: list[int]) -> None:
    realm = a_realm(tmp_path / "realm", **settings)
    events = [publish(realm, pulse)[0] for pulse in (1,)]
    pump(realm, TOPIC)
    for pulses in ((2,), (3, 4), (5,)):
        publish(realm, *pulses)
        pump(realm, TOPIC)
    realm.subscribe(TOPIC, "nurse", "pulse < 100")
    pump(realm, TOPIC)
    assert read(realm, "nurse") == got and audit(realm).ok
    found = why(realm, events[0], "nurse")
    assert found["verdict"] == "not-subscribed" and ("no longer retained" in found["because"]) == bool(got)


def test_what_is_older_than_the_span_is_not_retained(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    realm = a_realm(tmp_path / "realm", retain_s=3600)
    publish(realm, 120)
    pump(realm, TOPIC)
    now = time.time_ns
    monkeypatch.setattr(time, "time_ns", lambda: now() + 3601 * 1_000_000_000)
    realm = Realm(realm.paths.root, clock=lambda: time.time_ns() // 1000)
    publish(realm, 130)
    pump(realm, TOPIC)
    realm.subscribe(TOPIC, "nurse", "pulse > 100")
    pump(realm, TOPIC)
    assert read(realm, "nurse") == [130] and audit(realm).ok


def test_frames_that_are_no_longer_kept_are_left_out(realm: Realm, monkeypatch: pytest.MonkeyPatch) -> None:
    publish(realm, 120)
    pump(realm, TOPIC)
    publish(realm, 130)
    pump(realm, TOPIC)
    realm.subscribe(TOPIC, "nurse", "pulse > 100")
    removed, really = realm.paths.topic(TOPIC).frames(0), EmbeddedLog.start
    monkeypatch.setattr(EmbeddedLog, "start", lambda log: 1 if log.directory == removed else really(log))
    pump(realm, TOPIC)
    assert read(realm, "nurse") == [130]
    report = audit(realm)
    assert report.ok and any("no longer kept" in gap for gap in report.gaps)


def test_settings_of_retention_are_whole_numbers_within_bounds() -> None:
    for bad in (-1, 1_000_001, True, 1.5, "7"):
        with pytest.raises(ParameterRejected, match="retain_events"):
            Searchable(retain_events=bad)  # type: ignore[arg-type]
    assert Searchable().retention == Retention(10_000, 7 * 86_400)
    assert (
        str(Retention(10_000, 7 * 86_400)) == "10,000 events, 7 days"
        and str(Retention(1, 90)) == "1 events, 90 seconds"
    )


def test_a_topic_that_was_stored_before_there_was_retention_has_none() -> None:
    """Its brokers delivered nothing late, and `check` must not ask for it."""
    stored = to_json(Searchable())
    assert isinstance(stored, dict) and from_json(stored) == Searchable()
    before = {name: value for name, value in stored.items() if not name.startswith("retain")}
    assert from_json(before).retention is None and from_json(before) == Searchable(retain_events=0, retain_s=0)


@pytest.mark.parametrize(
    ("given", "found"),
    [
        ("2d", "10,000 events, 2 days"),
        ("500", "500 events, 7 days"),
        ("1h,20", "20 events, 1 hour"),
        ("0", "nothing retained"),
    ],
)
def test_topic_create_takes_how_much_to_retain(tmp_path: Path, given: str, found: str) -> None:
    realm = Realm.create(tmp_path / "realm")
    schema = tmp_path / "schema.json"
    schema.write_text('{"attributes": [{"name": "pulse", "type": "int", "min": 0, "max": 255}]}')
    at = ("--realm", realm.paths.root)
    create = ("topic", "create", "t", "--schema", schema, "--retain", given)
    assert sealcast(*create, "--protection", "searchable", *at).code == 0
    assert found in sealcast("topic", "show", "t", *at).out
    refused = sealcast("topic", "create", "u", "--schema", schema, "--retain", given, *at, "--access", "members")
    assert refused.code != 0 and "--retain is for searchable" in refused.err
    for bad in ("1h,2d", "soon", "5,6"):
        assert sealcast(*create[:-1], bad, "--protection", "searchable", *at).code != 0


def test_tags_of_what_is_retained_dismiss_a_filter_before_a_frame_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    realm = a_realm(tmp_path / "realm", tag_bits=32)
    publish(realm, 120, 130)
    pump(realm, TOPIC)
    realm.subscribe(TOPIC, "nurse", "pulse = 1")
    pump(realm, TOPIC)
    read_again = list[object]()
    really = late_batch.kept_frames
    monkeypatch.setattr(late_batch, "kept_frames", lambda *given: read_again.append(given) or really(*given))
    realm.subscribe(TOPIC, "doctor", "pulse = 2 AND ward = 'Hearts'")
    pump(realm, TOPIC)
    assert not read_again, "its tags were remembered, and one slot has none of them"
    realm.subscribe(TOPIC, "porter", "pulse = 120 AND ward = 'Hearts'")
    pump(realm, TOPIC)
    assert len(read_again) == 1 and read(realm, "porter") == [120]


def test_tags_are_remembered_within_a_bound() -> None:
    known, tags = PubFilters(most=100), np.arange(10, dtype=np.uint32)
    for name in "abcab":
        known.put(name, {1: tags})
    assert [name for name in "abc" if known.get(name) is not None] == ["a", "b"]
    known.put("a", {1: tags[:5], 2: tags[:5]})
    known.put("d", {1: tags[:5]})
    assert known.get("b") is not None and known.get("d") is not None


# --- who gets it ------------------------------------------------------------------------------------------------


def test_rights_at_the_time_of_delivery_count(realm: Realm) -> None:
    events = publish(realm, 120)
    pump(realm, TOPIC)
    realm.subscribe(TOPIC, "nurse", "pulse > 100")
    realm.subscribe(TOPIC, "doctor", "pulse > 100")
    realm.revoke(TOPIC, "nurse", [Right.SUBSCRIBE])
    pump(realm, TOPIC)
    assert mailed(realm, "nurse") == 0 and read(realm, "doctor") == [120] and audit(realm).ok
    assert why(realm, events[0], "nurse")["verdict"] in ("not-subscribed", "not-authorised")


def test_events_of_a_publisher_that_has_left_stay_what_they_were(realm: Realm) -> None:
    publish(realm, 120)
    events = publish(realm, 130, by="second")
    pump(realm, TOPIC)
    realm.revoke(TOPIC, "second", [Right.PUBLISH])
    realm.subscribe(TOPIC, "nurse", "pulse > 100")
    pump(realm, TOPIC)
    assert read(realm, "nurse") == [120, 130] and audit(realm).ok
    assert why(realm, events[0], "nurse")["verdict"] == "delivered"


def test_epochs_before_are_asked_where_the_subscriber_has_their_keys(realm: Realm) -> None:
    publish(realm, 120)
    pump(realm, TOPIC)
    realm.enrol_many(["later"])
    realm.rotate(TOPIC)
    realm.grant(TOPIC, "later", [Right.SUBSCRIBE])
    publish(realm, 130)
    pump(realm, TOPIC)
    realm.subscribe(TOPIC, "nurse", "pulse > 100")
    realm.subscribe(TOPIC, "later", "pulse > 100")
    pump(realm, TOPIC)
    assert read(realm, "nurse") == [120, 130] and read(realm, "later") == [130]
    assert audit(realm).ok
    kinds = [set(np.asarray(piece.key_kind).tolist()) for piece in late_pieces(realm)]
    assert [TOPIC_KEY in each for each in kinds] == [False, True], (
        "what is of an earlier epoch is sealed for its reader"
    )


def late_pieces(realm: Realm) -> list[SealedPiece]:
    reader = sealed_reader(realm.paths.topic(TOPIC).root)
    entries = [reader.record(index).entry for index in range(reader.end())]
    return [reader.piece(ref) for entry in entries for ref in entry.pieces[: entry.late]]


def test_filters_of_epochs_that_are_over_go_when_brokers_have_matched_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    realm = a_realm(tmp_path / "realm")
    publish(realm, 120)
    pump(realm, TOPIC)
    realm.rotate(TOPIC)
    publish(realm, 130)
    now, ended = time.time_ns, realm.state().topic(TOPIC).parameters.grace_s + 600
    monkeypatch.setattr(time, "time_ns", lambda: now() + ended * 1_000_000_000)
    realm = Realm(realm.paths.root, clock=lambda: time.time_ns() // 1000)
    pump(realm, TOPIC)

    def registered() -> list[tuple[str, int]]:
        return [own_id(each.id) for each in realm.state().subscriptions_of(TOPIC)]

    realm.subscribe(TOPIC, "nurse", "pulse > 100")
    assert registered() == [("nurse-1", 1), ("nurse-1", 2)]
    assert read(realm, "nurse") == [] and registered() == [("nurse-1", 1), ("nurse-1", 2)], "not matched yet"
    pump(realm, TOPIC)
    assert read(realm, "nurse") == [120, 130] and registered() == [("nurse-1", 2)]
    assert read(realm, "nurse") == [120, 130] and registered() == [("nurse-1", 2)], "and it does not come again"
    assert audit(realm).ok


def test_a_filter_of_an_epoch_long_ago_or_to_come_is_refused(realm: Realm) -> None:
    from sealcast.protections.searchable.keys import user_keys

    for _ in range(4):
        realm.rotate(TOPIC)
    state = realm.state()
    credential = realm.issuer().credential(state, TOPIC, "nurse", realm.clock())
    given, taken = realm.identity("nurse").topic_keys(state, TOPIC), list[int]()
    for epoch in range(8):
        text = user_keys(given, state.topic(TOPIC), epoch, "nurse").seal_filter([[[b"label"]]]).to_text()
        try:
            realm.registry.apply_many([AddSubscription(f"f{epoch}", TOPIC, "nurse", text, credential)])
            taken.append(epoch)
        except Rejected:
            continue
    assert taken == [2, 3, 4, 5]


def test_after_a_compromise_nothing_that_is_delivered_late_opens_with_stolen_keys(tmp_path: Path) -> None:
    realm = a_realm(tmp_path / "realm")
    realm.subscribe(TOPIC, "nurse", "pulse > 100")
    publish(realm, 120, 130)
    pump(realm, TOPIC)
    thief, then = realm.identity("nurse"), realm.state()
    drill.drill(realm, "nurse")
    realm.subscribe(TOPIC, "doctor", "pulse > 100")
    pump(realm, TOPIC)
    assert read(realm, "doctor") == [120, 130] and audit(realm).ok
    opens = client_side(Searchable()).opens_with(
        realm.state(), TOPIC, "broker", 0, lambda epoch: thief.topic_keys(then, TOPIC, epoch)
    )
    (piece,) = late_pieces(realm)
    for event in range(len(piece)):
        with pytest.raises(SealcastError):
            opens(piece, event, int(piece.use_start[event]))


def test_what_was_delivered_late_is_sealed_again_after_a_compromise(tmp_path: Path) -> None:
    realm = a_realm(tmp_path / "realm")
    publish(realm, 120, 130)
    pump(realm, TOPIC)
    for name in ("nurse", "doctor"):
        realm.subscribe(TOPIC, name, "pulse > 100")
    publish(realm, 140)
    pump(realm, TOPIC)
    drill.drill(realm, "nurse")
    assert read(realm, "doctor") == [120, 130, 140] and audit(realm).ok
    assert all(TOPIC_KEY not in np.asarray(piece.key_kind).tolist() for piece in late_pieces(realm))


def test_what_was_withdrawn_after_a_compromise_does_not_come_again(tmp_path: Path) -> None:
    """The nurse was sent it, and lost it with its right. With a right again, nobody can tell what it has read."""
    realm = a_realm(tmp_path / "realm")
    for name in ("nurse", "doctor"):
        realm.subscribe(TOPIC, name, "pulse > 100")
    publish(realm, 120, 90)
    pump(realm, TOPIC)
    realm.revoke(TOPIC, "nurse", [Right.SUBSCRIBE])
    drill.drill(realm, "porter")
    assert mailed(realm, "nurse") == 0 and mailed(realm, "doctor") == 1
    realm.grant(TOPIC, "nurse", [Right.SUBSCRIBE])
    realm.subscribe(TOPIC, "nurse", "pulse >= 0")
    realm.subscribe(TOPIC, "doctor", "pulse >= 0")
    pump(realm, TOPIC)
    assert read(realm, "nurse") == [] and read(realm, "doctor") == [120, 90]
    assert audit(realm).ok


# --- brokers that lie ---------------------------------------------------------------------------------------------


def _drop(piece: SealedPiece) -> SealedPiece | None:
    return None


def _other_slot(piece: SealedPiece) -> SealedPiece:
    """To the doctor (slot 1), and not to the nurse (slot 0)."""
    return replace(piece, member_bits=b"", members=np.array([1]), member_start=np.array([0, 1]))


def _altered(piece: SealedPiece) -> SealedPiece:
    return replace(piece, bodies=bytes(piece.bodies)[:-1] + bytes([bytes(piece.bodies)[-1] ^ 1]))


@pytest.mark.parametrize(
    ("lie", "found"), [(_drop, ["lost"]), (_other_slot, ["lost", "unexpected"]), (_altered, ["lost"])]
)
def test_check_finds_a_broker_that_lies_about_late_deliveries(realm: Realm, lie: Any, found: list[str]) -> None:
    realm.subscribe(TOPIC, "nurse", "pulse = 1")
    realm.subscribe(TOPIC, "doctor", "pulse = 1")
    publish(realm, 120, 90)
    pump(realm, TOPIC)
    realm.subscribe(TOPIC, "nurse", "pulse > 100")
    publish(realm, 5)
    pump(realm, TOPIC, tamper_late=lie)
    told = audit(realm).as_json()
    assert not told["ok"] and [name for name in ("lost", "unexpected") if told[name]] == found, told["problems"]


def test_check_finds_altered_late_deliveries_that_were_sealed_for_their_reader(realm: Realm) -> None:
    publish(realm, 120, 90)
    pump(realm, TOPIC)
    realm.rotate(TOPIC)
    realm.subscribe(TOPIC, "nurse", "pulse > 100")
    pump(realm, TOPIC, tamper_late=_altered)
    told = audit(realm).as_json()
    assert (told["lost"], told["unexpected"], told["duplicated"]) == (1, 0, 0), told["problems"]


@pytest.mark.parametrize(
    "protection", [n for n, kind in PROTECTIONS.items() if kind.readers_hold_key and not kind.peers]
)
def test_check_has_nothing_to_say_of_what_was_sealed_again_after_a_compromise(tmp_path: Path, protection: str) -> None:
    realm = Realm.create(tmp_path / "realm")
    realm.create_topic(TOPIC, SCHEMA, protection=protection, access="members")
    realm.enrol_many(["monitor", "second", "nurse", "doctor", "porter"])
    for name in ("nurse", "doctor", "porter"):
        realm.subscribe(TOPIC, name, "pulse > 100")
    publish(realm, 120, 130, 90)
    pump(realm, TOPIC)
    drill.drill(realm, "nurse")
    (each,) = witness_side(protection_of(protection)).audits(realm, TOPIC, by_reference=False)
    report = each.run(lambda done: None)
    assert report.ok and report.deliveries == 4, report.problems


def test_check_finds_what_a_broker_delivers_late_for_the_second_time(
    realm: Realm, monkeypatch: pytest.MonkeyPatch
) -> None:
    from sealcast.protections.searchable.late import HadBefore

    realm.subscribe(TOPIC, "nurse", "pulse > 100")
    publish(realm, 120)
    pump(realm, TOPIC)
    with monkeypatch.context() as patched:
        patched.setattr(HadBefore, "has", lambda self, admitted, slot, event: np.zeros(slot.size, np.bool_))
        realm.subscribe(TOPIC, "nurse", "pulse > 50")
        pump(realm, TOPIC)
    with Subscriber(realm, TOPIC, as_="nurse") as reader:
        assert reader.lag() == 2
        assert [event.attributes["pulse"] for event in reader] == [120] and reader.dropped.repeated == 1
    told = audit(realm).as_json()
    assert (told["duplicated"], told["lost"], told["unexpected"]) == (1, 0, 0), told["problems"]


def test_check_finds_late_deliveries_where_nothing_is_retained(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    realm = a_realm(tmp_path / "realm", retain_events=0)
    publish(realm, 120)
    pump(realm, TOPIC)
    realm.subscribe(TOPIC, "nurse", "pulse > 100")
    with monkeypatch.context() as patched:
        patched.setattr(Searchable, "retention", property(lambda self: Retention(10, 3600)))
        pump(realm, TOPIC)
    assert read(realm, "nurse") == [120]
    told = audit(realm).as_json()
    assert told["unexpected"] == 1, told["problems"]


# --- several brokers ----------------------------------------------------------------------------------------------


def settled(realm: Realm, name: str) -> bool:
    return not client_side(Searchable()).move(realm, TOPIC, name, None)


def test_a_filter_is_owed_by_the_broker_that_served_its_subscriber_when_it_came(realm: Realm) -> None:
    """It moves before anything was matched: the old broker does so first, and the new one leaves it out."""
    realm.add_broker("other", [TOPIC])
    realm.subscribe(TOPIC, "nurse", "pulse = 255")
    publish(realm, 120)
    pump(realm, TOPIC)
    realm.subscribe(TOPIC, "nurse", "pulse > 100")
    client_side(Searchable()).move(realm, TOPIC, "nurse", "other")
    from sealcast.overlay.relay import Relay

    with Relay(realm, ["broker", "other"], [TOPIC]) as relay:
        relay.once()
    pump(realm, TOPIC, broker="other")
    assert not settled(realm, "nurse"), "the filter has not met what the old broker retains"
    pump(realm, TOPIC)
    publish(realm, 130)
    pump(realm, TOPIC)
    with Relay(realm, ["broker", "other"], [TOPIC]) as relay:
        relay.once()
    pump(realm, TOPIC, broker="other")
    assert settled(realm, "nurse")
    assert read(realm, "nurse") == [120, 130]
    assert audit(realm).ok


# --- everything at once -------------------------------------------------------------------------------------------


@dataclass
class Truth:
    """What everyone should have got, by plaintext: filters meet events of their own batch, or the first batch after
    they came, as far as that is retained."""

    realm: Realm
    retain: int
    texts: dict[str, str] = field(default_factory=dict)
    waiting: list[tuple[int, Event]] = field(default_factory=list)
    batches: list[list[tuple[int, Event]]] = field(default_factory=list)
    known: set[str] = field(default_factory=set)
    got: dict[str, list[bytes]] = field(default_factory=dict)

    def publish(self, by: str, events: Sequence[Event]) -> None:
        with Publisher(self.realm, TOPIC, as_=by) as publisher:
            publisher.publish(list(events))
        epoch = self.realm.state().topic(TOPIC).epoch
        self.waiting += [(epoch, event) for event in events]

    def pump(self) -> None:
        pump(self.realm, TOPIC)
        state = self.realm.state()
        live = {each.id: each.subscriber for each in state.subscriptions_of(TOPIC)}
        may = {name for name in live.values() if state.may_subscribe(TOPIC, name)}
        new = set(live) - self.known
        retained, left = list[list[tuple[int, Event]]](), self.retain
        for batch in reversed(self.batches):
            if left <= 0:
                break
            retained.insert(0, batch)
            left -= len(batch)
        for batch in retained:
            self._deliver(batch, {id: who for id, who in live.items() if id in new and who in may})
        self._deliver(self.waiting, {id: who for id, who in live.items() if who in may})
        self.batches.append(self.waiting)
        self.waiting, self.known = [], set(live) | self.known

    def _deliver(self, events: Sequence[tuple[int, Event]], asking: dict[str, str]) -> None:
        for epoch, event in events:
            for id, who in asking.items():
                own, of = own_id(id)
                mine = self.got.setdefault(who, [])
                if of == epoch and event.payload not in mine and true(self.texts[own], event):
                    mine.append(event.payload)


def true(text: str, event: Event) -> bool:
    return evaluate(fit(parse(text), SCHEMA), SCHEMA.parse(event.attributes)) is True


ACTS = ("subscribe", "subscribe", "publish", "publish", "publish", "pump", "pump", "end", "rotate", "right")


def campaign(realm: Realm, seed: int, steps: int, retain: int) -> Truth:
    """Random subscriptions, publications, batches, leavers and epochs, in any order."""
    dice, truth, readers, number = Random(seed), Truth(realm, retain), ["nurse", "doctor", "porter"], 0
    side = client_side(Searchable())
    for _ in range(steps):
        act = dice.choice(ACTS)
        who = dice.choice(readers)
        may = realm.state().may_subscribe(TOPIC, who)
        if act == "subscribe" and may:
            with side.interests(realm, TOPIC, who) as interests:
                text = dice.choice(FILTERS)
                truth.texts[str(interests.add(text).id)] = text
        elif act == "end" and may:
            with side.interests(realm, TOPIC, who) as interests:
                own = [str(each.id) for each in interests.filters()]
                if own:
                    interests.remove([dice.choice(own)])
        elif act == "publish":
            count = dice.randint(1, 4)
            wards = [dice.choice(["Hearts", "Heads", "Eyes"]) for _ in range(count)]
            pulses = [dice.choice([7, dice.randrange(256)]) for _ in range(count)]
            pairs = enumerate(zip(wards, pulses, strict=True), number)
            events = [Event({"ward": w, "pulse": p}, f"{seed} {n}".encode()) for n, (w, p) in pairs]
            number += count
            truth.publish(dice.choice(["monitor", "second"]), events)
        elif act == "pump":
            truth.pump()
        elif act == "rotate" and realm.state().topic(TOPIC).epoch < 6:
            realm.rotate(TOPIC)
        elif act == "right" and may and dice.random() < 0.3:
            realm.revoke(TOPIC, who, [Right.SUBSCRIBE])
        elif act == "right" and not may:
            realm.grant(TOPIC, who, [Right.SUBSCRIBE])
    truth.pump()
    return truth


def agrees(realm: Realm, truth: Truth) -> None:
    for who in ("nurse", "doctor", "porter"):
        due = truth.got.get(who, [])
        assert mailed(realm, who) == len(due), who
        if due and realm.state().may_subscribe(TOPIC, who):
            with Subscriber(realm, TOPIC, as_=who, from_=0) as reader:
                assert [event.payload for event in reader] == due, who
    report = audit(realm)
    assert report.ok, report.problems
    assert report.deliveries == sum(map(len, truth.got.values()))


@pytest.mark.timeout(600)
@pytest.mark.parametrize("seed", range(3))
def test_any_order_of_everything_agrees_with_plaintext_truth(tmp_path: Path, seed: int) -> None:
    retain = (10_000, 6, 15)[seed % 3]
    realm = a_realm(tmp_path / "realm", retain_events=retain, tag_bits=(16, 0, 4)[seed % 3])
    truth = campaign(realm, seed, 45, retain)
    agrees(realm, truth)
    assert sum(piece.deliveries for piece in late_pieces(realm)) > 2, "filters came late"


@pytest.mark.soak
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("seed", range(100, 130))
def test_many_orders_of_everything_agree_with_plaintext_truth(tmp_path: Path, seed: int) -> None:
    retain = (10_000, 6, 15)[seed % 3]
    realm = a_realm(tmp_path / "realm", retain_events=retain, tag_bits=(16, 0, 4)[seed % 3])
    agrees(realm, campaign(realm, seed, 120, retain))
