"""Deliveries of one subscriber as an MQTT message: an excerpt of a broker's piece, on its way to whom it is for.

    "SCM1" | kind (u8) | length (u8) and name of the broker | record (u64), piece (u32), rank (u32) | committed (u64) |
    the excerpt, compressed

Numbers are big-endian. Record, piece and rank are the place of the first delivery in the mailbox (`log.cursor`). The
deliveries of one message follow each other there. `committed` is when the broker committed them, in microseconds.

The carrier can withhold mail and repeat it. It cannot alter it: what a subscriber opens, it verifies.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from sealcast.errors import Misuse
from sealcast.log.cursor import Cursor
from sealcast.log.mailbox import NamedRecipient, Part, Recipient, SlotRecipient
from sealcast.model.names import NAME
from sealcast.protections.stays import Found, FoundPart
from sealcast.trust.realm.topics import Stay
from sealcast.wire import hops, sealed
from sealcast.wire.cbor import refused
from sealcast.wire.hops import HopPiece
from sealcast.wire.sealed import SealedPiece

MAGIC: Final = b"SCM1"
_HEAD: Final = struct.Struct(">4sBB")
_PLACE: Final = struct.Struct(">QIIQ")
#: What a message is filled up to. Many MQTT brokers refuse more than a megabyte unless told.
FULL_BYTES: Final = 256 << 10
MAX_EVENTS: Final = 256
#: The longest that a message can be: one event of the largest size, with its keys and the tree of its frame.
MAX_BYTES: Final = 32 << 20
#: Uncompressed, the tree of a frame is mostly zeros.
MAX_EXCERPT_BYTES: Final = 64 << 20
_SEALED, _HOPS = range(2)


class PackedMail(NamedTuple):
    """What goes to a subscriber in one message, and the last delivery in it."""

    data: bytes
    last: Found[Any]
    events: int


@dataclass(frozen=True, slots=True)
class Mail:
    """A message of deliveries, taken apart. What is in it opens, or does not."""

    broker: str
    first: Cursor
    committed_us: int
    piece: SealedPiece | HopPiece

    @classmethod
    def parse(cls, data: bytes) -> Mail:
        """FrameRejected for what is no mail."""
        if not _HEAD.size < len(data) <= MAX_BYTES:
            raise refused(f"mail has at most {MAX_BYTES} bytes")
        magic, kind, length = _HEAD.unpack_from(data)
        end = _HEAD.size + length
        broker = data[_HEAD.size : end].decode("ascii", "replace")
        if magic != MAGIC or kind not in (_SEALED, _HOPS) or not NAME.fullmatch(broker):
            raise refused("not mail of this release")
        if len(data) < end + _PLACE.size:
            raise refused("mail that ends too early")
        record, piece, rank, committed = _PLACE.unpack_from(data, end)
        excerpt = _expanded(data[end + _PLACE.size :])
        parsed = sealed.parse(excerpt) if kind == _SEALED else hops.parse(excerpt)
        return cls(broker, Cursor(record, piece, rank), committed, parsed)

    def part(self, name: str, slot: int | None) -> FoundPart[Any]:
        """What is in it for a subscriber of that name, who has that slot where subscribers have slots."""
        if not isinstance(self.piece, SealedPiece):
            rows = NamedRecipient(name).rows(self.piece)
        elif slot is not None:
            rows = SlotRecipient(name, slot).rows(self.piece)
        else:
            raise Misuse(f"{name!r} has no slot on this topic, and so no such mail")
        events, handles = rows
        ranks = range(self.first.rank, self.first.rank + len(events))
        found: Part[Any] = Part(
            self.first.entry, self.first.piece, self.committed_us, self.piece, events, handles, ranks
        )
        return FoundPart(0, Stay(self.broker), found)


def posts(found: Sequence[Found[Any]], recipient: Recipient[Any]) -> Iterator[PackedMail]:
    """Deliveries that follow each other in a mailbox, as messages that are full and not too long."""
    begin = 0
    while begin < len(found):
        end = _fitting(found, begin)
        yield _post(found[begin:end], recipient)
        begin = end


def _fitting(found: Sequence[Found[Any]], begin: int) -> int:
    """How far the next message goes: within one piece, and to a size that brokers take. One event at the least."""
    first, size, end = found[begin], 0, begin
    while end < len(found) and end - begin < MAX_EVENTS:
        each = found[end]
        size += len(each.delivery.piece.body(each.delivery.event))
        other = each.stay != first.stay or each.delivery.cursor != _after(first.delivery.cursor, end - begin)
        if end > begin and (other or size > FULL_BYTES):
            break
        end += 1
    return end


def _after(cursor: Cursor, number: int) -> Cursor:
    return Cursor(cursor.entry, cursor.piece, cursor.rank + number)


def _post(found: Sequence[Found[Any]], recipient: Recipient[Any]) -> PackedMail:
    first = found[0].delivery
    excerpt = recipient.excerpt(
        first.piece, [each.delivery.event for each in found], [each.delivery.handle for each in found]
    )
    broker, cursor = found[0].broker.encode(), first.cursor
    kind = _SEALED if isinstance(first.piece, SealedPiece) else _HOPS
    place = _PLACE.pack(cursor.entry, cursor.piece, cursor.rank, first.committed_us)
    head = _HEAD.pack(MAGIC, kind, len(broker)) + broker + place
    return PackedMail(head + zlib.compress(excerpt, 1), found[-1], len(found))


def _expanded(data: bytes) -> bytes:
    inflating = zlib.decompressobj()
    try:
        excerpt = inflating.decompress(data, MAX_EXCERPT_BYTES)
    except zlib.error:
        raise refused("mail whose excerpt cannot be expanded") from None
    if not inflating.eof or inflating.unused_data:
        raise refused(f"mail whose excerpt has more than {MAX_EXCERPT_BYTES} bytes, or does not end where it should")
    return excerpt
