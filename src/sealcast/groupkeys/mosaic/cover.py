"""Covering groups with keys, a batch at a time: from the top of the tree down, only as deep as nothing is held.

A part is the members of one group below one node of the tree (or in one tile). It is

    HELD      its key has reached its members: one key, nothing to do
    NEW       its key is made now, grown out of the key of its stem (docs/group-keys.md), and remembered
    THROUGH   it gets no key of its own: its two sides are covered each by itself, in a tile each member

A key is made only where that costs nothing more than not making it: for a whole group and along its stems, and
elsewhere if its stem's key is or will be known. So no group ever costs more than it has members.

The very members decide where a part lies: a node with members on one side only is skipped, so that the same members
are the same part whatever group they come from. All groups of a batch go down together, a level of the tree at a time;
among equal parts the first makes the key and the others hold it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import accumulate
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from sealcast.filters.bits import Indices
from sealcast.groupkeys.mosaic.gates import Gates
from sealcast.groupkeys.mosaic.layout import Patterns, TileLayout
from sealcast.groupkeys.mosaic.memory import U64, Memory
from sealcast.groupkeys.mosaic.tables import TileTables

HELD, NEW, THROUGH = 0, 1, 2
#: In `Cover.node`: the part lies in one tile.
TILE: Final = -1
#: In `Cover.parent`: the part is a whole group.
WHOLE: Final = -1

_MIX: Final = np.uint64(0xD6E8FEB86659FD93)


@dataclass(frozen=True, slots=True)
class Cover:
    """All parts of a batch that were looked at, parents before children."""

    group: Indices
    node: Indices
    #: The outermost tiles with members.
    first: Indices
    last: Indices
    kind: NDArray[np.int8]
    parent: Indices
    #: The side from which its parent's key grows.
    stem: NDArray[np.bool_]
    #: Of parts in a tile: their members there, as a pattern and counted.
    pattern: Patterns
    size: Indices
    #: Where each level of the tree ends: a part's parent is of an earlier level.
    levels: tuple[int, ...]


class Fingerprints:
    """Secret random numbers that turn members into 128 bits, tile by tile, so that any stretch of tiles is a sum."""

    def __init__(self, tiles: int, rng: np.random.Generator) -> None:
        self._seeds = _seeds(tiles, rng)

    def extend(self, rng: np.random.Generator) -> None:
        """One more tile; the others' numbers stay."""
        self._seeds = np.concatenate((self._seeds, _seeds(1, rng)), axis=2)

    def sums(self, patterns: Patterns) -> tuple[U64, U64]:
        """Running sums over the tiles, starting with zero."""
        halves = []
        for odd, seed in self._seeds:
            mixed = (patterns.astype(np.uint64) + seed) * odd
            mixed ^= mixed >> np.uint64(31)
            mixed *= _MIX
            mixed ^= mixed >> np.uint64(29)
            mixed *= odd
            mixed[patterns == 0] = 0
            sums = np.zeros((patterns.shape[0], patterns.shape[1] + 1), np.uint64)
            np.cumsum(mixed, axis=1, out=sums[:, 1:])
            halves.append(sums)
        return halves[0], halves[1]


def _seeds(tiles: int, rng: np.random.Generator) -> U64:
    seeds = rng.integers(0, 2**64, (2, 2, tiles), np.uint64, endpoint=False)
    seeds[:, 0] |= np.uint64(1)
    return seeds


class _Parts(NamedTuple):
    group: Indices
    first: Indices
    last: Indices
    parent: Indices
    stem: NDArray[np.bool_]
    #: A whole group, or the stem of a new part for which this holds.
    main: NDArray[np.bool_]

    def where(self, which: NDArray[np.bool_] | Indices) -> _Parts:
        return _Parts._make(column[which] for column in self)

    @staticmethod
    def of(parts: Iterable[_Parts]) -> _Parts:
        return _Parts._make(map(np.concatenate, zip(*parts, strict=True)))


class Coverer:
    """One batch's way down the tree."""

    def __init__(
        self,
        layout: TileLayout,
        patterns: Patterns,
        fingerprints: Fingerprints,
        memory: Memory,
        gates: Gates,
        tables: TileTables,
        tag: int,
    ) -> None:
        self._layout = layout
        self._patterns = patterns
        self._heads, self._tails = fingerprints.sums(patterns)
        self._memory = memory
        self._gates = gates
        self._tables = tables
        self._tag = tag
        tiles = np.arange(patterns.shape[1])
        members = patterns != 0
        #: The last tile with members up to each, and the first one from each on.
        self._before = np.maximum.accumulate(np.where(members, tiles, -1), axis=1)
        self._after = np.minimum.accumulate(np.where(members, tiles, tiles.size)[:, ::-1], axis=1)[:, ::-1]
        self._end = tiles.size - 1
        self._done: list[tuple[_Parts, Indices, NDArray[np.int8], Patterns]] = []
        self._count = 0

    def cover(self) -> Cover:
        wanted = np.flatnonzero(self._patterns.any(axis=1))
        first, last = self._after[wanted, 0], self._before[wanted, -1]
        no, yes = np.zeros(wanted.size, np.bool_), np.ones(wanted.size, np.bool_)
        waiting = [_Parts(wanted, first, last, np.full(wanted.size, WHOLE, np.int64), no, yes)]
        for depth in range(int(self._layout.depth.max(initial=-1)) + 1):
            parts = _Parts.of(waiting)
            node = self._layout.meet[parts.first, parts.last]
            inner = parts.first < parts.last
            now = inner & (self._layout.depth[node] == depth)
            waiting = [parts.where(~now), *self._level(parts.where(now), node[now].astype(np.int64))]
        self._tiles(_Parts.of(waiting))
        return self._collected()

    def _level(self, parts: _Parts, node: Indices) -> list[_Parts]:
        """Parts at one level of the tree: settles them, and returns their two sides where they need covering."""
        if not node.size:
            return []
        # In the order of groups: of equal parts, the first is the one with the first event.
        order = np.argsort(parts.group, kind="stable")
        parts, node = parts.where(order), node[order]
        head, tail = self._fingerprint(parts)
        kind = np.full(node.size, THROUGH, np.int8)
        open_ = self._gates.is_open[node]
        kind[open_] = self._ask(parts.where(open_), head[open_], tail[open_], node[open_])
        self._gates.listen(node[~open_], head[~open_], tail[~open_], (parts.last - parts.first)[~open_])
        at = self._settle(parts, node, kind, np.zeros(node.size, np.uint16))
        below = np.flatnonzero(kind != HELD)
        main = parts.main & (kind == NEW)
        return self._sides(parts.where(below), node[below], at + below, main[below])

    def _ask(self, parts: _Parts, head: U64, tail: U64, node: Indices) -> NDArray[np.int8]:
        held, savings = self._memory.ask(head, tail, self._tag)
        # Also what others have handed out and is not delivered yet: next time it will have been worth it.
        self._gates.gained(node, savings)
        kind = np.where(held, HELD, THROUGH).astype(np.int8)
        fresh = np.flatnonzero(~held)
        fresh = fresh[parts.main[fresh] | self._grounded(parts.where(fresh))]
        kind[fresh] = NEW
        kind[fresh[_repeats(head[fresh], tail[fresh])]] = HELD
        return kind

    def _grounded(self, parts: _Parts) -> NDArray[np.bool_]:
        """Will the stem of this part, and its stem, and so on, have keys without handing one out to each member?"""
        group, first, last = parts.group, parts.first, parts.last
        fine = np.ones(group.size, np.bool_)
        while (inner := np.flatnonzero(fine & (first < last))).size:
            node = self._layout.meet[first[inner], last[inner]]
            fine[inner] = self._gates.is_open[node]
            left, middle = self._layout.stem_is_left[node], self._layout.middle[node]
            first, last = first.copy(), last.copy()
            last[inner] = np.where(left, self._before[group[inner], middle - 1], last[inner])
            first[inner] = np.where(left, first[inner], self._after[group[inner], np.minimum(middle, self._end)])
        unbought = np.flatnonzero(fine & ~self._tables.bought[first])
        pattern = self._patterns[group[unbought], first[unbought]]
        held, _ = self._memory.ask(*self.fingerprint(group[unbought], first[unbought], first[unbought]), self._tag)
        fine[unbought] = held | (np.bitwise_count(pattern) == 1)
        return fine

    def _sides(self, parts: _Parts, node: Indices, at: Indices, main: NDArray[np.bool_]) -> list[_Parts]:
        middle = self._layout.middle[node]
        left = self._layout.stem_is_left[node]
        return [
            _Parts(parts.group, parts.first, self._before[parts.group, middle - 1], at, left, main & left),
            _Parts(parts.group, self._after[parts.group, middle], parts.last, at, ~left, main & ~left),
        ]

    def _tiles(self, parts: _Parts) -> None:
        """Parts in one tile: a pair key, a key of its table, the same handed out by itself, or many pair keys."""
        pattern = self._patterns[parts.group, parts.first]
        kind = np.full(pattern.size, HELD, np.int8)
        rented = np.flatnonzero((np.bitwise_count(pattern) > 1) & ~self._tables.bought[parts.first])
        rented = rented[np.argsort(parts.group[rented], kind="stable")]
        held, _ = self._memory.ask(*self._fingerprint(parts.where(rented)), self._tag)
        fresh = rented[~held]
        fresh = fresh[self._tables.rent(parts.first[fresh], np.bitwise_count(pattern[fresh]))]
        kind[fresh] = THROUGH
        main = fresh[parts.main[fresh]]
        kind[main] = NEW
        kind[main[_repeats(*self._fingerprint(parts.where(main)))]] = HELD
        at = self._settle(parts, np.full(pattern.size, TILE, np.int64), kind, pattern)
        self._members(parts, pattern, np.flatnonzero(kind == THROUGH), at)

    def _members(self, parts: _Parts, pattern: Patterns, which: Indices, at: int) -> None:
        """Each member of these parts is a part of its own."""
        raw = pattern[which].astype("<u2").view(np.uint8).reshape(-1, 2)
        row, place = np.nonzero(np.unpackbits(raw, axis=1, bitorder="little"))
        of = which[row]
        no = np.zeros(of.size, np.bool_)
        single = _Parts(parts.group[of], parts.first[of], parts.first[of], at + of, no, no)
        bit = np.left_shift(1, place).astype(np.uint16)
        self._settle(single, np.full(of.size, TILE, np.int64), np.full(of.size, HELD, np.int8), bit)

    def _settle(self, parts: _Parts, node: Indices, kind: NDArray[np.int8], pattern: Patterns) -> int:
        at = self._count
        self._done.append((parts, node, kind, pattern))
        self._count += node.size
        return at

    def _fingerprint(self, parts: _Parts) -> tuple[U64, U64]:
        return self.fingerprint(parts.group, parts.first, parts.last)

    def fingerprint(self, group: Indices, first: Indices, last: Indices) -> tuple[U64, U64]:
        """Returns a fingerprint of the members of groups in stretches of tiles."""
        end = last + 1
        return (
            self._heads[group, end] - self._heads[group, first],
            self._tails[group, end] - self._tails[group, first],
        )

    def members(self, group: Indices, first: Indices, last: Indices) -> int:
        """How many members groups have in stretches of tiles, altogether."""
        upto = np.zeros((self._patterns.shape[0], self._patterns.shape[1] + 1), np.int64)
        np.cumsum(np.bitwise_count(self._patterns), axis=1, out=upto[:, 1:])
        return int((upto[group, last + 1] - upto[group, first]).sum())

    def _collected(self) -> Cover:
        done, nodes, kinds, patterns = zip(*self._done, strict=True)
        parts, pattern = _Parts.of(done), np.concatenate(patterns)
        return Cover(
            group=parts.group,
            node=np.concatenate(nodes),
            first=parts.first,
            last=parts.last,
            kind=np.concatenate(kinds),
            parent=parts.parent,
            stem=parts.stem,
            pattern=pattern,
            size=np.bitwise_count(pattern).astype(np.int64),
            levels=tuple(accumulate(node.size for node in nodes)),
        )


def _repeats(head: U64, tail: U64) -> Indices:
    """Those that are equal to an earlier one."""
    _, first, inverse = np.unique(head, return_index=True, return_inverse=True)
    earlier = first[inverse]
    return np.flatnonzero((earlier != np.arange(head.size)) & (tail == tail[earlier]))
