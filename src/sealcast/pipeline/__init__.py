"""The path on Spark: admit, match, group, seal, deliver, as kernels on Arrow batches and as streaming and batch jobs.

With lab/ and bench/ the only room that imports pyspark.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def register(spark: SparkSession) -> None:
    """Makes `format("sealcast")` known to a Spark session: ours has it already, any other one needs this once."""
    from sealcast.pipeline.public import SealcastSource

    register_broker(spark)
    spark.dataSource.register(SealcastSource)


def register_broker(spark: SparkSession) -> None:
    """Makes a broker's own source and sink known, and no client's: a session that runs brokers needs no other."""
    # Here and not above: workers import this package for its kernels and have no use for data sources of the driver.
    from sealcast.pipeline.sinks import PiecesSink
    from sealcast.pipeline.sources import StepsSource

    for source in (StepsSource, PiecesSink):
        spark.dataSource.register(source)
