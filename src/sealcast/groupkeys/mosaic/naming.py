"""The keys of parts, by description: down along the stems to a tile."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from typing import overload

import numpy as np

from sealcast.errors import Misuse
from sealcast.filters import bits
from sealcast.filters.bits import Indices, Words
from sealcast.groupkeys.clusters import fit
from sealcast.groupkeys.interface import GrownKey, KeyRef, Lineage, PairKey, TableKey
from sealcast.groupkeys.mosaic.layout import Patterns, TileLayout


class GrownKeys(Sequence[GrownKey]):
    """Many grown keys, made into objects only when asked for: most were derived before, and their names suffice."""

    def __init__(
        self,
        shapes: list[bytes],
        packed: list[bytes],
        where: list[tuple[int, int, int]],
        lineage: Callable[[int, int, int], Lineage],
    ) -> None:
        self.shapes, self.packed = shapes, packed
        self._where, self._lineage = where, lineage

    def __len__(self) -> int:
        return len(self.shapes)

    @overload
    def __getitem__(self, at: int) -> GrownKey: ...
    @overload
    def __getitem__(self, at: slice) -> Sequence[GrownKey]: ...
    def __getitem__(self, at: int | slice) -> GrownKey | Sequence[GrownKey]:
        if isinstance(at, slice):
            return [self[i] for i in range(*at.indices(len(self)))]
        return GrownKey(self.shapes[at], self.packed[at], partial(self._lineage, *self._where[at]))


class Namer:
    """Describes the keys of parts of some groups."""

    def __init__(self, layout: TileLayout, groups: Words, patterns: Patterns) -> None:
        self._layout = layout
        self._patterns = patterns
        self._groups = fitted = fit(groups, 64 * layout.below.shape[1])
        # One key after the other: numbers of any length, and lists, are faster than arrays of one.
        self._whole = lru_cache(1)(lambda group: int.from_bytes(fitted[group].astype("<u8").tobytes(), "little"))
        self._tiles = lru_cache(1)(lambda group: patterns[group].nonzero()[0].tolist())

    def grown(self, group: Indices, first: Indices, last: Indices) -> GrownKeys:
        """The keys of the members of groups between two tiles each, in both of which the group has some."""
        node = self._layout.meet[first, last]
        rows = bits.row_bytes((self._groups[group] & self._layout.below[node]).astype("<u8", copy=False))
        packed = [row.rstrip(b"\0") for row in rows]
        shapes = list(map(self._layout.shapes.__getitem__, node.tolist()))
        where = list(zip(group.tolist(), first.tolist(), last.tolist(), strict=True))
        return GrownKeys(shapes, packed, where, self._lineage)

    def part(self, group: int, first: int, last: int) -> KeyRef:
        if first == last:
            return self._in_tile(first, int(self._patterns[group, first]))
        node = int(self._layout.meet[first, last])
        return GrownKey(*self._named(self._whole(group), node), partial(self._lineage, group, first, last))

    def _lineage(self, group: int, first: int, last: int) -> Lineage:
        """Down the tree, always on the side that the key grows out of, to a tile."""
        layout, tiles, whole = self._layout, self._tiles(group), self._whole(group)
        stems, node = list[tuple[bytes, bytes]](), int(layout.meet[first, last])
        while True:
            at = bisect_left(tiles, layout.middles[node])
            if layout.stems_left[node]:
                last = tiles[at - 1]
            else:
                first = tiles[at]
            if first == last:
                return stems, self._in_tile(first, int(self._patterns[group, first]))
            node = int(layout.meet[first, last])
            stems.append(self._named(whole, node))

    def _named(self, whole: int, node: int) -> tuple[bytes, bytes]:
        packed = (whole & self._layout.below_numbers[node]).to_bytes(8 * self._groups.shape[1], "little")
        return self._layout.shapes[node], packed.rstrip(b"\0")

    def _in_tile(self, tile: int, pattern: int) -> PairKey | TableKey:
        slots = self._layout.tiles[tile]
        return PairKey(slots[pattern.bit_length() - 1]) if pattern.bit_count() == 1 else TableKey(slots, pattern)


def key_of(layout: TileLayout, members: Sequence[int]) -> KeyRef:
    """The key that exactly these slots share, if all of them have tiles."""
    return parts_of(layout, members)[0]


def parts_of(layout: TileLayout, members: Sequence[int]) -> list[KeyRef]:
    """The keys of all parts of a group: its own first, then those of its sides, down to the tiles."""
    slots = np.array(sorted(members), np.int64)
    if not slots.size or slots[0] < 0 or slots[-1] >= layout.place_of.size or (layout.place_of[slots] < 0).any():
        raise Misuse("a part has members, all of them in tiles")
    groups = bits.pack(np.zeros(slots.size, np.int64), slots, 1, layout.place_of.size)
    patterns = layout.patterns(groups)
    namer, found = Namer(layout, groups, patterns), list[KeyRef]()
    waiting = [patterns[0].nonzero()[0]]
    while waiting:
        tiles = waiting.pop()
        first, last = int(tiles[0]), int(tiles[-1])
        found.append(namer.part(0, first, last))
        if first < last:
            middle = int(layout.middle[layout.meet[first, last]])
            waiting += [tiles[tiles >= middle], tiles[tiles < middle]]
    return found
