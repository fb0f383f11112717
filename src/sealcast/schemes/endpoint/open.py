"""open: a mailbox's delivery -> OpenedEvent, with one subscriber's keys and nobody else's.

(1) the subscriber's own key opens the content key, or the body itself;
(2) the body opens under the key it is committed to;
(3) the message is a leaf of the frame's tree, at the row the piece says;
(4) the root is the one that the publisher signed, for this topic and epoch;
(5) the record is one of the topic's schema.
Whatever fails is CannotOpen: a subscriber learns that something was altered, and uses nothing of it.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Final

import numpy as np
from numpy.typing import NDArray

from sealcast.errors import CannotOpen, FrameRejected, Rejected
from sealcast.model.event import OpenedEvent, Position
from sealcast.model.schema import Schema
from sealcast.model.stages import FrameProof
from sealcast.primitives import aead, merkle
from sealcast.primitives.aead import DEFAULT_KEY_BITS, SealingKey
from sealcast.primitives.secrets import KEY_BYTES, Secret
from sealcast.primitives.sign import VerifyKey
from sealcast.schemes.endpoint import keys
from sealcast.wire import frame
from sealcast.wire.frame import Header
from sealcast.wire.records import RecordCodec
from sealcast.wire.sealed import SealedPiece

#: Group secrets kept, the newest: what a broker can make a client remember is bounded.
MAX_GROUP_SECRETS: Final = 65_536
#: Signed headers verified before: the events of one frame tend to come together.
MAX_VERIFIED_HEADERS: Final = 1024
Ints = NDArray[np.int64]
_EPOCH_START: Final = datetime(1970, 1, 1, tzinfo=UTC)


class Opener:
    """What one subscriber of one topic and epoch can open."""

    def __init__(
        self,
        schema: Schema,
        topic_id: bytes,
        epoch: int,
        slot: int,
        pair: Secret,
        verify_key_of: Callable[[str], VerifyKey],
        key_bits: int = DEFAULT_KEY_BITS,
    ) -> None:
        self._codec = RecordCodec(schema)
        self._topic_id = topic_id
        self._epoch = epoch
        self._slot = slot
        self._pair = pair
        self._aad = keys.associated_data(topic_id, epoch)
        self._pair_id = keys.pair_id(slot)
        self._key_bits = key_bits
        self._pair_body = keys.body_key(pair, self._aad, key_bits)
        self._pair_wrap = keys.wrap_key(pair, self._aad, key_bits)
        #: Group secrets that were handed to this subscriber, by key id.
        self._groups: dict[bytes, Secret] = {}
        self._handed_out: SealedPiece | None = None
        self._verify_key_of = verify_key_of
        self._verified = lru_cache(MAX_VERIFIED_HEADERS)(self._verify_header)

    def open(self, piece: SealedPiece, event: int, use: int) -> OpenedEvent:
        """Open one delivery of a piece, or CannotOpen."""
        position = piece.position(event)
        self._take_handouts(piece)
        message = self._open_body(piece, event, use, position)
        header = self._verify(piece.frames[int(piece.frame_index[event])], position, message)
        try:
            values, payload, content_type = self._codec.decode_one(message)
        except Rejected as error:
            raise CannotOpen(f"event {position} is not of its topic's schema: {error.message}") from None
        return OpenedEvent(
            position=position,
            publisher=header.publisher,
            published_at=_EPOCH_START + timedelta(microseconds=header.time),
            sequence=header.sequence + position.row,
            attributes=values,
            payload=payload,
            content_type=content_type,
        )

    def open_rows(self, piece: SealedPiece) -> list[OpenedEvent]:
        """Everything in a piece that is for this subscriber, in order."""
        events, uses = piece.rows_for(self._slot)
        return [self.open(piece, e, u) for e, u in zip(events.tolist(), uses.tolist(), strict=True)]

    def content_keys(self, piece: SealedPiece, events: Ints, uses: Ints) -> NDArray[np.uint8]:
        """Step (1) alone, for many deliveries at once: a row of 32 bytes each, zeros where the body is sealed directly.

        For proofs: two subscribers with one content key have one event, without opening it twice."""
        self._take_handouts(piece)
        found = np.zeros((len(events), KEY_BYTES), np.uint8)
        rows = np.flatnonzero(piece.wrapped[events])
        offsets = np.array([proof.offset for proof in piece.frames], np.int64)
        keys_used = piece.uses[uses[rows]]
        for key in np.unique(keys_used).tolist():
            mine = rows[keys_used == key]
            picked = events[mine]
            nonces = aead.nonces(piece.partition, offsets[piece.frame_index[picked]], piece.row[picked])
            opened = self._wrap_key(piece.key_id(key)).unwrap_many(nonces, piece.wraps_of(uses[mine]))
            found[mine] = np.frombuffer(b"".join(opened), np.uint8).reshape(-1, KEY_BYTES)
        return found

    # --- (1), (2) ----------------------------------------------------------------------------------

    def _open_body(self, piece: SealedPiece, event: int, use: int, position: Position) -> bytes:
        nonce = aead.nonce(position)
        key_id = piece.key_id(int(piece.uses[use]))
        commitment = piece.commitment(event)
        if not piece.wrapped[event]:
            return self._body_key(key_id).open(nonce, commitment, piece.body(event))
        content_key = self._wrap_key(key_id).unwrap(nonce, piece.wrap(use))
        return SealingKey(content_key, self._aad, self._key_bits).open(nonce, commitment, piece.body(event))

    def _body_key(self, key_id: bytes) -> SealingKey:
        if key_id == self._pair_id:
            return self._pair_body
        return keys.body_key(self._group(key_id), self._aad, self._key_bits)

    def _wrap_key(self, key_id: bytes) -> SealingKey:
        if key_id == self._pair_id:
            return self._pair_wrap
        return keys.wrap_key(self._group(key_id), self._aad, self._key_bits)

    def _group(self, key_id: bytes) -> Secret:
        secret = self._groups.get(key_id)
        if secret is None:
            raise CannotOpen("this was sealed under a key that this subscriber does not hold")
        return secret

    def _take_handouts(self, piece: SealedPiece) -> None:
        """The group keys that come with a piece; all at once, when its first event is opened."""
        if piece is self._handed_out:
            return
        for key, sealed in piece.handouts_for(self._slot):
            key_id = piece.key_id(key)
            if key_id not in self._groups:
                if len(self._groups) >= MAX_GROUP_SECRETS:
                    del self._groups[next(iter(self._groups))]  # the oldest
                carrier = keys.handout_key(self._pair, key_id, self._aad, self._key_bits)
                self._groups[key_id] = carrier.unwrap(keys.HANDOUT_NONCE, sealed)
        self._handed_out = piece

    # --- (3), (4) ----------------------------------------------------------------------------------

    def _verify(self, proof: FrameProof, position: Position, message: bytes) -> Header:
        header = self._verified(proof.signed)
        path = merkle.path(proof.nodes, header.count, position.row) if proof.count == header.count else ()
        (leaf,) = merkle.hash_messages((message,))
        if not merkle.verify(header.root, leaf, position.row, header.count, path):
            raise CannotOpen(f"event {position} is not among the events that {header.publisher} signed")
        return header

    def _verify_header(self, signed: bytes) -> Header:
        try:
            about = frame.parse_signed(signed)
        except FrameRejected as error:
            raise CannotOpen(f"a frame's signed header is none: {error.message}") from None
        header = about.header
        if header.topic != self._topic_id or header.epoch != self._epoch:
            raise CannotOpen(f"{header.publisher} signed this for another topic or epoch")
        if not self._verify_key_of(header.publisher).verify(about.to_be_signed, about.signature):
            raise CannotOpen(f"the signature is not {header.publisher}'s")
        return header
