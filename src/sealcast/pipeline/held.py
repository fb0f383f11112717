"""Temporary directories that somebody holds: private, and swept away by the next one once their holder is gone.

The holder has a lock in the directory for as long as it lives, however it ends. A directory gets its name when it is
locked, never before, so that nobody sweeps away what is just being made.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import tempfile
from pathlib import Path


def hold(parent: Path, prefix: str) -> tuple[Path, int]:
    """A new directory below `parent`, mode 0700, and the open file whose lock says that it is held.

    What killed processes of this user left there under the same prefix is removed.
    """
    for abandoned in parent.glob(f"{prefix}*"):
        with contextlib.suppress(OSError):
            _sweep(abandoned)
    hidden = Path(tempfile.mkdtemp(prefix=f".{prefix}", dir=parent))
    held = os.open(hidden / "lock", os.O_RDWR | os.O_CREAT, 0o600)
    fcntl.flock(held, fcntl.LOCK_EX)
    return hidden.rename(parent / hidden.name.removeprefix(".")), held


def _sweep(abandoned: Path) -> None:
    fd = os.open(abandoned / "lock", os.O_RDWR)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)  # fails while somebody holds it
        if abandoned.stat().st_uid == os.getuid():
            shutil.rmtree(abandoned)
    finally:
        os.close(fd)
