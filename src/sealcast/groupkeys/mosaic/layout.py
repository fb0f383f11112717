"""Who lies next to whom: subscribers in an order, cut into tiles of at most sixteen, and a balanced tree over them.

The order brings together those who are wanted together. (Joining the most alike tiles first, instead of balancing,
makes the tree five times as deep and groups no cheaper.) A layout is a value: whoever makes the same one from the same
numbers gets the same keys, and tiles that were laid stay as they are when newcomers get tiles of their own.
"""

from __future__ import annotations

from functools import cached_property
from hashlib import blake2b
from itertools import pairwise
from typing import Final

import numpy as np
from numpy.typing import NDArray

from sealcast.errors import Misuse
from sealcast.filters import bits
from sealcast.filters.bits import Indices, Words
from sealcast.groupkeys.clusters import fit, split
from sealcast.groupkeys.interface import Outline
from sealcast.model.dataclass import dataclass

#: Patterns of a tile are 16-bit numbers.
MAX_TILE: Final = 16
#: Likeness is looked at for all pairs at once, in a second or two: beyond, slots stay in their order.
MAX_LINKED: Final = 2_048
#: More are not laid: what is looked up for each two of them would not fit. Other subscribers have their pair keys.
MAX_TILES: Final = 4_096
#: Below one member in so many slots, members are placed one by one.
_SPARSE: Final = 32

Patterns = NDArray[np.uint16]
Floats = NDArray[np.float32]


@dataclass(frozen=True, eq=False)
class TileLayout:
    """Tiles from left to right, and the tree over them.

    Node v joins tiles [low[v], middle[v]) and [middle[v], high[v]). Children come after their parents.
    """

    tiles: tuple[tuple[int, ...], ...]
    low: Indices
    middle: Indices
    high: Indices
    depth: Indices

    @cached_property
    def slot_at(self) -> Indices:
        """The slot at each of 16 places a tile; -1 where a tile is not full."""
        places = np.full((len(self.tiles), MAX_TILE), -1, np.int64)
        for tile, slots in enumerate(self.tiles):
            places[tile, : len(slots)] = slots
        return places.reshape(-1)

    @cached_property
    def place_of(self) -> Indices:
        """The place of each slot, 16 a tile; -1 for slots without a tile."""
        highest = max((slot for tile in self.tiles for slot in tile), default=-1)
        places = np.full(highest + 1, -1, np.int64)
        used = np.flatnonzero(self.slot_at >= 0)
        places[self.slot_at[used]] = used
        return places

    @cached_property
    def covered(self) -> Words:
        """The slots that have a tile, packed."""
        return bits.mask(self.place_of >= 0)

    @cached_property
    def meet(self) -> NDArray[np.int32]:
        """The node where each two tiles first lie on different sides; on the diagonal, nothing of use."""
        table = np.zeros((len(self.tiles), len(self.tiles)), np.int32)
        for node, (a, m, b) in enumerate(zip(self.low.tolist(), self.middle.tolist(), self.high.tolist(), strict=True)):
            table[a:m, m:b] = node
        return table

    @cached_property
    def stem_is_left(self) -> NDArray[np.bool_]:
        """A node's keys grow out of those of its larger side: fewer are left to be handed them."""
        return self.middle - self.low >= self.high - self.middle

    @cached_property
    def stems_left(self) -> list[bool]:
        return list(map(bool, self.stem_is_left))

    @cached_property
    def middles(self) -> list[int]:
        return list(map(int, self.middle))

    @cached_property
    def below(self) -> Words:
        """The slots below each node, packed."""
        rows = np.zeros((self.low.size, 8 * bits.words_for(self.place_of.size)), np.uint8)
        tile_of = self.place_of // MAX_TILE
        for node, (low, high) in enumerate(zip(self.low.tolist(), self.high.tolist(), strict=True)):
            flags = np.packbits((tile_of >= low) & (tile_of < high), bitorder="little")
            rows[node, : flags.size] = flags
        return rows.view("<u8").astype(np.uint64, copy=False)

    @cached_property
    def below_numbers(self) -> list[int]:
        """The slots below each node, as one number."""
        return [int.from_bytes(row.astype("<u8").tobytes(), "little") for row in self.below]

    @cached_property
    def shapes(self) -> list[bytes]:
        """Of each node: a digest of all that keys there depend on, the tiles below with their slots and how they join.

        Two layouts that agree below a node, as one and its extension do, have the same keys there.
        """
        found: dict[tuple[int, int], bytes] = {
            (i, i + 1): _digest(np.array(tile, "<u4").tobytes()) for i, tile in enumerate(self.tiles)
        }
        nodes = list(zip(self.low.tolist(), self.middle.tolist(), self.high.tolist(), strict=True))
        for (low, middle, high), left in zip(reversed(nodes), reversed(self.stem_is_left.tolist()), strict=True):
            found[low, high] = _digest(bytes([left]) + found[low, middle] + found[middle, high])
        return [found[low, high] for low, _, high in nodes]

    def patterns(self, groups: Words) -> Patterns:
        """Says for each group and tile which places of the tile are members."""
        within = fit(groups, self.place_of.size)
        if bits.count(within).sum() * _SPARSE < within.size * 64:
            return self._few(within)
        raw = within.astype("<u8", copy=False).view(np.uint8)
        flags = np.zeros((groups.shape[0], 64 * within.shape[1] + 1), np.uint8)
        flags[:, :-1] = np.unpackbits(raw, axis=1, bitorder="little")
        # The last column is always zero, and place -1 takes it.
        packed = np.packbits(np.take(flags, self.slot_at, axis=1), axis=1, bitorder="little")
        return packed.view("<u2").astype(np.uint16, copy=False)

    def _few(self, groups: Words) -> Patterns:
        """Returns the same patterns at a cost that follows the number of members."""
        group, slot = bits.pairs(groups)
        place = self.place_of[slot]
        group, place = group[place >= 0], place[place >= 0]
        found = np.zeros((groups.shape[0], len(self.tiles)), np.uint16)
        np.add.at(found, (group, place // MAX_TILE), np.left_shift(1, place % MAX_TILE).astype(np.uint16))
        return found

    def extended(self, newcomers: list[int]) -> TileLayout:
        """One more tile at the right, and a node that joins it to all that was there."""
        count = len(self.tiles)
        if not count:
            return TileLayout((tuple(newcomers),), self.low, self.middle, self.high, self.depth)
        return TileLayout(
            (*self.tiles, tuple(newcomers)),
            np.append(self.low, 0),
            np.append(self.middle, count),
            np.append(self.high, count + 1),
            np.append(self.depth, -1),
        ).in_order()

    @cached_property
    def outline(self) -> Outline:
        slots = np.array([slot for tile in self.tiles for slot in tile], np.int64)
        starts = np.flatnonzero(np.diff(slots, prepend=-2) != 1)
        runs = np.column_stack((slots[starts], np.diff(np.append(starts, slots.size))))
        # Parents before children, and of two that do not lie within each other the left one first.
        order = np.lexsort((-self.high, self.low))
        sizes = np.array([len(tile) for tile in self.tiles], np.int64)
        return Outline(sizes, runs.reshape(-1), self.middle[order])

    def rebalanced(self) -> TileLayout:
        """Puts the same tiles under a balanced tree: tables stay, and the keys above them are others."""
        return _over(self.tiles, _balanced(0, len(self.tiles)))

    def in_order(self) -> TileLayout:
        """Returns the same layout with parents before children and depths counted."""
        order = np.lexsort((self.low, self.low - self.high))
        low, middle, high = self.low[order], self.middle[order], self.high[order]
        depth = np.zeros(low.size, np.int64)
        for node in range(1, low.size):
            above = np.flatnonzero((low[:node] <= low[node]) & (high[:node] >= high[node]))
            depth[node] = depth[above].max() + 1
        return TileLayout(self.tiles, low, middle, high, depth)


def _digest(data: bytes) -> bytes:
    # Two shapes with one digest would be two secrets with one name: nobody finds any.
    return blake2b(data, digest_size=32, person=b"sealcast layout").digest()


def from_outline(given: Outline) -> TileLayout:
    """The layout that an outline is of; Misuse when it is of none."""
    sizes, runs, joins = (np.asarray(a, np.int64) for a in (given.sizes, given.runs, given.joins))
    first, length = runs.reshape(-1, 2).T if runs.size % 2 == 0 else (runs, runs[:0])
    total = int(sizes.sum())
    if length.sum() != total or (runs < 0).any() or not ((sizes >= 1) & (sizes <= MAX_TILE)).all():
        raise Misuse("an outline of no layout: its tiles and its slots do not fit")
    slots = bits.runs(first, length)
    if np.unique(slots).size != total or joins.size != max(0, sizes.size - 1):
        raise Misuse("an outline of no layout: a slot twice, or another number of nodes")
    ends = np.cumsum(np.append(0, sizes)).tolist()
    placed = slots.tolist()
    nodes, waiting = list[tuple[int, int, int]](), [(0, sizes.size)] if sizes.size > 1 else []
    for middle in joins.tolist():
        low, high = waiting.pop()
        if not low < middle < high:
            raise Misuse("an outline of no layout: a node outside of its own tiles")
        nodes.append((low, middle, high))
        waiting += [side for side in ((middle, high), (low, middle)) if side[1] - side[0] > 1]
    return _over(tuple(tuple(placed[a:b]) for a, b in pairwise(ends)), nodes)


def by_id(subscribers: int, tile: int) -> TileLayout:
    """Consecutive slots, and a balanced tree: all that can be done before anything is known."""
    return _laid(np.arange(min(subscribers, MAX_TILES * tile), dtype=np.int64), tile)


def by_similarity(slots: Indices, tile: int, sample: Words) -> TileLayout:
    """Those who are wanted together side by side, as far as a sample of groups shows it."""
    flags = _flags(sample, int(slots.max(initial=-1)) + 1)
    return _laid(slots[linkage_order(flags[:, slots])], tile)


def _laid(order: Indices, tile: int) -> TileLayout:
    if not 1 <= tile <= MAX_TILE:
        raise Misuse(f"a tile has 1 to {MAX_TILE} subscribers, not {tile}")
    sizes = split(order.size, -(-order.size // tile)) if order.size else []
    ends = np.cumsum([0, *sizes]).tolist()
    slots = order.tolist()
    tiles = tuple(tuple(slots[a:b]) for a, b in pairwise(ends))
    return _over(tiles, _balanced(0, len(tiles)))


def _over(tiles: tuple[tuple[int, ...], ...], nodes: list[tuple[int, int, int]]) -> TileLayout:
    """The tiles under a tree whose nodes are (low, middle, high), in any order."""
    low, middle, high = np.array(nodes, np.int64).reshape(-1, 3).T
    return TileLayout(tiles, low, middle, high, np.zeros(low.size, np.int64)).in_order()


def _balanced(low: int, high: int) -> list[tuple[int, int, int]]:
    if high - low < 2:
        return []
    middle = (low + high + 1) // 2
    return [(low, middle, high), *_balanced(low, middle), *_balanced(middle, high)]


def _flags(sample: Words, subscribers: int) -> Floats:
    raw = fit(sample, subscribers).astype("<u8", copy=False).view(np.uint8)
    return np.unpackbits(raw, axis=1, bitorder="little", count=subscribers).astype(np.float32)


def linkage_order(flags: Floats) -> Indices:
    """The leaves of the average-linkage tree of the subscribers, from left to right; likeness is Jaccard's.

    Each round joins the two most alike clusters. Every cluster remembers its best partner, and only those whose partner
    changed look again: quadratic in the subscribers, as the matrix is.
    """
    count = flags.shape[1]
    if count == 0:
        return np.empty(0, np.int64)
    shared = flags.T @ flags
    size = np.diag(shared).copy()
    likeness = shared / np.maximum(size[:, None] + size[None, :] - shared, 1)
    np.fill_diagonal(likeness, -1)
    weight = np.ones(count, np.float32)
    leaves: list[list[int]] = [[i] for i in range(count)]
    partner = likeness.argmax(axis=1)
    value = likeness[np.arange(count), partner]
    for _ in range(count - 1):
        i = int(np.argmax(value))
        j = int(partner[i])
        leaves[i] += leaves[j]
        likeness[i] = (weight[i] * likeness[i] + weight[j] * likeness[j]) / (weight[i] + weight[j])
        likeness[i, i] = -1
        likeness[:, i] = likeness[i]
        likeness[j] = likeness[:, j] = -1
        likeness[i, j] = -1
        weight[i] += weight[j]
        value[j] = -2
        again = np.flatnonzero(((partner == i) | (partner == j)) & (value > -2))
        again = np.union1d(again, [i])
        partner[again] = likeness[again].argmax(axis=1)
        value[again] = likeness[again, partner[again]]
        better = np.flatnonzero((likeness[:, i] > value) & (value > -2))
        partner[better], value[better] = i, likeness[better, i]
    return np.array(leaves[int(np.argmax(value))], np.int64)
