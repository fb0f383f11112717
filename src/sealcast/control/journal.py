"""What a service remembers on stable storage: where it listens, how far it has read, and what it answered.

    place(topic, state, cursor, announced_us)             where it listens ("here"), and what it is leaving ("leaving")
    answered(sender, request, time_us, ...)               requests that were handled, with their sealed answers

One transaction per turn writes the answers and the cursor together; answers are posted after that, and marked. So a
service that dies anywhere handles a request again only when it died before that transaction, and posts an answer again
only when it died after it: a request is handled at least once, and answered under its own id, which the asker knows.

An id is kept as long as a request of its time would still be accepted; beyond that its time alone refuses it. What is
kept is bounded, for each sender and in all. Replies are sealed to who asked: nothing here is secret.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from sealcast.errors import Corrupt, Unavailable
from sealcast.log import files

FORMAT: Final = 1
MAX_ANSWERED: Final = 65_536
MAX_ANSWERED_EACH: Final = 8_192
#: Sealed answers that are kept to be sent again; the oldest are let go beyond this, their ids are not.
MAX_KEPT_BYTES: Final = 64 << 20

_SCHEMA: Final = f"""
PRAGMA user_version = {FORMAT};
CREATE TABLE IF NOT EXISTS place (
    topic BLOB PRIMARY KEY, state TEXT NOT NULL CHECK (state IN ('here', 'leaving')), cursor INTEGER NOT NULL,
    announced_us INTEGER NOT NULL
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS answered (
    sender TEXT NOT NULL, request BLOB NOT NULL, time_us INTEGER NOT NULL,
    reply_topic BLOB NOT NULL, reply BLOB, sent INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (sender, request)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS kept (bytes INTEGER NOT NULL);
INSERT INTO kept SELECT 0 WHERE NOT EXISTS (SELECT 1 FROM kept);
CREATE INDEX IF NOT EXISTS answered_by_time ON answered (time_us);
CREATE INDEX IF NOT EXISTS answered_unsent ON answered (sent) WHERE sent = 0;
"""


@dataclass(frozen=True, slots=True)
class Answered:
    """A request that was handled."""

    sender: str
    request_id: bytes
    time_us: int
    reply_topic: bytes
    reply: bytes | None
    sent: int = 0


@dataclass(frozen=True, slots=True)
class Place:
    """Where a service listens, and what it is leaving."""

    topic: bytes
    cursor: int
    #: When it was last announced; never, when it is 0.
    announced_us: int = 0
    leaving: tuple[bytes, ...] = ()


class Journal:
    """One service's memory. `turn` is held by one process at a time."""

    def __init__(self, path: Path) -> None:
        self.path = path
        files.make_directory(path.parent)
        self._lock = files.FileLock(path.with_suffix(".lock"))
        self._db = self._connect()

    @contextmanager
    def turn(self) -> Iterator[None]:
        """Nobody else serves meanwhile."""
        with self._lock:
            yield

    # --- where -----------------------------------------------------------------------------------

    def place(self) -> Place | None:
        with self._named():
            rows = self._db.execute("SELECT topic, state, cursor, announced_us FROM place").fetchall()
        here = [(topic, cursor, told) for topic, state, cursor, told in rows if state == "here"]
        if not here:
            return None
        if len(here) > 1:
            raise Corrupt(f"{self.path} says that a service listens in two places", hint="restore it from a copy")
        return Place(*here[0], leaving=tuple(topic for topic, state, *_ in rows if state == "leaving"))

    def settle(self, topic: bytes) -> None:
        """From now on it listens there; where it listened before, it is leaving."""
        with self._transaction():
            self._db.execute("UPDATE place SET state = 'leaving' WHERE topic <> ?", (topic,))
            self._db.execute("INSERT OR IGNORE INTO place VALUES (?, 'here', 0, 0)", (topic,))

    def announced(self, topic: bytes, now_us: int) -> None:
        """Whoever may know was told where it listens."""
        with self._transaction():
            self._db.execute("UPDATE place SET announced_us = ? WHERE topic = ?", (now_us, topic))

    def left(self, topic: bytes) -> None:
        with self._transaction():
            self._db.execute("DELETE FROM place WHERE topic = ? AND state = 'leaving'", (topic,))

    # --- what ------------------------------------------------------------------------------------

    def find(self, sender: str, request_id: bytes) -> Answered | None:
        with self._named():
            row = self._db.execute(
                "SELECT sender, request, time_us, reply_topic, reply, sent FROM answered"
                " WHERE sender = ? AND request = ?",
                (sender, request_id),
            ).fetchone()
        return None if row is None else Answered(*row)

    def remembered(self, sender: str | None = None) -> int:
        """How many requests are remembered, of `sender` or of all."""
        with self._named():
            if sender is None:
                (count,) = self._db.execute("SELECT count(*) FROM answered").fetchone()
            else:
                (count,) = self._db.execute("SELECT count(*) FROM answered WHERE sender = ?", (sender,)).fetchone()
        return int(count)

    def commit(self, topic: bytes, cursor: int, answers: Sequence[Answered]) -> None:
        """A turn: its answers and how far it has read, together."""
        rows = [(a.sender, a.request_id, a.time_us, a.reply_topic, a.reply, a.sent) for a in answers]
        with self._transaction():
            self._db.executemany("INSERT OR IGNORE INTO answered VALUES (?, ?, ?, ?, ?, ?)", rows)
            self._db.execute("UPDATE kept SET bytes = bytes + ?", (sum(len(a.reply or b"") for a in answers),))
            self._db.execute("UPDATE place SET cursor = max(cursor, ?) WHERE topic = ?", (cursor, topic))

    def unsent(self) -> list[Answered]:
        """Answers that were written and not yet posted: what a turn that died left to the next."""
        with self._named():
            rows = self._db.execute(
                "SELECT sender, request, time_us, reply_topic, reply, sent FROM answered WHERE sent = 0"
            ).fetchall()
        return [Answered(*row) for row in rows]

    def sent(self, answers: Iterable[Answered]) -> None:
        """They were posted. Not synced: what is lost of it is posted once more."""
        keys = [(a.sender, a.request_id) for a in answers]
        if keys:
            with self._named():
                self._db.execute("PRAGMA synchronous = NORMAL")
            with self._transaction():
                self._db.executemany("UPDATE answered SET sent = sent + 1 WHERE sender = ? AND request = ?", keys)
            with self._named():
                self._db.execute("PRAGMA synchronous = FULL")

    def forget(self, before_us: int) -> None:
        """Ids of requests that their time alone refuses by now; and old answers, when they are too many bytes."""
        with self._named():
            old, size = self._db.execute(
                "SELECT count(*), coalesce(sum(length(reply)), 0) FROM answered WHERE time_us < ?", (before_us,)
            ).fetchone()
            (kept,) = self._db.execute("SELECT bytes FROM kept").fetchone()
        if old:
            with self._transaction():
                self._db.execute("DELETE FROM answered WHERE time_us < ?", (before_us,))
                self._db.execute("UPDATE kept SET bytes = bytes - ?", (size,))
        if kept - size > MAX_KEPT_BYTES:
            # The older half, by time; it is done once in as many bytes as are let go.
            with self._transaction():
                self._db.execute(
                    "UPDATE answered SET reply = NULL WHERE sent > 0 AND time_us <="
                    " (SELECT (min(time_us) + max(time_us)) / 2 FROM answered WHERE reply IS NOT NULL)"
                )
                self._db.execute("UPDATE kept SET bytes = (SELECT coalesce(sum(length(reply)), 0) FROM answered)")

    def close(self) -> None:
        self._db.close()
        self._lock.close()

    # --- inside ----------------------------------------------------------------------------------

    def _connect(self) -> sqlite3.Connection:
        with self._named():
            db = sqlite3.connect(self.path, timeout=30, isolation_level=None, check_same_thread=False)
            self.path.chmod(files.FILE_MODE)
            (format,) = db.execute("PRAGMA user_version").fetchone()
            if format not in (0, FORMAT):
                raise Unavailable(f"{self.path} has format {format}; this release knows {FORMAT}")
            db.execute("PRAGMA journal_mode = WAL")
            db.execute("PRAGMA synchronous = FULL")
            if format == 0:
                db.executescript(f"BEGIN IMMEDIATE; {_SCHEMA} COMMIT;")
        return db

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
        except sqlite3.DatabaseError as error:
            if isinstance(error, sqlite3.OperationalError):
                raise Unavailable(f"{self.path}: {error}") from error
            raise Corrupt(f"{self.path} is not the journal that was written: {error}") from error
