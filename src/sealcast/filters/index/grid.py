"""An axis cut into buckets: what a table of bitmaps is looked up by.

Nothing depends on where the cuts are but speed: all that matters is that `bucket` never decreases along the axis and
is the same function for events and for bounds. A box then holds every place of the buckets between those of its
bounds, may hold some of the buckets of its bounds, and holds nothing else.

    direct   whole numbers in a short span: one bucket each, so that even the bounds' own buckets are certain
    cells    4,096 equal cells, each assigned to a bucket such that buckets hold about as many bounds: a few
             arithmetic operations for an event, where searching would take twenty times as long
    edges    a sorted array to search in, for bounds so uneven that cells would not tell them apart
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from sealcast.filters.vector.axes import Numbers
from sealcast.filters.vector.intervals import INT_MAX, INT_MIN

Buckets = NDArray[np.int64]

_CELLS: Final = 4_096
#: Cells will do as long as the fullest holds at most this many times the bounds of an even share per bucket.
_MAX_CROWDING: Final = 3.0


@dataclass(frozen=True, slots=True)
class BoxGrid:
    kind: str
    count: int
    #: direct: the value in front of the first bucket. cells: where the first cell starts.
    origin: int | float
    #: cells: cells per unit.
    scale: float
    #: cells: the bucket of each cell. edges: the edges; an edge belongs to the bucket it starts.
    table: Numbers

    @property
    def certain(self) -> bool:
        """Whether a bound's own bucket is wholly inside its box."""
        return self.kind == "direct"

    def bucket(self, values: Numbers) -> Buckets:
        if self.kind == "direct":
            last = int(self.origin) + self.count - 1
            return np.clip(values, int(self.origin), last).astype(np.int64) - int(self.origin)
        if self.kind == "edges":
            return np.searchsorted(self.table, values, side="right")
        with np.errstate(over="ignore"):  # beyond the last cell is beyond the last cell
            cells = (values - self.origin) * self.scale
        # Each step keeps the order: subtraction, multiplication and rounding are all monotone.
        return self.table.take(np.clip(cells, 0, _CELLS - 1).astype(np.int64))

    def bucket_of(self, value: int | float) -> int:
        """`bucket` of one value, by the same steps."""
        if self.kind == "direct":
            return int(min(max(value - self.origin, 0), self.count - 1))
        if self.kind == "edges":
            return int(self.table.searchsorted(value, side="right"))
        return int(self.table[int(min(max((value - self.origin) * self.scale, 0), _CELLS - 1))])

    @classmethod
    def over(cls, bounds: Numbers, most: int) -> BoxGrid:
        """Buckets for these bounds (at least one; infinities and other extremes left out), at most `most` of them."""
        distinct = np.unique(bounds)
        first, last = distinct[0], distinct[-1]
        whole = distinct.dtype == np.int64 and int(first) > INT_MIN and int(last) < INT_MAX
        if whole and int(last) - int(first) + 3 <= most:
            return cls("direct", int(last) - int(first) + 3, int(first) - 1, 0.0, np.empty(0, np.int64))
        span = float(last) - float(first)
        if 0.0 < span < np.inf and np.isfinite(scale := _CELLS / span):
            cells = _cells(bounds, float(first), scale, most)
            if cells is not None:
                return cells
        edges = distinct if distinct.size < most else distinct[np.linspace(0, distinct.size - 1, most - 1).astype(int)]
        return cls("edges", edges.size + 1, 0.0, 0.0, edges)

    def facts(self) -> dict[str, Any]:
        """All but the table, for JSON."""
        return {"kind": self.kind, "count": self.count, "origin": self.origin, "scale": self.scale}


def _cells(bounds: Numbers, origin: float, scale: float, most: int) -> BoxGrid | None:
    cell = np.clip((bounds - origin) * scale, 0, _CELLS - 1).astype(np.int64)
    counts = np.bincount(cell, minlength=_CELLS)
    if counts.max() > max(_MAX_CROWDING * bounds.size / most, 1.0):
        return None
    share = bounds.size / min(most, _CELLS)
    before = np.cumsum(counts) - counts
    table = np.minimum(before / share, most - 1).astype(np.int64)
    _, table = np.unique(table, return_inverse=True)  # no empty buckets: they would be rows of bitmaps for nothing
    return BoxGrid("cells", int(table[-1]) + 1, origin, scale, table.astype(np.int64))
