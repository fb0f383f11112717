"""A frame counts once, whatever happens to the pipeline and to its checkpoint, and nothing honest is lost for it."""

from __future__ import annotations

import json
import random
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from pyspark.sql import Row

from sealcast.broker.columns import REFUSED
from sealcast.broker.gate import bounds_of
from sealcast.broker.history import History
from sealcast.broker.replay import BUCKETS, CLAIM, Windows, bucket_of, identify
from sealcast.errors import Corrupt
from sealcast.lab.attacks import Insider
from sealcast.log.embedded import EmbeddedLog, EmbeddedTopic
from sealcast.log.ledger import LedgerReader
from sealcast.model import Position
from sealcast.model.rejection import Reason
from sealcast.pipeline import replay
from sealcast.pipeline.checkpoints import LocalCheckpoint, initial_windows
from sealcast.pipeline.replay import Replay
from sealcast.pipeline.run import run, run_batch
from sealcast.pipeline.sources import Limits, StepsStream
from sealcast.protections.frame_steps import FramesStep
from sealcast.protections.steps import StepName
from sealcast.protections.witness.answer import Verdict
from sealcast.protections.witness.reasons import Reasons
from sealcast.trust.realm.parameters import KeyParameters
from sealcast.wire.records import RecordCodec
from tests.clients.pump import pump
from tests.pipeline.field import PUBLISHERS, SCHEMA, TOPIC, Field

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
    from sealcast.wire import frame

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
    from sealcast.broker.rulings import rule_frames

    for number in range(4):
        field.publish_round()
        if number:
            replayed(field, 0, 0)
        pump(field.realm, TOPIC)
        entry = topic.ledger.at(number).entry
        rules = FramesStep.of(name).gate(entry.version)
        rule_frames(went, topic.frames, entry.start.ranges(entry.end), rules, entry.arrival, entry.end.settled_us)
        assert topic.history().windows(number + 1).pack() == went.pack()


def test_a_checkpoint_begins_with_the_windows_of_the_ledger_and_its_first_batch_again_as_it_did(field: Field) -> None:
    name = StepName(str(field.realm.paths.root), TOPIC)
    field.publish_round()
    pump(field.realm, TOPIC)
    before = name.open().history().windows(1).pack()
    place = LocalCheckpoint(field.paths.checkpoint)
    fresh = initial_windows(FramesStep.of(name), place)
    assert fresh is not None and fresh.pack() == before
    field.publish_round()
    pump(field.realm, TOPIC)
    # Spark died after the second record, which was its first batch, and before it noted that.
    (field.paths.checkpoint / "commits").mkdir(parents=True)
    (field.paths.checkpoint / "metadata").write_text(json.dumps({"id": "test"}))
    again = initial_windows(FramesStep.of(name), place)
    assert again is not None and again.pack() == before
    (field.paths.checkpoint / "commits" / "0").write_text("v1")
    assert initial_windows(FramesStep.of(name), place) is None, "Spark has its own"


def test_a_batch_that_the_ledger_has_is_run_for_its_state_alone(field: Field) -> None:
    field.publish_round()
    with EmbeddedTopic(field.paths.frames_root) as log:
        log.partition(0).append([b"this is no frame"])
    name = StepName(str(field.realm.paths.root), TOPIC)
    source = StepsStream((name,), Limits(100, 1 << 30, 2))
    start = source.initialOffset()
    pump(field.realm, TOPIC)
    topic = name.open()
    end = topic.ledger.at(0).entry.end.to_json(topic.journal_key)
    rows = [r for task in source.partitions(start, end) for batch in source.read(task) for r in batch.to_pylist()]
    assert rows and all(row["again"] == 1 for row in rows)
    assert REFUSED in {row["bucket"] for row in rows}, "what was refused has no state, and no piece again either"
    filled = 0
    for row in rows:
        processor = processor_of(name, {})
        assert list(processor.handleInputRows((row["bucket"],), iter([Row(**row)]), None)) == []
        filled += len(processor._state.kept)
    assert filled == len({bucket_of(np.array([identify(p, bytes(16))[2]], np.uint64))[0] for p in PUBLISHERS})


def test_windows_altered_in_the_checkpoint_are_refused(field: Field) -> None:
    """An attacker with the disk takes a number out of a window, or puts another bucket's in its place."""
    field.publish_round()
    name = StepName(str(field.realm.paths.root), TOPIC)
    key = name.open().journal_key
    rows = [row for row in claim_rows_of(field, name) if row["claims"]]
    kept: dict[int, bytes] = {}
    for row in rows:
        processor = processor_of(name, {})
        assert list(processor.handleInputRows((row["bucket"],), iter([Row(**row)]), None))
        kept[row["bucket"]] = processor._state.kept[0]
    first, *others = kept
    flipped = kept[first][:-1] + bytes([kept[first][-1] ^ 1])
    for wrong in (flipped, kept[first][:40], b"", *(kept[other] for other in others)):
        row = next(r for r in rows if r["bucket"] == first)
        with pytest.raises(Corrupt, match="altered"):
            list(processor_of(name, {0: wrong}).handleInputRows((first,), iter([Row(**row)]), None))
    assert replay._opened(key, first, kept[first])


def test_state_is_dropped_when_its_generation_is_over(field: Field) -> None:
    name = StepName(str(field.realm.paths.root), TOPIC)
    field.publish_round()
    row = next(row for row in claim_rows_of(field, name) if row["claims"])
    processor = processor_of(name, {})
    list(processor.handleInputRows((row["bucket"],), iter([Row(**row)]), None))
    assert processor._state.kept
    period = bounds_of(name.open().about).period_us
    later = {**row, "claims": b"", "settled": row["settled"] + 3 * period}
    assert list(processor.handleInputRows((row["bucket"],), iter([Row(**later)]), None)) == []
    assert not processor._state.kept


def test_the_source_tells_all_buckets_when_a_generation_ends(tmp_path: Path) -> None:
    field = Field(tmp_path / "realm", parameters=KeyParameters(stale_after_s=1, max_skew_s=0))
    field.publish_round()
    rows = claim_rows_of(field, StepName(str(field.realm.paths.root), TOPIC))
    assert {row["bucket"] for row in rows} == set(range(BUCKETS)), "the first batch of a topic ends all before it"
    field.close()


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


def test_buckets_are_by_publisher_alone() -> None:
    for name in ("ann", "ben", "x" * 200):
        numbers = {identify(name, bytes([n]) * 16)[2] for n in range(5)}
        assert len(numbers) == 1
        assert 0 <= int(bucket_of(np.array([*numbers], np.uint64))[0]) < BUCKETS
    assert identify("ann", bytes(16))[:2] != identify("ann", bytes([1] * 16))[:2]
    assert CLAIM.itemsize < 80


# --- helpers ------------------------------------------------------------------------------------------


class State:
    """A value state, as much of it as is used."""

    def __init__(self, kept: dict[int, bytes]) -> None:
        self.kept = kept

    def exists(self) -> bool:
        return 0 in self.kept

    def get(self) -> tuple[bytes] | None:
        return (self.kept[0],) if 0 in self.kept else None

    def update(self, value: tuple[bytes]) -> None:
        self.kept[0] = value[0]

    def clear(self) -> None:
        self.kept.clear()


def processor_of(name: StepName, kept: dict[int, bytes]) -> Any:
    class Handle:
        def getValueState(self, name: str, schema: str) -> State:
            return State(kept)

    made: Any = Replay(name)
    made.init(Handle())
    return made


def claim_rows_of(field: Field, name: StepName) -> list[dict[str, Any]]:
    from pyspark.sql.streaming.datasource import ReadMaxRows

    source = StepsStream((name,), Limits(100, 1 << 30, 2))
    start = source.initialOffset()
    end = source.latestOffset(start, ReadMaxRows(100))
    return [r for task in source.partitions(start, end) for batch in source.read(task) for r in batch.to_pylist()]
