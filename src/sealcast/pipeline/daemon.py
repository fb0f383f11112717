"""The process that Spark's Python workers are forked from: ours has already imported what they all need.

Spark's own daemon forks first and lets every worker import Arrow, pandas and our kernels by itself: about a second of
CPU each, and three workers a core in a streaming job. It does so because importing them may start threads, which do not
survive a fork. They do not here: the session's environment tells OpenBLAS and Arrow's allocator to start none
(`session.THREADLESS`), and a test counts.

What is imported before the fork is also frozen out of garbage collection, which Spark runs after every task.
"""

from __future__ import annotations

import gc

import pandas  # noqa: F401  (Spark's serializers want it)
import pyarrow  # noqa: F401
import pyspark.sql.pandas.serializers
import pyspark.sql.worker.plan_data_source_read
import pyspark.sql.worker.write_into_data_source
import pyspark.worker  # noqa: F401
from pyspark.daemon import manager

import sealcast.pipeline.sinks
import sealcast.pipeline.sources  # noqa: F401

if __name__ == "__main__":
    gc.collect()
    gc.freeze()
    manager()
