"""Whoever gets a right gets the keys that go with it: what the topics' centers hand out, as changes.

Functions of a state, so that whoever decides can put right and keys into one transaction. The centers' secrets are
read when they are first needed and not before.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from functools import cache

from sealcast.errors import Misuse, Rejected
from sealcast.primitives.secrets import Unpicklable
from sealcast.trust.certificates.roles import Role
from sealcast.trust.keys import minting
from sealcast.trust.keys.centers import CenterSecrets
from sealcast.trust.keys.topic_keys import TopicKeys
from sealcast.trust.layout import FIRST_BROKER, Layout
from sealcast.trust.realm.changes import (
    Access,
    Change,
    Credential,
    PublishPairKey,
    RenewSubscription,
    Right,
    RotateTopic,
)
from sealcast.trust.realm.machine import apply, apply_all
from sealcast.trust.realm.state import Entity, RealmState
from sealcast.trust.realm.topics import FIRST_EPOCH, Topic


class Issuer(Unpicklable):
    """The key centers whose secrets are here."""

    #: Whether it knows who has lately answered a challenge (`center.proofs`).
    vouches = False

    def __init__(self, paths: Layout) -> None:
        self._paths = paths
        self.center = cache(lambda name: CenterSecrets.load(paths.center_key(name)))

    def keys(self, topic: Topic, epoch: int | None = None) -> TopicKeys:
        center: CenterSecrets = self.center(topic.center)
        return center.topic_keys(topic, epoch)

    def pair_keys(
        self, state: RealmState, topic: Topic, entities: Iterable[Entity], at_us: int
    ) -> Iterator[PublishPairKey]:
        """For the topic's current epoch, and for the rights that each of them has then."""
        keys = self.keys(topic)
        return (keys.for_entity(topic, e, reads=_key_for(state, topic, e.name, at_us) is True) for e in entities)

    def for_newcomer(self, state: RealmState) -> list[tuple[Topic, TopicKeys]]:
        """The keys of topics that let in everyone who is enrolled, and whose centers still count. From a center on a
        machine of its own, a newcomer gets them when it first asks."""
        members = [t.topic for t in state.topics.values() if t.topic.access is Access.MEMBERS]
        here = [topic for topic in members if self._paths.center_key(topic.center).exists()]
        return [(topic, self.keys(topic)) for topic in here if has_center(state, topic)]

    def missing_pair_keys(
        self, state: RealmState, topic: str, names: Iterable[str], at_us: int
    ) -> list[PublishPairKey]:
        """For those among `names` who have none in the current epoch."""
        about = state.topic(topic)
        without = [n for n in sorted(set(names)) if state.pair_key(topic, about.epoch, n) is None]
        return list(self.pair_keys(state, about, map(state.entity, without), at_us)) if without else []

    def opening(self, state: RealmState, topic: str, at_us: int) -> list[Change]:
        """What an epoch begins with: its key for the brokers that serve the topic, pair keys for all who may."""
        about = state.topic(topic)
        keys = self.keys(about)
        brokers = serving(state, about)
        handed = [keys.for_broker(about, broker, state.receiving_key(topic, broker.name)) for broker in brokers]
        return [*handed, *self.pair_keys(state, about, state.entitled(topic, at_us), at_us)]

    def credential(self, state: RealmState, topic: str, subscriber: str, at_us: int) -> Credential:
        """A token to subscribe with, signed by the topic's center."""
        return minting.credential_for(self.center(state.topic(topic).center), state, topic, subscriber, at_us)

    def renewals(
        self,
        state: RealmState,
        topic: str,
        at_us: int,
        subscribers: Iterable[str] | None = None,
        *,
        at_half_life: bool = False,
    ) -> list[Change]:
        """New tokens for live subscriptions, all or those of some subscribers, of everyone who may subscribe now.

        On a topic whose owner asks for proof of life, nobody gets one unasked, but from who knows of the proofs.
        """
        found, only = state.topic_state(topic), None if subscribers is None else frozenset(subscribers)
        if only is None and found.topic.parameters.challenge_every_s and not self.vouches:
            return []
        ids: dict[str, list[str]] = {}
        for id, its in found.credentials.items():
            who = found.subscriptions[id].subscriber
            due = not at_half_life or 2 * at_us >= its.not_before_us + its.expires_us
            if due and (only is None or who in only) and state.may_subscribe(topic, who, at_us):
                ids.setdefault(who, []).append(id)
        renewed: list[Change] = []
        for name, own in ids.items():
            # Whose certificate or right has ended gets no token, and is no reason for the others to get none.
            with suppress(Rejected):
                renewed.append(RenewSubscription(tuple(own), self.credential(state, topic, name, at_us)))
        return renewed

    def rotation(self, state: RealmState, topic: str, at_us: int, center: str = "") -> list[Change]:
        """A new epoch with all its keys, and with tokens for it; from another center, if one is named."""
        about = state.topic(topic)
        # A clock that stepped back starts no epoch before the last one: epochs follow each other.
        start = max(at_us, about.epoch_starts[-1])
        rotate = RotateTopic(topic, about.epoch + 1, start, center)
        after = apply(state, rotate)
        return [rotate, *self.opening(after, topic, start), *self.renewals(after, topic, at_us)]

    def rekeying(self, before: RealmState, after: RealmState, entity: str, at_us: int) -> list[Change]:
        """What follows from a change of an entity's rights where readers hold a key: a new epoch, at once, on topics
        of which it holds a key that is no longer the one for its rights. Elsewhere nothing does."""
        changes: list[Change] = []
        for name, found in before.topics.items():
            if found.topic.protection.readers_hold_key and _holds_another(before, after, found.topic, entity, at_us):
                changes += self.rotation(apply_all(after, changes), name, at_us)
        return changes

    def service(self, state: RealmState, topic: str, broker: str, at_us: int) -> list[Change]:
        """What a broker that is to serve the topic lacks: the keys of this epoch, of the one before, and of all others
        that have their grace, as far as the topic's center has them."""
        about, who = state.topic(topic), state.entity(broker)
        if about.protection.peers:
            raise Misuse(
                f"topic {topic!r} has no brokers: its publishers and subscribers carry it themselves",
                hint="run their peers: sealcast peer run",
            )
        if about.protection.overlay and broker not in state.overlay(topic).roots:
            raise Misuse(
                f"broker {broker!r} is no root of topic {topic!r}, which is layered: the others get no keys of it",
                hint=f"as a root it gets them: sealcast overlay add {topic} {broker}",
            )
        known = range(max(FIRST_EPOCH, about.center_since), about.epoch + 1)
        wanted = [epoch for epoch in known if epoch == about.epoch - 1 or about.epoch_admissible(epoch, at_us)]
        lacking = [epoch for epoch in wanted if state.topic_key(topic, epoch, broker) is None]
        # Earlier epochs that the center has forgotten it cannot hand over; the present one it must.
        center: CenterSecrets = self.center(about.center)
        lacking = [epoch for epoch in lacking if epoch == about.epoch or center.has(about, epoch)]
        by = state.receiving_key(topic, broker)
        return [self.keys(about, epoch).for_broker(about, who, by) for epoch in lacking]


def has_center(state: RealmState, topic: Topic) -> bool:
    """Whether somebody can make the topic's keys: a revoked center cannot, until the topic moves to another one."""
    center = state.entities.get(topic.center)
    return center is None or not center.revoked


def rotation_due(state: RealmState, topic: str, now_us: int, messages: int = 0) -> str | None:
    """Why a topic's key should be replaced, if it should: it is too old, has sealed too much, or is held, where readers
    hold a key, by somebody whose right has ended by its term since."""
    found = state.topic_state(topic)
    why = found.topic.rotation_due(now_us, messages)
    if why is not None or not found.topic.protection.readers_hold_key:
        return why
    ended = sum(_holds_another(state, state, found.topic, name, now_us) for name in found.terms)
    return f"its key is held by {ended} whose right has ended" if ended else None


def _holds_another(before: RealmState, after: RealmState, topic: Topic, entity: str, at_us: int) -> bool:
    """Whether an entity holds a key of the epoch that is not, or not any more, the one for its rights. What it holds
    follows from the rights that it had when the epoch began, or got since: any change of them by decision rotates."""
    began = topic.epoch_starts[-1]
    if before.pair_key(topic.name, topic.epoch, entity) is None:
        return False
    if topic.protection.peers:
        # Each right has keys of its own, for what its template admits: what counts is whether one is gone.
        return bool(_held(before, topic, entity, began) - _held(after, topic, entity, at_us))
    return _key_for(before, topic, entity, began) != _key_for(after, topic, entity, at_us)


def _key_for(state: RealmState, topic: Topic, entity: str, at_us: int) -> bool | None:
    """Which key fits the rights that an entity has then, or will have: True for one that reads, False for one that only
    publishes, None for no key. A clock that stepped back does not go before the epoch."""
    rights = [right for right, _ in _held(state, topic, entity, at_us)]
    return Right.SUBSCRIBE in rights if rights else None


def _held(state: RealmState, topic: Topic, entity: str, at_us: int) -> frozenset[tuple[Right, str]]:
    """The rights that an entity has then, or will have, each with its template."""
    at, terms = max(at_us, topic.epoch_starts[-1]), state.terms_of(topic.name, entity)
    return frozenset((right, term.template) for right, term in terms.items() if not term.over(at))


def serving(state: RealmState, topic: Topic) -> list[Entity]:
    """The brokers that served the topic's last epoch; all there are when this is its first.

    Of a layered topic, those that take its frames in, whatever they did before. Whoever routes what it cannot read is
    handed no keys of other topics unasked. Where peers carry events themselves, there are none.
    """
    if topic.protection.peers:
        return []
    brokers = state.holders(Role.BROKER)
    if topic.protection.overlay:
        roots = state.overlay(topic.name).roots
        return [b for b in brokers if b.name in roots]
    if topic.epoch == FIRST_EPOCH:
        blind = {name for found in state.topics.values() for name in found.nodes if name != FIRST_BROKER}
        return [b for b in brokers if b.name not in blind]
    return [b for b in brokers if state.topic_key(topic.name, topic.epoch - 1, b.name) is not None]
