"""What an event of an attribute topic hides: proof of its origin, and the payload. Numbers are big-endian.

content             0x01 | u16 size | signed credentials | payload
                  | 0x02 | leaf u32 | leaves u32 | root (32) | signature (64) | u8 hashes | path (32 each) | payload
signed credentials  [[attribute, label, S1, S2, S3]], CBOR, attributes ascend
session             ["attribute session 1", verify key, signed credentials], CBOR
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from itertools import pairwise
from typing import Any, Final, NamedTuple

from sealcast.primitives.merkle import HASH_BYTES
from sealcast.primitives.pairing.port import G1_BYTES, G2_BYTES
from sealcast.wire import cbor
from sealcast.wire.attribute import AttributeReason, AttributeRejected
from sealcast.wire.attribute_items import (
    MAX_ITEMS,
    SIGNATURE_BYTES,
    VERIFY_BYTES,
    a_label,
    a_name,
    guarded,
    many,
    parsed,
    sized,
)
from sealcast.wire.limits import MAX_ATTRIBUTE_SESSION_BYTES, MAX_ATTRIBUTE_TREES

_SESSION: Final = "attribute session 1"


# --- signatures ---------------------------------------------------------------------------------------------------


class SignedCredential(NamedTuple):
    """A signature in the name of one label of one attribute."""

    attribute: str
    label: bytes
    s1: bytes
    s2: bytes
    s3: bytes


Signed = tuple[SignedCredential, ...]


def encode_signed(signed: Signed) -> bytes:
    return cbor.encode([list(one) for one in signed])


def parse_signed(data: bytes) -> Signed:
    """AttributeRejected unless attributes ascend: one signature for each, and one spelling."""

    def read() -> Signed:
        return _signed(cbor.decode(data, max_bytes=MAX_ATTRIBUTE_SESSION_BYTES, max_items=MAX_ITEMS))

    return guarded("signed credentials", read)


class SessionCertificate(NamedTuple):
    """A publisher's key for one epoch, signed in the name of its credentials: events under it cost Ed25519 alone."""

    verify_key: bytes
    signed: Signed

    def to_bytes(self) -> bytes:
        return cbor.encode([_SESSION, self.verify_key, [list(one) for one in self.signed]])

    @classmethod
    def parse(cls, data: bytes) -> SessionCertificate:
        def read(items: list[Any]) -> SessionCertificate:
            verify_key, signed = items
            return cls(sized(verify_key, VERIFY_BYTES, "a session's key"), _signed(signed))

        return parsed("a session certificate", data, MAX_ATTRIBUTE_SESSION_BYTES, _SESSION, read)


def _signed(value: object) -> Signed:
    items = many(value, MAX_ATTRIBUTE_TREES)
    found = tuple(
        SignedCredential(
            a_name(attribute),
            a_label(label),
            sized(s1, G1_BYTES, "S1"),
            sized(s2, G2_BYTES, "S2"),
            sized(s3, G2_BYTES, "S3"),
        )
        for attribute, label, s1, s2, s3 in items
    )
    names = [one.attribute.encode() for one in found]
    if not found or any(one >= other for one, other in pairwise(names)):
        raise cbor.refused("signed attributes ascend, and there is at least one")
    return found


# --- contents -----------------------------------------------------------------------------------------------------


class LeafProof(NamedTuple):
    """Where an event stands in a frame that was signed as a whole, and the signature of its root."""

    leaf: int
    leaves: int
    root: bytes
    signature: bytes
    path: bytes


_PROOF: Final = struct.Struct(f">cII{HASH_BYTES}s{SIGNATURE_BYTES}sB")
_BOUND, _FRAMED = b"\x01", b"\x02"


def bound_content(signed: bytes, payload: bytes) -> bytes:
    """What CT3 hides where an event is signed by itself: signed credentials, and the payload."""
    return _BOUND + len(signed).to_bytes(2, "big") + signed + payload


def framed_contents(root: bytes, signature: bytes, paths: Sequence[bytes], payloads: Sequence[bytes]) -> list[bytes]:
    """What CT3 hides where a frame is signed as a whole: of each event its place in the tree, and the payload."""
    shared = len(paths).to_bytes(4, "big") + root + signature
    return [
        _FRAMED + leaf.to_bytes(4, "big") + shared + (len(path) // HASH_BYTES).to_bytes(1, "big") + path + payload
        for leaf, (path, payload) in enumerate(zip(paths, payloads, strict=True))
    ]


def parse_content(data: bytes) -> tuple[bytes | LeafProof, bytes]:
    """AttributeRejected for what neither of these makes."""
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
