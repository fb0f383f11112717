"""A peer's own log on disk: written by its peer, a record for everything since the last, and read by anyone.

The log's chain finds damage; the records' own chain and signatures hold the peer to what it said. Old records go when
the log has grown too large: a reader is told where it begins.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

from sealcast.errors import Corrupt, FrameRejected
from sealcast.log.closing import Closing
from sealcast.log.embedded import EmbeddedLog
from sealcast.log.port import Record
from sealcast.primitives.secrets import Unpicklable
from sealcast.primitives.sign import SigningKey, VerifyKey
from sealcast.wire import limits, peer_logs
from sealcast.wire.peer_logs import NOTHING_BEFORE, PeerEntry, PeerLogRecord

SEGMENT_BYTES: Final = 4 << 20
DEFAULT_LOG_BYTES: Final = 64 << 20


class PeerLogWriter(Closing, Unpicklable):
    """One peer's log of one topic. One process at a time writes it."""

    def __init__(
        self, directory: Path, topic: bytes, peer: str, signer: SigningKey, max_bytes: int = DEFAULT_LOG_BYTES
    ) -> None:
        self._log = EmbeddedLog(directory, segment_bytes=SEGMENT_BYTES)
        self._topic, self._peer, self._signer, self._max_bytes = topic, peer, signer, max_bytes
        self._number, self._previous = 0, NOTHING_BEFORE
        self._entries = list[PeerEntry]()
        end = self._log.end()
        if end > self._log.start():
            (last,) = self._log.read(end - 1)
            found = _parsed(directory, last, topic, peer, signer.verify_key)
            self._number, self._previous = found.number + 1, found.digest

    def add(self, entry: PeerEntry) -> None:
        """Says something; it is on stable storage after the next `flush`."""
        self._entries.append(entry)

    def flush(self, time_us: int) -> int:
        """Signs and writes what was said since the last time; how many records."""
        records = list[bytes]()
        while self._entries:
            entries, self._entries = (
                self._entries[: limits.MAX_PEER_LOG_ENTRIES],
                self._entries[limits.MAX_PEER_LOG_ENTRIES :],
            )
            made = peer_logs.write(
                self._signer, self._topic, self._peer, self._number, self._previous, time_us, entries
            )
            records.append(made)
            self._number, self._previous = self._number + 1, peer_logs.digest(made)
        if records:
            self._log.append(records)
            self._log.retain(max_bytes=self._max_bytes)
        return len(records)

    def close(self) -> None:
        self._log.close()


class PeerLogReader(Closing):
    """What a peer said, verified: by whom, in which order, and that nothing is left out in between."""

    def __init__(self, directory: Path, topic: bytes, peer: str, by: VerifyKey) -> None:
        self.directory, self._topic, self._peer, self._by = directory, topic, peer, by
        self._log = EmbeddedLog(directory, read_only=True) if directory.is_dir() else None

    @property
    def complete(self) -> bool:
        """Whether it begins with the peer's first word."""
        return self._log is None or self._log.start() == 0

    def records(self) -> Iterator[PeerLogRecord]:
        """All that is kept; Corrupt names the first that the peer did not sign, or that does not follow."""
        if self._log is None:
            return
        before: PeerLogRecord | None = None
        for record in self._log.read(self._log.start()):
            found = _parsed(self.directory, record, self._topic, self._peer, self._by)
            follows = (
                (found.number, found.previous) == (before.number + 1, before.digest)
                if before is not None
                else found.number == record.offset and (found.number > 0 or found.previous == NOTHING_BEFORE)
            )
            if not follows:
                raise Corrupt(f"{self.directory}: record {record.offset} does not follow the one before")
            before = found
            yield found

    def close(self) -> None:
        if self._log is not None:
            self._log.close()


def _parsed(directory: Path, record: Record, topic: bytes, peer: str, by: VerifyKey) -> PeerLogRecord:
    try:
        found = peer_logs.read(record.data, by)
    except FrameRejected as error:
        raise Corrupt(f"{directory}: record {record.offset} is not {peer!r}'s: {error.message}") from None
    if (found.topic, found.peer) != (topic, peer):
        raise Corrupt(f"{directory}: record {record.offset} is of another topic or peer")
    return found
