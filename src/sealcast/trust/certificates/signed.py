"""What somebody says, signed with its identity key: one form for envelopes, advertisements and revocation lists.

    18([protected {1: -7, 33: certificate}, {}, payload, signature])          COSE_Sign1 (RFC 9052), ES256

The certificate travels in the protected header (label 33, x5chain of RFC 9360): what is signed names its signer, so
another certificate of the same key cannot take its place. The algorithm is not negotiated. `bound` is external data
that signer and verifier know and that does not travel: what the thing is, and in which realm.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from typing import Final, NamedTuple

from sealcast.errors import CertificateRejected, FrameRejected, ReasonedRejection
from sealcast.model.dataclass import dataclass
from sealcast.primitives.p256 import SIGNATURE_BYTES, P256SigningKey, P256VerifyKey
from sealcast.trust.certificates.certificate import Certificate
from sealcast.wire import cbor
from sealcast.wire.cose import LABEL_ALGORITHM, TAG_SIGN1, sig_structure

ES256: Final = -7
LABEL_X5CHAIN: Final = 33
MAX_CERTIFICATE_BYTES: Final = 4_096
MAX_SIGNED_BYTES: Final = 1 << 20


class SignedReason(StrEnum):
    """Why something signed is refused, in the order of the checks."""

    FORM = "form"
    ALGORITHM = "algorithm"
    CERTIFICATE = "certificate"
    SIGNATURE = "signature"


class SignedRejected(ReasonedRejection[SignedReason]):
    """Something that is not signed by whom it says; whoever takes it in gives its own reason for it."""

    code = "signed"


class SignedParts(NamedTuple):
    """Something signed, taken apart: the certificate that it names, what it says, and the signature."""

    certificate: bytes
    payload: bytes
    signature: bytes


@dataclass(frozen=True, slots=True)
class ProvenPayload:
    """A payload and who signed it."""

    signer: Certificate
    payload: bytes


def sign(signer: P256SigningKey, certificate: bytes, payload: bytes, bound: bytes) -> bytes:
    """`payload`, signed."""
    protected = _protected(certificate)
    signature = signer.sign(sig_structure(protected, bound, payload))
    return cbor.encode(cbor.TaggedValue(TAG_SIGN1, [protected, {}, payload, signature]))


def verify(data: bytes, bound: bytes, trusted: Callable[[bytes, int], Certificate], at_us: int) -> ProvenPayload:
    """The payload, if the certificate is to be trusted at `at_us` and its key made the signature."""
    parts = apart(data)
    try:
        who = trusted(parts.certificate, at_us)
    except CertificateRejected as error:
        raise SignedRejected(SignedReason.CERTIFICATE, f"the signer's certificate: {error.message}") from error
    if not signed_by(who, parts, bound):
        raise SignedRejected(SignedReason.SIGNATURE, f"this was not signed by {who.name!r} for this purpose")
    return ProvenPayload(who, parts.payload)


def signed_by(who: Certificate, parts: SignedParts, bound: bytes) -> bool:
    """Whether the holder of that certificate signed this, for this purpose."""
    message = sig_structure(_protected(parts.certificate), bound, parts.payload)
    return P256VerifyKey(who.identity_key).verify(message, parts.signature)


def apart(data: bytes, max_bytes: int = MAX_SIGNED_BYTES) -> SignedParts:
    """Something signed, taken apart; nothing is verified."""
    try:
        message = cbor.decode(data, max_bytes=max_bytes, max_depth=3, max_items=16, tags=frozenset({TAG_SIGN1}))
        parts = message.value if isinstance(message, cbor.TaggedValue) else None
        if not isinstance(parts, list) or len(parts) != 4 or parts[1] != {}:
            raise cbor.refused("a signed message is an array of four, and nothing in it is unprotected")
        protected, _, payload, signature = parts
        if not all(isinstance(part, bytes) for part in (protected, payload, signature)):
            raise cbor.refused("header, payload and signature are byte strings")
        header = cbor.decode(protected, max_bytes=MAX_CERTIFICATE_BYTES + 16, max_depth=1, max_items=8)
    except FrameRejected as error:
        raise SignedRejected(SignedReason.FORM, error.message) from None
    if not isinstance(header, dict) or set(header) != {LABEL_ALGORITHM, LABEL_X5CHAIN}:
        raise SignedRejected(SignedReason.FORM, "the protected header names algorithm and certificate, nothing else")
    if header[LABEL_ALGORITHM] != ES256:
        raise SignedRejected(SignedReason.ALGORITHM, "the algorithm is ES256 and no other")
    certificate = header[LABEL_X5CHAIN]
    if not isinstance(certificate, bytes) or not 0 < len(certificate) <= MAX_CERTIFICATE_BYTES:
        raise SignedRejected(SignedReason.FORM, f"a certificate has 1 to {MAX_CERTIFICATE_BYTES} bytes")
    if len(signature) != SIGNATURE_BYTES:
        raise SignedRejected(SignedReason.SIGNATURE, f"an ES256 signature has {SIGNATURE_BYTES} bytes")
    return SignedParts(certificate, payload, signature)


def _protected(certificate: bytes) -> bytes:
    return cbor.encode({LABEL_ALGORITHM: ES256, LABEL_X5CHAIN: certificate})
