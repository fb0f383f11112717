"""Boxes: conjuncts as bounds on axes, one row each. A box holds an event if every axis says so.

On an axis a box is an interval, `low <= place <= high` (empty if low > high), and a flag whether NULL will do. A box
that does not mention an axis reaches from its least place to its greatest and takes NULL too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from sealcast.filters.vector.axes import Axis, Bools, Numbers, Place, Places

Ids = NDArray[np.int64]

#: Boxes that are compared one by one.
_HANDFUL: Final = 6


@dataclass(frozen=True, slots=True)
class Side:
    """All boxes on one axis."""

    low: Numbers
    high: Numbers
    null: Bools

    def take(self, boxes: Ids) -> Side:
        return Side(self.low.take(boxes), self.high.take(boxes), self.null.take(boxes))

    def holds(self, boxes: Ids, events: Ids, places: Places) -> Bools:
        """For pairs of box and event. Comparing bounds decides; tables and lists only say which pairs to compare."""
        at = places.values.take(events)
        inside = (self.low.take(boxes) <= at) & (at <= self.high.take(boxes))
        if places.present is None:
            return inside
        return np.where(places.present.take(events), inside, self.null.take(boxes))

    def holds_one(self, boxes: Ids, place: Place) -> Bools:
        """`holds` for one event."""
        if place is None:
            return self.null.take(boxes)
        return (self.low.take(boxes) <= place) & (self.high.take(boxes) >= place)

    def holds_pair(self, box: int, place: Place) -> bool:
        """`holds` for one event and one box."""
        if place is None:
            return bool(self.null.item(box))
        return bool(self.low.item(box) <= place <= self.high.item(box))

    def constrained(self, axis: Axis) -> Bools:
        """The boxes that say anything about the axis."""
        free: Bools = self.null & (self.low == axis.least) & (self.high == axis.greatest)
        return ~free

    def bounds(self, axis: Axis) -> Numbers:
        """Every bound that is one: not where an interval is open-ended, and not of empty intervals."""
        real = self.low <= self.high
        lows, highs = self.low[real & (self.low != axis.least)], self.high[real & (self.high != axis.greatest)]
        return np.concatenate([lows, highs])


def holding(sides: Mapping[int, Side], boxes: Ids, events: Ids, places: Sequence[Places]) -> tuple[Ids, Ids]:
    """The pairs that hold on all these axes; each axis looks only at what the ones before it left."""
    for axis, side in sides.items():
        if boxes.size == 0:
            break
        kept = np.flatnonzero(side.holds(boxes, events, places[axis]))
        if kept.size < boxes.size:
            boxes, events = boxes.take(kept), events.take(kept)
    return boxes, events


def holding_one(sides: Mapping[int, Side], boxes: Sequence[int], places: Sequence[Place]) -> list[int]:
    """`holding` for one event. A handful of boxes is asked one by one, before numpy would have begun."""
    if len(boxes) <= _HANDFUL:
        asked = [(side, places[axis]) for axis, side in sides.items()]
        return [box for box in boxes if all(side.holds_pair(box, place) for side, place in asked)]
    left = np.array(boxes)
    for axis, side in sides.items():
        left = left[side.holds_one(left, places[axis])]
    held: list[int] = left.tolist()
    return held
