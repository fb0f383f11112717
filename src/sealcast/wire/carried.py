"""A carried event: one event on its way between peers, with all that proves it. Peers pass it on as it is.

    carried = ["sealcast-carried", 1, token, signed, partition, offset, row, path, message]

    token      the key center's word that the publisher may; the signed header names it by its SHA-256
    signed     the header of the frame that the event came in, by its publisher (`wire.frame`)
    partition, offset, row      where the event stands in its publisher's log
    path       the Merkle path of the message to the root in the header, 32 bytes a hash, joined
    message    the event as its publisher sealed it (`wire.attribute`)

Whoever gets one believes nothing of it before the header's signature, the token and the path are verified.
"""

from __future__ import annotations

import hashlib
from typing import Final

from sealcast.errors import Misuse
from sealcast.model.dataclass import dataclass
from sealcast.model.event import Position
from sealcast.primitives.aead import MAX_OFFSET, MAX_PARTITION
from sealcast.primitives.merkle import HASH_BYTES
from sealcast.wire import cbor, limits
from sealcast.wire.hops import MAX_PATH
from sealcast.wire.typed import whole

MAGIC: Final = "sealcast-carried"
VERSION: Final = 1
ID_BYTES: Final = 16
#: Around a message: the token, the signed header, the path and their framing.
MAX_CARRIED_BYTES: Final = (
    limits.MAX_MESSAGE_BYTES + limits.MAX_TOKEN_BYTES + limits.MAX_SIGNED_BYTES + MAX_PATH * HASH_BYTES + 256
)


@dataclass(frozen=True, slots=True)
class CarriedEvent:
    """One event, well formed; nothing more is known yet."""

    token: bytes
    signed: bytes
    position: Position
    path: tuple[bytes, ...]
    message: bytes

    @property
    def id(self) -> bytes:
        """The same for every copy of the event, and of no other: what its publisher signed, and which event of it."""
        place = self.position.row.to_bytes(4, "big")
        return hashlib.sha256(b"sealcast carried event" + place + self.signed).digest()[:ID_BYTES]

    def to_bytes(self) -> bytes:
        at = self.position
        data = cbor.encode(
            [
                MAGIC,
                VERSION,
                self.token,
                self.signed,
                at.partition,
                at.offset,
                at.row,
                b"".join(self.path),
                self.message,
            ]
        )
        if len(data) > MAX_CARRIED_BYTES:
            raise Misuse(f"a carried event has at most {MAX_CARRIED_BYTES} bytes, not {len(data)}")
        return data

    @classmethod
    def from_bytes(cls, data: bytes) -> CarriedEvent:
        """FrameRejected for what is none."""
        match cbor.decode(data, max_bytes=MAX_CARRIED_BYTES, max_depth=1, max_items=16):
            case [str(magic), int(version), bytes(token), bytes(signed), partition, offset, row, bytes(path), bytes(m)]:
                cbor.require((magic, version) == (MAGIC, VERSION), "no carried event of this version")
                cbor.require(
                    len(token) <= limits.MAX_TOKEN_BYTES, f"a token has at most {limits.MAX_TOKEN_BYTES} bytes"
                )
                cbor.require(0 < len(signed) <= limits.MAX_SIGNED_BYTES, "a carried event has a signed header")
                cbor.require(not len(path) % HASH_BYTES, f"a path is of hashes of {HASH_BYTES} bytes")
                cbor.require(len(path) <= MAX_PATH * HASH_BYTES, f"a path has at most {MAX_PATH} hashes")
                cbor.require(0 < len(m) <= limits.MAX_MESSAGE_BYTES, "a carried event has a message")
                at = Position(
                    whole(partition, "partition", MAX_PARTITION),
                    whole(offset, "offset", MAX_OFFSET),
                    whole(row, "row", limits.MAX_EVENTS_PER_FRAME - 1),
                )
                hashes = tuple(path[i : i + HASH_BYTES] for i in range(0, len(path), HASH_BYTES))
                return cls(token, signed, at, hashes, m)
        raise cbor.refused("not a carried event")
