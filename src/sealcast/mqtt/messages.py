"""One event as an MQTT message: what publishers of a searchable topic send through a broker that matches by content.

    "SCQ1" | epoch (u64) | length (u8) and name of the publisher | length (u32) and signed header | offset (u32) |
    the message

All numbers are big-endian. The message is a frame of one: its leaf is the root that the header commits to. It is not
sealed to a broker, because everything in it is sealed for readers already. `offset` says where in the message the block
of trapdoors begins, so a broker reads epoch, publisher and block, and needs neither schema nor CBOR.

A broker believes none of it. A subscriber verifies all of it: that the outer epoch and publisher are those of the
header, that the publisher signed the header, and that the header commits to this message (`verified`).
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Final

from sealcast.errors import CannotOpen
from sealcast.model.event import Position
from sealcast.model.names import NAME
from sealcast.protections.verify import SignedHeaders
from sealcast.wire import limits
from sealcast.wire.cbor import refused
from sealcast.wire.frame import Header

MAGIC: Final = b"SCQ1"
BLOCK_MAGIC: Final = b"SB1"
TRAPDOOR_BYTES: Final = 70
_HEAD: Final = struct.Struct(">4sQB")
_LENGTH: Final = struct.Struct(">I")
_BLOCK: Final = struct.Struct(">3sH")
#: The longest that a message can be.
MAX_BYTES: Final = _HEAD.size + 64 + 2 * _LENGTH.size + limits.MAX_SIGNED_BYTES + limits.MAX_MESSAGE_BYTES
#: In a frame of one, the event stands at the very beginning.
POSITION: Final = Position(0, 0, 0)


@dataclass(frozen=True, slots=True)
class Message:
    """An event on its way, as anybody can take it apart. Nothing in it is verified."""

    epoch: int
    publisher: str
    #: The header with the publisher's signature (`wire.frame.parse_signed`).
    signed: bytes
    #: Where in the message the block of trapdoors begins.
    offset: int
    message: bytes

    def to_bytes(self) -> bytes:
        name = self.publisher.encode()
        return b"".join(
            (
                _HEAD.pack(MAGIC, self.epoch, len(name)),
                name,
                _LENGTH.pack(len(self.signed)),
                self.signed,
                _LENGTH.pack(self.offset),
                self.message,
            )
        )

    @classmethod
    def parse(cls, data: bytes) -> Message:
        """FrameRejected for anything that is no such message. Every length is checked before it is used."""
        if not _HEAD.size < len(data) <= MAX_BYTES:
            raise refused(f"a message has {_HEAD.size + 1} to {MAX_BYTES} bytes, not {len(data)}")
        magic, epoch, length = _HEAD.unpack_from(data)
        if magic != MAGIC or epoch > limits.MAX_EPOCH:
            raise refused("not a message of a searchable topic, or of an impossible epoch")
        at = _HEAD.size + length
        name = data[_HEAD.size : at].decode("ascii", "replace")
        if len(name) != length or not NAME.fullmatch(name):
            raise refused("the publisher of a message has no proper name")
        size = _number(data, at)
        begin = at + _LENGTH.size
        if not 0 < size <= limits.MAX_SIGNED_BYTES:
            raise refused(f"a signed header has 1 to {limits.MAX_SIGNED_BYTES} bytes, not {size}")
        offset = _number(data, begin + size)
        message = data[begin + size + _LENGTH.size :]
        if not 0 < len(message) <= limits.MAX_MESSAGE_BYTES or offset >= len(message):
            raise refused("a message without an event, or without a block in it")
        return cls(epoch, name, data[begin : begin + size], offset, message)

    @property
    def block(self) -> bytes:
        """The block of trapdoors, by its own count; FrameRejected where the message is too short for it."""
        if len(self.message) < self.offset + _BLOCK.size:
            raise refused("a message that ends within its block of trapdoors")
        magic, count = _BLOCK.unpack_from(self.message, self.offset)
        block = self.message[self.offset : self.offset + _BLOCK.size + TRAPDOOR_BYTES * count]
        if magic != BLOCK_MAGIC or len(block) != _BLOCK.size + TRAPDOOR_BYTES * count:
            raise refused("a message without a whole block of trapdoors where it says that one begins")
        return block


def verified(found: Message, headers: SignedHeaders) -> Header:
    """The header, if all that the message says is what its publisher signed; CannotOpen otherwise.

    (1) the header is signed by the publisher that it names, for this topic; (2) its epoch and publisher are the outer
    ones, which a broker matched by; (3) it is of this one message, which is its tree's only leaf.
    """
    header = headers.header(found.signed)
    if (header.epoch, header.publisher) != (found.epoch, found.publisher):
        raise CannotOpen(f"{header.publisher} signed this for epoch {header.epoch}; it came as something else")
    if header.count != 1:
        raise CannotOpen(f"{header.publisher} signed {header.count} events where there is one")
    headers.verify(header, found.message, POSITION, ())
    return header


def _number(data: bytes, at: int) -> int:
    if len(data) < at + _LENGTH.size:
        raise refused("a message that ends too early")
    return int(_LENGTH.unpack_from(data, at)[0])
