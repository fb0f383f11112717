"""Enrolling somebody who made its keys elsewhere: its public keys are all that comes here."""

from __future__ import annotations

from collections.abc import Sequence

from sealcast.errors import Misuse
from sealcast.trust.admin.entities import certified
from sealcast.trust.admin.handle import Handle
from sealcast.trust.admin.topics import granting
from sealcast.trust.certificates import certificate as certificates
from sealcast.trust.certificates.certificate import PublicKeys
from sealcast.trust.certificates.roles import Role
from sealcast.trust.realm.changes import Change, EnrolEntity, Grant
from sealcast.trust.realm.machine import KEY_BYTES, Entity, Fold, RealmState, apply_all


def enrol_public(
    realm: Handle,
    name: str,
    keys: PublicKeys,
    grants: Sequence[Grant] = (),
    role: Role = Role.ENTITY,
    hosts: tuple[str, ...] = (),
) -> Entity:
    """Enrols an entity with these keys, and gives it these rights, all of it or nothing. Done again with the same keys,
    it does nothing more; Misuse when the name is another's, or was revoked."""
    authority, issuer, now = realm.authority(), realm.issuer(), realm.clock()

    def decide(state: RealmState) -> list[Change]:
        known = state.entities.get(name)
        if known is not None:
            if known.revoked or certificates.parse(known.certificate).keys != keys:
                raise Misuse(f"the name {name!r} is taken, or was revoked", hint="choose another name")
            return []
        topics = issuer.for_newcomer(state) if role is Role.ENTITY else []
        made = certified(realm, state, authority, {name: keys}, role, hosts=hosts)
        who = Entity(name, keys.verify_key, keys.kem_public)
        made += [each.for_entity(topic, who, reads=True) for topic, each in topics]
        for change in grants:
            made += granting(issuer, apply_all(state, made), change, now)
        return made

    return realm.registry.transact(decide).entity(name)


def rehearse(state: RealmState, name: str, grants: Sequence[Grant], role: Role = Role.ENTITY) -> None:
    """Misuse unless an entity of this name could be enrolled now, and be given these rights."""
    rehearsal = Fold(state)
    rehearsal.apply(EnrolEntity(name, bytes(KEY_BYTES), bytes(KEY_BYTES), (role,), b"rehearsed"))
    for change in grants:
        rehearsal.apply(change)
