"""Boxes that many events match: bitmaps in the order of the subscriptions, ANDed word by word, are the answer itself.

Cost follows the number of words and not the number of matches, which is right where matches are many: a word of 64
subscriptions costs less than picking a single match out of it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from sealcast.filters.bits import Words, bit_of, mask, set_bits
from sealcast.filters.index.boxes import Ids, Side, holding
from sealcast.filters.index.tables import Table
from sealcast.filters.vector.axes import Axis, Places

#: Bytes of the bitmaps that are at work at a time: they should stay in a core's own cache.
_CHUNK_BYTES: Final = 512 << 10


@dataclass(frozen=True, slots=True)
class Dense:
    """`words`: the words of the answer that are made here; bit `64 * k + j` of this part is bit j of `words[k]`."""

    words: Ids
    tables: Mapping[int, Table]
    #: By bit, not by box: several subscriptions may share a box.
    sides: Mapping[int, Side]
    #: The bits that have a box: the answer where no axis is constrained.
    filled: Words

    @classmethod
    def build(cls, boxes: Ids, words: Ids, sides: Sequence[Side], axes: Sequence[Axis]) -> Dense:
        """`boxes[64 * k + j]` answers for bit j of `words[k]`; -1 is never."""
        used = np.flatnonzero(boxes >= 0)
        chosen = boxes[used]
        tables: dict[int, Table] = {}
        kept: dict[int, Side] = {}
        for a, axis in enumerate(axes):
            side = sides[a].take(chosen)
            if side.constrained(axis).any():
                tables[a] = Table.build(side, used, words.size, words.size, axis)
                kept[a] = sides[a].take(np.maximum(boxes, 0))
        return cls(words, tables, kept, mask(boxes >= 0))

    def match(self, places: Sequence[Places], events: int, out: Words) -> None:
        """Writes its words of `out`, a row per event."""
        width = self.words.size
        whole = width == out.shape[1]
        part = out if whole else np.empty((events, width), np.uint64)
        if not self.tables:
            part[:] = self.filled
        else:
            self._fill(places, events, part)
        if not whole:
            out[:, self.words] = part

    def _fill(self, places: Sequence[Places], events: int, out: Words) -> None:
        """All that is sure, in chunks that stay in the cache; then what is open, all at once."""
        width = self.words.size
        rows = {a: table.rows(places[a]) for a, table in self.tables.items()}
        step = max(16, _CHUNK_BYTES // (16 * width))
        open_at: list[Ids] = []
        open_bits: list[Words] = []
        for start in range(0, events, step):
            stop = min(start + step, events)
            both: Words | None = None
            for a, table in self.tables.items():
                here = table.words.reshape(-1, 2 * width).take(rows[a][start:stop], axis=0, mode="clip")
                both = here if both is None else np.bitwise_and(both, here, out=both)
            assert both is not None
            out[start:stop] = both[:, width:]
            rest = np.bitwise_xor(both[:, :width], both[:, width:]).reshape(-1)
            which = np.flatnonzero(rest != 0)
            open_bits.append(rest.take(which))
            open_at.append(which + start * width)
        if open_at:
            self._settle(np.concatenate(open_at), np.concatenate(open_bits), places, out)

    def _settle(self, which: Ids, rest: Words, places: Sequence[Places], out: Words) -> None:
        """Bits that may be set are, if the bounds say so."""
        width = self.words.size
        events = which // width
        bits, events = set_bits(rest.reshape(-1, 1), (which - events * width) << 6, events)
        bits, events = holding(self.sides, bits, events, places)
        np.add.at(out.reshape(-1), events * width + (bits >> 6), bit_of(bits))
