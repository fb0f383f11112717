"""A subscriber's peer: looks at every event that comes, keeps those that its keys open, and says what it refused.

An event comes from a neighbour, who may be anybody. It passes the checks that every peer makes (`arriving`), of which
check 15 asks the inbox whether the event is there already, and then

    18 seal        credentials match, and it does not open: its publisher made it so

What is not for any of its keys is not refused: it is somebody else's.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Set
from contextlib import AbstractContextManager
from functools import partial
from typing import Final, NamedTuple

from sealcast.errors import CannotOpen, FrameRejected
from sealcast.log.closing import Closing
from sealcast.log.piece_reader import PieceReader
from sealcast.model.event import Position
from sealcast.model.rejection import Reason, Rejection
from sealcast.primitives.secrets import Secret, Unpicklable
from sealcast.protections.attribute.arriving import ArrivalGate
from sealcast.protections.attribute.keys import CredentialRing
from sealcast.protections.attribute.ledger import PeerLedger, journal_key
from sealcast.protections.attribute.open import AttributeOpener, NotOurs
from sealcast.trust.handles import EntityRealm
from sealcast.trust.realm.state import RealmState
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
        self._ring = CredentialRing(realm, topic, identity)
        self._opener = AttributeOpener.of(realm.state, topic, self._ring, live=True)
        self._gates = ArrivalGate(realm, topic, name)
        self._seen = set(self._kept(journal_key(identity, about.id)))

    def alone(self) -> AbstractContextManager[str]:
        """While this process runs the peer; Locked when another one does."""
        return self._inbox.alone()

    def has(self, event: CarriedEvent) -> bool:
        """Whether the inbox has it, by what it says of itself."""
        return _number(frame.parse_signed(event.signed).header, event) in self._seen

    def look_at(self, events: Iterable[CarriedEvent], out: Set[str] = frozenset()) -> Arrivals:
        """What of these is its own, and what is wrong with the others. Nothing is kept yet. `out`: publishers that are
        cut off, whose events are not opened."""
        version, now = self.realm.registry.version(), self.realm.clock()
        gate = self._gates.at(version)
        if not gate.state.may_subscribe(self.topic, self.name, now):
            return Arrivals([], [])
        self._opener.look()
        looking = _Looking(self._opener, self._seen)
        for event in events:
            try:
                header = self._gates.check(event, gate, now, partial(looking.knows, event))
                if header.publisher in out:
                    raise FrameRejected(Reason.SEAL, f"{header.publisher} is cut off: what it published did not open")
                looking.wait(_number(header, event), event)
            except FrameRejected as error:
                looking.refuse(_refusal(event.position, Reason(error.reason), error.message))
        return looking.found()

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

    def _kept(self, key: Secret) -> Iterator[bytes]:
        """The numbers of events in the inbox that could come again: the others are too old to be taken."""
        bounds = self._gates.at(self.realm.registry.version()).bounds
        reader = PieceReader[PeerPiece](self._inbox.paths.root, peer_pieces.parse, cache_bytes=1, key=key)
        try:
            first = reader.ledger.index_at(self.realm.clock() - 2 * bounds.period_us)
            for piece in reader.pieces(first, reader.end()):
                for event in map(piece.carried, range(len(piece))):
                    yield _number(frame.parse_signed(event.signed).header, event)
        finally:
            reader.close()


class _Looking:
    """Events that passed the gate are opened together, unless one comes twice: then it matters whether the first one
    opened."""

    def __init__(self, opener: AttributeOpener, seen: Set[bytes]) -> None:
        self._opener, self._seen = opener, seen
        self._fresh: set[bytes] = set()
        self._waiting: dict[bytes, CarriedEvent] = {}
        self._found = Arrivals([], [])

    def knows(self, event: CarriedEvent, header: Header) -> bool:
        """Whether it was here before."""
        number = _number(header, event)
        if number in self._waiting:
            self._open()
        return number in self._seen or number in self._fresh

    def wait(self, number: bytes, event: CarriedEvent) -> None:
        self._waiting[number] = event

    def refuse(self, refusal: Rejection) -> None:
        self._open()  # refusals stand in the order of arrivals
        self._found.rejected.append(refusal)

    def found(self) -> Arrivals:
        self._open()
        return self._found

    def _open(self) -> None:
        waiting, self._waiting = self._waiting, {}
        opened = self._opener.open_many(list(waiting.values()))
        for (number, event), one in zip(waiting.items(), opened, strict=True):
            if not isinstance(one, CannotOpen):
                self._found.events.append(event)
                self._fresh.add(number)
            elif not isinstance(one, NotOurs):
                self._found.rejected.append(_refusal(event.position, Reason.SEAL, one.message))


def may_receive(state: RealmState, topic: str, name: str, now_us: int) -> bool:
    """Whether there is something that a subscriber could get."""
    return state.slot_of(topic, name) is not None and state.may_subscribe(topic, name, now_us)


def _number(header: Header, event: CarriedEvent) -> bytes:
    """What its publisher numbered an event by: its boot, and which of that boot's it is. It never gives one twice."""
    number = (header.sequence + event.position.row).to_bytes(8, "big")
    return hashlib.sha256(header.boot + number + header.publisher.encode()).digest()[:_NUMBER_BYTES]


def _refusal(position: Position, reason: Reason, why: str) -> Rejection:
    detail = why if len(why.encode()) <= MAX_DETAIL_BYTES else why[: MAX_DETAIL_BYTES // 4 - 3] + "..."
    return Rejection(position, reason, detail, 1)
