"""Frames of a link: what two peers say to each other, before it means anything.

    frame    = length u32, big-endian, of all that follows | kind u8 | body
    HELLO      16 bytes: a number that the sender's process drew when it began
    MESSAGE    a message between peers (`wire.peers`), up to MAX_PEER_MESSAGE_BYTES
    PING       8 bytes of the sender's choice; PONG brings them back
    DROPPED    u64: so many messages to you found no room in my queue since I last said so
    BYE        why I end this link: a word of `LinkReason`, ASCII

The first frame of either side is HELLO, and there is no second one. Whoever sends anything else, or more than a kind
may have, is cut off.
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Mapping
from enum import IntEnum, StrEnum
from typing import Final

from sealcast.errors import Bug, ReasonedRejection
from sealcast.wire.limits import MAX_PEER_MESSAGE_BYTES

#: The protocol and its version, agreed on in the TLS handshake (ALPN).
PROTOCOL: Final = "sealcast-peer/1"
BOOT_BYTES: Final = 16
PING_BYTES: Final = 8
MAX_BYE_BYTES: Final = 64

_HEAD: Final = struct.Struct(">IB")
_COUNT: Final = struct.Struct(">Q")


class LinkReason(StrEnum):
    """Why a link ended, or never began."""

    # what the other end did, for which it stays out for a while
    OVERSIZED = "oversized"
    MALFORMED = "malformed"
    REFUSED = "refused"
    # who it is
    CERTIFICATE = "certificate"
    PROTOCOL = "protocol"
    PENALTY = "penalty"
    # how it went
    SLOW = "slow"
    SILENT = "silent"
    STALLED = "stalled"
    LOST = "lost"
    UNREACHABLE = "unreachable"
    # nobody's fault
    DUPLICATE = "duplicate"
    FULL = "full"
    CLOSED = "closed"


class LinkEnded(ReasonedRejection[LinkReason]):
    """A link is over, and why."""

    code = "link"


class FrameKind(IntEnum):
    HELLO = 1
    MESSAGE = 2
    PING = 3
    PONG = 4
    DROPPED = 5
    BYE = 6


#: The least and the most bytes that each kind's body has.
_SIZES: Final[Mapping[FrameKind, tuple[int, int]]] = {
    FrameKind.HELLO: (BOOT_BYTES, BOOT_BYTES),
    FrameKind.MESSAGE: (1, MAX_PEER_MESSAGE_BYTES),
    FrameKind.PING: (PING_BYTES, PING_BYTES),
    FrameKind.PONG: (PING_BYTES, PING_BYTES),
    FrameKind.DROPPED: (_COUNT.size, _COUNT.size),
    FrameKind.BYE: (1, MAX_BYE_BYTES),
}


def frame(kind: FrameKind, body: bytes) -> bytes:
    """The bytes of a frame."""
    least, most = _SIZES[kind]
    if not least <= len(body) <= most:
        raise Bug(f"a {kind.name} has {least} to {most} bytes, not {len(body)}")
    return _HEAD.pack(len(body) + 1, kind) + body


def dropped(count: int) -> bytes:
    return frame(FrameKind.DROPPED, _COUNT.pack(count))


def dropped_count(body: bytes) -> int:
    return int(_COUNT.unpack(body)[0])


def bye(reason: LinkReason) -> bytes:
    return frame(FrameKind.BYE, reason.encode())


def bye_reason(body: bytes) -> LinkReason:
    """What the other end says. What it cannot say is MALFORMED."""
    try:
        return LinkReason(body.decode("ascii"))
    except ValueError:
        raise LinkEnded(LinkReason.MALFORMED, "the peer said goodbye for no reason that there is") from None


async def read_frame(reader: asyncio.StreamReader, *, silence_s: float, frame_s: float) -> tuple[FrameKind, bytes]:
    """The next frame. It must begin within the one time and be whole within the other; LinkEnded otherwise.

    The length is checked before anything of the body is waited for, so nobody makes us keep more than a frame.
    """
    try:
        async with asyncio.timeout(silence_s):
            head = await reader.readexactly(1)
    except TimeoutError:
        raise LinkEnded(LinkReason.SILENT, f"the peer has given no sign of life for {silence_s:g} s") from None
    except (asyncio.IncompleteReadError, OSError):
        raise LinkEnded(LinkReason.LOST, "the connection broke") from None
    try:
        async with asyncio.timeout(frame_s):
            head += await reader.readexactly(_HEAD.size - 1)
            kind, size = _judge(head)
            return kind, await reader.readexactly(size)
    except TimeoutError:
        raise LinkEnded(LinkReason.SLOW, f"the peer took more than {frame_s:g} s for one frame") from None
    except (asyncio.IncompleteReadError, OSError):
        raise LinkEnded(LinkReason.LOST, "the connection broke inside a frame") from None


def _judge(head: bytes) -> tuple[FrameKind, int]:
    length, number = _HEAD.unpack(head)
    try:
        kind = FrameKind(number)
    except ValueError:
        raise LinkEnded(LinkReason.MALFORMED, f"the peer sent a frame of kind {number}, which there is not") from None
    (least, most), size = _SIZES[kind], length - 1
    if size > most:
        raise LinkEnded(LinkReason.OVERSIZED, f"the peer sent a {kind.name} of {size} bytes; {most} are allowed")
    if size < least:
        raise LinkEnded(LinkReason.MALFORMED, f"the peer sent a {kind.name} of {size} bytes; it has {least}")
    return kind, size
