"""A subscriber's peer: looks at every event that comes, keeps those that its keys open, and says what it refused.

An event comes from a neighbour, who may be anybody. Nothing of it is believed before it is checked, in this order, each
with the reason that brokers give elsewhere (`model.rejection`), the first failure wins:

     1 frame       not a carried event, or no signed header
     3 topic       for another topic
     4 to 9        its token does not let its publisher publish at the time that the publisher states
    10, 11         nobody of that name is enrolled, or may publish, now
    12 epoch       of an epoch that had ended by that time, its grace included
    13 signature   the header is not the publisher's word
    14 time        that time is too far ahead, or too long ago
    15 replay      it was here before
    17 schema      made for another schema
    19 root        the event is not among those that were signed
    18 seal        credentials match, and it does not open: its publisher made it so

What is not for any of its keys is not refused: it is somebody else's.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from typing import Final, NamedTuple

from sealcast.broker.context import by_version, gate_with
from sealcast.broker.gate import Gate
from sealcast.errors import Bug, CannotOpen, FrameRejected
from sealcast.log.closing import Closing
from sealcast.log.piece_reader import PieceReader
from sealcast.model.event import Position
from sealcast.model.rejection import Reason, Rejection
from sealcast.primitives import merkle
from sealcast.primitives.secrets import Secret, Unpicklable
from sealcast.protections.attribute.keys import KeyRing
from sealcast.protections.attribute.ledger import PeerLedger, journal_key
from sealcast.protections.attribute.open import AttributeOpener, NotOurs
from sealcast.trust.handles import EntityRealm
from sealcast.trust.realm.changes import Right
from sealcast.trust.tokens.token import VerifiedTokens
from sealcast.wire import frame, peer_pieces
from sealcast.wire.carried import CarriedEvent
from sealcast.wire.frame import Header
from sealcast.wire.limits import MAX_DETAIL_BYTES
from sealcast.wire.peer_pieces import PeerPiece

#: Events that one record of an inbox has, at most: what is looked at again after a crash.
EVENTS_PER_RECORD: Final = 4_096
BYTES_PER_RECORD: Final = 32 << 20
_NUMBER_BYTES: Final = 16


class Arrivals(NamedTuple):
    """Events that came: those that are for this subscriber, and what was refused."""

    events: list[CarriedEvent]
    rejected: list[Rejection]


class SubscriberPeer(Closing, Unpicklable):
    """One subscriber's inbox on one topic. Close it."""

    def __init__(self, realm: EntityRealm, topic: str, name: str) -> None:
        """NotFound where the subscriber's keys are not on this machine."""
        self.realm, self.topic, self.name = realm, topic, name
        identity, about = realm.identity(name), realm.state().topic(topic)
        self._inbox = PeerLedger(realm.paths.topic(topic, name), identity, about.id)
        self._ring = KeyRing(realm, topic, identity)
        self._opener = AttributeOpener.of(realm.state, topic, self._ring)
        self._gate = by_version(self._gate_at)
        self._tokens = VerifiedTokens()
        self._seen = set(self._kept(journal_key(identity, about.id)))

    def alone(self) -> AbstractContextManager[str]:
        """While this process runs the peer; Locked when another one does."""
        return self._inbox.alone()

    def look_at(self, events: Iterable[CarriedEvent]) -> Arrivals:
        """What of these is its own, and what is wrong with the others. Nothing is kept yet."""
        found, version, now = Arrivals([], []), self.realm.registry.version(), self.realm.clock()
        gate, fresh = self._gate(version), set[bytes]()
        if not gate.state.may_subscribe(self.topic, self.name, now):
            return found
        for event in events:
            try:
                number = self._check(event, gate, now, fresh)
                self._opener.open(event)
                found.events.append(event)
                fresh.add(number)
            except FrameRejected as error:
                found.rejected.append(_refusal(event.position, Reason(error.reason), error.message))
            except NotOurs:
                continue
            except CannotOpen as error:
                found.rejected.append(_refusal(event.position, Reason.SEAL, error.message))
        return found

    def keep(self, found: Arrivals) -> Mapping[str, int]:
        """Durably its own from now on; what was counted. Nothing, where there is nothing to say."""
        count = len(found.events) + len(found.rejected)
        if not count:
            return {}
        now = self.realm.clock()
        counts = {"deliveries": len(found.events)}
        pinned = (self.realm.registry.version(), now, 0)
        done = self._inbox.add(count, pinned, found.events, found.rejected, counts)
        self._seen.update(_number(frame.parse_signed(event.signed).header, event) for event in found.events)
        return done

    def close(self) -> None:
        self._ring.close()
        self._inbox.close()

    # --- inside -----------------------------------------------------------------------------------------------------

    def _check(self, event: CarriedEvent, gate: Gate, now: int, fresh: set[bytes]) -> bytes:
        """How the event is numbered; FrameRejected with the first check that it fails."""
        about = frame.parse_signed(event.signed)  # (1)
        header = about.header
        if header.topic != gate.topic.id:
            raise FrameRejected(Reason.TOPIC, f"{header.publisher} published this to another topic")
        refusal = gate.refuses_token(header.publisher, event.token, header.token, header.time)
        late = refusal is not None and refusal.reason is Reason.EPOCH
        refusal = refusal if not late else None
        refusal = refusal or gate.refuses_by_name(header.publisher, now)
        if refusal is not None:
            raise FrameRejected(*refusal)
        if late or not gate.topic.epoch_admissible(header.epoch, header.time):
            raise FrameRejected(Reason.EPOCH, f"sealed for epoch {header.epoch}, the topic is in {gate.topic.epoch}")
        if not gate.verify_key(header.publisher).verify(about.to_be_signed, about.signature):
            raise FrameRejected(Reason.SIGNATURE, f"the signature is not {header.publisher}'s")
        if not -gate.bounds.max_skew_us <= now - header.time <= gate.bounds.stale_after_us:
            raise FrameRejected(Reason.TIME, f"{header.publisher} published it too long ago, or its clock is ahead")
        number = _number(header, event)
        if number in self._seen or number in fresh:
            raise FrameRejected(Reason.REPLAY, f"a number of {header.publisher}'s that was here before")
        if header.schema != gate.topic.schema.digest:
            raise FrameRejected(Reason.SCHEMA, f"{header.publisher} used another schema than topic {self.topic}'s")
        (leaf,) = merkle.hash_messages((event.message,))
        if not merkle.verify(header.root, leaf, event.position.row, header.count, event.path):
            raise FrameRejected(Reason.ROOT, f"it is not among the events that {header.publisher} signed")
        return number

    def _gate_at(self, version: int) -> Gate:
        state = self.realm.state(version)
        self.realm.trust(state)  # the root is the one that this realm was made with

        def nobody(publisher: str, epoch: int) -> Secret:
            raise Bug("a subscriber's peer opens no frames")

        def holds_key(epoch: int) -> bool:
            return state.pair_key(self.topic, epoch, self.name) is not None

        return gate_with(state, state.topic(self.topic), nobody, holds_key, self._tokens)

    def _kept(self, key: Secret) -> Iterator[bytes]:
        """The numbers of events in the inbox that could come again: the others are too old to be taken."""
        bounds = self._gate(self.realm.registry.version()).bounds
        reader = PieceReader[PeerPiece](self._inbox.paths.root, peer_pieces.parse, cache_bytes=1, key=key)
        try:
            first = reader.ledger.index_at(self.realm.clock() - 2 * bounds.period_us)
            for piece in reader.pieces(first, reader.end()):
                for event in map(piece.carried, range(len(piece))):
                    yield _number(frame.parse_signed(event.signed).header, event)
        finally:
            reader.close()


def may_receive(realm: EntityRealm, topic: str, name: str) -> bool:
    """Whether there is something that a subscriber could get."""
    state = realm.state()
    subscribed = state.slot_of(topic, name) is not None
    return subscribed and state.may(Right.SUBSCRIBE, topic, name, realm.clock())


def _number(header: Header, event: CarriedEvent) -> bytes:
    """What its publisher numbered an event by: its boot, and which of that boot's it is. It never gives one twice."""
    number = (header.sequence + event.position.row).to_bytes(8, "big")
    return hashlib.sha256(header.boot + number + header.publisher.encode()).digest()[:_NUMBER_BYTES]


def _refusal(position: Position, reason: Reason, why: str) -> Rejection:
    detail = why if len(why.encode()) <= MAX_DETAIL_BYTES else why[: MAX_DETAIL_BYTES // 4 - 3] + "..."
    return Rejection(position, reason, detail, 1)
