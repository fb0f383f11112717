"""Enrolling, renewing and revoking entities, with the realm's authority.

The registry is what counts: a revocation list is signed inside the transaction that stores it, and the authority's own
copy follows. An authority whose copy is behind (it was killed in between) is brought up to date when it is next asked.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from sealcast.errors import Misuse
from sealcast.trust.admin.handle import Handle
from sealcast.trust.certificates import certificate as certificates
from sealcast.trust.certificates.authority import LIFETIME_US, Authority, Wanted
from sealcast.trust.certificates.certificate import Certificate
from sealcast.trust.certificates.lists import Cause
from sealcast.trust.certificates.revocation import RevocationLog
from sealcast.trust.certificates.roles import Role
from sealcast.trust.keys.broker import BrokerSecrets
from sealcast.trust.keys.centers import CenterSecrets
from sealcast.trust.keys.identity import Identity
from sealcast.trust.realm.changes import (
    AddAuthority,
    Change,
    EnrolEntity,
    RenewCertificate,
    RevokeCertificates,
    RevokeEntity,
)
from sealcast.trust.realm.machine import KEY_BYTES, Entity, Fold, RealmState

#: Private keys of new names, each in its file before this returns.
KeysOf = Callable[[Sequence[str]], list[Identity]]


class EntityAdministration(Handle):
    """What an administrator does about who is here."""

    def enrol(self, name: str) -> Entity:
        """A new entity: its keys in its own file, its certificate in the registry, its pair keys issued."""
        return self.enrol_many([name])[0]

    def enrol_many(self, names: Sequence[str], *, lifetime_us: int = LIFETIME_US) -> list[Entity]:
        """All of them, or none."""
        authority, issuer = self.authority(), self.issuer()

        def decide(state: RealmState) -> list[Change]:
            topics = issuer.for_newcomer(state)
            changes = self._enrolments(state, authority, names, (Role.ENTITY,), self._keys_of, lifetime_us)
            made = [Entity(c.name, c.verify_key, c.kem_public) for c in changes if isinstance(c, EnrolEntity)]
            return [*changes, *(keys.for_entity(topic, who, reads=True) for who in made for topic, keys in topics)]

        after = self.registry.transact(decide)
        return [after.entity(name) for name in names]

    def add_broker(self, name: str, topics: Iterable[str] = ()) -> Entity:
        """Another end-point broker, and the keys of the topics that it is to serve."""
        path, issuer = self.paths.broker_key_of(name), self.issuer()

        def keys(names: Sequence[str]) -> list[Identity]:
            if not path.exists():
                BrokerSecrets.generate(name).save(path)
            return [BrokerSecrets.load(path).identity]

        def then(state: RealmState) -> list[Change]:
            return [change for topic in topics for change in issuer.service(state, topic, name)]

        return self._add_holder(name, Role.BROKER, keys, then)

    def add_center(self, name: str) -> Entity:
        """Another key center."""
        path = self.paths.center_key(name)

        def keys(names: Sequence[str]) -> list[Identity]:
            if not path.exists():
                CenterSecrets.generate(name).save(path)
            return [CenterSecrets.load(path).identity]

        return self._add_holder(name, Role.KEY_CENTER, keys)

    def add_discovery_node(self, name: str) -> Entity:
        """Another discovery node."""
        path = self.paths.discovery_key(name)

        def keys(names: Sequence[str]) -> list[Identity]:
            if not path.exists():
                Identity.generate(name).save(path)
            return [Identity.load(path, name)]

        return self._add_holder(name, Role.DISCOVERY, keys)

    def renew(self, name: str, *, lifetime_us: int = LIFETIME_US) -> Entity:
        """The next certificate for an entity, for the same keys and roles."""
        self.state().entity(name)
        return self.renew_due([name], at_half_life=False, lifetime_us=lifetime_us)[0]

    def renew_due(
        self, names: Iterable[str] | None = None, *, at_half_life: bool = True, lifetime_us: int = LIFETIME_US
    ) -> list[Entity]:
        """The next certificates for all whose half of life is over, or for those named whether it is or not."""
        authority, now, renewed = self.authority(), self.clock(), list[str]()

        def decide(state: RealmState) -> list[Change]:
            self._catch_up(authority, state)
            known = [state.entity(n) for n in names] if names is not None else list(state.entities.values())
            due = [who for who in known if not who.revoked and (not at_half_life or _half_over(who, now, lifetime_us))]
            if names is not None and (gone := next((who for who in known if who.revoked), None)):
                raise Misuse(f"entity {gone.name!r} was revoked; it gets no certificate")
            issued = authority.issue_many([_wanted(who) for who in due], now, lifetime_us)
            renewed.extend(who.name for who in due)
            return [
                *self._successors(authority, state),
                *(RenewCertificate(c.name, c.der, c.serial, c.not_after_us) for c in issued),
            ]

        after = self.registry.transact(decide)
        return [after.entity(name) for name in renewed]

    def revoke_entity(self, name: str, cause: Cause = Cause.UNSPECIFIED) -> int:
        """Ends an entity: nothing it publishes is admitted and nothing is sealed for it from the next batch on."""
        return self.revoke_entities([name], cause)

    def revoke_entities(self, names: Sequence[str], cause: Cause = Cause.UNSPECIFIED) -> int:
        """All of them by one signed list, or none; the version from which on it counts."""
        authority, now = self.authority(), self.clock()

        def decide(state: RealmState) -> list[Change]:
            # The rules come first: no list names whom they refuse to revoke.
            rehearsal = Fold(state)
            ends: list[Change] = [RevokeEntity(name) for name in names]
            for end in ends:
                rehearsal.apply(end)
            return [*self.revocation(state, authority, names, cause, now), *ends]

        after = self.registry.transact(decide)
        authority.lists.accept(after.revocations(authority.lists.view.number))
        return after.version

    def revocation(
        self, state: RealmState, authority: Authority, names: Iterable[str], cause: Cause, now: int
    ) -> list[Change]:
        """The signed lists that revoke every certificate these entities ever had, as changes; none if all are."""
        self._catch_up(authority, state)
        serials = {s for n in names for s in state.entity(n).serials if not state.revoked.is_revoked(s)}
        if not serials:
            return []
        # Signed on a copy in memory: what the authority itself keeps follows when the registry has it.
        kept = authority.lists
        authority.lists = RevocationLog(self.trust(state), state.revoked, state.revocation_lists)
        try:
            authority.revoke(serials, cause, now)
            made = authority.lists.since(state.revoked.number) or []
        finally:
            authority.lists = kept
        return [*self._successors(authority, state), *map(RevokeCertificates, made)]

    # --- inside -------------------------------------------------------------------------------------

    def _add_holder(
        self,
        name: str,
        role: Role,
        keys: KeysOf,
        then: Callable[[RealmState], Sequence[Change]] = lambda state: (),
    ) -> Entity:
        authority = self.authority()

        def decide(state: RealmState) -> list[Change]:
            changes = self._enrolments(state, authority, [name], (role,), keys, LIFETIME_US)
            fold = Fold(state)
            for change in changes:
                fold.apply(change)
            return [*changes, *then(fold.state())]

        return self.registry.transact(decide).entity(name)

    def _enrolments(
        self,
        state: RealmState,
        authority: Authority,
        names: Sequence[str],
        roles: tuple[Role, ...],
        keys_of: KeysOf,
        lifetime_us: int,
    ) -> list[Change]:
        self._catch_up(authority, state)
        rehearsal = Fold(state)
        for name in names:
            # The rules come first: a name they refuse must not become a file name.
            rehearsal.apply(EnrolEntity(name, bytes(KEY_BYTES), bytes(KEY_BYTES), roles, b"rehearsed"))
        wanted = [Wanted(i.name, i.public_keys, frozenset(roles)) for i in keys_of(names)]
        issued = authority.issue_many(wanted, self.clock(), lifetime_us)
        return [*self._successors(authority, state), *(enrolment(certificate, roles) for certificate in issued)]

    def _successors(self, authority: Authority, state: RealmState) -> list[Change]:
        """Authorities that the registry does not know yet: they issue from now on."""
        known = state.founding.authorities if state.founding is not None else ()
        return [AddAuthority(each.der) for each in authority.authorities if each.der not in known]

    def _catch_up(self, authority: Authority, state: RealmState) -> None:
        """What the registry says is revoked, the authority knows before it signs anything."""
        if authority.lists.view.number < state.revoked.number:
            authority.lists.accept(state.revocations(authority.lists.view.number))

    def _keys_of(self, names: Sequence[str]) -> list[Identity]:
        paths = {name: self.paths.entity_key(name) for name in names}
        # Left behind by an enrolment that was cut short: never made public, so as good as new.
        known = {name: Identity.load(path, name) for name, path in paths.items() if path.exists()}
        fresh = {name: Identity.generate(name) for name in names if name not in known}
        Identity.save_many({paths[name]: identity for name, identity in fresh.items()})
        return [known.get(name) or fresh[name] for name in names]


def enrolment(certificate: Certificate, roles: tuple[Role, ...]) -> EnrolEntity:
    """What a certificate says, as the change that makes it known."""
    return EnrolEntity(
        certificate.name,
        certificate.verify_key,
        certificate.kem_public,
        roles,
        certificate.der,
        certificate.serial,
        certificate.not_after_us,
    )


def _half_over(who: Entity, now: int, lifetime_us: int) -> bool:
    """By the usual length of life: nobody's certificate has to be taken apart for it."""
    return now >= who.expires_us - lifetime_us // 2


def _wanted(who: Entity) -> Wanted:
    return Wanted(who.name, certificates.parse(who.certificate).keys, who.roles)
