"""X.509 certificates (RFC 5280): made here, and taken apart into plain values without believing any of them.

`read` says what a certificate claims; whether to believe it is for `trust.certificates` to say. What it hands over is
everything the rules look at, so that no rule needs the library's objects, and the times are integers like all of ours
(X.509 counts in seconds). Signatures are ECDSA over P-256 with SHA-256, deterministic, and nothing else.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from ipaddress import ip_address
from typing import Final

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import ExtendedKeyUsageOID, ExtensionOID, NameOID, SignatureAlgorithmOID

from sealcast.errors import Misuse, Rejected
from sealcast.model import moments
from sealcast.model.dataclass import dataclass
from sealcast.model.moments import micros
from sealcast.primitives.p256 import P256SigningKey, P256VerifyKey

SECOND_US: Final = 1_000_000

#: What a certificate's key may be used for, in RFC 5280's words.
SIGNATURES: Final = "digital-signature"
CERTIFICATES: Final = "certificate-sign"
LISTS: Final = "crl-sign"

BASIC_CONSTRAINTS: Final = ExtensionOID.BASIC_CONSTRAINTS.dotted_string
KEY_USAGE: Final = ExtensionOID.KEY_USAGE.dotted_string
#: What a server's certificate is for: a gateway answers, and one on a broker's machine asks the realm's, too.
_SERVER: Final = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
PURPOSES: Final = ExtensionOID.EXTENDED_KEY_USAGE.dotted_string
ALTERNATIVE_NAME: Final = ExtensionOID.SUBJECT_ALTERNATIVE_NAME.dotted_string
NAME_CONSTRAINTS: Final = ExtensionOID.NAME_CONSTRAINTS.dotted_string
SUBJECT_KEY: Final = ExtensionOID.SUBJECT_KEY_IDENTIFIER.dotted_string
AUTHORITY_KEY: Final = ExtensionOID.AUTHORITY_KEY_IDENTIFIER.dotted_string

ECDSA_SHA256: Final = SignatureAlgorithmOID.ECDSA_WITH_SHA256.dotted_string

_USAGES: Final = (
    (SIGNATURES, "digital_signature"),
    ("content-commitment", "content_commitment"),
    ("key-encipherment", "key_encipherment"),
    ("data-encipherment", "data_encipherment"),
    ("key-agreement", "key_agreement"),
    (CERTIFICATES, "key_cert_sign"),
    (LISTS, "crl_sign"),
)


@dataclass(frozen=True, slots=True)
class DistinguishedName:
    """A subject or issuer of ours: O=organization, CN=common, in this order and nothing else."""

    organization: str
    common: str


@dataclass(frozen=True, slots=True)
class CertificateBody:
    """What a certificate is to say."""

    serial: int
    issuer: DistinguishedName
    subject: DistinguishedName
    public: P256VerifyKey
    issuer_key: P256VerifyKey
    not_before_us: int
    not_after_us: int
    usages: frozenset[str]
    uris: tuple[str, ...] = ()
    #: The names and addresses that its holder answers at as a TLS server; with any, it is for nothing else.
    hosts: tuple[str, ...] = ()
    #: An authority, and how many authorities may follow below it; None for anyone else.
    path_length: int | None = None
    #: The only organization whose names it may certify; for authorities.
    permitted: str | None = None
    #: Extensions of our own, not critical: object identifier and value (DER).
    private: tuple[tuple[str, bytes], ...] = ()


@dataclass(frozen=True, slots=True)
class Parsed:
    """What a certificate says, taken apart and not yet verified."""

    der: bytes
    signed: bytes
    signature: bytes
    algorithm: str
    version: int
    serial: int
    #: None where it is not exactly O and CN, once each.
    issuer: DistinguishedName | None
    subject: DistinguishedName | None
    issuer_der: bytes
    subject_der: bytes
    #: None when it is no key of P-256.
    public: P256VerifyKey | None
    not_before_us: int
    not_after_us: int
    #: Which extensions there are, and whether each is critical.
    extensions: Mapping[str, bool]
    authority: bool | None
    path_length: int | None
    usages: frozenset[str] | None
    #: None when it has alternative names that are neither URIs nor hosts.
    uris: tuple[str, ...] | None
    hosts: tuple[str, ...]
    #: Whether it is for TLS servers, and for nothing else; None when it does not say what it is for.
    server: bool | None
    #: None when it has no constraint, and "" when it has one that is not of our kind.
    permitted: str | None
    subject_key: bytes | None
    issuer_key: bytes | None
    private: Mapping[str, bytes]


def issue(signer: P256SigningKey, body: CertificateBody) -> bytes:
    """The certificate (DER) that says `body`, signed."""
    builder = x509.CertificateBuilder(
        issuer_name=to_name(body.issuer),
        subject_name=to_name(body.subject),
        public_key=body.public.point,
        serial_number=body.serial,
        not_valid_before=moment(body.not_before_us),
        not_valid_after=moment(body.not_after_us),
        extensions=_extensions(body),
    )
    made = builder.sign(signer.key, hashes.SHA256(), ecdsa_deterministic=True)
    return made.public_bytes(Encoding.DER)


def read(der: bytes) -> Parsed:
    """Take a certificate apart; Rejected when it is none, or says one thing twice."""
    try:
        found = x509.load_der_x509_certificate(der)
        # The library overlooks a false count of unused bits in front of the signature, which nobody signs.
        if not der.endswith(b"\x00" + found.signature):
            raise ValueError(der)
        extensions = found.extensions
        values = {e.oid.dotted_string: e.value for e in extensions}
        constraints, key_usage = values.get(BASIC_CONSTRAINTS), values.get(KEY_USAGE)
        subject_key, issuer_key = values.get(SUBJECT_KEY), values.get(AUTHORITY_KEY)
        uris, hosts = _read_alternatives(values.get(ALTERNATIVE_NAME))
        return Parsed(
            der=der,
            signed=found.tbs_certificate_bytes,
            signature=found.signature,
            algorithm=found.signature_algorithm_oid.dotted_string,
            version=found.version.value + 1,
            serial=found.serial_number,
            issuer=from_name(found.issuer),
            subject=from_name(found.subject),
            issuer_der=found.issuer.public_bytes(),
            subject_der=found.subject.public_bytes(),
            public=_read_key(found),
            not_before_us=micros(found.not_valid_before_utc),
            not_after_us=micros(found.not_valid_after_utc),
            extensions={e.oid.dotted_string: e.critical for e in extensions},
            authority=constraints.ca if isinstance(constraints, x509.BasicConstraints) else None,
            path_length=constraints.path_length if isinstance(constraints, x509.BasicConstraints) else None,
            usages=_read_usages(key_usage) if isinstance(key_usage, x509.KeyUsage) else None,
            uris=uris,
            hosts=hosts,
            server=_read_server(values.get(PURPOSES)),
            permitted=_read_permitted(values.get(NAME_CONSTRAINTS)),
            subject_key=subject_key.digest if isinstance(subject_key, x509.SubjectKeyIdentifier) else None,
            issuer_key=issuer_key.key_identifier if isinstance(issuer_key, x509.AuthorityKeyIdentifier) else None,
            private={o: v.value for o, v in values.items() if isinstance(v, x509.UnrecognizedExtension)},
        )
    except UNREADABLE:
        raise Rejected("these bytes are no X.509 certificate") from None


def signed_by(der: bytes, issuer_der: bytes) -> bool:
    """Whether the issuer's key signed this certificate, which names that issuer and the same algorithm twice."""
    try:
        issuer = x509.load_der_x509_certificate(issuer_der)
        x509.load_der_x509_certificate(der).verify_directly_issued_by(issuer)
    except (InvalidSignature, *UNREADABLE):
        return False
    return True


def pem(der: bytes) -> bytes:
    """The form that other tools like to read."""
    return x509.load_der_x509_certificate(der).public_bytes(Encoding.PEM)


def from_pem(text: bytes) -> bytes:
    """The DER inside; Rejected when there is not exactly one certificate."""
    try:
        (found,) = x509.load_pem_x509_certificates(text)
    except ValueError:
        raise Rejected("this is not one X.509 certificate in PEM") from None
    return found.public_bytes(Encoding.DER)


def moment(us: int) -> datetime:
    """X.509 counts in seconds: the one that `us` is in."""
    if us < 0:
        raise Misuse("certificates know no time before 1970")
    return moments.moment(us - us % SECOND_US)


# --- inside ---------------------------------------------------------------------------------------

#: What the library raises for bytes that are no certificate and no request; some of these are no ValueError.
UNREADABLE: Final = (
    ValueError,
    TypeError,
    UnsupportedAlgorithm,
    x509.InvalidVersion,
    x509.DuplicateExtension,
    x509.UnsupportedGeneralNameType,
)


def _read_key(found: x509.Certificate) -> P256VerifyKey | None:
    try:
        public = found.public_key()
    except (ValueError, UnsupportedAlgorithm):
        return None
    if not isinstance(public, ec.EllipticCurvePublicKey) or not isinstance(public.curve, ec.SECP256R1):
        return None
    return P256VerifyKey.of_point(public)


def to_name(name: DistinguishedName) -> x509.Name:
    return x509.Name(
        [
            x509.NameAttribute(NameOID.ORGANIZATION_NAME, name.organization),
            x509.NameAttribute(NameOID.COMMON_NAME, name.common),
        ]
    )


def from_name(name: x509.Name) -> DistinguishedName | None:
    parts = [[(a.oid, a.value) for a in rdn] for rdn in name.rdns]
    match parts:
        case [[(NameOID.ORGANIZATION_NAME, str(organization))], [(NameOID.COMMON_NAME, str(common))]]:
            return DistinguishedName(organization, common)
        case _:
            return None


def _extensions(body: CertificateBody) -> list[x509.Extension[x509.ExtensionType]]:
    authority = body.path_length is not None
    usage = {attribute: word in body.usages for word, attribute in _USAGES}
    found: list[tuple[bool, x509.ExtensionType]] = [
        (True, x509.BasicConstraints(authority, body.path_length)),
        (True, x509.KeyUsage(**usage, encipher_only=False, decipher_only=False)),
        (False, x509.SubjectKeyIdentifier(body.public.key_id)),
        (False, x509.AuthorityKeyIdentifier(body.issuer_key.key_id, None, None)),
    ]
    if body.uris:
        uris = [x509.UniformResourceIdentifier(uri) for uri in body.uris]
        found.append((False, x509.SubjectAlternativeName([*uris, *map(_host, body.hosts)])))
    if body.hosts:
        found.append((False, x509.ExtendedKeyUsage(_SERVER)))
    if body.permitted is not None:
        subtree = x509.Name([x509.NameAttribute(NameOID.ORGANIZATION_NAME, body.permitted)])
        found.append((True, x509.NameConstraints([x509.DirectoryName(subtree)], None)))
    for oid, value in body.private:
        found.append((False, x509.UnrecognizedExtension(x509.ObjectIdentifier(oid), value)))
    return [x509.Extension(value.oid, critical, value) for critical, value in found]


def _read_usages(usage: x509.KeyUsage) -> frozenset[str]:
    return frozenset(word for word, attribute in _USAGES if getattr(usage, attribute))


def is_address(host: str) -> bool:
    """Whether a host is named by its address, and not by a name."""
    try:
        ip_address(host)
    except ValueError:
        return False
    return True


def _host(host: str) -> x509.GeneralName:
    return x509.IPAddress(ip_address(host)) if is_address(host) else x509.DNSName(host)


def _read_alternatives(names: object) -> tuple[tuple[str, ...] | None, tuple[str, ...]]:
    """URIs and hosts, each in its order; no URIs are said to be there where something else is."""
    if not isinstance(names, x509.SubjectAlternativeName):
        return (), ()
    uris = [n.value for n in names if isinstance(n, x509.UniformResourceIdentifier)]
    hosts = [str(n.value) for n in names if isinstance(n, x509.DNSName | x509.IPAddress)]
    return (tuple(uris) if len(uris) + len(hosts) == len(list(names)) else None), tuple(hosts)


def _read_server(purposes: object) -> bool | None:
    if not isinstance(purposes, x509.ExtendedKeyUsage):
        return None
    # The first certificates of gateways let them answer, and not ask.
    return list(purposes) in (_SERVER, _SERVER[:1])


def _read_permitted(constraints: object) -> str | None:
    if not isinstance(constraints, x509.NameConstraints):
        return None
    permitted: Sequence[x509.GeneralName] = constraints.permitted_subtrees or ()
    if constraints.excluded_subtrees or len(permitted) != 1 or not isinstance(permitted[0], x509.DirectoryName):
        return ""
    match [[(a.oid, a.value) for a in rdn] for rdn in permitted[0].value.rdns]:
        case [[(NameOID.ORGANIZATION_NAME, str(organization))]]:
            return organization
        case _:
            return ""
