"""A session on a Spark cluster: how its driver starts, which Python its executors run, and how wide it is.

The cluster belongs to its operator. So Spark's own launcher says how the driver's JVM is started (spark-defaults.conf,
HADOOP_CONF_DIR, YARN_CONF_DIR), whatever the operator has set stays, and what we would like (settings.py) only fills
what is left. Executors run the Python that `spark.pyspark.python` names, else PYSPARK_PYTHON, else the path of this
one, and fork their workers from a daemon that has imported everything (daemon.py).
"""

from __future__ import annotations

import os
import shlex
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from pyspark import SparkConf, SparkContext
from pyspark.sql import SparkSession

from sealcast.errors import Unavailable
from sealcast.log import files
from sealcast.pipeline import java, zygote

#: How long executors may take to come: a worker starts a JVM for each.
EXECUTOR_SECONDS: Final = 120.0
#: Nobody says how many will come. Once this long none has, they are all there.
SETTLED_SECONDS: Final = 3.0
#: Tasks of a shuffle, where nobody says how many.
MAX_PARTITIONS: Final = 32
_POLL_SECONDS: Final = 0.1
_PARTITIONS: Final = "spark.sql.shuffle.partitions"
_PYTHON: Final = "spark.pyspark.python"
_FILES: Final = "spark.files"
#: The executors' Python as the driver of a pipeline names it, and what is sent to each executor's directory under that
#: name.
SENT: Final = "sealcast-python"


def environment() -> dict[str, str]:
    """The driver's: the user's own. Of another Spark that is installed here, its configuration counts, not its code."""
    inherited = dict(os.environ)
    if "SPARK_CONF_DIR" not in inherited and (installed := inherited.get("SPARK_HOME")):
        inherited["SPARK_CONF_DIR"] = str(Path(installed) / "conf")
    return inherited


def command(found: java.Java, home: Path, master: str, extra: Mapping[str, str], options: Sequence[str]) -> list[str]:
    """What starts the driver's gateway. Settings are in a file, since others on this machine see command lines."""
    properties = home / "spark.conf"
    files.replace_file(properties, "".join(f"{k}={_escaped(v)}\n" for k, v in {**extra, **_ALWAYS}.items()).encode())
    arguments = ("--master", master, "--properties-file", str(properties), "--load-spark-defaults", "pyspark-shell")
    program, *rest = java.told_by_launcher(found, environment(), java.SUBMIT, *arguments)
    at = rest.index("-cp") + 1
    rest[at] = _jars_first(rest[at])
    return [program, *options, *rest]  # what the operator says of the JVM comes later, and so counts


def _jars_first(path: str) -> str:
    """The class path with Spark's jars before the directories of settings, which have no files of the same names: kept
    classes count for a path that begins as theirs did (class_archive.py)."""
    jars = java.SPARK_HOME / "jars"
    others = [each for each in path.split(os.pathsep) if jars not in (Path(each), Path(each).parent)]
    return os.pathsep.join([str(jars / "*"), *others])


_ALWAYS: Final = {"spark.submit.deployMode": "client"}


def _escaped(value: str) -> str:
    """A value of a properties file, as Java reads it."""
    return value.replace("\\", "\\\\").replace("\n", "\\n").replace("\r", "\\r").replace(" ", "\\ ")


def filled(conf: SparkConf, ours: Mapping[str, str]) -> SparkConf:
    """The operator's settings, with ours where there are none."""
    for name, value in ours.items():
        conf.setIfMissing(name, value)
    return conf


def python_of(conf: SparkConf) -> str:
    """The Python of the executors, by its path there."""
    return conf.get(_PYTHON) or os.environ.get("PYSPARK_PYTHON") or sys.executable


def send_python(conf: SparkConf, home: Path) -> str:
    """Lets Spark know the Python of executors and the one of this driver by one name; that name.

    Spark runs Python on the driver, too, to plan reads and writes, under the same name as on executors. Here it is a
    fork of the zygote's. There it is a line that runs the Python of that machine. It is sent as any file of a job is,
    into the directory in which an executor runs.
    """
    (home / "sent").mkdir(mode=0o700)
    line = home / "sent" / SENT
    line.write_text(f'#!/bin/sh\nexec {shlex.quote(python_of(conf))} "$@"\n', encoding="utf-8")
    conf.set(_FILES, ",".join(filter(None, (conf.get(_FILES), str(line)))))
    (home / SENT).symlink_to(zygote.launcher(home))
    return f"./{SENT}"


def settle(context: SparkContext) -> SparkSession:
    """The session, once the cluster has executors for it. Brokers shuffle nothing. A user's own job does, and has a
    task for each core then, unless told otherwise: Spark's 200 tasks take minutes for a first micro-batch."""
    spark, conf = SparkSession(context), context.getConf()
    if not conf.contains(_PARTITIONS):
        expected = conf.get("spark.cores.max")
        cores = int(expected) if expected is not None and expected.isdigit() else _settled_cores(context)
        spark.conf.set(_PARTITIONS, str(min(max(cores, 1), MAX_PARTITIONS)))
    return spark


def _settled_cores(context: SparkContext) -> int:
    deadline = time.monotonic() + EXECUTOR_SECONDS
    known, since = 0, time.monotonic()
    while not known or time.monotonic() - since < SETTLED_SECONDS:
        if (now := executors(context)) != known:
            known, since = now, time.monotonic()
        if not known and time.monotonic() > deadline:
            raise Unavailable(
                f"no executor has come from {context.master} within {EXECUTOR_SECONDS:.0f} s",
                hint="are there workers with free cores and memory? see the master's page, or ask for less: "
                "--conf spark.executor.memory=512m --conf spark.cores.max=2",
            )
        time.sleep(_POLL_SECONDS)
    return context.defaultParallelism


def executors(context: SparkContext) -> int:
    """How many executors there are now; the driver is none."""
    return int(context._jsc.sc().getExecutorMemoryStatus().size()) - 1
