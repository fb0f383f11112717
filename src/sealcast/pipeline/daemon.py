"""Spark's daemon for Python workers on an executor, which imports everything before it forks the first one.

Named to Spark as `spark.python.daemon.module`. Without it, each of an executor's workers imports PySpark, Arrow and us
by itself: seconds of processor time for each core, for each of the stages of a micro-batch, whenever workers were idle
for a while. A fork inherits code and no secrets, as from the zygote that a driver has (zygote.py).
"""

from __future__ import annotations

import gc
import os
import sys

from sealcast.pipeline.settings import THREADLESS
from sealcast.pipeline.zygote import preload

#: What tasks run in. Spark's planners on the driver are started by the same daemon, and do a few milliseconds of work.
_TASKS = "pyspark.worker"


def main() -> None:
    from pyspark.daemon import manager

    if sys.argv[1:2] == [_TASKS]:
        os.environ.update(THREADLESS)  # before anything that would start a thread is imported: threads do not fork
        preload()
        # What is there before the fork takes no part in the garbage collection that Spark asks for after every task.
        gc.collect()
        gc.freeze()
    manager()


if __name__ == "__main__":
    main()
