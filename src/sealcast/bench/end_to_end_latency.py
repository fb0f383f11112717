"""`latency` of suite `end-to-end`: how long one event takes from its publisher to its reader, beside Spark's own time.

Ours is a pipeline that runs, one publisher and one follower: from `publish` until `poll` returns the event, opened and
verified. The reference is a plain stateful query in the same session: a source in Python, one stateful operator of as
many partitions in RocksDB, and a sink in Python, from the append to a file until the sink's commit. It protects
nothing, matches nothing and hands nothing on. Both run all the time, and events go to them in turns, one at a time, so
that whatever slows the machine down slows down both. Medians are compared.
"""

from __future__ import annotations

import os
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import Row, SparkSession
from pyspark.sql.datasource import (
    DataSource,
    DataSourceStreamArrowWriter,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    InputPartition,
    WriterCommitMessage,
)
from pyspark.sql.streaming.datasource import ReadLimit
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle
from pyspark.sql.types import StructType

from sealcast.bench.end_to_end_publish import SCHEMA, TOPIC, events
from sealcast.bench.report import BenchRow
from sealcast.clients.publisher import Publisher
from sealcast.clients.subscriber import Subscriber
from sealcast.errors import Bug, Unavailable
from sealcast.lab import scratch
from sealcast.pipeline.run import start
from sealcast.pipeline.session import session

EVENTS: Final = 40
WARM_EVENTS: Final = 10
_PATIENCE_SECONDS: Final = 120.0
#: Between two looks at whether the plain query committed: far less than what is measured.
_LOOK_SECONDS: Final = 0.001
_COLUMNS: Final = "number BIGINT, payload BINARY"
_ARROW: Final = pa.schema([("number", pa.int64()), ("payload", pa.binary())])
_PAYLOAD: Final = bytes(256)
#: How the plain query keeps its state: beyond memory, and in small changes.
_STATE: Final = {
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    ),
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
}


def rows(events_each: int = EVENTS, warm: int = WARM_EVENTS) -> Iterator[BenchRow]:
    """Milliseconds, and how many times the reference."""
    spark = session(app_name="sealcast bench", clients=False)
    for name, value in _STATE.items():
        spark.conf.set(name, value)
    with scratch.realm(64 << 20) as realm, tempfile.TemporaryDirectory(prefix="sealcast-bench-") as files:
        realm.create_topic(TOPIC, SCHEMA, access="members")
        realm.enrol_many(["publisher", "reader"])
        realm.subscribe(TOPIC, "reader", "volume >= 0")
        table = events(warm + events_each)
        plain = PlainQuery(spark, Path(files))
        with (
            plain,
            start(realm, [TOPIC], spark=spark),
            Publisher(realm, TOPIC, as_="publisher") as publisher,
            Subscriber(realm, TOPIC, "reader") as reader,
        ):

            def ours(number: int) -> None:
                publisher.publish(table.slice(number, 1))
                if len(reader.poll(timeout=_PATIENCE_SECONDS)) != 1:
                    raise Unavailable("an event was not delivered within two minutes")

            spent = [(_seconds(ours, number), _seconds(plain.one, number)) for number in range(warm + events_each)]
    mine, theirs = (statistics.median(each) * 1e3 for each in zip(*spent[warm:], strict=True))
    told = "a plain stateful query, from the append to the commit of its sink"
    yield BenchRow("latency", mine, theirs, told, mine / theirs, "ms, median of single events")


def _seconds(work: Callable[[int], None], number: int) -> float:
    began = time.perf_counter()
    work(number)
    return time.perf_counter() - began


# --- the plain query ----------------------------------------------------------------------------------


class PlainQuery:
    """Counts the events that were appended to a file, in Spark's state, and notes each commit in another file."""

    def __init__(self, spark: SparkSession, files: Path) -> None:
        self._spark, self._files = spark, files
        self._appended, self._committed = files / "appended", files / "committed"
        for path in (self._appended, self._committed):
            path.touch()

    def one(self, number: int) -> None:
        """Appends one event, and waits until the sink has committed it."""
        with self._appended.open("ab") as file:
            file.write(_PAYLOAD)
            os.fdatasync(file.fileno())
        wanted, deadline = (number + 1) * len(_PAYLOAD), time.monotonic() + _PATIENCE_SECONDS
        while self._committed.stat().st_size < number + 1:
            if time.monotonic() > deadline or not self._query.isActive:
                raise Unavailable("the plain query did not commit within two minutes")
            time.sleep(_LOOK_SECONDS)
        if self._appended.stat().st_size != wanted:
            raise Bug("the plain query has other events than were appended")

    def __enter__(self) -> None:
        self._spark.dataSource.register(PlainFile)
        rows = self._spark.readStream.format(PlainFile.name()).option("files", str(self._files)).load()
        counted = rows.groupBy("number").transformWithState(KeepsOne(), _COLUMNS, outputMode="Append", timeMode="None")
        writer = counted.writeStream.format(PlainFile.name()).option("files", str(self._files))
        self._query = writer.option("checkpointLocation", str(self._files / "checkpoint")).start()

    def __exit__(self, *about: object) -> None:
        self._query.stop()


class KeepsOne(StatefulProcessor):
    """A value for each key, as a query that drops repeated events keeps it."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._state = handle.getValueState("seen", "seen BOOLEAN")

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:
        if not self._state.exists():
            self._state.update((True,))
            yield from rows

    def close(self) -> None:
        pass


class PlainFile(DataSource):
    """A file that events are appended to, and another that has a byte for each that was committed."""

    @classmethod
    def name(cls) -> str:
        return "sealcast-bench-plain-file"

    def schema(self) -> str:
        return _COLUMNS

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        return _PlainReader(self.options["files"])

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        return _PlainWriter(self.options["files"])


class _PlainReader(DataSourceStreamReader):
    def __init__(self, files: str) -> None:
        self._appended = Path(files) / "appended"

    def initialOffset(self) -> dict[str, Any]:
        return {"events": 0}

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        return {"events": self._appended.stat().st_size // len(_PAYLOAD)}

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        return [InputPartition((start["events"], end["events"]))]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        first, end = partition.value
        raw = self._appended.read_bytes()
        payloads = [raw[at * len(_PAYLOAD) : (at + 1) * len(_PAYLOAD)] for at in range(first, end)]
        yield pa.RecordBatch.from_pydict({"number": list(range(first, end)), "payload": payloads}, schema=_ARROW)


class _Wrote(WriterCommitMessage):
    def __init__(self, rows: int) -> None:
        self.rows = rows


class _PlainWriter(DataSourceStreamArrowWriter):
    def __init__(self, files: str) -> None:
        self._committed = Path(files) / "committed"

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        return _Wrote(sum(batch.num_rows for batch in iterator))

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        with self._committed.open("ab") as file:
            file.write(bytes(sum(message.rows for message in messages if isinstance(message, _Wrote))))
            os.fdatasync(file.fileno())
