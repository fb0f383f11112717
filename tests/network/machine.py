"""A machine of the tests: a directory, an environment that knows of no other, and the commands that run there."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from tests.cli.shell import SEALCAST

#: How long anything may take to start, to end or to answer on a busy machine.
PATIENCE_S: Final = 300.0
#: What begins like this the tests have set for themselves, or a user has, and a machine has not.
_HIDDEN: Final = ("SEALCAST_", "XDG_")


class Daemon:
    """A process that runs for good on a machine, in a session of its own. What it says goes to the end of a file."""

    def __init__(self, process: subprocess.Popen[bytes], log: Path, begin: int) -> None:
        self.process, self._log, self._begin = process, log, begin

    def told(self) -> str:
        """What it has said in this life."""
        with self._log.open("rb") as file:
            file.seek(self._begin)
            return file.read().decode(errors="replace")

    def wait_for(self, words: str, seconds: float = PATIENCE_S) -> str:
        """Until it has said so; what it has said until then."""
        until = time.monotonic() + seconds
        while words not in (said := self.told()):
            assert self.process.poll() is None and time.monotonic() < until, said[-4000:]
            time.sleep(0.05)
        return said

    def kill(self) -> None:
        """It and all that it started, at once, as `kill -9` does."""
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def stop(self, seconds: float = PATIENCE_S) -> int:
        """In good order; its exit code."""
        self.process.terminate()
        return self.process.wait(seconds)


class Machine:
    """A directory, and an environment that knows of no other."""

    def __init__(self, directory: Path) -> None:
        directory.mkdir()
        self.directory = directory
        self.environment = {name: value for name, value in os.environ.items() if not name.startswith(_HIDDEN)}
        self.environment["HOME"] = str(directory)

    def command(self, argv: Sequence[object]) -> list[str]:
        """What starts this program on this machine."""
        return [str(word) for word in argv]

    def start(self, *argv: object, log: str) -> Daemon:
        """Any program, which runs until it is stopped or killed. Its words go to the end of `log` in the directory."""
        path = self.directory / log
        with path.open("ab") as file:
            begin = file.tell()
            process = subprocess.Popen(
                self.command(argv), stdin=subprocess.DEVNULL, stdout=file, stderr=file,
                cwd=self.directory, env=self.environment, start_new_session=True,
            )  # fmt: skip
        return Daemon(process, path, begin)

    def sealcast(self, *arguments: object, log: str | None = None) -> Daemon:
        """A command of ours that runs for good."""
        return self.start(*SEALCAST, *arguments, log=log or f"{arguments[0]}.log")

    def step(self, *arguments: object, stdin: str = "", code: int = 0) -> str:
        """A command of ours that ends, with this exit code; what it printed, or said of its refusal."""
        done = subprocess.run(
            self.command([*SEALCAST, *arguments]), input=stdin, capture_output=True, text=True, check=False,
            cwd=self.directory, env=self.environment, timeout=300,
        )  # fmt: skip
        assert done.returncode == code, (arguments, done.stderr)
        return done.stdout if code == 0 else done.stderr

    @contextmanager
    def running(self, *arguments: object, ready: str) -> Iterator[str]:
        """A command of ours, once it has said that it is ready, until the end of the block; what it has said."""
        daemon = self.sealcast(*arguments)
        try:
            yield daemon.wait_for(ready)
        finally:
            daemon.stop()
