"""Annals: notes about a topic beside its ledger, in order, authenticated like the ledger, and as hard to rewrite.

    record = CBOR {1: body, 2: tag, 3: signature}
    tag    = HMAC(the topic's journal key, context | body)
    body   = CBOR {1: note, 2: the tag of the record before}; the ledger's own bodies are in `entry.py`

A note is a CBOR map; what it means is for whoever keeps the annals. The context says which annals they are: a record of
one kind is never taken for one of another.

**Tags are for the broker, signatures for everyone else.** The broker reads its own records often, and a tag costs it
next to nothing. Nobody else has the journal key. So the broker signs each record too, tag and all, with the key that
its certificate names: who reads a broker's records verifies that they are the broker's, and since a body names the tag
before it, that none was repeated, left out or moved. Records that their writer alone reads have no signature.
"""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, Generic, NamedTuple, TypeVar

from sealcast.errors import Bug, Corrupt, FrameRejected, Locked, Misuse
from sealcast.log import files
from sealcast.log.closing import Closing
from sealcast.log.embedded import EmbeddedLog
from sealcast.log.journal import LogPlace, open_log
from sealcast.log.port import PartitionLog, Record
from sealcast.model.dataclass import dataclass
from sealcast.primitives import kdf, mac
from sealcast.primitives.secrets import Secret, Unpicklable
from sealcast.primitives.sign import SIGNATURE_BYTES, SigningKey, VerifyKey
from sealcast.wire import cbor
from sealcast.wire.limits import MAX_CBOR_ITEMS

_SIGNED: Final = "sealcast/1 journal"
#: What the first record has in place of its predecessor's tag.
GENESIS: Final = bytes(mac.TAG_BYTES)
MAX_NOTE_BYTES: Final = 16 << 20


class JournalSigner(NamedTuple):
    """Whose signature the records of some journal bear, and which journal that is."""

    key: VerifyKey
    scope: bytes


class JournalKey(Secret):
    """What one broker writes a topic's records with: its tags are made with this, its signatures with its own key."""

    __slots__ = ("_signer", "scope")

    def __init__(self, secret: Secret, signer: SigningKey, scope: bytes) -> None:
        """The scope is what records are about: no other topic's records, nor another part's, pass for them."""
        super().__init__(secret.reveal())
        self._signer, self.scope = signer, scope

    def part(self, name: bytes) -> JournalKey:
        """For another journal of the same broker and topic: neither can stand for the other."""
        return JournalKey(kdf.derive(self, name), self._signer, self.scope + name)

    @property
    def signer(self) -> JournalSigner:
        """By what others verify its records."""
        return JournalSigner(self._signer.verify_key, self.scope)

    def sign(self, message: bytes) -> bytes:
        return self._signer.sign(message)


#: What a reader verifies records by: a broker its own by their tags, everyone else by their signatures.
VerifiedBy = Secret | JournalSigner


@dataclass(frozen=True, slots=True)
class TaggedRecord:
    """One record: where it stands, when it was written, and the tags of the one before and of itself."""

    index: int
    time_us: int
    previous: bytes
    tag: bytes


R = TypeVar("R", bound=TaggedRecord)


class TaggedLog(Closing, Unpicklable, Generic[R], ABC):
    """A log whose records carry their broker's tag, and its signature. Anyone can read it, and verify what it can."""

    def __init__(self, place: Path | LogPlace, context: bytes, key: VerifiedBy | None = None) -> None:
        self._place, self._context, self._key = place, context, key
        #: As messages call it.
        self.shown = place.shown if isinstance(place, LogPlace) else str(place)
        self._log: PartitionLog | None = None

    @property
    def directory(self) -> Path:
        """Where its broker writes it."""
        if isinstance(self._place, LogPlace):
            raise Misuse(f"{self.shown} is read only here: its broker alone writes it, elsewhere")
        return self._place

    def end(self) -> int:
        """How many records there are. Cheap: ask as often as you like."""
        log = self._reading()
        return log.end() if log is not None else 0

    def close(self) -> None:
        if self._log is not None:
            self._log.close()
            self._log = None

    def _reading(self) -> PartitionLog | None:
        if self._log is None:
            self._log = self._place.open() if isinstance(self._place, LogPlace) else open_log(self._place)
        return self._log

    @abstractmethod
    def _parse(self, record: Record) -> R:
        """What a record says; Corrupt when it is not one that the broker wrote."""

    def _at(self, log: PartitionLog, index: int, parse: Callable[[Record], R] | None = None) -> R:
        (record,) = log.read(index, index + 1)  # to its end, so that the next in line is found at once
        return (parse or self._parse)(record)

    def _tag_before(self, log: PartitionLog, index: int) -> bytes:
        return self._at(log, index - 1).tag if index else GENESIS

    def _chained(
        self, log: PartitionLog, start: int, end: int | None = None, parse: Callable[[Record], R] | None = None
    ) -> Iterator[R]:
        """Records from `start` on, each verified to follow the one before."""
        before = self._at(log, start - 1, parse).tag if start else GENESIS
        for record in log.read(start, end):
            found = (parse or self._parse)(record)
            if found.previous != before:
                raise Corrupt(f"{self._where(record)} does not follow record {record.offset - 1}")
            before = found.tag
            yield found

    def _sealed(self, body: bytes) -> tuple[bytes, bytes]:
        """The record of a body, and its tag."""
        if not isinstance(self._key, Secret):
            raise Bug("records are added by the broker, which has the key")
        tag = mac.tag(self._key, self._context, body)
        record: dict[int, bytes] = {1: body, 2: tag}
        if isinstance(self._key, JournalKey):
            record[3] = self._key.sign(self._to_be_signed(self._key.scope, body, tag))
        return cbor.encode(record), tag

    def _to_be_signed(self, scope: bytes, body: bytes, tag: bytes) -> bytes:
        return cbor.encode([_SIGNED, self._context, scope, tag, hashlib.sha256(body).digest()])

    def _unsealed(self, record: Record, what: str) -> tuple[bytes, bytes]:
        """The body of a record, and its tag; Corrupt when it is not one that the broker wrote."""
        where = self._where(record)
        try:
            outer = cbor.decode(record.data, max_bytes=len(record.data), max_items=MAX_CBOR_ITEMS)
        except FrameRejected as problem:
            raise Corrupt(f"{where} is not a {what}: {problem.message}") from None
        match outer:
            case {1: bytes(body), 2: bytes(tag), 3: bytes(signature)} if _sized(outer, tag, signature):
                pass
            case {1: bytes(body), 2: bytes(tag)} if len(outer) == 2 and len(tag) == mac.TAG_BYTES:
                signature = b""
            case _:
                raise Corrupt(f"{where} is not a {what}")
        match self._key:
            case JournalSigner(key, scope) if not key.verify(self._to_be_signed(scope, body, tag), signature):
                raise Corrupt(
                    f"{where} was not written by its broker: it does not bear the broker's signature",
                    hint="somebody altered the broker's files: restore them from a copy"
                    if signature
                    else "an earlier release wrote it and signed nothing (CHANGELOG.md), or somebody altered it",
                )
            case Secret() as key if not mac.verify(key, tag, self._context, body):
                raise Corrupt(f"{where} was not written by this broker: its tag does not verify")
        return body, tag

    def _where(self, record: Record) -> str:
        return f"{self.shown}: record {record.offset}"


def _sized(outer: dict[int, object], tag: bytes, signature: bytes) -> bool:
    return len(outer) == 3 and len(tag) == mac.TAG_BYTES and len(signature) == SIGNATURE_BYTES


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

    def append(self, notes: Sequence[dict[str, Any]], after: int | None = None) -> None:
        """Adds all of them, durable on return. Where they were made of what the records before say, `after` is how many
        there were, and Locked says that there are others: on a carrier, nobody's lock keeps other machines out."""
        if not notes:
            return
        with self._appending() as log:
            if after is not None and (end := log.end()) != after:
                raise Locked(
                    f"{self.shown} has {end} records, and this process knows of {after}: another one writes it",
                    hint="let one process run the broker; this one goes on where the other is",
                )
            before, records = self._tag_before(log, log.end()), []
            for note in notes:
                record, before = self._sealed(cbor.encode({1: note, 2: before}))
                records.append(record)
            log.append(records)

    @contextmanager
    def _appending(self) -> Iterator[PartitionLog]:
        """The log, which nobody else appends to meanwhile."""
        writer = self._place.writer() if isinstance(self._place, LogPlace) else None
        if writer is not None:
            try:
                writer.fence()
                yield writer
            finally:
                writer.close()
            return
        files.make_directory(self.directory)
        with files.locked(self.directory / "annals.lock"), EmbeddedLog(self.directory) as log:
            yield log

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
