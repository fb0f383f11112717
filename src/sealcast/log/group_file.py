"""A consumer group in a file of this machine.

Members are processes of this machine, which hold locks that the kernel lets go when they die, or come through a gateway
of this machine and have leases (`groups`).
"""

from __future__ import annotations

import fcntl
import os
import sqlite3
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from sealcast.errors import NotFound
from sealcast.log import files
from sealcast.log.database import ServiceDatabase
from sealcast.log.group_rows import GroupRows, TableNames
from sealcast.log.groups import KeptGroup

FORMAT: Final = 1
_NAMES: Final = TableNames("member", "share", "ack")
_SCHEMA: Final = """
CREATE TABLE member (id TEXT PRIMARY KEY, about TEXT NOT NULL, here INTEGER NOT NULL, seen_us INTEGER NOT NULL);
CREATE TABLE share (number INTEGER PRIMARY KEY, owner TEXT, fence INTEGER NOT NULL, seq INTEGER NOT NULL,
                    ack INTEGER NOT NULL, had BLOB NOT NULL);
CREATE TABLE ack (id INTEGER PRIMARY KEY AUTOINCREMENT, at_us INTEGER NOT NULL, member TEXT NOT NULL,
                  statement BLOB NOT NULL, signature BLOB NOT NULL, events BLOB NOT NULL);
"""
_SUFFIX: Final = ".sqlite"


@dataclass(slots=True)
class _Presence:
    """The lock that a member of this machine holds."""

    path: Path
    fd: int


class GroupFileRows(GroupRows):
    """The rows of a file."""

    def __init__(self, db: sqlite3.Connection, clock: Callable[[], int], holds: Callable[[str], bool]) -> None:
        super().__init__(_NAMES)
        self._db, self._clock, self._holds = db, clock, holds

    def _found(self, statement: str, values: Mapping[str, object]) -> Sequence[Any]:
        return self._db.execute(statement, values).fetchall()

    def _done(self, statement: str, values: Sequence[Mapping[str, object]]) -> None:
        self._db.executemany(statement, values)

    def now_us(self) -> int:
        return self._clock()

    def holds(self, member: str) -> bool:
        return self._holds(member)


class GroupFile(KeptGroup):
    """A group in a file."""

    def __init__(
        self, path: Path, *, here: bool = True, lease_us: int | None = None, clock: Callable[[], int] | None = None
    ) -> None:
        """`clock` tells the time in microseconds, if not the machine's."""
        super().__init__(path.parent.name, path.stem, here=here, lease_us=lease_us)
        self.path = path
        self._clock = clock or (lambda: time.time_ns() // 1000)
        self._open: ServiceDatabase | None = None
        self._present: dict[str, _Presence] = {}

    def close(self) -> None:
        for member in list(self._present):
            self._depart(member)
        if self._open is not None:
            self._open.close()
            self._open = None

    @contextmanager
    def _transaction(self, *, make: bool = False, synced: bool = True) -> Iterator[GroupFileRows]:
        with self._database(make=make).transaction(synced=synced) as db:
            yield GroupFileRows(db, self._clock, self._holds)

    def _database(self, *, make: bool = False) -> ServiceDatabase:
        if self._open is None:
            if not make and not self.path.exists():
                raise NotFound(f"there is no group {self.path.stem!r}")
            files.make_directory(self.path.parent)
            with files.locked(self.path.with_suffix(".lock")):
                self._open = ServiceDatabase(self.path, _SCHEMA, format=FORMAT, hint="remove the group: its readers "
                                             "begin a new one where the subscriber's cursor is")  # fmt: skip
        if not make and self._open.row("SELECT 1 FROM share") is None:
            raise NotFound(f"there is no group {self.path.stem!r}")
        return self._open

    def _forget(self) -> None:
        self.close()
        for path in (self.path, *self.path.parent.glob(f"{self.path.name}-*")):
            path.unlink(missing_ok=True)
        files.sync_directory(self.path.parent)

    # --- who is alive -------------------------------------------------------------------------------

    def _holds(self, member: str) -> bool:
        """Whether somebody holds the lock of a member."""
        if member in self._present:
            return True
        path = self._lock_of(member)
        with suppress(FileNotFoundError), files.opened(path, os.O_RDWR) as fd:
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return True
            path.unlink(missing_ok=True)
        return False

    def _be_present(self, rows: GroupRows, member: str) -> None:
        if member in self._present:
            return
        path = self._lock_of(member)
        files.make_directory(path.parent)
        fd = os.open(path, os.O_RDWR | os.O_CREAT, files.FILE_MODE)
        fcntl.flock(fd, fcntl.LOCK_EX)
        self._present[member] = _Presence(path, fd)

    def _depart(self, member: str) -> None:
        found = self._present.pop(member, None)
        if found is not None:
            found.path.unlink(missing_ok=True)
            os.close(found.fd)

    def _lock_of(self, member: str) -> Path:
        return self.path.with_suffix(".members") / member


class GroupFiles:
    """The groups of a topic, in a directory: a file each, below one of their reader."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def of(self, reader: str, name: str, *, here: bool = True) -> GroupFile:
        return GroupFile(self._root / reader / f"{name}{_SUFFIX}", here=here)

    def names(self) -> list[tuple[str, str]]:
        return [(path.parent.name, path.stem) for path in sorted(self._root.glob(f"*/*{_SUFFIX}"))]
