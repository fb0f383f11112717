"""The row `cores` of suite `attribute`, in small: workers of Spark seal a backlog, and gains are compared."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from sealcast.primitives.pairing import available

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.skipif("fast" not in available(), reason="measured beside mcl, which has no wheel here")


def test_workers_seal_in_bulk(spark: SparkSession) -> None:
    from sealcast.bench.attribute_cores import cores_row

    row = cores_row(spark, events=4, rounds=1)
    assert row.name == "cores" and row.ratio == row.ours / row.reference > 0
