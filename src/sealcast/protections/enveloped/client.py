"""The client side of protections whose publishers seal events for readers: brokers pass them on, readers open them.

The content key of an epoch comes from the key center, sealed to each who may have it, through the registry.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import cache, lru_cache

from sealcast.errors import Bug, CannotOpen
from sealcast.protections.checked import CheckedBatch, Refusals
from sealcast.protections.endpoint.client import incarnations, opener_at, openers_with
from sealcast.protections.enveloped.open import Opener, Unseal
from sealcast.protections.enveloped.publish import EventSealer
from sealcast.protections.opened import OpenedPart
from sealcast.protections.port import AsksOf, KeysOf, Measured, Messages, Opens, Proven, Reader
from sealcast.protections.proving import part_of, proven
from sealcast.protections.registered import RegisteredInbox, RegisteredSide, broker_that_serves
from sealcast.protections.stays import FoundPart
from sealcast.protections.verify import publishers_keys
from sealcast.trust.handles import EntityRealm
from sealcast.trust.keys.identity import Identity
from sealcast.trust.keys.topic_keys import ContentKey, EntityKeys
from sealcast.trust.realm.state import RealmState
from sealcast.trust.realm.topics import Topic
from sealcast.wire.sealed import SealedPiece


class EnvelopedWay(ABC):
    """A publisher's way: each event sealed once for all readers, to the one broker that was chosen."""

    def __init__(self, topic: str, identity: Identity, broker: str) -> None:
        self._topic, self._identity, self._broker = topic, identity, broker
        self._sealer: EventSealer | None = None

    @abstractmethod
    def sealer(self, about: Topic, epoch: int, keys: EntityKeys, content: ContentKey) -> EventSealer:
        """What seals its events in that epoch."""

    def take(self, state: RealmState, epoch: int) -> Sequence[str]:
        about, broker = state.topic(self._topic), broker_that_serves(state, self._topic, self._broker)
        if self._sealer is None or (self._sealer.schema, self._sealer.epoch) != (about.schema, epoch):
            keys = self._identity.topic_keys(state, self._topic, epoch)
            self._sealer = self.sealer(about, epoch, keys, _content(keys, self._topic, epoch))
        return (broker,)

    def check(self, batch: CheckedBatch) -> Refusals:
        return self._made.check(batch)

    def messages(self, batch: CheckedBatch) -> Iterator[Messages]:
        yield len(batch), {self._broker: self._made.messages(batch)}

    @property
    def _made(self) -> EventSealer:
        if self._sealer is None:
            raise Bug("a way goes by no registry yet")
        return self._sealer


class EnvelopedInbox(RegisteredInbox):
    """One reader's events, wherever it is served."""

    def __init__(self, reader: Reader, side: EnvelopedSide) -> None:
        super().__init__(reader, side)
        self._side, self._schema = side, b""
        self._known = self._opener
        self._unseal = cache(self._unsealing)
        #: One key an epoch, which takes no room worth counting.
        self.keys = Measured()

    @property
    def _opener(self) -> Opener:
        """A version of the schema that came since is for an opener that knows it."""
        at = self.reader
        schema = (at.realm.registry.known or at.realm.state()).topic(at.topic).schema.digest
        if schema != self._schema:
            self._schema = schema
            self._known = self._side.opener_for(at.realm, at.topic, self.identity)
        return self._known

    def open(self, found: FoundPart[SealedPiece]) -> OpenedPart:
        return self._opener.open_part(found.part, self._unseal(found.broker))

    def prove(self, broker: str, piece: SealedPiece, known: dict[int, bytes]) -> Proven:
        part, unseal = part_of(piece, self.mail.mailbox(broker).recipient), self._unseal(broker)
        return proven(part, lambda some: self._opener.open_part(some, unseal))

    def _unsealing(self, broker: str) -> Unseal:
        """Takes off what brokers put on after a compromise, when they seal again for one reader as `endpoint` does. The
        reader's pair key of an epoch is opened when it is first needed, and kept."""
        realm, topic = self.reader.realm, self.reader.topic
        incarnation_of = incarnations(realm, topic)
        slot = self._side.slot(realm, topic, self.reader.name)
        opener = cache(lambda epoch, within: opener_at(realm, topic, broker, self.identity, epoch, within, slot))

        def unseal(piece: SealedPiece, event: int, use: int) -> bytes:
            return opener(piece.epoch, incarnation_of(broker, piece.version)).open_body(piece, event, use)

        return unseal


class EnvelopedSide(RegisteredSide):
    """What the client sides of such protections share."""

    opener: type[Opener]

    def opener_for(self, realm: EntityRealm, topic: str, identity: Identity) -> Opener:
        """What opens a topic's events with one entity's keys."""
        return self.opener_with(realm.state, topic, lambda epoch: identity.topic_keys(realm.state(), topic, epoch))

    def opener_with(self, state: Callable[[], RealmState], topic: str, keys_of: KeysOf) -> Opener:
        """What opens a topic's events with these keys, whosever they are."""
        reading = lru_cache(lambda epoch: _reading(keys_of(epoch), topic, epoch))
        return self.opener(state().topic(topic), publishers_keys(state), reading)

    def opens_with(self, state: RealmState, topic: str, broker: str, slot: int, keys_of: KeysOf) -> Opens:
        opener = self.opener_with(lambda: state, topic, keys_of)
        openers = openers_with(state, topic, broker, slot, keys_of)

        def unseal(piece: SealedPiece, event: int, use: int) -> bytes:
            return openers(piece).open_body(piece, event, use)

        return lambda piece, event, use: opener.open(piece, event, use, unseal)

    def asks_of_past(self, realm: EntityRealm, topic: str, reader: str, text: str) -> AsksOf:
        """In the epochs whose content key the reader holds: what publishers sealed in others it could not open."""
        identity = realm.identity(reader)
        self.vet(text, realm.state().topic(topic))

        def asks(epoch: int) -> str | None:
            state = realm.state()
            if state.pair_key(topic, epoch, reader) is None:
                return None
            keys = identity.topic_keys(state, topic, epoch)
            if keys.content is None or not keys.content.reads:
                return None
            return self.asked_in(epoch, state.topic(topic), reader, keys, text)

        return asks

    def asked_in(self, epoch: int, about: Topic, reader: str, keys: EntityKeys, text: str) -> str:
        """A filter as brokers take it in an epoch: as it is, where they read filters."""
        return text

    def inbox(self, reader: Reader) -> EnvelopedInbox:
        return EnvelopedInbox(reader, self)

    def key_asker(self, realm: EntityRealm, topic: str, subscriber: str) -> AbstractContextManager[None]:
        return nullcontext()


def _content(keys: EntityKeys, topic: str, epoch: int) -> ContentKey:
    if keys.content is None:
        raise CannotOpen(f"no content key of topic {topic!r} (epoch {epoch}) was issued")
    return keys.content


def _reading(keys: EntityKeys, topic: str, epoch: int) -> ContentKey:
    content = _content(keys, topic, epoch)
    if not content.reads:
        raise CannotOpen(f"the key of topic {topic!r} that was issued (epoch {epoch}) lets one publish, and not read")
    return content
