"""Spark's standalone cluster on this machine: a master, and workers that are processes of their own.

For measurements and tests. Executors work under a directory that is named, and share with the driver what an operator
lets them share.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Final, NamedTuple, Self

from sealcast.errors import Unavailable
from sealcast.pipeline import java
from sealcast.pipeline.class_archive import archive_for

_MASTER: Final = "org.apache.spark.deploy.master.Master"
_WORKER: Final = "org.apache.spark.deploy.worker.Worker"
_START_SECONDS: Final = 120.0
#: They pass messages, and start executors: they need no second compiler.
_QUICK: Final = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-XX:-UsePerfData")
_HOST: Final = "127.0.0.1"
#: What they say in their logs when they are up.
_LISTENS: Final = re.compile(r"Starting Spark master at (spark://\S+)")
_REGISTERED: Final = re.compile(r"(Successfully registered) with master")


class DaemonPlace(NamedTuple):
    """Where one of them runs: its address, and the command that starts a program there, in a namespace for example."""

    address: str = _HOST
    within: Sequence[str] = ()


class Standalone:
    """A master and `workers` workers of one core each, for as long as its block lasts."""

    def __init__(
        self,
        directory: Path,
        workers: int = 2,
        *,
        cores: int = 1,
        environment: Mapping[str, str] | None = None,
        places: Mapping[str, DaemonPlace] | None = None,
    ) -> None:
        """All have `environment` beside that of this process, and each has its place, by name: `master`, `worker-0`.
        Without one it is on loopback."""
        self.directory, self._workers, self._cores, self._places = directory, workers, cores, places or {}
        self._java = java.find()
        # As an operator starts them, so without what belongs to the session of whoever starts them here.
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("PYSPARK_", "SPARK_", "SEALCAST_"))}
        self._environment = {**kept, **(environment or {})}
        #: The master's, once it runs.
        self.url = ""
        #: Their processes, by name: `master`, `worker-0`, ...
        self.processes: dict[str, subprocess.Popen[bytes]] = {}

    @property
    def work(self) -> list[Path]:
        """The directories in which executors run."""
        return [self.directory / f"worker-{n}" / "work" for n in range(self._workers)]

    def __enter__(self) -> Self:
        try:
            self._start("master", _MASTER, "--port", "0")
            self.url = self._await("master", _LISTENS)
            for number in range(self._workers):
                self.start_worker(number)
            for number in range(self._workers):
                self.await_worker(number)
        except BaseException:
            self.close()
            raise
        return self

    @property
    def quick(self) -> dict[str, str]:
        """Settings for executors that live for seconds, of few megabytes each."""
        options = " ".join([*_QUICK, *archive_for(self._java).options])
        return {"spark.executor.memory": "512m", "spark.executor.extraJavaOptions": options}

    def start_worker(self, number: int) -> None:
        """Starts a worker, or starts it again."""
        name = f"worker-{number}"
        sizes = ("--cores", str(self._cores), "--memory", "1g")
        self._start(name, _WORKER, *sizes, "--work-dir", str(self.directory / name / "work"), self.url)

    def await_worker(self, number: int) -> None:
        """Until the master knows a worker that was started."""
        self._await(f"worker-{number}", _REGISTERED)

    def _start(self, name: str, program: str, *arguments: str) -> None:
        place, (address, within) = self.directory / name, self._places.get(name, DaemonPlace())
        (place / "local").mkdir(parents=True, exist_ok=True)
        environment = {**self._environment, "SPARK_LOCAL_DIRS": str(place / "local"), "SPARK_DAEMON_MEMORY": "256m"}
        environment["SPARK_LOCAL_IP"] = address
        arguments = ("--host", address, "--webui-port", "0", *arguments)
        kept = archive_for(self._java).options  # classes that another Spark here has written down
        environment |= {**java.ENVIRONMENT, "SPARK_DAEMON_JAVA_OPTS": " ".join([*_QUICK, *kept])}
        command = java.told_by_launcher(self._java, environment, program, *arguments)
        with (place / "log").open("wb") as log:  # what it says in this life
            self.processes[name] = subprocess.Popen(
                [*within, *command],
                cwd=place,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=environment,
                process_group=0,
            )

    def _await(self, name: str, said: re.Pattern[str]) -> str:
        log, deadline = self.directory / name / "log", time.monotonic() + _START_SECONDS
        while (found := said.search(log.read_text(errors="replace"))) is None:
            if self.processes[name].poll() is not None or time.monotonic() > deadline:
                raise Unavailable(f"Spark's {name} did not start", hint=f"its log is {log}")
            time.sleep(0.05)
        return found[1]

    def close(self) -> None:
        for process in reversed(self.processes.values()):
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGTERM)
        for process in self.processes.values():
            with suppress(subprocess.TimeoutExpired):
                process.wait(20)
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()
