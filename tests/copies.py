"""Copies of realms, and their removal, while somebody may still hold the original open."""

from __future__ import annotations

import shutil
import sqlite3
from contextlib import closing, suppress
from pathlib import Path


def copy_realm(root: Path, to: Path) -> Path:
    """A realm once more, elsewhere.

    SQLite's journals come and go with the connections of whoever has a database open (the last one to be collected
    removes them), so databases are copied by SQLite itself and everything else file by file.
    """
    return Path(shutil.copytree(root, to, ignore=shutil.ignore_patterns("*-wal", "*-shm"), copy_function=_copy))


def remove_realm(root: Path) -> None:
    """Removes a realm, whoever still held it open: SQLite's journals may go away by themselves meanwhile, as above."""
    while root.exists():
        with suppress(FileNotFoundError):
            shutil.rmtree(root)


def _copy(source: str, to: str) -> str:
    if not source.endswith(".sqlite"):
        return shutil.copy2(source, to)
    with closing(sqlite3.connect(source)) as original, closing(sqlite3.connect(to)) as copy:
        original.backup(copy)
    shutil.copystat(source, to)
    return to
