"""Annals: notes about a topic beside its ledger, in order, authenticated like the ledger, and as hard to rewrite.

    record = CBOR {1: body, 2: tag}
    body   = CBOR {1: note, 2: the tag of the record before}
    tag    = HMAC(the topic's journal key, context | body)

A note is a CBOR map; what it means is for whoever keeps the annals. The context says which annals: a record of one kind
is none of another.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from sealcast.errors import Bug, Corrupt, FrameRejected
from sealcast.log import files
from sealcast.log.embedded import EmbeddedLog
from sealcast.log.port import Record
from sealcast.primitives import mac
from sealcast.primitives.secrets import Secret, Unpicklable
from sealcast.wire import cbor

GENESIS: Final = bytes(mac.TAG_BYTES)
MAX_NOTE_BYTES: Final = 16 << 20


@dataclass(frozen=True, slots=True)
class Note:
    """One record: where it stands, when it was written, and what it says."""

    index: int
    time_us: int
    body: dict[str, Any]
    tag: bytes


class Annals(Unpicklable):
    """One topic's notes of one kind. Without the key they can be read, and what is public of them is verified."""

    def __init__(self, directory: Path, context: bytes, key: Secret | None = None) -> None:
        self.directory = directory
        self._context = context
        self._key = key
        self._log: EmbeddedLog | None = None

    def end(self) -> int:
        """How many there are. Cheap: ask as often as you like."""
        log = self._reading()
        return log.end() if log is not None else 0

    def read(self, start: int = 0) -> Iterator[Note]:
        """From number `start` on, each verified to follow the one before."""
        log = self._reading()
        if log is None or start >= log.end():
            return
        before = self._tag(log, start - 1) if start else GENESIS
        for record in log.read(start):
            note, before = self._parse(record, before)
            yield note

    def append(self, notes: Sequence[dict[str, Any]]) -> None:
        """Adds all of them, durable on return."""
        if self._key is None:
            raise Bug("notes are added by the broker, which has the key")
        if not notes:
            return
        files.make_directory(self.directory)
        lock = files.FileLock(self.directory / "annals.lock")
        try:
            with lock, EmbeddedLog(self.directory) as log:
                end = log.end()
                before, records = self._tag(log, end - 1) if end else GENESIS, []
                for note in notes:
                    body = cbor.encode({1: note, 2: before})
                    before = mac.tag(self._key, self._context, body)
                    records.append(cbor.encode({1: body, 2: before}))
                log.append(records)
        finally:
            lock.close()

    def close(self) -> None:
        if self._log is not None:
            self._log.close()
            self._log = None

    def _reading(self) -> EmbeddedLog | None:
        if self._log is None and self.directory.is_dir():
            self._log = EmbeddedLog(self.directory, read_only=True)
        return self._log

    def _tag(self, log: EmbeddedLog, index: int) -> bytes:
        (record,) = log.read(index, index + 1)
        return self._parse(record)[1]

    def _parse(self, record: Record, follows: bytes | None = None) -> tuple[Note, bytes]:
        where = f"{self.directory}: record {record.offset}"
        try:
            match cbor.decode(record.data, max_bytes=len(record.data)):
                case {1: bytes(body), 2: bytes(tag)}:
                    inner = cbor.decode(body, max_bytes=MAX_NOTE_BYTES)
                case _:
                    raise Corrupt(f"{where} is no note")
        except FrameRejected as problem:
            raise Corrupt(f"{where} is no note: {problem.message}") from None
        match inner:
            case {1: dict(note), 2: bytes(before)} if len(tag) == mac.TAG_BYTES:
                if follows is not None and before != follows:
                    raise Corrupt(f"{where} does not follow record {record.offset - 1}")
                if self._key is not None and not mac.verify(self._key, tag, self._context, body):
                    raise Corrupt(f"{where} was not written by this broker: its tag does not verify")
                return Note(record.offset, record.time_us, note, tag), tag
            case _:
                raise Corrupt(f"{where} is no note")
