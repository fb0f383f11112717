"""open: a mailbox's delivery -> OpenedEvent, with the content key that the key center gave its reader.

(1) the frame's header is its publisher's, signed, for this topic (`verify`);
(2) the envelope opens under the key of that publisher's boot, in the header's epoch;
(3) what brokers were shown of the event, made again out of what is inside, is a leaf of the tree that the header
    commits to, at the row that the piece says: so what was matched is what is read, and nobody else sealed it;
(4) the record inside is one of the topic's schema.

Whatever fails is CannotOpen: a subscriber learns that something was altered, and uses nothing of it. What fails from 2
on, with the key at hand, is Poisoned: brokers could not look inside, so that readers pass over it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import lru_cache
from typing import Final

from sealcast.errors import CannotOpen, Rejected
from sealcast.model.event import OpenedEvent, Position
from sealcast.model.stages import FrameProof
from sealcast.primitives import merkle
from sealcast.primitives.aead import SealingKey
from sealcast.primitives.secrets import Unpicklable
from sealcast.protections.enveloped import keys
from sealcast.protections.enveloped.envelope import Envelope, shown, unpadded
from sealcast.protections.verify import SignedHeaders, VerifyKeyOf, opened_event, poisoned_by
from sealcast.trust.keys.topic_keys import ContentKey
from sealcast.trust.realm.topics import Topic
from sealcast.wire.records import RecordCodec
from sealcast.wire.sealed import TOPIC, SealedPiece

#: Takes off what a broker sealed over an event: piece, event and use to the message inside.
Unseal = Callable[[SealedPiece, int, int], bytes]
#: Ciphers of boots whose events came lately.
MAX_WARM_KEYS: Final = 1_024


class Opener(Unpicklable, ABC):
    """What one reader of a topic opens."""

    def __init__(self, about: Topic, verify_key_of: VerifyKeyOf, content_of: Callable[[int], ContentKey]) -> None:
        """`content_of` gives the reader's content key of an epoch, or says with CannotOpen why it has none."""
        self._about, self._content_of = about, content_of
        self._codec = RecordCodec(about.schema)
        self._hidden = about.protection.hidden_of(about.schema)
        self._headers = SignedHeaders(about.id, verify_key_of)
        self._cipher = lru_cache(MAX_WARM_KEYS)(self._boot_key)

    @abstractmethod
    def before(self, body: bytes) -> int:
        """How many bytes stand before the envelope; CannotOpen for what no publisher wrote there."""

    def open(self, piece: SealedPiece, event: int, use: int, unseal: Unseal | None = None) -> OpenedEvent:
        """Open one delivery of a piece, or CannotOpen. After a compromise, brokers seal what lies there once more, for
        each who may still read: `unseal` takes that off."""
        if piece.key_kind[int(piece.uses[use])] == TOPIC:
            body = piece.body(event)
            at = self.before(body)
            envelope = Envelope.in_piece(body[at:], piece.commitment(event))
        elif unseal is None:
            raise CannotOpen(f"event {piece.position(event)} was sealed again, under keys that are not at hand")
        else:
            body = self._codec.decode_one(unseal(piece, event, use))[1]
            at = self.before(body)
            envelope = Envelope.parse(body[at:])
        return self.open_envelope(piece, event, envelope, body[:at])

    def open_alone(self, signed: bytes, message: bytes) -> OpenedEvent:
        """Open an event that came by itself, as its publisher showed it to brokers: a frame of one, in no log yet."""
        try:
            body = self._codec.decode_one(message)[1]
        except Rejected as error:
            raise CannotOpen(f"it is not of its topic's schema: {error.message}") from None
        at, position = self.before(body), Position(0, 0, 0)
        # Every byte that came is what was signed, also those that are not needed to open it.
        self._headers.verify(self._headers.header(signed), message, position, ())
        proof = FrameProof(0, signed, 1, *merkle.hash_messages([message]))
        return self._opened(position, proof, Envelope.parse(body[at:]), body[:at])

    def open_envelope(self, piece: SealedPiece, event: int, envelope: Envelope, before: bytes = b"") -> OpenedEvent:
        """What `before` says to brokers is the publisher's word as much as the envelope is."""
        return self._opened(piece.position(event), piece.frame(event), envelope, before)

    def _opened(self, position: Position, proof: FrameProof, envelope: Envelope, before: bytes) -> OpenedEvent:
        header = self._headers.header(proof.signed)
        cipher = self._cipher(header.epoch, header.publisher, envelope.boot)
        path = merkle.path(proof.nodes, header.count, position.row) if proof.count == header.count else ()
        with poisoned_by(header, position):
            record = unpadded(cipher.open(keys.nonce(envelope.number), envelope.commitment, envelope.ciphertext))
            values, _, _ = self._codec.decode_one(record)
            message = shown(self._codec, values, self._hidden, record, before + envelope.to_bytes())
            self._headers.verify(header, message, position, path)
            return opened_event(header, position, self._codec, record)

    def _boot_key(self, epoch: int, publisher: str, boot: bytes) -> SealingKey:
        secret = self._content_of(epoch).of_publisher(publisher)
        aad = keys.associated_data(self._about.protection.name, self._about.id, epoch)
        return keys.boot_key(secret, boot, aad, self._about.parameters.key_bits)
