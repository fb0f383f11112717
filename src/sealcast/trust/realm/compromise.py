"""What has to change when somebody's keys are known to others: worked out from a state, and from nothing else.

Paper 004 (Pallickara and others), section 5.3, asks for three things: new keys for the topics that the entity could
use, word of it to everybody, and missed messages under the new keys. This is the first: which topics, and why.

    an entity      every topic of which it holds a pair key of the present epoch, also one that it may not use any more
    a participant  every layered topic for which it announced a layer key in any epoch, or in whose overlay it stands:
                   what was routed in earlier epochs is on its way for a while, under keys that were agreed on with it
    a broker       every topic whose present key it was handed
    a key center   every topic that it manages: they move to another center, whose keys it cannot derive

Whoever has none of that, holds nothing that still counts. So the plan of a state in which everything was done is empty,
and a response that was cut short goes on when it is begun again. Keys of earlier epochs open what was sealed then, if
it still lies there: `touched` says which topics that concerns.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import chain

from sealcast.errors import Misuse
from sealcast.trust.certificates.roles import Role
from sealcast.trust.realm.state import Entity, RealmState
from sealcast.trust.realm.topics import TopicState
from sealcast.wire.sealed_texts import is_sealed_text, key_id_of


@dataclass(frozen=True, slots=True)
class Affected:
    """A topic that gets a new epoch."""

    topic: str
    #: The one that ends.
    epoch: int
    #: What the entity has of it.
    why: str
    #: The center that it moves to; empty when it stays.
    center: str = ""


@dataclass(frozen=True, slots=True)
class CompromisePlan:
    """What is left to be done about one entity."""

    entity: str
    #: Whether it, or one of its certificates, still counts.
    revoke: bool
    #: Its live subscriptions, which end.
    subscriptions: tuple[str, ...]
    topics: tuple[Affected, ...]

    @property
    def done(self) -> bool:
        return not (self.revoke or self.subscriptions or self.topics)


def plan(state: RealmState, name: str, center: str | None = None, *, made: bool = False) -> CompromisePlan:
    """What a state asks for, once `name` is compromised. `center` takes the topics of a key center that is; `made` says
    that it would be made for that."""
    who = state.entity(name)
    live = [s.id for topic in state.topics for s in state.subscriptions_of(topic) if s.subscriber == name]
    counts = not who.revoked or any(not state.revoked.is_revoked(serial) for serial in who.serials)
    affected = [found for each in state.topics.values() if (found := _affected(state, who, each, center, made, counts))]
    return CompromisePlan(name, counts, tuple(live), tuple(affected))


def filters_known(state: RealmState, name: str) -> dict[str, int]:
    """By topic, how many live filters were sealed to a broker: whoever has its keys knows them, for good."""
    known = {
        topic: sum(
            is_sealed_text(each.filter) and (key_id_of(each.filter), name) in found.filter_keys
            for each in found.subscriptions.values()
        )
        for topic, found in state.topics.items()
    }
    return {topic: count for topic, count in known.items() if count}


def touched(state: RealmState, name: str) -> list[str]:
    """The topics of which an entity had a key in any epoch, or a place: where its keys may open something."""
    who = state.entity(name)
    return [topic for topic, found in state.topics.items() if _had(found, who)]


def _had(found: TopicState, who: Entity) -> bool:
    keys = chain(found.topic_keys, found.pair_keys, found.layer_keys)
    # Which centers came before the present one is not in the state.
    managed = found.topic.center == who.name or (Role.KEY_CENTER in who.roles and found.topic.center_since > 1)
    return managed or who.name in found.nodes or who.name in found.places or any(n == who.name for _, n in keys)


def _affected(
    state: RealmState, who: Entity, found: TopicState, center: str | None, made: bool, counts: bool
) -> Affected | None:
    topic = found.topic
    if topic.center == who.name:
        taking = center if made and center is not None else successor(state, who, center)
        return Affected(topic.name, topic.epoch, "it makes the topic's keys", taking)
    if state.topic_key(topic.name, topic.epoch, who.name) is not None:
        return Affected(topic.name, topic.epoch, "it was handed the topic's key")
    if state.pair_key(topic.name, topic.epoch, who.name) is not None:
        return Affected(topic.name, topic.epoch, "it has a pair key")
    if state.layer_key(topic.name, topic.epoch, who.name) is not None:
        return Affected(topic.name, topic.epoch, "it has a layer key")
    # Once it is revoked, whoever knew it has begun anew without it: only as long as it counts is there more to do.
    if counts and any(name == who.name for _, name in found.layer_keys):
        return Affected(topic.name, topic.epoch, "it has a layer key of an earlier epoch")
    if who.name in state.overlay(topic.name).parents:
        return Affected(topic.name, topic.epoch, "it stands in the topic's overlay")
    return None


def successor(state: RealmState, who: Entity, wanted: str | None = None) -> str:
    """The key center that takes over from one: the one that was asked for, else the first of the others."""
    others = [center.name for center in state.holders(Role.KEY_CENTER) if center.name != who.name]
    if wanted is not None and wanted not in others:
        raise Misuse(f"{wanted!r} is no other key center than {who.name!r}", hint=f"there are: {', '.join(others)}")
    if not others:
        raise Misuse(
            f"{who.name!r} is the only key center: nobody could take its topics over",
            hint="make another first: sealcast entity enrol NAME --role key-center",
        )
    return others[0] if wanted is None else wanted


def unserved(state: RealmState, topics: tuple[Affected, ...]) -> list[str]:
    """Of these topics, those that brokers serve and whose present key none has: they wait until one is handed it."""
    brokers = [broker.name for broker in state.holders(Role.BROKER)]
    named = [each.topic for each in topics if not state.topic(each.topic).protection.peers]
    return [t for t in named if not any(state.topic_key(t, state.topic(t).epoch, b) is not None for b in brokers)]
