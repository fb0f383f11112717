"""Whether brokers handed on what publishers sealed: done again without a key of what is sealed."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from sealcast.broker.deliver import deliver
from sealcast.errors import NotFound, Rejected
from sealcast.filters import bits
from sealcast.model.stages import Admitted, Grouped
from sealcast.protections.enveloped.hand_on import whole
from sealcast.protections.enveloped.seal_again import ReaderSealing
from sealcast.protections.witness.expected import Expected
from sealcast.protections.witness.places import Delivered, Pairs, admitted_places, places
from sealcast.protections.witness.reading import ReadingAudit
from sealcast.protections.witness.report import Kind
from sealcast.wire.sealed import TOPIC, SealedPiece


class EnvelopedAudit(ReadingAudit):
    """One topic at one broker: who gets what, and that each gets what was published."""

    def before(self, body: bytes) -> int:
        """How many bytes stand before the envelope; Rejected for what no publisher wrote there."""
        return 0

    def opening(
        self, piece: SealedPiece, delivered: Delivered, expected: Expected | None, beyond: Pairs, where: str
    ) -> None:
        if expected is None or not len(piece):
            return
        if (np.asarray(piece.key_kind) == TOPIC).all():
            changed = self._altered(piece, expected.admitted)
        else:
            changed = self._sealed_otherwise(piece, delivered, expected.admitted)
        here, said = places(piece).tolist(), set(beyond)
        pairs = zip(delivered.slot.tolist(), delivered.event.tolist(), strict=True)
        lost = [(slot, here[event]) for slot, event in pairs if event in changed]
        self.say(Kind.LOST, [p for p in lost if p not in said], piece.partition, where, "is not what was published")

    def _altered(self, piece: SealedPiece, admitted: Admitted) -> set[int]:
        """Events that were handed on, and not as they were published."""
        here = places(piece).tolist()
        published: Mapping[int, bytes] = dict(zip(admitted_places(admitted).tolist(), admitted.payloads(), strict=True))

        def altered(event: int) -> bool:
            body = piece.body(event)
            try:
                handed_on = whole(body, piece.commitment(event), self.before(body))
            except Rejected:
                return True
            return published.get(here[event]) != handed_on

        return {event for event in range(len(piece)) if altered(event)}

    def _sealed_otherwise(self, piece: SealedPiece, delivered: Delivered, admitted: Admitted) -> set[int]:
        """Events that a broker sealed for each reader, and not as it would seal what was published. Ciphertexts are
        functions of positions, keys and messages."""
        here, there, state = places(piece), admitted_places(admitted), self._realm.state(piece.version)
        at, known = np.searchsorted(there, here), np.isin(here, there)
        words = bits.pack(delivered.event, delivered.slot, len(piece), len(state.slots_of(self._topic)))
        groups, group_of = bits.unique_rows(words[known])
        topic = state.topic(self._topic)
        try:
            again = ReaderSealing(state, topic, self._broker).seal(Grouped(admitted, groups, at[known], group_of))
        except NotFound:
            self.report.gap("pieces were sealed with keys that the broker was not handed: nobody knows if they open")
            return set()
        made = deliver(again, topic.id, topic.epoch, state.version)
        number = dict(zip(np.flatnonzero(known).tolist(), range(len(made)), strict=True))
        return {
            event
            for event in range(len(piece))
            if event not in number or _sealed(piece, event) != _sealed(made, number[event])
        }


def _sealed(piece: SealedPiece, event: int) -> tuple[bytes, bytes, list[tuple[bytes, bytes]]]:
    """All that a piece has of an event: its body, which key opens that, and how readers come by the key."""
    uses = range(*np.asarray(piece.use_start)[event : event + 2].tolist())
    wrapped = bool(piece.wrapped[event])
    keys = [(piece.key_id(int(piece.uses[use])), piece.wrap(use) if wrapped else b"") for use in uses]
    return piece.body(event), piece.commitment(event), keys
