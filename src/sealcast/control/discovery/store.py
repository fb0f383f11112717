"""What one discovery node keeps: advertisements in a small SQLite file of its own. Losing it loses nobody else's.

Every change has a number, so that a handle reads only what is new to it (another process may serve the same node) and
another node can ask for what it has missed.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from sealcast.errors import Corrupt, Unavailable
from sealcast.log import files

FORMAT: Final = 1
_SCHEMA: Final = f"""
PRAGMA user_version = {FORMAT};
CREATE TABLE IF NOT EXISTS advertisements (
    owner TEXT NOT NULL, id BLOB NOT NULL, sequence INTEGER NOT NULL, expires_us INTEGER NOT NULL,
    change INTEGER NOT NULL UNIQUE, data BLOB NOT NULL, PRIMARY KEY (owner, id)
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS advertisements_by_end ON advertisements (expires_us);
CREATE TABLE IF NOT EXISTS counter (last INTEGER NOT NULL);
INSERT INTO counter SELECT 0 WHERE NOT EXISTS (SELECT 1 FROM counter);
"""


class Store:
    """The file of one node."""

    def __init__(self, path: Path) -> None:
        self.path = path
        files.make_directory(path.parent)
        with self._named():
            self._db = sqlite3.connect(path, timeout=30, isolation_level=None, check_same_thread=False)
            path.chmod(files.FILE_MODE)
            (format,) = self._db.execute("PRAGMA user_version").fetchone()
            if format not in (0, FORMAT):
                raise Unavailable(f"{path} has format {format}; this release knows {FORMAT}")
            self._db.execute("PRAGMA journal_mode = WAL")
            self._db.execute("PRAGMA synchronous = FULL")
            if format == 0:
                self._db.executescript(f"BEGIN IMMEDIATE; {_SCHEMA} COMMIT;")

    def put(self, owner: str, id: bytes, sequence: int, expires_us: int, data: bytes) -> int:
        """Keep it, unless one that is as new is kept already; the number of the newest change."""
        with self._transaction():
            known = self._db.execute("SELECT sequence FROM advertisements WHERE owner = ? AND id = ?", (owner, id))
            newest = known.fetchone()
            if newest is None or newest[0] < sequence:
                self._db.execute("UPDATE counter SET last = last + 1")
                self._db.execute(
                    "INSERT OR REPLACE INTO advertisements VALUES (?, ?, ?, ?, (SELECT last FROM counter), ?)",
                    (owner, id, sequence, expires_us, data),
                )
        return self.last_change()

    def last_change(self) -> int:
        with self._named():
            (last,) = self._db.execute("SELECT last FROM counter").fetchone()
        return int(last)

    def since(self, change: int, limit: int = -1) -> list[tuple[int, bytes]]:
        """(change, advertisement) of what was kept after `change`, oldest change first."""
        with self._named():
            return self._db.execute(
                "SELECT change, data FROM advertisements WHERE change > ? ORDER BY change LIMIT ?", (change, limit)
            ).fetchall()

    def forget(self, before_us: int) -> int:
        """Remove what has expired; how many."""
        with self._transaction():
            return self._db.execute("DELETE FROM advertisements WHERE expires_us <= ?", (before_us,)).rowcount

    def close(self) -> None:
        self._db.close()

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        with self._named():
            self._db.execute("BEGIN IMMEDIATE")
            try:
                yield
            except BaseException:
                self._db.execute("ROLLBACK")
                raise
            self._db.execute("COMMIT")

    @contextmanager
    def _named(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.OperationalError as error:
            raise Unavailable(f"{self.path}: {error}") from error
        except sqlite3.DatabaseError as error:
            raise Corrupt(
                f"{self.path} is not the store that was written: {error}",
                hint="remove it: the other nodes have what it had",
            ) from error
