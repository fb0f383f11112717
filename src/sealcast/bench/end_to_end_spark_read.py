"""`spark-read` of suite `end-to-end`: `format("sealcast")`, beside opening alone and rows that are ready-made.

The reference is what a reader on Spark cannot do without, measured in the same session: opening the same events by
`Subscriber.poll_arrow`, without Spark; and a data source in Python that yields the same rows, in as many partitions,
out of Arrow files. The ratio is CPU of ours over the sum of the two. CPU is that of all processes: the driver, its JVM
and the Python workers. All rows go to a sink that drops them.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from sealcast.bench.end_to_end_open import BATCHES, deliver
from sealcast.bench.end_to_end_publish import TOPIC
from sealcast.bench.report import BenchRow, tree_seconds
from sealcast.clients.subscriber import Subscriber
from sealcast.errors import Bug
from sealcast.lab import scratch
from sealcast.pipeline.session import session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

EVENTS: Final = 100_000
ROUNDS: Final = 3
READER: Final = "every"


def rows() -> Iterator[BenchRow]:
    """CPU microseconds per event."""
    spark = session(app_name="sealcast bench", short_lived=True)
    spark.dataSource.register(ReadyMade)
    with scratch.realm(512 << 20) as realm, scratch.directory(256 << 20) as files:
        deliver(realm, EVENTS)
        _write(realm.paths.root, files)
        options = {"realm": str(realm.paths.root), "topic": TOPIC, "as": READER}
        ours = spark.read.format("sealcast").options(**options).load()
        ready = spark.read.format(ReadyMade.name()).option("files", str(files)).load()
        if ours.count() != EVENTS or ready.count() != EVENTS:  # which also wakes workers up
            raise Bug("not all events were read")
        spent = [(_dropped(ours), _opened(realm.paths.root), _dropped(ready)) for _ in range(ROUNDS)]
    read, opened, made = (statistics.median(each) / EVENTS * 1e6 for each in zip(*spent, strict=True))
    told = "poll_arrow alone, and a data source of the same rows ready-made"
    yield BenchRow("spark-read", read, opened + made, told, read / (opened + made), "CPU us per 256-byte event")


class ReadyMade(DataSource):
    """The same rows out of Arrow files, one a partition."""

    @classmethod
    def name(cls) -> str:
        return "sealcast-bench-ready-made"

    def schema(self) -> StructType:
        with pa.memory_map(str(_files(self.options["files"])[0])) as source:
            return from_arrow_schema(pa.ipc.open_stream(source).schema)

    def reader(self, schema: StructType) -> DataSourceReader:
        return _ReadyMadeReader(self.options["files"])


class _ReadyMadeReader(DataSourceReader):
    def __init__(self, directory: str) -> None:
        self._directory = directory

    def partitions(self) -> list[InputPartition]:
        return [InputPartition(str(path)) for path in _files(self._directory)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        with pa.memory_map(partition.value) as source:
            yield from pa.ipc.open_stream(source)


def _files(directory: str) -> list[Path]:
    return sorted(Path(directory).glob("*.arrows"))


def _write(realm: Path, files: Path) -> None:
    """What each record of the ledger holds, as `format("sealcast")` would yield it."""
    with Subscriber(realm, TOPIC, READER, from_="end") as subscriber:
        for record in range(BATCHES):
            batches = list(subscriber.between(record, record + 1))
            path, schema = str(files / f"{record}.arrows"), batches[0].schema
            with pa.OSFile(path, "wb") as sink, pa.ipc.new_stream(sink, schema) as out:
                for batch in batches:
                    out.write_batch(batch)


def _dropped(frame: DataFrame) -> float:
    return tree_seconds(lambda: frame.write.format("noop").mode("overwrite").save())


def _opened(realm: Path) -> float:
    with Subscriber(realm, TOPIC, READER, from_="start") as subscriber:
        began = time.process_time()
        while subscriber.poll_arrow().num_rows:
            pass
        return time.process_time() - began
