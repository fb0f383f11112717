"""Row `pipeline` of `sealcast bench groupkeys`: the whole pipeline on Spark, with our group keys and with none.

    pipeline    N = 1,000, the popular set: nine events in ten for one of 10,000 groups of about 500 subscribers, which
                nobody knows before; ratio = events per CPU second with mosaic over those with naive

Groups are made by filters, as they are in life. An event has 64 numbers, a subscriber asks for one of them to be above
a threshold of its own: so whether one gets an event has nothing to do with whether its neighbours do. Frames,
admission, matching, sealing, pieces and the ledger are those of every day; CPU is that of the driver, the JVM and all
workers; keys that are handed out on the way are in it. Both have been at it for a while before anything is measured.

Throughput is what a pipeline under full load reaches, whose batches are large: of a large batch's CPU, that of a small
one right before it is taken off. It is what Spark needs for any batch, and the same for both.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyspark.sql import SparkSession

from sealcast.bench.pipeline import batch_seconds
from sealcast.bench.report import BenchRow
from sealcast.bench.workload import FramePublisher
from sealcast.lab import scratch
from sealcast.lab.groups import POPULAR_GROUPS, POPULAR_SHARE
from sealcast.model.schema import Schema
from sealcast.pipeline.session import session
from sealcast.trust.deployment import Realm

SUBSCRIBERS: Final = 1_000
NUMBERS: Final = 64
#: Subscribers that ask for one and the same number, each above a threshold of its own.
LEVELS: Final = -(-SUBSCRIBERS // NUMBERS)
PAYLOAD_BYTES: Final = 256
TOPIC: Final = "popular"
PUBLISHER: Final = "exchange"
SEED: Final = 1
#: Batches before; they grow, because pieces of one batch do not rely on each other's keys.
WARM: Final = {"mosaic": (5_000, 10_000, 20_000, 40_000, 40_000, 40_000), "naive": (2_000, 2_000)}
SMALL: Final = 1_000
LARGE: Final = {"mosaic": 100_000, "naive": 12_000}

Numbers = NDArray[np.int64]


class TopicStream(FramePublisher):
    """One topic with its subscribers, and a stream of events for them."""

    def __init__(self, realm: Realm, algorithm: str) -> None:
        schema = Schema.from_json(
            {"attributes": [{"name": f"x{j}", "type": "int", "min": 0, "max": LEVELS} for j in range(NUMBERS)]}
        )
        realm.create_topic(TOPIC, schema, group_keys=algorithm, access="members")
        names = [f"desk-{i}" for i in range(SUBSCRIBERS)]
        realm.enrol_many([PUBLISHER, *names])
        wishes = [f"x{i % NUMBERS} > {i // NUMBERS}" for i in range(SUBSCRIBERS)]
        realm.subscribe_many(TOPIC, [(name, wish, None) for name, wish in zip(names, wishes, strict=True)])
        super().__init__(realm, TOPIC, [PUBLISHER])
        self._rng = np.random.default_rng(SEED)
        self._popular = self._any(POPULAR_GROUPS)

    def publish(self, events: int) -> None:
        """Publishes events, durable on return."""
        rows = self._any(events)
        repeated = np.flatnonzero(self._rng.random(events) < POPULAR_SHARE)
        rows[repeated] = self._popular[self._rng.integers(0, POPULAR_GROUPS, repeated.size)]
        columns = pa.RecordBatch.from_pydict({f"x{j}": pa.array(rows[:, j]) for j in range(NUMBERS)})
        self.append(columns, [bytes(PAYLOAD_BYTES)] * events)

    def _any(self, events: int) -> Numbers:
        return self._rng.integers(0, LEVELS + 1, (events, NUMBERS))


def rows() -> Iterator[BenchRow]:
    spark = session(app_name="sealcast bench", driver_memory="2g")
    ours, reference = throughput(spark, "mosaic"), throughput(spark, "naive")
    yield BenchRow("pipeline", ours, reference, "naive", ours / reference, "events per CPU s")


def throughput(spark: SparkSession, algorithm: str) -> float:
    """Measures events per CPU second, once warm, beyond what any batch costs."""
    with scratch.realm(need_bytes=2 << 30) as realm:
        source = TopicStream(realm, algorithm)
        for events in WARM[algorithm]:
            _batch(spark, realm, source, events)
        small = _batch(spark, realm, source, SMALL)
        large = _batch(spark, realm, source, LARGE[algorithm])
        source.close()
    return (LARGE[algorithm] - SMALL) / (large - small)


def _batch(spark: SparkSession, realm: Realm, source: TopicStream, events: int) -> float:
    """Publishes events and runs them as one batch; its CPU seconds."""
    source.publish(events)
    return batch_seconds(spark, realm, TOPIC)
