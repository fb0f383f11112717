"""The order of deliveries: of each line (a partition, a publisher's boot) numbers only ever grow within a mailbox.

So what was delivered before is one number for each subscriber; only where a delivery goes back behind it are earlier
ones looked at again. Numbers of a publisher's boot are ranges that touch, so they too stay few. Memory does not grow
with the topic.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field

import numpy as np

from sealcast.errors import FrameRejected
from sealcast.log.entry import PieceRef
from sealcast.model.stages import FrameProof
from sealcast.protections.witness.places import Delivered, Ints, Pairs, place_of
from sealcast.wire import frame


@dataclass(slots=True)
class LateDeliveries:
    """(recipient, number) of deliveries that come again, or too late."""

    duplicated: Pairs = field(default_factory=list)
    out_of_order: Pairs = field(default_factory=list)

    def __add__(self, other: LateDeliveries) -> LateDeliveries:
        return LateDeliveries(self.duplicated + other.duplicated, self.out_of_order + other.out_of_order)


class DeliveryOrder:
    """Takes deliveries in the order in which mailboxes show them."""

    def __init__(self) -> None:
        #: Of each line, the last number that each recipient got; -1 for none.
        self._last: dict[Hashable, Ints] = {}

    def take(
        self, line: Hashable, recipient: Ints, number: Ints, before: Callable[[], set[tuple[int, int]]]
    ) -> LateDeliveries:
        """The next deliveries of one line, ascending for each recipient. `before` finds what was delivered earlier."""
        late = LateDeliveries()
        if not recipient.size:
            return late
        last = self._grown(line, int(recipient.max()) + 1)
        behind = np.flatnonzero(number <= last[recipient])
        if behind.size:
            seen = before()
            for pair in zip(recipient[behind].tolist(), number[behind].tolist(), strict=True):
                (late.duplicated if pair in seen else late.out_of_order).append(pair)
        np.maximum.at(last, recipient, number)
        return late

    def _grown(self, line: Hashable, size: int) -> Ints:
        last = self._last.get(line, np.empty(0, np.int64))
        if last.size < size:
            last = np.concatenate([last, np.full(size - last.size, -1, np.int64)])
        self._last[line] = last
        return last


class FrameNumbers:
    """Finds frames that repeat numbers of their boot, or come after higher ones: replayed into the log, or swapped."""

    def __init__(self) -> None:
        #: Of each partition, the frames whose numbers were looked at.
        self._looked: dict[int, int] = {}
        self._numbers: dict[tuple[str, bytes], Numbers] = {}

    def take(self, ref: PieceRef, delivered: Delivered, proofs: tuple[FrameProof, ...]) -> LateDeliveries:
        """The next piece, and what proves the events of its frames."""
        looked, late = self._looked.get(ref.partition, 0), LateDeliveries()
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
        return late


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
