"""Annals: notes about a topic beside its ledger, in order, authenticated like the ledger, and as hard to rewrite.

    record = CBOR {1: body, 2: tag}
    tag    = HMAC(the topic's journal key, context | body)
    body   = CBOR {1: note, 2: the tag of the record before}; the ledger's own bodies are in `entry.py`

A note is a CBOR map; what it means is for whoever keeps the annals. The context says which annals they are: a record of
one kind is never taken for one of another.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from sealcast.errors import Bug, Corrupt, FrameRejected
from sealcast.log import files
from sealcast.log.closing import Closing
from sealcast.log.embedded import EmbeddedLog
from sealcast.log.port import Record
from sealcast.primitives import mac
from sealcast.primitives.secrets import Secret, Unpicklable
from sealcast.wire import cbor

#: What the first record has in place of its predecessor's tag.
GENESIS: Final = bytes(mac.TAG_BYTES)
MAX_NOTE_BYTES: Final = 16 << 20


class TaggedLog(Closing, Unpicklable):
    """A log whose records carry their broker's tag. Anyone can read it; with the journal key every tag is verified."""

    def __init__(self, directory: Path, context: bytes, key: Secret | None) -> None:
        self.directory, self._context, self._key = directory, context, key
        self._log: EmbeddedLog | None = None

    def end(self) -> int:
        """How many records there are. Cheap: ask as often as you like."""
        log = self._reading()
        return log.end() if log is not None else 0

    def close(self) -> None:
        if self._log is not None:
            self._log.close()
            self._log = None

    def _reading(self) -> EmbeddedLog | None:
        # What was never written to has no directory yet: it is an empty log, and a follower waits for it.
        if self._log is None and self.directory.is_dir():
            self._log = EmbeddedLog(self.directory, read_only=True)
        return self._log

    def _sealed(self, body: bytes) -> tuple[bytes, bytes]:
        """The record of a body, and its tag."""
        if self._key is None:
            raise Bug("records are added by the broker, which has the key")
        tag = mac.tag(self._key, self._context, body)
        return cbor.encode({1: body, 2: tag}), tag

    def _unsealed(self, record: Record, what: str) -> tuple[bytes, bytes]:
        """The body of a record, and its tag; Corrupt when it is not one that the broker wrote."""
        where = self._where(record)
        try:
            outer = cbor.decode(record.data, max_bytes=len(record.data))
        except FrameRejected as problem:
            raise Corrupt(f"{where} is not a {what}: {problem.message}") from None
        match outer:
            case {1: bytes(body), 2: bytes(tag)} if len(outer) == 2 and len(tag) == mac.TAG_BYTES:
                if self._key is not None and not mac.verify(self._key, tag, self._context, body):
                    raise Corrupt(f"{where} was not written by this broker: its tag does not verify")
                return body, tag
            case _:
                raise Corrupt(f"{where} is not a {what}")

    def _where(self, record: Record) -> str:
        return f"{self.directory}: record {record.offset}"


@dataclass(frozen=True, slots=True)
class Note:
    """One record: where it stands, when it was written, what it says, and the tags of itself and of the one before."""

    index: int
    time_us: int
    body: dict[str, Any]
    previous: bytes
    tag: bytes


class Annals(TaggedLog):
    """One topic's notes of one kind."""

    def __init__(self, directory: Path, context: bytes, key: Secret | None = None) -> None:
        super().__init__(directory, context, key)

    def read(self, start: int = 0) -> Iterator[Note]:
        """From number `start` on, each verified to follow the one before."""
        log = self._reading()
        if log is None or start >= log.end():
            return
        before = self._tag_before(log, start)
        for record in log.read(start):
            note = self._parse(record)
            if note.previous != before:
                raise Corrupt(f"{self._where(record)} does not follow record {record.offset - 1}")
            before = note.tag
            yield note

    def append(self, notes: Sequence[dict[str, Any]]) -> None:
        """Adds all of them, durable on return."""
        if not notes:
            return
        files.make_directory(self.directory)
        with files.locked(self.directory / "annals.lock"), EmbeddedLog(self.directory) as log:
            before, records = self._tag_before(log, log.end()), []
            for note in notes:
                record, before = self._sealed(cbor.encode({1: note, 2: before}))
                records.append(record)
            log.append(records)

    def _tag_before(self, log: EmbeddedLog, index: int) -> bytes:
        if index == 0:
            return GENESIS
        (record,) = log.read(index - 1, index)
        return self._parse(record).tag

    def _parse(self, record: Record) -> Note:
        body, tag = self._unsealed(record, "note")
        try:
            inner = cbor.decode(body, max_bytes=MAX_NOTE_BYTES)
        except FrameRejected as problem:
            raise Corrupt(f"{self._where(record)} is not a note: {problem.message}") from None
        match inner:
            case {1: dict(note), 2: bytes(before)}:
                return Note(record.offset, record.time_us, note, before, tag)
            case _:
                raise Corrupt(f"{self._where(record)} is not a note")
