"""A topic's key in one epoch, and what follows from it.

The topic's key center makes it, out of a secret of its own, and hands it to the brokers that serve the topic. From it
follow the pair keys, one for each entity, which the center hands to these entities, and the root of all keys that the
broker makes for the content itself. So an entity knows its own pair key; a broker knows the topics that it serves, in
the epochs in which it served them; and the center knows all of its topics.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from sealcast.primitives import hpke, kdf
from sealcast.primitives.secrets import Secret, Unpicklable
from sealcast.trust.layout import FIRST_BROKER
from sealcast.trust.realm.changes import PublishPairKey, PublishTopicKey

if TYPE_CHECKING:
    from sealcast.trust.realm.state import Entity
    from sealcast.trust.realm.topics import Topic

#: What a sealed key is for: part of what HPKE binds, so that it opens as nothing else.
TOPIC_KEY_INFO: Final = b"sealcast topic key"
PAIR_KEY_INFO: Final = b"sealcast pair key"


def place(topic_id: bytes, epoch: int, name: str) -> bytes:
    """Names one key of one holder. The topic's id has a fixed size, so the parts cannot run into each other."""
    return topic_id + epoch.to_bytes(8, "big") + name.encode()


def at_broker(secret: Secret, broker: str) -> Secret:
    """A secret as one broker seals with it.

    A nonce is a position in a broker's own log, and brokers that serve one topic have its key in common. So no two of
    them seal under the same keys, or one nonce would meet two events. The realm's first broker uses the secret itself.
    """
    return secret if broker == FIRST_BROKER else kdf.derive(secret, b"at broker", broker.encode())


class TopicKeys(Unpicklable):
    """What center and brokers share for one topic and epoch. It stays in the process that opened it."""

    __slots__ = ("_key", "epoch", "topic_id")

    def __init__(self, topic_id: bytes, epoch: int, key: Secret) -> None:
        self.topic_id = topic_id
        self.epoch = epoch
        self._key = key

    def pair_key(self, entity: str) -> Secret:
        """The key that the brokers and `entity` share."""
        return kdf.derive(self._key, b"pair", place(self.topic_id, self.epoch, entity))

    def mailbox_key(self, entity: str, broker: str) -> Secret:
        """What a broker's deliveries to `entity` start from: `at_broker` of its pair key."""
        return at_broker(self.pair_key(entity), broker)

    def content_root(self, broker: str = FIRST_BROKER) -> Secret:
        """The root of the content and group keys that a broker makes."""
        return at_broker(kdf.derive(self._key, b"content root"), broker)

    def for_entity(self, topic: Topic, entity: Entity) -> PublishPairKey:
        """The entity's pair key, sealed to it alone: a change ready for the registry."""
        at = place(self.topic_id, self.epoch, entity.name)
        sealed = hpke.seal(entity.kem_public, self.pair_key(entity.name).reveal(), PAIR_KEY_INFO, at)
        return PublishPairKey(topic.name, self.epoch, entity.name, sealed)

    def for_broker(self, topic: Topic, broker: Entity) -> PublishTopicKey:
        """The topic's key itself, sealed to one broker."""
        at = place(self.topic_id, self.epoch, broker.name)
        sealed = hpke.seal(broker.kem_public, self._key.reveal(), TOPIC_KEY_INFO, at)
        return PublishTopicKey(topic.name, self.epoch, broker.name, sealed)
