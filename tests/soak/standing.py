"""The pipeline of a campaign: `sealcast run`, by its command, started again whenever it is killed or gives up."""

from __future__ import annotations

import os
import re
import resource
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Final

import psutil

from tests.pipeline.drivers import Driver

#: How long it may take to end, or to drain, on a machine that is busy with other things.
PATIENCE_S: Final = 900.0
#: How long a run may take to its first batch before a fault no longer waits for it.
START_S: Final = 120.0
_JVM: Final = "pyspark-shell"
#: What a run that ends by itself says, or one that goes on says of a topic, after the time.
_REFUSED: Final = re.compile(r"^refused: (.*)$", re.MULTILINE)
FAILED: Final = re.compile(r"^\S+ topic '(\w+)' failed: (.*); trying again in", re.MULTILINE)
BATCH: Final = re.compile(r"^\S+ topic '(\w+)'.*: batch \d+: ", re.MULTILINE)


class Standing:
    """One run at a time. What it says goes to a file a life."""

    def __init__(
        self,
        realm: Path,
        logs: Path,
        environment: Mapping[str, str],
        options: Sequence[str] = ("--master", "local[2]"),
        within: Sequence[str] = (),
    ) -> None:
        """`options` say on which Spark; `within` is a command that starts programs elsewhere, in a namespace."""
        self._realm, self._logs, self._environment = realm, logs, dict(environment)
        self._options, self._within = options, within
        self.starts = 0
        #: Runs that gave up with a word, as they should when they cannot go on.
        self.gave_up = Counter[str]()
        self.findings: list[str] = []
        self._driver: Driver | None = None
        #: A second run, while there is one.
        self._other: Driver | None = None

    @property
    def driver(self) -> Driver:
        assert self._driver is not None
        return self._driver

    def _new(self, *options: str) -> Driver:
        self.starts += 1
        log = self._logs / f"run-{self.starts:04}.log"
        return Driver(
            self._realm, log=log, command=True, options=options, environment=self._environment, within=self._within
        )

    def start(self) -> None:
        self._driver = self._new(*self._options, "--every", "2 seconds")

    def look(self) -> bool:
        """Starts it again if it has ended by itself; whether that was so."""
        self._look_at_second(0.0)
        if self.driver.process.poll() is None:
            return False
        self._ended(self.driver)
        self.driver.kill_all()
        self.start()
        return True

    def _ended(self, driver: Driver) -> None:
        """Of one that ended by itself: it said why, in our words."""
        code, told = driver.process.returncode, driver.told()
        said = _REFUSED.findall(told)
        if code != 1 or not said or "Traceback" in told:
            self.findings.append(f"a run ended with {code}: {told[-1500:]}")
        self.gave_up.update(_first_words(text) for text in said[-1:])

    # --- faults -----------------------------------------------------------------------------------

    def wait_for_batch(self) -> None:
        """Until this run has handled something, or ended, or it takes too long."""
        deadline = time.monotonic() + START_S
        while BATCH.search(self.driver.told()) is None and self.driver.process.poll() is None:
            if time.monotonic() > deadline:
                return
            time.sleep(0.1)

    def kill_driver(self) -> bool:
        """The driver alone; its JVM finds out. The next run starts at once, while that may still be there."""
        self.driver.kill_driver()
        self._search_told()
        return True

    def kill_all(self) -> bool:
        self.driver.kill_all()
        self._search_told()
        return True

    def kill_jvm(self) -> bool:
        """The command says so and ends. False if it has none yet."""
        found = [each for each in self.driver.everyone() if _JVM in _command(each)]
        if not found:
            return False
        self.driver.kill(_JVM)
        try:
            self.driver.wait(PATIENCE_S)
        except subprocess.TimeoutExpired:
            self.findings.append("a run whose JVM was killed did not end")
        self._ended(self.driver)
        self.driver.kill_all()
        return True

    def kill_worker(self, dice: Random) -> bool:
        """One of the Python processes of the JVM, whichever."""
        workers = sorted(self._workers(), key=lambda process: process.pid)
        with suppress(psutil.NoSuchProcess, IndexError):
            dice.choice(workers).kill()
            return True
        return False

    def limit_files(self, size: int) -> bool:
        """No file of the JVM or of its Python processes grows beyond `size`, as on a full disk: those that are there,
        and those that they fork."""
        limited = False
        for process in self.driver.everyone():
            if process.pid != self.driver.process.pid:
                with suppress(psutil.NoSuchProcess, ProcessLookupError):
                    resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))
                    limited = True
        return limited

    def second(self) -> bool:
        """Another run of the same realm, at the same time: refused, unless the first one is between two attempts."""
        if self._other is not None:
            return False
        self._other = self._new("--once", "--master", "local[1]")
        return True

    def _look_at_second(self, seconds: float) -> None:
        other = self._other
        if other is None or (not seconds and other.process.poll() is None):
            return
        try:
            code = other.wait(seconds)
            if code not in (0, 1) or "Traceback" in other.told():
                self.findings.append(f"a second run ended with {code}: {other.told()[-1500:]}")
            self.gave_up.update(_first_words(text) for text in _REFUSED.findall(other.told())[-1:])
        finally:
            other.kill_all()
            self._other = None

    # --- the end ----------------------------------------------------------------------------------

    def stop(self) -> None:
        """In good order, a second one first."""
        self._look_at_second(PATIENCE_S)
        self.driver.process.send_signal(signal.SIGTERM)
        if (code := self.driver.wait(PATIENCE_S)) not in (0, -signal.SIGTERM):  # or it had hardly begun
            self.findings.append(f"a run that was asked to stop ended with {code}: {self.driver.told()[-1500:]}")
        self._search_told()
        self.driver.kill_all()

    def drain(self) -> None:
        """Everything that waits, without any fault."""
        self._driver = self._new("--once", *self._options)
        if (code := self.driver.wait(PATIENCE_S)) != 0:
            self.findings.append(f"a run without faults ended with {code}: {self.driver.told()[-3000:]}")
        self.driver.kill_all()

    def close(self) -> None:
        for each in (self._driver, self._other):
            if each is not None:
                each.kill_all()

    def failures(self) -> Counter[str]:
        """What runs said of topics that failed and were tried again."""
        said = Counter[str]()
        for log in sorted(self._logs.glob("run-*.log")):
            said.update(_first_words(text) for _, text in FAILED.findall(log.read_text(errors="replace")))
        return said

    def _search_told(self) -> None:
        if "Traceback" in self.driver.told():
            self.findings.append(f"a run showed a traceback: {self.driver.told()[-1500:]}")

    def _workers(self) -> list[psutil.Process]:
        found = []
        for process in self.driver.everyone():
            if process.pid != self.driver.process.pid and _JVM not in _command(process):
                found.append(process)
        return found


def _command(process: psutil.Process) -> str:
    try:
        return " ".join(process.cmdline())
    except psutil.NoSuchProcess:
        return ""


def _first_words(text: str) -> str:
    """A message without its paths and numbers: what kind it is of."""
    return re.sub(r"\d+", "N", re.sub(r"/\S+", "PATH", text))[:90]


def search_path(directory: Path) -> str:
    """PYTHONPATH with a directory in front."""
    return os.pathsep.join(filter(None, [str(directory), os.environ.get("PYTHONPATH", "")]))
