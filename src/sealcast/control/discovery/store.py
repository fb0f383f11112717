"""What one discovery node keeps: advertisements in a small SQLite file of its own. Losing it loses nobody else's.

Every change has a number, so that a handle reads only what is new to it (another process may serve the same node) and
another node can ask for what it has missed.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from sealcast.log.database import ServiceDatabase

FORMAT: Final = 1
_SCHEMA: Final = """
CREATE TABLE IF NOT EXISTS advertisements (
    owner TEXT NOT NULL, id BLOB NOT NULL, sequence INTEGER NOT NULL, expires_us INTEGER NOT NULL,
    change INTEGER NOT NULL UNIQUE, data BLOB NOT NULL, PRIMARY KEY (owner, id)
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS advertisements_by_end ON advertisements (expires_us);
CREATE TABLE IF NOT EXISTS counter (last INTEGER NOT NULL);
INSERT INTO counter SELECT 0 WHERE NOT EXISTS (SELECT 1 FROM counter);
"""


class AdvertisementStore:
    """The file of one node."""

    def __init__(self, path: Path) -> None:
        self._db = ServiceDatabase(path, _SCHEMA, format=FORMAT, hint="remove it: the other nodes have what it had")

    def put(self, owner: str, id: bytes, sequence: int, expires_us: int, data: bytes) -> int:
        """Keep it, unless one that is as new is kept already; the number of the newest change."""
        with self._db.transaction() as db:
            known = db.execute("SELECT sequence FROM advertisements WHERE owner = ? AND id = ?", (owner, id))
            newest = known.fetchone()
            if newest is None or newest[0] < sequence:
                db.execute("UPDATE counter SET last = last + 1")
                db.execute(
                    "INSERT OR REPLACE INTO advertisements VALUES (?, ?, ?, ?, (SELECT last FROM counter), ?)",
                    (owner, id, sequence, expires_us, data),
                )
        return self.last_change()

    def last_change(self) -> int:
        return int(self._db.row("SELECT last FROM counter")[0])

    def since(self, change: int, limit: int = -1) -> list[tuple[int, bytes]]:
        """(change, advertisement) of what was kept after `change`, oldest change first."""
        return self._db.rows(
            "SELECT change, data FROM advertisements WHERE change > ? ORDER BY change LIMIT ?", change, limit
        )

    def forget(self, before_us: int) -> int:
        """Remove what has expired; how many."""
        with self._db.transaction() as db:
            return db.execute("DELETE FROM advertisements WHERE expires_us <= ?", (before_us,)).rowcount

    def close(self) -> None:
        self._db.close()
