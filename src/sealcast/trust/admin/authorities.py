"""The authority itself: its successor in time, and its replacement in need.

Both need the root's key. A successor issues from now on, and what was issued before stays. A replacement is for an
authority whose key is lost or known to others: in one transaction the next one is made known, everyone gets a
certificate from it for the keys they have, live subscriptions get tokens under it, and the root revokes the one before.
No state in between is ever seen, in which everybody is refused.
"""

from __future__ import annotations

import os

from sealcast.errors import Misuse
from sealcast.log import files
from sealcast.model.dataclass import dataclass
from sealcast.primitives.x509 import SECOND_US
from sealcast.trust.admin import entities
from sealcast.trust.admin.handle import Handle
from sealcast.trust.certificates import appointment
from sealcast.trust.certificates.authority import LIFETIME_US, Authority
from sealcast.trust.certificates.certificate import Certificate
from sealcast.trust.certificates.lists import Cause
from sealcast.trust.heads import Pin
from sealcast.trust.keys import administrator
from sealcast.trust.realm.authors import ADMINISTRATOR
from sealcast.trust.realm.changes import AppointAdministrator, Change
from sealcast.trust.realm.machine import RealmState, apply_all


@dataclass(frozen=True, slots=True)
class Replacement:
    """What replacing an authority did."""

    made: Certificate
    revoked: tuple[Certificate, ...]
    certificates: int
    version: int


def adopt_registry(realm: Handle) -> RealmState:
    """Appoints an administrator in a realm that was made before changes were signed, who takes over all that stands in
    its registry: nobody can tell any more who wrote it. This needs the root's key."""
    path = realm.paths.administrator_key
    if Pin.beside(path, ADMINISTRATOR).read() is not None:
        raise Misuse(
            "the changes of this realm were signed, and its registry has no signatures any more: somebody removed them",
            hint="restore the registry from its newest copy",
        )
    authority, author = realm.authority(), administrator.make(path)
    appointed = authority.appoint(bytes(author.signer.verify_key))
    realm.registry.adopt(lambda state: [AppointAdministrator(appointed)], author)
    return realm.state()


def appoint_administrator(realm: Handle) -> int:
    """Replaces the administrator's key, lost or known to others, by a new one that the root appoints; the number of its
    appointment. What the one before signed until now stays. This needs the root's key."""
    authority, path = realm.authority(), realm.paths.administrator_key
    waiting = path.with_name("administrator.new.key")
    author = administrator.make(waiting)
    public = bytes(author.signer.verify_key)

    def decide(state: RealmState) -> list[Change]:
        present = b"" if state.founding is None else state.founding.administrator
        if appointment.names(present, public):
            return []  # cut short after this, and begun again
        return [AppointAdministrator(authority.appoint(public, appointment.number_of(present) + 1))]

    after = realm.registry.transact(decide, author)
    with files.named(path, "writing"):
        os.replace(waiting, path)
        files.sync_directory(path.parent)
    assert after.founding is not None
    return appointment.number_of(after.founding.administrator)


def succeed_authority(realm: Handle) -> Certificate:
    """Makes the next authority under the root, which issues from now on."""
    authority = realm.authority()
    made = _next(realm, authority, realm.clock())
    realm.registry.transact(lambda state: entities.successors(authority, state))
    return made


def replace_authority(
    realm: Handle, cause: Cause = Cause.AUTHORITY_COMPROMISE, *, lifetime_us: int = LIFETIME_US
) -> Replacement:
    """Makes the next authority and has the root revoke all before it. What they issued no longer counts, and is renewed
    in the same transaction."""
    authority, issuer, now = realm.authority(), realm.issuer(), realm.clock()
    made = _next(realm, authority, now)
    gone = tuple(each for each in authority.authorities if each != made)
    renewed = 0

    def decide(state: RealmState) -> list[Change]:
        nonlocal renewed
        entities.catch_up(authority, state)
        live = [who for who in state.entities.values() if not who.revoked]
        # A renewed certificate outlives the one before, also when that was issued this very second.
        until = max([lifetime_us, *(who.expires_us - now + SECOND_US for who in live)])
        renewals = entities.renewals(authority, live, now, until)
        renewed = len(renewals)
        serials = [each.serial for each in gone]
        ends = entities.signed_lists(authority, authority.trust(), state, serials, cause, now)
        changes = [*entities.successors(authority, state), *renewals, *ends]
        settled = apply_all(state, changes)
        tokens = (issuer.renewals(settled, topic, now, at_half_life=False) for topic in settled.topics)
        return [*changes, *(change for each in tokens for change in each)]

    after = realm.registry.transact(decide)
    authority.lists.accept(after.revocations(authority.lists.view.number))
    return Replacement(made, gone, renewed, after.version)


def _next(realm: Handle, authority: Authority, now: int) -> Certificate:
    """Gives the next authority. One that was made and never made known, being cut short, is as good as new."""
    known = {each.der for each in realm.trust().intermediates}
    waiting = [each for each in authority.authorities if each.der not in known]
    return waiting[-1] if waiting else authority.succeed(now)
