"""Suite `pipeline`: what Spark adds to the kernels, and how the whole grows.

    overhead      CPU of the Spark batch, admit to deliver, over CPU of its kernels alone on the same frames
    udf           CPU per event of a per-row Python UDF that does the same, over ours: how many times dearer
    doubling      CPU of twice the events over CPU of once
    micro-batch   a streaming micro-batch of 1,000 events over an empty one of the same shape plus the kernels

CPU is that of the driver, the JVM and every Python worker. Everything is warm: each process has run the same before.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from pyspark.sql import SparkSession

from sealcast.bench import micro_batch, row_udf, workload
from sealcast.bench.report import BenchRow, tree_seconds
from sealcast.lab import scratch
from sealcast.pipeline.run import run_batch
from sealcast.pipeline.session import session
from sealcast.trust.deployment import Realm

EVENTS: Final = 200_000
SUBSCRIPTIONS: Final = 10_000
WARM_EVENTS: Final = 40_000
UDF_EVENTS: Final = 200


def rows() -> Iterator[BenchRow]:
    with scratch.realm(need_bytes=2 << 30) as realm:
        filters = workload.create(realm, SUBSCRIPTIONS)
        source = workload.TradingSource(realm)
        spark = session(app_name="sealcast bench", driver_memory="2g")
        kernels = workload.Kernels(realm)
        for _ in range(2):
            source.publish(WARM_EVENTS)
            kernels.run()
            run_batch(spark, realm.paths.root, workload.TOPIC)
        source.publish(EVENTS // 2)
        half = batch_seconds(spark, realm, workload.TOPIC)
        source.publish(EVENTS)
        alone = kernels.run()
        whole = batch_seconds(spark, realm, workload.TOPIC)
        yield BenchRow("overhead", whole, alone, "the kernels alone", whole / alone, f"CPU s, {EVENTS:,} events")
        per_row = row_udf.cpu_per_event(spark, source.ticks(UDF_EVENTS), filters)
        ours = whole / EVENTS
        yield BenchRow("udf", ours * 1e6, per_row * 1e6, "a Python UDF per row", per_row / ours, "CPU us per event")
        yield BenchRow("doubling", whole, half, "half the events", whole / half, f"CPU s, {EVENTS:,} events")
        yield micro_batch.row(spark, realm, source)
        source.close()


def batch_seconds(spark: SparkSession, realm: Realm, topic: str) -> float:
    """CPU seconds of one batch of what waits, of all processes."""
    return tree_seconds(lambda: run_batch(spark, realm.paths.root, topic))
