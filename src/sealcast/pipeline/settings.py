"""What we ask of Spark, on one machine and on a cluster. Every line of configuration has its reason beside it."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

from sealcast.errors import Misuse

#: With these, importing numpy and Arrow starts no thread, so that workers can be forked afterwards (zygote.py).
THREADLESS: Final = {
    "OPENBLAS_NUM_THREADS": "1",  # each core runs a task: a pool in each would only fight over them
    "OMP_NUM_THREADS": "1",
    "JE_ARROW_MALLOC_CONF": "background_thread:false",
}
#: Forks workers that have imported everything (daemon.py).
DAEMON: Final = "sealcast.pipeline.daemon"
#: Spark sets this for some tasks and not for others, and an executor has a daemon for each environment: now it has one.
_ONE_DAEMON: Final = {"SPARK_SIMPLIFIED_TRACEBACK": "1"}
FILE_MANAGER: Final = "spark.sql.streaming.checkpointFileManagerClass"
#: The default forks readlink and chmod for every checkpoint file; a directory that is mounted needs neither.
PLAIN_FILES: Final = "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
#: Where Spark can run, and how that is written.
_MASTERS: Final = re.compile(r"local(-cluster)?\[[\d*, ]+\]|local|yarn|spark://[^/\s,]+:\d+(,[^/\s,]+:\d+)*|k8s://\S+")
_SETTING: Final = re.compile(r"(spark\.[A-Za-z0-9_.-]+)=(.*)", re.DOTALL)
#: A worker's traceback with the values of its variables would carry keys into logs and exceptions.
_WITH_VALUES: Final = "spark.sql.execution.pyspark.udf.tracebackWithLocals.enabled"
#: A path to a Unix socket has at most 107 bytes, and Spark's socket names take 42 of them.
_MAX_SOCKET_DIRECTORY: Final = 64

#: Names of options, and shapes of text, that never reach a plan, a page or an event log. Sealcast puts no secret where
#: these look; they are for what a user's own job might put there.
_SECRET_NAMES: Final = r"(?i)secret|password|passwd|credential|private|token|access[._-]?key|[._-]seed"
_SECRET_TEXT: Final = r"\b(?:[0-9a-fA-F]{64,}|[A-Za-z0-9+]{43,}={0,2})"


def configuration(master: str, home: Path) -> dict[str, str]:
    """What we ask of Spark, and why."""
    conf = {
        # --- quiet
        "spark.ui.enabled": "false",  # a page nobody asked for, on a port anybody on this machine can read
        "spark.ui.showConsoleProgress": "false",  # the terminal is the user's
        "spark.eventLog.enabled": "false",  # whoever wants one can turn it on: nothing secret is in it
        # --- secrets stay where they are
        "spark.redaction.regex": _SECRET_NAMES,
        "spark.redaction.string.regex": _SECRET_TEXT,
        "spark.sql.redaction.options.regex": _SECRET_NAMES,
        "spark.sql.redaction.string.regex": _SECRET_TEXT,
        _WITH_VALUES: "false",
        # --- streaming
        # A micro-batch without data would only say what the last one said; nothing of ours needs timers.
        "spark.sql.streaming.noDataMicroBatches.enabled": "false",
        "spark.sql.streaming.stopTimeout": "60000",  # a query that does not stop is an error, not a wait without end
        # Planning a micro-batch again while it runs costs more than it can gain at these sizes; batches keep it.
        "spark.sql.adaptive.streaming.stateless.enabled": "false",
        # --- Python
        # A row can be a frame of many megabytes: batches for Python are bounded by bytes, not only by rows.
        "spark.sql.execution.arrow.maxBytesPerBatch": str(32 << 20),
        # --- values
        "spark.sql.session.timeZone": "UTC",  # timestamps mean the same wherever the job runs
    }
    if not is_local(master):
        workers = {f"spark.executorEnv.{name}": value for name, value in {**THREADLESS, **_ONE_DAEMON}.items()}
        return conf | workers | {"spark.python.daemon.module": DAEMON}
    conf |= {
        # --- one machine
        "spark.driver.host": "127.0.0.1",  # nothing listens beyond this machine
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.authenticate": "true",  # and nobody else on it can talk to the driver; Spark makes the secret itself
        # What Spark spills may be events that a user's job has opened: under a key that dies with the process.
        "spark.io.encryption.enabled": "true",
        "spark.local.dir": str(home / "local"),
        "spark.sql.warehouse.dir": str(home / "warehouse"),
        "spark.sql.catalogImplementation": "in-memory",  # no Hive, no metastore_db in the working directory
        "spark.sql.shuffle.partitions": str(cores(master)),  # 200 tasks of nothing take seconds per micro-batch
        FILE_MANAGER: PLAIN_FILES,
    }
    if len(str(home / "tmp")) <= _MAX_SOCKET_DIRECTORY:
        # Cheaper than loopback TCP, and guarded by the directory's mode.
        conf["spark.python.unix.domain.socket.enabled"] = "true"
        conf["spark.python.unix.domain.socket.dir"] = str(home / "tmp")
    return conf


def given(settings: Iterable[str]) -> dict[str, str]:
    """What a user asks of Spark, a `spark.name=value` each."""
    found = dict[str, str]()
    for text in settings:
        if (told := _SETTING.fullmatch(text)) is None:
            raise Misuse(f"{text!r} is not a setting of Spark's", hint="--conf spark.executor.memory=2g")
        found[told[1]] = told[2]
    return found


def check(master: str, extra: Mapping[str, str]) -> None:
    """Refuses what cannot work before anything is started."""
    if master.startswith("sc://"):
        raise through_connect()
    if not _MASTERS.fullmatch(master):
        raise Misuse(
            f"{master!r} is no place where Spark runs",
            hint="local[2], local[*], spark://HOST:PORT, yarn or k8s://https://HOST:PORT",
        )
    if extra.get("spark.submit.deployMode", "client") != "client":
        raise Misuse("the driver runs in this process: spark.submit.deployMode is client")
    if extra.get(_WITH_VALUES, "false") != "false":
        raise Misuse(f"{_WITH_VALUES} would write keys into Spark's logs", hint="leave it out")


def through_connect() -> Misuse:
    """Why the pipeline takes no session of Spark Connect's."""
    return Misuse(
        "the pipeline cannot run through Spark Connect: it needs the driver's own JVM",
        hint="start it beside the cluster: sealcast run --master spark://HOST:PORT",
    )


def is_local(master: str) -> bool:
    return master == "local" or master.startswith("local[")


def cores(master: str) -> int:
    """How many tasks run at once on a local master."""
    told = re.fullmatch(r"local\[(\d+|\*)(?:,\s*\d+)?\]", master)
    if told is None:
        return 1
    return len(os.sched_getaffinity(0)) if told.group(1) == "*" else max(1, int(told.group(1)))
