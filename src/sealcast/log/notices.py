"""Waiting until a file may have changed: by the kernel's notice on Linux, and by looking again elsewhere.

The kernel tells of changes that are made on this machine. A directory may also be shared with others, whose changes no
kernel here hears of, so nobody waits longer than `LOOK_SECONDS` before looking again.
"""

from __future__ import annotations

import ctypes
import os
import select
import sys
import threading
import time
from functools import cache
from pathlib import Path
from typing import Any, Final

from sealcast.log.files import OpenFile

#: How often somebody who waits looks for what the kernel does not tell, and where it tells nothing.
LOOK_SECONDS: Final = 0.25
BLIND_LOOK_SECONDS: Final = 0.05

# inotify(7)
_MODIFY: Final = 0x2
_NONBLOCKING: Final = os.O_NONBLOCK | os.O_CLOEXEC
#: A notice about a file without a name takes 16 bytes; they are read only to be forgotten.
_READ_BYTES: Final = 1 << 16


class Notices(OpenFile):
    """Of changes to one file, which need not exist yet. For any number of threads."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._waiting = threading.Lock()

    def __del__(self) -> None:
        self.close()  # a user may have so many at a time, and whoever waits for a journal does not close it

    def wait(self, seconds: float) -> None:
        """Returns when the file may have changed since the last call, and in any case when the time is over."""
        if self._waiting.acquire(blocking=False):
            try:
                self._wait(min(seconds, LOOK_SECONDS))
            finally:
                self._waiting.release()
        else:  # another thread takes the notice
            time.sleep(min(seconds, BLIND_LOOK_SECONDS))

    def _wait(self, seconds: float) -> None:
        if self._fd < 0:
            self._fd = _watch(self._path)
            if self._fd < 0:
                time.sleep(min(seconds, BLIND_LOOK_SECONDS))
            return  # what changed before we were told of changes, nobody will tell
        ready = select.poll()
        ready.register(self._fd, select.POLLIN)
        if ready.poll(1000 * seconds):
            os.read(self._fd, _READ_BYTES)


def _watch(path: Path) -> int:
    """A descriptor with notices of a file; -1 where there is no such file, or no such notice."""
    system = _system()
    if system is None:
        return -1
    fd: int = system.inotify_init1(_NONBLOCKING)
    if fd >= 0 and system.inotify_add_watch(fd, os.fsencode(path), _MODIFY) < 0:
        os.close(fd)
        return -1
    return fd


@cache
def _system() -> Any:
    return ctypes.CDLL(None, use_errno=True) if sys.platform == "linux" else None
