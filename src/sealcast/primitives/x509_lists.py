"""Certificate revocation lists as X.509 has them (CRLs, RFC 5280).

Sealcast's own revocation lists are numbered, chained and fast to look into (`trust.certificates`). CRLs are what the
rest of the world reads: a base with everything, and deltas that name the base they add to. `FreshestCRL` in a base
tells a verifier that deltas exist; OpenSSL looks for one only then.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.serialization import Encoding

from sealcast.errors import Misuse, Rejected
from sealcast.model.dataclass import dataclass
from sealcast.model.moments import micros
from sealcast.primitives.p256 import P256SigningKey
from sealcast.primitives.x509 import DistinguishedName, moment, to_name

#: CRL reason codes (section 5.3.1) that we use.
_CODES: Final[Mapping[int, x509.ReasonFlags]] = {
    1: x509.ReasonFlags.key_compromise,
    2: x509.ReasonFlags.ca_compromise,
    3: x509.ReasonFlags.affiliation_changed,
    4: x509.ReasonFlags.superseded,
    5: x509.ReasonFlags.cessation_of_operation,
    9: x509.ReasonFlags.privilege_withdrawn,
}


@dataclass(frozen=True, slots=True)
class CrlBody:
    """What a CRL is to say."""

    issuer: DistinguishedName
    number: int
    at_us: int
    next_us: int
    #: Serial number, reason code, time.
    entries: Iterable[tuple[int, int, int]]
    #: The number of the base that a delta adds to; None for a base.
    base: int | None = None
    #: Where deltas to this base are named; for a base.
    freshest: str | None = None


def sign_crl(signer: P256SigningKey, body: CrlBody) -> bytes:
    """The CRL (DER) that says `body`, signed."""
    if body.next_us <= body.at_us:
        raise Misuse("the next list is due after this one")
    key = x509.AuthorityKeyIdentifier(signer.verify_key.key_id, None, None)
    extensions: list[tuple[bool, x509.ExtensionType]] = [(False, key), (False, x509.CRLNumber(body.number))]
    if body.base is not None:
        extensions.append((True, x509.DeltaCRLIndicator(body.base)))
    elif body.freshest is not None:
        names: list[x509.GeneralName] = [x509.UniformResourceIdentifier(body.freshest)]
        extensions.append((False, x509.FreshestCRL([x509.DistributionPoint(names, None, None, None)])))
    # All entries in one go: the builder's own way of adding one copies all the others.
    builder = x509.CertificateRevocationListBuilder(
        to_name(body.issuer),
        moment(body.at_us).replace(tzinfo=None),
        moment(body.next_us).replace(tzinfo=None),
        [x509.Extension(value.oid, critical, value) for critical, value in extensions],
        [_entry(*entry) for entry in body.entries],
    )
    return builder.sign(signer.key, hashes.SHA256(), ecdsa_deterministic=True).public_bytes(Encoding.DER)


def crl_pem(der: bytes) -> bytes:
    """The form that other tools like to read."""
    return x509.load_der_x509_crl(der).public_bytes(Encoding.PEM)


def crl_serials(der: bytes) -> tuple[int, int | None, dict[int, int]]:
    """A CRL's number, the number of its base if it is a delta, and its serial numbers with their times. Unverified."""
    try:
        found = x509.load_der_x509_crl(der)
        number = found.extensions.get_extension_for_class(x509.CRLNumber).value.crl_number
        deltas = [e.value for e in found.extensions if isinstance(e.value, x509.DeltaCRLIndicator)]
        return (
            number,
            deltas[0].crl_number if deltas else None,
            {entry.serial_number: micros(entry.revocation_date_utc) for entry in found},
        )
    except (ValueError, TypeError, x509.ExtensionNotFound, x509.DuplicateExtension):
        raise Rejected("these bytes are no CRL of an authority") from None


def _entry(serial: int, code: int, at_us: int) -> x509.RevokedCertificate:
    date = moment(at_us).replace(tzinfo=None)
    if code == 0:
        # "unspecified" is said by saying nothing (section 5.3.1).
        return x509.RevokedCertificateBuilder(serial, date).build()
    reason = x509.CRLReason(_CODES[code])
    return x509.RevokedCertificateBuilder(serial, date, [x509.Extension(reason.oid, False, reason)]).build()
