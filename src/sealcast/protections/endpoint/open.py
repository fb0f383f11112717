"""open: a mailbox's delivery -> OpenedEvent, with one subscriber's keys and nobody else's.

(1) a key that the subscriber holds or comes by (`keyring`) opens the content key, or the body itself;
(2) the body opens under the key it is committed to;
(3) the frame's header is its publisher's, signed, for this topic, of this epoch or an earlier one; and the message is a
    leaf of the tree that it commits to, at the row the piece says (`verify`);
(4) the record is one of the topic's schema.
Whatever fails is CannotOpen: a subscriber learns that something was altered, and uses nothing of it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import lru_cache
from typing import Final

import numpy as np
from numpy.typing import NDArray

from sealcast.errors import CannotOpen, KeyMissing
from sealcast.log.mailbox import Delivery, Part
from sealcast.model.event import OpenedEvent, Position
from sealcast.model.schema import Schema
from sealcast.primitives import aead, labels, merkle
from sealcast.primitives.aead import DEFAULT_KEY_BITS, SealingKey
from sealcast.primitives.secrets import KEY_BYTES, Secret
from sealcast.protections.endpoint import keys
from sealcast.protections.endpoint.keyring import Keyring
from sealcast.protections.endpoint.tables import WRAP
from sealcast.protections.opened import OpenedPart, few, settle
from sealcast.protections.port import DEFAULT_KEY_MEMORY
from sealcast.protections.verify import SignedHeaders, VerifiedRecord, VerifyKeyOf, checked_record, opened_event
from sealcast.trust.keys.frames import associated_data
from sealcast.wire.frame import Header
from sealcast.wire.lifting import NO_MESSAGE, lifts
from sealcast.wire.records import RecordCodec
from sealcast.wire.sealed import TABLE, SealedPiece

#: Ciphers of keys used lately.
MAX_WARM_KEYS: Final = 1024
Ints = NDArray[np.int64]
Find = Callable[[Delivery[SealedPiece]], None]


class Opener:
    """What one subscriber of one topic and epoch can open."""

    def __init__(
        self,
        schema: Schema,
        topic_id: bytes,
        epoch: int,
        slot: int,
        pair: Secret,
        verify_key_of: VerifyKeyOf,
        key_bits: int = DEFAULT_KEY_BITS,
        key_memory: int = DEFAULT_KEY_MEMORY,
        earlier_schemas: Sequence[Schema] = (),
    ) -> None:
        self._codec, self._lifts = RecordCodec(schema), lifts(schema, earlier_schemas)
        self._headers = SignedHeaders(topic_id, verify_key_of, epoch)
        self._slot = slot
        self._aad = associated_data(topic_id, epoch)
        self._key_bits = key_bits
        #: What this subscriber holds, in at most `key_memory` bytes.
        self.keyring = Keyring(slot, pair, self._aad, key_bits, key_memory)
        self._ciphers = lru_cache(MAX_WARM_KEYS)(self._cipher)

    def open(self, piece: SealedPiece, event: int, use: int) -> OpenedEvent:
        """Open one delivery of a piece, or CannotOpen."""
        header, record = self._verified(piece, event, use)
        return opened_event(header, piece.position(event), self._codec, record)

    def open_part(self, part: Part[SealedPiece], find: Find | None = None) -> OpenedPart:
        """Open many deliveries of a piece. `find` brings what a delivery needs, when a key for it is missing."""
        piece, missing = part.piece, dict[int, KeyMissing]()

        def one(row: int) -> VerifiedRecord:
            event, use = part.events[row], part.handles[row]
            key = int(piece.uses[use])
            if key in missing:
                raise missing[key]
            try:
                return self._verified(piece, event, use)
            except KeyMissing:
                if find is None:
                    raise
                find(part.delivery(row))
                return self._verified(piece, event, use)

        if few(len(part)):
            return settle(self._codec, part, {}, [None] * len(part), one)
        events = np.asarray(part.events, np.int64)
        bodies = self._bodies(part, events, find, missing)
        headers, proven = self._headers.prove(piece, events, bodies)
        frames = np.asarray(piece.frame_index)[events].tolist()
        records = [
            self._read_as(headers[frame], body) if body is not None and good else None
            for frame, body, good in zip(frames, bodies, proven, strict=True)
        ]
        return settle(self._codec, part, headers, records, one)

    def open_rows(self, piece: SealedPiece) -> list[OpenedEvent]:
        """Everything in a piece that is for this subscriber, in order."""
        events, uses = piece.rows_for(self._slot)
        return [self.open(piece, e, u) for e, u in zip(events.tolist(), uses.tolist(), strict=True)]

    def content_keys(self, piece: SealedPiece, events: Ints, uses: Ints) -> NDArray[np.uint8]:
        """Step (1) alone, for many deliveries at once: a row of 32 bytes each, zeros where the body is sealed directly.

        For proofs: two subscribers with one content key have one event, without opening it twice."""
        found = np.zeros((len(events), KEY_BYTES), np.uint8)
        nonces = aead.each_nonce(piece.partition, *piece.places(events)[1:])
        for key, rows in _by_key(piece, events, uses)[1].items():
            opened = self._unwrapped(piece, key, b"".join(_at(rows, nonces)), piece.wraps_of(uses[rows]))
            found[rows] = np.frombuffer(b"".join(opened), np.uint8).reshape(-1, KEY_BYTES)
        return found

    def missing(self, piece: SealedPiece, since: int = 0) -> list[Position]:
        """For each key that this subscriber needs for a piece, from some event on, and cannot come by: the first event
        that is sealed under it; in order."""
        events, uses = piece.rows_for(self._slot)
        start = int(np.searchsorted(events, since))
        needed, first = np.unique(piece.uses[uses[start:]], return_index=True)
        found = []
        for key, at in zip(needed.tolist(), (start + first).tolist(), strict=True):
            try:
                self.keyring.secret(piece, key)
            except KeyMissing:
                found.append(piece.position(int(events[at])))
        return sorted(found)

    def _verified(self, piece: SealedPiece, event: int, use: int) -> VerifiedRecord:
        """One delivery, (1) to (4)."""
        position, proof = piece.position(event), piece.frame(event)
        message = self.open_body(piece, event, use)
        header = self._headers.header(proof.signed)
        path = merkle.path(proof.nodes, header.count, position.row) if proof.count == header.count else ()
        self._headers.verify(header, message, position, path)
        return checked_record(header, position, self._codec, self._read_as(header, message))

    def _read_as(self, header: Header, message: bytes) -> bytes:
        """A verified message, as one of the schema's present version. What names no version is no message: its broker
        should have refused it."""
        lift = self._lifts.get(header.schema)
        return NO_MESSAGE if lift is None else lift(message)

    # --- (1), (2) ----------------------------------------------------------------------------------

    def open_body(self, piece: SealedPiece, event: int, use: int) -> bytes:
        """What the broker sealed, not verified yet."""
        nonce, commitment = aead.nonce(piece.position(event)), piece.commitment(event)
        key = int(piece.uses[use])
        try:
            if not piece.wrapped[event]:
                cipher = self._ciphers(b"body", self.keyring.secret(piece, key))
            else:
                (content_key,) = self._unwrapped(piece, key, nonce, [piece.wrap(use)])
                cipher = SealingKey(Secret(content_key), self._aad, self._key_bits)
            return cipher.open(nonce, commitment, piece.body(event))
        except KeyMissing:
            raise
        except CannotOpen:
            # A key that came altered must not stay: the next piece, or the desk, gives the right one.
            self.keyring.forget(piece.key_id(key))
            raise

    def _bodies(
        self, part: Part[SealedPiece], events: Ints, find: Find | None, missing: dict[int, KeyMissing]
    ) -> list[bytes | None]:
        """What the broker sealed, of all deliveries at once; None in the place of those that do not open. Keys that are
        not to be had are `missing` from now on."""
        piece, uses = part.piece, np.asarray(part.handles, np.int64)
        nonces = aead.each_nonce(piece.partition, *piece.places(events)[1:])
        bodies, commitments = piece.bodies_of(events), piece.commitments_of(events)
        direct, wrapped = _by_key(piece, events, uses)
        found: list[bytes | None] = [None] * len(part)
        for key, rows in direct.items():
            secret = self._secret(part, key, rows[0], find, missing)
            if secret is not None:
                cipher = self._ciphers(b"body", secret)
                opened = cipher.open_many(_at(rows, nonces), _at(rows, commitments), _at(rows, bodies))
                for row, body in zip(rows, opened, strict=True):
                    found[row] = body
        contents = dict[int, bytes]()
        for key, rows in wrapped.items():
            if self._secret(part, key, rows[0], find, missing) is not None:
                contents |= self._contents(piece, key, rows, nonces, uses)
        rows = list(contents)
        own = (_at(rows, nonces), _at(rows, commitments), _at(rows, bodies))
        opened = aead.open_each(list(contents.values()), self._aad, *own, self._key_bits)
        for row, body in zip(rows, opened, strict=True):
            found[row] = body
        return found

    def _secret(
        self, part: Part[SealedPiece], key: int, row: int, find: Find | None, missing: dict[int, KeyMissing]
    ) -> bytes | None:
        """The value of a key that a delivery needs, if it is to be had."""
        try:
            try:
                return self.keyring.secret(part.piece, key)
            except KeyMissing:
                if find is None:
                    raise
                find(part.delivery(row))
                return self.keyring.secret(part.piece, key)
        except KeyMissing as error:
            missing[key] = error
        except CannotOpen:
            pass  # what came with the piece is none of our keys: each row says so for itself
        return None

    def _contents(
        self, piece: SealedPiece, key: int, rows: list[int], nonces: list[bytes], uses: Ints
    ) -> dict[int, bytes]:
        """The content keys that rows have under one key, by row, as far as they open."""
        wraps = piece.wraps_of(uses[rows])
        try:
            return dict(zip(rows, self._unwrapped(piece, key, b"".join(_at(rows, nonces)), wraps), strict=True))
        except CannotOpen:
            found = dict[int, bytes]()
            for row, wrap in zip(rows, wraps, strict=True):
                with suppress(CannotOpen):
                    (found[row],) = self._unwrapped(piece, key, nonces[row], [wrap])
            return found

    def _unwrapped(self, piece: SealedPiece, key: int, nonces: bytes, wraps: list[bytes]) -> list[bytes]:
        """The content keys that were brought to the holders of a key."""
        secret = self.keyring.secret(piece, key)
        if piece.key_kind[key] != TABLE:
            return self._ciphers(b"wrap", secret).unwrap_many(nonces, wraps)
        places = [nonces[at : at + aead.NONCE_BYTES] for at in range(0, len(nonces), aead.NONCE_BYTES)]
        return [labels.unmask(secret, place, WRAP, wrap) for place, wrap in zip(places, wraps, strict=True)]

    def _cipher(self, purpose: bytes, secret: bytes) -> SealingKey:
        make = keys.body_key if purpose == b"body" else keys.wrap_key
        return make(Secret(secret), self._aad, self._key_bits)


def _by_key(piece: SealedPiece, events: Ints, uses: Ints) -> tuple[dict[int, list[int]], dict[int, list[int]]]:
    """Which rows are sealed under which key: bodies, and content keys."""
    direct, wrapped = dict[int, list[int]](), dict[int, list[int]]()
    keys_used, wraps = piece.uses[uses].tolist(), piece.wrapped[events].tolist()
    for row, (key, is_wrapped) in enumerate(zip(keys_used, wraps, strict=True)):
        (wrapped if is_wrapped else direct).setdefault(key, []).append(row)
    return direct, wrapped


def _at(rows: Sequence[int], values: list[bytes]) -> list[bytes]:
    return values if len(rows) == len(values) else [values[row] for row in rows]
