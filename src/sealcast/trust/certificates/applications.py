"""Asking for a certificate, and for the next one: whoever asks proves that the keys are its own.

    application   [1, request, signature, renewal]     deterministic CBOR
    request       PKCS #10 with name, alternative name and our extension, signed by the P-256 key it is for
    signature     Ed25519 over the request: frames signed with that key are the applicant's, not a stranger's
    renewal       null, or [certificate, signature]: the one to be followed, and ES256 by its key over the request

Nobody can prove to hold an X25519 key by signing; naming a stranger's gains nothing but sealed letters one cannot open.
A renewal may bring new keys, and keeps name and roles: those are the old certificate's, never the applicant's to
choose. Bytes say "application" or "renewal" where they are signed, so that one never passes for the other.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from sealcast.errors import CertificateRejected, FrameRejected, Rejected
from sealcast.primitives import p256, sign, x509, x509_lists
from sealcast.primitives.encoding import joined
from sealcast.trust.certificates import profile
from sealcast.trust.certificates.profile import EXTENSION, Certificate, CertificateReason, PublicKeys, refused
from sealcast.trust.certificates.roles import Role
from sealcast.wire import cbor

#: Two certificates' worth and some signatures.
MAX_APPLICATION_BYTES: Final = 3 * profile.MAX_CERTIFICATE_BYTES
_VERSION: Final = 1
_APPLICATION: Final = b"sealcast/1 application"
_RENEWAL: Final = b"sealcast/1 renewal"


@dataclass(frozen=True, slots=True)
class Application:
    """Who asks for a certificate for which keys; all but the X25519 key were proven."""

    name: str
    realm: bytes
    keys: PublicKeys
    #: The certificate to be followed, not verified yet, whose holder signed this; None for a newcomer.
    renews: Certificate | None


def make(
    name: str,
    realm: bytes,
    identity: p256.P256SigningKey,
    signer: sign.SigningKey,
    kem_public: bytes,
    renews: tuple[Certificate, p256.P256SigningKey] | None = None,
) -> bytes:
    """An application; `renews` is the certificate to be followed and its key, which may be the same key."""
    extension = profile.encode_extension({Role.ENTITY}, bytes(signer.verify_key), kem_public)
    subject = x509.DistinguishedName(realm.hex(), name)
    request = x509_lists.request(identity, subject, (profile.uri(realm, name),), ((EXTENSION, extension),))
    followed = None
    if renews is not None:
        old, key = renews
        followed = [old.der, key.sign(joined((_RENEWAL, old.der, request)))]
    return cbor.encode([_VERSION, request, signer.sign(joined((_APPLICATION, request))), followed])


def read(raw: bytes) -> Application:
    """Take an application apart and verify what it proves by itself; CertificateRejected otherwise."""
    request, signature, followed = _apart(raw)
    try:
        parsed = x509_lists.read_request(request)
    except Rejected as error:
        raise refused(CertificateReason.POSSESSION, error.message) from None
    value = parsed.private.get(EXTENSION)
    if value is None:
        raise refused(CertificateReason.PROFILE, "an application names the keys it is for")
    roles, verify_key, kem_public = profile.decode_extension(value)
    if roles != {Role.ENTITY}:
        raise refused(CertificateReason.ROLES, "roles are given, not asked for")
    profile.check_keys(False, verify_key, kem_public)
    if not sign.VerifyKey(verify_key).verify(joined((_APPLICATION, request)), signature):
        raise refused(CertificateReason.POSSESSION, "it was not signed with the Ed25519 key it is for")
    realm, name = profile.check_name(parsed.subject, parsed.uris, authority=False)
    renews = None
    if followed is not None:
        old_der, old_signature = followed
        renews = profile.parse(old_der)
        if not p256.P256VerifyKey(renews.identity_key).verify(joined((_RENEWAL, old_der, request)), old_signature):
            raise refused(CertificateReason.POSSESSION, "it was not signed with the key of the certificate it follows")
        if (renews.name, renews.realm) != (name, realm):
            raise refused(CertificateReason.HOLDER, f"it follows the certificate of {renews.name!r}, not of {name!r}")
    return Application(name, realm, PublicKeys(bytes(parsed.public), verify_key, kem_public), renews)


def _apart(raw: bytes) -> tuple[bytes, bytes, tuple[bytes, bytes] | None]:
    try:
        parts = cbor.decode(raw, max_bytes=MAX_APPLICATION_BYTES, max_depth=2, max_items=8)
    except FrameRejected as error:
        raise _malformed(error.message) from None
    match parts:
        case [1, bytes(request), bytes(signature), None] if parts[0] is not True:
            return request, signature, None
        case [1, bytes(request), bytes(signature), [bytes(old), bytes(proof)]] if parts[0] is not True:
            return request, signature, (old, proof)
        case _:
            raise _malformed("it is not a request with its signatures")


def _malformed(why: str) -> CertificateRejected:
    return CertificateRejected(CertificateReason.MALFORMED, f"this is no application for a certificate: {why}")
