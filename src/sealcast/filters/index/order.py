"""Which boxes should be neighbours: sort, tile, sort within the tiles, and so on axis by axis.

An event visits a block if it lies within the block's extent on every axis. With n tiles along an axis on which a
typical box covers the share w of events, the extent is about 1/n + w; the product over the axes is least, for a
given number of blocks, when n * w is the same on each: narrow axes are cut more often.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from sealcast.filters.index.boxes import Ids

Shares = NDArray[np.float64]


def tiled(starts: Sequence[Shares], ends: Sequence[Shares], per_block: int) -> Ids:
    """An order of the boxes, given by where they start and end on each axis, as shares of the events from 0 to 1."""
    count = starts[0].size if starts else 0
    order = np.arange(count)
    if count <= per_block:
        return order
    typical = [max(float(np.median(e - s)), 1e-6) for s, e in zip(starts, ends, strict=True)]
    tile = np.zeros(count, np.int64)
    for axis, tiles in zip(*_cuts(typical, -(-count // per_block)), strict=True):
        centre = starts[axis] + ends[axis]
        order = np.lexsort((centre, tile))
        sizes = np.bincount(tile, minlength=int(tile.max()) + 1)
        begins = np.cumsum(sizes) - sizes
        sorted_tile = tile[order]
        within = np.arange(count) - begins[sorted_tile]
        finer = sorted_tile * tiles + (within * tiles) // sizes[sorted_tile]
        _, tile[order] = np.unique(finer, return_inverse=True)
    return order


def _cuts(typical: Sequence[float], blocks: int) -> tuple[list[int], list[int]]:
    """Axes, narrowest first, and how many tiles each is cut into; an axis not worth a second tile is left out."""
    axes = sorted(range(len(typical)), key=lambda axis: typical[axis])
    while axes:
        logs = np.log([typical[axis] for axis in axes])
        level = (np.log(blocks) + logs.sum()) / len(axes)
        tiles = np.exp(level - logs)
        if tiles[-1] >= 1.5 or len(axes) == 1:
            return axes, [max(1, round(float(t))) for t in tiles]
        axes.pop()
    return [], []
