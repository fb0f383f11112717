"""A Spark session for Sealcast: quiet, on loopback, in directories of its own, gone without a trace at exit.

What is asked of Spark is in settings.py, with its reasons; what is different on a cluster is in cluster.py. A session
made elsewhere works too: `sealcast.pipeline.register` is all it needs.
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
from sealcast.pipeline import cluster, java, register, register_broker, settings, zygote
from sealcast.pipeline.class_archive import ClassArchive, archive_for
from sealcast.pipeline.held import hold
from sealcast.pipeline.settings import THREADLESS, is_local

DEFAULT_DRIVER_MEMORY: Final = "1g"
_PREFIX: Final = "sealcast-spark-"
#: Trades a JVM's peak speed for a quicker start.
_QUICK: Final = "-XX:TieredStopAtLevel=1"
#: How long the JVM may take to end, and how long if it writes down its classes before.
_SECONDS_TO_END: Final = 10.0
_SECONDS_TO_KEEP_CLASSES: Final = 240.0

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
            spark = _start(master, app_name, extra or {}, driver_memory, short_lived, keep_classes, clients)
        (register if clients else register_broker)(spark)
        return spark


def use_here(spark: SparkSession) -> None:
    """Makes a session the active one of this thread. Each thread of Python's has one of the JVM's beside it, and Spark
    finds the data sources of the session that is active there."""
    SparkSession._get_j_spark_session_class(spark._jvm).setActiveSession(spark._jsparkSession)


def keeps_classes() -> bool:
    """Whether the end of this process will take a while, for the sake of the next."""
    return any(archive.draft is not None for archive in _archives)


def _start(
    master: str,
    app_name: str,
    extra: Mapping[str, str],
    driver_memory: str,
    short_lived: bool,
    keep_classes: bool,
    clients: bool = True,
) -> SparkSession:
    if not re.fullmatch(r"\d+[kmgKMG]", driver_memory):
        raise Misuse(f"driver memory is a number with k, m or g behind it, as in 2g, not {driver_memory!r}")
    settings.check(master, extra)
    found, local = java.find(), is_local(master)
    archive = archive_for(found, keep=keep_classes)
    _archives.append(archive)
    home, held = _private_directory()
    options = _options(home, short_lived)
    if local:
        # Serial: the least memory and the quickest start, for the small heap that we need.
        options += [f"-Xmx{extra.get('spark.driver.memory', driver_memory)}", "-XX:+UseSerialGC", *archive.options]
        command, environment = java.command(found, options), _environment(home)
    else:
        memory = {} if driver_memory == DEFAULT_DRIVER_MEMORY else {"spark.driver.memory": driver_memory}
        command = cluster.command(found, home, master, {**memory, **extra}, [*options, *archive.options])
        environment = cluster.environment() | THREADLESS
    # On a cluster, a pipeline's Spark runs in the private directory (`cluster.send_python`); not that of users, whose
    # jobs name paths of theirs.
    directory = home if not local and not clients else None
    python = zygote.Zygote(home, environment) if local or directory else None  # while the JVM starts
    gateway = java.launch(command, home=home, environment=environment, directory=directory, keep_open=[held])
    atexit.register(_end, gateway, python, home, archive)
    try:
        with _set({"PYSPARK_GATEWAY_PORT": str(gateway.port), "PYSPARK_GATEWAY_SECRET": gateway.secret}):
            joined = launch_gateway()
        ours = settings.configuration(master, home)
        if local:
            conf = SparkConf(loadDefaults=False).setAll([*{**ours, **extra}.items()])
            os.environ.update(_python(home))  # PySpark reads it, too
        else:
            quick = {"spark.executor.extraJavaOptions": _QUICK} if short_lived else {}
            conf = cluster.filled(SparkConf(_jvm=joined.jvm), ours | quick)
            os.environ["PYSPARK_PYTHON"] = cluster.python_of(conf) if clients else cluster.send_python(conf, home)
        context = SparkContext(conf=conf.setMaster(master).setAppName(app_name), gateway=joined)
        # Should the JVM be killed: we say so ourselves, once, and not by a traceback from a thread of PySpark's.
        context._accumulatorServer.handle_error = _say_nothing  # type: ignore[method-assign]
        return SparkSession(context) if local else cluster.settle(context)
    except (Py4JError, OSError) as error:
        said = _first_line(error)  # asks the JVM, so before that is closed
        gateway.close()
        _forget_gateway()
        log = home / "spark.log"
        raise Unavailable(f"Spark did not start on {master}: {said}", hint=f"its log is {log}") from error


def _options(home: Path, short_lived: bool) -> list[str]:
    """For the JVM, wherever its master is."""
    return [
        "-Xss4m",  # deep plans are analysed recursively
        f"-Djava.io.tmpdir={home / 'tmp'}",
        f"-Dsealcast.home={home}",
        f"-Dlog4j2.configurationFile={files('sealcast.pipeline').joinpath('log4j2.properties')}",
        "-XX:-UsePerfData",  # no file in /tmp that tells everybody what runs here
        *([_QUICK] if short_lived else []),
    ]


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


def _python(home: Path) -> dict[str, str]:
    """Workers on this machine are forks of this very Python."""
    return dict.fromkeys(("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON"), zygote.launcher(home))


def _environment(home: Path) -> dict[str, str]:
    """The environment of a local master's JVM, which its Python processes inherit."""
    # Settings for some other Spark on this machine are not for ours.
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYSPARK_", "SPARK_"))}
    return kept | _python(home) | THREADLESS | {"SPARK_LOCAL_IP": "127.0.0.1"}


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
