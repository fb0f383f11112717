"""The overlay of a layered topic: planting one with the topic, and moving brokers and subscribers in it.

Roots take frames in, so they are handed the topic's keys, which open the link from publishers and nothing that was
encrypted; other nodes are handed none. Every act is one transaction.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from contextlib import suppress
from typing import Final, NamedTuple

from sealcast.errors import Misuse, Rejected, Unavailable
from sealcast.trust.admin import entities
from sealcast.trust.admin.carrying import follow_overlay
from sealcast.trust.admin.handle import Handle
from sealcast.trust.certificates.roles import Role
from sealcast.trust.keys import layer_keys
from sealcast.trust.keys.issuing import Issuer
from sealcast.trust.realm.changes import Change, PlaceNode, PlaceSubscriber, RemoveNode
from sealcast.trust.realm.leaving import unplaced
from sealcast.trust.realm.machine import RealmState, apply, apply_all
from sealcast.trust.realm.overlays import Overlay

DEFAULT_FAN_OUT: Final = 2
#: What is planted with a topic; by hand there may be more.
MAX_PLANTED: Final = 256
#: A complete tree with more levels than this would have more brokers than anyone asked for: a chain, then.
_MAX_BUSHY_LAYERS: Final = 4
#: Of so many keys at once, files are made together.
_MANY: Final = 8
#: So that a topic's name and what is added to it make a name.
_STEM_CHARACTERS: Final = 52


def planted_shape(layers: int, nodes: int | None, fan_out: int | None) -> tuple[int, int]:
    """How many brokers, and how many below each: what was asked for, else a complete tree with as many levels as there
    are layers, so that below its leaves all of them count. Where there are many layers, a chain."""
    if nodes is None and layers > _MAX_BUSHY_LAYERS:
        return layers, 1
    below = DEFAULT_FAN_OUT if fan_out is None else fan_out
    return (sum(below**level for level in range(layers)) if nodes is None else nodes), below


def place_node(realm: Handle, topic: str, broker: str, *, under: str | None = None) -> Overlay:
    """Places a broker in a topic's overlay, below another one or as a root. It is enrolled if it is new."""
    issuer = realm.issuer()
    change = PlaceNode(topic, broker, under, realm.clock())

    def decide(state: RealmState) -> list[Change]:
        new = _new_brokers(realm, state, [] if broker in state.entities else [broker])
        after = apply_all(state, [*new, change])
        return [*new, change, *(issuer.service(after, topic, broker, realm.clock()) if under is None else ())]

    realm.registry.transact(decide)
    announce_layer_keys(realm, [topic])
    follow_overlay(realm, topic, broker)
    return realm.state().overlay(topic)


def remove_node(realm: Handle, topic: str, broker: str) -> Overlay:
    """Takes a broker out of a topic's overlay; those below it move up."""
    issuer, change = realm.issuer(), RemoveNode(topic, broker, realm.clock())

    def decide(state: RealmState) -> list[Change]:
        after = apply(state, change)
        return [change, *_for_roots(realm, issuer, after, topic)]

    return realm.registry.transact(decide).overlay(topic)


# --- what falls due by itself -------------------------------------------------------------------


def announce_layer_keys(realm: Handle, topics: Iterable[str] | None = None) -> dict[str, int]:
    """Agreement keys for everyone who takes part in layered topics, has none in their present epochs, and whose key
    file is here; how many by topic. Everyone else announces its own when it next comes."""
    made, known = dict[str, int](), realm.state()

    def decide(state: RealmState) -> list[Change]:
        changes = {name: _missing_keys(realm, state, name) for name in _layered(state, topics)}
        made.update({name: len(those) for name, those in changes.items() if those})
        return [change for those in changes.values() for change in those]

    lacking = {name: those for name in _layered(known, topics) if (those := _lacking(realm, known, name))}
    for topic, names in lacking.items():
        if len(names) > _MANY:
            # Before the transaction, so that nobody waits for the disk.
            layer_keys.make_many(realm, known, topic, names)
    if lacking:
        realm.registry.transact(decide)
    return made


def forget_layer_keys(realm: Handle, at_once: Collection[str] = ()) -> dict[str, int]:
    """Removes the private agreement keys that brokers and publishers here have of epochs long over, or of all epochs
    that are over where it is to be done `at_once`; how many by topic. A subscriber's are its own to forget, when it
    has read what came under them."""
    state, now, gone = realm.state(), realm.clock(), dict[str, int]()
    for topic in _layered(state, None):
        about, overlay = state.topic(topic), state.overlay(topic)
        keep = about.epoch if topic in at_once else layer_keys.spent(about, now)
        for name in layer_keys.participants(state, topic):
            over = [epoch for epoch in layer_keys.held(realm, state, about, name) if epoch < keep]
            if not over or name in overlay.places or not layer_keys.key_file(realm, state, name).exists():
                continue
            keyring = layer_keys.LayerKeyring(realm, layer_keys.own_identity(realm, state, name))
            gone[topic] = gone.get(topic, 0) + len(keyring.forget(topic, before=keep))
    return {topic: count for topic, count in gone.items() if count}


def mend_overlays(realm: Handle) -> dict[str, tuple[str, ...]]:
    """Takes brokers that were revoked, and readers whose right has ended, out of overlays; hands roots that have come
    up by it the keys they lack. Who was taken out, by topic. Only where the topic's key center is at hand."""
    state, issuer, mended = realm.state(), realm.issuer(), dict[str, tuple[str, ...]]()
    for topic in _layered(state, None):
        gone = [name for name in state.overlay(topic).parents if state.entity(name).revoked]
        gone += [change.subscriber for change in unplaced(state, realm.clock(), topics=[topic])]
        if gone and realm.paths.center_key(state.topic(topic).center).exists():
            _mend(realm, topic, issuer)
            mended[topic] = tuple(gone)
    return mended


def leaving(realm: Handle, issuer: Issuer, state: RealmState, entity: str) -> list[Change]:
    """Takes somebody who was revoked out of every overlay, as broker and as reader, and hands new roots the keys that
    they lack. The changes are part of a larger act.

    Those who read below it are not moved up, nearer to a root, behind their backs: they have no place until they choose
    one, or get one that is as deep as the topic asks for."""
    now = realm.clock()
    made: list[Change] = [*unplaced(state, now, entity)]
    for topic in _layered(state, None):
        overlay = apply_all(state, made).overlay(topic)
        if entity not in overlay.parents:
            continue
        rising = [name for name in overlay.children(entity) if name in overlay.places]
        homeless = [*overlay.subscribers(entity), *(rising if overlay.parents[entity] is None else ())]
        made += [PlaceSubscriber(topic, name, None, now) for name in dict.fromkeys(homeless)]
        made.append(RemoveNode(topic, entity, now))
        made += _for_roots(realm, issuer, apply_all(state, made), topic)
    return made


class Rising(NamedTuple):
    """A reader that comes nearer to publishers because a broker above it leaves."""

    topic: str
    subscriber: str
    hops_before: int
    hops: int
    #: How many it should be for full strength.
    wanted: int


def rising(state: RealmState, entity: str) -> list[Rising]:
    """Who comes nearer when a broker leaves every overlay: whoever reads below its children, which take its place.
    Those who read at the broker itself lose their place instead (`leaving`)."""
    found = list[Rising]()
    for topic in _layered(state, None):
        overlay, wanted = state.overlay(topic), state.topic(topic).protection.depth
        if entity not in overlay.parents:
            continue
        for name in overlay.places:
            hops, above = overlay.depth(name), overlay.path_up(name)
            if entity in above and overlay.places[name] != entity:
                found.append(Rising(topic, name, hops, hops - 1, wanted))
    return found


# --- inside -------------------------------------------------------------------------------------


def _mend(realm: Handle, topic: str, issuer: Issuer) -> None:
    def decide(state: RealmState) -> list[Change]:
        revoked = [name for name in state.overlay(topic).parents if state.entity(name).revoked]
        made: list[Change] = [*unplaced(state, realm.clock(), topics=[topic])]
        made += [RemoveNode(topic, name, realm.clock()) for name in revoked]
        after = apply_all(state, made)
        return [*made, *_for_roots(realm, issuer, after, topic)]

    realm.registry.transact(decide)


def _for_roots(realm: Handle, issuer: Issuer, state: RealmState, topic: str) -> list[Change]:
    """What the roots of a topic's overlay lack to serve it."""
    now = realm.clock()
    return [change for root in state.overlay(topic).roots for change in issuer.service(state, topic, root, now)]


def _lacking(realm: Handle, state: RealmState, topic: str) -> list[str]:
    """Whose key files are here, and who have announced no key in the topic's epoch."""
    epoch = state.topic(topic).epoch
    return [
        name
        for name in layer_keys.participants(state, topic)
        if state.layer_key(topic, epoch, name) is None and layer_keys.key_file(realm, state, name).exists()
    ]


def _missing_keys(realm: Handle, state: RealmState, topic: str) -> list[Change]:
    publishes, made = layer_keys.participants(state, topic), list[Change]()
    for name in _lacking(realm, state, topic):
        # Under a lock that is not at hand, or half lost: its owner's business, and no reason for others to wait.
        with suppress(Unavailable, Misuse, Rejected):
            keyring = layer_keys.LayerKeyring(realm, layer_keys.own_identity(realm, state, name))
            made += keyring.missing(state, topic, publishes=publishes[name])
    return made


def planted(realm: Handle, state: RealmState, topic: str, count: int, fan_out: int) -> list[Change]:
    """A tree of new brokers: one root, each broker with so many below it, level by level."""
    if not 0 <= count <= MAX_PLANTED:
        raise Misuse(
            f"a topic is made with 0 to {MAX_PLANTED} brokers, not {count}",
            hint=f"more can follow: sealcast overlay add {topic} BROKER --under BROKER",
        )
    if not 1 <= fan_out <= MAX_PLANTED:
        raise Misuse(f"a broker has 1 to {MAX_PLANTED} others below it, not {fan_out}")
    names, number = list[str](), 0
    while len(names) < count:
        number += 1
        name = f"{topic[:_STEM_CHARACTERS]}-node-{number}"
        if name not in state.entities:
            names.append(name)
    places = [PlaceNode(topic, n, names[(i - 1) // fan_out] if i else None) for i, n in enumerate(names)]
    return [*_new_brokers(realm, state, names), *places]


def _new_brokers(realm: Handle, state: RealmState, names: Sequence[str]) -> list[Change]:
    return entities.enrolments(realm, state, realm.authority(), names, Role.BROKER) if names else []


def _layered(state: RealmState, topics: Iterable[str] | None) -> list[str]:
    return [t for t in (state.topics if topics is None else topics) if state.topic(t).protection.overlay]
