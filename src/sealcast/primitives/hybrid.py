"""Handing something to one holder, safely also from whoever breaks X25519 one day with a quantum computer.

HPKE, base mode, with the KEM of its post-quantum draft that joins two: MLKEM768-X25519 (0x647a, also known as X-Wing),
HKDF-SHA256, AES-256-GCM. What is sealed opens only with both private halves, so it is safe as long as one of them is.
`sealed` is the encapsulated key (1,120 bytes) followed by the ciphertext; `info` and `aad` are bound as in `hpke`.

    halves  = SHAKE256(private key, 96 bytes): the seed of ML-KEM-768 (64), the scalar of X25519 (32)
    public  = ML-KEM-768's public key (1,184 bytes) | X25519's (32)
"""

from __future__ import annotations

import hashlib
from typing import Final

from cryptography.hazmat.primitives.asymmetric.mlkem import MLKEM768PrivateKey, MLKEM768PublicKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.hpke import (
    AEAD,
    KDF,
    KEM,
    MLKEM768X25519PrivateKey,
    MLKEM768X25519PublicKey,
    Suite,
)

from sealcast.errors import Misuse
from sealcast.primitives import hpke
from sealcast.primitives.encoding import joined
from sealcast.primitives.private_key import ReceivingPrivateKey
from sealcast.primitives.secrets import Secret

PRIVATE_BYTES: Final = 32
_MLKEM_PUBLIC: Final = 1184
PUBLIC_BYTES: Final = _MLKEM_PUBLIC + hpke.PUBLIC_BYTES
_MLKEM_SEED: Final = 64
#: What sealing adds: the encapsulated key and the tag.
OVERHEAD_BYTES: Final = 1088 + 32 + 16

_SUITE: Final = Suite(KEM.MLKEM768_X25519, KDF.HKDF_SHA256, AEAD.AES_256_GCM)


def _expanded(private: Secret) -> bytes:
    """Both private halves."""
    return hashlib.shake_256(private.reveal()).digest(_MLKEM_SEED + hpke.PRIVATE_BYTES)


def _parsed(public: bytes) -> MLKEM768X25519PublicKey:
    """Misuse where this is no public key: one of the wrong size, of coefficients out of range, or of small order."""
    if len(public) != PUBLIC_BYTES:
        raise Misuse(f"a hybrid public key has {PUBLIC_BYTES} bytes, not {len(public)}")
    if not hpke.is_usable(public[_MLKEM_PUBLIC:]):
        raise Misuse("nothing can be sealed to this hybrid public key: its X25519 half is of small order")
    try:
        lattice = MLKEM768PublicKey.from_public_bytes(public[:_MLKEM_PUBLIC])
    except ValueError:
        raise Misuse("this is no hybrid public key: its ML-KEM half is not well formed") from None
    return MLKEM768X25519PublicKey(lattice, X25519PublicKey.from_public_bytes(public[_MLKEM_PUBLIC:]))


def is_usable(public: bytes) -> bool:
    """Whether something can be sealed to this key."""
    try:
        _parsed(public)
    except Misuse:
        return False
    return True


def seal(public: bytes, plaintext: bytes, info: bytes, aad: bytes = b"") -> bytes:
    """Seal `plaintext` to the owner of `public`; `info` says what for, `aad` is whatever else must not be exchanged."""
    return _SUITE.encrypt(plaintext, _parsed(public), info=joined((info, aad)))


class HybridKey(ReceivingPrivateKey):
    """A holder's own key for receiving."""

    __slots__ = ("_key", "public")

    WHAT = "a hybrid private key"
    SIZE = PRIVATE_BYTES

    def __init__(self, private: Secret) -> None:
        super().__init__(private)
        halves = _expanded(private)
        lattice = MLKEM768PrivateKey.from_seed_bytes(halves[:_MLKEM_SEED])
        curve = X25519PrivateKey.from_private_bytes(halves[_MLKEM_SEED:])
        self._key = MLKEM768X25519PrivateKey(lattice, curve)
        self.public = lattice.public_key().public_bytes_raw() + curve.public_key().public_bytes_raw()

    @property
    def curve(self) -> hpke.KemKey:
        """Its X25519 half alone. Both KEMs hash what the curve gives with labels of their own, so that neither helps to
        open what is sealed by the other."""
        return hpke.KemKey(Secret(_expanded(self.private)[_MLKEM_SEED:]))

    def open(self, sealed: bytes, info: bytes, aad: bytes = b"") -> bytes:
        """What was sealed to this key under the same `info` and `aad`, or CannotOpen."""
        return hpke.opened(_SUITE, self._key, sealed, OVERHEAD_BYTES, info, aad)
