"""open: what reached a subscriber -> OpenedEvent, with the subscriber's own keys and nobody else's.

(1) the frame's header is the publisher's, signed, for this topic; and the core (id, generation, body) is leaf 2 row of
    the tree that it commits to (`verify`): what the brokers on the way handed on is what was signed;
(2) header and core name the publisher's tree, in which this subscriber has a place;
(3) of the entries, one is final: its key carries the layers that the subscriber put on its own filters;
(4) they come off in one power, and kP is what is left;
(5) the body opens under the key that kP gives this event, and that it is committed to;
(6) the record inside is one of the topic's schema.

Whatever fails is CannotOpen: a subscriber learns that something was altered, and uses nothing of it. What fails from 3
on is Poisoned: the publisher signed this core, and no broker could look inside, so that readers pass over it.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

from sealcast.errors import CannotOpen
from sealcast.log.mailbox import Part
from sealcast.model.event import OpenedEvent
from sealcast.model.schema import Schema
from sealcast.primitives.groups import Element
from sealcast.primitives.merkle import HASH_BYTES
from sealcast.protections.layered import keys
from sealcast.protections.layered.layers import MAX_CACHED_KEYS, Layers
from sealcast.protections.layered.messages import Notification
from sealcast.protections.layered.subscribe import own_layers
from sealcast.protections.layered.tree import TreeId, TreePlace
from sealcast.protections.opened import OpenedPart, settle
from sealcast.protections.verify import (
    SignedHeaders,
    VerifiedRecord,
    VerifyKeyOf,
    checked_record,
    opened_event,
    poisoned_by,
)
from sealcast.wire.hops import HopPiece
from sealcast.wire.notifications import MESSAGES_PER_EVENT, Core, encode_core, parse_entries
from sealcast.wire.records import RecordCodec


class Opener:
    """What one subscriber can open in one tree: (3) to (5)."""

    def __init__(self, place: TreePlace, layers: Layers, aad: bytes = b"") -> None:
        self._group = layers.group
        self._aad = aad
        self._off = own_layers(place, layers).inverse
        self._shared = lru_cache(MAX_CACHED_KEYS)(self._peeled)

    def open(self, message: Notification) -> bytes:
        final = [entry for entry in message.entries if entry.final]
        if len(final) != 1:
            raise CannotOpen(f"{len(final)} entries of a notification are for this subscriber, not one")
        key = keys.body_key(self._group, self._shared(final[0].key), message.event, self._aad)
        return keys.open_body(key, message.body)

    def _peeled(self, key: bytes) -> Element:
        return self._group.power(self._group.decode(key), self._off)


class EventOpener:
    """What one subscriber opens of what one broker has for it."""

    def __init__(
        self, schema: Schema, topic_id: bytes, verify_key_of: VerifyKeyOf, opener_of: Callable[[TreeId], Opener]
    ) -> None:
        """`opener_of` gives the keys of a place in a tree, or says with CannotOpen why there are none."""
        self._codec = RecordCodec(schema)
        self._headers = SignedHeaders(topic_id, verify_key_of)
        self._opener_of = opener_of

    def open_part(self, part: Part[HopPiece]) -> OpenedPart:
        """Open many rows of a piece, each by itself: a key of its own is most of what a row takes."""

        def one(row: int) -> VerifiedRecord:
            return self._verified(part.piece, part.handles[row])

        return settle(self._codec, part, {}, [None] * len(part), one, MESSAGES_PER_EVENT)

    def open(self, piece: HopPiece, row: int) -> OpenedEvent:
        """Open one row of a piece, or CannotOpen."""
        header, record = self._verified(piece, row)
        return opened_event(header, piece.position(piece.event_of(row)), self._codec, record, MESSAGES_PER_EVENT)

    def _verified(self, piece: HopPiece, row: int) -> VerifiedRecord:
        event = piece.event_of(row)
        position, joined = piece.position(event), piece.path(event)
        header = self._headers.header(piece.frame(event).signed)
        core = Core(piece.event_id(event), int(piece.generation[event]), piece.body(event))
        path = [joined[at : at + HASH_BYTES] for at in range(0, len(joined), HASH_BYTES)]
        self._headers.verify(header, encode_core(core), position, path, MESSAGES_PER_EVENT)
        opener = self._opener_of(TreeId(header.publisher, header.epoch, core.generation))
        with poisoned_by(header, position):
            record = opener.open(Notification(core.event, parse_entries(piece.entries_of(row)), core.body))
            return checked_record(header, position, self._codec, record)
