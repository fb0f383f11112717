"""publish: Event -> message. Each event is sealed once, for whoever has a key that fits, before it leaves home.

    inside  = topic's id (16) | u8 size | publisher's name (UTF-8) | the event's record
    message = the sealed event (`wire.attribute`): ciphertexts for every label of the event, and inside under their key

The name is inside because a signature in the name of credentials does not say who made it: whoever may publish could
send another's ciphertext as its own. So a reader takes what is inside for the word of whoever signed the frame, or not
at all.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from sealcast.errors import Bug, CannotOpen, EventRejected
from sealcast.model.bounded import bounded
from sealcast.primitives.secrets import Unpicklable
from sealcast.protections.attribute.keys import CredentialRing
from sealcast.protections.attribute.scheme import (
    AttributeSealer,
    OutgoingEvent,
    PublicParameters,
    PublisherKey,
    SealOptions,
)
from sealcast.protections.attribute.settings import event_space, settings_of
from sealcast.protections.checked import CheckedBatch, CheckedEvent, Refusals
from sealcast.protections.port import Messages
from sealcast.trust.handles import EntityRealm
from sealcast.trust.keys.identity import Identity
from sealcast.trust.realm.state import RealmState
from sealcast.trust.realm.topics import Topic
from sealcast.wire.attribute import Profile
from sealcast.wire.frame import TOPIC_BYTES
from sealcast.wire.limits import MAX_MESSAGE_BYTES
from sealcast.wire.records import RecordCodec, fresh_salts

#: Headers that a publisher goes on using, where its topic lets it.
HEADERS_KEPT: Final = 4_096
#: Of sealed events in one frame: they share a signature, and the first does not wait long for the last.
BYTES_PER_FRAME: Final = 4 << 20
#: Around an event's ciphertexts: names of spaces, tags of frames, what is signed. Far more than it takes.
_SLACK: Final = 4_096
_LABEL_BYTES: Final = 48 + 16
_SIGNED_BYTES: Final = 512


class EventEncryptor(Unpicklable):
    """One publisher on one topic in one epoch."""

    def __init__(self, about: Topic, epoch: int, name: str, parameters: PublicParameters, key: PublisherKey) -> None:
        self.about, self.epoch = about, epoch
        self._codec, self._space = RecordCodec(about.schema), event_space(about)
        self._head = inside_head(about.id, name)
        settings = settings_of(about)
        options = SealOptions(reuse=HEADERS_KEPT if settings.reuse else 0, session=settings.session)
        self._sealer = AttributeSealer(parameters, key, options)
        #: What it may publish, by the labels that its key signs for.
        self._may = {
            name: tuple(c.label for c in key.credentials if c.attribute == name) for name in self._space.spaces
        }
        points, spaces = Profile(parameters.profile).point_bytes, len(self._space.spaces)
        self._most = self._space.positions * _LABEL_BYTES + spaces * (points + _SIGNED_BYTES) + _SLACK

    def check(self, event: CheckedEvent) -> None:
        """EventRejected for an event that its publisher may not publish, or that would not fit into a message."""
        self._space.signing(self._may, self._space.event(event.values))
        (record,) = self._codec.encode([event.values], [event.payload], event.content_type)
        size = len(self._head) + len(record) + self._most
        if size > MAX_MESSAGE_BYTES:
            raise EventRejected(f"the event takes {size} bytes when it is sealed, {MAX_MESSAGE_BYTES} are allowed")

    def messages(self, batch: CheckedBatch) -> list[bytes]:
        """Events that passed `check`, sealed, in order."""
        records = batch.records(self._codec, fresh_salts(len(batch)))
        return self._sealer.seal(
            [
                OutgoingEvent(self._space.event(each.values), self._head + record)
                for each, record in zip(batch, records, strict=True)
            ]
        )


class AttributeWay:
    """A publisher's way: into a log of its own, from which its peer carries events on."""

    def __init__(self, realm: EntityRealm, topic: str, identity: Identity) -> None:
        self._realm, self._topic, self._identity = realm, topic, identity
        self._encryptor: EventEncryptor | None = None

    def take(self, state: RealmState, epoch: int) -> Sequence[str]:
        about, known = state.topic(self._topic).in_epoch(epoch), self._encryptor
        if known is None or (known.about.schema, known.epoch) != (about.schema, epoch):
            with CredentialRing(self._realm, self._topic, self._identity) as ring:
                given = ring.publishing(epoch)
            parameters = PublicParameters.from_bytes(given.parameters)
            key = PublisherKey.parse(given.key)
            self._encryptor = EventEncryptor(about, epoch, self._identity.name, parameters, key)
        return (self._identity.name,)

    def check(self, batch: CheckedBatch) -> Refusals:
        return batch.refused(range(len(batch)), self._made.check)

    def messages(self, batch: CheckedBatch) -> Iterator[Messages]:
        # A sealed event is many times as large as the event: a frame's worth of these is more than a frame holds.
        for some in bounded(self._made.messages(batch), len, BYTES_PER_FRAME):
            yield len(some), {self._identity.name: some}

    @property
    def _made(self) -> EventEncryptor:
        if self._encryptor is None:
            raise Bug("a way goes by no registry yet")
        return self._encryptor


def inside_head(topic_id: bytes, publisher: str) -> bytes:
    """What stands before an event's record: for which topic it was made, and by whom."""
    name = publisher.encode()
    return topic_id + len(name).to_bytes(1, "big") + name


def inside_record(inside: bytes, topic_id: bytes, publisher: str) -> bytes:
    """The record that stands behind the head; CannotOpen unless this publisher made it for this topic."""
    end = TOPIC_BYTES + 1 + (inside[TOPIC_BYTES] if len(inside) > TOPIC_BYTES else 0)
    if inside[:end] != inside_head(topic_id, publisher):
        raise CannotOpen(f"somebody else than {publisher} made this event, or it was made for another topic")
    return inside[end:]
