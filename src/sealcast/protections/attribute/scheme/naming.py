"""The strings that keys and ciphertexts are made for, and the hashes of the scheme.

    Pu   = the parts "PSv1", label, attribute, "SUB" or "PUB", epoch, each with its length (`primitives.encoding`)
    H1   = SHA-256, whose bits choose the points of the Waters hash (profile A)
    W, M = RFC 9380 onto G1: labels (profile P, and signatures), and what is signed
    H3   = RFC 9380: onto G1 in profile P, onto G2 in profile A; H3c: the same for connection requests, onto G1
    H4   = the first 16 bytes of SHA-256 of a GT element

The paper joins the parts of Pu without lengths, so that different parts could give one string.
"""

from __future__ import annotations

import hashlib
import hmac
from typing import Final

from sealcast.primitives.encoding import joined
from sealcast.wire.attribute import ROUTING_TAG_BYTES

SUB: Final = b"SUB"
PUB: Final = b"PUB"

_SUITE1: Final = b"-with-BLS12381G1_XMD:SHA-256_SSWU_RO_"
_SUITE2: Final = b"-with-BLS12381G2_XMD:SHA-256_SSWU_RO_"
#: RFC 9380, section 3.1: a tag names the application, its version, the use and the suite.
TAG_W: Final = b"sealcast-V01-PSv1-W" + _SUITE1
TAG_M: Final = b"sealcast-V01-PSv1-M" + _SUITE1
TAG_ROUTE1: Final = b"sealcast-V01-PSv1-H3" + _SUITE1
TAG_ROUTE2: Final = b"sealcast-V01-PSv1-H3" + _SUITE2
TAG_REQUEST: Final = b"sealcast-V01-PSv1-H3c" + _SUITE1
TAG_POINT: Final = b"sealcast-V01-PSv1-g2" + _SUITE1

Label = bytes


def credential_string(label: Label, attribute: str, role: bytes, epoch: int) -> bytes:
    """Pu: what a key or a ciphertext is for. Different parts never give the same string."""
    return joined((b"PSv1", label, attribute.encode(), role, epoch.to_bytes(8, "big")))


def chosen(credential: bytes) -> int:
    """H1: 256 bits."""
    return int.from_bytes(hashlib.sha256(b"PSv1-H1" + credential).digest(), "big")


def hashed_target(target: bytes) -> bytes:
    """H4."""
    return hashlib.sha256(b"PSv1-H4" + target).digest()[:ROUTING_TAG_BYTES]


def label_key(routing: bytes, credential: bytes) -> bytes:
    """k_c: the key of one label's tags, which is also the token that finds them."""
    return hmac.digest(routing, credential, "sha256")
