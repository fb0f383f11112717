"""Creating and rotating topics, and who may use them: with the topics' key centers."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from sealcast.errors import Misuse
from sealcast.log import files
from sealcast.log.embedded import EmbeddedTopic
from sealcast.model.protection import DEFAULT_PROTECTION, Protection, protection_of
from sealcast.model.schema import Schema
from sealcast.trust.admin import overlays, serving
from sealcast.trust.admin.handle import Handle
from sealcast.trust.admin.overlays import planted_shape
from sealcast.trust.keys.issuing import Issuer, has_center, rotation_due
from sealcast.trust.keys.issuing import serving as first_brokers
from sealcast.trust.layout import FIRST_CENTER
from sealcast.trust.realm.changes import (
    DEFAULT_GROUP_KEYS,
    DEFAULT_PARAMETERS,
    EVERYTHING,
    Access,
    AlterTopic,
    Change,
    CreateTopic,
    Grant,
    Revoke,
    Right,
)
from sealcast.trust.realm.leaving import unplaced
from sealcast.trust.realm.machine import RealmState, Topic, apply, apply_all
from sealcast.trust.realm.parameters import KeyParameters
from sealcast.trust.realm.templates import Template

BOTH: Final = (Right.PUBLISH, Right.SUBSCRIBE)


def create_topic(
    realm: Handle,
    name: str,
    schema: Schema,
    *,
    partitions: int = 1,
    protection: Protection | str = DEFAULT_PROTECTION,
    access: Access | str = Access.GRANTED,
    center: str = FIRST_CENTER,
    parameters: KeyParameters = DEFAULT_PARAMETERS,
    owner: str = "",
    group_keys: str = DEFAULT_GROUP_KEYS,
    nodes: int | None = None,
    fan_out: int | None = None,
) -> Topic:
    """Creates a topic with its schema, registered with its one key center, which makes its keys as `parameters` say.

    Only who is granted a right may use it, unless `access` lets every member in.

    One with an overlay comes with a tree of so many new brokers, deep enough for it unless `nodes` says otherwise.
    """
    access = _access(access)
    protection = protection_of(protection) if isinstance(protection, str) else protection
    if nodes is not None and not protection.overlay:
        raise Misuse(f"a topic whose protection is {protection.name!r} does not come with brokers of its own")
    now, issuer = realm.clock(), realm.issuer()
    of_keys = (center, parameters, owner, now, group_keys)
    create = CreateTopic(name, os.urandom(16), schema, partitions, protection, access, *of_keys)

    def decide(state: RealmState) -> list[Change]:
        changes: list[Change] = [create]
        if protection.overlay:
            shape = planted_shape(protection.depth, nodes, fan_out)
            changes += overlays.planted(realm, apply(state, create), name, *shape)
        made = apply_all(state, changes)
        changes += realm.next_receiving_keys(made, name, [who.name for who in first_brokers(made, made.topic(name))])
        return [*changes, *issuer.opening(apply_all(state, changes), name, now)]

    made = realm.registry.transact(decide).topic(name)
    if protection.overlay:
        # Frames are in the logs of roots, pieces and ledgers at every node: each makes its own when it first runs.
        overlays.announce_layer_keys(realm, [name])
    elif not protection.peers:  # each peer makes its own log, or its own ledger, when it first has something to keep
        _make_logs(realm, made)
    return made


def _make_logs(realm: Handle, topic: Topic) -> None:
    """The directories of a topic's first broker. The registry is what counts: whoever opens the log makes what is
    missing, should this be cut short."""
    paths = realm.paths.topic(topic.name)
    EmbeddedTopic(paths.frames_root, topic.partitions).close()
    for directory in (paths.pieces, paths.ledger, paths.cursors):
        files.make_directory(directory)


def alter_topic(
    realm: Handle,
    topic: str,
    access: Access | str | None = None,
    *,
    frames_kept_s: int | None = None,
    past_keys: str | None = None,
    pieces_kept_s: int | None = None,
    pieces_kept_bytes: int | None = None,
    schema: Schema | None = None,
    frames_kept_bytes: int | None = None,
) -> Topic:
    """Lets every member use a topic, or only who was granted a right; what was decided by name stays as it is. And
    says how long frames are kept that were committed, and sealed pieces, and whether brokers forget keys of past
    epochs: those that they are handed from the next epoch on. A `schema` is its next version, of which every event
    from before is one (`model.evolution`). What is not given stays as it is.

    Who is let in gets the keys it needs. Where readers hold a key, a new epoch begins when some are no longer let in.
    Where keys are made for a schema, a new version begins with an epoch.
    """
    now, issuer = realm.clock(), realm.issuer()

    def decide(state: RealmState) -> list[Change]:
        about = state.topic(topic)
        let_in = about.access if access is None else _access(access)
        pieces = pieces_kept_s, pieces_kept_bytes
        change = AlterTopic(topic, let_in, frames_kept_s, past_keys, *pieces, schema, frames_kept_bytes)
        after = apply(state, change)
        if about.access is change.access:
            if after.topic(topic) == about:
                return []
            if about.protection.peers and after.topic(topic).schema != about.schema:
                return [change, *issuer.rotation(after, topic, now)]
            return [change, *realm.next_receiving_keys(after, topic, after.serving(topic))]
        if change.access is Access.MEMBERS:
            entitled = [who.name for who in after.entitled(topic, now)]
            return [change, *issuer.missing_pair_keys(after, topic, entitled, now)]
        held_by_readers = after.topic(topic).protection.readers_hold_key
        return [change, *(issuer.rotation(after, topic, now) if held_by_readers else ())]

    after = realm.registry.transact(decide)
    overlays.announce_layer_keys(realm, [topic])
    return after.topic(topic)


def announce_receiving_keys(realm: Handle) -> tuple[str, ...]:
    """Lets the brokers whose keys are here announce by which keys they are handed the next epochs' (`keys.receiving`);
    the topics for which one did."""
    state, announced = realm.state(), list[str]()
    for topic in state.topics:

        def decide(now: RealmState, topic: str = topic) -> Sequence[Change]:
            return realm.next_receiving_keys(now, topic, now.serving(topic))

        if decide(state):
            realm.registry.transact(decide)
            announced.append(topic)
    return tuple(announced)


def _access(given: Access | str) -> Access:
    if given not in Access._value2member_map_:
        raise Misuse(f"access is one of {', '.join(Access)}, not {given!r}")
    return Access(given)


def serve(realm: Handle, topic: str, broker: str) -> RealmState:
    """Hands a broker the keys it needs to serve a topic, and to read its filters where brokers do."""
    issuer = realm.issuer()
    return realm.registry.transact(lambda state: serving.service(realm, issuer, state, topic, broker, realm.clock()))


# --- epochs -------------------------------------------------------------------------------------


def rotate(realm: Handle, topic: str) -> Topic:
    """Begins a new epoch of a topic at once, with new keys for its brokers and for all who may use it."""
    return rotate_many(realm, [topic])[0]


def rotate_many(realm: Handle, topics: Sequence[str]) -> list[Topic]:
    """Begins a new epoch of all of them in one transaction, or of none."""
    now, issuer = realm.clock(), realm.issuer()

    def decide(state: RealmState) -> list[Change]:
        return [change for topic in dict.fromkeys(topics) for change in issuer.rotation(state, topic, now)]

    after = realm.registry.transact(decide)
    overlays.announce_layer_keys(realm, topics)
    return [after.topic(topic) for topic in topics]


def rotate_due(
    realm: Handle,
    now_us: int | None = None,
    counts: Mapping[str, int] | None = None,
    topics: Iterable[str] | None = None,
) -> dict[str, str]:
    """Rotates every topic whose key is too old, or has sealed too much by `counts` (messages in this epoch), or is in
    the hands of somebody whose right to read ended by its term.

    All topics are looked at, or those that are named. The ones that were rotated, with the reason.
    """
    now, issuer, due = realm.clock() if now_us is None else now_us, realm.issuer(), dict[str, str]()

    def decide(state: RealmState) -> list[Change]:
        due.clear()
        for name in state.topics if topics is None else topics:
            why = rotation_due(state, name, now, (counts or {}).get(name, 0))
            if why is not None and has_center(state, state.topic(name)):
                due[name] = why
        return [change for name in due for change in issuer.rotation(state, name, now)]

    realm.registry.transact(decide)
    overlays.announce_layer_keys(realm, due)
    return due


# --- rights -------------------------------------------------------------------------------------


def grant(
    realm: Handle,
    topic: str,
    entity: str,
    rights: Iterable[Right] = BOTH,
    *,
    not_before_us: int = 0,
    until_us: int | None = None,
    template: str = EVERYTHING,
) -> RealmState:
    """Grants rights to an entity, for a time and for what a template admits, with the pair key it needs to use them.

    Its live subscriptions go on by new tokens, which say the new terms.
    """
    now, issuer = realm.clock(), realm.issuer()
    normal = str(Template.parse(template))
    change = Grant(topic, entity, tuple(rights), not_before_us, until_us, normal)

    return realm.registry.transact(lambda state: granting(issuer, state, change, now))


def granting(issuer: Issuer, state: RealmState, change: Grant, now: int) -> list[Change]:
    """A right with the keys and tokens that go with it, as changes."""
    topic, entity, after = change.topic, change.entity, apply(state, change)
    keys = issuer.missing_pair_keys(after, topic, [entity], now)
    # By name, also if the topic lets it in anyhow: that may change.
    if state.topic_state(topic).terms.get(entity) == after.topic_state(topic).terms.get(entity):
        return list(keys)
    made: list[Change] = [change, *keys, *issuer.renewals(after, topic, now, [entity])]
    return [*made, *issuer.rekeying(state, apply_all(state, made), entity, now)]


def revoke(realm: Handle, topic: str, entity: str, rights: Iterable[Right] = BOTH) -> RealmState:
    """Takes rights away; subscriptions stay and sleep until the right comes back. Where readers hold a key, a new epoch
    begins with it; where they stand in an overlay, a new generation without the one who left."""
    now, issuer, change = realm.clock(), realm.issuer(), Revoke(topic, entity, tuple(rights))

    def decide(state: RealmState) -> list[Change]:
        after = apply(state, change)
        if state.terms_of(topic, entity) == after.terms_of(topic, entity):
            return []
        made: list[Change] = [change, *unplaced(after, now, entity, [topic])]
        return [*made, *issuer.rekeying(state, apply_all(state, made), entity, now)]

    return realm.registry.transact(decide)
