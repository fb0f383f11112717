"""A topic's settings, for those of this room who know that it is theirs."""

from __future__ import annotations

from sealcast.errors import Misuse
from sealcast.model.protection import AttributeBased
from sealcast.model.schema import Type
from sealcast.primitives.pairing.port import G1_BYTES, G2_BYTES
from sealcast.primitives.secrets import KEY_BYTES
from sealcast.protections.attribute.credentials import EventSpace
from sealcast.trust.realm.topics import Topic


def settings_of(topic: Topic) -> AttributeBased:
    """Misuse for a topic of another protection."""
    if not isinstance(topic.protection, AttributeBased):
        raise Misuse(f"topic {topic.name!r} is protected by `{topic.protection}`, not by `{AttributeBased.name}`")
    return topic.protection


def token_bytes(settings: AttributeBased) -> int:
    """Of one routing token: a hash's key, or a point of the group that its profile takes for it."""
    if settings.tags == "keyed":
        return KEY_BYTES
    return G2_BYTES if settings.profile == "A" else G1_BYTES


def event_space(topic: Topic) -> EventSpace:
    """The spaces that events and filters of a topic have labels in."""
    return EventSpace(topic.schema, joint=settings_of(topic).joint)


def unbounded_texts(topic: Topic) -> dict[str, int]:
    """The texts of the schema without a greatest length, and how many positions of every event each takes."""
    found = dict[str, int]()
    for space in event_space(topic).spaces.values():
        for attribute in map(topic.schema.by_name.__getitem__, space.attributes):
            if attribute.type is Type.STRING and attribute.max_length is None:
                found[attribute.name] = found.get(attribute.name, 0) + space.positions
    return found


def is_attribute(topic: Topic) -> bool:
    return isinstance(topic.protection, AttributeBased)
