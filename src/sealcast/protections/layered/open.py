"""open: what reached a subscriber -> OpenedEvent, with the subscriber's own keys and nobody else's.

(1) the frame's header is the publisher's, signed, for this topic; and the core (id, generation, body) is leaf 2 row of
    the tree that it commits to (`verify`): what the brokers on the way handed on is what was signed;
(2) header and core name the publisher's tree, in which this subscriber has a place;
(3) of the entries, one is final: its key carries the layers that the subscriber put on its own filters;
(4) they come off in one power, and kP is what is left;
(5) the body opens under the key that kP gives this event, and that it is committed to;
(6) the record inside is one of the version of the topic's schema that the header names; it is read as one of the
    present version (`wire.lifting`).

Whatever fails is CannotOpen: a subscriber learns that something was altered, and uses nothing of it. What fails from 3
on is Poisoned: the publisher signed this core, and no broker could look inside, so that readers pass over it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import lru_cache

from sealcast.errors import CannotOpen, Rejected
from sealcast.log.mailbox import Part
from sealcast.model.event import OpenedEvent
from sealcast.primitives import merkle
from sealcast.primitives.groups import Element
from sealcast.primitives.merkle import HASH_BYTES
from sealcast.protections.layered import keys
from sealcast.protections.layered.layers import MAX_CACHED_KEYS, Layers
from sealcast.protections.layered.messages import Notification
from sealcast.protections.layered.subscribe import own_layers
from sealcast.protections.layered.tree import TreeId, TreePlace
from sealcast.protections.opened import OpenedPart, few, settle
from sealcast.protections.verify import (
    SignedHeaders,
    VerifiedRecord,
    VerifyKeyOf,
    checked_record,
    opened_event,
    poisoned_by,
)
from sealcast.trust.realm.topics import Topic
from sealcast.wire.frame import Header
from sealcast.wire.hops import HopPiece
from sealcast.wire.lifting import Lift, lifts
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

    def tried(self, core: Core, entries: bytes) -> bytes | None:
        """`open`; None if it does not."""
        try:
            return self.open(Notification(core.event, parse_entries(entries), core.body))
        except Rejected:
            return None

    def _peeled(self, key: bytes) -> Element:
        return self._group.power(self._group.decode(key), self._off)


class EventOpener:
    """What one subscriber opens of what one broker has for it."""

    def __init__(self, about: Topic, verify_key_of: VerifyKeyOf, opener_of: Callable[[TreeId], Opener]) -> None:
        """`opener_of` gives the keys of a place in a tree, or says with CannotOpen why there are none."""
        #: The version that events are read as.
        self.schema = about.schema
        self._codec, self._lifts = RecordCodec(about.schema), lifts(about.schema, about.earlier_schemas)
        self._headers = SignedHeaders(about.id, verify_key_of)
        self._opener_of = opener_of

    def open_part(self, part: Part[HopPiece]) -> OpenedPart:
        """Open many rows of a piece. Each has a key of its own, which takes a power; all else is shared."""

        def one(row: int) -> VerifiedRecord:
            return self._verified(part.piece, part.handles[row])

        records, headers = list[bytes | None]([None] * len(part)), dict[int, Header]()
        if not few(len(part)):
            for frame, rows in _by_frame(part).items():
                with suppress(CannotOpen):
                    header = self._headers.header(part.piece.frames[frame].signed)
                    for row, record in zip(rows, self._together(header, part, rows), strict=True):
                        records[row] = record
                    headers[frame] = header
        return settle(self._codec, part, headers, records, one, MESSAGES_PER_EVENT)

    def _together(self, header: Header, part: Part[HopPiece], rows: Sequence[int]) -> list[bytes | None]:
        """(1) to (5) for rows of one frame, whose header is good: the record of each that opens, lifted."""
        piece, events = part.piece, [part.events[row] for row in rows]
        cores = [Core(piece.event_id(event), piece.place(event)[2], piece.body(event)) for event in events]
        leaves = [MESSAGES_PER_EVENT * piece.place(event)[1] for event in events]
        hashes = merkle.hash_messages(map(encode_core, cores))
        paths = [piece.path(event) for event in events]
        proven = merkle.verify_paths(header.root, header.count, leaves, hashes, paths)
        openers = {generation: self._opener_in(header, generation) for _, generation, _ in cores}
        records = [
            opener.tried(core, piece.entries_of(part.handles[row]))
            if is_proven and (opener := openers[core.generation]) is not None
            else None
            for row, core, is_proven in zip(rows, cores, proven, strict=True)
        ]
        lift = self._lift(header)
        return [None if record is None else lift(record) for record in records]

    def _lift(self, header: Header) -> Lift:
        found = self._lifts.get(header.schema)
        if found is None:
            raise CannotOpen(f"{header.publisher} used a schema that the topic never had")
        return found

    def _opener_in(self, header: Header, generation: int) -> Opener | None:
        """Of the publisher's tree; None where this subscriber has no keys in it."""
        try:
            return self._opener_of(TreeId(header.publisher, header.epoch, generation))
        except CannotOpen:
            return None

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
            return checked_record(header, position, self._codec, self._lift(header)(record))


def _by_frame(part: Part[HopPiece]) -> dict[int, list[int]]:
    """The rows of each frame, by its number in the piece. Those that the piece says are of other events are left out:
    they are for the slow way to judge."""
    found = dict[int, list[int]]()
    for row, (event, handle) in enumerate(zip(part.events, part.handles, strict=True)):
        if part.piece.event_of(handle) == event:
            found.setdefault(part.piece.place(event)[0], []).append(row)
    return found
