"""A broker that reads attributes, done again: what it refused, and to whom it delivered what.

Deliveries are worked out again without the index that matched them (expected.py), and compared with the pieces. How
pieces are sealed does not matter here: a protection adds whether they open (`opening`).
"""

from __future__ import annotations

from typing import Any, ClassVar, Final

from sealcast.broker.columns import SUSPENDED
from sealcast.errors import Corrupt, FrameRejected, NotFound
from sealcast.log.entry import PieceRef
from sealcast.log.reseals import Resealed
from sealcast.protections.witness import places
from sealcast.protections.witness.expected import Expectation, Expected, ReadExpectation
from sealcast.protections.witness.frames import FramesAudit
from sealcast.protections.witness.ledger import Span
from sealcast.protections.witness.order import DeliveryOrder, FrameNumbers
from sealcast.protections.witness.places import Delivered, Pairs
from sealcast.protections.witness.report import CheckReport, Kind
from sealcast.trust.handles import BrokerRealm
from sealcast.trust.layout import FIRST_BROKER
from sealcast.wire import sealed
from sealcast.wire.sealed import SealedPiece

#: Frames worked out again at a time where no piece says how many belong together.
_FRAMES_AT_A_TIME: Final = 256


class ReadingAudit(FramesAudit[SealedPiece]):
    """One topic at one broker."""

    #: How what should have been delivered is worked out.
    expectation: ClassVar[type[Expectation[Any]]] = ReadExpectation

    def __init__(
        self,
        realm: BrokerRealm,
        topic: str,
        *,
        broker: str = FIRST_BROKER,
        by_reference: bool = False,
        report: CheckReport | None = None,
        name: str = "",
    ) -> None:
        self._broker = realm.broker(broker)
        super().__init__(report or CheckReport(topic), realm, topic, broker, self._broker, sealed.parse, name)
        self._expectation = self.expectation(realm, topic, broker, self.gate, by_reference=by_reference)
        self._names = list(realm.state().slots_of(topic))
        self._order, self._numbers = DeliveryOrder(), FrameNumbers()
        self._seen: list[PieceRef] = []

    def slots(self) -> dict[str, int]:
        return {name: slot for slot, name in enumerate(self._names)}

    def opening(
        self, piece: SealedPiece, delivered: Delivered, expected: Expected | None, beyond: Pairs, where: str
    ) -> None:
        """Says which deliveries do not open for their receivers, but for those `beyond` what was expected."""

    def judge(self, piece: SealedPiece | None, ref: PieceRef, version: int, where: str, later: Resealed | None) -> None:
        expected = self._expected(ref.partition, ref.first, ref.end, version, piece)
        if later is not None and expected is not None:
            expected = self._expectation.of_those(expected, later.version, later.time_us)
        if expected is not None:
            self.report.events += len(expected.admitted.messages)
        if later is not None and later.removal is not None:
            return  # there is nothing in it to compare, and its frames may be gone
        if piece is None:
            if expected is not None:
                self._lose(expected, ref.partition, where)
            return
        delivered = Delivered.of(piece)
        self.report.deliveries += int(delivered.slot.size)
        where = f"{where}, {ref.name}"
        for text in places.contradictions(piece, ref, delivered):
            self.add(Kind.COUNTS, f"{where}: {text}")
        beyond: Pairs = []
        if expected is not None:
            for text in places.refusals(piece, expected):
                self.add(Kind.REFUSED, f"{where}: {text}")
            said = piece.counts.get(SUSPENDED, 0)
            if said != expected.suspended and later is None:
                self.add(Kind.COUNTS, f"{where}: it suspended {said} subscriptions, and should {expected.suspended}")
            lost, beyond = places.compare(delivered, expected)
            self.say(Kind.LOST, lost, ref.partition, where, "was not delivered")
            self.say(Kind.UNEXPECTED, beyond, ref.partition, where, "was delivered and should not have been")
        self.opening(piece, delivered, expected, beyond, where)
        late = self._order.take(ref.partition, delivered.slot, delivered.place, lambda: self._before(ref))
        proofs = piece.frames if expected is None else expected.admitted.frames
        late += self._numbers.take(ref, delivered, proofs)
        self._seen.append(ref)
        self.say(Kind.DUPLICATED, late.duplicated, ref.partition, where, "was delivered before")
        self.say(Kind.OUT_OF_ORDER, late.out_of_order, ref.partition, where, "comes after a later one")

    def suspended_in(self, ref: PieceRef, version: int, piece: SealedPiece) -> list[str]:
        """The subscriptions that got nothing of a piece of the batch at hand, because they ask for too much work."""
        ruled = self.ruled(ref.partition, ref.first, ref.end, piece) if piece.counts.get(SUSPENDED) else None
        return [] if ruled is None else self._expectation.suspended_ids(ruled, version)

    def missing(self, span: Span, version: int, where: str) -> None:
        partition, first, end = span
        for start in range(first, end, _FRAMES_AT_A_TIME):
            expected = self._expected(partition, start, min(start + _FRAMES_AT_A_TIME, end), version, None)
            if expected is not None:
                self._lose(expected, partition, where)

    def say(self, kind: Kind, pairs: Pairs, partition: int, where: str, what: str) -> None:
        """Says the same of several deliveries."""
        for slot, place in pairs:
            who = self._names[slot] if slot < len(self._names) else f"slot {slot}, which nobody has,"
            self.add(kind, f"{where}: event {places.position(partition, place)} for {who} {what}")

    def _expected(
        self, partition: int, first: int, end: int, version: int, piece: SealedPiece | None
    ) -> Expected | None:
        """What these frames should deliver; None when they cannot be read any more."""
        ruled = self.ruled(partition, first, end, piece)
        return None if ruled is None else self._expectation.of(ruled, version, self._time_us)

    def _lose(self, expected: Expected, partition: int, where: str) -> None:
        lost = places.admitted_places(expected.admitted)[expected.event].tolist()
        pairs = list(zip(expected.slot.tolist(), lost, strict=True))
        self.say(Kind.LOST, pairs, partition, where, "was not delivered")

    def _before(self, ref: PieceRef) -> set[tuple[int, int]]:
        """What earlier pieces over the same frames delivered."""
        before: set[tuple[int, int]] = set()
        for other in self._seen:
            if other.partition == ref.partition and other.first < ref.end and ref.first < other.end:
                try:
                    found = Delivered.of(self.read(other))
                except (NotFound, Corrupt, FrameRejected):
                    continue  # said when it was that piece's turn
                before.update(zip(found.slot.tolist(), found.place.tolist(), strict=True))
        return before
