"""Deliveries that should not be: repeated by a disk writer or a broker, poisoned by a publisher, rerouted by a root.

Each attack is mounted twice: on a reader that lacks the defence, where it succeeds, and on ours.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from sealcast.clients import subscriber as reading
from sealcast.clients.publisher import Publisher
from sealcast.clients.subscriber import Subscriber
from sealcast.errors import CannotOpen, Corrupt, Rejected
from sealcast.log import misrouted
from sealcast.log.embedded import EmbeddedLog
from sealcast.log.entry import Entry, PieceRef
from sealcast.log.had import Had, HadVerdict
from sealcast.log.ledger import LedgerReader
from sealcast.log.mailbox import slot_mailbox
from sealcast.log.offsets import PinnedOffset
from sealcast.model import Event, Schema
from sealcast.model.protection import Endpoint, Layered, Payload, Protection
from sealcast.primitives.groups import Element
from sealcast.protections.checked import CheckedBatch
from sealcast.protections.enveloped import open as enveloped_open
from sealcast.protections.enveloped.client import EnvelopedWay
from sealcast.protections.journals import journal_signer
from sealcast.protections.layered import keys as layered_keys
from sealcast.protections.layered import open as layered_open
from sealcast.protections.layered import reports
from sealcast.protections.layered.client import LayeredInbox
from sealcast.protections.layered.interests import LayeredInterests
from sealcast.protections.layered.node import HOPS, HopStep
from sealcast.protections.layered.route import RoutingNode
from sealcast.protections.layered.tree import Path as Hops
from sealcast.protections.port import Messages
from sealcast.protections.steps import StepName
from sealcast.trust.deployment import Realm
from sealcast.wire import cbor, hops
from tests.cli.shell import sealcast
from tests.clients import layered_pump
from tests.clients.pump import pump

SCHEMA = Schema.from_json({"attributes": [{"name": "price", "type": "int", "min": 0, "max": 255}]})


def made_realm(directory: Path, protection: Protection) -> Realm:
    realm = Realm.create(directory)
    nodes = 2 if protection.overlay else None
    realm.create_topic("quotes", SCHEMA, protection=protection, access="members", nodes=nodes)
    realm.enrol_many(["nyse", "mallory", "alice", "bob"])
    for name in ("alice", "bob"):
        if protection.overlay:
            realm.place_subscriber("quotes", name, "quotes-node-2")
            with LayeredInterests(realm, "quotes", name) as interests:
                interests.add("price < 100")
        else:
            realm.subscribe("quotes", name, "price < 100")
    return realm


@pytest.fixture(scope="module")
def endpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Made once, as the others are: tests work on copies."""
    return made_realm(tmp_path_factory.mktemp("endpoint") / "realm", Endpoint()).paths.root


@pytest.fixture(scope="module")
def payload(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return made_realm(tmp_path_factory.mktemp("payload") / "realm", Payload()).paths.root


@pytest.fixture(scope="module")
def layered(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return made_realm(tmp_path_factory.mktemp("layered") / "realm", Layered(2)).paths.root


def copied(made: Path, tmp_path: Path) -> Realm:
    shutil.copytree(made, tmp_path / "realm")
    return Realm(tmp_path / "realm")


def publish(realm: Realm, *prices: int, by: str = "nyse") -> None:
    with Publisher(realm, "quotes", by) as out:
        out.publish([Event({"price": price}, str(price).encode()) for price in prices])


def read(realm: Realm, *, ack: bool = True) -> tuple[list[int], reading.DroppedEvents]:
    with Subscriber(realm, "quotes", "alice") as reader:
        got = [int(event.payload) for event in reader]
        if ack:
            reader.ack()
        return got, reader.dropped


# --- repeated by whoever can write the broker's files ------------------------------------------------------


def repeat_last_record(ledger: Path) -> None:
    """Without a key: the last record once more, as if it followed itself, and the log's own chain is right."""
    with EmbeddedLog(ledger) as log:
        (last,) = log.read(log.end() - 1)
        outer = cbor.decode(last.data)
        body = {**cbor.decode(outer[1]), "previous": outer[2]}
        log.append([cbor.encode({**outer, 1: cbor.encode(body), 2: os.urandom(32)})])


def test_a_record_that_a_disk_writer_repeats_is_refused(endpoint: Path, tmp_path: Path) -> None:
    realm = copied(endpoint, tmp_path)
    publish(realm, 1, 2, 200)
    pump(realm, "quotes")
    paths, slot = realm.paths.topic("quotes"), realm.state().slots_of("quotes")["alice"]
    repeat_last_record(paths.ledger)
    unsuspecting = slot_mailbox(paths.root, slot, "alice")
    assert len(list(unsuspecting.deliveries())) == 4, "without the broker's signature, each event comes twice"
    with Subscriber(realm, "quotes", "alice") as reader, pytest.raises(Corrupt, match="broker's signature"):
        reader.poll()


@pytest.mark.parametrize("forge", ["unsigned", "another's", "another topic's"])
def test_only_the_brokers_own_signature_counts(endpoint: Path, tmp_path: Path, forge: str) -> None:
    realm = copied(endpoint, tmp_path)
    publish(realm, 1)
    pump(realm, "quotes")
    about, paths, state = realm.state().topic("quotes"), realm.paths.topic("quotes"), realm.state()
    by = journal_signer(state, about, "broker")
    assert LedgerReader(paths.ledger, by).verify() == 1
    if forge == "another's":
        by = journal_signer(state, about, "mallory")
    elif forge == "another topic's":
        by = by._replace(scope=bytes(16))
    else:
        (record,) = EmbeddedLog(paths.ledger, read_only=True).read(0)
        outer = cbor.decode(record.data)
        with EmbeddedLog(tmp_path / "stripped") as log:
            log.append([cbor.encode({1: outer[1], 2: outer[2]})])
        assert LedgerReader(tmp_path / "stripped").verify() == 1
        with pytest.raises(Corrupt, match="broker's signature"):
            LedgerReader(tmp_path / "stripped", by).verify()
        return
    with pytest.raises(Corrupt, match="broker's signature"):
        LedgerReader(paths.ledger, by).verify()


# --- repeated by a broker -------------------------------------------------------------------------------------


def append_again(realm: Realm) -> None:
    """Every frame in the topic's log once more, as a carrier that repeats does."""
    with realm.frames("quotes") as log:
        for partition in range(log.partitions):
            part = log.partition(partition)
            part.append([record.data for record in part.read(0)])


@pytest.mark.parametrize("protection", ["endpoint", "payload"])
def test_events_that_a_broker_delivers_again_are_handed_out_once(
    protection: str, tmp_path: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    realm = copied(request.getfixturevalue(protection), tmp_path)
    publish(realm, 1, 2, 3)
    pump(realm, "quotes")
    append_again(realm)
    pump(realm, "quotes", forgetful=True)
    with monkeypatch.context() as without:
        without.setattr(Had, "judge", lambda self, event: HadVerdict.FRESH)
        assert read(realm, ack=False)[0] == [1, 2, 3, 1, 2, 3]
    got, dropped = read(realm)
    assert got == [1, 2, 3] and dropped.repeated == 3
    append_again(realm)  # and after it was acknowledged, to a reader that starts anew
    publish(realm, 4)
    pump(realm, "quotes", forgetful=True)
    got, dropped = read(realm)
    assert got == [4] and dropped.repeated == 3
    with Subscriber(realm, "quotes", "alice", from_=0) as reader:
        assert [int(event.payload) for event in reader] == [1, 2, 3, 4], "whoever asks for them again gets them once"


def test_what_was_not_acknowledged_comes_again_and_a_mark_is_kept_to(endpoint: Path, tmp_path: Path) -> None:
    realm = copied(endpoint, tmp_path)
    publish(realm, 1, 2, 3, 4)
    pump(realm, "quotes")
    with Subscriber(realm, "quotes", "alice") as reader:
        reader.poll(1)
        first = reader.handed_out
        reader.poll(1)
        reader.handed_out  # noqa: B018
        reader.poll(1)
        reader.ack(first)
    with Subscriber(realm, "quotes", "alice") as reader:
        assert [int(event.payload) for event in reader] == [2, 3, 4]
        assert not reader.dropped
        reader.ack()
        assert reader.lag() == 0
    append_again(realm)
    pump(realm, "quotes", forgetful=True)
    got, dropped = read(realm)
    assert got == [] and dropped.repeated == 4


def test_a_layered_broker_that_hands_out_the_same_under_other_offsets(
    layered: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    realm = copied(layered, tmp_path)
    publish(realm, 1, 2)
    layered_pump.pump(realm, "quotes")
    node = HopStep.of(StepName(str(realm.paths.root), "quotes", "quotes-node-2", HOPS))
    last = node.ledger.last()
    assert last is not None
    (ref,) = last.entry.pieces
    piece = hops.parse(node.pieces.read(ref.name, ref.digest))
    size = ref.end - ref.first
    shifted = replace(piece, first_offset=ref.end, end_offset=ref.end + size)
    staged = node.pieces.stage(ref.partition, ref.end, ref.end + size, hops.encode(shifted))
    start = last.entry.end
    reached = tuple(at + size * (p == ref.partition) for p, at in enumerate(start.partitions))
    again = PieceRef(staged.name, staged.digest, staged.size, ref.partition, ref.end, ref.end + size, 2, 2, 2)
    end = PinnedOffset(reached, start.version, start.time_us)
    node.ledger.commit(Entry("test", last.entry.batch + 1, start, end, (again,), dict(last.entry.counts)))
    with monkeypatch.context() as without:
        without.setattr(Had, "judge", lambda self, event: HadVerdict.FRESH)
        assert read(realm, ack=False)[0] == [1, 2, 1, 2]
    got, dropped = read(realm)
    assert got == [1, 2] and dropped.repeated == 2


# --- poisoned by a publisher ------------------------------------------------------------------------------------


def test_a_publishers_random_body_is_passed_over_and_its_publisher_named(
    layered: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    realm = copied(layered, tmp_path)
    with monkeypatch.context() as poison:
        poison.setattr(layered_keys, "seal_body", lambda key, record: os.urandom(len(record) + 64))
        publish(realm, 7, by="mallory")
    publish(realm, 1, 2, 3)
    layered_pump.pump(realm, "quotes")
    with monkeypatch.context() as without:
        without.setattr(layered_open, "poisoned_by", lambda *about: nullcontext())
        with Subscriber(realm, "quotes", "alice") as reader:
            for _ in range(2):
                with pytest.raises(CannotOpen):
                    list(reader)
                reader.ack()
            assert reader.lag() > 0, "a reader without the defence never comes past it"
    with Subscriber(realm, "quotes", "alice") as reader:
        assert [int(event.payload) for event in reader] == [1, 2, 3]
        assert reader.dropped.poisoned == {"mallory": 1}
        reader.ack()
        assert reader.lag() == 0
    assert read(realm)[0] == []


def test_a_publisher_that_signs_anothers_event_again_stops_nobody(
    payload: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    realm, sent = copied(payload, tmp_path), list[Messages]()
    inner = EnvelopedWay.messages

    def kept(self: EnvelopedWay, batch: CheckedBatch) -> Iterator[Messages]:
        sent.extend(inner(self, batch))
        return iter(sent)

    with monkeypatch.context() as listening:
        listening.setattr(EnvelopedWay, "messages", kept)
        publish(realm, 1)
    with monkeypatch.context() as copying:
        copying.setattr(EnvelopedWay, "messages", lambda self, batch: iter(sent))
        publish(realm, 1, by="mallory")
    publish(realm, 2, 3)
    pump(realm, "quotes")
    with monkeypatch.context() as without:
        without.setattr(enveloped_open, "poisoned_by", lambda *about: nullcontext())
        with Subscriber(realm, "quotes", "alice") as reader, pytest.raises(CannotOpen):
            list(reader)
    got, dropped = read(realm)
    assert got == [1, 2, 3] and dropped.poisoned == {"mallory": 1}
    reports = list[str]()
    with Subscriber(realm, "quotes", "bob", unopenable=lambda at, error: reports.append(error.message)) as reader:
        assert len(list(reader)) == 3
    assert len(reports) == 1 and "which mallory signed" in reports[0]


# --- rerouted by a root -----------------------------------------------------------------------------------------


def reroute_everything(monkeypatch: pytest.MonkeyPatch) -> None:
    """An active root: beside every event's key it puts the tokens of every row that it has, whatever the event is. Keys
    are not bound to tokens, so the brokers below match and hand on, and whoever asked for those rows can open it."""
    inner = RoutingNode.secure_look_up

    def look_up(self: RoutingNode, tokens: Sequence[bytes]) -> Mapping[Hops, set[Element]]:
        if self.place.parent != self.place.publisher:
            return inner(self, tokens)
        found: dict[Hops, set[Element]] = {}
        for row in self.table.rows():
            for path in row.paths:
                found.setdefault(path, set()).update(token for slot in row.slots for token in slot)
        return found

    monkeypatch.setattr(RoutingNode, "secure_look_up", look_up)


def test_what_an_active_root_reroutes_is_dropped_and_counted(
    layered: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A root and one subscriber below it read every event: brokers cannot prevent that. An honest subscriber hands
    nothing of it out, and says that it was misrouted."""
    realm = copied(layered, tmp_path)
    with monkeypatch.context() as active:
        reroute_everything(active)
        publish(realm, *range(150, 160))
        layered_pump.pump(realm, "quotes")
    publish(realm, 5, 151)
    layered_pump.pump(realm, "quotes")
    with monkeypatch.context() as colluding:
        colluding.setattr(LayeredInbox, "unwanted", lambda self, opened: ())
        assert read(realm, ack=False)[0] == [*range(150, 160), 5], "its friend below reads them all"
    got, dropped = read(realm)
    assert got == [5] and dropped.misrouted == 10 and not dropped.poisoned
    (report,) = sealcast("audit", "--realm", realm.paths.root, "--json").document["misrouted"]
    assert (report["entity"], report["events"], report["signed"]) == ("alice", 10, True)
    assert [each["publisher"] for each in report["first"]] == ["nyse"] * 8
    told = sealcast("audit", "--realm", realm.paths.root)
    assert "did not ask for" in told.out and "alice" in told.out
    assert "10 events, as readers report" in sealcast("status", "--realm", realm.paths.root).out


@pytest.mark.parametrize("verified", [True, False])
def test_nobody_reports_in_anothers_name(
    layered: Path, tmp_path: Path, verified: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Somebody hands in a report that its reader has not signed, and a reader more of them than are kept. Without the
    check it is kept, and shown as unsigned."""
    realm = copied(layered, tmp_path)
    home = realm.state().overlay("quotes").places["alice"]
    handle = reports.report_requests(realm, home)[reports.Misrouted.KIND]
    event = ("nyse", b"boot", 1)
    forged = reports.Misrouted("quotes", 1, (event,), 1, bytes(64)).to_bytes()

    def handed_in(name: str, body: bytes) -> object:
        message = SimpleNamespace(kind=reports.Misrouted.KIND, body=body)
        proven: Any = SimpleNamespace(message=message, sender=SimpleNamespace(name=name))
        return cbor.decode(handle(proven, 2).body)

    if verified:
        with pytest.raises(Rejected, match="not signed by its sender"):
            handed_in("alice", forged)
        with pytest.raises(Rejected, match="no such topic that its sender reads here"):
            handed_in("nyse", forged)
    else:
        monkeypatch.setattr(reports, "is_signed", lambda state, note: True)
        assert handed_in("alice", forged) == [True]
        (shown,) = sealcast("audit", "--realm", realm.paths.root, "--json").document["misrouted"]
        assert not shown["signed"]
    signer, about = realm.identity("alice").signer, realm.state().topic("quotes").id
    kept = list[object]()
    for at in range(misrouted.MAX_KEPT_EACH + 1):
        made = reports.Misrouted("quotes", 1, (event,), at, bytes(64))
        signed = replace(made, signature=signer.sign(reports.said(realm.id, about, "alice", made)))
        kept.append(handed_in("alice", signed.to_bytes()))
    assert kept[0] == [True] and kept[-1] == [False], "what is kept is bounded"


def test_what_was_asked_for_once_is_not_misrouted(layered: Path, tmp_path: Path) -> None:
    """Neither what was delivered for a filter that is over, nor for one that another process has just added."""
    realm = copied(layered, tmp_path)
    publish(realm, 1)
    layered_pump.pump(realm, "quotes")
    with LayeredInterests(realm, "quotes", "alice") as interests, Subscriber(realm, "quotes", "alice") as reader:
        assert [int(event.payload) for event in reader] == [1]
        interests.add("price = 200", "more")
        publish(realm, 2, 200)
        layered_pump.pump(realm, "quotes")
        interests.remove([each.id for each in interests.filters() if each.id != "more"])
        publish(realm, 3, 200)
        layered_pump.pump(realm, "quotes")
        assert [int(event.payload) for event in reader] == [2, 200, 200]
        assert not reader.dropped
    with Subscriber(realm, "quotes", "alice", from_=0) as reader:
        assert [int(event.payload) for event in reader] == [1, 2, 200, 200]
    pasts = list((realm.paths.root / "wallets" / "alice").rglob("past/*.key"))
    assert len(pasts) == 1 and b"price" not in pasts[0].read_bytes(), "a past filter is as secret as the others"
