"""A topic's key in one epoch, and what follows from it.

The topic's key center makes it, out of a secret of its own, and hands it to the brokers that serve the topic. From it
follow the pair keys, one for each entity, which the center hands to these entities, and the root of all keys that the
broker makes for the content itself. So an entity knows its own pair key; a broker knows the topics that it serves, in
the epochs in which it served them; and the center knows all of its topics.

On some topics (`Protection.readers_hold_key`) publishers seal for readers under a content key, which does not follow
from the topic's key: the center makes it apart and hands it, beside the pair key, to whoever may read. Who may only
publish gets a key of its own that follows from it. No broker gets either.

On some of these (`Protection.filters_sealed`) brokers search in ciphertexts. The center makes a master exponent x and a
secret S for each epoch, apart from the topic's key. For every user, x is the sum of two halves: the broker's half
follows from the topic's key, the user gets the rest, with S and the public point x G. Neither alone has x.

Where peers carry events themselves (`Protection.peers`) there is no broker to share a key with. The pair key then seals
a publisher's frames in its own log, and what opens events is asked of the center for each subscription.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from sealcast.errors import CannotOpen, Misuse
from sealcast.primitives import hybrid, kdf
from sealcast.primitives import kem as kems
from sealcast.primitives.groups import Exponent
from sealcast.primitives.halves import MasterKey, UserPart, broker_half
from sealcast.primitives.kem import EntityKey
from sealcast.primitives.secrets import KEY_BYTES, Secret, Unpicklable
from sealcast.trust.layout import FIRST_BROKER
from sealcast.trust.realm.changes import PublishPairKey, PublishTopicKey
from sealcast.trust.realm.rules.topics import RECEIVED_KEY_BYTES

if TYPE_CHECKING:
    from sealcast.trust.realm.state import Entity
    from sealcast.trust.realm.topics import ReceivingKey, Topic

#: What a sealed key is for: part of what HPKE binds, so that it opens as nothing else.
TOPIC_KEY_INFO: Final = b"sealcast topic key"
PAIR_KEY_INFO: Final = b"sealcast pair key"
#: Before a topic's key that is sealed to a receiving key: which of them.
NUMBER_BYTES: Final = 8
#: Before a content key: whether it opens everyone's events, or seals its holder's own.
_READS, _PUBLISHES = b"\x01", b"\x02"
#: Where a content key ends in what an entity is handed.
_CONTENT_END: Final = 2 * KEY_BYTES + 1


def place(topic_id: bytes, epoch: int, name: str) -> bytes:
    """Names one key of one holder. The topic's id has a fixed size, so the parts cannot run into each other."""
    return topic_id + epoch.to_bytes(8, "big") + name.encode()


def at_broker(secret: Secret, broker: str, incarnation: bytes) -> Secret:
    """A secret as one broker seals with it in one of its incarnations (`RealmState.incarnation`).

    A nonce is a position in a broker's own log, and brokers that serve one topic have its key in common. So no two of
    them seal under the same keys, or one nonce would meet two events. The realm's first broker uses the secret itself.

    A log that was lost, or put back from a copy, gives positions again that were taken before. So no two runs seal
    under the same keys either: each has a random incarnation. What was sealed before the first one has none.
    """
    own = secret if broker == FIRST_BROKER else kdf.derive(secret, b"at broker", broker.encode())
    return kdf.derive(own, b"incarnation", incarnation) if incarnation else own


class ContentKey(Unpicklable):
    """What seals and opens events for readers: the content key of an epoch, or one publisher's own part of it."""

    __slots__ = ("_secret", "reads")

    def __init__(self, secret: Secret, *, reads: bool) -> None:
        self._secret = secret
        #: Whether it opens everyone's events, or seals those of one publisher only.
        self.reads = reads

    def of_publisher(self, name: str) -> Secret:
        """What a publisher's boot keys start from; who holds a publisher's own key has just that."""
        return kdf.derive(self._secret, b"publisher", name.encode()) if self.reads else self._secret

    def for_publisher(self, name: str) -> ContentKey:
        """What somebody gets who may publish and not read."""
        return ContentKey(self.of_publisher(name), reads=False)

    def to_bytes(self) -> bytes:
        """To be sealed, and for nothing else."""
        return (_READS if self.reads else _PUBLISHES) + self._secret.reveal()

    @classmethod
    def from_bytes(cls, data: bytes) -> ContentKey:
        if len(data) != 1 + KEY_BYTES or data[:1] not in (_READS, _PUBLISHES):
            raise CannotOpen("what came beside a pair key is no content key")
        return cls(Secret(data[1:]), reads=data[:1] == _READS)


class EntityKeys(NamedTuple):
    """What one entity was handed for one topic and epoch."""

    pair: Secret
    content: ContentKey | None
    search: UserPart | None = None


def open_entity_keys(kem: EntityKey, sealed: bytes, topic_id: bytes, epoch: int, name: str) -> EntityKeys:
    """By the entity that they were sealed to; CannotOpen for anybody else, or when they were altered."""
    opened = kem.open(sealed, PAIR_KEY_INFO, place(topic_id, epoch, name))
    if len(opened) < KEY_BYTES:
        raise CannotOpen(f"the key of a topic that was issued to {name!r} has the wrong size")
    pair, content, search = opened[:KEY_BYTES], opened[KEY_BYTES:_CONTENT_END], opened[_CONTENT_END:]
    return EntityKeys(
        Secret(pair),
        ContentKey.from_bytes(content) if content else None,
        UserPart.from_bytes(search) if search else None,
    )


class TopicKeys(Unpicklable):
    """What center and brokers share for one topic and epoch. It stays in the process that opened it."""

    __slots__ = ("_content", "_key", "epoch", "topic_id")

    def __init__(self, topic_id: bytes, epoch: int, key: Secret, content: Secret | None = None) -> None:
        """`content` is the content key, which the topic's center knows and no broker."""
        self.topic_id = topic_id
        self.epoch = epoch
        self._key = key
        self._content = content

    def pair_key(self, entity: str) -> Secret:
        """The key that the brokers and `entity` share."""
        return kdf.derive(self._key, b"pair", place(self.topic_id, self.epoch, entity))

    def mailbox_key(self, entity: str, broker: str, incarnation: bytes) -> Secret:
        """What a broker's deliveries to `entity` start from: `at_broker` of its pair key."""
        return at_broker(self.pair_key(entity), broker, incarnation)

    @property
    def content(self) -> ContentKey | None:
        """The content key, which opens everyone's events; None at a broker, and where the topic has none."""
        return None if self._content is None else ContentKey(self._content, reads=True)

    def content_root(self, broker: str = FIRST_BROKER, incarnation: bytes = b"") -> Secret:
        """The root of the content and group keys that a broker makes."""
        return at_broker(kdf.derive(self._key, b"content root"), broker, incarnation)

    def search_half(self, entity: str) -> Exponent:
        """The brokers' half for one user. The center has it, too: it makes the user's out of it."""
        return broker_half(self._key, place(self.topic_id, self.epoch, entity))

    def for_entity(self, topic: Topic, entity: Entity, *, reads: bool) -> PublishPairKey:
        """The entity's keys, sealed to it alone: a change ready for the registry. `reads` says whether it may read."""
        at, keys = place(self.topic_id, self.epoch, entity.name), self.pair_key(entity.name).reveal()
        if topic.protection.readers_hold_key and not topic.protection.peers:
            content = self.content
            if content is None or self._content is None:
                raise Misuse(f"only the center of topic {topic.name!r} hands out its content key")
            keys += (content if reads else content.for_publisher(entity.name)).to_bytes()
            if topic.protection.filters_sealed:
                master = MasterKey.derive(self._content, place(self.topic_id, self.epoch, ""))
                keys += master.part(self.search_half(entity.name)).to_bytes()
        return PublishPairKey(
            topic.name, self.epoch, entity.name, kems.seal(entity.kem_public, keys, PAIR_KEY_INFO, at)
        )

    def for_broker(self, topic: Topic, broker: Entity, by: ReceivingKey | None = None) -> PublishTopicKey:
        """The topic's key itself, sealed to one broker: by a receiving key that the broker forgets one day, or by the
        one in its certificate."""
        at = place(self.topic_id, self.epoch, broker.name)
        if by is None:
            sealed = kems.seal(broker.kem_public, self._key.reveal(), TOPIC_KEY_INFO, at)
        else:
            number = by.number.to_bytes(NUMBER_BYTES, "big")
            sealed = number + hybrid.seal(by.public, self._key.reveal(), TOPIC_KEY_INFO, number + at)
        return PublishTopicKey(topic.name, self.epoch, broker.name, sealed)


def received_by(sealed: bytes) -> int | None:
    """The number of the receiving key that a topic's key is sealed to; None for the one in the certificate."""
    return int.from_bytes(sealed[:NUMBER_BYTES], "big") if len(sealed) == RECEIVED_KEY_BYTES else None
