"""What a certificate of ours looks like: how it is written and the one way in which it is read.

    subject      O=<realm id, hex>, CN=<name>                    alternative name  sealcast:<realm id>/<name>
    subject key  P-256: signs requests, renewals, tokens         validity          seconds, both ends included
    extension    {1: [role ...], 2: Ed25519, 3: receiving key}   deterministic CBOR in an OCTET STRING, not critical
    serial       generation of its issuer u16 | random, 14 bytes
    gateways     also the hosts they answer at as alternative names, and the one purpose of TLS servers

One signature binds a name to three public keys and to the roles of their holder. The root is generation 0, and the
authorities under it are numbered from 1: a serial number tells who may revoke it and is unique in the whole realm, so
that one set of numbers answers whether a certificate is revoked.

Reading is strict: exactly these extensions, each critical or not as we write it, each name said in both places, keys
that can be worked with. `parse` believes nothing of what it reads; `certificates.Trust` decides whether it counts.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import Final

from sealcast.errors import CertificateRejected, FrameRejected, Misuse, Rejected
from sealcast.model.dataclass import dataclass
from sealcast.model.names import NAME
from sealcast.primitives import kem, sign, x509
from sealcast.trust.certificates.roles import Role
from sealcast.wire import cbor

#: The arc of a random UUID (ITU-T X.667): nobody assigns it, nobody else uses it.
EXTENSION: Final = "2.25.276545802454633426058778120980713111353"
#: Ours have about 1,800 bytes, 600 where the receiving key is X25519 alone. Longer ones are refused unread.
MAX_CERTIFICATE_BYTES: Final = 4096
REALM_BYTES: Final = 16
SERIAL_BYTES: Final = 16
#: What authorities are called; the blank keeps entities from being called so.
ROOT_NAME: Final = "Sealcast root"
AUTHORITY_NAME: Final = "Sealcast authority "
MAX_GENERATION: Final = 2**15 - 1
#: Names and addresses of one gateway, and what such a name looks like; an address is written as Python writes it.
MAX_HOSTS: Final = 16
_LABEL: Final = r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?"
_HOST: Final = re.compile(rf"(?=.{{1,253}}\Z){_LABEL}(\.{_LABEL})*", re.ASCII)
_AUTHORITY_NAME: Final = re.compile(f"{ROOT_NAME}|{AUTHORITY_NAME}[1-9][0-9]{{0,4}}", re.ASCII)

_OCTET_STRING: Final = 0x04
_LONG_FORM: Final = 0x80
#: How DER writes a length of two bytes, and the most that an extension of ours has.
_TWO_BYTES: Final = 0x82
_MAX_EXTENSION: Final = 2_048
_ROLES, _VERIFY_KEY, _KEM_PUBLIC = 1, 2, 3
#: Written into certificates: a number is never given to another role.
_ROLE_CODES: Final[Mapping[Role, int]] = {
    Role.ENTITY: 1,
    Role.BROKER: 2,
    Role.KEY_CENTER: 3,
    Role.DISCOVERY: 4,
    Role.AUTHORITY: 5,
    Role.GATEWAY: 6,
}
_ROLE_NAMES: Final[Mapping[int, Role]] = {code: role for role, code in _ROLE_CODES.items()}


class CertificateReason(StrEnum):
    """Why a certificate does not count, in the order of the checks."""

    MALFORMED = "malformed"
    ALGORITHM = "algorithm"
    KEY = "key"
    PROFILE = "profile"
    ROLES = "roles"
    CA_BIT = "ca-bit"
    USAGE = "usage"
    KEYS = "keys"
    NAME = "name"
    ISSUER = "issuer"
    SIGNATURE = "signature"
    SERIAL = "serial"
    PATH_LENGTH = "path-length"
    CONSTRAINT = "constraint"
    ISSUER_NOT_YET_VALID = "issuer-not-yet-valid"
    ISSUER_EXPIRED = "issuer-expired"
    ISSUER_REVOKED = "issuer-revoked"
    REALM = "realm"
    NOT_YET_VALID = "not-yet-valid"
    EXPIRED = "expired"
    REVOKED = "revoked"
    ROLE = "role"
    HOLDER = "holder"


@dataclass(frozen=True, slots=True)
class PublicKeys:
    """The public half of an entity: what a certificate binds to its name."""

    #: P-256, a compressed point.
    identity: bytes
    #: Ed25519: frames are signed by it.
    verify_key: bytes
    #: Keys are sealed to it: ML-KEM-768 with X25519, or X25519 alone (`primitives.kem`).
    kem_public: bytes


@dataclass(frozen=True, slots=True)
class Certificate:
    """What a certificate says. Whether it counts is `Trust.verify`'s answer, which is one of these too."""

    der: bytes
    name: str
    realm: bytes
    serial: int
    roles: frozenset[Role]
    #: P-256, a compressed point of 33 bytes.
    identity_key: bytes
    #: Ed25519, and the receiving key; empty in an authority's own certificate.
    verify_key: bytes
    kem_public: bytes
    not_before_us: int
    not_after_us: int
    #: Names its issuer's key.
    issuer: bytes
    #: SHA-256 of the bytes. Anyone can respell a signature (`primitives.p256`), so lists name serials instead.
    fingerprint: bytes
    #: Of a gateway: the names and addresses that it answers at.
    hosts: tuple[str, ...] = ()

    @property
    def keys(self) -> PublicKeys:
        return PublicKeys(self.identity_key, self.verify_key, self.kem_public)


def uri(realm: bytes, name: str) -> str:
    """The name by which the world knows an entity."""
    return f"sealcast:{realm.hex()}/{name}"


def generation(authority: Certificate) -> int:
    """The number of an authority in its realm; the root's is 0."""
    return 0 if authority.name == ROOT_NAME else int(authority.name.removeprefix(AUTHORITY_NAME))


def issued_by(serial: int) -> int:
    """The generation of the authority that gave this serial number."""
    return serial >> 8 * (SERIAL_BYTES - 2)


# --- the extension --------------------------------------------------------------------------------


def encode_extension(roles: Iterable[Role], verify_key: bytes, kem_public: bytes) -> bytes:
    """Roles and keys as the extension's value; an authority has no keys of these kinds."""
    body: dict[int, object] = {_ROLES: sorted(_ROLE_CODES[role] for role in roles)}
    if verify_key or kem_public:
        body |= {_VERIFY_KEY: verify_key, _KEM_PUBLIC: kem_public}
    value = cbor.encode(body)
    head = _head(len(value))
    if head is None:
        raise Misuse("roles and keys do not fit the extension")
    return head + value


def _head(size: int) -> bytes | None:
    """How DER begins an octet string of this size; None for sizes that no extension of ours has."""
    if 0 < size < _LONG_FORM:
        return bytes((_OCTET_STRING, size))
    return bytes((_OCTET_STRING, _TWO_BYTES)) + size.to_bytes(2, "big") if 256 <= size <= _MAX_EXTENSION else None


def decode_extension(value: bytes) -> tuple[frozenset[Role], bytes, bytes]:
    """Roles, Ed25519 and receiving key. Only what `encode_extension` writes is read."""
    start = 4 if value[1:2] == bytes((_TWO_BYTES,)) else 2
    if value[:start] != _head(len(value) - start):
        raise refused(CertificateReason.PROFILE, "its extension holds no octet string of ours")
    try:
        body = cbor.decode(value[start:], max_bytes=_MAX_EXTENSION, max_depth=2, max_items=32)
    except FrameRejected as error:
        raise refused(CertificateReason.PROFILE, f"its extension is {error.message}") from None
    if not isinstance(body, dict) or set(body) not in ({_ROLES}, {_ROLES, _VERIFY_KEY, _KEM_PUBLIC}):
        raise refused(CertificateReason.PROFILE, "its extension holds roles and keys, nothing else")
    codes = body[_ROLES]
    known = isinstance(codes, list) and all(type(code) is int and code in _ROLE_NAMES for code in codes)
    if not known or not codes or codes != sorted(set(codes)):
        raise refused(CertificateReason.ROLES, "its roles are not ours, none, out of order or twice")
    keys = body.get(_VERIFY_KEY, b""), body.get(_KEM_PUBLIC, b"")
    if not all(isinstance(key, bytes) for key in keys):
        raise refused(CertificateReason.KEYS, "its keys are no bytes")
    return frozenset(_ROLE_NAMES[code] for code in codes), *keys


# --- reading --------------------------------------------------------------------------------------

_SHARED: Final = {
    x509.BASIC_CONSTRAINTS: True,
    x509.KEY_USAGE: True,
    x509.SUBJECT_KEY: False,
    x509.AUTHORITY_KEY: False,
    EXTENSION: False,
}
_HOLDER_EXTENSIONS: Final = {**_SHARED, x509.ALTERNATIVE_NAME: False}
_GATEWAY_EXTENSIONS: Final = {**_HOLDER_EXTENSIONS, x509.PURPOSES: False}
_AUTHORITY_EXTENSIONS: Final = ({**_SHARED, x509.NAME_CONSTRAINTS: True}, _SHARED)
HOLDER_USAGES: Final = frozenset({x509.SIGNATURES})
AUTHORITY_USAGES: Final = frozenset({x509.SIGNATURES, x509.CERTIFICATES, x509.LISTS})


def parse(der: bytes) -> Certificate:
    """What a certificate of ours says, unverified; CertificateRejected when it says anything in another way."""
    return claims(read(der))


def read(der: bytes) -> x509.Parsed:
    if len(der) > MAX_CERTIFICATE_BYTES:
        raise refused(CertificateReason.MALFORMED, f"it has {len(der)} bytes, {MAX_CERTIFICATE_BYTES} are allowed")
    try:
        return x509.read(bytes(der))
    except Rejected as error:
        raise refused(CertificateReason.MALFORMED, error.message) from None


def claims(parsed: x509.Parsed) -> Certificate:
    """Checks 1 to 9: it is of our kind. Each thing has one place and one spelling."""
    # (2) one algorithm, as everywhere: it is not negotiated
    if parsed.algorithm != x509.ECDSA_SHA256:
        raise refused(CertificateReason.ALGORITHM, "it is not signed with ECDSA and SHA-256")
    # (3) a key of P-256, named by its own hash
    if parsed.public is None or parsed.subject_key != parsed.public.key_id:
        raise refused(CertificateReason.KEY, "its key is not of P-256, or is not the one its key identifier names")
    # (4) exactly our extensions
    value = parsed.private.get(EXTENSION)
    allowed = _AUTHORITY_EXTENSIONS if parsed.authority else (_HOLDER_EXTENSIONS, _GATEWAY_EXTENSIONS)
    if parsed.version != 3 or value is None or parsed.issuer_key is None or parsed.extensions not in allowed:
        raise refused(CertificateReason.PROFILE, "its extensions are not those of a Sealcast certificate")
    # (5) roles we know
    roles, verify_key, kem_public = decode_extension(value)
    # (6) authorities and only authorities have the CA bit
    if parsed.authority != (roles == {Role.AUTHORITY}) or (not parsed.authority and Role.AUTHORITY in roles):
        raise refused(CertificateReason.CA_BIT, "an authority's certificate says so twice, and no other says so at all")
    # (7) keys are used for what they are for
    if parsed.usages != (AUTHORITY_USAGES if parsed.authority else HOLDER_USAGES):
        raise refused(CertificateReason.USAGE, "its key usage is not that of its kind")
    if parsed.server is not (True if Role.GATEWAY in roles else None):
        raise refused(CertificateReason.USAGE, "a gateway's certificate is for TLS servers, and no other says so")
    # (8) public keys that can be worked with
    check_keys(bool(parsed.authority), verify_key, kem_public)
    # (9) one name, said twice
    realm, name = check_name(parsed.subject, parsed.uris, authority=bool(parsed.authority))
    check_hosts(parsed.hosts, gateway=Role.GATEWAY in roles)
    return Certificate(
        parsed.der,
        name,
        realm,
        parsed.serial,
        roles,
        bytes(parsed.public),
        verify_key,
        kem_public,
        parsed.not_before_us,
        parsed.not_after_us,
        parsed.issuer_key,
        hashlib.sha256(parsed.der).digest(),
        parsed.hosts,
    )


def check_keys(authority: bool, verify_key: bytes, kem_public: bytes) -> None:
    """Whether frames can be verified with the one and keys sealed to the other."""
    if authority:
        if verify_key or kem_public:
            raise refused(CertificateReason.KEYS, "an authority has no keys to sign frames or to receive by")
        return
    try:
        sign.VerifyKey(verify_key)
    except Rejected as error:
        raise refused(CertificateReason.KEYS, error.message) from None
    if not kem.is_usable(kem_public):
        raise refused(CertificateReason.KEYS, "nothing can be sealed to its receiving key")


def check_name(
    subject: x509.DistinguishedName | None, uris: tuple[str, ...] | None, *, authority: bool
) -> tuple[bytes, str]:
    """Realm and name, which an entity's certificate says twice."""
    if subject is None:
        raise refused(CertificateReason.NAME, "its subject is not a realm and a name")
    try:
        realm = bytes.fromhex(subject.organization)
    except ValueError:
        realm = b""
    if len(realm) != REALM_BYTES or realm.hex() != subject.organization:
        raise refused(CertificateReason.NAME, "its subject names no realm")
    if authority:
        if not _AUTHORITY_NAME.fullmatch(subject.common):
            raise refused(CertificateReason.NAME, "its subject is not named as an authority")
    elif not NAME.fullmatch(subject.common) or uris != (uri(realm, subject.common),):
        raise refused(CertificateReason.NAME, "its subject and its alternative name are not one name of an entity")
    return realm, subject.common


def check_hosts(hosts: tuple[str, ...], *, gateway: bool) -> None:
    """Whether these are the hosts of a gateway, and of nobody else: each once, spelled in the one way."""
    if bool(hosts) is not gateway or len(hosts) > MAX_HOSTS or len(set(hosts)) != len(hosts):
        raise refused(CertificateReason.NAME, f"a gateway answers at 1 to {MAX_HOSTS} hosts, and nobody else at any")
    if any(not x509.is_address(host) and not _HOST.fullmatch(host) for host in hosts):
        raise refused(CertificateReason.NAME, "a host is an address, or a name in small letters")


def refused(reason: CertificateReason, why: str, hint: str | None = None) -> CertificateRejected:
    return CertificateRejected(reason, f"the certificate is refused: {why}", hint=hint)
