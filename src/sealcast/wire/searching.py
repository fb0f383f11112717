"""The bytes of the searchable protection. Numbers are big-endian.

    sealed label   = tag u32 | c1 (33) | c2 (33) | c3 (16)                               86 bytes
    sealed filter  = "SF1" | epoch u64 | u16 conjunctions | each: u8 slots | each: u16 labels | labels
                     as text: "sealed:" and the bytes in base64url without padding
    trapdoor       = tag u32 | t1 (33) | t2 (33)                                         70 bytes
    block          = "SB1" | u16 trapdoors | trapdoors

Labels stand in the order of their bytes, and so do slots, conjunctions and trapdoors. So the order says nothing, none
is there twice, and one filter has one spelling. What shows: how many conjunctions, slots and labels there are, and the
tags.

Parsing checks the shape alone, in the order of `SealedReason`, before anyone looks at a point. `check_points` looks at
all points of a filter, before anyone computes with one.
"""

from __future__ import annotations

import binascii
from base64 import b64encode, urlsafe_b64decode
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from operator import lt
from typing import Final

from sealcast.errors import Misuse, ReasonedRejection, Rejected
from sealcast.primitives import points
from sealcast.wire.limits import (
    MAX_EPOCH,
    MAX_FILTER_SLOTS,
    MAX_SEALED_CONJUNCTIONS,
    MAX_SEALED_FILTER_BYTES,
    MAX_SEALED_FILTER_CHARACTERS,
    MAX_SEALED_LABELS,
    MAX_TRAPDOORS,
)

TAG_BYTES: Final = 4
MAX_TAG_BITS: Final = 8 * TAG_BYTES
LABEL_BYTES: Final = 86
TRAPDOOR_BYTES: Final = 70
FILTER_MAGIC: Final = b"SF1"
BLOCK_MAGIC: Final = b"SB1"
FIRST_POINT: Final = slice(TAG_BYTES, TAG_BYTES + points.WIRE_BYTES)
SECOND_POINT: Final = slice(FIRST_POINT.stop, FIRST_POINT.stop + points.WIRE_BYTES)
#: Before a sealed filter where others have a filter's text.
TEXT_PREFIX: Final = "sealed:"
BLOCK_HEAD: Final = len(BLOCK_MAGIC) + 2
#: What prefixes of compressed points are: infinity has none of them.
_COMPRESSED: Final = (2, 3)


class SealedReason(StrEnum):
    """Why a sealed filter or a block of trapdoors is refused, in the order in which it is checked."""

    OVERSIZE = "oversize"
    MAGIC = "magic"
    EPOCH = "epoch"
    COUNT = "count"
    TRUNCATED = "truncated"
    TRAILING = "trailing"
    ORDER = "order"
    TAG = "tag"
    POINT = "point"
    #: Its bytes are all right, but the broker has no half for who made it.
    HALF = "half"


class SealedRejected(ReasonedRejection[SealedReason]):
    """Bytes that are no sealed filter, or no block of trapdoors."""

    code = "sealed"


Slot = tuple[bytes, ...]


@dataclass(frozen=True, slots=True)
class SealedFilter:
    """A filter as brokers get it: conjunctions of slots of sealed labels, each label as it stands on the wire. Without
    conjunctions it matches nothing."""

    epoch: int
    conjunctions: tuple[tuple[Slot, ...], ...]

    @classmethod
    def of(cls, epoch: int, conjunctions: Iterable[Iterable[Iterable[bytes]]]) -> SealedFilter:
        """In the order of their bytes, whatever order they come in. Misuse for more than a filter may have."""
        ordered = sorted(
            (tuple(sorted((tuple(sorted(slot)) for slot in slots), key=_slot)) for slots in conjunctions),
            key=_conjunction,
        )
        made = cls(epoch, tuple(ordered))
        try:
            return cls.parse(made.to_bytes())
        except (SealedRejected, OverflowError) as error:
            raise Misuse(f"this is no filter that can be sealed: {error}") from None

    @property
    def labels(self) -> list[bytes]:
        return [label for slots in self.conjunctions for slot in slots for label in slot]

    def to_bytes(self) -> bytes:
        head = FILTER_MAGIC + self.epoch.to_bytes(8, "big") + len(self.conjunctions).to_bytes(2, "big")
        return head + b"".join(map(_conjunction, self.conjunctions))

    def to_text(self) -> str:
        """The sealed filter as the registry keeps it."""
        return TEXT_PREFIX + b64encode(self.to_bytes(), altchars=b"-_").rstrip(b"=").decode()

    @classmethod
    def parse(cls, data: bytes, tag_bits: int = MAX_TAG_BITS) -> SealedFilter:
        """SealedRejected for what `to_bytes` never writes. No point is looked at; see `check_points`."""
        _within("a sealed filter", len(data), MAX_SEALED_FILTER_BYTES)
        if data[: len(FILTER_MAGIC)] != FILTER_MAGIC:
            raise SealedRejected(SealedReason.MAGIC, "this is no sealed filter: it does not begin as one")
        reader = _Reader(data, len(FILTER_MAGIC))
        epoch = reader.number(8)
        if epoch > MAX_EPOCH:
            raise SealedRejected(SealedReason.EPOCH, f"a sealed filter is for epoch {epoch}, which no topic reaches")
        count = reader.count(2, "conjunctions", 0, MAX_SEALED_CONJUNCTIONS)
        conjunctions = []
        for _ in range(count):
            slots = reader.count(1, "slots of a conjunction", 1, MAX_FILTER_SLOTS)
            conjunctions.append(tuple(reader.slot() for _ in range(slots)))
        if reader.at != len(data):
            raise SealedRejected(
                SealedReason.TRAILING, f"a sealed filter is followed by {len(data) - reader.at} more bytes"
            )
        found = cls(epoch, tuple(conjunctions))
        found._check_order()
        _check_heads(found.labels, tag_bits)
        return found

    @staticmethod
    def epoch_in(text: str) -> int:
        """The epoch that the head of a text states; SealedRejected if it has no such head."""
        head = len(FILTER_MAGIC) + 8
        begin = text[len(TEXT_PREFIX) : len(TEXT_PREFIX) + 4 * -(-head // 3)]
        try:
            data = urlsafe_b64decode(begin)
        except binascii.Error:
            data = b""
        if not data.startswith(FILTER_MAGIC) or len(data) < head:
            raise SealedRejected(SealedReason.MAGIC, "this is no sealed filter: it does not begin as one")
        return int.from_bytes(data[len(FILTER_MAGIC) : head], "big")

    @classmethod
    def from_text(cls, text: str, tag_bits: int = MAX_TAG_BITS) -> SealedFilter:
        _within("the text of a sealed filter", len(text), MAX_SEALED_FILTER_CHARACTERS)
        if not is_sealed(text):
            raise SealedRejected(
                SealedReason.MAGIC,
                "this filter is not sealed",
                hint="brokers of this topic match sealed filters only: subscribe through sealcast, which seals them",
            )
        body = text[len(TEXT_PREFIX) :]
        try:
            data = urlsafe_b64decode(body + "=" * (-len(body) % 4))
        except (binascii.Error, ValueError):
            raise SealedRejected(SealedReason.MAGIC, "a sealed filter's text is not base64url") from None
        if b64encode(data, altchars=b"-_").rstrip(b"=").decode() != body:
            raise SealedRejected(SealedReason.MAGIC, "a sealed filter's text is not base64url as it is written")
        return cls.parse(data, tag_bits)

    def check_points(self) -> None:
        """SealedRejected for a label whose points are not on the curve. It takes as long as a third of sealing it."""
        for label in self.labels:
            try:
                points.check((label[FIRST_POINT], label[SECOND_POINT]))
            except Rejected as error:
                raise SealedRejected(SealedReason.POINT, error.message, hint=error.hint) from None

    def _check_order(self) -> None:
        slots = [slot for conjunction in self.conjunctions for slot in conjunction]
        if not (
            _ascending(list(map(_conjunction, self.conjunctions)))
            and all(_ascending(list(map(_slot, conjunction))) for conjunction in self.conjunctions)
            and all(map(_ascending, slots))
        ):
            raise SealedRejected(SealedReason.ORDER, "a sealed filter is not in the order of its bytes")


def is_sealed(text: str) -> bool:
    """Whether a filter's text says that it is a sealed one."""
    return text.startswith(TEXT_PREFIX)


def packed_block(trapdoors: Iterable[bytes]) -> bytes:
    """The block of an event, in the order of bytes, each trapdoor once. Misuse for more than an event may have."""
    ordered = sorted(set(trapdoors))
    if len(ordered) > MAX_TRAPDOORS:
        raise Misuse(f"an event has at most {MAX_TRAPDOORS} trapdoors, not {len(ordered)}")
    return BLOCK_MAGIC + len(ordered).to_bytes(2, "big") + b"".join(ordered)


def block_size(data: bytes) -> int:
    """How many bytes of `data` are its block, by what the head says: the envelope begins there."""
    if data[: len(BLOCK_MAGIC)] != BLOCK_MAGIC:
        raise SealedRejected(SealedReason.MAGIC, "this is no block of trapdoors: it does not begin as one")
    count = int.from_bytes(data[len(BLOCK_MAGIC) : BLOCK_HEAD], "big")
    if count > MAX_TRAPDOORS:
        raise SealedRejected(SealedReason.COUNT, f"a block has {count} trapdoors; {MAX_TRAPDOORS} is the most")
    size = BLOCK_HEAD + count * TRAPDOOR_BYTES
    if len(data) < size:
        raise SealedRejected(SealedReason.TRUNCATED, f"a block of {count} trapdoors has {size} bytes, not {len(data)}")
    return size


def parse_block(data: bytes, tag_bits: int = MAX_TAG_BITS) -> list[bytes]:
    """The trapdoors of a block and nothing else; SealedRejected for what `packed_block` never writes. No point is
    looked at."""
    size = block_size(data)
    if len(data) != size:
        raise SealedRejected(SealedReason.TRAILING, f"a block is followed by {len(data) - size} more bytes")
    found = [data[at : at + TRAPDOOR_BYTES] for at in range(BLOCK_HEAD, size, TRAPDOOR_BYTES)]
    if not _ascending(found):
        raise SealedRejected(SealedReason.ORDER, "a block is not in the order of its bytes")
    _check_heads(found, tag_bits)
    return found


def _slot(labels: Slot) -> bytes:
    return len(labels).to_bytes(2, "big") + b"".join(labels)


def _conjunction(slots: tuple[Slot, ...]) -> bytes:
    return len(slots).to_bytes(1, "big") + b"".join(map(_slot, slots))


def _ascending(parts: list[bytes] | Slot) -> bool:
    return all(map(lt, parts, parts[1:]))


def _within(what: str, size: int, limit: int) -> None:
    if size > limit:
        raise SealedRejected(
            SealedReason.OVERSIZE,
            f"{what} has {size} characters or bytes; {limit} is the most",
            hint="ask for wider ranges or fewer alternatives, or register the alternatives as filters of their own",
        )


def _check_heads(parts: Iterable[bytes], tag_bits: int) -> None:
    """Tags of more bits than the topic's say more than the topic's owner agreed to. Infinity has no compressed form."""
    most = ((1 << tag_bits) - 1).to_bytes(TAG_BYTES, "big")
    for part in parts:
        if part[:TAG_BYTES] > most:
            raise SealedRejected(SealedReason.TAG, f"a tag has more than the {tag_bits} bits of this topic's tags")
        if part[FIRST_POINT.start] not in _COMPRESSED or part[SECOND_POINT.start] not in _COMPRESSED:
            raise SealedRejected(SealedReason.POINT, "a point is not compressed; infinity is none")


class _Reader:
    """Reads a sealed filter from its beginning on, and never beyond its end."""

    def __init__(self, data: bytes, at: int) -> None:
        self.data = data
        self.at = at
        self.labels = 0

    def take(self, size: int) -> bytes:
        part = self.data[self.at : self.at + size]
        if len(part) != size:
            raise SealedRejected(SealedReason.TRUNCATED, "a sealed filter ends before what it announces")
        self.at += size
        return part

    def number(self, size: int) -> int:
        return int.from_bytes(self.take(size), "big")

    def count(self, size: int, what: str, least: int, most: int) -> int:
        found = self.number(size)
        if not least <= found <= most:
            raise SealedRejected(SealedReason.COUNT, f"a sealed filter has {least} to {most} {what}, not {found}")
        return found

    def slot(self) -> Slot:
        count = self.count(2, "labels of a slot", 1, MAX_SEALED_LABELS)
        self.labels += count
        if self.labels > MAX_SEALED_LABELS:
            raise SealedRejected(SealedReason.COUNT, f"a sealed filter has more than {MAX_SEALED_LABELS} labels")
        body = self.take(count * LABEL_BYTES)
        return tuple(body[at : at + LABEL_BYTES] for at in range(0, len(body), LABEL_BYTES))
