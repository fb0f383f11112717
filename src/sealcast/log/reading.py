"""Who reads a mailbox: one process, or the members of groups. Two that share a cursor by accident each get half.

The claim is a lock on a file, which the kernel lets go when its holder dies. Readers of one process share it: what they
do with one cursor is one program's business.
"""

from __future__ import annotations

import fcntl
import os
import threading
from pathlib import Path
from typing import Final

from sealcast.errors import Locked
from sealcast.log import files
from sealcast.log.closing import Closing
from sealcast.model.dataclass import dataclass


@dataclass(slots=True)
class _Held:
    fd: int
    shared: bool
    count: int = 1


#: Re-entrant: a claim may be collected, and closed, while another is made.
_guard: Final = threading.RLock()
#: What this process holds.
_held: Final[dict[Path, _Held]] = {}


class ReadingClaim(Closing):
    """A mailbox is read here, until this is closed; `shared` by members of groups."""

    def __init__(self, path: Path, *, shared: bool) -> None:
        """Locked when somebody else reads it."""
        self._path: Path | None = None
        files.make_directory(path.parent)
        path = path.absolute()
        with _guard:
            held = _held.get(path)
            if held is not None and held.shared == shared:
                held.count += 1
            else:
                _held[path] = _Held(_locked(path, shared), shared)
        self._path = path

    def close(self) -> None:
        path, self._path = self._path, None
        if path is None:
            return
        with _guard:
            held = _held[path]
            held.count -= 1
            if not held.count:
                del _held[path]
                os.close(held.fd)

    def __del__(self) -> None:
        self.close()


def _locked(path: Path, shared: bool) -> int:
    with files.named(path, "opening"):
        fd = os.open(path, os.O_RDWR | os.O_CREAT, files.FILE_MODE)
    try:
        fcntl.flock(fd, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
    except BlockingIOError:
        who = _holder(os.pread(fd, 32, 0))
        os.close(fd)
        raise Locked(
            f"{who} of {path.stem!r} on this topic already, and a cursor has one reader",
            hint="share the work: give all of them --group NAME (group=NAME in Python); or only look: --no-ack "
            "(peek=True)",
        ) from None
    os.ftruncate(fd, 0)
    os.pwrite(fd, b"group" if shared else str(os.getpid()).encode(), 0)
    return fd


def _holder(said: bytes) -> str:
    if said.isdigit():
        return f"process {int(said)} reads the mailbox"
    return "a group reads the mailbox" if said == b"group" else "another process reads the mailbox"
