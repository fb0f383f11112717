"""Derived key tables: a key for every pattern of a tile, of which each member can derive those of its own patterns.

The keys of a tile are the leaves of a binary tree of labels (Goldreich, Goldwasser and Micali): the root's label is
derived from the topic's secret and the tile's slots, a child's from its parent's and one bit, by a one-way function.
Each inner node asks for one place of the tile: patterns without it go left, patterns with it go right. A subscriber is
given the labels of the right children of all nodes that ask for its place: from them it derives the keys of exactly the
patterns it belongs to. A coalition of others holds no label above any leaf outside its own patterns.

Somebody must be told each key who cannot derive it from a smaller pattern's, so that the subscribers of a tile of n are
told 2^n - 1 labels together, in whatever order places are asked for. The order below gives each of them about the same,
2^n / n, where a fixed one would give a single label to the first and 2^(n-1) to the last.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Final

import numpy as np
from numpy.typing import NDArray

from sealcast.filters.bits import Indices
from sealcast.groupkeys.mosaic.layout import MAX_TILE

#: A table is worth an encryption for so many of its keys: a tenth of its bytes, because it serves for good.
_KEYS_PER_ENCRYPTION: Final = 16
_LABEL_BYTES: Final = 32
#: Tables that are given to their members at once, in bytes: a delivery stays bounded.
MAX_BYTES_AT_ONCE: Final = 32 << 20
#: Of a place: its part of the table was never given, or was for sure; else the tag of the plan that gave it, plus one
#: (and the tag of what is certain is zero: `groupkeys.handed`).
_NEVER, _SURELY = 0, 1


def paths(patterns: Indices, places: int) -> tuple[Indices, Indices]:
    """The way of each pattern through the tree of a tile, and the place that each step asks for (a column a step).

    A path reads from its highest bit: bit places-1-d is the answer at depth d. At depth d a node with the path so far
    asks for place number (path mod places left) of the places left, in ascending order.
    """
    left = np.full(patterns.size, sum(i << 4 * i for i in range(places)), np.uint64)
    path = np.zeros(patterns.size, np.int64)
    asked = np.empty((patterns.size, places), np.int64)
    for depth in range(places):
        shift = (4 * (path % (places - depth))).astype(np.uint64)
        asked[:, depth] = (left >> shift) & np.uint64(15)
        below = (np.uint64(1) << shift) - np.uint64(1)
        # Shifting by 64 is undefined: drop the place in two steps.
        left = left & below | (left >> shift >> np.uint64(4)) << shift
        path = path << 1 | patterns >> asked[:, depth] & 1
    return path, asked


def path_of(pattern: int, places: int) -> tuple[int, list[int]]:
    """`paths` of one pattern."""
    left = list(range(places))
    path, asked = 0, []
    for _ in range(places):
        place = left.pop(path % len(left))
        asked.append(place)
        path = path << 1 | pattern >> place & 1
    return path, asked


@lru_cache(MAX_TILE)
def all_paths(places: int) -> Indices:
    """The way of every pattern, by pattern."""
    return paths(np.arange(1 << places, dtype=np.int64), places)[0]


@lru_cache(MAX_TILE * MAX_TILE)
def labels_of(place: int, places: int) -> tuple[tuple[int, int], ...]:
    """The labels that the subscriber at a place is given: (depth, path so far) of each, from the top, left to right."""
    mine = np.flatnonzero(np.arange(1 << places) >> place & 1)
    path, asked = paths(mine, places)
    depth = 1 + (asked == place).argmax(axis=1)
    found = np.unique(np.stack((depth, path >> places - depth)), axis=1)
    return tuple(zip(found[0].tolist(), found[1].tolist(), strict=True))


def price_of(places: int) -> int:
    """Encryptions that a tile may waste, on keys handed out one by one, before its members are given its table."""
    return (1 << places) // _KEYS_PER_ENCRYPTION


class TileTables:
    """Which tiles' tables are in use, and who has been given its part. A tile rents before it buys.

    As long as a tile's patterns are few, their keys are handed out one by one as they come up. Each costs as many
    encryptions as it has members; when that has cost the price of a table, the table is worth it.
    """

    def __init__(self, sizes: Sequence[int]) -> None:
        self.bought: NDArray[np.bool_] = np.zeros(len(sizes), np.bool_)
        #: By place, sixteen a tile.
        self._given = np.zeros(MAX_TILE * len(sizes), np.uint8)
        self._wasted = np.zeros(len(sizes), np.int64)
        self._price = np.array([price_of(size) for size in sizes], np.int64)

    @property
    def nbytes(self) -> int:
        return self.bought.nbytes + self._given.nbytes + self._wasted.nbytes + self._price.nbytes

    def missing(self, place: Indices, tag: int) -> Indices:
        """Those of the places whose subscribers a plan of this tag may not expect to have their parts."""
        since = self._given[place]
        return np.flatnonzero((since != _SURELY) & (since != tag + 1))

    def give(self, place: Indices, tag: int) -> None:
        self._given[place] = tag + 1

    def settle(self, tag: int, delivered: bool) -> None:
        self._given[self._given == tag + 1] = _SURELY if delivered else _NEVER

    def rent(self, tile: Indices, members: Indices | NDArray[np.uint8]) -> NDArray[np.bool_]:
        """New patterns in order: which of them are rented. From the first that is not, their tile has its table."""
        order = np.argsort(tile, kind="stable")
        waste = members[order].astype(np.int64) - 1
        running = np.cumsum(waste) - waste
        starts = np.flatnonzero(np.diff(tile[order], prepend=-1))
        running -= np.repeat(running[starts], np.diff(np.append(starts, order.size)))
        rented = np.empty(tile.size, np.bool_)
        rented[order] = running + self._wasted[tile[order]] < self._price[tile[order]]
        rented |= ~np.isin(tile, self._affordable(np.unique(tile[~rented])))
        np.add.at(self._wasted, tile[order], np.where(rented[order], waste, 0))
        self.bought[tile[~rented]] = True
        return rented

    def _affordable(self, tiles: Indices) -> Indices:
        """As many of the tiles as may be bought at once, those that wasted most first."""
        first = tiles[np.argsort(-self._wasted[tiles], kind="stable")]
        spent = np.cumsum(_LABEL_BYTES * _KEYS_PER_ENCRYPTION * self._price[first])
        return first[: max(1, int(np.searchsorted(spent, MAX_BYTES_AT_ONCE, side="right")))]

    def extend(self, size: int) -> None:
        """One more tile."""
        self.bought = np.append(self.bought, False)
        self._given = np.append(self._given, np.zeros(MAX_TILE, np.uint8))
        self._wasted = np.append(self._wasted, 0)
        self._price = np.append(self._price, price_of(size))
