"""A realm for one run: private, without a need to outlive it, and gone afterwards.

Its keys belong to nobody and its events are somebody's: neither should reach a disk. Where the machine has a file
system in memory, the realm lies there, and making thousands of keys durable costs nothing either. A run that was
killed leaves its directory behind; the next run removes what nobody holds any more.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from sealcast.errors import Unavailable
from sealcast.pipeline.held import hold
from sealcast.trust.deployment import Realm

_PREFIX: Final = "sealcast-scratch-"
_MEMORY: Final = Path("/dev/shm")
#: Of what is free in memory, a run may take a quarter: Spark and its workers live there too.
_SHARE: Final = 4


@contextlib.contextmanager
def realm(need_bytes: int) -> Iterator[Realm]:
    """A new realm in a directory of its own."""
    with directory(need_bytes) as root:
        yield Realm.create(root / "realm", "scratch")


@contextlib.contextmanager
def directory(need_bytes: int) -> Iterator[Path]:
    """A directory, mode 0700, expected to take at most about `need_bytes`; removed at the end, whatever happens."""
    parent = place(need_bytes)
    try:
        root, held = hold(parent, _PREFIX)
    except OSError as error:
        raise Unavailable(
            f"no directory for a temporary realm in {parent}: {error.strerror}", hint="set TMPDIR"
        ) from None
    try:
        yield root
    finally:
        shutil.rmtree(root, ignore_errors=True)
        os.close(held)


def place(need_bytes: int) -> Path:
    """In memory if that has room to spare, else where temporary files go."""
    with contextlib.suppress(OSError):
        if os.access(_MEMORY, os.W_OK | os.X_OK) and need_bytes * _SHARE <= min(
            shutil.disk_usage(_MEMORY).free, _available_memory()
        ):
            return _MEMORY
    return Path(tempfile.gettempdir())


def _available_memory() -> int:
    for line in Path("/proc/meminfo").read_text(encoding="ascii").splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) << 10
    return 0
