"""Boxes that few events match: neighbours in space share a block, and an event visits only the blocks near it.

First the blocks: one bit each, a bitmap per bucket and axis, ANDed over the axes. Then, within each block that is left,
the bitmaps of its boxes, ANDed over the axes. Then the bits: those that are sure are matches; those that are open,
because an event and a bound fell into the same bucket, are settled by the bounds. Most boxes are never touched.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import and_
from typing import Final

import numpy as np

from sealcast.filters.bits import Words, set_bits, set_places, words_for
from sealcast.filters.index.boxes import Ids, Side, holding, holding_one
from sealcast.filters.index.tables import Table
from sealcast.filters.vector.axes import Axis, Places

#: Events that are at work at a time, and (event, block) pairs they may make at worst.
_CHUNK_EVENTS: Final = 2_048
_CHUNK_PAIRS: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class Blocks:
    #: The box at each position; positions past the last box repeat it and are never set in a table.
    boxes: Ids
    tables: Mapping[int, Table]
    #: Per axis and row of its table: the blocks with any box that may match.
    coarse: Mapping[int, Words]
    #: By position, so that what is checked together lies together.
    sides: Mapping[int, Side]

    @classmethod
    def build(cls, boxes: Ids, sides: Sequence[Side], axes: Sequence[Axis], width: int) -> Blocks:
        """`boxes` in the order in which they shall share blocks of `width` words."""
        count = boxes.size
        words = words_for(count)
        words += -words % width
        tables: dict[int, Table] = {}
        kept: dict[int, Side] = {}
        coarse: dict[int, Words] = {}
        for a, axis in enumerate(axes):
            side = sides[a].take(boxes)
            if side.constrained(axis).any():
                tables[a] = table = Table.build(side, np.arange(count), words, width, axis)
                kept[a] = side
                coarse[a] = _any(table.words[:, :, :width])
        return cls(boxes, tables, coarse, kept)

    def match(self, places: Sequence[Places], labels: Ids) -> Iterator[tuple[Ids, Ids]]:
        """(position, label of the event) of every pair that holds, part by part; no pair twice."""
        if labels.size == 1:
            found = self._of_one([p.only for p in places])
            yield found, labels.repeat(found.size)
            return
        blocks = next(iter(self.coarse.values())).shape[1] * 64
        step = min(_CHUNK_EVENTS, max(64, _CHUNK_PAIRS // blocks))
        for start in range(0, labels.size, step):
            stop = min(start + step, labels.size)
            yield from self._chunk([p.slice(start, stop) for p in places], labels[start:stop])

    def _of_one(self, places: Sequence[int | float | None]) -> Ids:
        """`_chunk` for one event, which needs no labels: each array that it makes costs more than what is in it."""
        rows = {a: table.row(places[a]) for a, table in self.tables.items()}
        blocks = set_places(reduce(and_, [coarse[rows[a]] for a, coarse in self.coarse.items()]))
        both = reduce(and_, [table.words[rows[a]].take(blocks, axis=0) for a, table in self.tables.items()])
        width = both.shape[1] // 2
        surely = both[:, width:]
        first: Ids = blocks * (64 * width) - np.arange(0, blocks.size * 64 * width, 64 * width)

        def positions(words: Words) -> Ids:
            bits = set_places(words)
            bits += first.take(bits // (64 * width))
            return bits

        return np.concatenate((positions(surely), holding_one(self.sides, positions(both[:, :width] ^ surely), places)))

    def _chunk(self, places: Sequence[Places], labels: Ids) -> Iterator[tuple[Ids, Ids]]:
        rows = {a: table.rows(places[a]) for a, table in self.tables.items()}
        near: Words | None = None
        for a, coarse in self.coarse.items():
            here = coarse.take(rows[a], axis=0, mode="clip")
            near = here if near is None else np.bitwise_and(near, here, out=near)
        assert near is not None
        blocks, events = set_bits(near, np.zeros(labels.size, np.int64), np.arange(labels.size))
        both: Words | None = None
        for a, table in self.tables.items():
            _, count, double = table.words.shape
            at = (rows[a] * count).take(events)
            at += blocks
            here = table.words.reshape(-1, double).take(at, axis=0, mode="clip")
            both = here if both is None else np.bitwise_and(both, here, out=both)
        assert both is not None
        width = both.shape[1] // 2
        surely = np.ascontiguousarray(both[:, width:])
        blocks *= 64 * width
        yield set_bits(surely, blocks, labels.take(events))
        rest = both[:, :width] ^ surely
        unsettled = np.flatnonzero(rest.any(axis=1) if width > 1 else rest.reshape(-1) != 0)
        positions, events = set_bits(rest.take(unsettled, axis=0), blocks.take(unsettled), events.take(unsettled))
        positions, events = holding(self.sides, positions, events, places)
        yield positions, labels.take(events)


def _any(maybe: Words) -> Words:
    """One bit per block: whether any of its words has one."""
    rows, blocks, _ = maybe.shape
    flags = np.zeros((rows, words_for(blocks) * 64), np.bool_)
    flags[:, :blocks] = (maybe != 0).any(axis=2)
    return np.packbits(flags, axis=1, bitorder="little").view(np.uint64)
