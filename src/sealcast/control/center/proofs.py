"""Challenges: whether an entity has lately proven that its keys are in its own hands (paper 004, section 5.3).

A topic's owner may ask for it (`challenge_every_s`): who wants another token and has not proven itself for that long
gets a challenge instead, a nonce, and `challenge_within_s` to answer it. The nonce comes sealed to the receiving key,
goes back signed by the key that frames are signed with, in an envelope signed by the identity key: all three are shown
to be at work together, now. Who misses three in a row gets no more tokens on that topic until its owner authorises it
anew: silence, and guesses, are what a thief of some of the keys has to offer.

`ProofRecord` and what becomes of it are values; `ProofRecords` keeps them, for one center, on stable storage.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from sealcast.log.database import ServiceDatabase

#: Challenges missed in a row, late or by a wrong answer, after which no more tokens are given.
MAX_MISSED: Final = 3
FORMAT: Final = 1
_SECOND_US: Final = 1_000_000


@dataclass(frozen=True, slots=True)
class ProofRecord:
    """What is known of one entity on one topic."""

    #: When it last answered well, and which nonce.
    proved_us: int = 0
    proved: bytes = b""
    #: The challenge that is open, and the last moment to answer it; none when it is empty.
    nonce: bytes = b""
    before_us: int = 0
    missed: int = 0

    @property
    def suspended(self) -> bool:
        return self.missed >= MAX_MISSED

    def due(self, every_s: int, now_us: int) -> bool:
        """Whether it has to prove itself before it gets another token."""
        # Never proven is due, whatever the clock says.
        return every_s > 0 and (not self.proved or now_us - self.proved_us >= every_s * _SECOND_US)

    def challenge(self, fresh: bytes, within_s: int, now_us: int) -> ProofRecord:
        """With a challenge open: the one that is, while there is time to answer it; else a fresh one, the one before
        being missed."""
        if self.nonce and now_us <= self.before_us:
            return self
        missed = self.missed + bool(self.nonce)
        return replace(self, nonce=fresh, before_us=now_us + within_s * _SECOND_US, missed=missed)

    def answered(self, now_us: int) -> ProofRecord:
        """Well, and in time."""
        return ProofRecord(now_us, self.nonce)

    def failed(self) -> ProofRecord:
        """Badly, or too late: a challenge is answered once."""
        return replace(self, nonce=b"", before_us=0, missed=self.missed + 1)


NOTHING_KNOWN: Final = ProofRecord()

_SCHEMA: Final = """
CREATE TABLE IF NOT EXISTS standing (
    topic BLOB NOT NULL, entity TEXT NOT NULL, proved_us INTEGER NOT NULL, proved BLOB NOT NULL,
    nonce BLOB NOT NULL, before_us INTEGER NOT NULL, missed INTEGER NOT NULL, PRIMARY KEY (topic, entity)
) WITHOUT ROWID;
"""


class ProofRecords:
    """One center's. Rows are of entities that may use a topic: as many as were authorised, at most."""

    def __init__(self, path: Path) -> None:
        self._db = ServiceDatabase(path, _SCHEMA, format=FORMAT)

    def get(self, topic: bytes, entity: str) -> ProofRecord:
        row = self._db.row(
            "SELECT proved_us, proved, nonce, before_us, missed FROM standing WHERE topic = ? AND entity = ?",
            topic,
            entity,
        )
        return NOTHING_KNOWN if row is None else ProofRecord(*row)

    def put(self, topic: bytes, entity: str, record: ProofRecord) -> None:
        """Durable on return."""
        values = (topic, entity, record.proved_us, record.proved, record.nonce, record.before_us, record.missed)
        with self._db.transaction() as db:
            db.execute("INSERT OR REPLACE INTO standing VALUES (?, ?, ?, ?, ?, ?, ?)", values)

    def close(self) -> None:
        self._db.close()
