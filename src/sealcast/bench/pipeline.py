"""Suite `pipeline`: what Spark adds to the kernels, and how the whole grows.

    overhead      CPU of the Spark batch, admit to deliver, over CPU of its kernels alone on the same frames
    udf           CPU per event of a per-row Python UDF that does the same, over ours: how many times dearer
    doubling      CPU of twice the events over CPU of once
    micro-batch   a streaming micro-batch of 1,000 events over an empty one of the same shape plus the kernels

CPU is that of the driver, the JVM and every Python worker. Everything is warm: each process has run the same before.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Final

from pyspark.sql import SparkSession

from sealcast.bench import micro_batch, row_udf, workload
from sealcast.bench.report import Row, tree_seconds
from sealcast.broker.authenticate import authenticate
from sealcast.broker.replay import Windows
from sealcast.broker.rulings import gathered
from sealcast.broker.topic import TopicName
from sealcast.lab import scratch
from sealcast.log.offsets import PinnedOffset
from sealcast.model.stages import Ruled
from sealcast.pipeline.run import run_batch
from sealcast.pipeline.session import session
from sealcast.protections.endpoint import fused
from sealcast.protections.endpoint.context import context
from sealcast.trust.deployment import Realm

EVENTS: Final = 200_000
SUBSCRIPTIONS: Final = 10_000
WARM_EVENTS: Final = 40_000
UDF_EVENTS: Final = 200


def rows() -> Iterator[Row]:
    with scratch.realm(need_bytes=2 << 30) as realm:
        filters = workload.create(realm, SUBSCRIPTIONS)
        source = workload.Source(realm)
        spark = session(app_name="sealcast bench", driver_memory="2g")
        kernels = Kernels(realm)
        for _ in range(2):
            source.publish(WARM_EVENTS)
            kernels.run()
            run_batch(spark, realm.paths.root, workload.TOPIC)
        source.publish(EVENTS // 2)
        half = batch_seconds(spark, realm, workload.TOPIC)
        source.publish(EVENTS)
        alone = kernels.run()
        whole = batch_seconds(spark, realm, workload.TOPIC)
        yield Row("overhead", whole, alone, "the kernels alone", whole / alone, f"CPU s, {EVENTS:,} events")
        per_row = row_udf.cpu_per_event(spark, source.ticks(UDF_EVENTS), filters)
        ours = whole / EVENTS
        yield Row("udf", ours * 1e6, per_row * 1e6, "a Python UDF per row", per_row / ours, "CPU us per event")
        yield Row("doubling", whole, half, "half the events", whole / half, f"CPU s, {EVENTS:,} events")
        yield micro_batch.row(spark, realm, source)
        source.close()


class Kernels:
    """The kernels without Spark, on the frames that its source would read."""

    def __init__(self, realm: Realm) -> None:
        self._name = TopicName(str(realm.paths.root), workload.TOPIC)

    def run(self) -> float:
        """CPU seconds from frames to sealed pieces; reading the log before, and storing pieces after, are not in it."""
        topic = self._name.open()
        at = context(self._name.realm, self._name.topic, topic.realm.registry.version())
        windows, end = Windows(at.gate.bounds), PinnedOffset(topic.available(), at.version)
        frames = [
            received
            for partition, first, stop in topic.committed().ranges(end)
            for received in gathered(partition, topic.frames.partition(partition).read(first, stop))
        ]
        began = time.process_time()
        for received in frames:
            claims, _ = authenticate(received, at.gate)
            for _ in fused.handle_bounded(Ruled(received, windows.decide(claims)), at):
                pass
        return time.process_time() - began


def batch_seconds(spark: SparkSession, realm: Realm, topic: str) -> float:
    """CPU seconds of one batch of what waits, of all processes."""
    return tree_seconds(lambda: run_batch(spark, realm.paths.root, topic))
