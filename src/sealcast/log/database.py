"""A small SQLite file of one service's own: journals, advertisements and challenges are kept in one each.

What is committed is on stable storage. The file says its format; one of another release is refused. Trouble comes as
Unavailable when the file cannot be used now, and as Corrupt when it is not what was written.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sealcast.errors import Corrupt, Unavailable
from sealcast.log import files


class ServiceDatabase:
    """One file. Threads may share it; a child process makes its own."""

    def __init__(self, path: Path, schema: str, *, format: int, hint: str = "restore it from a copy") -> None:
        """`schema` makes the tables of a new file; `hint` says what to do when the file is damaged."""
        self.path, self._hint = path, hint
        files.make_directory(path.parent)
        with self._named():
            self._db = sqlite3.connect(path, timeout=30, isolation_level=None, check_same_thread=False)
            path.chmod(files.FILE_MODE)
            (found,) = self._db.execute("PRAGMA user_version").fetchone()
            if found not in (0, format):
                raise Unavailable(f"{path} has format {found}; this release knows {format}")
            self._db.execute("PRAGMA journal_mode = WAL")
            if found == 0:
                self._db.executescript(f"BEGIN IMMEDIATE; PRAGMA user_version = {format}; {schema} COMMIT;")

    def rows(self, sql: str, *values: object) -> list[Any]:
        """What a statement finds."""
        with self._named():
            return self._db.execute(sql, values).fetchall()

    def row(self, sql: str, *values: object) -> Any:
        """The first row that a statement finds, or None."""
        with self._named():
            return self._db.execute(sql, values).fetchone()

    @contextmanager
    def transaction(self, *, synced: bool = True) -> Iterator[sqlite3.Connection]:
        """All that is done inside, or nothing. Without `synced` it may be lost when the machine stops."""
        with self._named():
            self._db.execute(f"PRAGMA synchronous = {'FULL' if synced else 'NORMAL'}")
            self._db.execute("BEGIN IMMEDIATE")
            try:
                yield self._db
            except BaseException:
                self._db.execute("ROLLBACK")
                raise
            self._db.execute("COMMIT")

    def close(self) -> None:
        self._db.close()

    @contextmanager
    def _named(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.OperationalError as error:
            raise Unavailable(f"{self.path}: {error}") from error
        except sqlite3.DatabaseError as error:
            raise Corrupt(f"{self.path} is not what was written: {error}", hint=self._hint) from error
