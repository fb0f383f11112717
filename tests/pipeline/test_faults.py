"""Hostile frames and damaged, missing or unwritable files: a counted rejection or a named error, the rest unharmed."""

from __future__ import annotations

import json
import resource
import shutil
import sqlite3
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest

from sealcast.broker.frames import HeldFrames
from sealcast.broker.gate import RULING
from sealcast.broker.opening import MAX_NAMED_PER_FRAME
from sealcast.clients.publisher import Publisher
from sealcast.clients.subscriber import Subscriber
from sealcast.errors import (
    Corrupt,
    DiskFull,
    EventRejected,
    FilterRejected,
    Locked,
    NotFound,
    Unavailable,
)
from sealcast.lab.attacks import Insider, place_of
from sealcast.log.embedded import EmbeddedTopic
from sealcast.log.layout import RECORD
from sealcast.log.ledger import LedgerReader
from sealcast.model import Event, Reason
from sealcast.pipeline.run import run, start
from sealcast.pipeline.sinks import StreamPieces
from sealcast.protections.frame_steps import FramesStep
from sealcast.protections.steps import StepName
from sealcast.trust.deployment import Realm
from sealcast.trust.registry import Registry
from sealcast.trust.vault import keyfile
from sealcast.wire import sealed
from sealcast.wire.records import RecordCodec
from tests.clients.pump import pump
from tests.copies import copy_realm
from tests.pipeline import steps
from tests.pipeline.field import SCHEMA, TOPIC, Field, by_publisher
from tests.pipeline.hostile import hostile

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture
def field(tmp_path: Path) -> Iterator[Field]:
    field = Field(tmp_path / "realm")
    yield field
    field.close()


# --- hostile frames -----------------------------------------------------------------------------


@pytest.mark.timeout(600)
def test_every_attack_is_counted_by_its_reason_and_harms_nobody(spark: SparkSession, field: Field) -> None:
    mounted, expected = hostile(field), Counter[str]()
    assert {attack.reason for attack in mounted} == set(Reason), "no check is left out"
    with EmbeddedTopic(field.paths.frames_root) as log:
        for attack in mounted:
            field.publish_round()
            log.partition(place_of(attack.data, 2)).append([attack.data])
            expected[f"rejected_{attack.reason}"] += max(1, attack.events)
    field.publish_round()
    totals = run(field.realm, [TOPIC], once=True, spark=spark, limits={"max_frames_per_trigger": 24})
    assert {name: count for name, count in totals.items() if name.startswith("rejected_") and count} == expected
    assert totals["admitted"] == sum(map(len, field.said.values()))
    field.check()
    assert field.audit().ok


def test_a_flood_of_refused_events_is_not_the_end_of_the_stream(field: Field) -> None:
    """An insider's frames, of little but refusals: more of them in one batch than a piece may name."""
    frames, events = 1400, MAX_NAMED_PER_FRAME + 1
    state = field.realm.state()
    insider = Insider.of(field.realm, TOPIC, "ann")
    outside = {"number": 1, "price": 1000, "symbol": "ACME"}
    messages = RecordCodec(SCHEMA).encode([outside] * events, [b""] * events)
    sealer = insider.sealer(state.topic(TOPIC))
    with EmbeddedTopic(field.paths.frames_root) as log:
        log.partition(0).append([sealer.seal_messages(messages, time.time_ns() // 1000) for _ in range(frames)])
    rulings = np.zeros(frames, RULING)
    rulings["offset"] = np.arange(frames)
    step = FramesStep.of(StepName(str(field.realm.paths.root), TOPIC))
    pinned = {"version": state.version, "time": 0, "settled": 0, "since": 0}
    pieces = list(step.make(pinned, rulings, HeldFrames(step.frames)))
    parsed = [sealed.parse(row["piece"]) for piece in pieces for row in piece.to_pylist()]
    assert sum(piece.counts["rejected_event"] for piece in parsed) == frames * events
    spans = [(piece.first_offset, piece.end_offset) for piece in parsed]
    assert spans[0][0] == 0 and spans[-1][1] == frames and all(a[1] == b[0] for a, b in pairwise(spans))


def test_what_does_not_fit_the_schema_is_refused_at_the_door(field: Field) -> None:
    for text in ("prise > 3", "price > 'high'", "price >", "symbol LIKE 3"):
        with pytest.raises(FilterRejected) as refused:
            field.realm.subscribe(TOPIC, "all", text)
        assert refused.value.at is not None
    before = field.frames()
    for attributes in ({"price": 1000}, {"price": "high"}, {"prise": 3}, {"symbol": "x" * 41}):
        with Publisher(field.realm, TOPIC, "ann") as ann, pytest.raises(EventRejected):
            ann.publish([Event({"price": 1}), Event(attributes)])
    assert field.frames() == before, "all or nothing"


# --- damaged files ------------------------------------------------------------------------------


def flip(path: Path, at: int) -> None:
    raw = bytearray(path.read_bytes())
    raw[at] ^= 0x20
    path.write_bytes(raw)


@pytest.mark.parametrize("where", ["header", "data"])
def test_a_flipped_byte_in_the_frame_log_stops_the_pipeline_with_its_place(
    spark: SparkSession, field: Field, where: str, capsys: pytest.CaptureFixture[str]
) -> None:
    field.publish("ann", 5)
    run(field.realm, [TOPIC], once=True, spark=spark)
    field.publish_round()
    with Publisher(field.realm, TOPIC, "ann") as ann:
        segment = field.paths.frames(ann.partition) / f"{0:020}.seg"
    before = segment.stat().st_size
    field.publish("ann", 3)
    place = before + (8 if where == "header" else RECORD.size + 50)
    flip(segment, place)
    for _ in range(2):  # and again at the next start, for nothing has repaired it
        message = refused(spark, field, capsys)
        assert f"{segment}: byte {before}: " in message and "record" in message
    flip(segment, place)
    assert batches(field) == 1, "nothing was committed meanwhile"
    run(field.realm, [TOPIC], once=True, spark=spark)
    field.check()
    assert field.audit().ok


def refused(spark: SparkSession, field: Field, capsys: pytest.CaptureFixture[str]) -> str:
    """What the user of `sealcast run` reads: words, not stack traces."""
    from sealcast.cli.main import main

    assert spark is not None  # the command takes the session that is there
    with pytest.raises(SystemExit) as ended:
        main(["run", "--once", "--realm", str(field.realm.paths.root)])
    assert ended.value.code == 1
    said = capsys.readouterr()
    assert "Traceback" not in said.err and "java." not in said.err and "org.apache" not in said.err
    return "\n".join(line for line in said.err.splitlines() if line.startswith(("refused: ", "hint: ")))


def batches(field: Field) -> int:
    with LedgerReader(field.paths.ledger) as ledger:
        return ledger.end()


def test_a_frame_log_that_is_shorter_than_the_ledger_is_refused(
    spark: SparkSession, field: Field, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """An old copy was put back: new events would take the places, and so the nonces, of others."""
    field.publish_round()
    field.close()
    shutil.copytree(field.paths.frames_root, tmp_path / "old")
    with Publisher(field.realm, TOPIC, "ann") as ann:
        ann.publish([field.event("ann", 99)])
    pump(field.realm, TOPIC)
    shutil.rmtree(field.paths.frames_root)
    shutil.copytree(tmp_path / "old", field.paths.frames_root)
    assert "the ledger has delivered" in refused(spark, field, capsys)


def test_an_altered_checkpoint_is_refused_and_a_removed_one_costs_nothing(
    spark: SparkSession, field: Field, capsys: pytest.CaptureFixture[str]
) -> None:
    for _ in range(2):
        field.publish_round()
        run(field.realm, [TOPIC], once=True, spark=spark)
    newest = max((p for p in (field.paths.checkpoint / "offsets").iterdir() if p.name.isdigit()), key=lambda p: p.name)
    *head, last = newest.read_text().splitlines()
    offset = json.loads(last)
    offset["partitions"][0] += 1  # skip one
    newest.write_text("\n".join([*head, json.dumps(offset)]))
    newest.with_name(f".{newest.name}.crc").unlink(missing_ok=True)
    field.publish_round()
    message = refused(spark, field, capsys)
    assert "an offset in Spark's checkpoint was altered" in message and "hint: remove the checkpoint" in message
    shutil.rmtree(field.paths.checkpoint)
    run(field.realm, [TOPIC], once=True, spark=spark)
    field.check()


Damage = Callable[[Path], None]


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


def halve(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def flip_middle(path: Path) -> None:
    flip(path, path.stat().st_size // 2)


@pytest.fixture
def delivered(field: Field) -> Field:
    """Two batches, delivered."""
    for _ in range(2):
        field.publish_round()
        pump(field.realm, TOPIC)
    return field


@pytest.mark.parametrize("damage", [cut, halve, flip_middle, Path.unlink])
def test_a_damaged_piece_is_named_by_whoever_reads_it_and_spoils_no_other(delivered: Field, damage: Damage) -> None:
    first, second = sorted(delivered.paths.pieces.glob("0000-*.piece"))
    good = first.read_bytes()
    damage(first)
    with pytest.raises(Corrupt, match=first.name):
        delivered.read("all")
    report = delivered.audit()
    assert not report.ok and any(first.name in problem.message for problem in report.problems)
    assert not any(second.name in problem.message for problem in report.problems)
    with Subscriber(delivered.realm, TOPIC, "all", from_=f"0/{int(second.name.split('-')[1])}/0") as reader:
        assert list(reader), "what comes after it can be read"
    first.write_bytes(good)
    delivered.check()


@pytest.mark.parametrize("damage", [halve, flip_middle])
def test_a_damaged_ledger_is_named_by_readers_checker_and_pipeline(
    delivered: Field, damage: Damage, spark: SparkSession, capsys: pytest.CaptureFixture[str]
) -> None:
    segment = delivered.paths.ledger / f"{0:020}.seg"
    delivered.publish_round()  # before the damage: a publisher looks into the ledger, too, now and then
    good = segment.read_bytes()
    damage(segment)
    with pytest.raises(Corrupt, match="ledger"):
        delivered.read("all")
    assert not delivered.audit().ok
    assert str(segment) in refused(spark, delivered, capsys)
    segment.write_bytes(good)
    run(delivered.realm, [TOPIC], once=True, spark=spark)
    delivered.check()


def test_a_damaged_registry_is_named_or_says_the_same_never_something_else(delivered: Field, tmp_path: Path) -> None:
    """Its write-ahead log, too, of which SQLite believes that it ends where a byte is wrong: an older state."""
    registry, named = delivered.realm.paths.registry, 0
    for name in (registry.name, f"{registry.name}-wal"):
        size = (registry.parent / name).stat().st_size
        for at in range(100, size, size // 80 + 1):
            copy = tmp_path / f"{name}-{at}"
            copy.mkdir()
            for file in registry.parent.glob(f"{registry.name}*"):
                shutil.copy(file, copy)
            flip(copy / name, at)
            try:
                assert Registry(copy / registry.name).state() == delivered.realm.state(), f"byte {at} of {name}"
            except Corrupt as error:
                assert str(copy / registry.name) in error.message
                named += 1
            shutil.rmtree(copy)
    assert named > 10, "the others hit bytes that nobody reads"


def test_a_registry_older_than_the_ledger_is_refused(
    spark: SparkSession, field: Field, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A revocation must not be undone by a copy from before it."""
    old = tmp_path / "old"
    copy_realm(field.realm.paths.root, old)
    field.realm.revoke(TOPIC, "all")
    field.publish_round()
    pump(field.realm, TOPIC)
    field.publish_round()
    field.close()
    for topic_files in ("frames", "pieces", "ledger"):
        shutil.rmtree(old / "topics" / TOPIC / topic_files)
        shutil.copytree(field.paths.root / topic_files, old / "topics" / TOPIC / topic_files)
    field.realm = Realm(old)
    message = refused(spark, field, capsys)
    assert "registry.sqlite is at version" in message and "an old copy was put back" in message


def test_a_damaged_key_file_is_refused_without_a_word_of_its_content(delivered: Field) -> None:
    for path in (delivered.realm.paths.broker_key, delivered.realm.paths.entity_key("all")):
        good = path.read_bytes()
        body = keyfile.read(path, keyfile.look(path).kind, NotFound(str(path)))
        secrets = [value for value in body.values() if isinstance(value, str) and len(value) == 64]
        assert len(secrets) >= 2
        for damage in (cut_more, halve, flip_middle):
            damage(path)
            with pytest.raises(Corrupt) as raised:
                delivered.realm.broker()
                delivered.read("all")
            assert str(path) in raised.value.message
            assert not any(secret[at : at + 8] in str(raised.value) for secret in secrets for at in range(57))
            path.write_bytes(good)
    delivered.check()


def cut_more(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-3])


# --- a full disk --------------------------------------------------------------------------------


@contextmanager
def no_file_beyond(size: int) -> Iterator[None]:
    """The operating system refuses this process every write beyond `size`, as a full disk would."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_publisher_on_a_full_disk_has_published_nothing_and_goes_on_when_there_is_space(field: Field) -> None:
    field.publish("ann", 3)
    with Publisher(field.realm, TOPIC, "ann") as ann:
        segment = field.paths.frames(ann.partition) / f"{0:020}.seg"
        for room in (0, 1, 100):
            before = segment.stat().st_size
            with no_file_beyond(before + room), pytest.raises(DiskFull, match="nothing was acknowledged"):
                ann.publish([field.event("nobody", 0)])
            assert segment.stat().st_size == before
            field.publish("ann", 3)
    pump(field.realm, TOPIC)
    field.check()
    assert field.audit().ok


def test_pieces_that_do_not_fit_are_not_committed_and_are_made_again(field: Field) -> None:
    field.publish_round()
    pump(field.realm, TOPIC)
    field.publish("ann", 4, size=20_000)
    before = set(field.paths.pieces.iterdir())
    with no_file_beyond(16_384), pytest.raises(DiskFull, match="pieces"):
        pump(field.realm, TOPIC)
    assert set(field.paths.pieces.iterdir()) == before, "no half-written file stays"
    assert batches(field) == 1
    pump(field.realm, TOPIC)
    field.check()
    assert field.audit().ok


def test_a_ledger_that_cannot_grow_commits_nothing_and_then_the_same_batch(field: Field) -> None:
    name = StepName(str(field.realm.paths.root), TOPIC)
    sink = StreamPieces((name,))
    field.publish_round()
    staged = steps.stage(name, sink)
    segment = field.paths.ledger / f"{0:020}.seg"
    for room in (0, 60):
        before = segment.stat().st_size
        with no_file_beyond(before + room), pytest.raises(DiskFull, match="ledger"):
            sink.commit([*staged], 0)
        assert batches(field) == 0 and segment.stat().st_size == before
    sink.commit([*staged], 0)
    sink.commit([*staged], 0)
    assert batches(field) == 1
    field.check()


def test_a_cursor_that_cannot_be_saved_stays_where_it_is(delivered: Field) -> None:
    with Subscriber(delivered.realm, TOPIC, "all") as reader:
        events = reader.poll(5)
        with no_file_beyond(0), pytest.raises(DiskFull):
            reader.ack()
    with Subscriber(delivered.realm, TOPIC, "all") as reader:
        assert reader.poll(5) == events, "handed out again"
        reader.ack()
    with Subscriber(delivered.realm, TOPIC, "all") as reader:
        assert by_publisher([*events, *reader]) == delivered.expected("all")


def test_a_registry_that_cannot_grow_changes_nothing(field: Field) -> None:
    """SQLite's own limit, for it tells a full disk from a failing one, and a limit of the process from neither."""
    registry = field.realm.registry
    before, connection = registry.version(), sqlite_handle(registry)
    (pages,) = connection.execute("PRAGMA page_count").fetchone()
    connection.execute(f"PRAGMA max_page_count = {pages}")
    with pytest.raises(DiskFull, match="nothing was changed"):
        field.realm.subscribe_many(TOPIC, [("all", f"price = {n}", None) for n in range(500)])
    assert registry.version() == Registry(registry.address).version() == before
    connection.execute("PRAGMA max_page_count = 1073741823")
    with no_file_beyond(0), pytest.raises(Unavailable):
        field.realm.subscribe(TOPIC, "all", "price = 7")
    assert Registry(registry.address).version() == before
    field.realm.subscribe(TOPIC, "all", "price = 7")
    assert Registry(registry.address).version() == before + 2, "a key for the filter, and the subscription"
    assert Registry(registry.address).state().version == before + 2


def sqlite_handle(registry: Registry) -> sqlite3.Connection:
    """Its own for writing: limits are a connection's."""
    handle = registry._store().store._connection().connection.driver_connection
    assert isinstance(handle, sqlite3.Connection)
    return handle


_LIMITED = """
import resource, sys
resource.setrlimit(resource.RLIMIT_FSIZE, (15 << 20, 15 << 20))  # room for Spark's own libraries
from sealcast.cli.main import main
main(["run", "--once", "--master", "local[1]", "--realm", sys.argv[1]])
"""


@pytest.mark.timeout(600)
def test_a_pipeline_on_a_full_disk_says_so_and_goes_on_when_there_is_space(spark: SparkSession, field: Field) -> None:
    field.publish_round()
    pump(field.realm, TOPIC)
    for _ in range(2):
        field.publish("ann", 8, size=1_000_000)
        time.sleep(1.1)  # within its rate
    done = subprocess.run(
        [sys.executable, "-c", _LIMITED, str(field.realm.paths.root)],
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
    )
    (said,) = [line for line in done.stderr.splitlines() if line.startswith("refused: ")]
    assert done.returncode == 1 and f"writing {field.paths.pieces}" in said and "nothing was acknowledged" in said
    assert "Traceback" not in done.stderr and done.stdout == ""
    assert batches(field) == 1
    run(field.realm, [TOPIC], once=True, spark=spark)
    field.check()
    assert field.audit().ok


# --- one pipeline a topic -----------------------------------------------------------------------


def test_a_second_pipeline_is_refused_and_the_first_goes_on(
    spark: SparkSession, field: Field, capsys: pytest.CaptureFixture[str]
) -> None:
    with start(field.realm, [TOPIC], spark=spark) as pipeline:
        field.publish_round()
        with pytest.raises(Locked, match="is being run by process"):
            start(field.realm, [TOPIC], spark=spark)
        assert "is being run by process" in refused(spark, field, capsys)
        field.publish_round()
        pipeline.wait(lambda: batches(field) > 0 and taken(field) == field.frames())
    field.check()
    run(field.realm, [TOPIC], once=True, spark=spark)  # now it may


def taken(field: Field) -> int:
    with LedgerReader(field.paths.ledger) as ledger:
        last = ledger.last_span()
        return sum(last.end.partitions) if last else 0
