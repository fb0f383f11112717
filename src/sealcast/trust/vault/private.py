"""Files that only their owner reads: made whole and once, refused when others could have read them."""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from sealcast.errors import Misuse, Rejected
from sealcast.log import files

_OTHERS: Final = stat.S_IRWXG | stat.S_IRWXO


def create(path: Path, content: bytes, *, again: bool = False) -> None:
    """A new file, durable on return, never readable by others, not even for a moment.

    Misuse if there is one already, unless whoever came first is as good (`again`).
    """
    files.make_directory(path.parent)
    staged = _beside(path)
    with files.named(path, "writing"):
        try:
            _stage(staged, content, sync=True)
            # link, not rename: two processes that make the same file cannot overwrite each other's keys
            os.link(staged, path)
        except FileExistsError:
            if not again:
                raise Misuse(f"{path} exists; keys are never overwritten") from None
        finally:
            staged.unlink(missing_ok=True)
        files.sync_directory(path.parent)


def create_many(contents: Mapping[Path, bytes]) -> None:
    """New files, durable on return: a few syncs of the file system instead of two of the disk for each.

    No file is in its place before all contents are durable, so that a crash leaves whole files or none.
    """
    if len(contents) == 1:
        for path, content in contents.items():
            create(path, content)
        return
    staged, parents = {path: _beside(path) for path in contents}, {path.parent for path in contents}
    files.make_directories(parents)
    try:
        for path, content in contents.items():
            with files.named(path, "writing"):
                _stage(staged[path], content, sync=False)
        files.sync_file_systems(parents)
        for path, beside in staged.items():
            try:
                with files.named(path, "writing"):
                    os.link(beside, path)
            except FileExistsError:
                raise Misuse(f"{path} exists; keys are never overwritten") from None
    finally:
        for beside in staged.values():
            beside.unlink(missing_ok=True)
        files.sync_directories(parents)


def _beside(path: Path) -> Path:
    return path.with_name(f".{path.name}.{os.urandom(6).hex()}")


def _stage(staged: Path, content: bytes, *, sync: bool) -> None:
    file = os.open(staged, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, files.FILE_MODE)
    try:
        files.write_all(file, content, 0)
        if sync:
            os.fsync(file)
    finally:
        os.close(file)


def replace(path: Path, content: bytes) -> None:
    """Another content for a private file, whole or not at all, durable on return, and as private as before."""
    files.replace_file(path, content)


def read(path: Path, limit: int, *, managed: bool = False) -> bytes:
    """What is in a private file, up to one byte more than `limit`; Rejected if others could have read it.

    Of a `managed` one (`vault.credentials`) the group's bits do not count.
    """
    with files.named(path, "reading"):
        file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        # Asked of the open file, so that what was checked is what is read.
        mode = os.fstat(file).st_mode
        if mode & (stat.S_IRWXO if managed else _OTHERS):
            raise Rejected(
                f"{path} can be read by others (mode {stat.S_IMODE(mode):04o}); its keys may be known to them",
                hint=f"if you are sure they are not: chmod 600 {path}",
            )
        with files.named(path, "reading"):
            return os.read(file, limit + 1)
    finally:
        os.close(file)
