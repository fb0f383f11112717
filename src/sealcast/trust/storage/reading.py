"""A registry in a file, for those who come to read: by Python's own SQLite, without half of the start of a command.

Most commands read the registry and write nothing. SQLAlchemy, which writes it on both databases, takes longer to import
than they take for all the rest. So a file of the newest schema is read here, and everything else, an older schema and
every kind of trouble included, is `Store`'s, which says what is wrong.
"""

from __future__ import annotations

import os
import sqlite3
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

from sealcast.errors import Bug
from sealcast.trust.storage import schema
from sealcast.trust.storage.rows import Rows
from sealcast.trust.storage.trouble import BUSY_SECONDS

if TYPE_CHECKING:
    from sealcast.trust.storage.store import Store

T = TypeVar("T")

#: Connections of a parent process: a child that closed one would release the parent's locks.
_inherited: Final[list[sqlite3.Connection]] = []


class FileRows(Rows):
    """Rows by a connection of Python's own, which writes nothing."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def _found(self, statement: str, values: Mapping[str, object]) -> Sequence[Any]:
        return self._connection.execute(statement, values).fetchall()

    def _done(self, statement: str, values: Sequence[Mapping[str, object]]) -> None:
        raise Bug("a registry is not written to while it is read")


class FileStore:
    """As `Store`, for a file. A connection belongs to one thread of one process, as there."""

    def __init__(self, path: Path) -> None:
        self._path, self.shown = path, str(path)
        self._local = threading.local()
        self._lock, self._whole = threading.Lock(), list["Store"]()

    def read(self, ask: Callable[[Rows], T]) -> T:
        """What `ask` finds, in one transaction."""
        try:
            connection = self._connection()
            connection.execute("BEGIN")
            try:
                return ask(FileRows(connection))
            finally:
                connection.execute("COMMIT")
        except sqlite3.Error:
            # Read-only, locked, damaged, another schema: all of it is said by whoever can also write.
            self._forget()
            return self.store.read(ask)

    def write(self, change: Callable[[Rows], T]) -> T:
        return self.store.write(change)

    def create(self, fill: Callable[[Rows], None]) -> None:
        self.store.create(fill)

    def catch_up(self, believe: Callable[[Rows, int, int], object]) -> None:
        """What is here is all there is."""

    def come_to(self, version: int, seconds: float) -> bool:
        return True

    def revision(self) -> str:
        return self.store.revision()

    def remarks(self) -> tuple[str, str | None]:
        return self.store.remarks()

    def migrate(self) -> str:
        return self.store.migrate()

    @property
    def store(self) -> Store:
        """The same file for those who write."""
        with self._lock:
            if not self._whole:
                from sealcast.trust.storage.store import Store

                self._whole.append(Store(self._path))
            return self._whole[0]

    def _connection(self) -> sqlite3.Connection:
        mine: tuple[int, sqlite3.Connection] | None = getattr(self._local, "connection", None)
        if mine is not None and mine[0] == os.getpid():
            return mine[1]
        if mine is not None:
            _inherited.append(mine[1])
        made = sqlite3.connect(
            f"{self._path.absolute().as_uri()}?mode=rw", uri=True, timeout=BUSY_SECONDS, isolation_level=None
        )
        try:
            made.execute("PRAGMA query_only = 1")
            ((application,),) = made.execute("PRAGMA application_id").fetchall()
            found = made.execute(f"SELECT version_num FROM {schema.VERSION_TABLE}").fetchall()
            if application != schema.APPLICATION_ID or found != [(schema.NEWEST,)]:
                raise sqlite3.OperationalError("not a registry of this release")
        except BaseException:
            made.close()
            raise
        self._local.connection = os.getpid(), made
        return made

    def _forget(self) -> None:
        mine: tuple[int, sqlite3.Connection] | None = getattr(self._local, "connection", None)
        self._local.connection = None
        if mine is not None and mine[0] == os.getpid():
            with suppress(sqlite3.Error):
                mine[1].close()
