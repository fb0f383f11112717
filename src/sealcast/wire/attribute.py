"""The bytes of an attribute topic's events: header and body. Numbers are big-endian; keys are in `attribute_keys`.

    sealed event = header | u16 size | session | body
    header       = "AH1" | profile, a letter | tags, a letter | epoch u64 | id (16) | CT2 | u8 attributes | attributes
    attribute    = u8 size | name (UTF-8) | u8 positions | CT_i | CT_ij (48 each) | CT'_ij (16 each)
    session      = empty, or a session certificate under the header's key (its tag at the end)
    body         = number u64 | commitment (32) | CT3
    content      = what CT3 hides, one of
                   0x01 | u16 size | signed credentials (CBOR, `attribute_keys`) | payload
                   0x02 | leaf u32 | leaves u32 | root (32) | signature (64) | u8 hashes | path (32 each) | payload

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
from itertools import pairwise
from operator import lt
from typing import Final, NamedTuple

from sealcast.errors import Misuse, ReasonedRejection
from sealcast.primitives.aead import COMMITMENT_BYTES, TAG_BYTES
from sealcast.primitives.merkle import HASH_BYTES
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
SIGNATURE_BYTES: Final = 64
_FIXED: Final = len(MAGIC) + 2 + 8 + ID_BYTES
_BODY_HEAD: Final = NUMBER_BYTES + COMMITMENT_BYTES


class Profile(StrEnum):
    """Which form of the scheme a topic uses: A hides event values and subscriptions from whoever guesses them, P is the
    paper's, with its errors repaired."""

    A = "A"
    P = "P"

    @property
    def point_bytes(self) -> int:
        """Of CT2 and CT_i."""
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


@dataclass(frozen=True, slots=True)
class SealedAttribute:
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


@dataclass(frozen=True, slots=True)
class EventHeader:
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
        reader = _Reader(data)
        if reader.take(len(MAGIC)) != MAGIC:
            raise AttributeRejected(AttributeReason.MAGIC, "this is no event of an attribute topic")
        profile, tags = _letters(reader.take(2))
        epoch = reader.number(8)
        if epoch > MAX_EPOCH:
            raise AttributeRejected(AttributeReason.EPOCH, f"a header is for epoch {epoch}, which no topic reaches")
        id, second = reader.take(ID_BYTES), reader.take(profile.point_bytes)
        count = reader.count("attributes", MAX_ATTRIBUTE_TREES)
        attributes = tuple(reader.attribute(profile) for _ in range(count))
        names = [attribute.name.encode() for attribute in attributes]
        if not all(map(lt, names, names[1:])):
            raise AttributeRejected(AttributeReason.ORDER, "attributes are not in the order of their names")
        if not all(_ascending(attribute.tags) for attribute in attributes):
            raise AttributeRejected(AttributeReason.ORDER, "tags are not in the order of their bytes")
        return cls(profile, tags, epoch, id, second, attributes, data[: reader.at]), reader.at

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


class LeafProof(NamedTuple):
    """Where an event stands in a frame that was signed as a whole, and the signature of its root."""

    leaf: int
    leaves: int
    root: bytes
    signature: bytes
    path: bytes


_PROOF: Final = struct.Struct(f">cII{HASH_BYTES}s{SIGNATURE_BYTES}sB")
_BOUND, _FRAMED = b"\x01", b"\x02"


def packed_content(proof: bytes | LeafProof, payload: bytes) -> bytes:
    """What CT3 hides: a proof of origin, which is signed credentials or a place in a signed frame, and the payload."""
    if isinstance(proof, bytes):
        return _BOUND + len(proof).to_bytes(2, "big") + proof + payload
    leaf, leaves, root, signature, path = proof
    return _PROOF.pack(_FRAMED, leaf, leaves, root, signature, len(path) // HASH_BYTES) + path + payload


def parse_content(data: bytes) -> tuple[bytes | LeafProof, bytes]:
    """AttributeRejected for what `packed_content` never makes."""
    proof: bytes | LeafProof
    if data[:1] == _BOUND and len(data) >= 3:
        end = 3 + int.from_bytes(data[1:3], "big")
        proof = data[3:end]
    elif data[:1] == _FRAMED and len(data) >= _PROOF.size:
        _, leaf, leaves, root, signature, hashes = _PROOF.unpack_from(data)
        end = _PROOF.size + hashes * HASH_BYTES
        proof = LeafProof(leaf, leaves, root, signature, data[_PROOF.size : end])
    else:
        raise AttributeRejected(AttributeReason.MALFORMED, "an event's content begins with no proof that exists")
    if len(data) < end:
        raise AttributeRejected(AttributeReason.TRUNCATED, "an event's content ends within its proof")
    return proof, data[end:]


def _session(data: bytes, at: int) -> tuple[bytes, int]:
    start = at + 2
    size = int.from_bytes(data[at:start], "big")
    if size > MAX_ATTRIBUTE_SESSION_BYTES:
        raise AttributeRejected(AttributeReason.OVERSIZE, f"a session certificate claims {size} bytes")
    if len(data) < start + size:
        raise AttributeRejected(AttributeReason.TRUNCATED, "a sealed event ends within its session certificate")
    return data[start : start + size], start + size


def _letters(two: bytes) -> tuple[Profile, TagKind]:
    try:
        return Profile(chr(two[0])), TagKind(chr(two[1]))
    except ValueError:
        raise AttributeRejected(AttributeReason.PROFILE, "a header names a profile or tags that do not exist") from None


def _apart(joined: bytes, size: int) -> list[bytes]:
    return [joined[at : at + size] for at in range(0, len(joined), size)]


def _ascending(tags: bytes) -> bool:
    # Equal neighbours are allowed: refusing them would tell a repeated label, and two of 2^128 never meet by chance.
    parts = _apart(tags, ROUTING_TAG_BYTES)
    return all(one <= other for one, other in pairwise(parts))


class _Reader:
    """Takes bytes off the front; AttributeRejected when there are not enough."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.at = 0

    def take(self, size: int) -> bytes:
        start, self.at = self.at, self.at + size
        if self.at > len(self.data):
            raise AttributeRejected(AttributeReason.TRUNCATED, "a header ends too soon")
        if self.at > MAX_ATTRIBUTE_HEADER_BYTES:
            raise AttributeRejected(
                AttributeReason.OVERSIZE, f"a header has more than {MAX_ATTRIBUTE_HEADER_BYTES} bytes"
            )
        return self.data[start : self.at]

    def number(self, size: int) -> int:
        return int.from_bytes(self.take(size), "big")

    def count(self, what: str, most: int) -> int:
        found = self.number(1)
        if not 1 <= found <= most:
            raise AttributeRejected(AttributeReason.COUNT, f"a header has {found} {what}, and 1 to {most} are allowed")
        return found

    def attribute(self, profile: Profile) -> SealedAttribute:
        size = self.number(1)
        try:
            name = self.take(size).decode()
        except UnicodeDecodeError:
            raise AttributeRejected(AttributeReason.NAME, "an attribute's name is not UTF-8") from None
        if not name:
            raise AttributeRejected(AttributeReason.NAME, "an attribute of a header has no name")
        positions = self.count("positions of an attribute", MAX_ATTRIBUTE_POSITIONS)
        first = self.take(profile.point_bytes)
        return SealedAttribute(name, first, self.take(positions * G1_BYTES), self.take(positions * ROUTING_TAG_BYTES))
