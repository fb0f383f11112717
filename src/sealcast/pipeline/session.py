"""A Spark session for Sealcast: quiet, on loopback, in directories of its own, gone without a trace at exit.

Every line of configuration has its reason beside it. A session made elsewhere works too: `sealcast.pipeline.register`
is all it needs.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import re
import shutil
import tempfile
import threading
from collections.abc import Iterator, Mapping
from importlib.resources import files
from pathlib import Path
from typing import Final

from py4j.clientserver import SHUTDOWN_FINALIZER_WORKER, FinalizerWorker
from py4j.protocol import Py4JError
from pyspark import SparkConf, SparkContext
from pyspark.java_gateway import launch_gateway
from pyspark.sql import SparkSession

from sealcast.errors import Misuse, Unavailable
from sealcast.pipeline import java, register, register_broker, zygote
from sealcast.pipeline.class_archive import ClassArchive, archive_for
from sealcast.pipeline.held import hold

DEFAULT_DRIVER_MEMORY: Final = "1g"
_PREFIX: Final = "sealcast-spark-"
#: With these, importing numpy and Arrow starts no thread, so that workers can be forked afterwards (zygote.py).
THREADLESS: Final = {
    "OPENBLAS_NUM_THREADS": "1",  # each core runs a task: a pool in each would only fight over them
    "OMP_NUM_THREADS": "1",
    "JE_ARROW_MALLOC_CONF": "background_thread:false",
}
#: A path to a Unix socket has at most 107 bytes, and Spark's socket names take 42 of them.
_MAX_SOCKET_DIRECTORY: Final = 64

#: Names of options, and shapes of text, that never reach a plan, a page or an event log. Sealcast puts no secret where
#: these look; they are for what a user's own job might put there.
_SECRET_NAMES: Final = r"(?i)secret|password|passwd|credential|private|token|access[._-]?key|[._-]seed"
_SECRET_TEXT: Final = r"\b(?:[0-9a-fA-F]{64,}|[A-Za-z0-9+]{43,}={0,2})"

#: How long the JVM may take to end, and how long if it writes down its classes before.
_SECONDS_TO_END: Final = 10.0
_SECONDS_TO_KEEP_CLASSES: Final = 60.0

_lock: Final = threading.Lock()
_archives: Final = list[ClassArchive]()


def session(
    master: str = "local[*]",
    app_name: str = "sealcast",
    extra: Mapping[str, str] | None = None,
    *,
    driver_memory: str = DEFAULT_DRIVER_MEMORY,
    short_lived: bool = False,
    clients: bool = True,
    keep_classes: bool = False,
) -> SparkSession:
    """The Spark session of this process: made on the first call, the same one afterwards.

    Without `clients`, `format("sealcast")` is not made known: a process that runs brokers loads no client's code.

    `short_lived` trades the JVM's peak speed for a quicker start: for tests, demos and small batches. With
    `keep_classes`, later starts are quicker, and this process takes some seconds longer to end (class_archive.py).
    """
    with _lock:
        if (active := SparkContext._active_spark_context) is not None:
            spark = SparkSession(active)
        else:
            spark = _start(master, app_name, extra or {}, driver_memory, short_lived, keep_classes)
        (register if clients else register_broker)(spark)
        return spark


def use_here(spark: SparkSession) -> None:
    """Makes a session the active one of this thread. Each thread of Python's has one of the JVM's beside it, and Spark
    finds the data sources of the session that is active there."""
    SparkSession._get_j_spark_session_class(spark._jvm).setActiveSession(spark._jsparkSession)


def keeps_classes() -> bool:
    """Whether the end of this process will take a while, for the sake of the next."""
    return any(archive.draft is not None for archive in _archives)


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
        # A worker's traceback with the values of its variables would carry keys into logs and exceptions.
        "spark.sql.execution.pyspark.udf.tracebackWithLocals.enabled": "false",
        # --- streaming
        # A micro-batch without data would only say what the last one said; nothing of ours needs timers.
        "spark.sql.streaming.noDataMicroBatches.enabled": "false",
        "spark.sql.streaming.stateStore.providerClass": (  # state beyond memory, kept in small changes
            "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
        ),
        "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
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
        return conf
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
        # The default forks readlink and chmod for every checkpoint file; a local disk needs neither.
        "spark.sql.streaming.checkpointFileManagerClass": (
            "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
        ),
    }
    if len(str(home / "tmp")) <= _MAX_SOCKET_DIRECTORY:
        # Cheaper than loopback TCP, and guarded by the directory's mode.
        conf["spark.python.unix.domain.socket.enabled"] = "true"
        conf["spark.python.unix.domain.socket.dir"] = str(home / "tmp")
    return conf


def is_local(master: str) -> bool:
    return master == "local" or master.startswith("local[")


def cores(master: str) -> int:
    """How many tasks run at once on a local master."""
    told = re.fullmatch(r"local\[(\d+|\*)(?:,\s*\d+)?\]", master)
    if told is None:
        return 1
    return len(os.sched_getaffinity(0)) if told.group(1) == "*" else max(1, int(told.group(1)))


def _start(
    master: str, app_name: str, extra: Mapping[str, str], driver_memory: str, short_lived: bool, keep_classes: bool
) -> SparkSession:
    if not re.fullmatch(r"\d+[kmgKMG]", driver_memory):
        raise Misuse(f"driver memory is a number with k, m or g behind it, as in 2g, not {driver_memory!r}")
    found = java.find()
    archive = archive_for(found, keep=keep_classes)
    _archives.append(archive)
    home, held = _private_directory()
    conf = SparkConf(loadDefaults=False)
    for name, value in {**configuration(master, home), **extra}.items():
        conf.set(name, value)
    conf.setMaster(master).setAppName(app_name)
    options = [
        f"-Xmx{driver_memory}",
        "-Xss4m",  # deep plans are analysed recursively
        f"-Djava.io.tmpdir={home / 'tmp'}",
        f"-Dsealcast.home={home}",
        f"-Dlog4j2.configurationFile={files('sealcast.pipeline').joinpath('log4j2.properties')}",
        "-XX:-UsePerfData",  # no file in /tmp that tells everybody what runs here
        "-XX:+UseSerialGC",  # the least memory and the quickest start, for the small heap that we need
        *(["-XX:TieredStopAtLevel=1"] if short_lived else []),
        *archive.options,
    ]
    environment = _environment(master, home)
    python = zygote.Zygote(home, environment) if is_local(master) else None  # while the JVM starts
    gateway = java.launch(found, home=home, options=options, environment=environment, keep_open=[held])
    atexit.register(_end, gateway, python, home, archive)
    try:
        with _set({"PYSPARK_GATEWAY_PORT": str(gateway.port), "PYSPARK_GATEWAY_SECRET": gateway.secret}):
            joined = launch_gateway()
        os.environ.update(_python(master, home))  # PySpark reads it, too
        context = SparkContext(conf=conf, gateway=joined)
        # Should the JVM be killed: we say so ourselves, once, and not by a traceback from a thread of PySpark's.
        context._accumulatorServer.handle_error = _say_nothing  # type: ignore[method-assign]
    except (Py4JError, OSError) as error:
        gateway.close()
        _forget_gateway()
        raise Unavailable(
            f"Spark did not start on {master}: {_first_line(error)}", hint=f"its log is {home / 'spark.log'}"
        ) from error
    return SparkSession(context)


def _private_directory() -> tuple[Path, int]:
    """A directory that only we can read, and a lock on it that lives as long as this process or its JVM does."""
    parent = Path(tempfile.gettempdir())
    try:
        home, held = hold(parent, _PREFIX)
        for name in ("local", "warehouse", "tmp"):
            (home / name).mkdir(mode=0o700)
    except OSError as error:
        raise Unavailable(f"no directory for Spark's files in {parent}: {error.strerror}", hint="set TMPDIR") from error
    return home, held


def _python(master: str, home: Path) -> dict[str, str]:
    """Workers on this machine are forks of this very Python; a cluster's have their own."""
    if not is_local(master):
        return {}
    return dict.fromkeys(("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON"), zygote.launcher(home))


def _environment(master: str, home: Path) -> dict[str, str]:
    """The JVM's environment, which its Python processes inherit."""
    if not is_local(master):
        return {**os.environ}
    # Settings for some other Spark on this machine are not for ours.
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYSPARK_", "SPARK_"))}
    return kept | _python(master, home) | THREADLESS | {"SPARK_LOCAL_IP": "127.0.0.1"}


@contextlib.contextmanager
def _set(variables: Mapping[str, str]) -> Iterator[None]:
    """Sets environment variables for as long as it takes: the gateway's secret is nobody else's to inherit."""
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def _say_nothing(request: object, client_address: object) -> None:
    pass


def _first_line(error: BaseException) -> str:
    told = [line.strip() for line in str(error).splitlines() if line.strip()]
    causes = [line for line in told if re.match(r"(: )?[\w.$]+(Exception|Error)\b", line)]
    return (causes or told or [type(error).__name__])[0].removeprefix(": ")


def _forget_gateway() -> None:
    """So that the next attempt starts afresh instead of talking to a JVM that is gone."""
    SparkContext._gateway = None
    SparkContext._jvm = None
    SparkContext._active_spark_context = None


def _end(gateway: java.Gateway, python: zygote.Zygote | None, home: Path, archive: ClassArchive) -> None:
    # Threads of py4j tell the JVM which of its objects nobody holds any more, and complain on the terminal when it is
    # gone. They end first.
    tidying = [thread for thread in threading.enumerate() if isinstance(thread, FinalizerWorker)]
    for thread in tidying:
        thread.deque.appendleft(SHUTDOWN_FINALIZER_WORKER)
    if (context := SparkContext._active_spark_context) is not None:
        with contextlib.suppress(Py4JError, OSError):
            context.stop()
    for thread in tidying:
        thread.join(5)
    gateway.close(_SECONDS_TO_END if archive.draft is None else _SECONDS_TO_KEEP_CLASSES)
    archive.finish()
    if python is not None:
        python.close()
    shutil.rmtree(home, ignore_errors=True)
