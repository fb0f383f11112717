"""Tables of bitmaps over an axis: for every bucket, which boxes may hold a place in it and which hold all of it.

The bits of the boxes are laid out in *blocks* of `width` words. A row of a table has, block by block, first the words
of "maybe", then those of "surely", so that one look-up brings both. The last row is for events that are NULL there.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from sealcast.filters.bits import Words, bit_of
from sealcast.filters.index.boxes import Ids, Side
from sealcast.filters.index.grid import BoxGrid, Buckets
from sealcast.filters.vector.axes import Axis, Place, Places

#: Buckets of an axis at most: beyond this, finer buckets save less checking of bounds than their memory costs.
MAX_BUCKETS: Final = 512
#: Bytes of one axis' table at most; a great many boxes get coarser buckets instead of more memory.
MAX_TABLE_BYTES: Final = 24 << 20
_MIN_BUCKETS: Final = 16


@dataclass(frozen=True, slots=True)
class Table:
    grid: BoxGrid
    #: (buckets + 1 for NULL, blocks, 2 * width)
    words: Words

    @classmethod
    def build(cls, side: Side, positions: Ids, words: int, width: int, axis: Axis) -> Table:
        """`positions[i]` is the bit of box i; `words` in all, a multiple of `width`."""
        most = max(_MIN_BUCKETS, min(MAX_BUCKETS, MAX_TABLE_BYTES // (16 * words)))
        bounds = side.bounds(axis)
        grid = BoxGrid.over(bounds if bounds.size else np.zeros(1, axis.dtype), most)
        first, last = grid.bucket(side.low), grid.bucket(side.high)
        real = side.low <= side.high
        sure_first = np.where((side.low == axis.least) | grid.certain, first, first + 1)
        sure_last = np.where((side.high == axis.greatest) | grid.certain, last, last - 1)
        maybe = _runs(grid.count, words, positions, first, last, real)
        surely = _runs(grid.count, words, positions, sure_first, sure_last, real & (sure_first <= sure_last))
        table = np.zeros((grid.count + 1, 2, words), np.uint64)
        table[:-1, 0], table[:-1, 1] = maybe, surely
        nulls = positions[side.null]
        np.bitwise_or.at(table[-1, 0], nulls >> 6, bit_of(nulls))
        table[-1, 1] = table[-1, 0]
        blocks = table.reshape(grid.count + 1, 2, words // width, width).transpose(0, 2, 1, 3)
        return cls(grid, np.ascontiguousarray(blocks).reshape(grid.count + 1, words // width, 2 * width))

    def rows(self, places: Places) -> Buckets:
        """The row of each event."""
        rows = self.grid.bucket(places.values)
        return rows if places.present is None else np.where(places.present, rows, self.grid.count)

    def row(self, place: Place) -> int:
        """The row of one event."""
        return self.grid.count if place is None else self.grid.bucket_of(place)


def _runs(buckets: int, words: int, positions: Ids, first: Buckets, last: Buckets, real: NDArray[np.bool_]) -> Words:
    """Bitmaps in which each box is set from its first bucket to its last.

    A box flips its bit where it starts and behind where it ends; summing up the flips along the axis sets the rest.
    """
    flips = np.zeros((buckets + 1, words), np.uint64)
    word, bit = positions[real] >> 6, bit_of(positions[real])
    np.bitwise_xor.at(flips, (first[real], word), bit)
    np.bitwise_xor.at(flips, (last[real] + 1, word), bit)
    return np.bitwise_xor.accumulate(flips, axis=0)[:-1]
