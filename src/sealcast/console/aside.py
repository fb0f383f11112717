"""Work that makes keys and encrypts, done in a process of its own.

What is made for one look at a page (a whole realm, its keys, an event) goes with that process's memory, and pages that
move do not wait for it. The process ends with the console, also when that is killed: its end of the pipe closes then.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import signal
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any, Final, TypeVar

from sealcast.errors import Bug, Busy, SealcastError, Unavailable

_T = TypeVar("_T")
#: Looks after which the process is replaced, so that what libraries keep does not grow.
LOOKS: Final = 32
#: A look takes about half a second.
PATIENCE_S: Final = 60
WAITING: Final = 8


class Aside:
    """One process, which does one thing after the other."""

    def __init__(self) -> None:
        self._one = asyncio.Lock()
        self._waiting = 0
        self._done = 0
        self._running: tuple[multiprocessing.process.BaseProcess, Connection] | None = None

    async def run(self, work: Callable[..., _T], *given: Any) -> _T:
        """The result of a function of a module, which is called there. What it raises, it should return instead."""
        if self._waiting >= WAITING:
            raise Busy("too many looks are asked for at once", hint="try again in a moment")
        self._waiting += 1
        try:
            async with self._one:
                return await asyncio.get_running_loop().run_in_executor(None, self._asked, work, given)
        finally:
            self._waiting -= 1

    def _asked(self, work: Callable[..., _T], given: tuple[Any, ...]) -> _T:
        if self._running is None or self._done >= LOOKS or not self._running[0].is_alive():
            self.close()
            self._running, self._done = _start(), 0
        _, pipe = self._running
        self._done += 1
        try:
            pipe.send((work, given))
            if not pipe.poll(PATIENCE_S):
                self.close()
                raise Unavailable(
                    f"this took longer than {PATIENCE_S} seconds", hint="try again with something smaller"
                )
            good, found = pipe.recv()
        except (EOFError, OSError):
            self.close()
            raise Unavailable("the process that does this ended", hint="try again") from None
        if not good:
            raise Bug(f"a look failed: {found}")
        return found  # type: ignore[no-any-return]

    def close(self) -> None:
        """Ends the process."""
        if self._running is not None:
            process, pipe = self._running
            pipe.close()
            process.terminate()
            process.join()
            self._running = None


def _start() -> tuple[multiprocessing.process.BaseProcess, Connection]:
    # Not forked: this process has threads.
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=_serve, args=(theirs,), daemon=True, name="sealcast-console-aside")
    process.start()
    theirs.close()
    return process, ours


def _serve(pipe: Connection) -> None:
    """In the other process: until nobody is at the other end."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the console
    while True:
        try:
            work, given = pipe.recv()
        except EOFError:
            return
        try:
            pipe.send((True, work(*given)))
        except SealcastError as error:
            pipe.send((False, error.message))
        except Exception as error:  # noqa: BLE001  (told to the other end, which raises it as a fault)
            pipe.send((False, type(error).__name__))
