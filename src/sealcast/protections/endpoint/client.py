"""The client side of `endpoint`: events go to a broker that reads them, and come back sealed for groups.

A subscriber reads its own key file, the public registry, and the ledger and pieces of its broker; nothing else of the
broker's, and nobody else's keys.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, lru_cache
from typing import Final

from sealcast.errors import CannotOpen, KeyMissing
from sealcast.model.event import OpenedEvent
from sealcast.primitives.secrets import Secret
from sealcast.protections.endpoint.key_answers import key_requests
from sealcast.protections.endpoint.missing import KeyAsker, MissingKeys
from sealcast.protections.endpoint.open import Opener
from sealcast.protections.endpoint.publish import Direct
from sealcast.protections.port import DEFAULT_KEY_MEMORY, ClientSide, KeysOf, Measured, Opens, Proven, Reader
from sealcast.protections.proving import proven
from sealcast.protections.registered import RegisteredInbox, RegisteredSide
from sealcast.protections.stays import Found
from sealcast.protections.verify import publishers_keys
from sealcast.trust.handles import EntityRealm
from sealcast.trust.keys.identity import Identity
from sealcast.trust.keys.topic_keys import at_broker
from sealcast.trust.realm.state import RealmState
from sealcast.wire.sealed import SealedPiece

#: Versions of pieces whose incarnation is remembered.
MAX_VERSIONS: Final = 1_024


class EndpointInbox(RegisteredInbox):
    """Keys come with the events that first need them; those that it lacks it looks for, or asks for."""

    def __init__(self, reader: Reader) -> None:
        super().__init__(reader, _SIDE)
        self._slot = _SIDE.slot(reader.realm, reader.topic, reader.name)
        self._openers: dict[tuple[str, int, bytes], Opener] = {}
        self._missing = cache(self._missing_at)
        self._incarnation = incarnations(reader.realm, reader.topic)
        # Whoever has no key for what comes next is told so now.
        self._opener(self.mail.home, reader.realm.state().topic(reader.topic).epoch, b"")

    @property
    def keys(self) -> Measured:
        return Measured.total(opener.keyring.measured for opener in self._openers.values())

    def open(self, found: Found[SealedPiece]) -> OpenedEvent:
        delivery = found.delivery
        opener = self._opener_of(found.broker, delivery.piece)
        try:
            return opener.open(delivery.piece, delivery.event, delivery.handle)
        except KeyMissing:
            self._missing(found.broker).find(opener, delivery, lambda p: self._opener_of(found.broker, p) is opener)
            return opener.open(delivery.piece, delivery.event, delivery.handle)

    def prove(self, broker: str, piece: SealedPiece, known: dict[int, bytes]) -> Proven:
        """The keys of all its events at once. A body is opened unless its very key opened it before: it is committed
        to its key."""
        opener = self._opener_of(broker, piece)
        events, uses = piece.rows_for(self._slot)
        try:
            keys = dict(zip(events.tolist(), opener.content_keys(piece, events, uses), strict=True))
        except CannotOpen as error:
            return Proven((), events.size, error.message)

        def opened(event: int, use: int) -> None:
            key = keys[event].tobytes()
            if not keys[event].any() or known.get(event) != key:
                opener.open(piece, event, use)
                known[event] = key

        return proven(piece, self.mail.mailbox(broker).recipient, opened)

    def _missing_at(self, broker: str) -> MissingKeys:
        at = self.reader
        return MissingKeys(self.mail.mailbox(broker), at.name, self.identity.signer, at.realm.clock, at.ask)

    def _opener_of(self, broker: str, piece: SealedPiece) -> Opener:
        return self._opener(broker, piece.epoch, self._incarnation(broker, piece.version))

    def _opener(self, broker: str, epoch: int, incarnation: bytes) -> Opener:
        opener = self._openers.get((broker, epoch, incarnation))
        if opener is None:
            at = self.reader
            opener = opener_at(at.realm, at.topic, broker, self.identity, epoch, incarnation, self._slot, at.key_memory)
            self._openers[broker, epoch, incarnation] = opener
        return opener


def incarnations(realm: EntityRealm, topic: str) -> Callable[[str, int], bytes]:
    """A broker's incarnation at a version, which never changes: the registry is asked once."""
    return lru_cache(MAX_VERSIONS)(lambda broker, version: realm.state().incarnation(topic, broker, version))


def opener_at(
    realm: EntityRealm,
    topic: str,
    broker: str,
    identity: Identity,
    epoch: int,
    incarnation: bytes,
    slot: int,
    key_memory: int = DEFAULT_KEY_MEMORY,
) -> Opener:
    """What opens, with an entity's own keys, what one broker sealed for a slot in one epoch and incarnation."""
    pair = at_broker(identity.pair_key(realm.state(), topic, epoch), broker, incarnation)
    return opener_with(realm.state, topic, pair, epoch, slot, key_memory)


def opener_with(
    state: Callable[[], RealmState],
    topic: str,
    pair: Secret,
    epoch: int,
    slot: int,
    key_memory: int = DEFAULT_KEY_MEMORY,
) -> Opener:
    """What opens, with a pair key as its broker uses it (`at_broker`), what was sealed for a slot in one epoch."""
    about = state().topic(topic)
    verify_keys, bits = publishers_keys(state), about.parameters.key_bits
    return Opener(about.schema, about.id, epoch, slot, pair, verify_keys, bits, key_memory)


def openers_with(
    state: RealmState, topic: str, broker: str, slot: int, keys_of: KeysOf
) -> Callable[[SealedPiece], Opener]:
    """`opener_with` for each epoch and incarnation that a piece is of, made when it is first needed and kept."""

    @cache
    def opener(epoch: int, incarnation: bytes) -> Opener:
        return opener_with(lambda: state, topic, at_broker(keys_of(epoch).pair, broker, incarnation), epoch, slot)

    return lambda piece: opener(piece.epoch, state.incarnation(topic, broker, piece.version))


class EndpointClient(RegisteredSide):
    def way(self, realm: EntityRealm, topic: str, identity: Identity, broker: str) -> Direct:
        return Direct(topic, broker)

    def inbox(self, reader: Reader) -> EndpointInbox:
        return EndpointInbox(reader)

    def key_asker(self, realm: EntityRealm, topic: str, subscriber: str) -> KeyAsker:
        return KeyAsker(realm, topic, subscriber, answers=lambda broker: key_requests(realm, broker))

    def opens_with(self, state: RealmState, topic: str, broker: str, slot: int, keys_of: KeysOf) -> Opens:
        openers = openers_with(state, topic, broker, slot, keys_of)
        return lambda piece, event, use: openers(piece).open(piece, event, use)


_SIDE: Final = EndpointClient()
CLIENT: Final[ClientSide] = _SIDE
