"""Annals: notes about a topic beside its ledger, in order, authenticated like the ledger, and as hard to rewrite.

    record = CBOR {1: body, 2: tag}
    tag    = HMAC(the topic's journal key, context | body)
    body   = CBOR {1: note, 2: the tag of the record before}; the ledger's own bodies are in `entry.py`

A note is a CBOR map; what it means is for whoever keeps the annals. The context says which annals they are: a record of
one kind is never taken for one of another.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Generic, TypeVar

from sealcast.errors import Bug, Corrupt, FrameRejected
from sealcast.log import files
from sealcast.log.closing import Closing
from sealcast.log.embedded import EmbeddedLog
from sealcast.log.port import Record
from sealcast.primitives import mac
from sealcast.primitives.secrets import Secret, Unpicklable
from sealcast.wire import cbor
from sealcast.wire.limits import MAX_CBOR_ITEMS

#: What the first record has in place of its predecessor's tag.
GENESIS: Final = bytes(mac.TAG_BYTES)
MAX_NOTE_BYTES: Final = 16 << 20


@dataclass(frozen=True, slots=True)
class TaggedRecord:
    """One record: where it stands, when it was written, and the tags of the one before and of itself."""

    index: int
    time_us: int
    previous: bytes
    tag: bytes


R = TypeVar("R", bound=TaggedRecord)


class TaggedLog(Closing, Unpicklable, Generic[R], ABC):
    """A log whose records carry their broker's tag. Anyone can read it; with the journal key every tag is verified."""

    def __init__(self, directory: Path, context: bytes, key: Secret | None = None) -> None:
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

    @abstractmethod
    def _parse(self, record: Record) -> R:
        """What a record says; Corrupt when it is not one that the broker wrote."""

    def _at(self, log: EmbeddedLog, index: int) -> R:
        (record,) = log.read(index, index + 1)  # to its end, so that the next in line is found at once
        return self._parse(record)

    def _tag_before(self, log: EmbeddedLog, index: int) -> bytes:
        return self._at(log, index - 1).tag if index else GENESIS

    def _chained(self, log: EmbeddedLog, start: int, end: int | None = None) -> Iterator[R]:
        """Records from `start` on, each verified to follow the one before."""
        before = self._tag_before(log, start)
        for record in log.read(start, end):
            found = self._parse(record)
            if found.previous != before:
                raise Corrupt(f"{self._where(record)} does not follow record {record.offset - 1}")
            before = found.tag
            yield found

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
            outer = cbor.decode(record.data, max_bytes=len(record.data), max_items=MAX_CBOR_ITEMS)
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
class Note(TaggedRecord):
    """One record, with what it says."""

    body: dict[str, Any]


class Annals(TaggedLog[Note]):
    """One topic's notes of one kind."""

    def read(self, start: int = 0) -> Iterator[Note]:
        """From number `start` on, each verified to follow the one before."""
        log = self._reading()
        return iter(()) if log is None or start >= log.end() else self._chained(log, start)

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

    def _parse(self, record: Record) -> Note:
        body, tag = self._unsealed(record, "note")
        try:
            inner = cbor.decode(body, max_bytes=MAX_NOTE_BYTES, max_items=MAX_CBOR_ITEMS)
        except FrameRejected as problem:
            raise Corrupt(f"{self._where(record)} is not a note: {problem.message}") from None
        match inner:
            case {1: dict(note), 2: bytes(before)}:
                return Note(record.offset, record.time_us, before, tag, note)
            case _:
                raise Corrupt(f"{self._where(record)} is not a note")
