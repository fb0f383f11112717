"""Certificates: whose keys these are, who says so, and whether that counts here and now.

A certificate binds a name in a realm to three public keys and the roles of its holder, by one signature:

    subject      O=<realm id, hex>, CN=<name>                    alternative name  sealcast:<realm id>/<name>
    subject key  P-256: signs requests, renewals, tokens         validity          seconds, both ends included
    extension    {1: [role ...], 2: Ed25519, 3: X25519}          deterministic CBOR in an OCTET STRING, not critical
    serial       generation of its issuer u16 | random, 14 bytes

The root is generation 0, and the authorities under it are numbered from 1: a serial number tells who may revoke it, and
is unique in the whole realm, so that one set of numbers answers whether a certificate is revoked.

`parse` reads that much and believes nothing. `Trust.verify` believes, after the numbered checks below; the first that
fails gives the reason, and every check has its own.

**Why an own walk up the chain.** `cryptography.x509.verification` builds paths for the web: one error text for
whatever is wrong, no revocation, and a policy whose defaults are about host names. Our chains are not searched for: a
certificate names its issuer's key, an authority names its own, and three links reach the root. So the walk is a loop
over known authorities whose own signatures were checked when they were taken in. The signatures themselves, DER and
times are the library's. Tests hold every verdict against `openssl verify`, which must refuse what is refused for
X.509's reasons and accept what is accepted.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, Protocol

from sealcast.errors import CertificateRejected, FrameRejected, Misuse, Rejected
from sealcast.model.names import NAME
from sealcast.primitives import hpke, sign, x509
from sealcast.primitives.p256 import VerifyKey
from sealcast.wire import cbor

#: The arc of a random UUID (ITU-T X.667): nobody assigns it, nobody else uses it.
EXTENSION: Final = "2.25.276545802454633426058778120980713111353"
#: Ours have about 600 bytes. Longer ones are refused unread.
MAX_CERTIFICATE_BYTES: Final = 4096
REALM_BYTES: Final = 16
SERIAL_BYTES: Final = 16
#: Root, intermediate, holder.
MAX_CHAIN: Final = 4

_ROLES, _VERIFY_KEY, _KEM_PUBLIC = 1, 2, 3
#: What authorities are called; the blank keeps entities from being called so.
ROOT_NAME: Final = "Sealcast root"
AUTHORITY_NAME: Final = "Sealcast authority "
MAX_GENERATION: Final = 2**15 - 1
_AUTHORITY_NAME: Final = re.compile(f"{ROOT_NAME}|{AUTHORITY_NAME}[1-9][0-9]{{0,4}}", re.ASCII)
_OCTET_STRING: Final = 0x04
_LONG_FORM: Final = 0x80


class Role(StrEnum):
    """What the holder of a certificate may act as."""

    ENTITY = "entity"
    BROKER = "broker"
    KEY_CENTER = "key-center"
    DISCOVERY = "discovery"
    AUTHORITY = "authority"


_ROLE_CODES: Final[Mapping[Role, int]] = {role: code for code, role in enumerate(Role, start=1)}
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


class Revoked(Protocol):
    """What `Trust` asks of a list of revoked certificates; `trust.revocation.RevocationView` is one."""

    def is_revoked(self, serial: int) -> bool: ...


@dataclass(frozen=True, slots=True)
class PublicKeys:
    """The public half of an entity: what a certificate binds to its name."""

    #: P-256, a compressed point.
    identity: bytes
    #: Ed25519: frames are signed by it.
    verify_key: bytes
    #: X25519: keys are sealed to it.
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
    #: Ed25519 and X25519, 32 bytes each; empty in an authority's own certificate.
    verify_key: bytes
    kem_public: bytes
    not_before_us: int
    not_after_us: int
    #: Names its issuer's key.
    issuer: bytes
    #: SHA-256 of the bytes. Anyone can respell a signature (`primitives.p256`), so lists name serials instead.
    fingerprint: bytes

    @property
    def keys(self) -> PublicKeys:
        return PublicKeys(self.identity_key, self.verify_key, self.kem_public)


def renewal_due(certificate: Certificate, at_us: int) -> bool:
    """Whether half of its life is over: time to ask for the next one, with as much time to get it."""
    return 2 * at_us >= certificate.not_before_us + certificate.not_after_us


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
    if len(value) >= _LONG_FORM:
        raise Misuse("roles and keys do not fit the extension")
    return bytes((_OCTET_STRING, len(value))) + value


def decode_extension(value: bytes) -> tuple[frozenset[Role], bytes, bytes]:
    """Roles, Ed25519 and X25519 key. Only what `encode_extension` writes is read."""
    if len(value) < 2 or value[0] != _OCTET_STRING or value[1] >= _LONG_FORM or value[1] != len(value) - 2:
        raise _refused(CertificateReason.PROFILE, "its extension holds no octet string of ours")
    try:
        body = cbor.decode(value[2:], max_bytes=_LONG_FORM, max_depth=2)
    except FrameRejected as error:
        raise _refused(CertificateReason.PROFILE, f"its extension is {error.message}") from None
    if not isinstance(body, dict) or set(body) not in ({_ROLES}, {_ROLES, _VERIFY_KEY, _KEM_PUBLIC}):
        raise _refused(CertificateReason.PROFILE, "its extension holds roles and keys, nothing else")
    codes = body[_ROLES]
    known = isinstance(codes, list) and all(type(code) is int and code in _ROLE_NAMES for code in codes)
    if not known or not codes or codes != sorted(set(codes)):
        raise _refused(CertificateReason.ROLES, "its roles are not ours, none, out of order or twice")
    keys = body.get(_VERIFY_KEY, b""), body.get(_KEM_PUBLIC, b"")
    if not all(isinstance(key, bytes) for key in keys):
        raise _refused(CertificateReason.KEYS, "its keys are no bytes")
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
_AUTHORITY_EXTENSIONS: Final = ({**_SHARED, x509.NAME_CONSTRAINTS: True}, _SHARED)
HOLDER_USAGES: Final = frozenset({x509.SIGNATURES})
AUTHORITY_USAGES: Final = frozenset({x509.SIGNATURES, x509.CERTIFICATES, x509.LISTS})


def parse(der: bytes) -> Certificate:
    """What a certificate of ours says, unverified; CertificateRejected when it says anything in another way."""
    return _claims(_read(der))


def _read(der: bytes) -> x509.Parsed:
    if len(der) > MAX_CERTIFICATE_BYTES:
        raise _refused(CertificateReason.MALFORMED, f"it has {len(der)} bytes, {MAX_CERTIFICATE_BYTES} are allowed")
    try:
        return x509.read(bytes(der))
    except Rejected as error:
        raise _refused(CertificateReason.MALFORMED, error.message) from None


def _claims(parsed: x509.Parsed) -> Certificate:
    """Checks 1 to 9: it is of our kind. Each thing has one place and one spelling."""
    # (2) one algorithm, as everywhere: it is not negotiated
    if parsed.algorithm != x509.ECDSA_SHA256:
        raise _refused(CertificateReason.ALGORITHM, "it is not signed with ECDSA and SHA-256")
    # (3) a key of P-256, named by its own hash
    if parsed.public is None or parsed.subject_key != parsed.public.key_id:
        raise _refused(CertificateReason.KEY, "its key is not of P-256, or is not the one its key identifier names")
    # (4) exactly our extensions
    value = parsed.private.get(EXTENSION)
    allowed = _AUTHORITY_EXTENSIONS if parsed.authority else (_HOLDER_EXTENSIONS,)
    if parsed.version != 3 or value is None or parsed.issuer_key is None or parsed.extensions not in allowed:
        raise _refused(CertificateReason.PROFILE, "its extensions are not those of a Sealcast certificate")
    # (5) roles we know
    roles, verify_key, kem_public = decode_extension(value)
    # (6) authorities and only authorities have the CA bit
    if parsed.authority != (roles == {Role.AUTHORITY}) or (not parsed.authority and Role.AUTHORITY in roles):
        raise _refused(
            CertificateReason.CA_BIT, "an authority's certificate says so twice, and no other says so at all"
        )
    # (7) keys are used for what they are for
    if parsed.usages != (AUTHORITY_USAGES if parsed.authority else HOLDER_USAGES):
        raise _refused(CertificateReason.USAGE, "its key usage is not that of its kind")
    # (8) public keys that can be worked with
    _check_keys(bool(parsed.authority), verify_key, kem_public)
    # (9) one name, said twice
    realm, name = _check_name(parsed)
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
    )


def _check_keys(authority: bool, verify_key: bytes, kem_public: bytes) -> None:
    if authority:
        if verify_key or kem_public:
            raise _refused(CertificateReason.KEYS, "an authority has no keys to sign frames or to receive by")
        return
    try:
        sign.VerifyKey(verify_key)
    except Rejected as error:
        raise _refused(CertificateReason.KEYS, error.message) from None
    if len(kem_public) != hpke.PUBLIC_BYTES:
        raise _refused(CertificateReason.KEYS, f"an X25519 public key has {hpke.PUBLIC_BYTES} bytes")


def _check_name(parsed: x509.Parsed) -> tuple[bytes, str]:
    subject = parsed.subject
    if subject is None:
        raise _refused(CertificateReason.NAME, "its subject is not a realm and a name")
    try:
        realm = bytes.fromhex(subject.organization)
    except ValueError:
        realm = b""
    if len(realm) != REALM_BYTES or realm.hex() != subject.organization:
        raise _refused(CertificateReason.NAME, "its subject names no realm")
    if parsed.authority:
        if not _AUTHORITY_NAME.fullmatch(subject.common):
            raise _refused(CertificateReason.NAME, "its subject is not named as an authority")
    elif not NAME.fullmatch(subject.common) or parsed.uris != (uri(realm, subject.common),):
        raise _refused(CertificateReason.NAME, "its subject and its alternative name are not one name of an entity")
    return realm, subject.common


def _refused(reason: CertificateReason, why: str, hint: str | None = None) -> CertificateRejected:
    return CertificateRejected(reason, f"the certificate is refused: {why}", hint=hint)


# --- believing ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Authority:
    """An authority whose own signature was checked against the one above it."""

    certificate: Certificate
    parsed: x509.Parsed
    above: _Authority | None


class Trust:
    """Whom a realm believes: its root, and the authorities under it. Public bytes only; it may travel."""

    __slots__ = ("_authorities", "intermediates", "realm_id", "root")

    def __init__(self, root_der: bytes, intermediates: Iterable[bytes], realm_id: bytes) -> None:
        """The root is believed because it is given. Intermediates must lead to it; CertificateRejected otherwise."""
        root = _read(root_der)
        self.root = _claims(root)
        self.realm_id = bytes(realm_id)
        if Role.AUTHORITY not in self.root.roles:
            raise _refused(CertificateReason.CA_BIT, "a root is an authority")
        if self.root.realm != self.realm_id:
            raise _refused(CertificateReason.REALM, "the root is another realm's")
        if not x509.signed_by(root_der, root_der):
            raise _refused(CertificateReason.SIGNATURE, "a root is signed by itself")
        anchor = _Authority(self.root, root, None)
        self._authorities: dict[bytes, _Authority] = {VerifyKey(self.root.identity_key).key_id: anchor}
        self.intermediates = tuple(self._take_in(der) for der in intermediates)

    def _take_in(self, der: bytes) -> Certificate:
        authority = self._authority(der)
        self._authorities[VerifyKey(authority.certificate.identity_key).key_id] = authority
        return authority.certificate

    def _authority(self, der: bytes) -> _Authority:
        parsed = _read(der)
        found = _claims(parsed)
        if Role.AUTHORITY not in found.roles:
            raise _refused(CertificateReason.CA_BIT, f"{found.name!r} is no authority")
        issuer = self._issuer(parsed, found)
        if found.realm != self.realm_id:
            raise _refused(CertificateReason.REALM, f"{found.name!r} is of another realm")
        return _Authority(found, parsed, issuer)

    def verify(
        self, der: bytes, at_us: int, revoked: Revoked, *, role: Role | None = None, name: str | None = None
    ) -> Certificate:
        """What the certificate says, if it counts at that time; CertificateRejected, with a reason for each check.

        `role` and `name` are what its holder claims to be, where the caller needs one.
        """
        parsed = _read(der)  # (1)
        found = _claims(parsed)  # (2) to (9)
        if Role.AUTHORITY in found.roles:
            raise _refused(CertificateReason.CA_BIT, "an authority signs certificates and lists, and nothing else")
        issuer = self._issuer(parsed, found)  # (10) to (12)
        self._check_chain(issuer, parsed, at_us, revoked)  # (13) to (17)
        # (18) this realm's
        if found.realm != self.realm_id:
            raise _refused(CertificateReason.REALM, f"{found.name!r} is of another realm")
        # (19), (20) in its time
        if at_us < found.not_before_us:
            raise _refused(CertificateReason.NOT_YET_VALID, f"{found.name!r}: its time has not come yet")
        if at_us > found.not_after_us:
            hint = f"its holder enrols again: sealcast entity renew {found.name}"
            raise _refused(CertificateReason.EXPIRED, f"{found.name!r}: its time is over", hint)
        # (21) still meant
        if revoked.is_revoked(found.serial):
            raise _refused(CertificateReason.REVOKED, f"{found.name!r} was revoked")
        # (22), (23) whom the caller asked for
        if role is not None and role not in found.roles:
            raise _refused(CertificateReason.ROLE, f"{found.name!r} is no {role}")
        if name is not None and name != found.name:
            raise _refused(CertificateReason.HOLDER, f"it is {found.name!r}'s, not {name!r}'s")
        return found

    def verify_authority(self, der: bytes, at_us: int, revoked: Revoked) -> Certificate:
        """The same for an authority's own certificate, known before or not: for what authorities sign themselves."""
        authority = next((a for a in self._authorities.values() if a.parsed.der == der), None)
        authority = authority or self._authority(der)
        self._check_chain(authority, authority.parsed, at_us, revoked)
        return authority.certificate

    def _issuer(self, parsed: x509.Parsed, found: Certificate) -> _Authority:
        # (10) someone we know, by key and by name
        issuer = self._authorities.get(found.issuer)
        if issuer is None or issuer.parsed.subject_der != parsed.issuer_der:
            raise _refused(CertificateReason.ISSUER, f"{found.name!r}: nobody known here issued it")
        # (11) who did sign it
        if not x509.signed_by(parsed.der, issuer.parsed.der):
            raise _refused(CertificateReason.SIGNATURE, f"{found.name!r}: its issuer did not sign this")
        # (12) under a number that its issuer can revoke
        if found.serial <= 0 or issued_by(found.serial) != generation(issuer.certificate):
            raise _refused(CertificateReason.SERIAL, f"{found.name!r}: its serial number is not its issuer's to give")
        return issuer

    def _check_chain(self, issuer: _Authority, parsed: x509.Parsed, at_us: int, revoked: Revoked) -> None:
        for below, authority in enumerate(_upwards(issuer)):
            about = authority.certificate
            # (13) authorities below this one, its holder not counted
            if authority.parsed.path_length is None or below > authority.parsed.path_length:
                raise _refused(CertificateReason.PATH_LENGTH, f"{about.name!r} may not stand so far above")
            # (14) names it may give
            permitted, subject = authority.parsed.permitted, parsed.subject
            if permitted is not None and (subject is None or subject.organization != permitted):
                raise _refused(CertificateReason.CONSTRAINT, f"{about.name!r} may not name anyone there")
            # (15), (16), (17)
            if at_us < about.not_before_us:
                raise _refused(CertificateReason.ISSUER_NOT_YET_VALID, f"{about.name!r}: its time has not come yet")
            if at_us > about.not_after_us:
                hint = "the administrator makes the next authority and renews its certificates"
                raise _refused(CertificateReason.ISSUER_EXPIRED, f"{about.name!r}: its time is over", hint)
            if revoked.is_revoked(about.serial):
                raise _refused(CertificateReason.ISSUER_REVOKED, f"{about.name!r}, who issued it, was revoked")


def _upwards(issuer: _Authority) -> Iterator[_Authority]:
    at: _Authority | None = issuer
    while at is not None:
        yield at
        at = at.above
