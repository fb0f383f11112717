"""Row `micro-batch`: what one streaming micro-batch of 1,000 events takes, beside what Spark takes for nothing at all.

The reference is a query of the same shape, a Python source, the same observed counts and a Python sink with two phases,
whose batches are empty; to it the kernels of 1,000 events are added, run alone. Batches follow one another, so their
duration is a fair measure; medians are compared.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Iterator, Sequence
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.datasource import (
    DataSource,
    DataSourceStreamArrowWriter,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    InputPartition,
    WriterCommitMessage,
)
from pyspark.sql.streaming.datasource import ReadLimit
from pyspark.sql.types import StructType

from sealcast.bench import workload
from sealcast.bench.report import BenchRow
from sealcast.broker.columns import STAGED, ddl
from sealcast.errors import Unavailable
from sealcast.pipeline.metrics import FinishedBatch, observed
from sealcast.pipeline.run import start
from sealcast.trust.deployment import Realm

BATCHES: Final = 30
WARM_BATCHES: Final = 10
EVENTS: Final = 1_000
_PATIENCE_SECONDS: Final = 60.0


def row(spark: SparkSession, realm: Realm, source: workload.TradingSource) -> BenchRow:
    alone = _kernels(realm, source)
    ours = _ours(spark, realm, source)
    empty = _empty(spark)
    expected = empty + alone
    name = f"an empty micro-batch ({empty * 1e3:.0f} ms) and the kernels ({alone * 1e3:.1f} ms)"
    return BenchRow("micro-batch", ours * 1e3, expected * 1e3, name, ours / expected, "ms per 1,000 events")


def _ours(spark: SparkSession, realm: Realm, source: workload.TradingSource) -> float:
    heard: list[FinishedBatch] = []
    with start(realm, [workload.TOPIC], spark=spark, on_batch=heard.append):
        for count in range(1, WARM_BATCHES + BATCHES + 1):
            source.publish(EVENTS)
            _wait_for(heard, count)
    return statistics.median(batch.seconds for batch in heard[WARM_BATCHES:])


def _wait_for(heard: list[FinishedBatch], count: int) -> None:
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while len(heard) < count:
        if time.monotonic() > deadline:
            raise Unavailable("a micro-batch of 1,000 events did not finish within a minute")
        time.sleep(0.002)


def _kernels(realm: Realm, source: workload.TradingSource) -> float:
    """Measures the kernels on the events of one such batch, which stay in the log for the pipeline."""
    source.publish(EVENTS)
    return statistics.median(workload.Kernels(realm).run(time.perf_counter) for _ in range(BATCHES))


# --- the empty query of the same shape --------------------------------------------------------------


def _empty(spark: SparkSession) -> float:
    spark.dataSource.register(Nothing)
    pieces = spark.readStream.format(Nothing.name()).load().observe("nothing", *observed(traces=False))
    with tempfile.TemporaryDirectory(prefix="sealcast-bench-") as checkpoint:
        query = pieces.writeStream.format(Nothing.name()).option("checkpointLocation", checkpoint).start()
        try:
            return _median_of(query)
        finally:
            query.stop()


def _median_of(query: Any) -> float:
    seconds: dict[int, float] = {}
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while len(seconds) < WARM_BATCHES + BATCHES and time.monotonic() < deadline:
        seconds |= {p.batchId: p.durationMs["triggerExecution"] / 1e3 for p in query.recentProgress}
        time.sleep(0.05)
    if len(seconds) <= WARM_BATCHES:
        raise Unavailable("Spark did not finish a handful of empty micro-batches within a minute")
    return statistics.median([seconds[number] for number in sorted(seconds)][WARM_BATCHES:])


class Nothing(DataSource):
    """A source that always has a new batch with nothing in it, and a sink for it."""

    @classmethod
    def name(cls) -> str:
        return "sealcast-bench-nothing"

    def schema(self) -> str:
        return ddl(STAGED)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        return _NothingReader()

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        return _NothingWriter()


class _NothingReader(DataSourceStreamReader):
    def initialOffset(self) -> dict[str, Any]:
        return {"batch": 0}

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        return {"batch": start["batch"] + 1}

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        return [InputPartition(0)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        yield pa.RecordBatch.from_pylist([], schema=STAGED)


class _NothingWriter(DataSourceStreamArrowWriter):
    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        for _ in iterator:
            pass
        return WriterCommitMessage()

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        pass
