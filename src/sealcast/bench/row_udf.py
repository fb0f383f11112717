"""The way one would write it first on Spark: a Python UDF per row that matches and seals, event by event.

It does what the pipeline does to an admitted event, with the same primitives and warm keys: every filter is evaluated
on the event, and its payload is sealed under the key of each subscriber that wants it.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import IntegerType

from sealcast.bench.report import tree_seconds
from sealcast.filters.check import fit
from sealcast.filters.evaluate import evaluate
from sealcast.filters.parse import parse
from sealcast.filters.tree import Condition
from sealcast.lab import market
from sealcast.lab.market import Ticks
from sealcast.primitives.aead import SealingKey
from sealcast.primitives.secrets import Secret

WARM_ROWS: Final = 2


def cpu_per_event(spark: SparkSession, ticks: Ticks, filters: Sequence[str]) -> float:
    """CPU seconds per event, once every worker has its filters compiled and its keys expanded."""
    wanted = spark.sparkContext.broadcast(list(filters))

    @F.udf(IntegerType())
    def handle(*cells: Any) -> int:
        conditions, keys = _compiled(tuple(wanted.value))
        *physical, payload = cells
        event = {a.name: a.from_physical(v) for a, v in zip(market.SCHEMA.attributes, physical, strict=True)}
        members = [i for i, condition in enumerate(conditions) if evaluate(condition, event) is True]
        # As many encryptions as the naive plan makes; that the nonce repeats is the benchmark's privilege.
        return len([keys[i].seal(bytes(12), payload) for i in members])

    table = ticks.columns.append_column("payload", pa.array(ticks.payloads, pa.binary())).to_pandas()
    rows = spark.createDataFrame(table).repartition(spark.sparkContext.defaultParallelism).cache()
    columns = [*market.SCHEMA.names, "payload"]
    rows.limit(WARM_ROWS).select(handle(*columns)).collect()
    rows.select(handle(*columns)).collect()
    spent = tree_seconds(lambda: rows.select(handle(*columns)).collect())
    rows.unpersist()
    return spent / len(ticks)


@lru_cache(1)
def _compiled(filters: tuple[str, ...]) -> tuple[list[Condition], list[SealingKey]]:
    conditions = [fit(parse(text), market.SCHEMA) for text in filters]
    return conditions, [SealingKey(Secret.random(), b"bench") for _ in filters]
