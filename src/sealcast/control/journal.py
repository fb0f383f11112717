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

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from sealcast.errors import Corrupt
from sealcast.log import files
from sealcast.log.database import ServiceDatabase

FORMAT: Final = 1
MAX_ANSWERED: Final = 65_536
MAX_ANSWERED_EACH: Final = 8_192
#: Sealed answers that are kept to be sent again; the oldest are let go beyond this, their ids are not.
MAX_KEPT_BYTES: Final = 64 << 20

_ANSWERED: Final = "sender, request, time_us, reply_topic, reply, sent"
_SCHEMA: Final = """
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
class ListeningPlace:
    """Where a service listens, and what it is leaving."""

    topic: bytes
    cursor: int
    #: When it was last announced; never, when it is 0.
    announced_us: int = 0
    leaving: tuple[bytes, ...] = ()


class ServiceJournal:
    """One service's memory. `turn` is held by one process at a time."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.db = ServiceDatabase(path, _SCHEMA, format=FORMAT)
        self._lock = files.FileLock(path.with_suffix(".lock"))

    @contextmanager
    def turn(self) -> Iterator[None]:
        """Nobody else serves meanwhile."""
        with self._lock:
            yield

    # --- where -----------------------------------------------------------------------------------

    def place(self) -> ListeningPlace | None:
        rows = self.db.rows("SELECT topic, state, cursor, announced_us FROM place")
        here = [(topic, cursor, told) for topic, state, cursor, told in rows if state == "here"]
        if not here:
            return None
        if len(here) > 1:
            raise Corrupt(f"{self.path} says that a service listens in two places", hint="restore it from a copy")
        return ListeningPlace(*here[0], leaving=tuple(topic for topic, state, *_ in rows if state == "leaving"))

    def settle(self, topic: bytes) -> None:
        """From now on it listens there; where it listened before, it is leaving."""
        with self.db.transaction() as db:
            db.execute("UPDATE place SET state = 'leaving' WHERE topic <> ?", (topic,))
            db.execute("INSERT OR IGNORE INTO place VALUES (?, 'here', 0, 0)", (topic,))

    def announced(self, topic: bytes, now_us: int) -> None:
        """Whoever may know was told where it listens."""
        with self.db.transaction() as db:
            db.execute("UPDATE place SET announced_us = ? WHERE topic = ?", (now_us, topic))

    def left(self, topic: bytes) -> None:
        with self.db.transaction() as db:
            db.execute("DELETE FROM place WHERE topic = ? AND state = 'leaving'", (topic,))

    # --- what ------------------------------------------------------------------------------------

    def find(self, sender: str, request_id: bytes) -> Answered | None:
        row = self.db.row(f"SELECT {_ANSWERED} FROM answered WHERE sender = ? AND request = ?", sender, request_id)
        return None if row is None else Answered(*row)

    def remembered(self, sender: str | None = None) -> int:
        """How many requests are remembered, of `sender` or of all."""
        of, values = ("", ()) if sender is None else (" WHERE sender = ?", (sender,))
        return int(self.db.row(f"SELECT count(*) FROM answered{of}", *values)[0])

    def commit(self, topic: bytes, cursor: int, answers: Sequence[Answered]) -> None:
        """A turn: its answers and how far it has read, together."""
        rows = [(a.sender, a.request_id, a.time_us, a.reply_topic, a.reply, a.sent) for a in answers]
        with self.db.transaction() as db:
            db.executemany("INSERT OR IGNORE INTO answered VALUES (?, ?, ?, ?, ?, ?)", rows)
            db.execute("UPDATE kept SET bytes = bytes + ?", (sum(len(a.reply or b"") for a in answers),))
            db.execute("UPDATE place SET cursor = max(cursor, ?) WHERE topic = ?", (cursor, topic))

    def unsent(self) -> list[Answered]:
        """Answers that were written and not yet posted: what a turn that died left to the next."""
        return [Answered(*row) for row in self.db.rows(f"SELECT {_ANSWERED} FROM answered WHERE sent = 0")]

    def sent(self, answers: Iterable[Answered]) -> None:
        """They were posted. Not synced: what is lost of it is posted once more."""
        keys = [(a.sender, a.request_id) for a in answers]
        if keys:
            with self.db.transaction(synced=False) as db:
                db.executemany("UPDATE answered SET sent = sent + 1 WHERE sender = ? AND request = ?", keys)

    def forget(self, before_us: int) -> None:
        """Ids of requests that their time alone refuses by now; and old answers, when they are too many bytes."""
        old, size = self.db.row(
            "SELECT count(*), coalesce(sum(length(reply)), 0) FROM answered WHERE time_us < ?", before_us
        )
        (kept,) = self.db.row("SELECT bytes FROM kept")
        if old:
            with self.db.transaction() as db:
                db.execute("DELETE FROM answered WHERE time_us < ?", (before_us,))
                db.execute("UPDATE kept SET bytes = bytes - ?", (size,))
        if kept - size > MAX_KEPT_BYTES:
            # The older half, by time; it is done once in as many bytes as are let go.
            with self.db.transaction() as db:
                db.execute(
                    "UPDATE answered SET reply = NULL WHERE sent > 0 AND time_us <="
                    " (SELECT (min(time_us) + max(time_us)) / 2 FROM answered WHERE reply IS NOT NULL)"
                )
                db.execute("UPDATE kept SET bytes = (SELECT coalesce(sum(length(reply)), 0) FROM answered)")

    def close(self) -> None:
        self.db.close()
        self._lock.close()
