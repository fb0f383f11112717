"""open: a mailbox's delivery -> OpenedEvent, with the content key that the key center gave its reader.

(1) the frame's header is its publisher's, signed, for this topic (`verify`);
(2) the envelope opens under the key of that publisher's boot, in the header's epoch;
(3) what brokers were shown of the event, made again out of what is inside, is a leaf of the tree that the header
    commits to, at the row that the piece says: so what was matched is what is read, and nobody else sealed it;
(4) the record inside is one of the version of the topic's schema that the header names; it is read as one of the
    present version (`wire.lifting`).

Whatever fails is CannotOpen: a subscriber learns that something was altered, and uses nothing of it. What fails from 2
on, with the key at hand, is Poisoned: brokers could not look inside, so that readers pass over it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import suppress
from functools import lru_cache
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from sealcast.errors import CannotOpen, EventRejected, Rejected
from sealcast.log.mailbox import Part
from sealcast.model.event import OpenedEvent, Position
from sealcast.model.schema import Schema
from sealcast.model.stages import FrameProof
from sealcast.primitives import merkle
from sealcast.primitives.aead import TAG_BYTES, SealingKey
from sealcast.primitives.secrets import Unpicklable
from sealcast.protections.checked import CheckedColumns
from sealcast.protections.enveloped import keys
from sealcast.protections.enveloped.envelope import (
    CONTENT_TYPE,
    HEAD_BYTES,
    NUMBER_BYTES,
    Envelope,
    shown,
    unpadded,
)
from sealcast.protections.opened import OpenedPart, RecordValues, decoded, few, settle
from sealcast.protections.verify import (
    SignedHeaders,
    VerifiedRecord,
    VerifyKeyOf,
    checked_record,
    opened_event,
    poisoned_by,
)
from sealcast.trust.keys.topic_keys import ContentKey
from sealcast.trust.realm.topics import Topic
from sealcast.wire.frame import BOOT_BYTES, Header
from sealcast.wire.layout import RECORD_AT
from sealcast.wire.lifting import Lift, lifts
from sealcast.wire.limits import SALT_BYTES
from sealcast.wire.records import RecordCodec
from sealcast.wire.sealed import TOPIC, SealedPiece

Ints = NDArray[np.int64]

#: Takes off what a broker sealed over an event: piece, event and use to the message inside.
Unseal = Callable[[SealedPiece, int, int], bytes]
#: Ciphers of boots whose events came lately.
MAX_WARM_KEYS: Final = 1_024


class _Version(NamedTuple):
    """One version of a topic's schema: how its records are read, and what brokers were shown of them."""

    schema: Schema
    codec: RecordCodec
    hidden: frozenset[str]
    lift: Lift


class Opener(Unpicklable, ABC):
    """What one reader of a topic opens."""

    def __init__(self, about: Topic, verify_key_of: VerifyKeyOf, content_of: Callable[[int], ContentKey]) -> None:
        """`content_of` gives the reader's content key of an epoch, or says with CannotOpen why it has none."""
        self._about, self._content_of = about, content_of
        self._codec, found = RecordCodec(about.schema), lifts(about.schema, about.earlier_schemas)
        self._versions = {
            each.digest: _Version(each, RecordCodec(each), about.protection.hidden_of(each), found[each.digest])
            for each in (*about.earlier_schemas, about.schema)
        }
        self._headers = SignedHeaders(about.id, verify_key_of)
        self._cipher = lru_cache(MAX_WARM_KEYS)(self._boot_key)

    @abstractmethod
    def before(self, body: bytes) -> int:
        """How many bytes stand before the envelope; CannotOpen for what no publisher wrote there."""

    def open(self, piece: SealedPiece, event: int, use: int, unseal: Unseal | None = None) -> OpenedEvent:
        """Open one delivery of a piece, or CannotOpen. After a compromise, brokers seal what lies there once more, for
        each who may still read: `unseal` takes that off."""
        header, record = self._verified(piece, event, use, unseal)
        return opened_event(header, piece.position(event), self._codec, record)

    def open_part(self, part: Part[SealedPiece], unseal: Unseal | None = None) -> OpenedPart:
        """Open many deliveries of a piece. Those that were sealed again are opened one by one."""
        piece, records = part.piece, list[bytes | None]([None] * len(part))

        def one(row: int) -> VerifiedRecord:
            return self._verified(piece, part.events[row], part.handles[row], unseal)

        if few(len(part)):
            return settle(self._codec, part, {}, records, one)
        plain = np.asarray(piece.key_kind)[piece.uses[np.asarray(part.handles, np.int64)]] == TOPIC
        rows = np.flatnonzero(plain).tolist()
        headers, found, values = self._together(piece, np.asarray(part.events, np.int64)[rows])
        for row, record in zip(rows, found, strict=True):
            records[row] = record
        return settle(self._codec, part, headers, records, one, values=values)

    def open_alone(self, signed: bytes, message: bytes) -> OpenedEvent:
        """Open an event that came by itself, as its publisher showed it to brokers: a frame of one, in no log yet."""
        header = self._headers.header(signed)
        try:
            body = self._version(header).codec.decode_one(message)[1]
        except Rejected as error:
            raise CannotOpen(f"it is not of its topic's schema: {error.message}") from None
        at, position = self.before(body), Position(0, 0, 0)
        # Every byte that came is what was signed, also those that are not needed to open it.
        self._headers.verify(header, message, position, ())
        proof = FrameProof(0, signed, 1, *merkle.hash_messages([message]))
        return self.open_envelope(position, proof, Envelope.parse(body[at:]), body[:at])

    def open_envelope(
        self, position: Position, proof: FrameProof, envelope: Envelope, before: bytes = b""
    ) -> OpenedEvent:
        """Open an envelope that came with this proof."""
        header, record = self._checked(position, proof, envelope, before)
        return opened_event(header, position, self._codec, record)

    def _verified(self, piece: SealedPiece, event: int, use: int, unseal: Unseal | None) -> VerifiedRecord:
        """One delivery, (1) to (4)."""
        position = piece.position(event)
        if piece.key_kind[int(piece.uses[use])] == TOPIC:
            body = piece.body(event)
            at = self.before(body)
            envelope = Envelope.in_piece(body[at:], piece.commitment(event))
        elif unseal is None:
            raise CannotOpen(f"event {position} was sealed again, under keys that are not at hand")
        else:
            version = self._version(self._headers.header(piece.frame(event).signed))
            try:
                body = version.codec.decode_one(unseal(piece, event, use))[1]
            except EventRejected as error:
                raise CannotOpen(f"event {position} is not of its topic's schema: {error.message}") from None
            at = self.before(body)
            envelope = Envelope.parse(body[at:])
        return self._checked(position, piece.frame(event), envelope, body[:at])

    def _checked(self, position: Position, proof: FrameProof, envelope: Envelope, before: bytes) -> VerifiedRecord:
        """What `before` says to brokers is the publisher's word as much as the envelope is."""
        header = self._headers.header(proof.signed)
        version = self._version(header)
        cipher = self._cipher(header.epoch, header.publisher, envelope.boot)
        path = merkle.path(proof.nodes, header.count, position.row) if proof.count == header.count else ()
        with poisoned_by(header, position):
            record = unpadded(cipher.open(keys.nonce(envelope.number), envelope.commitment, envelope.ciphertext))
            values, _, _ = version.codec.decode_one(record)
            message = shown(version.codec, values, version.hidden, record, before + envelope.to_bytes())
            self._headers.verify(header, message, position, path)
            return checked_record(header, position, self._codec, version.lift(record))

    def _version(self, header: Header) -> _Version:
        found = self._versions.get(header.schema)
        if found is None:
            raise CannotOpen(f"{header.publisher} used a schema that the topic never had")
        return found

    # --- many at once ---------------------------------------------------------------------------------

    def _together(
        self, piece: SealedPiece, events: Ints
    ) -> tuple[dict[int, Header], list[bytes | None], RecordValues | None]:
        """Headers, and the records of events that pass (1) to (4); their values, if all do."""
        present = self._about.schema.digest
        versions = self._by_version(piece, events) if len(self._versions) > 1 else {present: []}
        if versions.keys() == {present}:
            return self._of_version(self._versions[present], piece, events)
        headers, found = dict[int, Header](), list[bytes | None]([None] * len(events))
        for digest, rows in versions.items():
            version = self._versions[digest]
            more, records, _ = self._of_version(version, piece, events[rows])
            headers |= more
            for row, record in zip(rows, records, strict=True):
                found[row] = None if record is None else version.lift(record)
        return headers, found, None

    def _by_version(self, piece: SealedPiece, events: Ints) -> dict[bytes, list[int]]:
        """Rows by the version of the schema that their frames name; those that name none are in none."""
        named, found = dict[int, bytes](), dict[bytes, list[int]]()
        for row, index in enumerate(piece.frame_index[events].tolist()):
            if index not in named:
                named[index] = b""
                with suppress(CannotOpen):
                    named[index] = self._headers.header(piece.frames[index].signed).schema
            if named[index] in self._versions:
                found.setdefault(named[index], []).append(row)
        return found

    def _of_version(
        self, version: _Version, piece: SealedPiece, events: Ints
    ) -> tuple[dict[int, Header], list[bytes | None], RecordValues | None]:
        """`_together` for events of one version of the schema; records are of that version."""
        bodies, commitments = piece.bodies_of(events), piece.commitments_of(events)
        records, starts = self._unsealed(piece, events, bodies, commitments)
        rows = [row for row, record in enumerate(records) if record is not None]
        inside = [record for record in records if record is not None]
        values, bad = decoded(version.codec, inside)
        sealed = [
            b"".join((body[: (at := starts[row] + HEAD_BYTES)], commitments[row], body[at:]))
            for row, body in zip(rows, (bodies[row] for row in rows), strict=True)
        ]
        messages = list[bytes | None]([None] * len(bodies))
        try:
            salts = b"".join(record[1:RECORD_AT].ljust(SALT_BYTES, b"\0") for record in inside)
            made = CheckedColumns(version.schema, values.columns, values.payloads)
            made_messages = made.shown(version.codec, version.hidden, salts, sealed, CONTENT_TYPE)
        except EventRejected:  # one is too large; which one, and why, is for each row to say
            return {}, messages, None
        for at, row in enumerate(rows):
            messages[row] = made_messages[at]
        for at in bad:
            messages[rows[at]] = None
        headers, proven = self._headers.prove(piece, events, messages)
        of_frame = np.asarray(piece.frame_index)[events].tolist()
        found = [
            record if good and headers[frame].schema == version.schema.digest else None
            for record, good, frame in zip(records, proven, of_frame, strict=True)
        ]
        return headers, found, None if None in found else values

    def _unsealed(
        self, piece: SealedPiece, events: Ints, bodies: list[bytes], commitments: list[bytes]
    ) -> tuple[list[bytes | None], list[int]]:
        """What envelopes hold, as far as they open; and where each envelope begins."""
        boots, starts = dict[tuple[int, bytes], list[int]](), [0] * len(bodies)
        for row, (index, body) in enumerate(zip(piece.frame_index[events].tolist(), bodies, strict=True)):
            with suppress(CannotOpen):
                at = starts[row] = self.before(body)
                if len(body) - at > HEAD_BYTES + TAG_BYTES:
                    boots.setdefault((index, body[at : at + BOOT_BYTES]), []).append(row)
        records: list[bytes | None] = [None] * len(bodies)
        for (index, boot), rows in boots.items():
            try:
                header = self._headers.header(piece.frames[index].signed)
                cipher = self._cipher(header.epoch, header.publisher, boot)
            except CannotOpen:
                continue
            parts = [(bodies[row], starts[row] + HEAD_BYTES) for row in rows]
            opened = cipher.open_many(
                [keys.NUMBER_PAD + body[at - NUMBER_BYTES : at] for body, at in parts],
                [commitments[row] for row in rows],
                [body[at:] for body, at in parts],
            )
            for row, inside in zip(rows, opened, strict=True):
                if inside is not None:
                    with suppress(CannotOpen):
                        records[row] = unpadded(inside)
        return records, starts

    def _boot_key(self, epoch: int, publisher: str, boot: bytes) -> SealingKey:
        secret = self._content_of(epoch).of_publisher(publisher)
        aad = keys.associated_data(self._about.protection.name, self._about.id, epoch)
        return keys.boot_key(secret, boot, aad, self._about.parameters.key_bits)
