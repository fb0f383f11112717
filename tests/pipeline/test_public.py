"""`format("sealcast")`: what a Spark user writes is published once, and what one reads is a subscriber's own events."""

from __future__ import annotations

import re
import shutil
import socket
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.errors import PySparkException
from pyspark.sql.datasource import DataSourceStreamWriter, DataSourceWriter
from pyspark.sql.types import StructType

from sealcast.clients.publisher import Publisher
from sealcast.errors import DiskFull, Misuse, NotFound
from sealcast.log.embedded import EmbeddedLog
from sealcast.model import Event, Schema
from sealcast.pipeline import outbox, run
from sealcast.pipeline.options import switch
from sealcast.pipeline.outbox import Outbox, StagedFrames, hand_over, has_mark, leave_mark, remove_mark
from sealcast.pipeline.public import SealcastSource, columns_of
from sealcast.trust.deployment import Realm
from sealcast.trust.realm.changes import Right

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SCHEMA = Schema.from_json(
    {
        "attributes": [
            {"name": "symbol", "type": "string"},
            {"name": "price", "type": "decimal", "min": "0", "max": "1000", "step": "0.01"},
            {"name": "size", "type": "int"},
            {"name": "ratio", "type": "float"},
            {"name": "live", "type": "bool"},
            {"name": "at", "type": "timestamp"},
        ]
    }
)
MOMENT = datetime(2026, 3, 1, 12, 0, 0, 250_000, tzinfo=UTC)
DDL = "symbol string, price decimal(10,2), size bigint, ratio double, live boolean, at timestamp, payload binary"


@pytest.fixture
def realm(tmp_path: Path) -> Realm:
    realm = Realm.create(tmp_path / "realm")
    realm.create_topic("trades", SCHEMA, access="members")
    realm.enrol_many(["nyse", "alice", "bob", "eve"])
    realm.subscribe("trades", "alice", "price >= 10")
    realm.subscribe("trades", "bob", "symbol = 'nothing'")
    return realm


def options(realm: Realm, who: str) -> dict[str, str]:
    return {"realm": str(realm.paths.root), "topic": "trades", "as": who}


def read(spark: SparkSession, realm: Realm, who: str) -> DataFrame:
    return spark.read.format("sealcast").options(**options(realm, who)).load()


def rows(*prices: int) -> list[tuple[Any, ...]]:
    return [("A", Decimal(p), p, p / 4, p % 2 == 0, MOMENT, f"p{p}".encode()) for p in prices]


def write(spark: SparkSession, realm: Realm, *prices: int) -> None:
    frame = spark.createDataFrame(rows(*prices), DDL).coalesce(1)
    frame.write.format("sealcast").options(**options(realm, "nyse")).mode("append").save()


def test_written_in_batch_read_in_batch(spark: SparkSession, realm: Realm) -> None:
    write(spark, realm, 5, 10, 15)
    assert run.run(realm, once=True, spark=spark)["admitted"] == 3
    frame = read(spark, realm, "alice")
    assert frame.schema.simpleString() == (
        "struct<position:string,publisher:string,published_at:timestamp,sequence:bigint,symbol:string,"
        "price:decimal(19,2),size:bigint,ratio:double,live:boolean,at:timestamp,payload:binary,content_type:string>"
    )
    got = frame.orderBy("sequence").collect()
    assert [tuple(r)[4:11] for r in got] == [
        (s, p, n, f, b, MOMENT.replace(tzinfo=None), payload) for s, p, n, f, b, _, payload in rows(10, 15)
    ]
    assert [(r.position, r.publisher, r.sequence, r.content_type) for r in got] == [
        ("0/0/1", "nyse", 1, "application/octet-stream"),
        ("0/0/2", "nyse", 2, "application/octet-stream"),
    ]
    assert read(spark, realm, "bob").count() == 0


def test_nulls_and_missing_columns(spark: SparkSession, realm: Realm) -> None:
    frame = spark.createDataFrame([(Decimal(20), None, "text")], "price decimal(10,2), symbol string, payload string")
    frame.write.format("sealcast").options(**options(realm, "nyse")).mode("append").save()
    run.run(realm, once=True, spark=spark)
    (got,) = read(spark, realm, "alice").collect()
    assert (got.price, got.symbol, got["size"], bytes(got.payload)) == (Decimal(20), None, None, b"text")


def test_a_stream_from_topic_to_topic(spark: SparkSession, realm: Realm, tmp_path: Path) -> None:
    realm.create_topic("copy", SCHEMA, access="members")
    realm.subscribe("copy", "bob", "price > 0")
    with Publisher(realm, "trades", "nyse") as publisher:
        publisher.publish(Event({"symbol": "A", "price": p}, b"x") for p in (5, 20, 30))
    run.run(realm, ["trades"], once=True, spark=spark)

    def forward() -> None:
        source = spark.readStream.format("sealcast").options(**options(realm, "alice")).load()
        sink = source.select("symbol", "price", "payload").writeStream.format("sealcast")
        query = (
            sink.options(
                **{**options(realm, "alice"), "topic": "copy"}, checkpointLocation=str(tmp_path / "checkpoint")
            )
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()

    forward()
    for path in sorted((tmp_path / "checkpoint" / "commits").iterdir()):
        path.unlink()  # as if the driver had died before Spark knew: the batch is run, and committed, again
    forward()
    run.run(realm, ["copy"], once=True, spark=spark)
    copied = spark.read.format("sealcast").options(**{**options(realm, "bob"), "topic": "copy"}).load()
    assert sorted((r.publisher, r.price) for r in copied.collect()) == [("alice", Decimal(20)), ("alice", Decimal(30))]
    assert not list(realm.paths.topic("copy").root.glob("outbox/*.frames"))


class FromElsewhere(SealcastSource):
    """As if no worker shared a disk with the driver: its mark is nowhere."""

    @classmethod
    def name(cls) -> str:
        return "sealcast-from-elsewhere"

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        return _unmarked(super().writer(schema, overwrite))

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        return _unmarked(super().streamWriter(schema, overwrite))


def _unmarked(writer: Any) -> Any:
    vars(writer)["_mark"] = "nobody-left.mark"
    return writer


def test_workers_without_the_drivers_disk_hand_over_what_they_sealed(
    spark: SparkSession, realm: Realm, tmp_path: Path
) -> None:
    spark.dataSource.register(FromElsewhere)
    frame = spark.createDataFrame(rows(10, 11, 12, 13), DDL).repartition(3)
    frame.write.format(FromElsewhere.name()).options(**options(realm, "nyse")).mode("append").save()
    with pytest.raises(PySparkException, match="off the grid"):
        off = spark.createDataFrame([(Decimal("1.001"),)], "price decimal(10,3)")
        off.write.format(FromElsewhere.name()).options(**options(realm, "nyse")).mode("append").save()
    frame.write.parquet(str(tmp_path / "rows"))

    def stream() -> None:
        source = spark.readStream.schema(frame.schema).parquet(str(tmp_path / "rows"))
        sink = source.writeStream.format(FromElsewhere.name()).options(**options(realm, "nyse"))
        sink = sink.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True)
        sink.start().awaitTermination()

    stream()
    for path in sorted((tmp_path / "checkpoint" / "commits").iterdir()):
        path.unlink()  # as if the driver had died before Spark knew: the batch is run, and committed, again
    stream()
    assert run.run(realm, once=True, spark=spark)["admitted"] == 8
    got = sorted(row.price for row in read(spark, realm, "alice").collect())
    assert got == sorted([Decimal(p) for p in (10, 11, 12, 13)] * 2)
    assert not list(realm.paths.topic("trades").root.glob("outbox/*.frames"))


def test_reading_obeys_the_rights_of_now(spark: SparkSession, realm: Realm) -> None:
    write(spark, realm, 50)
    run.run(realm, once=True, spark=spark)
    assert read(spark, realm, "alice").count() == 1
    realm.revoke("trades", "alice", [Right.SUBSCRIBE])
    with pytest.raises(PySparkException, match="may not subscribe"):
        read(spark, realm, "alice").count()
    with pytest.raises(PySparkException, match="no subscription"):
        read(spark, realm, "eve").count()


@pytest.mark.parametrize(
    ("ddl", "row", "said"),
    [
        ("prize decimal(10,2)", (Decimal(1),), "column 'prize'"),
        ("price decimal(10,2), payload int", (Decimal(1), 1), "column 'payload'"),
        ("price decimal(10,3)", (Decimal("1.001"),), "off the grid"),
        ("price decimal(10,2)", (Decimal(2000),), "above the maximum"),
        ("price string", ("cheap",), "not a number"),
    ],
)
def test_what_cannot_be_published_is_refused_whole(
    spark: SparkSession, realm: Realm, ddl: str, row: tuple[Any, ...], said: str
) -> None:
    frame = spark.createDataFrame([row], ddl)
    with pytest.raises(PySparkException, match=said):
        frame.write.format("sealcast").options(**options(realm, "nyse")).mode("append").save()
    assert not list(realm.paths.topic("trades").root.glob("outbox/*.frames"))
    with EmbeddedLog(realm.paths.topic("trades").frames(0)) as log:
        assert log.end() == 0


def test_options_and_modes_that_make_no_sense(spark: SparkSession, realm: Realm) -> None:
    with pytest.raises(PySparkException, match="needs the options topic, as"):
        spark.read.format("sealcast").option("realm", str(realm.paths.root)).load()
    with pytest.raises(PySparkException, match="no overwriting"):
        spark.createDataFrame(rows(1), DDL).write.format("sealcast").options(**options(realm, "nyse")).mode(
            "overwrite"
        ).save()
    source = SealcastSource(options(realm, "alice") | {"from": "yesterday"})
    with pytest.raises(Misuse, match="start, end or a time"):
        source.reader(None).partitions()  # type: ignore[arg-type]
    with pytest.raises(Misuse, match="max_records_per_trigger"):
        SealcastSource(options(realm, "alice") | {"max_records_per_trigger": "0"}).streamReader(None)  # type: ignore[arg-type]


def test_a_machine_without_the_home_says_which_it_is_and_what_it_needs(tmp_path: Path) -> None:
    source = SealcastSource({"realm": str(tmp_path), "topic": "trades", "as": "alice"})
    with pytest.raises(NotFound, match=f"is no realm .*, on {re.escape(socket.gethostname())}") as refused:
        source.schema()
    assert "sealcast worker-home DIR --as alice" in (refused.value.hint or "")


def test_an_attribute_keeps_its_name() -> None:
    schema = Schema.from_json({"attributes": [{"name": "Sequence", "type": "int"}, {"name": "payload", "type": "int"}]})
    assert columns_of(schema).fieldNames() == [
        *("position", "publisher", "published_at", "_sequence"),
        *("Sequence", "payload", "_payload", "content_type"),
    ]


# --- the outbox alone -----------------------------------------------------------------------------


def test_a_batch_job_leaves_nothing_in_the_outbox(spark: SparkSession, realm: Realm) -> None:
    write(spark, realm, 5)
    assert list(realm.paths.topic("trades").root.glob("outbox/*")) == []


def test_a_mark_is_found_where_it_was_left_and_nowhere_else(tmp_path: Path) -> None:
    here, copied = tmp_path / "here", tmp_path / "copied"
    leave_mark(here)
    shutil.copytree(here, copied)
    name = leave_mark(here)
    assert has_mark(here, name) and not has_mark(copied, name) and not has_mark(tmp_path / "nothing", name)
    remove_mark(here, name)
    assert not has_mark(here, name)


def test_a_task_hands_over_only_what_fits_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outbox, "MAX_HANDED_BYTES", 2 << 20)
    frames = [bytes(1 << 20)] * 2
    assert hand_over(iter(frames)) == tuple(frames)
    with pytest.raises(Misuse, match="more than 2 MiB to publish.* shares no disk") as refused:
        hand_over(iter([*frames, b"."]))
    assert "repartition" in (refused.value.hint or "")


def test_a_stream_goes_on_only_where_its_journal_is(tmp_path: Path) -> None:
    """A driver on another machine cannot know whether the batch was published already, and says so."""
    before, after = Outbox(tmp_path / "before", "query"), Outbox(tmp_path / "after", "query")
    before.begin(0)
    before.begin(7)
    with pytest.raises(Misuse, match="batch 7 of this stream is not its first one.* does not exist") as refused:
        after.begin(7)
    assert "takes_over" in (refused.value.hint or "")
    after.begin(7, takes_over=True)
    after.begin(8)
    with EmbeddedLog(tmp_path / "log") as log:
        after.publish(8, stage(after, [[b"frame"]]), log)
        after.begin(8)
        after.publish(8, stage(after, [[b"sealed again"]]), log)
        assert [record.data for record in log.read(0)] == [b"frame"]


def test_switches_are_true_or_false() -> None:
    assert switch({"takes_over": "True"}, "takes_over") and not switch({}, "takes_over")
    with pytest.raises(Misuse, match="option takes_over is true or false, not 'yes'"):
        switch({"takes_over": "yes"}, "takes_over")


class Failing:
    """A log whose appends fail after some frames: what was appended stays, and the caller hears of a failure."""

    def __init__(self, log: EmbeddedLog, frames_left: int) -> None:
        self._log, self._left = log, frames_left
        self.end, self.read = log.end, log.read

    def append(self, frames: list[bytes]) -> range:
        taken, self._left = frames[: self._left], self._left - len(frames)
        if taken:
            self._log.append(taken)
        if self._left < 0:
            raise DiskFull("no space left")
        return range(len(frames))


def stage(outbox: Outbox, tasks: list[list[bytes]]) -> list[StagedFrames]:
    staged = (outbox.stage(task, frames) for task, frames in enumerate(tasks))
    return [each for each in staged if each is not None]


@given(
    st.lists(st.lists(st.binary(min_size=1, max_size=8), max_size=4), min_size=1, max_size=3),
    st.lists(st.integers(0, 6), max_size=4),
    st.booleans(),
)
@settings(max_examples=40)
def test_published_once_however_often_it_fails(
    tmp_path_factory: pytest.TempPathFactory, tasks: list[list[bytes]], failures: list[int], others: bool
) -> None:
    """Frames are unique, as real ones are; other writers append in between."""
    directory = tmp_path_factory.mktemp("outbox")
    unique = [[f"{t}/{n}/".encode() + frame for n, frame in enumerate(frames)] for t, frames in enumerate(tasks)]
    with EmbeddedLog(directory / "log") as log:
        log.append([b"before"])
        for attempt, room in enumerate(failures):
            outbox = Outbox(directory / "outbox", "query")
            sealed = [[b"%d:" % attempt + frame for frame in frames] for frames in unique]
            staged = stage(outbox, sealed)
            try:
                outbox.publish(0, staged, Failing(log, room))  # type: ignore[arg-type]
            except DiskFull:
                outbox.discard()
            if others:
                log.append([b"someone else"])
        outbox = Outbox(directory / "outbox", "query")
        outbox.publish(0, stage(outbox, unique), log)
        outbox.publish(0, stage(outbox, unique), log)
        got = [r.data for r in log.read(0) if r.data not in (b"before", b"someone else")]
        assert [frame.split(b":", 1)[-1] if b":" in frame[:2] else frame for frame in got] == [
            frame for frames in unique for frame in frames
        ]
        assert not list((directory / "outbox").glob("*.frames"))
        outbox.publish(1, stage(outbox, [[b"next batch"]]), log)
        assert [r.data for r in log.read(log.end() - 1)] == [b"next batch"]
