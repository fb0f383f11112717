"""ECDSA over P-256 (FIPS 186-5), as certificates, tokens and the control plane use it.

A signature is r and s, 32 bytes each, big-endian: COSE's form (RFC 9053, section 2.1), of one length and one spelling,
where DER has several. Signing is deterministic (RFC 6979): no random number that could repeat and give the key away,
and the same bytes when the same thing is signed again. The hash is the caller's choice among the three of COSE (ES256,
ES384, ES512); it is no secret which one, and it is never taken from the signature.

Two signatures are valid for each one made, (r, s) and (r, n - s): anyone can turn one into the other. So nothing of
ours is identified, counted or refused by the bytes of an ECDSA signature; what is signed is. A public key travels as
its compressed point (SEC 1, section 2.3.3), 33 bytes: one spelling, and off the curve there is none.
"""

from __future__ import annotations

import hashlib
from enum import StrEnum
from typing import Final

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature, encode_dss_signature
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    PrivateFormat,
    PublicFormat,
)

from sealcast.errors import Misuse, Rejected
from sealcast.primitives.secrets import PublicKey, Secret, Unpicklable

PRIVATE_BYTES: Final = 32
#: A compressed point: its sign and its x.
PUBLIC_BYTES: Final = 33
SIGNATURE_BYTES: Final = 64
KEY_ID_BYTES: Final = 20

_CURVE: Final = ec.SECP256R1()
_HALF: Final = SIGNATURE_BYTES // 2


class Hash(StrEnum):
    """What is signed is a hash of the message; this names the function."""

    SHA256 = "sha-256"
    SHA384 = "sha-384"
    SHA512 = "sha-512"


#: How a signature is made; verification takes no notice of how the number was chosen.
_ECDSA: Final = {
    Hash.SHA256: ec.ECDSA(hashes.SHA256(), deterministic_signing=True),
    Hash.SHA384: ec.ECDSA(hashes.SHA384(), deterministic_signing=True),
    Hash.SHA512: ec.ECDSA(hashes.SHA512(), deterministic_signing=True),
}


class P256VerifyKey(PublicKey):
    """The public half: verifies, knows nothing secret, may travel."""

    __slots__ = ("_point",)

    def __init__(self, public: bytes) -> None:
        if len(public) != PUBLIC_BYTES:
            raise Rejected(f"a P-256 public key is a compressed point of {PUBLIC_BYTES} bytes, not {len(public)}")
        try:
            self._point = ec.EllipticCurvePublicKey.from_encoded_point(_CURVE, bytes(public))
        except ValueError:
            raise Rejected("this P-256 public key is no point of the curve: it is refused") from None
        self._public = bytes(public)

    @classmethod
    def of_point(cls, point: ec.EllipticCurvePublicKey) -> P256VerifyKey:
        """For `primitives.x509`: a point the library has checked already."""
        made = cls.__new__(cls)
        made._point, made._public = point, compressed(point)
        return made

    def verify(self, message: bytes, signature: bytes, hash: Hash = Hash.SHA256) -> bool:
        """Whether this key's owner signed `message`, hashed by `hash`."""
        if len(signature) != SIGNATURE_BYTES:
            return False
        r, s = int.from_bytes(signature[:_HALF], "big"), int.from_bytes(signature[_HALF:], "big")
        try:
            self._point.verify(encode_dss_signature(r, s), message, _ECDSA[hash])
        except InvalidSignature:
            return False
        return True

    @property
    def point(self) -> ec.EllipticCurvePublicKey:
        """For `primitives.x509`."""
        return self._point

    @property
    def key_id(self) -> bytes:
        """Names the key in certificates and lists: RFC 7093's first method, 20 bytes of SHA-256 over the point."""
        return key_id(self._point)


class P256SigningKey(Unpicklable):
    """The owner's half."""

    __slots__ = ("_key", "_private", "verify_key")

    def __init__(self, private: Secret) -> None:
        if private.size != PRIVATE_BYTES:
            raise Misuse(f"a P-256 private key has {PRIVATE_BYTES} bytes, not {private.size}")
        try:
            self._key = ec.derive_private_key(int.from_bytes(private.reveal(), "big"), _CURVE)
        except ValueError:
            raise Misuse("a P-256 private key is a number from 1 to the order of the group") from None
        self._private = private
        self.verify_key = P256VerifyKey.of_point(self._key.public_key())

    @classmethod
    def generate(cls) -> P256SigningKey:
        number = ec.generate_private_key(_CURVE).private_numbers().private_value
        return cls(Secret(number.to_bytes(PRIVATE_BYTES, "big")))

    @property
    def private(self) -> Secret:
        """For the owner's key file, and nothing else."""
        return self._private

    @property
    def key(self) -> ec.EllipticCurvePrivateKey:
        """For `primitives.x509`."""
        return self._key

    def pem(self, password: Secret) -> bytes:
        """PKCS #8, encrypted under the hexadecimal form of the password: for a TLS library that takes files only."""
        encrypted = BestAvailableEncryption(password.reveal().hex().encode())
        return self._key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, encrypted)

    def sign(self, message: bytes, hash: Hash = Hash.SHA256) -> bytes:
        """64 bytes; the same message always gets the same signature."""
        r, s = decode_dss_signature(self._key.sign(message, _ECDSA[hash]))
        return r.to_bytes(_HALF, "big") + s.to_bytes(_HALF, "big")


def compressed(point: ec.EllipticCurvePublicKey) -> bytes:
    return point.public_bytes(Encoding.X962, PublicFormat.CompressedPoint)


def key_id(point: ec.EllipticCurvePublicKey) -> bytes:
    whole = point.public_bytes(Encoding.X962, PublicFormat.UncompressedPoint)
    return hashlib.sha256(whole).digest()[:KEY_ID_BYTES]
