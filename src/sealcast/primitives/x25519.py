"""Two who agree on a secret: X25519 (RFC 7748), through HKDF with everything that it is for.

    agreed = derive(extract("sealcast/1 agreement", X25519(own, peer)), both public keys in order, context)

Either computes the same; nobody else does. It says nothing about whose the other key is: whoever signs public keys
says that. A key of small order, with which every secret would be zero, is refused (RFC 7748, section 6.1).
"""

from __future__ import annotations

from typing import Final

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey

from sealcast.errors import Rejected
from sealcast.primitives import kdf
from sealcast.primitives.private_key import ReceivingPrivateKey
from sealcast.primitives.secrets import Secret

PRIVATE_BYTES: Final = 32
PUBLIC_BYTES: Final = 32
_SALT: Final = b"sealcast/1 agreement"


class OwnKey(ReceivingPrivateKey):
    """A private key with its public half."""

    __slots__ = ("_key", "public")

    WHAT = "an X25519 private key"
    SIZE = PRIVATE_BYTES

    def __init__(self, private: Secret) -> None:
        super().__init__(private)
        self._key = X25519PrivateKey.from_private_bytes(private.reveal())
        self.public = self._key.public_key().public_bytes_raw()


class AgreementKey(OwnKey):
    """One side's own key."""

    __slots__ = ()

    def agreed(self, peer: bytes, *context: bytes) -> Secret:
        """What this key and the peer's give for `context`, which both sides spell alike."""
        if len(peer) != PUBLIC_BYTES:
            raise Rejected(f"an X25519 public key has {PUBLIC_BYTES} bytes, not {len(peer)}")
        try:
            raw = self._key.exchange(X25519PublicKey.from_public_bytes(peer))
        except ValueError:
            raise Rejected("nothing can be agreed on with this X25519 public key: it is of small order") from None
        extracted = Secret(kdf.hkdf_extract(_SALT, raw))
        return kdf.derive(extracted, *sorted((self.public, peer)), *context)
