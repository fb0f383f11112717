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

from sealcast.filters.bits import Words, bits_in, set_bits, set_places, words_for
from sealcast.filters.index.boxes import Ids, Side, holding, holding_one
from sealcast.filters.index.tables import Table
from sealcast.filters.vector.axes import Axis, Place, Places

#: Events that are at work at a time, and (event, block) pairs they may make at worst.
_CHUNK_EVENTS: Final = 2_048
_CHUNK_PAIRS: Final = 1 << 20
#: Words of a table's row that are ANDed whole for one event: up to here, finding the blocks near it takes longer.
_WHOLE_WORDS: Final = 4_096


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
            found = self.of_one([p.only for p in places])
            yield found, labels.repeat(found.size)
            return
        blocks = next(iter(self.coarse.values())).shape[1] * 64
        step = min(_CHUNK_EVENTS, max(64, _CHUNK_PAIRS // blocks))
        for start in range(0, labels.size, step):
            stop = min(start + step, labels.size)
            yield from self._chunk([p.slice(start, stop) for p in places], labels[start:stop])

    def of_one(self, places: Sequence[Place]) -> Ids:
        """The positions that hold one event.

        This is `_chunk` without labels. Calling numpy costs more here than what it computes, so this calls it as seldom
        as can be: short rows are ANDed whole, and the few bits that are open are settled one by one.
        """
        here = [(a, table, table.row(places[a])) for a, table in self.tables.items()]
        if here[0][1].words[0].size <= _WHOLE_WORDS:
            both, blocks = reduce(and_, [table.words[row] for _, table, row in here]), None
        else:
            blocks = set_places(reduce(and_, [self.coarse[a][row] for a, _, row in here]))
            both = reduce(and_, [table.words[row].take(blocks, axis=0) for _, table, row in here])
        near, first = _filled(both, blocks)
        surely = np.ascontiguousarray(near[:, 1])
        found = set_places(surely)
        found += (first - np.arange(0, 64 * first.size, 64)).take(found >> 6)
        undecided = [
            start + bit
            for start, word in zip(first.tolist(), (near[:, 0] ^ surely).tolist(), strict=True)
            if word
            for bit in bits_in(word)
        ]
        held = holding_one(self.sides, undecided, places) if undecided else undecided
        return np.concatenate((found, held)) if held else found

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


def _filled(both: Words, blocks: Ids | None) -> tuple[Words, Ids]:
    """Of every word with a bit: what may be and what is sure, side by side, and the position of its first bit.

    `both` has the blocks with these numbers; those from zero on if there are none."""
    width = both.shape[1] // 2
    if width == 1:
        block = both[:, 0].nonzero()[0]
        return both.take(block, axis=0), (block if blocks is None else blocks.take(block)) * 64
    block, word = both[:, :width].nonzero()
    first = ((block if blocks is None else blocks.take(block)) * width + word) * 64
    return both.reshape(-1, 2, width)[block, :, word], first


def _any(maybe: Words) -> Words:
    """One bit per block: whether any of its words has one."""
    rows, blocks, _ = maybe.shape
    flags = np.zeros((rows, words_for(blocks) * 64), np.bool_)
    flags[:, :blocks] = (maybe != 0).any(axis=2)
    return np.packbits(flags, axis=1, bitorder="little").view(np.uint64)
