"""The order of deliveries: per subscriber and partition by position, per publisher and boot by sequence number.

Positions only ever grow within a mailbox, so what was delivered before is one number a subscriber; only where a piece
goes back behind it are earlier pieces looked at again. Numbers of a publisher's boot are ranges that touch, so they
too stay few. Memory does not grow with the topic.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from sealcast.errors import FrameRejected
from sealcast.log.entry import PieceRef
from sealcast.model.stages import FrameProof
from sealcast.protections.endpoint.audit_piece import Delivered, place_of
from sealcast.wire import frame

Ints = NDArray[np.int64]


@dataclass(slots=True)
class Late:
    """(slot, place) of deliveries that come again, or too late."""

    duplicated: list[tuple[int, int]] = field(default_factory=list)
    out_of_order: list[tuple[int, int]] = field(default_factory=list)


class Order:
    """Takes pieces in the order in which mailboxes show them."""

    def __init__(self, again: Callable[[PieceRef], Delivered | None]) -> None:
        self._again = again
        self._seen: dict[int, list[PieceRef]] = {}
        #: Of each partition, the last place that each slot got; -1 for none.
        self._last: dict[int, Ints] = {}
        #: Of each partition, the frames whose numbers were looked at.
        self._looked: dict[int, int] = {}
        self._numbers: dict[tuple[str, bytes], Numbers] = {}

    def take(self, ref: PieceRef, delivered: Delivered, proofs: tuple[FrameProof, ...]) -> Late:
        late = self._by_position(ref, delivered)
        self._by_number(ref, delivered, proofs, late)
        self._seen.setdefault(ref.partition, []).append(ref)
        return late

    def _by_position(self, ref: PieceRef, delivered: Delivered) -> Late:
        late = Late()
        if not delivered.slot.size:
            return late
        last = self._grown(ref.partition, int(delivered.slot.max()) + 1)
        behind = np.flatnonzero(delivered.place <= last[delivered.slot])
        if behind.size:
            pairs = zip(delivered.slot[behind].tolist(), delivered.place[behind].tolist(), strict=True)
            before = self._delivered_before(ref)
            for pair in pairs:
                (late.duplicated if pair in before else late.out_of_order).append(pair)
        np.maximum.at(last, delivered.slot, delivered.place)
        return late

    def _grown(self, partition: int, slots: int) -> Ints:
        last = self._last.get(partition, np.empty(0, np.int64))
        if last.size < slots:
            last = np.concatenate([last, np.full(slots - last.size, -1, np.int64)])
        self._last[partition] = last
        return last

    def _delivered_before(self, ref: PieceRef) -> set[tuple[int, int]]:
        before: set[tuple[int, int]] = set()
        for other in self._seen.get(ref.partition, ()):
            if other.first < ref.end and ref.first < other.end:
                found = self._again(other)
                if found is not None:
                    before.update(zip(found.slot.tolist(), found.place.tolist(), strict=True))
        return before

    def _by_number(self, ref: PieceRef, delivered: Delivered, proofs: tuple[FrameProof, ...], late: Late) -> None:
        """A frame that repeats numbers of its boot, or comes after higher ones: replayed into the log, or swapped."""
        looked = self._looked.get(ref.partition, 0)
        for proof in proofs:
            if proof.offset < looked:
                continue  # delivered again or late: said by its position
            try:
                header = frame.parse_signed(proof.signed).header
            except FrameRejected:
                continue
            numbers = self._numbers.setdefault((header.publisher, header.boot), Numbers())
            overlaps, behind = numbers.add(header.sequence, header.sequence + proof.count)
            if overlaps or behind:
                first, end = place_of(proof.offset, 0), place_of(proof.offset + 1, 0)
                inside = np.flatnonzero((first <= delivered.place) & (delivered.place < end))
                pairs = zip(delivered.slot[inside].tolist(), delivered.place[inside].tolist(), strict=True)
                (late.duplicated if overlaps else late.out_of_order).extend(pairs)
        self._looked[ref.partition] = max(looked, ref.end)


class Numbers:
    """The sequence numbers of one boot that were seen, as ranges that do not touch."""

    def __init__(self) -> None:
        self._ranges: list[tuple[int, int]] = []

    def add(self, first: int, end: int) -> tuple[bool, bool]:
        """(some of these were seen before, higher ones were seen before)"""
        at = bisect_right(self._ranges, (first, end))
        touching = [r for r in self._ranges[max(0, at - 1) :] if r[0] <= end and first <= r[1]]
        overlaps = any(low < end and first < high for low, high in touching)
        behind = bool(self._ranges) and first < self._ranges[-1][1]
        low = min([first, *(r[0] for r in touching)])
        high = max([end, *(r[1] for r in touching)])
        kept = [r for r in self._ranges if r not in touching]
        self._ranges = sorted([*kept, (low, high)])
        return overlaps, behind
