"""PKCS #12 (RFC 7292): a certificate with its key, in the form that browsers take."""

from __future__ import annotations

from collections.abc import Iterable

from cryptography import x509
from cryptography.hazmat.primitives.serialization import BestAvailableEncryption, pkcs12

from sealcast.primitives.p256 import P256SigningKey
from sealcast.primitives.secrets import Secret


def bundle(name: str, key: P256SigningKey, certificate: bytes, issuers: Iterable[bytes], password: Secret) -> bytes:
    """Sealed under a password that people type. `certificate` and `issuers` are DER."""
    return pkcs12.serialize_key_and_certificates(
        name.encode(),
        key.key,
        x509.load_der_x509_certificate(certificate),
        [x509.load_der_x509_certificate(each) for each in issuers],
        BestAvailableEncryption(password.reveal()),
    )
