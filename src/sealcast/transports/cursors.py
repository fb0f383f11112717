"""Reports of a cursor: how far a reader has read, signed by it, for `status` and for brokers that tidy up.

    Ed25519 over  label | CBOR [realm id, topic id, broker, part, name, [record, piece, rank], tag]

A report is a courtesy. The cursor itself is in the reader's home. So reports are made at most every EVERY_S, the one
that was left out follows with the next, and one that does not get through is no reason to stop reading.
"""

from __future__ import annotations

import time
from contextlib import suppress
from typing import Final

from sealcast.errors import Misuse, Rejected, Unavailable
from sealcast.log.cursor import Saved
from sealcast.log.journal import JournalPart
from sealcast.primitives.sign import SigningKey
from sealcast.transports.https import Connection, path_of
from sealcast.transports.journals import PARTS
from sealcast.wire import cbor

LABEL: Final = b"sealcast/1 cursor report\0"
EVERY_S: Final = 1.0


class CursorReports:
    """Of one reader, at one broker's ledger."""

    def __init__(
        self,
        connection: Connection,
        realm: bytes,
        topic_id: bytes,
        topic: str,
        broker: str,
        part: JournalPart,
        name: str,
        signer: SigningKey,
    ) -> None:
        self._connection, self._signer = connection, signer
        self._about = [realm, topic_id, broker, PARTS[part], name]
        self._path = f"{path_of('topics', topic, 'brokers', broker, 'cursors', name)}?part={PARTS[part]}"
        self._next = float("-inf")

    def __call__(self, saved: Saved) -> None:
        """Reports a cursor that was saved, if it is time to."""
        if time.monotonic() < self._next:
            return
        self._next = time.monotonic() + EVERY_S
        place = [saved.cursor.entry, saved.cursor.piece, saved.cursor.rank]
        signature = self._signer.sign(LABEL + cbor.encode([*self._about, place, saved.tag]))
        with suppress(Unavailable, Rejected, Misuse):
            body = {"cursor": place, "tag": saved.tag, "signature": signature}
            self._connection.send("PUT", self._path, body, patience_s=0.0)
