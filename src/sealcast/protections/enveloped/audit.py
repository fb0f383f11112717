"""Whether brokers handed on what publishers sealed: done again without a key of what is sealed."""

from __future__ import annotations

from sealcast.errors import Rejected
from sealcast.protections.enveloped.hand_on import whole
from sealcast.protections.witness.expected import Expected
from sealcast.protections.witness.places import Delivered, Pairs, admitted_places, places
from sealcast.protections.witness.reading import ReadingAudit
from sealcast.protections.witness.report import Kind
from sealcast.wire.sealed import SealedPiece


class EnvelopedAudit(ReadingAudit):
    """One topic at one broker: who gets what, and that each gets what was published."""

    def before(self, body: bytes) -> int:
        """How many bytes stand before the envelope; Rejected for what no publisher wrote there."""
        return 0

    def opening(
        self, piece: SealedPiece, delivered: Delivered, expected: Expected | None, beyond: Pairs, where: str
    ) -> None:
        if expected is None:
            return
        admitted, here, said = expected.admitted, places(piece).tolist(), set(beyond)
        published: dict[int, bytes] = dict(zip(admitted_places(admitted).tolist(), admitted.payloads(), strict=True))

        def altered(event: int) -> bool:
            body = piece.body(event)
            try:
                handed_on = whole(body, piece.commitment(event), self.before(body))
            except Rejected:
                return True
            return published.get(here[event]) != handed_on

        changed = {event for event in range(len(piece)) if altered(event)}
        pairs = zip(delivered.slot.tolist(), delivered.event.tolist(), strict=True)
        lost = [(slot, here[event]) for slot, event in pairs if event in changed]
        self.say(Kind.LOST, [p for p in lost if p not in said], piece.partition, where, "is not what was published")
