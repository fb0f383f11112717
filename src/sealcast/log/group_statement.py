"""What a member of a consumer group signs when it acknowledges: how far each of its shares is, and what came with it.

    Ed25519 over  label | CBOR ["sealcast group", 1, realm id, topic id, reader, group, member, events, places, shares]
    places        [[broker, first record of the stay, record, piece, rank, tag of the record before], ...] each
    shares        [number, how many acknowledgements it has, SHA-256 of what it had, which of the places]
    events        SHA-256 of the events that this acknowledges

Whoever keeps the group's state cannot invent such a place. It can keep a newer one back: then events are handed out
again, and none is skipped.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from sealcast.log.cursor import Cursor
from sealcast.wire import cbor
from sealcast.wire.cbor import require

LABEL: Final = b"sealcast/1 group acknowledgement\0"
MAGIC: Final = "sealcast group"
VERSION: Final = 1
#: Into how many shares the publishers of a topic fall. No more members than this have something to do.
SHARES: Final = 64
MAX_STATEMENT_BYTES: Final = 1 << 20
_MAX_STAYS: Final = 256
_DIGEST: Final = 32
_ITEMS: Final = 1 << 16


class GroupName(NamedTuple):
    """A group: of which realm and topic, for which reader, and what it is called."""

    realm: bytes
    topic: bytes
    reader: str
    group: str


class StayPlace(NamedTuple):
    """A place in one broker's ledger: the broker, the first record of the stay there, the place, and the tag of the
    record before it."""

    broker: str
    first: int
    cursor: Cursor
    tag: bytes


class ShareMark(NamedTuple):
    """How far one share is."""

    number: int
    #: How many times it was acknowledged.
    seq: int
    #: SHA-256 of what it had.
    had: bytes
    place: tuple[StayPlace, ...]


@dataclass(frozen=True, slots=True)
class GroupStatement:
    """One acknowledgement."""

    about: GroupName
    member: str
    events: bytes
    shares: tuple[ShareMark, ...]

    def encode(self) -> bytes:
        places = list(dict.fromkeys(share.place for share in self.shares))
        rows = [[[b, first, *_numbers(at), tag] for b, first, at, tag in place] for place in places]
        shares = [[s.number, s.seq, s.had, places.index(s.place)] for s in self.shares]
        return cbor.encode([MAGIC, VERSION, *self.about, self.member, self.events, rows, shares])

    def signed(self) -> bytes:
        """What the signature is over."""
        return LABEL + self.encode()

    def share(self, number: int) -> ShareMark:
        """FrameRejected when the statement is not about it."""
        found = next((share for share in self.shares if share.number == number), None)
        if found is None:
            raise cbor.refused(f"a statement that is not about share {number}")
        return found


def parse(data: bytes) -> GroupStatement:
    """FrameRejected for what is no statement, or beyond a limit."""
    require(len(data) <= MAX_STATEMENT_BYTES, "a statement that is too long")
    match cbor.versioned(cbor.decode(data, max_items=_ITEMS), MAGIC, VERSION, "an acknowledgement of a group"):
        case [bytes(realm), bytes(topic), str(reader), str(group), str(member), bytes(events), list(rows), list(marks)]:
            require(len(events) == _DIGEST and len(rows) <= SHARES and len(marks) <= SHARES, "a statement's sizes")
            places = [_place(row) for row in rows]
            about = GroupName(realm, topic, reader, group)
            return GroupStatement(about, member, events, tuple(_mark(row, places) for row in marks))
        case _:
            raise cbor.refused("this is no acknowledgement of a group")


def lowest(places: Sequence[Sequence[StayPlace]]) -> list[tuple[str, int, Cursor]]:
    """How far all of these are: a stay that one of them has not come to is left out."""
    found: list[Mapping[tuple[str, int], Cursor]] = [{(p.broker, p.first): p.cursor for p in each} for each in places]
    keys = [key for key in (found[0] if found else ()) if all(key in each for each in found)]
    return [(*key, min(each[key] for each in found)) for key in keys]


def digest(data: bytes) -> bytes:
    return hashlib.sha256(data).digest()


def _numbers(at: Cursor) -> tuple[int, int, int]:
    return at.entry, at.piece, at.rank


def _place(row: object) -> tuple[StayPlace, ...]:
    if not isinstance(row, list) or len(row) > _MAX_STAYS:
        raise cbor.refused("a place is a list of places in ledgers")
    return tuple(_stay(each) for each in row)


def _stay(row: object) -> StayPlace:
    match row:
        case [str(broker), int(first), int(entry), int(piece), int(rank), bytes(tag)] if (
            min(first, entry, piece, rank) >= 0
        ):
            return StayPlace(broker, first, Cursor(entry, piece, rank), tag)
        case _:
            raise cbor.refused("a place in a ledger is a broker, a stay, a cursor and a tag")


def _mark(row: object, places: Sequence[tuple[StayPlace, ...]]) -> ShareMark:
    match row:
        case [int(number), int(seq), bytes(had), int(place)] if (
            0 <= number < SHARES and seq >= 0 and len(had) == _DIGEST and 0 <= place < len(places)
        ):
            return ShareMark(number, seq, had, places[place])
        case _:
            raise cbor.refused("a share is a number, a count, a digest and a place")
