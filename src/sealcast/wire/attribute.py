"""The bytes of an attribute topic's events: header and body. Numbers are big-endian; keys are in `attribute_keys`.

    sealed event = header | u16 size | session | body
    header       = "AH1" | profile, a letter | tags, a letter | epoch u64 | id (16) | CT2 | u8 attributes | attributes
    attribute    = u8 size | name (UTF-8) | u8 positions | CT_i | CT_ij (48 each) | CT'_ij (16 each)
    session      = empty, or a session certificate under the header's key (its tag at the end)
    body         = number u64 | commitment (32) | CT3
                   what CT3 hides is in `attribute_contents`

CT2 and CT_i have 48 bytes in profile A and 96 in profile P. Attributes stand in the order of their names' bytes. CT_ij
stand in the order of positions. Tags CT'_ij stand in the order of their bytes, which says nothing about positions.

Reading checks the shape alone, in the order of `AttributeReason`. It looks at no point: whoever computes with one
decodes it, which checks it (`primitives.pairing`).
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from operator import lt
from typing import Final, NamedTuple

from sealcast.errors import Misuse, ReasonedRejection
from sealcast.primitives.aead import COMMITMENT_BYTES, TAG_BYTES
from sealcast.primitives.pairing.port import G1_BYTES, G2_BYTES
from sealcast.wire.limits import (
    MAX_ATTRIBUTE_HEADER_BYTES,
    MAX_ATTRIBUTE_POSITIONS,
    MAX_ATTRIBUTE_SESSION_BYTES,
    MAX_ATTRIBUTE_TREES,
    MAX_EPOCH,
    MAX_MESSAGE_BYTES,
)

MAGIC: Final = b"AH1"
ID_BYTES: Final = 16
ROUTING_TAG_BYTES: Final = 16
NUMBER_BYTES: Final = 8
_FIXED: Final = len(MAGIC) + 2 + 8 + ID_BYTES
_BODY_HEAD: Final = NUMBER_BYTES + COMMITMENT_BYTES


class Profile(StrEnum):
    """Which form of the scheme a topic uses: A hides event values and subscriptions from whoever guesses them, P is the
    paper's, with its errors repaired."""

    A = "A"
    P = "P"

    @property
    def point_bytes(self) -> int:
        """The length of CT2 and of each CT_i."""
        return G1_BYTES if self is Profile.A else G2_BYTES


class TagKind(StrEnum):
    """How peers test which children want an event: by keyed hashes, or by the paper's pairings."""

    KEYED = "K"
    PAPER = "P"


class AttributeReason(StrEnum):
    """Why something of the attribute protection is refused, in the order in which it is checked."""

    OVERSIZE = "oversize"
    MAGIC = "magic"
    PROFILE = "profile"
    EPOCH = "epoch"
    COUNT = "count"
    NAME = "name"
    TRUNCATED = "truncated"
    TRAILING = "trailing"
    ORDER = "order"
    MALFORMED = "malformed"
    #: Not on the curve, not in the subgroup, or the identity.
    POINT = "point"
    #: These keys hold no credential that the event was sealed for.
    MISMATCH = "mismatch"
    #: The credentials match by their tags, and the key that they give does not open the body.
    KEY = "key"
    #: A signature of the publisher, or of the key server, does not verify.
    SIGNATURE = "signature"
    #: What was signed is for other attributes than the event's.
    COVER = "cover"


class AttributeRejected(ReasonedRejection[AttributeReason]):
    """An event, a key or a request of the attribute protection that is refused."""

    code = "attribute"


class SealedAttribute(NamedTuple):
    """What a header says of one attribute: its points and tags, as they stand on the wire."""

    name: str
    first: bytes
    labels: bytes
    tags: bytes

    @property
    def positions(self) -> int:
        return len(self.labels) // G1_BYTES

    def label(self, position: int) -> bytes:
        """CT_ij of a position."""
        return self.labels[position * G1_BYTES : (position + 1) * G1_BYTES]

    def tagged(self, tag: bytes) -> bool:
        """Whether this is one of the tags."""
        at = self.tags.find(tag)
        while at > 0 and at % ROUTING_TAG_BYTES:
            at = self.tags.find(tag, at + 1)
        return at >= 0

    def to_bytes(self) -> bytes:
        name = self.name.encode()
        head = len(name).to_bytes(1, "big") + name + self.positions.to_bytes(1, "big")
        return head + self.first + self.labels + self.tags


class EventHeader(NamedTuple):
    """A header taken apart; `raw` is all of its bytes."""

    profile: Profile
    tags: TagKind
    epoch: int
    id: bytes
    second: bytes
    attributes: tuple[SealedAttribute, ...]
    raw: bytes

    @classmethod
    def of(
        cls,
        profile: Profile,
        tags: TagKind,
        epoch: int,
        id: bytes,
        second: bytes,
        attributes: Sequence[SealedAttribute],
    ) -> EventHeader:
        """Attributes in any order, tags in any order. Misuse for what cannot be read again."""
        ordered = [
            SealedAttribute(a.name, a.first, a.labels, b"".join(sorted(_apart(a.tags, ROUTING_TAG_BYTES))))
            for a in sorted(attributes, key=lambda a: a.name.encode())
        ]
        try:
            raw = (
                MAGIC
                + f"{profile}{tags}".encode()
                + epoch.to_bytes(8, "big")
                + id
                + second
                + len(ordered).to_bytes(1, "big")
                + b"".join(attribute.to_bytes() for attribute in ordered)
            )
            return cls.parse(raw)
        except (AttributeRejected, OverflowError) as error:
            raise Misuse(f"this is no header that can be sent: {error}") from None

    @classmethod
    def parse(cls, data: bytes) -> EventHeader:
        """A header and nothing else; AttributeRejected for what `of` never writes."""
        header, end = cls.read(data)
        if end != len(data):
            raise AttributeRejected(AttributeReason.TRAILING, f"a header is followed by {len(data) - end} more bytes")
        return header

    @classmethod
    def read(cls, data: bytes) -> tuple[EventHeader, int]:
        """The header that `data` begins with, and where it ends."""
        if data[: len(MAGIC)] != MAGIC[: len(data)]:
            raise AttributeRejected(AttributeReason.MAGIC, "this is no event of an attribute topic")
        if len(data) < _FIXED:
            raise _truncated()
        profile, tags = _letters(data[len(MAGIC) : len(MAGIC) + 2])
        epoch = int.from_bytes(data[len(MAGIC) + 2 : _FIXED - ID_BYTES], "big")
        if epoch > MAX_EPOCH:
            raise AttributeRejected(AttributeReason.EPOCH, f"a header is for epoch {epoch}, which no topic reaches")
        point = profile.point_bytes
        at = _FIXED + point
        if len(data) <= at:
            raise _truncated()
        attributes, count = [], _counted(data[at], "attributes", MAX_ATTRIBUTE_TREES)
        at += 1
        for _ in range(count):
            attribute, at = _attribute(data, at, point)
            attributes.append(attribute)
        names = [attribute.name.encode() for attribute in attributes]
        if not all(map(lt, names, names[1:])):
            raise AttributeRejected(AttributeReason.ORDER, "attributes are not in the order of their names")
        if not all(_ascending(attribute.tags) for attribute in attributes):
            raise AttributeRejected(AttributeReason.ORDER, "tags are not in the order of their bytes")
        second = data[_FIXED : _FIXED + point]
        return cls(profile, tags, epoch, data[_FIXED - ID_BYTES : _FIXED], second, tuple(attributes), data[:at]), at

    def attribute(self, name: str) -> SealedAttribute | None:
        return next((attribute for attribute in self.attributes if attribute.name == name), None)


@dataclass(frozen=True, slots=True)
class SealedAttributeEvent:
    """A sealed event taken apart."""

    header: EventHeader
    #: A session certificate under the header's key, or nothing.
    session: bytes
    number: int
    commitment: bytes
    ciphertext: bytes

    @property
    def nonce(self) -> bytes:
        """The nonce of the body: u32 0 and the number."""
        return bytes(4) + self.number.to_bytes(NUMBER_BYTES, "big")

    @classmethod
    def parse(cls, data: bytes) -> SealedAttributeEvent:
        """AttributeRejected for bytes that are none. No point is looked at."""
        most = MAX_ATTRIBUTE_HEADER_BYTES + MAX_ATTRIBUTE_SESSION_BYTES + MAX_MESSAGE_BYTES
        if len(data) > most:
            raise AttributeRejected(
                AttributeReason.OVERSIZE, f"a sealed event has {len(data)} bytes; {most} is the most"
            )
        header, at = EventHeader.read(data)
        session, at = _session(data, at)
        body = data[at:]
        if len(body) < _BODY_HEAD + TAG_BYTES:
            raise AttributeRejected(AttributeReason.TRUNCATED, "a sealed event ends within its body")
        number = int.from_bytes(body[:NUMBER_BYTES], "big")
        return cls(header, session, number, body[NUMBER_BYTES:_BODY_HEAD], body[_BODY_HEAD:])


def packed_head(header: bytes, session: bytes) -> bytes:
    """What all events under one header begin with."""
    return header + len(session).to_bytes(2, "big") + session


def packed_body(number: int, commitment: bytes, ciphertext: bytes) -> bytes:
    return number.to_bytes(NUMBER_BYTES, "big") + commitment + ciphertext


def _session(data: bytes, at: int) -> tuple[bytes, int]:
    start = at + 2
    size = int.from_bytes(data[at:start], "big")
    if size > MAX_ATTRIBUTE_SESSION_BYTES:
        raise AttributeRejected(AttributeReason.OVERSIZE, f"a session certificate claims {size} bytes")
    if len(data) < start + size:
        raise AttributeRejected(AttributeReason.TRUNCATED, "a sealed event ends within its session certificate")
    return data[start : start + size], start + size


_LETTERS: Final = {f"{profile}{tags}".encode(): (profile, tags) for profile in Profile for tags in TagKind}


def _letters(two: bytes) -> tuple[Profile, TagKind]:
    try:
        return _LETTERS[two]
    except KeyError:
        raise AttributeRejected(AttributeReason.PROFILE, "a header names a profile or tags that do not exist") from None


def _apart(joined: bytes, size: int) -> list[bytes]:
    return [joined[at : at + size] for at in range(0, len(joined), size)]


def _ascending(tags: bytes) -> bool:
    # Equal neighbours are allowed: refusing them would tell a repeated label, and two of 2^128 never meet by chance.
    parts = list(_tags_of(len(tags) // ROUTING_TAG_BYTES).unpack(tags))
    return parts == sorted(parts)


@cache
def _tags_of(positions: int) -> struct.Struct:
    """Takes tags apart, five times as fast as slices do."""
    return struct.Struct(f"{ROUTING_TAG_BYTES}s" * positions)


def _attribute(data: bytes, at: int, point: int) -> tuple[SealedAttribute, int]:
    """The attribute that begins there, and where it ends."""
    try:
        start = at + 1
        at = start + data[at]
        positions = _counted(data[at], "positions of an attribute", MAX_ATTRIBUTE_POSITIONS)
    except IndexError:
        raise _truncated() from None
    try:
        name = data[start:at].decode()
    except UnicodeDecodeError:
        raise AttributeRejected(AttributeReason.NAME, "an attribute's name is not UTF-8") from None
    if not name:
        raise AttributeRejected(AttributeReason.NAME, "an attribute of a header has no name")
    first = at + 1
    labels = first + point
    tags = labels + positions * G1_BYTES
    end = tags + positions * ROUTING_TAG_BYTES
    if end > len(data):
        raise _truncated()
    if end > MAX_ATTRIBUTE_HEADER_BYTES:
        raise AttributeRejected(AttributeReason.OVERSIZE, f"a header has more than {MAX_ATTRIBUTE_HEADER_BYTES} bytes")
    return SealedAttribute(name, data[first:labels], data[labels:tags], data[tags:end]), end


def _counted(found: int, what: str, most: int) -> int:
    if not 1 <= found <= most:
        raise AttributeRejected(AttributeReason.COUNT, f"a header has {found} {what}, and 1 to {most} are allowed")
    return found


def _truncated() -> AttributeRejected:
    return AttributeRejected(AttributeReason.TRUNCATED, "a header ends too soon")
