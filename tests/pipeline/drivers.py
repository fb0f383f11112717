"""Drivers as processes of their own, to be killed: Python, JVM, workers, all of it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

import psutil

from sealcast.log.ledger import LedgerReader

ROOT: Final = Path(__file__).parents[2]
#: A micro-batch of few frames, so that a run has many of them; a session that starts quickly and runs as others do.
_RUN: Final = """
import sys
from sealcast.pipeline.run import run
from sealcast.pipeline.session import session
spark = session("local[2]", app_name="sealcast tests", short_lived=True)
run(sys.argv[1], once=sys.argv[2] == "once", spark=spark, limits={"max_frames_per_trigger": int(sys.argv[3])})
"""
_COMMAND: Final = "import sys; from sealcast.cli.main import main; main(['run', '--realm', sys.argv[1], *sys.argv[4:]])"


class Driver:
    """`sealcast run` in a session of its own, so that all that it starts can be found, and killed, and nothing else."""

    def __init__(
        self,
        realm: Path,
        *,
        log: Path,
        once: bool = False,
        frames: int = 12,
        environment: Mapping[str, str] | None = None,
        command: bool = False,
        options: Sequence[str] = (),
        script: str | None = None,
        within: Sequence[str] = (),
    ) -> None:
        """The pipeline from Python, or by its command, as a user would, who may give it options; or something else.
        `within` is a command that starts programs elsewhere, in a namespace."""
        self._log = log
        self._ended = False
        script = script or (_COMMAND if command else _RUN)
        with log.open("ab") as out:
            self.process = subprocess.Popen(
                [*within, sys.executable, "-c", script, str(realm), "once" if once else "on", str(frames), *options],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                env={**os.environ, **(environment or {})},
                start_new_session=True,
            )

    def everyone(self) -> list[psutil.Process]:
        """Every process of its session: the driver, its JVM, and the Python processes of that."""
        found = []
        for process in [] if self._ended else psutil.process_iter():
            with suppress(OSError, psutil.NoSuchProcess):
                if os.getsid(process.pid) == self.process.pid and process.status() != psutil.STATUS_ZOMBIE:
                    found.append(process)
        # Once nobody is left, the session's number may be given to another's.
        self._ended = self._ended or (not found and self.process.poll() is not None)
        return found

    def kill_driver(self) -> None:
        """The driver alone, as `kill -9 PID` or the kernel's memory killer would."""
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def kill_all(self) -> None:
        """Everything at once, as when the machine or the container goes."""
        self.kill("")
        self.process.wait()

    def kill(self, name: str) -> None:
        """Those whose command line has `name` in it."""
        for process in self.everyone():
            with suppress(psutil.NoSuchProcess):
                if name in " ".join(process.cmdline()):
                    process.kill()

    def gone(self, seconds: float = 60) -> bool:
        """Does everything end by itself?"""
        deadline = time.monotonic() + seconds
        while self.everyone():
            if time.monotonic() > deadline:
                return False
            time.sleep(0.05)
        return True

    def wait(self, seconds: float) -> int:
        return self.process.wait(seconds)

    def told(self) -> str:
        return self._log.read_text(errors="replace")

    def wait_until(self, happened: Callable[[], bool], seconds: float) -> None:
        """Until it happened or the driver has ended; says so when neither comes."""
        deadline = time.monotonic() + seconds
        while not happened() and self.process.poll() is None:
            assert time.monotonic() < deadline, f"nothing happened in {seconds} s: {self.told()[-2000:]}"
            time.sleep(0.02)


def batches(ledger: Path) -> int:
    """How many batches are committed, seen from outside."""
    with LedgerReader(ledger) as reader:
        return reader.end()
