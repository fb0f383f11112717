"""A frame counts once, whatever happens to the pipeline and to its checkpoint, and nothing honest is lost for it."""

from __future__ import annotations

import random
import shutil
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql.streaming.datasource import ReadMaxRows

from sealcast.broker.authenticate import assume
from sealcast.broker.frames import HeldFrames
from sealcast.broker.gate import bounds_of
from sealcast.broker.history import History
from sealcast.broker.kept_windows import KeptWindows
from sealcast.broker.replay import ReplayVerdict, Windows
from sealcast.broker.rulings import rule_frames
from sealcast.lab.attacks import Insider
from sealcast.log.embedded import EmbeddedLog, EmbeddedTopic
from sealcast.log.forwarded import partition_of
from sealcast.log.ledger import LedgerReader
from sealcast.log.offsets import PinnedOffset
from sealcast.model import Position
from sealcast.model.rejection import Reason
from sealcast.pipeline.run import run, run_batch
from sealcast.pipeline.sinks import StreamPieces
from sealcast.pipeline.sources import Limits, StepsStream
from sealcast.primitives import mac
from sealcast.protections.frame_steps import FramesStep
from sealcast.protections.steps import StepName
from sealcast.protections.witness.answer import Verdict
from sealcast.protections.witness.reasons import Reasons
from sealcast.wire import frame
from sealcast.wire.records import RecordCodec
from tests.clients.pump import pump
from tests.pipeline.field import PUBLISHERS, SCHEMA, TOPIC, Field
from tests.pipeline.layered_world import a_task

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture
def field(tmp_path: Path) -> Iterator[Field]:
    field = Field(tmp_path / "realm")
    yield field
    field.close()


def replayed(field: Field, partition: int, *offsets: int, into: int | None = None) -> None:
    """Frames once more, byte for byte, as whoever can write to the log can do; also into another partition."""
    with EmbeddedTopic(field.paths.frames_root) as log:
        data = [next(iter(log.partition(partition).read(offset, offset + 1))).data for offset in offsets]
        log.partition(partition if into is None else into).append(data)


def counted(field: Field) -> dict[str, int]:
    totals: dict[str, int] = {}
    with LedgerReader(field.paths.ledger) as ledger:
        for committed in ledger.entries():
            for name, count in committed.entry.counts.items():
                totals[name] = totals.get(name, 0) + count
    return totals


def events_in(field: Field, partition: int, *offsets: int) -> int:
    with EmbeddedTopic(field.paths.frames_root, read_only=True) as log:
        return sum(
            frame.parse(next(iter(log.partition(partition).read(offset, offset + 1))).data).header.count
            for offset in offsets
        )


def settled(field: Field) -> None:
    """Everybody got everything once, in order, and the checker agrees."""
    field.check()
    report = field.audit()
    assert report.ok, report.problems


# --- through Spark ------------------------------------------------------------------------------------


@pytest.mark.timeout(900)
def test_replayed_in_the_same_batch_later_elsewhere_and_after_every_kind_of_restart(
    spark: SparkSession, field: Field
) -> None:
    options: dict[str, Any] = {"once": True, "spark": spark, "limits": {"max_frames_per_trigger": 4}}
    for _ in range(3):
        field.publish_round()
    expected = 0
    replayed(field, 0, 0)  # most likely in a batch of its own: four frames a batch
    run(field.realm, [TOPIC], **options)
    expected += events_in(field, 0, 0)
    # The query goes on from its checkpoint, and the frame comes into the other partition.
    replayed(field, 0, 1, into=1)
    field.publish_round()
    run(field.realm, [TOPIC], **options)
    expected += events_in(field, 0, 1)
    # The checkpoint is lost: the next one begins with the windows of the ledger.
    shutil.rmtree(field.paths.checkpoint)
    replayed(field, 1, 0, 1)
    field.publish_round()
    run(field.realm, [TOPIC], **options)
    expected += events_in(field, 1, 0, 1)
    # A batch job knows them, too, and the stream after it.
    replayed(field, 0, 0, 2)
    field.publish_round()
    run_batch(spark, field.realm.paths.root, TOPIC)
    expected += events_in(field, 0, 0, 2)
    replayed(field, 0, 0)
    field.publish_round()
    run(field.realm, [TOPIC], **options)
    expected += events_in(field, 0, 0)
    totals = counted(field)
    assert totals["rejected_replay"] == expected
    assert totals["admitted"] == sum(map(len, field.said.values()))
    assert {name for name in totals if name.startswith("rejected_")} == {"rejected_replay"}
    settled(field)


@pytest.mark.timeout(600)
def test_a_flood_through_spark_costs_honest_publishers_nothing_and_leaves_no_state(
    spark: SparkSession, field: Field
) -> None:
    """Ten frames for every honest one: forged, replayed, too large, noise."""
    dice, ann = random.Random(5), Insider.of(field.realm, TOPIC, "ann")
    topic = field.realm.state().topic(TOPIC)
    message = RecordCodec(SCHEMA).encode([dict.fromkeys(SCHEMA.names)], [b""])
    forged = ann.sealer(topic).seal_messages(message, time.time_ns() // 1000)
    forged = forged.replace(ann.token, ann.token[:-1] + bytes([ann.token[-1] ^ 1]))
    for _ in range(8):
        field.publish_round()
        with EmbeddedTopic(field.paths.frames_root) as log:
            seen = list(log.partition(0).read(0))
            honest = [r.data for r in seen if len(r.data) < 100_000][:20]
            bad = [dice.choice([forged, dice.choice(honest), dice.randbytes(300)]) for _ in range(30)]
            log.partition(0).append([*bad, bytes(1 << 20)])
    run(field.realm, [TOPIC], once=True, spark=spark, limits={"max_frames_per_trigger": 100})
    assert counted(field)["admitted"] == sum(map(len, field.said.values()))
    settled(field)
    name = StepName(str(field.realm.paths.root), TOPIC)
    topic_files = name.open()
    windows = topic_files.history().windows(topic_files.ledger.end())
    assert len(windows) == len(PUBLISHERS), "a run for each publisher's boot, and nothing for all the rest"


# --- the parts, without Spark ------------------------------------------------------------------------


def test_history_has_the_windows_that_deciding_left(field: Field) -> None:
    """Batch by batch, the windows worked out from ledger and log are those of the decision, byte for byte."""
    name = StepName(str(field.realm.paths.root), TOPIC)
    topic = name.open()
    went = Windows(bounds_of(topic.about))
    for number in range(4):
        field.publish_round()
        if number:
            replayed(field, 0, 0)
        pump(field.realm, TOPIC)
        entry = topic.ledger.at(number).entry
        rules = FramesStep.of(name).gate(entry.version)
        rule_frames(went, topic.frames, entry.start.ranges(entry.end), rules, entry.arrival, entry.end.settled_us)
        assert topic.history().windows(number + 1).pack() == went.pack()


def test_windows_are_kept_from_batch_to_batch_and_worked_out_when_they_are_not(field: Field) -> None:
    """Whatever became of the file, the windows are those of the ledger's frames."""
    name = StepName(str(field.realm.paths.root), TOPIC)
    for number in range(4):
        field.publish_round()
        if number:
            replayed(field, 0, 0)
        batch(name)
    step, (path, kept) = FramesStep.of(name), kept_file(field)
    ends = step.ledger.end()
    wanted = step.history().windows(ends).pack()
    assert ends > 2 and kept.endswith(wanted), "they were kept with the last batch"
    older = file_after(field, name, ends - 2)
    for found in (kept, None, b"", kept[:40], bytes([kept[0] ^ 1]) + kept[1:], older):
        path.unlink(missing_ok=True)
        if found is not None:
            path.write_bytes(found)
        fresh = KeptWindows(path, step.journal_key)
        assert fresh.after(step.ledger.at(ends - 1), step.history()).pack() == wanted
        assert path.read_bytes() == kept, "and they are kept again"


def test_windows_that_somebody_altered_are_not_believed(field: Field, monkeypatch: pytest.MonkeyPatch) -> None:
    """An attacker with the disk takes all numbers out of the windows, and appends a frame once more."""
    name = StepName(str(field.realm.paths.root), TOPIC)
    field.publish_round()
    batch(name)
    path, kept = kept_file(field)
    step = FramesStep.of(name)
    packed = step.history().windows(step.ledger.end()).pack()
    emptied = kept[: -len(packed)] + Windows(bounds_of(step.about)).pack()

    def attacked() -> int:
        path.write_bytes(emptied)
        step.__dict__.pop("kept_windows", None)
        before = counted(field).get("rejected_replay", 0)
        replayed(field, 0, 0)
        batch(name)
        return counted(field).get("rejected_replay", 0) - before

    assert attacked() == events_in(field, 0, 0)
    # Who believes the file takes the frame for a new one.
    with LedgerReader(field.paths.ledger) as ledger:
        ends = ledger.end()
    path.write_bytes(file_after(field, name, ends))
    emptied = path.read_bytes()[: -len(step.history().windows(ends).pack())] + Windows(bounds_of(step.about)).pack()
    monkeypatch.setattr(mac, "verify", lambda *about: True)
    assert attacked() == 0


def test_windows_of_a_ledger_that_was_put_back_do_not_count(field: Field) -> None:
    """The ledger is that of yesterday, and the file beside it is today's: it went another way since."""
    name = StepName(str(field.realm.paths.root), TOPIC)
    field.publish_round()
    batch(name)
    step = FramesStep.of(name)
    kept = KeptWindows(field.paths.windows, step.journal_key)
    entry = step.ledger.at(0).entry
    other = replace(entry, end=replace(entry.end, time_us=entry.end.time_us + 1))
    kept._keep(1, other, Windows(bounds_of(step.about)))
    fresh = KeptWindows(field.paths.windows, step.journal_key)
    assert len(fresh.after(step.ledger.at(0), step.history())) == len(PUBLISHERS)


def test_a_batch_that_the_ledger_has_makes_nothing_when_it_comes_again(field: Field) -> None:
    field.publish_round()
    name = StepName(str(field.realm.paths.root), TOPIC)
    source = StepsStream((name,), Limits(100, 1 << 30, 2))
    start = source.initialOffset()
    pump(field.realm, TOPIC)
    topic = name.open()
    end = topic.ledger.at(0).entry.end.to_json(topic.journal_key)
    assert not source.partitions(start, end)


@pytest.mark.parametrize("tasks", [1, 2, 3, 7])
def test_tasks_rule_as_one_would(field: Field, tasks: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """However a batch is divided, each frame is ruled on as if one task had all: copies in the same partition and in
    others, in reach of the same task and out of it, forged frames that claim somebody's numbers, and too many of
    them."""
    monkeypatch.setattr(FramesStep, "min_task_bytes", 1)
    name = StepName(str(field.realm.paths.root), TOPIC)
    field.publish_round()
    batch(name)
    dice = random.Random(tasks)
    for _ in range(3):
        field.publish_round()
        with EmbeddedTopic(field.paths.frames_root) as log:
            for number in range(2):
                seen = [r.data for r in log.partition(number).read(0) if len(r.data) < 100_000]
                forged = [data[:-1] + bytes([data[-1] ^ 1]) for data in seen]
                unsigned = [broken_signature(data) for data in seen[-3:]]
                log.partition(number).append(dice.sample([*seen, *forged, *unsigned], 6))
                log.partition(1 - number).append(dice.sample(seen, 2))
    step = FramesStep.of(name)
    source = StepsStream((name,), Limits(1_000, 1 << 30, tasks))
    start = source.initialOffset()
    end = source.latestOffset(start, ReadMaxRows(1_000))
    begin, stop = (PinnedOffset.from_json(at, step.journal_key) for at in (start, end))
    windows = step.history().windows(step.ledger.end())
    gate = step.gate(stop.version)
    codes = rule_frames(windows, step.frames, begin.ranges(stop), gate, begin.arrival(stop), stop.settled_us)
    wanted = {(p, first + at): code for p, first, _ in begin.ranges(stop) for at, code in enumerate(codes[p].tolist())}
    divided = [task.value for task in source.partitions(start, end)]
    assert len(divided) == tasks
    found = dict[tuple[int, int], int]()
    for task in divided:
        rulings, _ = step._ruled(task, HeldFrames(step.frames, most=2_000))
        found |= {(partition, offset): code for partition, offset, code in rulings.tolist()}
    assert found == wanted
    assert {int(ReplayVerdict.DUPLICATE), int(ReplayVerdict.ELSEWHERE), 0} < set(wanted.values())
    batch(name, tasks)
    assert kept_file(field)[1].endswith(windows.pack()), "and what is remembered is the same"
    settled(field)


def test_a_forged_frame_decides_nothing_about_the_one_it_was_made_of(
    field: Field, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Somebody who can write to the log puts a forged copy before the frame, in reach of another task. Were it taken
    for what it says, the real one would be refused as its copy."""
    monkeypatch.setattr(FramesStep, "min_task_bytes", 1)
    name = StepName(str(field.realm.paths.root), TOPIC)
    field.publish_round()
    with EmbeddedTopic(field.paths.frames_root) as log:
        real = [record.data for record in log.partition(0).read(0)]
    shutil.rmtree(field.paths.frames_root)
    FramesStep.of(name).__dict__.pop("frames", None)
    with EmbeddedTopic(field.paths.frames_root, 2) as log:
        log.partition(0).append([broken_signature(data) for data in real] + real)
    batch(name, 2)
    totals = counted(field)
    assert "rejected_replay" not in totals and totals["rejected_signature"] and totals["admitted"]
    # A task that takes the others' frames at their word refuses what is real.
    step = FramesStep.of(name)
    with EmbeddedTopic(field.paths.frames_root) as log:
        other = real_again(field, step)
        log.partition(0).append([broken_signature(data) for data in other] + other)
    monkeypatch.setattr("sealcast.broker.rulings.authenticate", lambda part, gate: (assume(part, gate), None))
    batch(name, 2)
    assert counted(field)["rejected_replay"]


def test_why_knows_a_replayed_frame(field: Field) -> None:
    field.publish_round()
    replayed(field, 0, 0)
    pump(field.realm, TOPIC)
    with EmbeddedTopic(field.paths.frames_root, read_only=True) as log:
        last = log.partition(0).end() - 1
    reasons = Reasons(field.realm, TOPIC)
    answer = reasons.why(Position(0, last, 0), "all")
    assert (answer.verdict, answer.refused and answer.refused.reason) == (Verdict.REFUSED, Reason.REPLAY)
    assert "were here before" in answer.because
    assert reasons.why(Position(0, 0, 0), "all").verdict is Verdict.DELIVERED
    reasons.close()


def test_what_repeats_frames_that_retention_removed_is_taken_at_the_pieces_word(
    field: Field, monkeypatch: pytest.MonkeyPatch
) -> None:
    field.publish_round()
    pump(field.realm, TOPIC)
    replayed(field, 0, 0)
    field.publish_round()
    pump(field.realm, TOPIC)
    assert counted(field)["rejected_replay"] > 0
    (first, _), removed = ledger_ends(field), field.paths.frames(0)
    really = EmbeddedLog.start
    monkeypatch.setattr(EmbeddedLog, "start", lambda log: first[0] if log.directory == removed else really(log))
    report = field.audit()
    assert report.ok, report.problems
    assert report.unchecked > 0
    monkeypatch.setattr(History, "knows", lambda *about: True)
    assert not field.audit().ok, "without the frame that it repeats, it cannot be seen to be a repetition"


def ledger_ends(field: Field) -> list[tuple[int, ...]]:
    with LedgerReader(field.paths.ledger) as ledger:
        return [committed.entry.end.partitions for committed in ledger.entries()]


# --- helpers ------------------------------------------------------------------------------------------


def batch(name: StepName, tasks: int = 2) -> None:
    """What waits in the log, as one batch of so many tasks, as Spark would run it."""
    source, sink = StepsStream((name,), Limits(1_000, 1 << 30, tasks)), StreamPieces((name,))
    start = source.initialOffset()
    end = source.latestOffset(start, ReadMaxRows(1_000))
    with a_task():
        staged = [sink.write(source.read(task)) for task in source.partitions(start, end)]
    sink.commit([*staged], name.open().ledger.end())


def kept_file(field: Field) -> tuple[Path, bytes]:
    return field.paths.windows, field.paths.windows.read_bytes()


def file_after(field: Field, name: StepName, records: int) -> bytes:
    """The file as it was after so many records."""
    step, path = FramesStep.of(name), field.paths.windows.with_name("windows-then")
    KeptWindows(path, step.journal_key).after(step.ledger.at(records - 1), step.history())
    return path.read_bytes()


def broken_signature(data: bytes) -> bytes:
    """The frame with another signature: its header says the same."""
    signature = frame.parse(data).signature
    return data.replace(signature, bytes([signature[0] ^ 1]) + signature[1:])


def real_again(field: Field, step: FramesStep) -> list[bytes]:
    """New frames of one publisher whose partition is the first, which are not in the log yet."""
    who = next(name for name in PUBLISHERS if partition_of(name, step.about.partitions) == 0)
    message = RecordCodec(SCHEMA).encode([dict.fromkeys(SCHEMA.names)], [b""])
    sealer = Insider.of(field.realm, TOPIC, who).sealer(step.about)
    return [sealer.seal_messages(message, time.time_ns() // 1000) for _ in range(2)]
