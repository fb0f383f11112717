"""The keys of the `searchable` protection. A user gets both parts of the epoch sealed in its row of the registry.

    content key     opens and seals envelopes (`enveloped.keys`); who may only publish gets its own part of it
    search part     the user's half of x, the search secret S and the point H (`primitives.halves`): seals the labels of
                    its filters, and makes trapdoors of the labels of its events

Brokers have the other halves, and no content key. The key center has everything.
"""

from __future__ import annotations

from sealcast.errors import CannotOpen, Misuse
from sealcast.model.protection import Searchable
from sealcast.protections.searchable.scheme import Holder, UserKeys
from sealcast.trust.keys.topic_keys import EntityKeys
from sealcast.trust.realm.topics import Topic


def settings_of(topic: Topic) -> Searchable:
    """Misuse for a topic of another protection."""
    if not isinstance(topic.protection, Searchable):
        raise Misuse(f"topic {topic.name!r} is protected by `{topic.protection}`, not by `{Searchable.name}`")
    return topic.protection


def user_keys(given: EntityKeys, topic: Topic, epoch: int, name: str) -> UserKeys:
    """What an entity seals labels with in an epoch; CannotOpen if it was given no such part."""
    if given.search is None:
        raise CannotOpen(f"no search key of topic {topic.name!r} was issued to {name!r}")
    return UserKeys(given.search, Holder(topic.id, epoch, name), settings_of(topic).tag_bits)
