"""Responding to a compromise: one transaction, after which the entity's keys are good for nothing that is to come.

In this order, so that each change is decided on the state after those before: its certificates are on the revocation
list, it is revoked, its subscriptions have ended, it stands in no overlay; then every topic that it could use is in a
new epoch, with new keys for brokers and for all who may still use it, and with new tokens for live subscriptions, which
go on without a break.
A reader of the registry sees the realm before, or the realm after.
"""

from __future__ import annotations

from dataclasses import dataclass

from sealcast.trust.admin import entities, overlays
from sealcast.trust.admin.handle import Handle
from sealcast.trust.certificates.authority import Authority
from sealcast.trust.certificates.lists import Cause
from sealcast.trust.certificates.roles import Role
from sealcast.trust.keys.issuing import Issuer
from sealcast.trust.keys.topic_keys import TopicKeys
from sealcast.trust.realm import compromise
from sealcast.trust.realm.changes import Change, PublishPairKey, RemoveSubscription, RenewSubscription, RevokeEntity
from sealcast.trust.realm.compromise import CompromisePlan
from sealcast.trust.realm.machine import Fold, RealmState
from sealcast.trust.realm.topics import Topic


@dataclass(frozen=True, slots=True)
class Response:
    """What one transaction has done about a compromised entity."""

    #: What was to be done; nothing, when it had been done before.
    plan: CompromisePlan
    #: From this version on.
    version: int
    #: The number of the newest revocation list.
    list: int
    pair_keys: int
    tokens: int
    #: Topics that no broker can serve until one is handed the new key.
    unserved: tuple[str, ...]
    #: Each broker's own copy of the lists, brought up to date: its number.
    brokers: dict[str, int]
    #: Readers of layered topics that come nearer to publishers, because a broker above them left.
    rising: tuple[overlays.Rising, ...] = ()


def respond(realm: Handle, name: str, *, cause: Cause = Cause.KEY_COMPROMISE, center: str | None = None) -> Response:
    """Does all of it, or nothing. Done twice, it does nothing more."""
    ensure_center(realm, name, center)
    authority, issuer, now = realm.authority(), realm.issuer(), realm.clock()
    made: list[Change] = []
    planned: list[CompromisePlan] = []
    rising: list[overlays.Rising] = []

    def decide(state: RealmState) -> list[Change]:
        planned[:] = [compromise.plan(state, name, center)]
        rising[:] = overlays.rising(state, name)
        made[:] = _changes(realm, state, planned[0], authority, issuer, cause, now)
        return made

    after = realm.registry.transact(decide)
    authority.lists.accept(after.revocations(authority.lists.view.number))
    # A new epoch of a layered topic asks for new keys, which upkeep would see to later. Those before it go now, as far
    # as they are here: what they and the stolen ones open together is not to lie about.
    overlays.announce_layer_keys(realm)
    overlays.forget_layer_keys(realm, at_once=set(compromise.touched(after, name)))
    return Response(
        plan=planned[0],
        version=after.version,
        list=after.revoked.number,
        pair_keys=sum(isinstance(change, PublishPairKey) for change in made),
        tokens=sum(isinstance(change, RenewSubscription) for change in made),
        unserved=tuple(compromise.unserved(realm.state(), planned[0].topics)),
        brokers=spread(realm, after),
        rising=tuple(rising),
    )


def spread(realm: Handle, state: RealmState) -> dict[str, int]:
    """Brings every broker's own copy of the revocation lists up to date. Entities see it when they next look: clients
    go by the newest registry whenever they publish or read."""
    return {broker.name: realm.revocations(broker.name).view.number for broker in state.holders(Role.BROKER)}


def center_keys(directory: str, topic: Topic) -> TopicKeys:
    """The present keys of a topic as its center makes them: for resealing what a compromised broker had delivered."""
    return Handle(directory).issuer().keys(topic)


def _changes(
    realm: Handle, state: RealmState, plan: CompromisePlan, authority: Authority, issuer: Issuer, cause: Cause, now: int
) -> list[Change]:
    made: list[Change] = []
    fold = Fold(state)

    def add(*changes: Change) -> None:
        for change in changes:
            fold.apply(change)
            made.append(change)

    if plan.revoke:
        add(*entities.revocation(realm, state, authority, [plan.entity], cause, now))
        if not state.entity(plan.entity).revoked:
            add(RevokeEntity(plan.entity))
    add(*(RemoveSubscription(id) for id in plan.subscriptions))
    add(*overlays.leaving(realm, issuer, fold.state(), plan.entity))
    for each in plan.topics:
        add(*issuer.rotation(fold.state(), each.topic, now, each.center))
    return made


def ensure_center(realm: Handle, name: str, center: str | None) -> None:
    """Makes another key center when the only one is compromised. One that is made and then not needed does no harm."""
    made = missing_center(realm, name, center)
    if made is not None:
        entities.add_center(realm, made)


def missing_center(realm: Handle, name: str, center: str | None) -> str | None:
    """The name of the key center that has to be made before `name` can be responded to, if one has."""
    state = realm.state()
    centers = [each.name for each in state.holders(Role.KEY_CENTER)]
    manages = any(found.topic.center == name for found in state.topics.values())
    if center is not None or not manages or centers not in ([name], []):
        return None
    return next(new for n in range(2, 1_000) if (new := f"{name}-{n}") not in state.entities)
