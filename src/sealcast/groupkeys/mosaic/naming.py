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
from sealcast.groupkeys.interface import GrownKey, KeyRef, PairKey, TableKey
from sealcast.groupkeys.mosaic.layout import Layout, Patterns


class GrownKeys(Sequence[GrownKey]):
    """Many grown keys, made into objects only when asked for: most were derived before, and their names suffice."""

    def __init__(
        self,
        shapes: list[bytes],
        packed: list[bytes],
        where: list[tuple[int, int, int]],
        stem: Callable[[int, int, int], KeyRef],
    ) -> None:
        self.shapes, self.packed = shapes, packed
        self._where, self._stem = where, stem

    def __len__(self) -> int:
        return len(self.shapes)

    @overload
    def __getitem__(self, at: int) -> GrownKey: ...
    @overload
    def __getitem__(self, at: slice) -> Sequence[GrownKey]: ...
    def __getitem__(self, at: int | slice) -> GrownKey | Sequence[GrownKey]:
        if isinstance(at, slice):
            return [self[i] for i in range(*at.indices(len(self)))]
        return GrownKey(self.shapes[at], self.packed[at], partial(self._stem, *self._where[at]))


class Namer:
    """Describes the keys of parts of some groups."""

    def __init__(self, layout: Layout, groups: Words, patterns: Patterns) -> None:
        self._layout = layout
        self._patterns = patterns
        self._groups = fitted = fit(groups, 64 * layout.below.shape[1])
        # One key after the other: numbers of any length, and lists, are faster than arrays of one.
        self._whole = lru_cache(1)(lambda group: int.from_bytes(fitted[group].astype("<u8").tobytes(), "little"))
        self._tiles = lru_cache(1)(lambda group: patterns[group].nonzero()[0].tolist())

    def grown(self, group: Indices, first: Indices, last: Indices) -> GrownKeys:
        """The keys of the members of groups between two tiles each, in both of which the group has some."""
        node = self._layout.meet[first, last]
        raw = (self._groups[group] & self._layout.below[node]).astype("<u8", copy=False).tobytes()
        width = 8 * self._groups.shape[1]
        packed = [raw[at : at + width].rstrip(b"\0") for at in range(0, len(raw), width)]
        shapes = list(map(self._layout.shapes.__getitem__, node.tolist()))
        where = list(zip(group.tolist(), first.tolist(), last.tolist(), strict=True))
        return GrownKeys(shapes, packed, where, self._stem)

    def part(self, group: int, first: int, last: int) -> KeyRef:
        if first == last:
            return self._in_tile(first, int(self._patterns[group, first]))
        node = int(self._layout.meet[first, last])
        packed = (
            (self._whole(group) & self._layout.below_numbers[node])
            .to_bytes(8 * self._groups.shape[1], "little")
            .rstrip(b"\0")
        )
        return GrownKey(self._layout.shapes[node], packed, partial(self._stem, group, first, last))

    def _stem(self, group: int, first: int, last: int) -> KeyRef:
        node = int(self._layout.meet[first, last])
        middle = int(self._layout.middle[node])
        tiles = self._tiles(group)
        at = bisect_left(tiles, middle)
        if self._layout.stem_is_left[node]:
            return self.part(group, first, tiles[at - 1])
        return self.part(group, tiles[at], last)

    def _in_tile(self, tile: int, pattern: int) -> KeyRef:
        slots = self._layout.tiles[tile]
        return PairKey(slots[pattern.bit_length() - 1]) if pattern.bit_count() == 1 else TableKey(slots, pattern)


def key_of(layout: Layout, members: Sequence[int]) -> KeyRef:
    """The key that exactly these slots share, if all of them have tiles."""
    return parts_of(layout, members)[0]


def parts_of(layout: Layout, members: Sequence[int]) -> list[KeyRef]:
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
