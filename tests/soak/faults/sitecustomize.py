"""Loaded at start by every Python process whose PYTHONPATH names this directory: syncs that fail, and clocks that jump.

SOAK_FAULTS is a directory. Whoever syncs a file while `sync` is there removes it, and its sync fails. While `clock` is
there, a link whose target is a number, the clock is that many nanoseconds ahead.
"""

import errno
import os
import time
from collections.abc import Callable

DIRECTORY = os.environ.get("SOAK_FAULTS", "")


def arm(directory: str) -> None:
    clock, sync = os.path.join(directory, "clock"), os.path.join(directory, "sync")
    real_ns = time.time_ns

    def ahead() -> int:
        try:
            return int(os.readlink(clock))
        except OSError:
            return 0

    def failing(real: Callable[[int], None]) -> Callable[[int], None]:
        def call(fd: int) -> None:
            try:
                os.unlink(sync)
            except OSError:
                return real(fd)
            raise OSError(errno.EIO, os.strerror(errno.EIO))

        return call

    time.time_ns = lambda: real_ns() + ahead()
    time.time = lambda: (real_ns() + ahead()) / 1e9
    os.fsync, os.fdatasync = failing(os.fsync), failing(os.fdatasync)


if DIRECTORY:
    arm(DIRECTORY)
