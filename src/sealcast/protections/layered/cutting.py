"""Taking events out of hop pieces, at roots and at every broker below: each event is under a payload key of its own."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from typing import NamedTuple

from sealcast.protections.steps import CutEvent, CutPiece, CuttingStep, EmptiedPiece, OpenStep
from sealcast.trust.certificates.roles import Role
from sealcast.wire import frame, hops
from sealcast.wire.emptied import without
from sealcast.wire.hops import HopPiece
from sealcast.wire.notifications import parse_entries


class _Row(NamedTuple):
    """One event for one recipient: for its mailbox, for it to hand on, or both."""

    recipient: str
    #: Among the realm's entities.
    number: int
    event: int
    arrives: bool
    goes_on: bool


class HopCuts(CuttingStep, OpenStep):
    """For both steps of a layered topic. What a root admitted is addressed to the root, and is in nobody's mailbox."""

    def events_in(self, data: bytes) -> Sequence[CutEvent]:
        piece = hops.parse(data)
        got: list[list[int]] = [[] for _ in range(len(piece))]
        for row in self._rows(piece):
            if row.arrives:
                got[row.event].append(row.number)
        publishers = [frame.parse_signed(each.signed).header.publisher for each in piece.frames]
        return [
            CutEvent(piece.event_id(event), publishers[piece.place(event)[0]], tuple(got[event]))
            for event in range(len(piece))
        ]

    def emptied(self, data: bytes, version: int) -> EmptiedPiece:
        piece = hops.parse(data)
        rows, none = list(self._rows(piece)), without(piece, range(len(piece)), version)
        return EmptiedPiece(
            hops.encode(none),
            Counter(row.number for row in rows if row.arrives),
            Counter(row.number for row in rows if row.goes_on),
        )

    def routed_by(self, data: bytes) -> set[str]:
        """The brokers that are to take events out of a piece and hand them on."""
        return {row.recipient for row in self._rows(hops.parse(data)) if row.goes_on}

    def _rows(self, piece: HopPiece) -> Iterator[_Row]:
        state = self.realm.state()
        numbers = {name: number for number, name in enumerate(state.entities)}
        for name in piece.recipients:
            routes = Role.BROKER in state.entities[name].roles
            for row in piece.rows_for(name):
                final = [entry.final for entry in parse_entries(piece.entries_of(row))] if routes else [True]
                yield _Row(name, numbers[name], piece.event_of(row), any(final), not all(final))

    def cut(self, data: bytes, gone: Collection[int], version: int) -> CutPiece:
        left = without(hops.parse(data), gone, version)
        counts = left.counts
        return CutPiece(hops.encode(left), len(left), counts.get("deliveries", 0), counts.get("encryptions", 0))
