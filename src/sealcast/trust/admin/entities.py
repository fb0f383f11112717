"""Enrolling, renewing and revoking entities, with the realm's authority.

The registry is what counts: a revocation list is signed inside the transaction that stores it, and the authority's own
copy follows. An authority whose copy is behind (it was killed in between) is brought up to date when it is next asked.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from ipaddress import ip_address

from sealcast.errors import Misuse, NotFound
from sealcast.primitives import x509
from sealcast.trust.admin import serving
from sealcast.trust.admin.handle import Handle
from sealcast.trust.certificates import certificate as certificates
from sealcast.trust.certificates.authority import LIFETIME_US, Authority, CertificateWanted
from sealcast.trust.certificates.certificate import Certificate, PublicKeys, Trust
from sealcast.trust.certificates.lists import Cause
from sealcast.trust.certificates.revocation import RevocationLog
from sealcast.trust.certificates.roles import Role
from sealcast.trust.keys.broker import BrokerSecrets
from sealcast.trust.keys.centers import CenterSecrets
from sealcast.trust.keys.identity import Identity
from sealcast.trust.layout import Layout
from sealcast.trust.realm.authors import ADMINISTRATOR
from sealcast.trust.realm.changes import (
    AddAuthority,
    Change,
    EnrolEntity,
    RenewCertificate,
    RevokeCertificates,
    RevokeEntity,
)
from sealcast.trust.realm.leaving import unplaced
from sealcast.trust.realm.machine import KEY_BYTES, Entity, Fold, RealmState, apply_all


def enrol(realm: Handle, name: str) -> Entity:
    """Enrols an entity: its keys go to its own file, its certificate and its pair keys to the registry."""
    return enrol_many(realm, [name])[0]


def enrol_many(realm: Handle, names: Sequence[str], *, lifetime_us: int = LIFETIME_US) -> list[Entity]:
    """Enrols all of them, or none."""
    authority, issuer = realm.authority(), realm.issuer()

    def decide(state: RealmState) -> list[Change]:
        topics = issuer.for_newcomer(state)
        changes = enrolments(realm, state, authority, names, Role.ENTITY, lifetime_us)
        made = [Entity(c.name, c.verify_key, c.kem_public) for c in changes if isinstance(c, EnrolEntity)]
        return [*changes, *(keys.for_entity(topic, who, reads=True) for who in made for topic, keys in topics)]

    after = realm.registry.transact(decide)
    return [after.entity(name) for name in names]


def add_broker(realm: Handle, name: str, topics: Iterable[str] = ()) -> Entity:
    """Enrols another broker, and hands it the keys of the topics that it is to serve."""
    issuer, wanted, now = realm.issuer(), list(topics), realm.clock()
    return _add_holder(
        realm,
        name,
        Role.BROKER,
        lambda state: [c for topic in wanted for c in serving.service(realm, issuer, state, topic, name, now)],
    )


def add_center(realm: Handle, name: str) -> Entity:
    """Enrols another key center."""
    return _add_holder(realm, name, Role.KEY_CENTER)


def add_discovery_node(realm: Handle, name: str) -> Entity:
    """Enrols another discovery node."""
    return _add_holder(realm, name, Role.DISCOVERY)


def add_gateway(realm: Handle, name: str, hosts: Sequence[str]) -> Entity:
    """Enrols a gateway that answers at these names and addresses. One that is enrolled, and whose keys are here, gets
    the next certificate, which names these hosts and no others."""
    authority, now, wanted = realm.authority(), realm.clock(), canonical_hosts(hosts)

    def decide(state: RealmState) -> list[Change]:
        known = state.entities.get(name)
        if known is None:
            return enrolments(realm, state, authority, [name], Role.GATEWAY, hosts=wanted)
        if known.revoked or Role.GATEWAY not in known.roles:
            raise Misuse(f"{name!r} is no gateway, or was revoked", hint="choose another name for the gateway")
        catch_up(authority, state)
        asked = CertificateWanted(name, certificates.parse(known.certificate).keys, known.roles, wanted)
        return [*successors(authority, state), *map(_renewal, authority.issue_many([asked], now))]

    return realm.registry.transact(decide).entity(name)


def canonical_hosts(hosts: Sequence[str]) -> tuple[str, ...]:
    """Names and addresses as certificates spell them, each once."""
    found = dict.fromkeys(str(ip_address(h)) if x509.is_address(h) else h.rstrip(".").lower() for h in hosts)
    if not found:
        raise Misuse("a gateway needs a host that it answers at", hint="name one: --host gateway.example.org")
    return tuple(found)


def renew(realm: Handle, name: str, *, lifetime_us: int = LIFETIME_US) -> Entity:
    """Issues the next certificate for an entity, for the same keys and roles."""
    realm.state().entity(name)
    return renew_due(realm, [name], at_half_life=False, lifetime_us=lifetime_us)[0]


def renew_due(
    realm: Handle, names: Iterable[str] | None = None, *, at_half_life: bool = True, lifetime_us: int = LIFETIME_US
) -> list[Entity]:
    """Issues the next certificates to all whose present ones have had half of their life, or to those named."""
    authority, now, renewed = realm.authority(), realm.clock(), list[str]()

    def decide(state: RealmState) -> list[Change]:
        catch_up(authority, state)
        known = [state.entity(n) for n in names] if names is not None else list(state.entities.values())
        due = [who for who in known if not who.revoked and (not at_half_life or _half_over(who, now, lifetime_us))]
        if names is not None and (gone := next((who for who in known if who.revoked), None)):
            raise Misuse(f"entity {gone.name!r} was revoked; it gets no certificate")
        renewed.extend(who.name for who in due)
        return [*successors(authority, state), *renewals(authority, due, now, lifetime_us)]

    after = realm.registry.transact(decide)
    return [after.entity(name) for name in renewed]


def revoke_entity(realm: Handle, name: str, cause: Cause = Cause.UNSPECIFIED) -> int:
    """Ends an entity: nothing it publishes is admitted and nothing is sealed for it from the next batch on."""
    return revoke_entities(realm, [name], cause)


def revoke_entities(realm: Handle, names: Sequence[str], cause: Cause = Cause.UNSPECIFIED) -> int:
    """Ends all of them by one signed list, or none. Gives the version from which on it counts."""
    authority, issuer, now = realm.authority(), realm.issuer(), realm.clock()

    def decide(state: RealmState) -> list[Change]:
        # The rules come first: no list names whom they refuse to revoke.
        ends: list[Change] = [RevokeEntity(name) for name in names]
        apply_all(state, ends)
        made = [*revocation(realm, state, authority, names, cause, now), *ends]
        for name in names:
            made += unplaced(apply_all(state, made), now, name)
            made += issuer.rekeying(state, apply_all(state, made), name, now)
        return made

    after = realm.registry.transact(decide)
    authority.lists.accept(after.revocations(authority.lists.view.number))
    return after.version


def revocation(
    realm: Handle, state: RealmState, authority: Authority, names: Iterable[str], cause: Cause, now: int
) -> list[Change]:
    """The signed lists that revoke every certificate these entities ever had, as changes; none if all are."""
    catch_up(authority, state)
    serials = {s for n in names for s in state.entity(n).serials if not state.revoked.is_revoked(s)}
    if not serials:
        return []
    lists = signed_lists(authority, realm.trust(state), state, serials, cause, now)
    return [*successors(authority, state), *lists]


# --- what other acts are made of ----------------------------------------------------------------------


def enrolments(
    realm: Handle,
    state: RealmState,
    authority: Authority,
    names: Sequence[str],
    role: Role,
    lifetime_us: int = LIFETIME_US,
    *,
    hosts: tuple[str, ...] = (),
) -> list[Change]:
    """Keys and certificates for new names, as changes; the keys are in their files when this returns."""
    if realm.author(ADMINISTRATOR) is None:
        raise NotFound("the administrator's key is not here, and nobody else enrols", hint="enrol where that key is")
    rehearsal = Fold(state)
    for name in names:
        # The rules come first: a name they refuse must not become a file name.
        rehearsal.apply(EnrolEntity(name, bytes(KEY_BYTES), bytes(KEY_BYTES), (role,), b"rehearsed"))
    made = {identity.name: identity.public_keys for identity in private_keys(realm.paths, role, names)}
    return certified(realm, state, authority, made, role, lifetime_us, hosts=hosts)


def certified(
    realm: Handle,
    state: RealmState,
    authority: Authority,
    keys: Mapping[str, PublicKeys],
    role: Role,
    lifetime_us: int = LIFETIME_US,
    *,
    hosts: tuple[str, ...] = (),
) -> list[Change]:
    """Certificates for new names with these keys, wherever they were made, as changes."""
    catch_up(authority, state)
    wanted = [CertificateWanted(name, each, frozenset({role}), hosts) for name, each in keys.items()]
    issued = authority.issue_many(wanted, realm.clock(), lifetime_us)
    return [*successors(authority, state), *(enrolment(certificate, role) for certificate in issued)]


def private_keys(paths: Layout, role: Role, names: Sequence[str]) -> list[Identity]:
    """Private keys of new names, each in its own file when this returns. A file that an enrolment left behind, because
    it was cut short, was never made public: it is as good as new."""
    if role is Role.BROKER or role is Role.KEY_CENTER:
        kind, place = (BrokerSecrets, paths.broker_key_of) if role is Role.BROKER else (CenterSecrets, paths.center_key)
        for name in names:
            if not place(name).exists():
                kind.generate(name).save(place(name))
        return [kind.load(place(name)).identity for name in names]
    places = {Role.DISCOVERY: paths.discovery_key, Role.GATEWAY: paths.gateway_key}
    files = {name: places.get(role, paths.entity_key)(name) for name in names}
    known = {name: Identity.load(path, name) for name, path in files.items() if path.exists()}
    fresh = {name: Identity.generate(name) for name in names if name not in known}
    Identity.save_many({files[name]: identity for name, identity in fresh.items()})
    return [known.get(name) or fresh[name] for name in names]


def renewals(authority: Authority, due: Iterable[Entity], now: int, lifetime_us: int) -> list[Change]:
    """The next certificate of each, for the same keys and roles, as changes."""
    before = [(who, certificates.parse(who.certificate)) for who in due]
    wanted = [CertificateWanted(who.name, found.keys, who.roles, found.hosts) for who, found in before]
    return list(map(_renewal, authority.issue_many(wanted, now, lifetime_us)))


def signed_lists(
    authority: Authority, trust: Trust, state: RealmState, serials: Iterable[int], cause: Cause, now: int
) -> list[Change]:
    """The lists that revoke these certificates, signed on a copy in memory: what the authority itself keeps follows
    when the registry has them."""
    kept = authority.lists
    authority.lists = RevocationLog(trust, state.revoked, state.revocation_lists)
    try:
        authority.revoke(serials, cause, now)
        made = authority.lists.since(state.revoked.number) or []
    finally:
        authority.lists = kept
    return [RevokeCertificates(each) for each in made]


def successors(authority: Authority, state: RealmState) -> list[Change]:
    """Authorities that the registry does not know yet: they issue from now on."""
    known = state.founding.authorities if state.founding is not None else ()
    return [AddAuthority(each.der) for each in authority.authorities if each.der not in known]


def catch_up(authority: Authority, state: RealmState) -> None:
    """What the registry says is revoked, the authority knows before it signs anything."""
    if authority.lists.view.number < state.revoked.number:
        authority.lists.accept(state.revocations(authority.lists.view.number))


def enrolment(certificate: Certificate, role: Role) -> EnrolEntity:
    """What a certificate says, as the change that makes it known."""
    return EnrolEntity(
        certificate.name,
        certificate.verify_key,
        certificate.kem_public,
        (role,),
        certificate.der,
        certificate.serial,
        certificate.not_after_us,
    )


def _renewal(issued: Certificate) -> RenewCertificate:
    return RenewCertificate(issued.name, issued.der, issued.serial, issued.not_after_us)


def _add_holder(
    realm: Handle,
    name: str,
    role: Role,
    then: Callable[[RealmState], Sequence[Change]] = lambda state: (),
) -> Entity:
    authority = realm.authority()

    def decide(state: RealmState) -> list[Change]:
        changes = enrolments(realm, state, authority, [name], role)
        return [*changes, *then(apply_all(state, changes))]

    return realm.registry.transact(decide).entity(name)


def _half_over(who: Entity, now: int, lifetime_us: int) -> bool:
    """By the usual length of life: nobody's certificate has to be taken apart for it."""
    return now >= who.expires_us - lifetime_us // 2
