"""A registry in an SQLite file: what any number of processes of one machine share."""

from __future__ import annotations

import sqlite3
from contextlib import closing, suppress
from pathlib import Path
from typing import Final

from sqlalchemy import Connection, Engine, create_engine, event, text
from sqlalchemy.pool import NullPool

from sealcast.errors import Corrupt, DiskFull, Locked, Misuse, SealcastError, Unavailable
from sealcast.trust.storage import schema, tables
from sealcast.trust.storage.trouble import BUSY_SECONDS, damaged

_EXCLUSIVE: Final = {"sealcast_begin": "BEGIN IMMEDIATE"}
_SHARED: Final = {"sealcast_begin": "BEGIN"}


class SqliteFile:
    """The file, its locks and its errors."""

    #: Nobody else's release can be at work on it while this one holds the lock.
    migrates_itself: Final = True

    def __init__(self, path: Path) -> None:
        self.path = path
        self.shown = str(path)

    def make(self) -> None:
        """An empty database of ours, in the mode that lets readers and a writer work at once."""
        if self.path.exists():
            raise Misuse(f"{self.path} exists already")
        try:
            with closing(sqlite3.connect(self.path, isolation_level=None)) as connection:
                connection.execute("PRAGMA journal_mode = WAL")
                connection.execute(f"PRAGMA application_id = {schema.APPLICATION_ID}")
        except sqlite3.Error as error:
            raise self.trouble(error) from None

    def engine(self) -> Engine:
        # sqlite3 begins transactions by itself, late and without a lock, unless it is told to keep out of it.
        engine = create_engine("sqlite://", creator=self._connect, poolclass=NullPool)
        event.listen(engine, "begin", _begin)
        return engine

    def begin_making(self, connection: Connection) -> None:
        """The file is new: nobody knows of it."""

    def furnish(self, connection: Connection) -> None:
        """What is kept beside a registry is in files of its own, where that is one."""

    def take_turn_to_make(self, connection: Connection) -> None:
        """Whoever writes to the file has it alone."""

    def begin_beside(self, connection: Connection, what: str) -> None:
        self.begin_exclusive(connection)

    def begin_exclusive(self, connection: Connection) -> None:
        """The writer's lock before anything is read: what a decision is based on stays so until it is written."""
        connection.execution_options(**_EXCLUSIVE)
        try:
            connection.begin()
        finally:
            connection.execution_options(**_SHARED)

    def take_turn(self, connection: Connection, what: str) -> bool:
        """A file is on one machine, and there the lock beside a ledger keeps others out (`log.driver_lock`)."""
        return True

    def is_taken(self, connection: Connection, what: str) -> bool:
        return False

    def settle(self, connection: Connection) -> None:
        """Move what was committed from the write-ahead log to the table, where damage is found.

        SQLite takes a log with a flipped byte for one that ends there: changes would silently be undone. While somebody
        reads this may not be possible; then the next change does it. What is committed stays so either way.
        """
        raw = _raw(connection)
        with suppress(sqlite3.Error):
            raw.execute("PRAGMA busy_timeout = 0")
            raw.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        with suppress(sqlite3.Error):
            raw.execute(f"PRAGMA busy_timeout = {BUSY_SECONDS * 1000:.0f}")

    def revision(self, connection: Connection) -> str | None:
        """The schema's revision; None if this is no registry."""
        names = set(connection.scalars(text("SELECT name FROM sqlite_master WHERE type = 'table'")))
        if schema.VERSION_TABLE in names:
            return connection.scalar(tables.revision.select()) or ""
        # Before there were revisions, there was this one table.
        return schema.REVISIONS[0] if names == {"changes"} else None

    def remarks(self, connection: Connection) -> tuple[str, str | None]:
        return f"SQLite {sqlite3.sqlite_version}", None

    def trouble(self, error: BaseException | None) -> SealcastError:
        code = getattr(error, "sqlite_errorcode", 0) & 0xFF
        if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
            return Locked(f"another process kept {self.path} locked for {BUSY_SECONDS:.0f} seconds", hint="try again")
        if code == sqlite3.SQLITE_FULL:
            return DiskFull(f"no space left to write {self.path}; nothing was changed")
        # What we ask is always the same: if a table or column is not there, it is the file that is wrong.
        wrong = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_ERROR)
        if code in wrong or isinstance(error, sqlite3.IntegrityError):
            return damaged(self.shown, str(error))
        return Unavailable(
            f"{self.path}: {error}", hint="check that the file and its directory can be read and written"
        )

    def _connect(self) -> sqlite3.Connection:
        if not self.path.exists():
            raise Unavailable(
                f"the registry {self.path} is missing",
                hint="restore it from a copy, or name another realm with --realm",
            )
        connection = sqlite3.connect(
            f"{self.path.absolute().as_uri()}?mode=rw", uri=True, timeout=BUSY_SECONDS, isolation_level=None
        )
        try:
            # Acknowledged changes survive a power cut: in WAL mode only FULL syncs at every commit.
            connection.execute("PRAGMA synchronous = FULL")
            if connection.execute("PRAGMA application_id").fetchone()[0] != schema.APPLICATION_ID:
                raise Corrupt(f"{self.path} is a database, but no registry of Sealcast", hint="restore it from a copy")
        except BaseException:
            connection.close()
            raise
        return connection


def _begin(connection: Connection) -> None:
    connection.exec_driver_sql(connection.get_execution_options().get("sealcast_begin", "BEGIN"))


def _raw(connection: Connection) -> sqlite3.Connection:
    raw = connection.connection.driver_connection
    assert isinstance(raw, sqlite3.Connection)
    return raw
