"""Processes that tests start, kill and wait for. The only place that forks a process which runs
tests.

`fork` copies one thread. In the child, a lock that another thread held stays held for ever, and a library whose threads
are gone waits for them for ever. A process that runs tests has such threads: idle clients of NATS and of Kafka that
earlier tests left behind. So there are two ways to get a child, and neither can hold up a run:

- `start` is for children that do something and are killed. They are forks of a small process that has no threads,
  and share nothing with the test: `work` is a function of a module, and its arguments are pickled. If the module has
  a function `warm_up`, it is called once there, so that not every child does again what is done when it is first used.
- `forked` is for tests of what a fork does. The child is one of this process, with all that it holds. It does not
  collect garbage, because that runs the finalisers of whatever earlier tests left behind.

A child that has not ended after `PATIENCE_S` writes down where it is, and ends. The test fails with what it wrote.
"""

from __future__ import annotations

import atexit
import contextlib
import faulthandler
import gc
import os
import pickle
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import IO, Any, Final, NoReturn, TypeVar

from sealcast.pipeline.settings import THREADLESS

Answer = TypeVar("Answer")
ROOT: Final = Path(__file__).parents[1]
#: No child of a test takes a tenth of this.
PATIENCE_S: Final = 60.0
#: Beyond its patience, a child has so long to write down where it is.
_GRACE_S: Final = 10.0


class Hung(AssertionError):
    """A child did not end by itself."""


# --- children of a process without threads ------------------------------------------------------------------------


@dataclass(frozen=True)
class _Start:
    """What the nursery is asked to start."""

    module: str
    name: str
    arguments: bytes
    environment: dict[str, str]
    directory: str
    patience_s: float


class Child:
    """A child of the process without threads."""

    def __init__(self, nursery: _Nursery, pid: int, said: IO[str]) -> None:
        self.pid, self._nursery, self._said = pid, nursery, said

    def kill(self) -> None:
        """Sends SIGKILL. The child stays ours until it is waited for: no other process has its number."""
        os.kill(self.pid, signal.SIGKILL)

    def wait(self) -> int:
        """Its exit code; negative, the signal that ended it."""
        code: int = self._nursery.ask(self.pid)
        self._said.seek(0)
        _complain(said := self._said.read())
        assert code in (0, -signal.SIGKILL), f"exit code {code}: {said}"
        return code


def start(
    work: Callable[..., object], *arguments: Any, hand_over: Sequence[int] = (), patience_s: float = PATIENCE_S
) -> Child:
    """Calls a function in a process that shares nothing with this one but the environment. It gets files that are
    handed over as its last arguments. An exception in it fails the test in `wait`."""
    said = tempfile.TemporaryFile("w+")  # noqa: SIM115
    asked = _Start(
        work.__module__, work.__qualname__, pickle.dumps(arguments), dict(os.environ), os.getcwd(), patience_s
    )
    nursery = _nursery(os.getpid())
    return Child(nursery, nursery.ask(asked, (said.fileno(), *hand_over)), said)


def run(work: Callable[..., object], *arguments: Any) -> int:
    """The exit code of a child that ends by itself, one way or the other."""
    return start(work, *arguments).wait()


class _Nursery:
    """The process without threads, as a test reaches it."""

    def __init__(self) -> None:
        self._socket, theirs = socket.socketpair()
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.children", str(theirs.fileno())],
                cwd=ROOT,
                env={**os.environ, **THREADLESS},
                pass_fds=[theirs.fileno()],
            )
        atexit.register(self._end)

    def ask(self, what: _Start | int, files: Sequence[int] = ()) -> int:
        """Starts a child, and gives its number; or waits for one, and gives its exit code."""
        _send(self._socket, what, files)
        answer, _ = _receive(self._socket)
        return int(answer)

    def _end(self) -> None:
        self._socket.close()
        self._process.wait(10)


@cache
def _nursery(process: int) -> _Nursery:
    return _Nursery()


def main(descriptor: int) -> None:
    """Starts children and waits for them, until nobody asks any more."""
    asking = socket.socket(fileno=descriptor)
    living, warm = dict[int, float](), set[str]()
    with contextlib.suppress(EOFError):
        while True:
            asked, files = _receive(asking)
            if isinstance(asked, _Start):
                module = import_module(asked.module)
                if asked.module not in warm:
                    warm.add(asked.module)
                    getattr(module, "warm_up", lambda: None)()
                    gc.freeze()
                work = getattr(module, asked.name)
                if not (pid := os.fork()):
                    asking.close()
                    _work(work, asked, files)
                living[pid] = time.monotonic() + asked.patience_s + _GRACE_S
                for file in files:
                    os.close(file)
                _send(asking, pid)
            else:
                _send(asking, _waited_for(asked, living.pop(asked)))
    for pid in living:
        os.kill(pid, signal.SIGKILL)


def _work(work: Callable[..., object], asked: _Start, files: Sequence[int]) -> NoReturn:
    """The life of a child."""
    said, *others = files
    os.dup2(said, 1)
    os.dup2(said, 2)
    code = 1
    try:
        faulthandler.dump_traceback_later(asked.patience_s, exit=True, file=2)
        os.chdir(asked.directory)
        os.environ.clear()
        os.environ.update(asked.environment)
        work(*pickle.loads(asked.arguments), *others)
        code = 0
    except BaseException:  # noqa: BLE001
        traceback.print_exc()
    finally:
        os._exit(code)


# --- children of this process -------------------------------------------------------------------------------------


def forked(work: Callable[[], Answer], *, patience_s: float = PATIENCE_S) -> Answer:
    """What a function gives in a fork of this process, which has everything that this one has."""
    with tempfile.TemporaryFile() as answer, tempfile.TemporaryFile("w+") as said:
        # Nobody but the child writes into these, and it has no buffer of its own that it could lose.
        if not (pid := os.fork()):
            gc.disable()
            code = 1
            try:
                faulthandler.dump_traceback_later(patience_s, exit=True, file=said.fileno())
                os.write(answer.fileno(), pickle.dumps(work()))
                code = 0
            except BaseException:  # noqa: BLE001
                os.write(said.fileno(), traceback.format_exc().encode())
            finally:
                os._exit(code)
        code = _waited_for(pid, time.monotonic() + patience_s + _GRACE_S)
        said.seek(0)
        _complain(words := said.read())
        assert code == 0, f"exit code {code}: {words}"
        answer.seek(0)
        found: Answer = pickle.load(answer)
        return found


# --- both ---------------------------------------------------------------------------------------------------------


def _waited_for(pid: int, until: float) -> int:
    """The exit code of a child of ours. One that has not even ended itself is killed."""
    while True:
        ended, status = os.waitpid(pid, os.WNOHANG)
        if ended:
            return os.waitstatus_to_exitcode(status)
        if time.monotonic() > until:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            return -signal.SIGABRT  # not what a test that kills its children would take for its own doing
        time.sleep(0.001)


def _complain(said: str) -> None:
    if "Timeout (" in said:
        raise Hung(f"a child did not end, and was here:\n{said}")


def _send(to: socket.socket, what: object, files: Sequence[int] = ()) -> None:
    raw = pickle.dumps(what)
    socket.send_fds(to, [struct.pack(">I", len(raw))], files)
    to.sendall(raw)


def _receive(asking: socket.socket) -> tuple[Any, list[int]]:
    head, files, _, _ = socket.recv_fds(asking, 4, 16)
    if len(head) < 4:
        raise EOFError("the process at the other end is gone")
    raw, (size,) = b"", struct.unpack(">I", head)
    while len(raw) < size:
        raw += asking.recv(size - len(raw))
    return pickle.loads(raw), files


if __name__ == "__main__":
    from tests.children import main as nursery  # under the name that its messages are pickled by

    nursery(int(sys.argv[1]))
