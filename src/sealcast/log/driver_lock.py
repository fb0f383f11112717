"""The lock of whoever runs a topic: one file beside the ledger, held as long as the run lives, with its term in it.

    driver.lock = process, 10 characters | space | term, 16 | newline

The lock goes with its holder, however that ends. Its term stays, and whatever that holder left behind goes by it.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from sealcast.errors import Locked
from sealcast.log import files

#: What whoever was taken over from is told.
TAKEN_OVER: Final = "nothing is lost: the other run goes on where the ledger ends; to wait for a turn, use --standby"
_DRIVER_LOCK: Final = "driver.lock"
_HOLDER_BYTES: Final = 64


@contextmanager
def held(directory: Path, commit_lock: files.FileLock) -> Iterator[str]:
    """The term of a run that begins; Locked, naming the holder, when there is another. The term is written while nobody
    commits."""
    path, term = directory / _DRIVER_LOCK, os.urandom(8).hex()
    with files.named(path, "opening"):
        fd = os.open(path, os.O_RDWR | os.O_CREAT, files.FILE_MODE)
    try:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise _run_by_another(directory, fd) from None
        with commit_lock, files.named(path, "writing"):
            # One write of always the same length: whoever reads it meanwhile sees the old or the new.
            os.pwrite(fd, f"{os.getpid():>10} {term}\n".encode(), 0)
        yield term
    finally:
        os.close(fd)


def check_term(directory: Path, term: str) -> None:
    """Locked when a run of another term has begun since."""
    path = directory / _DRIVER_LOCK
    with files.named(path, "reading"):
        holder, current = _holder(path.read_bytes())
    if current != term:
        raise Locked(
            f"process {holder} has taken over {directory.parent} with term {current} since this run began with term "
            f"{term}, which commits nothing more",
            hint=TAKEN_OVER,
        )


@contextmanager
def kept_from_running(directory: Path) -> Iterator[None]:
    """Nobody begins to run the topic of the ledger in this directory meanwhile; Locked if somebody runs it."""
    files.make_directory(directory)
    with files.opened(directory / _DRIVER_LOCK, os.O_RDWR | os.O_CREAT) as fd:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise _run_by_another(directory, fd) from None
        yield


def runs_already(directory: Path) -> Locked | None:
    """What `exclusive` would raise for the ledger in this directory now; None if nobody runs it. No promise: only
    `exclusive` holds it. For a moment this looks like a pipeline to one that starts at the same time."""
    try:
        fd = os.open(directory / _DRIVER_LOCK, os.O_RDONLY)
    except OSError:
        return None  # it never ran, or `exclusive` will say what is wrong
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return _run_by_another(directory, fd)
    finally:
        os.close(fd)
    return None


def _run_by_another(directory: Path, fd: int) -> Locked:
    holder, _ = _holder(os.pread(fd, _HOLDER_BYTES, 0))
    return Locked(
        f"{directory.parent} is being run by process {holder}", hint="one pipeline runs a topic: stop that one first"
    )


def _holder(raw: bytes) -> tuple[str, str]:
    """The process that runs the topic, or ran it last, and its term."""
    words = raw.decode("ascii", "replace").split()
    return (words[0], words[1]) if len(words) == 2 else ("unknown", "")
