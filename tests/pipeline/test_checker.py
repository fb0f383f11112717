"""The ledger checker: a clean topic passes, and every kind of damage is found, counted and named, and no other kind."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from sealcast.broker.context import Context
from sealcast.broker.path import handle
from sealcast.broker.rulings import admitted_before
from sealcast.clients.publisher import Publisher, partition_of
from sealcast.clients.subscriber import Subscriber
from sealcast.log.embedded import EmbeddedLog, EmbeddedTopic
from sealcast.log.entry import Entry, PieceRef, slot_bits
from sealcast.log.ledger import GENESIS, LedgerReader
from sealcast.log.pieces import Pieces
from sealcast.log.port import Record
from sealcast.model import Event, Schema
from sealcast.model.stages import Ruled
from sealcast.primitives.secrets import Secret
from sealcast.protections.endpoint.audit import EndpointAudit
from sealcast.protections.endpoint.broker import EndpointStep
from sealcast.protections.frames import FrameSealer
from sealcast.protections.steps import StepName
from sealcast.protections.witness.report import CheckReport, Kind
from sealcast.trust.deployment import Realm
from sealcast.wire import sealed
from sealcast.wire.records import RecordCodec
from sealcast.wire.sealed import SealedPiece
from tests.clients.pump import pump
from tests.copies import copy_realm
from tests.wire.mailboxes import of_deliveries

SCHEMA = Schema.from_json(
    {
        "attributes": [
            {"name": "symbol", "type": "string", "max_length": 4},
            {"name": "price", "type": "decimal", "min": 0, "max": 1000, "step": "0.01"},
        ]
    }
)
FILTERS = {
    "alice": ["symbol = 'A'", "price > 500"],
    "bob": ["price BETWEEN 100 AND 300 AND symbol <> 'B'"],
    "carol": ["symbol LIKE 'C%' OR price IS NULL"],
    "dave": ["symbol IN ('A', 'B', 'C')"],
}
#: One publisher a partition.
PUBLISHERS = ["p0", next(f"p{n}" for n in range(1, 99) if partition_of(f"p{n}", 2) != partition_of("p0", 2))]
DAMAGE = frozenset(Kind)


def events(seed: int, count: int) -> list[Event]:
    random = np.random.default_rng(seed)
    made = []
    for _ in range(count):
        attributes: dict[str, object] = {"symbol": str(random.choice(["A", "B", "C", "CC", "D"]))}
        if random.random() > 0.1:
            attributes["price"] = f"{random.integers(0, 100_000) / 100:.2f}"
        made.append(Event(attributes, b"payload"))
    return made


def publish(realm: Realm, seed: int, count: int = 40) -> None:
    for number, name in enumerate(PUBLISHERS):
        with Publisher(realm, "t", as_=name) as publisher:
            publisher.publish(events(seed + 100 * number, count))
            publisher.publish(events(seed + 100 * number + 50, count // 2))


@pytest.fixture(scope="module")
def pristine(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three batches under three versions: somebody comes, somebody loses the right to read, a frame is refused."""
    root = tmp_path_factory.mktemp("checker") / "realm"
    realm = Realm.create(root)
    realm.create_topic("t", SCHEMA, partitions=2, access="members")
    realm.enrol_many([*FILTERS, *PUBLISHERS])
    for name, filters in FILTERS.items():
        for text in filters[:1]:
            realm.subscribe("t", name, text)
    publish(realm, 1)
    pump(realm, "t")
    realm.subscribe("t", "alice", FILTERS["alice"][1])
    realm.revoke("t", "dave")
    publish(realm, 2)
    EmbeddedTopic(realm.paths.topic("t").frames_root).partition(0).append([b"not a frame"])
    pump(realm, "t")
    realm.grant("t", "dave")
    publish(realm, 3)
    pump(realm, "t")
    return root


@pytest.fixture
def realm(pristine: Path, tmp_path: Path) -> Realm:
    copy_realm(pristine, tmp_path / "realm")
    return Realm(tmp_path / "realm")


def check(realm: Realm, **options: bool) -> CheckReport:
    return EndpointAudit(realm, "t", **options).run()


def only(report: CheckReport, **found: int) -> None:
    """These kinds were found, so often, and nothing else."""
    assert {str(k): n for k, n in report.found.items() if n} == {k.replace("_", "-"): n for k, n in found.items()}
    assert report.ok is not bool(found)


# --- a bad broker, who has the key ----------------------------------------------------------------------


def journal_key(realm: Realm) -> Secret:
    return realm.broker().journal_key(realm.state().topic("t").id)


def entries(realm: Realm) -> list[Entry]:
    with LedgerReader(realm.paths.topic("t").ledger) as ledger:
        return [committed.entry for committed in ledger.entries()]


def rewrite(realm: Realm, records: Sequence[Entry], key: Secret | None = None) -> None:
    """Another ledger in place of the one there, authentic if `key` is the right one; no rule of ours is asked."""
    directory = realm.paths.topic("t").ledger
    shutil.rmtree(directory)
    log, previous = EmbeddedLog(directory), GENESIS
    sealer = LedgerReader(directory, key or journal_key(realm))
    for entry in records:
        record, previous = sealer._sealed(entry.encode(previous))
        log.append([record])
    log.close()


def read(realm: Realm, ref: PieceRef) -> SealedPiece:
    return sealed.parse(Pieces(realm.paths.topic("t").pieces).read(ref.name, ref.digest))


def restage(realm: Realm, ref: PieceRef, piece: SealedPiece) -> PieceRef:
    """The piece as a committed one would be described."""
    data = sealed.encode(piece)
    staged = Pieces(realm.paths.topic("t").pieces).stage(ref.partition, ref.first, ref.end, data)
    numbers = (len(piece), len(piece.mailbox_event), len(piece.uses))
    slots = slot_bits(np.asarray(piece.slots).tolist())
    return PieceRef(staged.name, staged.digest, staged.size, ref.partition, ref.first, ref.end, *numbers, slots)


def alter(realm: Realm, change: Callable[[SealedPiece], SealedPiece], record: int = 0, number: int = 0) -> None:
    """One piece replaced, its record and counts made to fit, everything signed again."""
    records = entries(realm)
    refs = list(records[record].pieces)
    before = read(realm, refs[number])
    after = change(before)
    refs[number] = restage(realm, refs[number], after)
    counts = dict(records[record].counts)
    for name in {*before.counts, *after.counts}:
        counts[name] = counts.get(name, 0) + after.counts.get(name, 0) - before.counts.get(name, 0)
    records[record] = replace(records[record], pieces=tuple(refs), counts=counts)
    rewrite(realm, records)


def test_late_pieces_where_brokers_deliver_nothing_late_are_found(realm: Realm) -> None:
    records = entries(realm)
    before = records[0].pieces[0]
    piece = replace(read(realm, before), version=records[2].version)
    late, counts = restage(realm, before, piece), dict(records[2].counts)
    for name, count in piece.counts.items():
        counts[name] = counts.get(name, 0) + count
    records[2] = replace(records[2], pieces=(late, *records[2].pieces), counts=counts, late=1)
    rewrite(realm, records)
    report = check(realm)
    only(report, ledger=1)
    assert "an earlier batch has delivered" in report.problems[0].message


def mailboxes(piece: SealedPiece) -> list[tuple[int, int, int]]:
    """(slot, event, use)"""
    starts = np.asarray(piece.mailbox_start, np.int64)
    slots = np.repeat(np.asarray(piece.slots, np.int64), starts[1:] - starts[:-1]).tolist()
    return list(zip(slots, piece.mailbox_event.tolist(), piece.mailbox_use.tolist(), strict=True))


def with_mailboxes(piece: SealedPiece, rows: list[tuple[int, int, int]]) -> SealedPiece:
    counts = {**piece.counts, "deliveries": len(rows)}
    return replace(piece, **of_deliveries(rows, piece.use_start), counts=counts)


# --- nothing is wrong -----------------------------------------------------------------------------------


@pytest.mark.parametrize("by_reference", [False, True])
def test_a_clean_topic_passes(realm: Realm, by_reference: bool) -> None:
    report = check(realm, by_reference=by_reference)
    only(report)
    pieces = [read(realm, ref) for entry in entries(realm) for ref in entry.pieces]
    assert report.batches == 3
    assert report.events == 3 * 2 * 60
    assert report.deliveries == sum(len(piece.mailbox_event) for piece in pieces) > 300
    assert report.problems == [] and report.waiting == 0


def test_what_waits_for_the_pipeline_is_not_lost(realm: Realm) -> None:
    publish(realm, 9)
    report = check(realm)
    only(report)
    assert report.waiting == 4


def test_a_topic_that_never_ran_is_fine(tmp_path: Path) -> None:
    realm = Realm.create(tmp_path / "r")
    realm.create_topic("t", SCHEMA, access="members")
    report = check(realm)
    only(report)
    assert (report.batches, report.events) == (0, 0)


def test_it_needs_no_spark() -> None:
    loaded = "any(m.split('.')[0] in ('pyspark', 'py4j') for m in sys.modules)"
    code = f"import sealcast.protections.endpoint.audit, sys; sys.exit({loaded})"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


# --- deliveries -----------------------------------------------------------------------------------------


def test_a_lost_delivery_is_found_and_named(realm: Realm) -> None:
    gone: list[str] = []

    def drop(piece: SealedPiece) -> SealedPiece:
        rows = mailboxes(piece)
        slot, event, _ = rows[7]
        gone.append(f"event {piece.position(event)} for {list(realm.state().slots_of('t'))[slot]}")
        return with_mailboxes(piece, rows[:7] + rows[8:])

    alter(realm, drop, record=1)
    report = check(realm)
    only(report, lost=1)
    assert f"{gone[0]} was not delivered" in report.problems[0].message


def test_an_unexpected_delivery_is_found(realm: Realm) -> None:
    def add(piece: SealedPiece) -> SealedPiece:
        rows = mailboxes(piece)
        had = {(slot, event) for slot, event, _ in rows}
        slot, event = next((s, e) for s in (0, 1, 2) for e in range(len(piece)) if (s, e) not in had)
        return with_mailboxes(piece, [*rows, (slot, event, int(piece.use_start[event]))])

    alter(realm, add)
    only(check(realm), unexpected=1)


def test_a_batch_under_an_outdated_table_is_found(realm: Realm) -> None:
    """Sealed properly, but for somebody whose right was gone: as if the broker had not looked at the new version."""
    records = entries(realm)
    outdated, current = records[0].version, records[1].version
    ref = records[1].pieces[1]
    found = EmbeddedTopic(realm.paths.topic("t").frames_root, read_only=True).partition(ref.partition)
    frames = list(found.read(ref.first, ref.end))
    forged = replace(
        handle(fresh(ref.partition, frames), at_version(realm, outdated)),
        version=current,
    )
    alter(realm, lambda piece: forged, record=1, number=1)
    report = check(realm)
    # dave could read at the outdated version; alice had one filter less
    assert report.found[Kind.UNEXPECTED] > 0 and report.found[Kind.LOST] > 0
    assert {k for k, n in report.found.items() if n} == {Kind.UNEXPECTED, Kind.LOST}
    assert any("for dave was delivered and should not" in p.message for p in report.problems)
    assert any("for alice was not delivered" in p.message for p in report.problems)


def test_a_delivery_that_its_receiver_cannot_open_is_lost(realm: Realm) -> None:
    def spoil(piece: SealedPiece) -> SealedPiece:
        wraps = bytearray(piece.wraps)
        wraps[5] ^= 1
        return replace(piece, wraps=bytes(wraps))

    alter(realm, spoil)
    report = check(realm)
    only(report, lost=1)
    assert "does not open" in report.problems[0].message


def test_a_body_that_is_another_event_is_lost_for_everyone(realm: Realm) -> None:
    readers: list[int] = []

    def spoil(piece: SealedPiece) -> SealedPiece:
        bodies = bytearray(piece.bodies)
        event = int(np.flatnonzero(piece.wrapped)[0])
        bodies[int(piece.body_start[event])] ^= 1
        readers.append(sum(e == event for _, e, _ in mailboxes(piece)))
        return replace(piece, bodies=bytes(bodies))

    alter(realm, spoil)
    only(check(realm), lost=readers[0])


def test_a_batch_delivered_twice_is_found(realm: Realm) -> None:
    records = entries(realm)
    twice = sum(ref.deliveries for ref in records[0].pieces)
    rewrite(realm, [*records, replace(records[0], batch=3)])
    only(check(realm), duplicated=twice, ledger=1)


def test_a_frame_replayed_into_the_log_is_refused_and_the_checker_agrees(realm: Realm) -> None:
    replay_into_the_log(realm)
    assert pump(realm, "t")["rejected_replay"] == 40
    assert check(realm).ok


def test_a_broker_that_forgets_what_it_saw_is_found(realm: Realm) -> None:
    """It admits the replayed frame (its signature is right), so that the same numbers of one boot come twice."""
    replay_into_the_log(realm)
    counts = pump(realm, "t", forgetful=True)
    # That it must be refused, and that the piece counts it as admitted.
    only(check(realm), unexpected=counts["deliveries"], refused=2)


def replay_into_the_log(realm: Realm) -> None:
    log = EmbeddedTopic(realm.paths.topic("t").frames_root).partition(0)
    log.append([next(iter(log.read(0, 1))).data])


def at_version(realm: Realm, version: int) -> Context:
    return EndpointStep(StepName(str(realm.paths.root), "t")).at(version)


def fresh(partition: int, records: list[Record]) -> Ruled:
    """Frames that passed the first checks, without those checks."""
    return admitted_before(partition, records)


def test_pieces_in_the_wrong_order_are_found(realm: Realm) -> None:
    """Two pieces of one partition, the later first: mailboxes follow the ledger's order."""
    records = entries(realm)
    ref = records[2].pieces[0]
    log = EmbeddedTopic(realm.paths.topic("t").frames_root, read_only=True).partition(ref.partition)
    halves: list[PieceRef] = []
    for first, end in ((ref.first + 1, ref.end), (ref.first, ref.first + 1)):
        frames = list(log.read(first, end))
        piece = handle(fresh(ref.partition, frames), at_version(realm, records[2].version))
        halves.append(restage(realm, replace(ref, first=first, end=end), piece))
    rewrite(realm, [*records[:2], replace(records[2], pieces=(*halves, *records[2].pieces[1:]))])
    report = check(realm)
    only(report, out_of_order=report.found[Kind.OUT_OF_ORDER])
    behind = read(realm, halves[1])
    in_both = set(np.asarray(read(realm, halves[0]).slots).tolist())
    assert report.found[Kind.OUT_OF_ORDER] == sum(slot in in_both for slot, _, _ in mailboxes(behind)) > 0


def test_a_publishers_events_in_the_wrong_order_are_found(realm: Realm) -> None:
    state = realm.state()
    about, identity = state.topic("t"), realm.identity(PUBLISHERS[0])
    pair, codec = identity.pair_key(state, "t"), RecordCodec(SCHEMA)
    sealer = FrameSealer(
        codec, about.id, about.epoch, identity.name, pair, identity.signer, token=realm.token("t", identity.name)
    )
    frames = []
    for seed in (1, 2):
        some = events(seed, 10)
        values = [SCHEMA.parse(e.attributes) for e in some]
        now = time.time_ns() // 1000
        frames.append(sealer.seal(values, [e.payload for e in some], [e.content_type for e in some], now))
    log = EmbeddedTopic(realm.paths.topic("t").frames_root).partition(partition_of(identity.name, 2))
    log.append([frames[1]])
    before = pump(realm, "t")
    log.append([frames[0]])
    late = pump(realm, "t")
    assert before["deliveries"] and late["deliveries"]
    only(check(realm), out_of_order=late["deliveries"])


# --- the ledger -----------------------------------------------------------------------------------------


def test_a_ledger_of_somebody_without_the_key_is_found(realm: Realm) -> None:
    rewrite(realm, entries(realm), key=Secret.random())
    report = check(realm)
    assert report.found[Kind.LEDGER] == 3 and not report.ok
    assert "was not written by this broker" in report.problems[0].message


def test_a_record_taken_out_is_found_and_its_events_are_lost(realm: Realm) -> None:
    records = entries(realm)
    rewrite(realm, [records[0], records[2]])
    report = check(realm)
    # Of the events in the gap, those that should have been delivered at the version that follows.
    assert report.found[Kind.LOST] > 0
    assert report.found[Kind.LEDGER] == 3  # it does not follow, and the frames of two partitions are nowhere
    assert {k for k, n in report.found.items() if n} == {Kind.LOST, Kind.LEDGER}


def test_a_piece_left_out_of_its_record_is_found(realm: Realm) -> None:
    records = entries(realm)
    dropped = records[0].pieces[1]
    counts = dict(records[0].counts)
    for name, count in read(realm, dropped).counts.items():
        counts[name] -= count
    rewrite(realm, [replace(records[0], pieces=records[0].pieces[:1], counts=counts), *records[1:]])
    only(check(realm), lost=dropped.deliveries, ledger=1)


def test_a_flipped_byte_in_the_ledger_is_found(realm: Realm) -> None:
    (segment,) = realm.paths.topic("t").ledger.glob("*.seg")
    _flip(segment, segment.stat().st_size - 10)
    report = check(realm)
    assert report.found[Kind.LEDGER] == 1 and str(segment) in report.problems[0].message


def test_a_ledger_cut_short_is_found_by_what_a_subscriber_has_read(realm: Realm) -> None:
    with Subscriber(realm, "t", as_="bob") as subscriber:
        assert list(subscriber)
        subscriber.ack()
    only(check(realm))
    rewrite(realm, entries(realm)[:1])
    report = check(realm)
    only(report, ledger=1)
    assert "bob has read" in report.problems[0].message


def test_another_ledger_than_a_subscriber_has_read_is_found(realm: Realm) -> None:
    with Subscriber(realm, "t", as_="bob") as subscriber:
        list(subscriber)
        subscriber.ack()
    records = entries(realm)
    rewrite(realm, [replace(record, query="another") for record in records])
    report = check(realm)
    only(report, ledger=1)
    assert "is not the one that bob has read" in report.problems[0].message


@pytest.mark.parametrize(("kept", "tampered", "found"), [(3, False, 0), (2, False, 1), (3, True, 1)])
def test_a_ledger_cut_short_is_found_by_what_spark_has_seen(
    realm: Realm, kept: int, tampered: bool, found: int
) -> None:
    records = entries(realm)
    seen = records[2].end.to_json(journal_key(realm))
    if tampered:
        seen["version"] = 1
    checkpoint = realm.paths.topic("t").checkpoint
    for name in ("offsets", "commits"):
        (checkpoint / name).mkdir(parents=True)
        (checkpoint / name / "2").write_text(f"v1\n{{}}\n{json.dumps(seen)}")
    rewrite(realm, records[:kept])
    assert check(realm).found[Kind.LEDGER] == found


# --- pieces, counts, refusals, the log ------------------------------------------------------------------


@pytest.mark.parametrize("damage", ["flip", "cut", "remove"])
def test_a_damaged_piece_is_found_and_its_deliveries_are_lost(realm: Realm, damage: str) -> None:
    ref = entries(realm)[1].pieces[0]
    path = realm.paths.topic("t").pieces / ref.name
    if damage == "flip":
        _flip(path, ref.size // 2)
    elif damage == "cut":
        os.truncate(path, ref.size - 1)
    else:
        path.unlink()
    report = check(realm)
    only(report, lost=ref.deliveries, piece=1, counts=1)
    assert any(ref.name in p.message for p in report.problems if p.kind is Kind.PIECE)


def test_wrong_counts_are_found(realm: Realm) -> None:
    records = entries(realm)
    counts = {**records[0].counts, "admitted": records[0].counts["admitted"] + 1}
    rewrite(realm, [replace(records[0], counts=counts), *records[1:]])
    only(check(realm), counts=1)


def test_a_ledger_that_hides_a_subscriber_from_its_mailbox_is_found(realm: Realm) -> None:
    """A mailbox skips pieces on the ledger's word: a bit that is missing there is a delivery nobody looks for."""
    records = entries(realm)
    refs = list(records[0].pieces)
    refs[0] = replace(refs[0], slots=slot_bits([0]))
    rewrite(realm, [replace(records[0], pieces=tuple(refs)), *records[1:]])
    only(check(realm), counts=1)


def test_a_refusal_that_is_kept_quiet_is_found(realm: Realm) -> None:
    refused = [ref.partition for ref in entries(realm)[1].pieces if read(realm, ref).rejected]
    assert refused == [0]
    alter(
        realm,
        lambda piece: replace(
            piece, rejected=(), counts={n: c for n, c in piece.counts.items() if not n.startswith("rejected")}
        ),
        record=1,
    )
    report = check(realm)
    only(report, refused=1)
    assert "must be refused (frame)" in report.problems[0].message


def test_a_damaged_log_is_named(realm: Realm) -> None:
    (segment,) = realm.paths.topic("t").frames(0).glob("*.seg")
    _flip(segment, 200)
    report = check(realm)
    assert report.found[Kind.LOG] >= 1 and not report.ok
    assert str(segment) in next(p.message for p in report.problems if p.kind is Kind.LOG)


def test_many_problems_are_all_counted_and_some_are_described(realm: Realm) -> None:
    alter(realm, lambda piece: with_mailboxes(piece, mailboxes(piece)[:3]))
    report = check(realm)
    assert report.found[Kind.LOST] > 20
    assert sum(p.kind is Kind.LOST for p in report.problems) == 20


def _flip(path: Path, at: int) -> None:
    with path.open("r+b") as file:
        file.seek(at)
        byte = file.read(1)
        file.seek(at)
        file.write(bytes([byte[0] ^ 1]))
