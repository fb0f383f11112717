"""Boxes that one axis nearly decides: an equality, or an interval so narrow that hardly an event falls into it.

Every key has the list of boxes posted under it; an event looks up one key and checks the bounds of what it finds.
Keys need not be exact: a box that is found by accident fails on its bounds.

    hashed   equalities: multiply and shift, any 64-bit value
    spaced   narrow intervals: equal cells along the axis, a box posted under each cell it touches
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from struct import pack
from typing import Final

import numpy as np
from numpy.typing import NDArray

from sealcast.filters.bits import runs, starts
from sealcast.filters.index.boxes import Ids, Side, holding, holding_one
from sealcast.filters.vector.axes import Axis, Numbers, Place, Places

#: Cells that one narrow box may be posted under.
MAX_POSTED: Final = 4
#: Keys per box: sparse enough that most keys have no list or one of a single value.
_SPREAD: Final = 4
#: Candidates that are checked at a time.
_CHUNK_CANDIDATES: Final = 1 << 16
#: 2**64 divided by the golden ratio: consecutive numbers land far apart (Knuth, volume 3, 6.4).
_GOLDEN: Final = np.uint64(0x9E3779B97F4A7C15)
_MASK: Final = (1 << 64) - 1


@dataclass(frozen=True, slots=True)
class Keys:
    """From a place to the number of its list."""

    kind: str
    count: int
    origin: float = 0.0
    scale: float = 0.0

    def of(self, values: Numbers) -> Ids:
        if self.kind == "hashed":
            # Adding zero turns -0.0 into 0.0: equal numbers must have equal bits.
            raw = (values + 0.0 if values.dtype == np.float64 else values).view(np.uint64)
            return ((raw * _GOLDEN) >> np.uint64(65 - self.count.bit_length())).astype(np.int64)
        with np.errstate(over="ignore"):  # beyond the last cell is beyond the last cell
            return np.clip((values - self.origin) * self.scale, 0, self.count - 1).astype(np.int64)

    def of_one(self, value: int | float) -> int:
        """`of` one value, by the same steps."""
        if self.kind == "hashed":
            raw = value & _MASK if isinstance(value, int) else int.from_bytes(pack("<d", value + 0.0), "little")
            return (raw * int(_GOLDEN) & _MASK) >> (65 - self.count.bit_length())
        return int(min(max((value - self.origin) * self.scale, 0), self.count - 1))

    @classmethod
    def hashed(cls, boxes: int) -> Keys:
        return cls("hashed", 1 << max(4, (_SPREAD * boxes - 1).bit_length()))

    @classmethod
    def spaced(cls, bounds: Numbers, boxes: int) -> Keys | None:
        """None if the bounds do not span a length that can be divided."""
        count = 1 << max(4, (_SPREAD * boxes - 1).bit_length())
        origin, span = float(bounds.min()), float(bounds.max()) - float(bounds.min())
        scale = count / span if span > 0.0 else np.inf
        return cls("spaced", count, origin, scale) if np.isfinite(scale) and np.isfinite(span) else None


@dataclass(frozen=True, slots=True)
class Postings:
    axis: int
    keys: Keys
    #: The list of key k is `boxes[starts[k]:starts[k + 1]]`.
    starts: Ids
    boxes: Ids
    #: By entry of the lists; the access axis first, since it rejects most.
    sides: Mapping[int, Side]

    @classmethod
    def build(cls, boxes: Ids, axis: int, keys: Keys, sides: Sequence[Side], axes: Sequence[Axis]) -> Postings:
        low, high = keys.of(sides[axis].low.take(boxes)), keys.of(sides[axis].high.take(boxes))
        key = runs(low, high - low + 1)
        entry = np.repeat(boxes, high - low + 1)[np.argsort(key, kind="stable")]
        kept = {axis: sides[axis].take(entry)}
        for a, other in enumerate(axes):
            side = sides[a].take(entry)
            if a != axis and side.constrained(other).any():
                kept[a] = side
        return cls(axis, keys, starts(key, keys.count), entry, kept)

    def match(self, places: Sequence[Places], labels: Ids) -> Iterator[tuple[Ids, Ids]]:
        """(entry, label of the event) of every pair that holds, part by part; no pair twice."""
        if labels.size == 1:
            found = self.of_one([p.only for p in places])
            yield found, labels.repeat(found.size)
            return
        here = places[self.axis]
        keys = self.keys.of(here.values)
        firsts = self.starts.take(keys)
        counts = self.starts.take(keys + 1) - firsts
        if here.present is not None:
            counts *= here.present
        first = 0
        ends = np.cumsum(counts)
        while first < labels.size:
            done = int(ends[first - 1]) if first else 0
            stop = max(first + 1, int(np.searchsorted(ends, done + _CHUNK_CANDIDATES, side="right")))
            entries = runs(firsts[first:stop], counts[first:stop])
            owners = np.repeat(np.arange(first, stop), counts[first:stop])
            entries, owners = holding(self.sides, entries, owners, places)
            yield entries, labels.take(owners)
            first = stop

    def of_one(self, places: Sequence[Place]) -> Ids:
        """The entries that hold one event."""
        place = places[self.axis]
        if place is None:
            return np.empty(0, np.int64)
        first, end = self.starts[(key := self.keys.of_one(place)) : key + 2].tolist()
        return np.array(holding_one(self.sides, range(first, end), places), np.int64)


def equal_loads(side: Side, boxes: NDArray[np.bool_]) -> Ids:
    """For each of these boxes that is an equality: how many of them ask for the same value. 0 for the others."""
    loads = np.zeros(side.low.size, np.int64)
    equal = np.flatnonzero(boxes & (side.low == side.high) & ~side.null)
    if equal.size:
        _, inverse, counts = np.unique(side.low[equal], return_inverse=True, return_counts=True)
        loads[equal] = counts[inverse]
    return loads
