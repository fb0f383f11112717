"""Bytes that are flipped and files that are cut for a while, and then are as they were."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Final

#: Parts of a path below a realm, of files that a broker or a client reads. The registry and wallets are databases that
#: write again what they read, so that damage would stay; `test_every_byte.py` has those, on copies.
PARTS: Final = ("frames", "pieces", "ledger", "tables", "checkpoint", "cursors", "filters", "hops", "peer", "sent")


def damageable(realm: Path) -> list[Path]:
    return sorted(
        path
        for path in realm.rglob("*")
        if path.is_file()
        and not path.name.endswith((".lock", ".tmp", ".crc"))
        and any(part in PARTS for part in path.relative_to(realm).parts)
        and path.stat().st_size
    )


def flip(path: Path, dice: Random) -> Callable[[], None]:
    """Flips some bits of one byte; what it returns puts them back, unless the file was replaced meanwhile."""
    mask = dice.randrange(1, 256)
    fd = os.open(path, os.O_RDWR)
    size = os.fstat(fd).st_size
    at = dice.randrange(max(1, size))
    good = os.pread(fd, 1, at) or b"\0"
    bad = bytes([good[0] ^ mask])
    os.pwrite(fd, bad, at)

    def restore() -> None:
        if os.pread(fd, 1, at) == bad:
            os.pwrite(fd, good, at)
        os.close(fd)

    return restore


def cut(path: Path, dice: Random) -> Callable[[], None]:
    """Cuts a file that nobody writes at the moment; what it returns puts the rest back, unless somebody has written
    there since: then what was cut was no part of what counts."""
    fd = os.open(path, os.O_RDWR)
    size = os.fstat(fd).st_size
    keep = dice.randrange(size)
    rest = os.pread(fd, size - keep, keep)
    os.ftruncate(fd, keep)

    def restore() -> None:
        if os.fstat(fd).st_size == keep:
            os.pwrite(fd, rest, keep)
        os.close(fd)

    return restore
