"""Taking events out of hop pieces, at roots and at every broker below: each event is under a payload key of its own."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from sealcast.protections.steps import CutEvent, CutPiece, CuttingStep, OpenStep
from sealcast.trust.certificates.roles import Role
from sealcast.wire import frame, hops
from sealcast.wire.emptied import without
from sealcast.wire.notifications import parse_entries


class HopCuts(CuttingStep, OpenStep):
    """For both steps of a layered topic. What a root admitted is addressed to the root, and is in nobody's mailbox."""

    def events_in(self, data: bytes) -> Sequence[CutEvent]:
        piece, state = hops.parse(data), self.realm.state()
        numbers = {name: number for number, name in enumerate(state.entities)}
        got: list[list[int]] = [[] for _ in range(len(piece))]
        for name in piece.recipients:
            routes = Role.BROKER in state.entities[name].roles
            for row in piece.rows_for(name):
                if not routes or any(entry.final for entry in parse_entries(piece.entries_of(row))):
                    got[piece.event_of(row)].append(numbers[name])
        publishers = [frame.parse_signed(each.signed).header.publisher for each in piece.frames]
        return [
            CutEvent(piece.event_id(event), publishers[piece.place(event)[0]], tuple(got[event]))
            for event in range(len(piece))
        ]

    def cut(self, data: bytes, gone: Collection[int], version: int) -> CutPiece:
        left = without(hops.parse(data), gone, version)
        counts = left.counts
        return CutPiece(hops.encode(left), len(left), counts.get("deliveries", 0), counts.get("encryptions", 0))
