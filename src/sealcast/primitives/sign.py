"""Ed25519 signatures (RFC 8032), through libsodium: twice as fast here as OpenSSL's.

Verification is libsodium's strict one: no S above the group order, no point of small order. A public key is checked
once, when it is taken in, so that a key under which strangers can sign (small order) or which has two spellings is
never enrolled.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from nacl import bindings
from nacl._sodium import ffi, lib  # type: ignore[import-not-found]

from sealcast.errors import Misuse, Rejected
from sealcast.primitives.secrets import PublicKey, Secret, Unpicklable

SEED_BYTES: Final = 32
PUBLIC_BYTES: Final = 32
SIGNATURE_BYTES: Final = 64


class VerifyKey(PublicKey):
    """A publisher's public key: verifies, knows nothing secret, may travel."""

    __slots__ = ()

    def __init__(self, public: bytes) -> None:
        if len(public) != PUBLIC_BYTES:
            raise Rejected(f"an Ed25519 public key has {PUBLIC_BYTES} bytes, not {len(public)}")
        if not bindings.crypto_core_ed25519_is_valid_point(bytes(public)):
            raise Rejected("this Ed25519 public key is no canonical point of the prime-order group: it is refused")
        self._public = bytes(public)

    def verify(self, message: bytes, signature: bytes) -> bool:
        """Whether this key's owner signed `message`."""
        return len(signature) == SIGNATURE_BYTES and signed_each([self], [bytes(signature) + bytes(message)])[0]


def signed_each(keys: Sequence[VerifyKey], pieces: Sequence[bytes]) -> list[bool]:
    """`verify` of each piece, a signature and behind it the message, with the key in its place."""
    # What PyNaCl's own function calls, but for the copy of the message that it makes: a twentieth of the cost.
    verify, nothing = lib.crypto_sign_open, ffi.NULL
    each = zip(keys, pieces, strict=True)
    return [verify(nothing, nothing, piece, len(piece), key._public) == 0 for key, piece in each]


class SigningKey(Unpicklable):
    """A publisher's own key."""

    __slots__ = ("_expanded", "_seed", "verify_key")

    def __init__(self, seed: Secret) -> None:
        if seed.size != SEED_BYTES:
            raise Misuse(f"an Ed25519 seed has {SEED_BYTES} bytes, not {seed.size}")
        public, self._expanded = bindings.crypto_sign_seed_keypair(seed.reveal())
        self._seed = seed
        self.verify_key = VerifyKey(public)

    @classmethod
    def generate(cls) -> SigningKey:
        return cls(Secret.random(SEED_BYTES))

    @property
    def seed(self) -> Secret:
        """For the owner's key file, and nothing else."""
        return self._seed

    def sign(self, message: bytes) -> bytes:
        """64 bytes; the same message always gets the same signature."""
        signed: bytes = bindings.crypto_sign(bytes(message), self._expanded)
        return signed[:SIGNATURE_BYTES]
