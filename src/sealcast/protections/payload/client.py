"""The client side of `payload`: publishers seal events for readers, brokers pass them on, readers open them.

The content key of an epoch comes from the key center, sealed to each who may have it, through the registry.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import lru_cache
from typing import Final

from sealcast.errors import Bug, CannotOpen
from sealcast.model.event import OpenedEvent
from sealcast.protections.endpoint.client import opener_at
from sealcast.protections.payload.open import Opener, Unseal
from sealcast.protections.payload.publish import EventSealer
from sealcast.protections.port import CheckedEvent, ClientSide, Measured, Messages, Proven, Reader
from sealcast.protections.proving import proven
from sealcast.protections.registered import RegisteredInbox, RegisteredSide, broker_that_serves
from sealcast.protections.stays import Found
from sealcast.protections.verify import publishers_keys
from sealcast.trust.handles import EntityRealm
from sealcast.trust.keys.identity import Identity
from sealcast.trust.keys.topic_keys import ContentKey
from sealcast.trust.realm.state import RealmState
from sealcast.wire.sealed import SealedPiece


class PayloadWay:
    """A publisher's way: each event sealed once for all readers, to the one broker that was chosen."""

    def __init__(self, topic: str, identity: Identity, broker: str) -> None:
        self._topic, self._identity, self._broker = topic, identity, broker
        self._sealer: EventSealer | None = None

    def take(self, state: RealmState, epoch: int) -> Sequence[str]:
        about, broker = state.topic(self._topic), broker_that_serves(state, self._topic, self._broker)
        if self._sealer is None or (self._sealer.schema, self._sealer.epoch) != (about.schema, epoch):
            content = _content(self._identity, state, self._topic, epoch)
            self._sealer = EventSealer(
                about.schema,
                about.id,
                epoch,
                content.of_publisher(self._identity.name),
                hidden=about.protection.hidden,
                pad=about.protection.step,
                key_bits=about.parameters.key_bits,
            )
        return (broker,)

    def check(self, event: CheckedEvent) -> None:
        self._made.check(event.values, event.payload, event.content_type)

    def messages(self, batch: Sequence[CheckedEvent]) -> Iterator[Messages]:
        values, payloads, kinds = zip(*((e.values, e.payload, e.content_type) for e in batch), strict=True)
        yield len(batch), {self._broker: self._made.messages(values, payloads, kinds)}

    @property
    def _made(self) -> EventSealer:
        if self._sealer is None:
            raise Bug("a way goes by no registry yet")
        return self._sealer


class PayloadInbox(RegisteredInbox):
    """One reader's events, wherever it is served."""

    def __init__(self, reader: Reader) -> None:
        super().__init__(reader, _SIDE)
        self._opener = opener_for(reader.realm, reader.topic, self.identity)
        #: One key an epoch, which takes no room worth counting.
        self.keys = Measured()

    def open(self, found: Found[SealedPiece]) -> OpenedEvent:
        delivery = found.delivery
        return self._opener.open(delivery.piece, delivery.event, delivery.handle, self._unseal(found.broker))

    def prove(self, broker: str, piece: SealedPiece, known: dict[int, bytes]) -> Proven:
        recipient, unseal = self.mail.mailbox(broker).recipient, self._unseal(broker)
        return proven(piece, recipient, lambda event, handle: self._opener.open(piece, event, handle, unseal))

    def _unseal(self, broker: str) -> Unseal:
        """With its own pair key: how `endpoint` seals for one reader is how brokers seal again after a compromise."""
        reader, identity = self.reader, self.identity

        def unseal(piece: SealedPiece, event: int, use: int) -> bytes:
            slot = _SIDE.slot(reader.realm, reader.topic, reader.name)
            opener = opener_at(reader.realm, reader.topic, broker, identity, piece.epoch, slot)
            return opener.open_body(piece, event, use)

        return unseal


def opener_for(realm: EntityRealm, topic: str, identity: Identity) -> Opener:
    """What opens a topic's events with one entity's keys."""
    about = realm.state().topic(topic)
    return Opener(
        about.schema,
        about.id,
        about.protection.hidden,
        about.parameters.key_bits,
        publishers_keys(realm.state),
        lru_cache(lambda epoch: _reading(identity, realm.state(), topic, epoch)),
    )


def _content(identity: Identity, state: RealmState, topic: str, epoch: int) -> ContentKey:
    content = identity.topic_keys(state, topic, epoch).content
    if content is None:
        raise CannotOpen(f"no content key of topic {topic!r} (epoch {epoch}) was issued to {identity.name!r}")
    return content


def _reading(identity: Identity, state: RealmState, topic: str, epoch: int) -> ContentKey:
    content = _content(identity, state, topic, epoch)
    if not content.reads:
        raise CannotOpen(f"{identity.name!r} could publish on topic {topic!r} in epoch {epoch}, and not read")
    return content


class PayloadClient(RegisteredSide):
    def way(self, realm: EntityRealm, topic: str, identity: Identity, broker: str) -> PayloadWay:
        return PayloadWay(topic, identity, broker)

    def inbox(self, reader: Reader) -> PayloadInbox:
        return PayloadInbox(reader)

    def key_asker(self, realm: EntityRealm, topic: str, subscriber: str) -> AbstractContextManager[None]:
        return nullcontext()


_SIDE: Final = PayloadClient()
CLIENT: Final[ClientSide] = _SIDE
