"""Handing something to one entity: HPKE (RFC 9180), base mode, DHKEM(X25519, HKDF-SHA256), HKDF-SHA256, AES-256-GCM.

`sealed` is the encapsulated key (32 bytes) followed by the ciphertext. The library's single-shot call takes `info`
but no associated data; `aad` is bound through the info instead, by the injective encoding, which binds it just as
hard: a different info gives a different key. HPKE's base mode says nothing about who sent it; what is handed over is
signed where that matters.
"""

from __future__ import annotations

from typing import Any, Final

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PublicKey
from cryptography.hazmat.primitives.hpke import AEAD, KDF, KEM, Suite

from sealcast.errors import CannotOpen, Misuse
from sealcast.primitives.encoding import joined
from sealcast.primitives.x25519 import PRIVATE_BYTES as PRIVATE_BYTES
from sealcast.primitives.x25519 import PUBLIC_BYTES as PUBLIC_BYTES
from sealcast.primitives.x25519 import OwnKey

#: What sealing adds: the encapsulated key and the tag.
OVERHEAD_BYTES: Final = 32 + 16

_P: Final = 2**255 - 19
#: The u-coordinates of small order on Curve25519 and its twist: with one of these every shared secret is zero.
_SMALL_ORDER: Final = frozenset(
    {
        0,
        1,
        _P - 1,
        325606250916557431795983626356110631294008115727848805560023387167927233504,
        39382357235489614581723060781553021112529911719440698176882885853963445705823,
    }
)

_SUITE: Final = Suite(KEM.X25519, KDF.HKDF_SHA256, AEAD.AES_256_GCM)


def is_usable(public: bytes) -> bool:
    """Whether something can be sealed to this key, told without trying. RFC 7748 ignores the highest bit."""
    return len(public) == PUBLIC_BYTES and (int.from_bytes(public, "little") & (2**255 - 1)) % _P not in _SMALL_ORDER


def seal(public: bytes, plaintext: bytes, info: bytes, aad: bytes = b"") -> bytes:
    """Seal `plaintext` to the owner of `public`; `info` says what for, `aad` is whatever else must not be exchanged."""
    if len(public) != PUBLIC_BYTES:
        raise Misuse(f"an X25519 public key has {PUBLIC_BYTES} bytes, not {len(public)}")
    try:
        return _SUITE.encrypt(plaintext, X25519PublicKey.from_public_bytes(public), info=joined((info, aad)))
    except ValueError:
        # A point of small order: the shared secret would be zero, known to everyone.
        raise Misuse("nothing can be sealed to this X25519 public key: it is of small order") from None


def opened(suite: Suite, key: Any, sealed: bytes, overhead: int, info: bytes, aad: bytes) -> bytes:
    """What was sealed to a key of a suite whose ciphertexts are so much longer, or CannotOpen."""
    if len(sealed) < overhead:
        raise CannotOpen("this is too short to be sealed to a key")
    try:
        return suite.decrypt(sealed, key, info=joined((info, aad)))
    except (InvalidTag, ValueError):
        raise CannotOpen("this was not sealed to this key for this purpose, or it was altered") from None


class KemKey(OwnKey):
    """An entity's own key for receiving."""

    __slots__ = ()

    @property
    def curve(self) -> KemKey:
        """This key: it is nothing but a key of the curve (`primitives.kem`)."""
        return self

    def open(self, sealed: bytes, info: bytes, aad: bytes = b"") -> bytes:
        """What was sealed to this key under the same `info` and `aad`, or CannotOpen."""
        return opened(_SUITE, self._key, sealed, OVERHEAD_BYTES, info, aad)
