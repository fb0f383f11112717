"""The authority of a realm: a root, and the intermediate authority that does the daily work.

    root (10 years)  signs  authority 1, authority 2, ... (2 years)  sign  everyone's certificates (90 days)

The root signs authorities and the lists that revoke them, and nothing else, so its key file can be taken offline
between those days (move `root.key` away; bring it back when an error asks for it). An authority's names are limited to
its realm, its path length is zero: what it signs is no further authority. When one is lost, the root revokes it, and
with it everything under it is refused; the next one has the next number, and holders enrol again.

Private keys are in key files (`keyfile`), one each. Certificates and lists beside them are public.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final

from sealcast.errors import Misuse, NotFound
from sealcast.log import files
from sealcast.model.dataclass import dataclass
from sealcast.model.names import NAME
from sealcast.primitives import x509, x509_lists
from sealcast.primitives.p256 import P256SigningKey, P256VerifyKey
from sealcast.primitives.secrets import Unpicklable
from sealcast.trust.certificates import appointment, authority_files, lists, profile
from sealcast.trust.certificates.authority_files import LISTS
from sealcast.trust.certificates.certificate import Certificate, PublicKeys, Role, Trust
from sealcast.trust.certificates.lists import Cause, RevocationDelta, Revoked
from sealcast.trust.certificates.profile import (
    AUTHORITY_NAME,
    AUTHORITY_USAGES,
    EXTENSION,
    HOLDER_USAGES,
    MAX_GENERATION,
    REALM_BYTES,
    ROOT_NAME,
    SERIAL_BYTES,
)
from sealcast.trust.certificates.revocation import RevocationLog, RevocationStore, RevocationView

DAY_US: Final = 86_400 * x509.SECOND_US
ROOT_LIFETIME_US: Final = 3_650 * DAY_US
AUTHORITY_LIFETIME_US: Final = 730 * DAY_US
LIFETIME_US: Final = 90 * DAY_US
#: An authority counts from a little before it was made: a clock that steps back must not stop it from issuing.
BACKDATED_US: Final = 3_600 * x509.SECOND_US
CRL_LIFETIME_US: Final = 7 * DAY_US
ENTITY: Final = frozenset({Role.ENTITY})
#: Whoever is further behind gets the whole list at once.
MAX_DELTAS: Final = 256

_RANDOM_BITS: Final = 8 * (SERIAL_BYTES - 2)


@dataclass(frozen=True, slots=True)
class CertificateWanted:
    """A certificate to be issued."""

    name: str
    keys: PublicKeys
    roles: frozenset[Role] = ENTITY
    #: Of a gateway: the names and addresses that it answers at.
    hosts: tuple[str, ...] = ()


class Authority(Unpicklable):
    """The private half of a realm's authority, or as much of it as is here."""

    __slots__ = ("_directory", "_keys", "authorities", "lists", "realm_id", "root")

    def __init__(
        self,
        root: Certificate,
        authorities: Sequence[Certificate],
        keys: Mapping[int, P256SigningKey],
        directory: Path | None = None,
    ) -> None:
        self.root = root
        self.realm_id = root.realm
        #: In the order of their numbers; the last one issues.
        self.authorities = tuple(authorities)
        self._keys = dict(keys)
        self._directory = directory
        trust = self.trust()
        self.lists = RevocationStore(directory / LISTS, trust) if directory is not None else RevocationLog(trust)

    @classmethod
    def generate(
        cls,
        realm_id: bytes,
        at_us: int,
        *,
        root_lifetime_us: int = ROOT_LIFETIME_US,
        lifetime_us: int = AUTHORITY_LIFETIME_US,
    ) -> Authority:
        """A new root and the first authority under it."""
        if len(realm_id) != REALM_BYTES:
            raise Misuse(f"a realm's id has {REALM_BYTES} bytes, not {len(realm_id)}")
        key = P256SigningKey.generate()
        root = _certify_authority(key, None, realm_id, key.verify_key, 0, at_us, root_lifetime_us)
        made = cls(root, (), {0: key})
        made.succeed(at_us, lifetime_us=lifetime_us)
        return made

    # --- issuing ------------------------------------------------------------------------------------

    @property
    def issuing(self) -> Certificate:
        """The authority that issues now."""
        return self.authorities[-1]

    def trust(self) -> Trust:
        """Whom the realm believes: public, and all that is needed to verify."""
        return Trust(self.root.der, [a.der for a in self.authorities], self.realm_id)

    def issue_many(
        self, wanted: Sequence[CertificateWanted], at_us: int, lifetime_us: int = LIFETIME_US
    ) -> list[Certificate]:
        """All of them, or none. None outlives its issuer."""
        issuer, number = self.issuing, profile.generation(self.issuing)
        signer = self._key(number)
        if not issuer.not_before_us <= at_us <= issuer.not_after_us:
            raise Misuse(
                f"{issuer.name!r} issues nothing at this time: it is outside of its own certificate's validity",
                hint="make the next authority (this needs the root's key), or set the clock right",
            )
        until = min(at_us + lifetime_us, issuer.not_after_us)
        if lifetime_us < x509.SECOND_US:
            raise Misuse("a certificate lives a second at least")
        for one in wanted:
            if not NAME.fullmatch(one.name):
                raise Misuse(f"{one.name!r} is no entity name")
            if not one.roles or Role.AUTHORITY in one.roles:
                raise Misuse(f"{one.name!r}: roles are one or more of entity, broker, key-center, discovery, gateway")
        drawn = _serials(number, len(wanted))
        return [self._issue(signer, one, serial, at_us, until) for one, serial in zip(wanted, drawn, strict=True)]

    def _issue(
        self, signer: P256SigningKey, one: CertificateWanted, serial: int, at_us: int, until_us: int
    ) -> Certificate:
        issuer, keys, public = self.issuing, one.keys, P256VerifyKey(one.keys.identity)
        profile.check_keys(False, keys.verify_key, keys.kem_public)
        profile.check_hosts(one.hosts, gateway=Role.GATEWAY in one.roles)
        extension = profile.encode_extension(one.roles, keys.verify_key, keys.kem_public)
        body = x509.CertificateBody(
            serial=serial,
            issuer=x509.DistinguishedName(self.realm_id.hex(), issuer.name),
            subject=x509.DistinguishedName(self.realm_id.hex(), one.name),
            public=public,
            issuer_key=signer.verify_key,
            not_before_us=at_us // x509.SECOND_US * x509.SECOND_US,
            not_after_us=until_us // x509.SECOND_US * x509.SECOND_US,
            usages=HOLDER_USAGES,
            uris=(profile.uri(self.realm_id, one.name),),
            hosts=one.hosts,
            private=((EXTENSION, extension),),
        )
        der = x509.issue(signer, body)
        # Not read back, which would take as long again; a test holds this against `parse`.
        return Certificate(
            der,
            one.name,
            self.realm_id,
            serial,
            one.roles,
            keys.identity,
            keys.verify_key,
            keys.kem_public,
            body.not_before_us,
            body.not_after_us,
            signer.verify_key.key_id,
            hashlib.sha256(der).digest(),
            one.hosts,
        )

    def succeed(self, at_us: int, *, lifetime_us: int = AUTHORITY_LIFETIME_US) -> Certificate:
        """The next authority under the root: issues from now on. The ones before stay valid until they are revoked."""
        number = len(self.authorities) + 1
        if number > MAX_GENERATION:
            raise Misuse(f"a realm has at most {MAX_GENERATION} authorities")
        key = self._fresh_key(number)
        made = _certify_authority(self._key(0), self.root, self.realm_id, key.verify_key, number, at_us, lifetime_us)
        if self._directory is not None:
            authority_files.write_certificate(self._directory, number, made)
        self._keys[number] = key
        self.authorities = (*self.authorities, made)
        self.lists.trust = self.trust()
        return made

    def appoint(self, public: bytes, number: int = appointment.FIRST_NUMBER) -> bytes:
        """The root's word that this key signs for the administrator."""
        return appointment.appoint(self._key(0), self.realm_id, public, number)

    # --- revoking -----------------------------------------------------------------------------------

    def revoke(self, serials: Iterable[int], cause: Cause, at_us: int) -> RevocationDelta:
        """Revoke for good; durable on return. The newest delta that revokes any of them, also when asked again."""
        wanted = set(serials)
        if not wanted:
            raise Misuse("no certificate was named")
        if self.root.serial in wanted:
            raise Misuse("the root signs the lists itself; it cannot be revoked by one", hint="make a new realm")
        made: RevocationDelta | None = None
        for number in sorted({profile.issued_by(serial) for serial in wanted}, reverse=True):
            mine = {s for s in wanted if profile.issued_by(s) == number}
            made = self._revoke(number, mine, cause, at_us) or made
        return made or self._revoked_by(wanted)

    def _revoke(self, number: int, serials: set[int], cause: Cause, at_us: int) -> RevocationDelta | None:
        def make(view: RevocationView) -> RevocationDelta | None:
            fresh = {serial: Revoked(cause, at_us) for serial in serials if not view.is_revoked(serial)}
            if not fresh:
                return None
            signer, key = self._signer(number, view, at_us)
            since = max(at_us, view.at_us)
            return lists.sign(key, signer, view.number + 1, view.digest, fresh, since, whole=False)

        return self.lists.append(make)

    def _revoked_by(self, serials: set[int]) -> RevocationDelta:
        kept = [lists.parse(raw) for raw in self.lists.since(0) or ()]
        for delta in reversed(kept):
            if not serials.isdisjoint(delta.entries):
                return delta
        return self._base()

    def revocations(self, since: int) -> list[bytes]:
        """Signed lists that lead from list `since` to the newest: deltas, or the whole list for a newcomer."""
        view = self.lists.view
        if since >= view.number:
            return []
        deltas = self.lists.since(since) if since else None
        return [self._base().raw] if deltas is None or len(deltas) > MAX_DELTAS else deltas

    def _base(self) -> RevocationDelta:
        view = self.lists.view
        signer, key = self._signer(profile.generation(self.issuing), view, view.at_us)
        return lists.sign(key, signer, view.number, view.digest, view.entries, view.at_us, whole=True)

    def _signer(self, number: int, view: RevocationView, at_us: int) -> tuple[Certificate, P256SigningKey]:
        """Who signs a list about certificates of authority `number`: itself while it counts, the root otherwise."""
        own = self.root if number == 0 else self.authorities[number - 1] if number <= len(self.authorities) else None
        counts = own is not None and not view.is_revoked(own.serial) and at_us <= own.not_after_us
        if own is not None and counts and number in self._keys:
            return own, self._keys[number]
        return self.root, self._key(0)

    # --- for other tools ----------------------------------------------------------------------------

    def crl(self, at_us: int, number: int | None = None, since: int | None = None, next_us: int | None = None) -> bytes:
        """The X.509 CRL (DER) of authority `number`, or of the one that issues: a base, or a delta to base `since`."""
        generation = profile.generation(self.issuing) if number is None else number
        about = self.root if generation == 0 else self.authorities[generation - 1]
        view = self.lists.view
        entries: Mapping[int, Revoked] = view.entries
        if since is not None:
            deltas = self.lists.since(since) if since <= view.number else None
            if deltas is None:
                raise Misuse(f"there is no list {since} to add to", hint="export the whole list: without --since")
            entries = {serial: entry for raw in deltas for serial, entry in lists.parse(raw).entries.items()}
        own = sorted((s, e) for s, e in entries.items() if profile.issued_by(s) == generation)
        body = x509_lists.CrlBody(
            issuer=x509.DistinguishedName(self.realm_id.hex(), about.name),
            number=view.number,
            at_us=at_us,
            next_us=at_us + CRL_LIFETIME_US if next_us is None else next_us,
            entries=[(serial, lists.CAUSE_CODES[entry.cause], entry.at_us) for serial, entry in own],
            base=since,
            freshest=f"sealcast:{self.realm_id.hex()}/revocations/{generation}",
        )
        return x509_lists.sign_crl(self._key(generation), body)

    # --- files --------------------------------------------------------------------------------------

    def save(self, directory: Path) -> None:
        """Key files, certificates and lists, into a directory that has none."""
        files.make_directory(directory)
        for number, key in self._keys.items():
            authority_files.write_key(directory, number, key, self.realm_id)
        for number, certificate in enumerate([self.root, *self.authorities]):
            authority_files.write_certificate(directory, number, certificate)
        store = RevocationStore(directory / LISTS, self.trust())
        store.accept(self.lists.since(0) or [])
        self.lists, self._directory = store, directory

    @classmethod
    def load(cls, directory: Path) -> Authority:
        """As much as is there: without `root.key` everything works that does not need the root."""
        found = authority_files.read_certificates(directory)
        here = [n for n in range(len(found)) if authority_files.key_path(directory, n).exists()]
        keys = {number: authority_files.read_key(directory, number, found[number]) for number in here}
        return cls(found[0], found[1:], keys, directory)

    def _key(self, number: int) -> P256SigningKey:
        key = self._keys.get(number)
        if key is not None:
            return key
        name = f"{authority_files.stem(number)}.key"
        where = f" ({self._directory / name} does not exist)" if self._directory is not None else ""
        raise NotFound(
            f"this needs the key of {'the root' if number == 0 else f'authority {number}'}, which is not here{where}",
            hint=f"bring {name} back from where it is kept, and take it away again afterwards",
        )

    def _fresh_key(self, number: int) -> P256SigningKey:
        key = P256SigningKey.generate()
        if self._directory is None:
            return key
        if authority_files.key_path(self._directory, number).exists():
            # Left behind by an attempt that was cut short: never certified, so as good as new.
            return authority_files.read_key(self._directory, number, None)
        authority_files.write_key(self._directory, number, key, self.realm_id)
        return key


def _certify_authority(
    signer: P256SigningKey,
    root: Certificate | None,
    realm: bytes,
    public: P256VerifyKey,
    number: int,
    at_us: int,
    lifetime_us: int,
) -> Certificate:
    organization = realm.hex()
    until = at_us + lifetime_us
    der = x509.issue(
        signer,
        x509.CertificateBody(
            serial=_serials(0, 1)[0],
            issuer=x509.DistinguishedName(organization, ROOT_NAME),
            subject=x509.DistinguishedName(organization, f"{AUTHORITY_NAME}{number}" if number else ROOT_NAME),
            public=public,
            issuer_key=signer.verify_key,
            not_before_us=max(0, at_us - BACKDATED_US),
            not_after_us=until if root is None else min(until, root.not_after_us),
            usages=AUTHORITY_USAGES,
            path_length=1 if root is None else 0,
            permitted=None if root is None else organization,
            private=((EXTENSION, profile.encode_extension({Role.AUTHORITY}, b"", b"")),),
        ),
    )
    return profile.parse(der)


def _serials(number: int, count: int) -> list[int]:
    """Numbers that nobody can foresee, and that never come twice: 112 random bits after the issuer's own number."""
    size = _RANDOM_BITS // 8
    drawn = os.urandom(size * count)
    return [(number << _RANDOM_BITS) | int.from_bytes(drawn[i : i + size], "big") for i in range(0, len(drawn), size)]
