"""Certificates: whose keys these are, who says so, and whether that counts here and now.

`parse` reads a certificate of our kind (`profile`) and believes nothing. `Trust.verify` believes, after the numbered
checks; the first that fails gives the reason, and every check has its own (`CertificateReason`, in this order).

**Why an own walk up the chain.** `cryptography.x509.verification` builds paths for the web: one error text for
whatever is wrong, no revocation, and it refuses constraints on directory names, which limit our authorities. Our chains
are not searched for: a certificate names its issuer's key, an authority names its own, and three links reach the root.
So the walk is a loop over known authorities whose own signatures were checked when they were taken in. The signatures
themselves, DER and times are the library's. Tests hold every verdict against `openssl verify`, which must refuse what
is refused for X.509's reasons and accept what is accepted.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final, Protocol

from sealcast.model.dataclass import dataclass
from sealcast.primitives import x509
from sealcast.primitives.p256 import P256VerifyKey
from sealcast.trust.certificates.profile import (
    MAX_CERTIFICATE_BYTES,
    REALM_BYTES,
    SERIAL_BYTES,
    Certificate,
    CertificateReason,
    PublicKeys,
    claims,
    generation,
    issued_by,
    parse,
    read,
    refused,
)
from sealcast.trust.certificates.roles import Role

__all__ = [
    "MAX_CERTIFICATE_BYTES",
    "REALM_BYTES",
    "SERIAL_BYTES",
    "Certificate",
    "CertificateReason",
    "PublicKeys",
    "RevocationList",
    "Role",
    "Trust",
    "generation",
    "issued_by",
    "parse",
    "renewal_due",
]

#: Verified certificates are remembered, up to so many: only who signed what, never whether it counts now.
REMEMBERED: Final = 4096


class RevocationList(Protocol):
    """What `Trust` asks of a list of revoked certificates; `trust.certificates.revocation.RevocationView` is one."""

    def is_revoked(self, serial: int) -> bool: ...


def renewal_due(certificate: Certificate, at_us: int) -> bool:
    """Whether half of its life is over: time to ask for the next one, with as much time to get it."""
    return 2 * at_us >= certificate.not_before_us + certificate.not_after_us


@dataclass(frozen=True, slots=True)
class _Authority:
    """An authority whose own signature was checked against the one above it."""

    certificate: Certificate
    parsed: x509.Parsed
    above: _Authority | None


class Trust:
    """Whom a realm believes: its root, and the authorities under it. Public bytes only; it may travel."""

    __slots__ = ("_authorities", "_remembered", "intermediates", "realm_id", "root")

    def __init__(self, root_der: bytes, intermediates: Iterable[bytes], realm_id: bytes) -> None:
        """The root is believed because it is given. Intermediates must lead to it; CertificateRejected otherwise."""
        root = read(root_der)
        self.root = claims(root)
        self.realm_id = bytes(realm_id)
        if Role.AUTHORITY not in self.root.roles:
            raise refused(CertificateReason.CA_BIT, "a root is an authority")
        if self.root.realm != self.realm_id:
            raise refused(CertificateReason.REALM, "the root is another realm's")
        if not x509.signed_by(root_der, root_der):
            raise refused(CertificateReason.SIGNATURE, "a root is signed by itself")
        anchor = _Authority(self.root, root, None)
        self._authorities: dict[bytes, _Authority] = {P256VerifyKey(self.root.identity_key).key_id: anchor}
        self.intermediates = tuple(self._take_in(der) for der in intermediates)
        self._remembered: dict[bytes, tuple[Certificate, _Authority]] = {}

    def __reduce__(self) -> tuple[type[Trust], tuple[bytes, list[bytes], bytes]]:
        return Trust, (self.root.der, [each.der for each in self.intermediates], self.realm_id)

    def _take_in(self, der: bytes) -> Certificate:
        authority = self._authority(der)
        self._authorities[P256VerifyKey(authority.certificate.identity_key).key_id] = authority
        return authority.certificate

    def _authority(self, der: bytes) -> _Authority:
        parsed = read(der)
        found = claims(parsed)
        if Role.AUTHORITY not in found.roles:
            raise refused(CertificateReason.CA_BIT, f"{found.name!r} is no authority")
        issuer = self._issuer(parsed, found)
        if found.realm != self.realm_id:
            raise refused(CertificateReason.REALM, f"{found.name!r} is of another realm")
        return _Authority(found, parsed, issuer)

    def verify(
        self, der: bytes, at_us: int, revoked: RevocationList, *, role: Role | None = None, name: str | None = None
    ) -> Certificate:
        """What the certificate says, if it counts at that time; CertificateRejected, with a reason for each check.

        `role` and `name` are what its holder claims to be, where the caller needs one.
        """
        found, issuer = self._remembered.get(der) or self._recognise(der)  # (1) to (12)
        self._check_chain(issuer, found.realm, at_us, revoked)  # (13) to (17)
        # (18) this realm's
        if found.realm != self.realm_id:
            raise refused(CertificateReason.REALM, f"{found.name!r} is of another realm")
        # (19), (20) in its time
        if at_us < found.not_before_us:
            raise refused(CertificateReason.NOT_YET_VALID, f"{found.name!r}: its time has not come yet")
        if at_us > found.not_after_us:
            hint = f"its holder enrols again: sealcast entity renew {found.name}"
            raise refused(CertificateReason.EXPIRED, f"{found.name!r}: its time is over", hint)
        # (21) still meant
        if revoked.is_revoked(found.serial):
            raise refused(CertificateReason.REVOKED, f"{found.name!r} was revoked")
        # (22), (23) whom the caller asked for
        if role is not None and role not in found.roles:
            raise refused(CertificateReason.ROLE, f"{found.name!r} is no {role}")
        if name is not None and name != found.name:
            raise refused(CertificateReason.HOLDER, f"it is {found.name!r}'s, not {name!r}'s")
        return found

    def recognise(self, der: bytes) -> Certificate:
        """What the certificate says, if an authority of this realm issued it: whenever that was, and whether it counts
        now or was revoked since. For what was signed under it in its time."""
        found, issuer = self._remembered.get(der) or self._recognise(der)  # (1) to (12)
        for below, authority in enumerate(_upwards(issuer)):
            _check_place(below, authority, found.realm)  # (13), (14)
        if found.realm != self.realm_id:  # (18)
            raise refused(CertificateReason.REALM, f"{found.name!r} is of another realm")
        return found

    def _recognise(self, der: bytes) -> tuple[Certificate, _Authority]:
        """What is so whenever it is asked: what the certificate says, and who signed it."""
        parsed = read(der)  # (1)
        found = claims(parsed)  # (2) to (9)
        if Role.AUTHORITY in found.roles:
            raise refused(CertificateReason.CA_BIT, "an authority signs certificates and lists, and nothing else")
        known = found, self._issuer(parsed, found)  # (10) to (12)
        if len(self._remembered) >= REMEMBERED:
            del self._remembered[next(iter(self._remembered))]
        self._remembered[parsed.der] = known
        return known

    def issuer_of(self, der: bytes) -> bytes:
        """The certificate of the authority that signed this one; CertificateRejected when it is none of ours."""
        return self._recognise(der)[1].certificate.der

    def verify_authority(self, der: bytes, at_us: int, revoked: RevocationList) -> Certificate:
        """The same for an authority's own certificate, known before or not: for what authorities sign themselves."""
        authority = next((a for a in self._authorities.values() if a.parsed.der == der), None)
        authority = authority or self._authority(der)
        self._check_chain(authority, authority.certificate.realm, at_us, revoked)
        return authority.certificate

    def _issuer(self, parsed: x509.Parsed, found: Certificate) -> _Authority:
        # (10) someone we know, by key and by name
        issuer = self._authorities.get(found.issuer)
        if issuer is None or issuer.parsed.subject_der != parsed.issuer_der:
            raise refused(CertificateReason.ISSUER, f"{found.name!r}: nobody known here issued it")
        # (11) who did sign it
        if not x509.signed_by(parsed.der, issuer.parsed.der):
            raise refused(CertificateReason.SIGNATURE, f"{found.name!r}: its issuer did not sign this")
        # (12) under a number that its issuer can revoke
        if found.serial <= 0 or issued_by(found.serial) != generation(issuer.certificate):
            raise refused(CertificateReason.SERIAL, f"{found.name!r}: its serial number is not its issuer's to give")
        return issuer

    def _check_chain(self, issuer: _Authority, realm: bytes, at_us: int, revoked: RevocationList) -> None:
        for below, authority in enumerate(_upwards(issuer)):
            about = authority.certificate
            _check_place(below, authority, realm)  # (13), (14)
            # (15), (16), (17)
            if at_us < about.not_before_us:
                raise refused(CertificateReason.ISSUER_NOT_YET_VALID, f"{about.name!r}: its time has not come yet")
            if at_us > about.not_after_us:
                hint = "the administrator makes the next authority and renews its certificates"
                raise refused(CertificateReason.ISSUER_EXPIRED, f"{about.name!r}: its time is over", hint)
            if revoked.is_revoked(about.serial):
                raise refused(CertificateReason.ISSUER_REVOKED, f"{about.name!r}, who issued it, was revoked")


def _check_place(below: int, authority: _Authority, realm: bytes) -> None:
    about = authority.certificate
    # (13) authorities below this one, its holder not counted
    if authority.parsed.path_length is None or below > authority.parsed.path_length:
        raise refused(CertificateReason.PATH_LENGTH, f"{about.name!r} may not stand so far above")
    # (14) names it may give
    if authority.parsed.permitted not in (None, realm.hex()):
        raise refused(CertificateReason.CONSTRAINT, f"{about.name!r} may not name anyone there")


def _upwards(issuer: _Authority) -> Iterator[_Authority]:
    at: _Authority | None = issuer
    while at is not None:
        yield at
        at = at.above
