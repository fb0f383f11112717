"""What a thief has of one entity: all that is in its files, and what it was handed, of every epoch."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial

from sealcast.control.wallet import Wallet
from sealcast.errors import Rejected, Unavailable
from sealcast.primitives.secrets import Unpicklable
from sealcast.primitives.x25519 import AgreementKey
from sealcast.trust.certificates.roles import Role
from sealcast.trust.deployment import Realm
from sealcast.trust.keys.identity import Identity
from sealcast.trust.keys.layer_keys import LayerKeyring
from sealcast.trust.keys.topic_keys import EntityKeys, TopicKeys
from sealcast.trust.realm.changes import Right, RotateTopic
from sealcast.trust.realm.topics import Topic

#: The keys of a topic in an epoch.
KeysOf = Callable[[int], TopicKeys]


@dataclass(slots=True)
class Loot(Unpicklable):
    """What a thief has of one entity. It stays in this process."""

    name: str
    roles: frozenset[Role]
    identity: Identity
    #: What it was handed, by topic and epoch.
    keys: dict[tuple[str, int], EntityKeys] = field(default_factory=dict)
    tokens: dict[str, bytes] = field(default_factory=dict)
    #: Of brokers and centers: the keys of topics, by topic and epoch.
    topic_keys: dict[str, KeysOf] = field(default_factory=dict)
    #: The private halves of its agreement keys for layered topics, by topic and epoch.
    halves: dict[tuple[str, int], AgreementKey] = field(default_factory=dict)


def steal(realm: Realm, name: str, *, tokens: bool = True) -> Loot:
    """Takes all that a thief gets by copying an entity's files. Raises NotFound when they are not here. It asks the
    topics' key centers for `tokens`, as the entity itself would."""
    state = realm.state()
    who = state.entity(name)
    loot = Loot(name, who.roles, _identity(realm, name, who.roles))
    for topic, found in state.topics.items():
        for epoch in range(1, found.topic.epoch + 1):
            if state.pair_key(topic, epoch, name) is not None:
                loot.keys[topic, epoch] = loot.identity.topic_keys(state, topic, epoch)
        if Role.BROKER in who.roles:
            loot.topic_keys[topic] = partial(realm.broker(name).topic_keys, state, found.topic)
        if Role.KEY_CENTER in who.roles:
            # Who has its file derives what it can, as long as it was the topic's center, and whoever is now.
            about = replace(_managed(realm, found.topic, name), center=name, center_since=1)
            loot.topic_keys[topic] = partial(realm.center(name).topic_keys, about)
        if found.topic.protection.overlay:
            keyring = LayerKeyring(realm, loot.identity)
            for epoch in keyring.epochs(state, found.topic):
                loot.halves[topic, epoch] = keyring.own(state, topic, epoch)
        if tokens and Role.ENTITY in who.roles and state.may_publish(topic, name, realm.clock()):
            with suppress(Rejected, Unavailable), Wallet(realm, name, identity=loot.identity, keep=False) as wallet:
                loot.tokens[topic] = wallet.get(topic, Right.PUBLISH, state).token
    return loot


def _managed(realm: Realm, topic: Topic, center: str) -> Topic:
    """A topic as it was when a center managed it last; as it is, if it never did."""
    if topic.center == center:
        return topic
    moves = [
        v for v, _, c in realm.registry.changes() if isinstance(c, RotateTopic) and c.topic == topic.name and c.center
    ]
    before = (realm.state(version - 1).topic(topic.name) for version in reversed(moves))
    return next((then for then in before if then.center == center), topic)


def _identity(realm: Realm, name: str, roles: frozenset[Role]) -> Identity:
    if Role.BROKER in roles:
        return realm.broker(name).identity
    if Role.KEY_CENTER in roles:
        return realm.center(name).identity
    return realm.discovery_node(name) if Role.DISCOVERY in roles else realm.identity(name)
