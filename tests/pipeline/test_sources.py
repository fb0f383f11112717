"""Frames into Spark and pieces out of it: exactly once, whatever dies in between and whoever edits the checkpoint."""

from __future__ import annotations

import json
import re
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

from sealcast.broker.columns import STAGED, ddl
from sealcast.errors import Corrupt, Misuse, NotFound
from sealcast.log.embedded import EmbeddedTopic
from sealcast.log.ledger import LedgerReader
from sealcast.log.offsets import PinnedOffset
from sealcast.log.pieces import Pieces
from sealcast.model import Schema
from sealcast.pipeline import sources
from sealcast.pipeline.sources import Limits, StepsSource, StepsStream
from sealcast.protections.frame_steps import FramesStep
from sealcast.protections.steps import Span, StepName
from sealcast.trust.deployment import Realm
from sealcast.trust.vault import keyfile
from sealcast.wire import sealed
from tests.copies import copy_realm

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SCHEMA = Schema.from_json({"attributes": [{"name": "price", "type": "int"}]})


class World:
    """A realm with one topic, whose frames are just bytes."""

    def __init__(self, directory: Path) -> None:
        if not directory.exists():
            Realm.create(directory).create_topic("t", SCHEMA, partitions=2, access="members")
        self.realm = Realm(directory)
        self.paths = self.realm.paths.topic("t")
        self.log = EmbeddedTopic(self.paths.frames_root, 2)
        self.options = {"realm": str(self.realm.paths.root), "topic": "t"}

    def moved(self, directory: Path) -> World:
        """A copy, at a place that no process has opened before."""
        copy_realm(self.realm.paths.root, directory)
        return World(directory)

    def append(self, partition: int, *frames: bytes) -> None:
        self.log.partition(partition).append(frames)

    def delivered(self) -> list[tuple[int, int, bytes]]:
        """(partition, offset, frame) by the ledger, in its order. None of these frames is one, so pieces say of each
        that it was refused."""
        pieces, found = Pieces(self.paths.pieces), list[tuple[int, int, bytes]]()
        for committed in self.entries():
            for ref in committed.pieces:
                refused = [each.position for each in sealed.parse(pieces.read(ref.name, ref.digest)).rejected]
                assert [at.offset for at in refused] == list(range(ref.first, ref.end))
                frames = self.log.partition(ref.partition).read(ref.first, ref.end)
                found += [(ref.partition, record.offset, record.data) for record in frames]
        return found

    def entries(self) -> list[Any]:
        with LedgerReader(
            self.paths.ledger, self.realm.broker().journal_key(self.realm.state().topic("t").id)
        ) as ledger:
            assert ledger.verify() == ledger.end()
            return [committed.entry for committed in ledger.entries()]

    def stream(self, **limits: int) -> StepsStream:
        return StepsStream(
            (StepName(**self.options),), Limits(limits.get("frames", 100), limits.get("bytes", 1 << 20), 2)
        )


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path / "realm")


def drain(spark: SparkSession, world: World, **options: int) -> None:
    pieces = spark.readStream.format("sealcast-input").options(**world.options, **options).load()
    query = (
        pieces.writeStream.format("sealcast-pieces")
        .options(**world.options, checkpointLocation=str(world.paths.checkpoint))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()


def frame(partition: int, number: int) -> bytes:
    return f"{partition}:{number}".encode()


def fill(world: World, partition: int, first: int, end: int) -> None:
    world.append(partition, *(frame(partition, n) for n in range(first, end)))


def everything(*ends: int) -> list[tuple[int, int, bytes]]:
    return [(p, n, frame(p, n)) for p, end in enumerate(ends) for n in range(end)]


# --- through Spark ------------------------------------------------------------------------------


def test_every_frame_once_in_micro_batches_of_bounded_size(spark: SparkSession, world: World) -> None:
    fill(world, 0, 0, 11)
    fill(world, 1, 0, 3)
    drain(spark, world, max_frames_per_trigger=6)
    assert sorted(world.delivered()) == everything(11, 3)
    sizes = [sum(end - first for _, first, end in e.start.ranges(e.end)) for e in world.entries()]
    assert sizes == [6, 6, 2]
    assert [e.counts["frames"] for e in world.entries()] == sizes
    assert [e.batch for e in world.entries()] == [0, 1, 2]
    assert len({e.query for e in world.entries()}) == 1


def test_a_new_registry_version_is_in_force_at_the_next_micro_batch(spark: SparkSession, world: World) -> None:
    fill(world, 0, 0, 2)
    drain(spark, world)
    before = world.realm.registry.version()
    drain(spark, world)
    assert len(world.entries()) == 1, "nothing new, no batch"
    world.realm.enrol("alice")
    drain(spark, world)
    assert len(world.entries()) == 1, "a new version alone is no batch either"
    fill(world, 0, 2, 4)
    drain(spark, world)
    assert [e.version for e in world.entries()] == [before, world.realm.registry.version()]
    assert world.delivered() == everything(4)


def test_a_batch_that_the_ledger_has_and_spark_does_not_know_of_is_not_done_twice(
    spark: SparkSession, world: World
) -> None:
    for first in (0, 3):  # the second time round it is not the query's first batch
        fill(world, 0, first, first + 3)
        drain(spark, world)
        remove_newest(world.paths.checkpoint / "commits")
        drain(spark, world)
        assert world.delivered() == everything(first + 3)


def test_a_batch_that_died_before_the_ledger_is_done_again_with_the_same_bytes(
    spark: SparkSession, world: World, tmp_path: Path
) -> None:
    fill(world, 0, 0, 3)
    drain(spark, world)
    shutil.copytree(world.paths.ledger, tmp_path / "ledger")
    fill(world, 0, 3, 6)
    fill(world, 1, 0, 2)
    drain(spark, world)
    # As if the driver had died between staging and commit: neither the ledger nor Spark has the batch.
    again = world.moved(tmp_path / "again")
    shutil.rmtree(again.paths.ledger)
    shutil.move(tmp_path / "ledger", again.paths.ledger)
    remove_newest(again.paths.checkpoint / "commits")
    again.realm.enrol("bob")  # a version that the batch must not see: it is pinned to the one before
    drain(spark, again)
    assert again.entries() == world.entries()
    assert contents(again.paths.pieces) == contents(world.paths.pieces)


def test_a_checkpoint_that_is_lost_costs_nothing(spark: SparkSession, world: World) -> None:
    fill(world, 0, 0, 3)
    drain(spark, world)
    shutil.rmtree(world.paths.checkpoint)
    fill(world, 0, 3, 5)
    drain(spark, world)
    assert world.delivered() == everything(5)


def test_an_offset_altered_in_the_checkpoint_is_refused(spark: SparkSession, world: World) -> None:
    fill(world, 0, 0, 3)
    drain(spark, world)
    skip_ahead(newest(world.paths.checkpoint / "offsets"), by=2)
    fill(world, 0, 3, 8)
    with pytest.raises(StreamingQueryException, match="offset in Spark's checkpoint was altered"):
        drain(spark, world)
    assert world.delivered() == everything(3)


def test_an_older_checkpoint_is_refused(spark: SparkSession, world: World, tmp_path: Path) -> None:
    fill(world, 0, 0, 3)
    drain(spark, world)
    shutil.copytree(world.paths.checkpoint, tmp_path / "old")
    fill(world, 0, 3, 5)
    drain(spark, world)
    shutil.rmtree(world.paths.checkpoint)
    shutil.move(tmp_path / "old", world.paths.checkpoint)
    fill(world, 0, 5, 6)
    with pytest.raises(StreamingQueryException, match="events would be delivered again"):
        drain(spark, world)
    assert world.delivered() == everything(5)


def test_a_checkpoint_of_another_realm_is_refused(spark: SparkSession, world: World, tmp_path: Path) -> None:
    fill(world, 0, 0, 3)
    other = World(tmp_path / "other")
    fill(other, 0, 0, 2)
    drain(spark, world)
    drain(spark, other)
    shutil.rmtree(other.paths.checkpoint)
    shutil.copytree(world.paths.checkpoint, other.paths.checkpoint)
    fill(other, 0, 2, 4)
    with pytest.raises(StreamingQueryException, match="its tag is not ours"):
        drain(spark, other)
    assert other.delivered() == everything(2)


def test_the_same_in_batch(spark: SparkSession, world: World) -> None:
    fill(world, 0, 0, 4)
    fill(world, 1, 0, 9)
    for ends in ((4, 9), (4, 9), (6, 9)):
        fill(world, 0, world.log.partition(0).end(), ends[0]) if world.log.partition(0).end() < ends[0] else None
        pieces = spark.read.format("sealcast-input").options(**world.options).load()
        pieces.write.format("sealcast-pieces").options(**world.options).mode("append").save()
        assert sorted(world.delivered()) == everything(*ends)
    assert len(world.entries()) == 2
    with pytest.raises(Exception, match="stays delivered"):
        pieces.write.format("sealcast-pieces").options(**world.options).mode("overwrite").save()


def test_a_failing_batch_leaves_nothing(spark: SparkSession, world: World) -> None:
    fill(world, 0, 0, 3)
    fill(world, 1, 0, 3)

    def fail(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            if batch.column("first_offset")[0].as_py() == 0 and batch.column("partition")[0].as_py() == 1:
                raise ValueError("as if the disk were full")
            yield batch

    pieces = spark.read.format("sealcast-input").options(**world.options).load()
    failing = pieces.mapInArrow(fail, ddl(STAGED))
    with pytest.raises(Exception, match="as if the disk were full"):
        failing.write.format("sealcast-pieces").options(**world.options).mode("append").save()
    assert world.entries() == []
    # The other task may have gone on for a moment: what it staged is collected at the next start.
    recovered(spark)
    StepName(**world.options).open().collect_garbage(time.time_ns() // 1000)
    assert Pieces(world.paths.pieces).names() == []


def recovered(spark: SparkSession) -> None:
    """Until Spark takes no worker any more that it interrupted: its next task may find one whose pipe is broken."""
    for left in reversed(range(5)):
        try:
            spark.range(0, 8, 1, 4).mapInArrow(lambda batches: batches, "id BIGINT").collect()
            return
        except PySparkException:
            if not left:
                raise


def test_no_secret_in_plans_checkpoints_or_logs(spark: SparkSession, world: World) -> None:
    fill(world, 0, 0, 3)
    pieces = spark.readStream.format("sealcast-input").options(**world.options).load()
    writer = pieces.writeStream.format("sealcast-pieces").options(**world.options)
    query = writer.option("checkpointLocation", str(world.paths.checkpoint)).trigger(availableNow=True).start()
    query.awaitTermination()
    plan = query._jsq.explainInternal(True)
    assert "sealcast-input" in plan and "Exchange" not in plan
    home = Path(spark.sparkContext.getConf().get("spark.local.dir") or "").parent
    places = [*world.paths.checkpoint.rglob("*"), *home.glob("*.log"), home / "jvm.out"]
    haystack = plan.encode() + b"".join(path.read_bytes() for path in places if path.is_file())
    for secret in secrets_of(world.realm):
        assert secret not in haystack


# --- planning alone -----------------------------------------------------------------------------


def test_planning_stays_within_frames_and_bytes(world: World) -> None:
    world.append(0, *(bytes([n]) * 400 for n in range(10)))
    stream = world.stream(frames=5, bytes=1000)
    start = stream.initialOffset()
    assert stream.latestOffset(start, ReadMaxRows(5))["partitions"] == [2, 0]
    assert world.stream(frames=5).latestOffset(start, ReadMaxRows(5))["partitions"] == [5, 0]
    assert stream.latestOffset(start, ReadAllAvailable())["partitions"] == [10, 0]


def test_a_frame_above_the_limit_still_goes_through(world: World) -> None:
    world.append(1, b"x" * 5000)
    stream = world.stream(bytes=1000)
    assert stream.latestOffset(stream.initialOffset(), ReadMaxRows(5))["partitions"] == [0, 1]


def test_available_now_ends_where_the_log_ended_when_it_began(world: World) -> None:
    fill(world, 0, 0, 4)
    stream = world.stream()
    stream.prepareForTriggerAvailableNow()
    fill(world, 0, 4, 9)
    end = stream.latestOffset(stream.initialOffset(), ReadMaxRows(100))
    assert end["partitions"] == [4, 0]
    assert stream.latestOffset(end, ReadMaxRows(100)) is end


@pytest.mark.parametrize(
    "alter",
    [
        lambda o: o | {"partitions": [2, 0]},
        lambda o: o | {"version": o["version"] + 1},
        lambda o: o | {"tag": "00" * 32},
        lambda o: o | {"time": o["time"] + 1},
        lambda o: o | {"settled": o["settled"] + 1},
        lambda o: {"partitions": o["partitions"], "version": o["version"]},
        lambda o: o | {"partitions": [-1, 0]},
        lambda o: o | {"more": 1},
        lambda o: [],
    ],
)
def test_any_altered_offset_is_refused_wherever_it_comes_in(world: World, alter: Callable[[Any], Any]) -> None:
    fill(world, 0, 0, 4)
    stream = world.stream()
    start = stream.initialOffset()
    end = stream.latestOffset(start, ReadMaxRows(3))
    for plan in (
        lambda: stream.latestOffset(alter(start), ReadMaxRows(3)),
        lambda: stream.partitions(alter(start), end),
        lambda: stream.partitions(start, alter(end)),
    ):
        with pytest.raises(Corrupt, match="altered"):
            plan()


def test_options_that_make_no_sense_are_refused() -> None:
    with pytest.raises(Misuse, match="realm"):
        StepsSource({"topic": "t"}).streamReader(None)  # type: ignore[arg-type]
    for bad in ("0", "-1", "many", "1.5"):
        with pytest.raises(Misuse, match="max_frames_per_trigger"):
            StepsSource({"realm": "r", "topic": "t", "max_frames_per_trigger": bad}).reader(None)  # type: ignore[arg-type]


@given(st.lists(st.integers(1, 50), max_size=5), st.integers(1, 120))
def test_admission_uses_the_limit_and_starves_nobody(lengths: list[int], limit: int) -> None:
    backlog = [(p, 10, 10 + n) for p, n in enumerate(lengths)]
    taken = {p: end - first for p, first, end in sources.cut(backlog, limit)}
    assert sum(taken.values()) == min(limit, sum(lengths))
    for p, length in enumerate(lengths):
        assert taken.get(p, 0) <= length
        assert taken.get(p, 0) >= min(length, limit // len(lengths))


@given(
    st.lists(st.lists(st.integers(1, 4 << 20), min_size=1, max_size=12), max_size=4), st.integers(1, 6), st.booleans()
)
def test_dividing_loses_nothing_and_balances(weights: list[list[int]], tasks: int, known: bool) -> None:
    name, end, least = StepName("/r", "t"), PinnedOffset((9,), 1), FramesStep.min_task_bytes
    spans = [(p, 5, 5 + len(w)) for p, w in enumerate(weights)]
    sized = [(Span(name, *s, end), weights[s[0]] if known else [least] * len(weights[s[0]])) for s in spans]
    divided = [[(s.partition, s.first, s.end) for s in task] for task in sources.divide(sized, tasks, least)]
    assert len(divided) <= tasks and all(divided)
    covered = [(p, o) for task in divided for p, first, end in task for o in range(first, end)]
    assert covered == [(p, o) for p, first, end in spans for o in range(first, end)]
    if known and divided:
        loads = [sum(weights[p][o - 5] for p, a, b in task for o in range(a, b)) for task in divided]
        assert max(loads) <= sum(loads) / len(loads) + (4 << 20), "no task has more than a frame too many"


# --- helpers ------------------------------------------------------------------------------------


def newest(directory: Path) -> Path:
    return max((p for p in directory.iterdir() if p.name.isdigit()), key=lambda p: int(p.name))


def remove_newest(directory: Path) -> None:
    path = newest(directory)
    path.unlink()
    (path.parent / f".{path.name}.crc").unlink(missing_ok=True)


def skip_ahead(path: Path, by: int) -> None:
    """What an attacker, or a careless operator, does to Spark's offset log."""
    *head, last = path.read_text().splitlines()
    offset = json.loads(last)
    offset["partitions"][0] += by
    path.write_text("\n".join([*head, json.dumps(offset)]))
    (path.parent / f".{path.name}.crc").unlink(missing_ok=True)


def contents(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in directory.iterdir() if re.search(r"\.piece$", path.name)}


def secrets_of(realm: Realm) -> list[bytes]:
    keys = keyfile.read(realm.paths.broker_key, "sealcast broker", NotFound("no keys"))
    texts = [value for value in keys.values() if isinstance(value, str) and re.fullmatch(r"[0-9a-f]{64}", value)]
    assert len(texts) >= 4
    return [form for text in texts for form in (text.encode(), bytes.fromhex(text))]
