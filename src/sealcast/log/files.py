"""The few things the log asks of the file system, in one place: locks, syncs, exact writes, names for errors."""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import tempfile
import threading
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from sealcast.errors import DiskFull, NotFound, Unavailable

FILE_MODE: Final = 0o600
DIRECTORY_MODE: Final = 0o700
_SYNCFS: Final = getattr(ctypes.CDLL(None, use_errno=True), "syncfs", None)
_FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})


def trouble(error: OSError, path: Path, what: str) -> Unavailable:
    """Our error for one of the operating system's."""
    said = os.strerror(error.errno) if error.errno else str(error)
    if error.errno in _FULL:
        return DiskFull(
            f"{what} {path} failed: {said}; nothing was acknowledged", hint="free some space, then try again"
        )
    return Unavailable(f"{what} {path} failed: {said}; nothing was acknowledged")


@contextmanager
def named(path: Path, what: str) -> Iterator[None]:
    """Turn the operating system's errors into ours, with the file's name."""
    try:
        yield
    except OSError as error:
        raise trouble(error, path, what) from error


@contextmanager
def opened(path: Path, flags: int) -> Iterator[int]:
    """A descriptor of the file, for as long as the block lasts. A file that is created is private."""
    fd = os.open(path, flags, FILE_MODE)
    try:
        yield fd
    finally:
        os.close(fd)


def sync_data(fd: int) -> None:
    """Data and the size that reaches it, on stable storage. macOS has no fdatasync and needs F_FULLFSYNC to mean it."""
    full = getattr(fcntl, "F_FULLFSYNC", None)
    if full is not None:
        fcntl.fcntl(fd, full)
    elif hasattr(os, "fdatasync"):
        os.fdatasync(fd)
    else:
        os.fsync(fd)


def sync_directory(path: Path) -> None:
    """Make created, renamed and removed names durable."""
    with named(path, "syncing"), opened(path, os.O_RDONLY | os.O_DIRECTORY) as fd:
        os.fsync(fd)


def sync_file_systems(paths: Iterable[Path]) -> None:
    """Syncs all that was written to the file systems on which these directories are.

    `os.sync` would wait for every other disk of the machine, and tell of no error. macOS has nothing else.
    """
    if _SYNCFS is None:
        os.sync()
        return
    for path in {path.stat().st_dev: path for path in paths}.values():
        with named(path, "syncing"), opened(path, os.O_RDONLY | os.O_DIRECTORY) as fd:
            if _SYNCFS(fd):
                raise OSError(number := ctypes.get_errno(), os.strerror(number))


def sync_directories(paths: Collection[Path]) -> None:
    """Syncs many directories by one sync of their file system."""
    if len(paths) > 1:
        sync_file_systems(paths)
    else:
        for path in paths:
            sync_directory(path)


def make_directory(path: Path) -> None:
    """Create it and its missing parents, each durable and private."""
    for changed in _make(path):
        sync_directory(changed)


def make_directories(paths: Iterable[Path]) -> None:
    """Makes many directories."""
    sync_directories({changed for path in paths for changed in _make(path)})


def _make(path: Path) -> Iterator[Path]:
    """The directories that another came into."""
    if path.is_dir():
        return
    with named(path, "creating"):
        missing = [path, *(p for p in path.parents if not p.exists())]
        for directory in reversed(missing):
            with suppress(FileExistsError):
                os.mkdir(directory, DIRECTORY_MODE)
                yield directory.parent


def write_all(fd: int, raw: bytes, position: int) -> None:
    """Write every byte at `position`; the operating system may take several bites."""
    view = memoryview(raw)
    while view:
        written = os.pwrite(fd, view, position)
        view = view[written:]
        position += written


def replace_file(path: Path, raw: bytes, owner: int | None = None, *, durable: bool = True) -> None:
    """Put `raw` at `path`, whole or not at all, durably unless said otherwise. Only its owner can read it: another one
    by its user number."""
    with named(path, "writing"):
        fd, temporary = tempfile.mkstemp(prefix=f".{path.name[:80]}.", suffix=".tmp", dir=path.parent)
        try:
            try:
                write_all(fd, raw, 0)
                if owner is not None:
                    os.fchown(fd, owner, -1)
                if durable:
                    sync_data(fd)
            finally:
                os.close(fd)
            os.rename(temporary, path)
        except BaseException:
            with suppress(OSError):
                os.unlink(temporary)
            raise
        if durable:
            sync_directory(path.parent)


def open_existing(path: Path) -> int:
    try:
        return os.open(path, os.O_RDONLY)
    except FileNotFoundError:
        raise NotFound(f"{path} does not exist") from None
    except OSError as error:
        raise trouble(error, path, "opening") from error


class OpenFile:
    """Whatever has one file open, from when it is made until it is closed."""

    _fd = -1

    def close(self) -> None:
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)


class FileLock(OpenFile):
    """Held by one thread of one process at a time. The file stays empty; the kernel lets go when its holder dies.

    A `flock` belongs to the open file, which the threads of a handle share, so a mutex stands before it.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._mutex = threading.Lock()
        with named(path, "opening"):
            self._fd = os.open(path, os.O_RDWR | os.O_CREAT, FILE_MODE)

    def __enter__(self) -> None:
        self._mutex.acquire()
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX)
        except BaseException:
            self._mutex.release()
            raise

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        try:
            fcntl.flock(self._fd, fcntl.LOCK_UN)
        finally:
            self._mutex.release()


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Holds the lock of that name for as long as the block lasts."""
    lock = FileLock(path)
    try:
        with lock:
            yield
    finally:
        lock.close()
