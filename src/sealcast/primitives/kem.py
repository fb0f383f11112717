"""The key that an entity receives keys by, in either of its two kinds. The size of the public half tells them apart.

    hybrid    1,216 bytes    ML-KEM-768 with X25519 (`primitives.hybrid`): every entity that is enrolled now
    X25519       32 bytes    (`primitives.hpke`): entities of realms from before, whose certificates say so

Whoever seals takes the key as the certificate has it and does not choose. Nothing is negotiated, so nothing can be
talked down: a key is of one kind for as long as its certificate binds it to its holder.
"""

from __future__ import annotations

from typing import Final

from sealcast.primitives import hpke, hybrid
from sealcast.primitives.hpke import KemKey
from sealcast.primitives.hybrid import HybridKey

PUBLIC_SIZES: Final = (hpke.PUBLIC_BYTES, hybrid.PUBLIC_BYTES)
#: What sealing adds at most.
MAX_OVERHEAD_BYTES: Final = hybrid.OVERHEAD_BYTES

EntityKey = KemKey | HybridKey


def is_usable(public: bytes) -> bool:
    """Whether something can be sealed to this key."""
    return hybrid.is_usable(public) if len(public) == hybrid.PUBLIC_BYTES else hpke.is_usable(public)


def seal(public: bytes, plaintext: bytes, info: bytes, aad: bytes = b"") -> bytes:
    """Seal `plaintext` to the owner of `public`; `info` says what for, `aad` is whatever else must not be exchanged."""
    if len(public) == hybrid.PUBLIC_BYTES:
        return hybrid.seal(public, plaintext, info, aad)
    return hpke.seal(public, plaintext, info, aad)


def sealed_sizes(plaintext_bytes: int) -> tuple[int, int]:
    """How long something of this size is when it is sealed, to a key of either kind."""
    return plaintext_bytes + hpke.OVERHEAD_BYTES, plaintext_bytes + hybrid.OVERHEAD_BYTES


def curve_half(public: bytes) -> bytes:
    """The X25519 key of either kind: for what may not grow by a kilobyte (`wire.sealed_texts`)."""
    return public[-hpke.PUBLIC_BYTES :]
