"""One event as an MQTT message: what publishers of a searchable topic send through a broker that matches by content.

    "SCQ1" | epoch (u64) | length (u8) and name of the publisher | length (u32) and signed header | offset (u32) |
    the message

All numbers are big-endian. The message is a frame of one: its leaf is the root that the header commits to. It is not
sealed to a broker, because everything in it is sealed for readers already. `offset` says where in the message the block
of trapdoors begins, so a broker reads epoch, publisher and block, and needs neither schema nor CBOR.

A broker believes none of it. A subscriber verifies all of it: that the outer epoch and publisher are those of the
header (`Message.header`), that the publisher signed the header, and that the header commits to this message
(`protections.enveloped.open`).
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Final

from sealcast.errors import CannotOpen, FrameRejected
from sealcast.model.names import NAME
from sealcast.wire import limits
from sealcast.wire.cbor import refused
from sealcast.wire.frame import Header, parse_signed
from sealcast.wire.searching import block_size

MAGIC: Final = b"SCQ1"
_HEAD: Final = struct.Struct(">4sQB")
_LENGTH: Final = struct.Struct(">I")
#: The longest that a message can be.
MAX_BYTES: Final = _HEAD.size + 64 + 2 * _LENGTH.size + limits.MAX_SIGNED_BYTES + limits.MAX_MESSAGE_BYTES


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
        """The block of trapdoors; SealedRejected where there is none."""
        rest = self.message[self.offset :]
        return rest[: block_size(rest)]

    def header(self) -> Header:
        """What the publisher signed, if it says what the message says to brokers: the same epoch and publisher, and
        one event. CannotOpen otherwise. Whether the signature is good is for whoever opens the message to verify."""
        try:
            found = parse_signed(self.signed).header
        except FrameRejected as error:
            raise CannotOpen(f"its signed header is none: {error.message}") from None
        if (found.epoch, found.publisher, found.count) != (self.epoch, self.publisher, 1):
            raise CannotOpen(f"{found.publisher!r} signed something else than the message says to brokers")
        return found


def _number(data: bytes, at: int) -> int:
    if len(data) < at + _LENGTH.size:
        raise refused("a message that ends too early")
    return int(_LENGTH.unpack_from(data, at)[0])
