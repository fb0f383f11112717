"""One sealed piece against what should be in it: who gets what, and what was refused."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sealcast.broker.deliver import rejected_by_reason
from sealcast.log.entry import PieceRef, slot_bits
from sealcast.model.event import Position
from sealcast.model.stages import Admitted
from sealcast.protections.witness.expected import Expected
from sealcast.wire.sealed import SealedPiece

Ints = NDArray[np.int64]
#: (slot, place) of deliveries.
Pairs = list[tuple[int, int]]
_ROWS = 1 << 16


@dataclass(frozen=True, slots=True)
class Delivered:
    """A piece's deliveries, flat: slot and place of each, in the order of the mailboxes. A place is offset and row."""

    slot: Ints
    event: Ints
    use: Ints
    place: Ints

    @classmethod
    def of(cls, piece: SealedPiece) -> Delivered:
        event = np.asarray(piece.mailbox_event, np.int64)
        starts = np.asarray(piece.mailbox_start, np.int64)
        per_slot = starts[1:] - starts[:-1]
        slot = np.repeat(np.asarray(piece.slots, np.int64), per_slot)
        return cls(slot, event, np.asarray(piece.mailbox_use, np.int64), places(piece)[event])


def places(piece: SealedPiece) -> Ints:
    """Offset and row of each event in one number, ascending: offsets have 40 bits, rows 16."""
    offsets = np.array([proof.offset for proof in piece.frames], np.int64)
    return offsets[piece.frame_index] * _ROWS + np.asarray(piece.row, np.int64)


def admitted_places(admitted: Admitted) -> Ints:
    return admitted.offset * _ROWS + admitted.row if len(admitted.messages) else np.empty(0, np.int64)


def place_of(offset: int, row: int) -> int:
    return offset * _ROWS + row


def position(partition: int, place: int) -> Position:
    return Position(partition, place // _ROWS, place % _ROWS)


def compare(delivered: Delivered, expected: Expected) -> tuple[Pairs, Pairs]:
    """What a piece delivers too little, and too much."""
    admitted = admitted_places(expected.admitted)
    count = max(1, admitted.size)
    at = np.searchsorted(admitted, delivered.place)
    known = np.zeros(at.size, np.bool_)
    known[at < admitted.size] = admitted[at[at < admitted.size]] == delivered.place[at < admitted.size]
    # Slot and event in one number, as `expected` has them.
    mine = delivered.slot[known] * count + at[known]
    wanted = expected.slot * count + expected.event

    def named(codes: Ints) -> Pairs:
        return list(zip((codes // count).tolist(), admitted[codes % count].tolist(), strict=True))

    strangers = list(zip(delivered.slot[~known].tolist(), delivered.place[~known].tolist(), strict=True))
    return named(np.setdiff1d(wanted, mine)), named(np.setdiff1d(mine, wanted)) + strangers


def contradictions(piece: SealedPiece, ref: PieceRef, delivered: Delivered) -> Iterator[str]:
    """Where the ledger's words about the piece, or the piece's about itself, are not so."""
    hidden = int((np.asarray(piece.link_grows) == 0).sum())
    encryptions = len(piece.uses) + len(piece.handout_slot) + hidden + len(piece.table_slot)
    slots = slot_bits([*np.asarray(piece.slots).tolist(), *np.asarray(piece.handout_slot).tolist()])
    said = (ref.events, ref.deliveries, ref.encryptions)
    found = (len(piece), int(delivered.slot.size), encryptions)
    for what, claim, truth in zip(("events", "deliveries", "encryptions"), said, found, strict=True):
        if claim != truth:
            yield f"the ledger says {claim} {what}, the piece has {truth}"
    if ref.slots is not None and ref.slots != slots:
        yield "the ledger names other subscribers than the piece serves: some would never look into it"
    for name, truth in {"matched": found[0], "deliveries": found[1], "encryptions": found[2]}.items():
        if piece.counts.get(name, 0) != truth:
            yield f"the piece counts {piece.counts.get(name, 0)} {name} and has {truth}"


def refusals(piece: SealedPiece, expected: Expected) -> Iterator[str]:
    """Where admission, done again, refuses other things than the piece says were refused."""
    again = {r.position: r for r in expected.admitted.rejections}
    said = {r.position: r for r in piece.rejected}
    for where in sorted(again.keys() | said.keys()):
        if where not in said:
            yield f"{where} must be refused ({again[where].reason}), and the piece does not say so"
        elif where not in again:
            yield f"{where} is said to be refused ({said[where].reason}), and passes every check"
        elif again[where].reason != said[where].reason:
            yield f"{where} is refused for {again[where].reason}, not for {said[where].reason}"
    counted = {name: count for name, count in piece.counts.items() if name.startswith("rejected_") and count}
    if counted != rejected_by_reason(piece.rejected):
        yield "the piece's counts of what was refused are not those of its list"
    if piece.counts.get("admitted", 0) != len(expected.admitted.messages):
        yield f"the piece counts {piece.counts.get('admitted', 0)} admitted, {len(expected.admitted.messages)} are"
