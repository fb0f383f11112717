"""open: a row of a hop piece -> OpenedEvent, with one subscriber's keys and nobody else's.

(1) the frame's header is the publisher's, signed, for this topic;
(2) the core (id, generation, body) is leaf 2 row of the tree that the header commits to: what the brokers on the way
    handed on is what was signed;
(3) header and core name the publisher's tree; this subscriber has a place in it, whose keys open the one entry that is
    for it, and with that the body;
(4) the record inside is one of the topic's schema.

Whatever fails is CannotOpen: a subscriber learns that something was altered, and uses nothing of it.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Final

from sealcast.errors import CannotOpen, FrameRejected, Rejected
from sealcast.model.event import OpenedEvent, Position
from sealcast.model.schema import Schema
from sealcast.primitives import merkle
from sealcast.primitives.merkle import HASH_BYTES
from sealcast.primitives.sign import VerifyKey
from sealcast.protections.layered.messages import Entry, Notification
from sealcast.protections.layered.open import Opener
from sealcast.protections.layered.tree import TreeId
from sealcast.wire import frame
from sealcast.wire.frame import Header
from sealcast.wire.hops import HopPiece
from sealcast.wire.notifications import MESSAGES_PER_EVENT, Core, encode_core, parse_entries
from sealcast.wire.records import RecordCodec

#: Signed headers verified before: the events of one frame tend to come together.
MAX_VERIFIED_HEADERS: Final = 1024
_EPOCH_START: Final = datetime(1970, 1, 1, tzinfo=UTC)


class EventOpener:
    """What one subscriber opens of what one broker has for it."""

    def __init__(
        self,
        schema: Schema,
        topic_id: bytes,
        verify_key_of: Callable[[str], VerifyKey],
        opener_of: Callable[[TreeId], Opener],
    ) -> None:
        """`opener_of` gives the keys of a place in a tree, or says with CannotOpen why there are none."""
        self._codec = RecordCodec(schema)
        self._topic_id = topic_id
        self._verify_key_of = verify_key_of
        self._opener_of = opener_of
        self._verified = lru_cache(MAX_VERIFIED_HEADERS)(self._verify_header)

    def open(self, piece: HopPiece, row: int) -> OpenedEvent:
        """Open one row of a piece, or CannotOpen."""
        event = piece.event_of(row)
        position = piece.position(event)
        header = self._verified(piece.frame(event).signed)
        core = Core(piece.event_id(event), int(piece.generation[event]), piece.body(event))
        self._verify_core(header, core, position, piece.path(event))
        opener = self._opener_of(TreeId(header.publisher, header.epoch, core.generation))
        try:
            entries = tuple(Entry(*entry) for entry in parse_entries(piece.entries_of(row)))
            record = opener.open(Notification(core.event, entries, core.body))
            values, payload, content_type = self._codec.decode_one(record)
        except CannotOpen:
            raise
        except Rejected as error:
            raise CannotOpen(f"event {position} is not what its topic's events are: {error.message}") from None
        return OpenedEvent(
            position=position,
            publisher=header.publisher,
            published_at=_EPOCH_START + timedelta(microseconds=header.time),
            # Numbers are given to messages, and an event has two.
            sequence=header.sequence // MESSAGES_PER_EVENT + position.row,
            attributes=values,
            payload=payload,
            content_type=content_type,
        )

    # --- (1), (2) -------------------------------------------------------------------------------------

    def _verify_header(self, signed: bytes) -> Header:
        try:
            about = frame.parse_signed(signed)
        except FrameRejected as error:
            raise CannotOpen(f"a frame's signed header is none: {error.message}") from None
        header = about.header
        if header.topic != self._topic_id:
            raise CannotOpen(f"{header.publisher} signed this for another topic")
        if not self._verify_key_of(header.publisher).verify(about.to_be_signed, about.signature):
            raise CannotOpen(f"the signature is not {header.publisher}'s")
        return header

    def _verify_core(self, header: Header, core: Core, position: Position, joined: bytes) -> None:
        path = [joined[at : at + HASH_BYTES] for at in range(0, len(joined), HASH_BYTES)]
        (leaf,) = merkle.hash_messages((encode_core(core),))
        if not merkle.verify(header.root, leaf, MESSAGES_PER_EVENT * position.row, header.count, path):
            raise CannotOpen(f"event {position} is not among the events that {header.publisher} signed")
