"""The client side of `endpoint`: events go to a broker that reads them, and come back sealed for groups.

A subscriber reads its own key file, the public registry, and the ledger and pieces of its broker; nothing else of the
broker's, and nobody else's keys.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, lru_cache
from typing import TYPE_CHECKING, Final

import numpy as np

from sealcast.errors import CannotOpen
from sealcast.log.mailbox import Delivery
from sealcast.primitives.secrets import KEY_BYTES, Secret
from sealcast.protections.endpoint.publish import Direct
from sealcast.protections.port import DEFAULT_KEY_MEMORY, ClientSide, KeysOf, Measured, Opens, Proven, Reader
from sealcast.protections.registered import RegisteredInbox, RegisteredSide
from sealcast.protections.stays import FoundPart
from sealcast.protections.verify import publishers_keys
from sealcast.trust.handles import EntityRealm
from sealcast.trust.keys.identity import Identity
from sealcast.trust.keys.topic_keys import at_broker
from sealcast.trust.realm.state import RealmState
from sealcast.wire.records import RecordCodec
from sealcast.wire.sealed import SealedPiece

if TYPE_CHECKING:
    from sealcast.control.desk import More
    from sealcast.protections.endpoint.missing import KeyAsker, MissingKeys
    from sealcast.protections.endpoint.open import Opener
    from sealcast.protections.opened import OpenedPart

#: Versions of pieces whose incarnation is remembered.
MAX_VERSIONS: Final = 1_024
#: In the place of an event's content key where it has none (`Opener.content_keys`).
_DIRECT: Final = bytes(KEY_BYTES)


class EndpointInbox(RegisteredInbox):
    """Keys come with the events that first need them; those that it lacks it looks for, or asks for."""

    def __init__(self, reader: Reader) -> None:
        super().__init__(reader, _SIDE)
        self._slot = _SIDE.slot(reader.realm, reader.topic, reader.name)
        self._openers: dict[tuple[str, int, bytes, bytes], Opener] = {}
        self._missing = cache(self._missing_at)
        self._incarnation = incarnations(reader.realm, reader.topic)
        self._codec = RecordCodec(reader.realm.state().topic(reader.topic).schema)
        # Whoever has no key for what comes next is told so now.
        self._opener(self.mail.home, reader.realm.state().topic(reader.topic).epoch, b"")

    @property
    def keys(self) -> Measured:
        return Measured.total(opener.keyring.measured for opener in self._openers.values())

    def open(self, found: FoundPart[SealedPiece]) -> OpenedPart:
        broker, part = found.broker, found.part
        try:
            opener = self._opener_of(broker, part.piece)
        except CannotOpen as error:
            from sealcast.protections.opened import refused_part

            return refused_part(self._codec, part, error)

        def find(delivery: Delivery[SealedPiece]) -> None:
            self._missing(broker).find(opener, delivery, lambda piece: self._opener_of(broker, piece) is opener)

        return opener.open_part(part, find)

    def prove(self, broker: str, piece: SealedPiece, known: dict[int, bytes]) -> Proven:
        """The keys of all its events at once. A body is opened unless its very key opened it before: it is committed
        to its key."""
        from sealcast.protections.proving import part_of, proven

        opener, part = self._opener_of(broker, piece), part_of(piece, self.mail.mailbox(broker).recipient)
        events, uses = np.asarray(part.events, np.int64), np.asarray(part.handles, np.int64)
        try:
            keys = opener.content_keys(piece, events, uses)
        except CannotOpen as error:
            return Proven((), events.size, error.message)
        # `V` is raw bytes, where `S` would drop trailing zeros.
        each: list[bytes] = keys.view(f"V{KEY_BYTES}")[:, 0].tolist()
        own = dict(zip(part.events, each, strict=True))
        again = [row for row, (event, key) in enumerate(own.items()) if key == _DIRECT or known.get(event) != key]
        done = proven(part.only(again), opener.open_part)
        known |= {event: own[event] for event in done.events}
        if len(again) == len(part):
            return done
        failed = {part.events[row] for row in again}.difference(done.events)
        return done._replace(events=[event for event in part.events if event not in failed])

    def _missing_at(self, broker: str) -> MissingKeys:
        from sealcast.protections.endpoint.missing import MissingKeys

        at = self.reader
        return MissingKeys(self.mail.mailbox(broker), at.name, self.identity.signer, at.realm.clock, at.ask)

    def _opener_of(self, broker: str, piece: SealedPiece) -> Opener:
        return self._opener(broker, piece.epoch, self._incarnation(broker, piece.version))

    def _opener(self, broker: str, epoch: int, incarnation: bytes) -> Opener:
        at = self.reader
        # A version of the schema that came since is for an opener that knows it.
        schema = (at.realm.registry.known or at.realm.state()).topic(at.topic).schema.digest
        opener = self._openers.get((broker, epoch, incarnation, schema))
        if opener is None:
            opener = opener_at(at.realm, at.topic, broker, self.identity, epoch, incarnation, self._slot, at.key_memory)
            self._openers[broker, epoch, incarnation, schema] = opener
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
    from sealcast.protections.endpoint.open import Opener  # publishers load this file, too, and open nothing

    about = state().topic(topic)
    verify_keys, bits = publishers_keys(state), about.parameters.key_bits
    return Opener(
        about.schema, about.id, epoch, slot, pair, verify_keys, bits, key_memory, earlier_schemas=about.earlier_schemas
    )


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
        from sealcast.protections.endpoint.missing import KeyAsker

        def answers(broker: str) -> More:
            from sealcast.protections.endpoint.key_answers import key_requests  # for who asks, which few readers do

            return key_requests(realm, broker)

        return KeyAsker(realm, topic, subscriber, answers=answers)

    def opens_with(self, state: RealmState, topic: str, broker: str, slot: int, keys_of: KeysOf) -> Opens:
        openers = openers_with(state, topic, broker, slot, keys_of)
        return lambda piece, event, use: openers(piece).open(piece, event, use)


_SIDE: Final = EndpointClient()
CLIENT: Final[ClientSide] = _SIDE
