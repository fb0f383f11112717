"""Which boxes go where. Three ways to find the boxes of an event, each good at what the others are bad at:

    postings   one axis nearly decides: a list per value, a handful of candidates per event
    blocks     several axes decide together: cost follows the neighbourhood of the event and its matches
    dense      nothing decides, matches are many: cost follows the words of the answer

The choice needs the share of events that a box holds. Nobody knows the events in advance; that they fall where
filters put their bounds, or evenly over the domain where the schema gives one, is a guess that errs on neither side.
Only speed depends on it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from sealcast.filters.index.boxes import Ids, Side
from sealcast.filters.index.order import Shares, tiled
from sealcast.filters.index.postings import MAX_POSTED, Keys, equal_loads
from sealcast.filters.vector.axes import Axis, Bools
from sealcast.model.schema import Attribute, Type

#: Candidates that a list may hold; beyond it, blocks find the same boxes for less.
MAX_LOAD: Final = 48
#: Matches that a word of 64 subscriptions may expect of an event before it is cheaper to compute all of it.
DENSE_MATCHES: Final = 0.35
#: Tables of at most this many words are dense whatever they hold: nothing beats so few operations.
SMALL_WORDS: Final = 24
#: Where this share of the words is dense, all are: whole rows are written faster than picked words.
_NEARLY_ALL: Final = 0.75
#: Words of a block, by the number of boxes: small blocks are precise, large ones few.
_WIDTHS: Final = ((20_000, 1), (60_000, 2), (400_000, 4))
_MAX_WIDTH: Final = 8
#: Boxes that constrain the same axes get blocks of their own if they are at least this many.
_OWN_BLOCKS: Final = 512
_MAX_GROUPS: Final = 12


@dataclass(frozen=True, slots=True)
class Estimate:
    """Per axis, where boxes start and end as shares of the events; over all axes, the share a box holds."""

    starts: Sequence[Shares]
    ends: Sequence[Shares]
    held: Shares

    @classmethod
    def of(cls, sides: Sequence[Side], axes: Sequence[Axis], attributes: Sequence[Attribute], count: int) -> Estimate:
        spans = [_shares(s, axis, attribute) for s, axis, attribute in zip(sides, axes, attributes, strict=True)]
        held = np.ones(count)
        for start, end in spans:
            held *= end - start
        return cls([start for start, _ in spans], [end for _, end in spans], held)


def _shares(side: Side, axis: Axis, attribute: Attribute) -> tuple[Shares, Shares]:
    bounds = np.sort(side.bounds(axis))
    scale = 1.0 / max(1, bounds.size)
    start: Shares = np.searchsorted(bounds, side.low, side="left") * np.float64(scale)
    end: Shares = np.searchsorted(bounds, side.high, side="right") * np.float64(scale)
    domain = _domain(attribute)
    if domain is not None:
        first, length = domain
        unit = 0.0 if axis.dtype is np.float64 else 1.0
        even_start = np.clip((side.low.astype(np.float64) - first) / length, 0.0, 1.0)
        even_end = np.clip((side.high.astype(np.float64) + unit - first) / length, 0.0, 1.0)
        start, end = (start + even_start) / 2, (end + even_end) / 2
    free = ~side.constrained(axis)
    start[free], end[free] = 0.0, 1.0
    return start, np.maximum(start, end)


def _domain(attribute: Attribute) -> tuple[float, float] | None:
    if attribute.type is Type.BOOL:
        return 0.0, 2.0
    if attribute.type is Type.STRING or attribute.min is None or attribute.max is None:
        return None
    first, last = attribute.to_physical(attribute.min), attribute.to_physical(attribute.max)
    if not isinstance(first, int | float) or not isinstance(last, int | float):
        return None
    length = float(last) - float(first) + (0.0 if attribute.type is Type.FLOAT else 1.0)
    return (float(first), length) if 0.0 < length < np.inf else None


# --- dense --------------------------------------------------------------------------------------


def dense_words(direct: Ids, held: Shares) -> Ids:
    """The words of the answer that are computed whole. `direct[i]` is the box that alone can set bit i, or -1."""
    words = direct.size // 64
    used = (direct >= 0).reshape(words, 64).any(axis=1)
    expected = np.where(direct >= 0, held[direct] if held.size else 0.0, 0.0).reshape(words, 64).sum(axis=1)
    chosen = expected > DENSE_MATCHES
    if words <= SMALL_WORDS or chosen.sum() >= _NEARLY_ALL * words:
        chosen = used
    return np.flatnonzero(chosen)


# --- postings -----------------------------------------------------------------------------------


def posted(
    boxes: Ids, sides: Sequence[Side], axes: Sequence[Axis], estimate: Estimate
) -> tuple[list[tuple[int, Keys, Ids]], Ids]:
    """(axis, keys, boxes) of every list structure, and the boxes that none of them takes."""
    within = np.zeros(estimate.held.size, np.bool_)
    within[boxes] = True
    best = np.full(estimate.held.size, MAX_LOAD + 1, np.int64)
    via = np.full(estimate.held.size, -1, np.int64)
    keys: dict[int, Keys] = {}
    for a, axis in enumerate(axes):
        for kind, loads, found in (_equalities(sides[a], within), _narrow(sides[a], axis, within)):
            better = (loads > 0) & (loads < best)
            if found is not None and better.any():
                keys[2 * a + kind] = found
                best[better], via[better] = loads[better], 2 * a + kind
    structures: list[tuple[int, Keys, Ids]] = []
    for choice, chosen_keys in keys.items():
        chosen = np.flatnonzero(via == choice)
        if chosen.size >= _OWN_BLOCKS:
            structures.append((choice // 2, chosen_keys, chosen))
            within[chosen] = False
    return structures, np.flatnonzero(within)


def _equalities(side: Side, within: Bools) -> tuple[int, Ids, Keys | None]:
    loads = equal_loads(side, within)
    return 0, loads, Keys.hashed(int((loads > 0).sum())) if loads.any() else None


def _narrow(side: Side, axis: Axis, within: Bools) -> tuple[int, Ids, Keys | None]:
    """Loads of the boxes that touch few cells: the fullest cell that each is posted under."""
    loads = np.zeros(side.low.size, np.int64)
    bounded = np.flatnonzero(
        within & (side.low < side.high) & (side.low != axis.least) & (side.high != axis.greatest) & ~side.null
    )
    if bounded.size < _OWN_BLOCKS:
        return 1, loads, None
    keys = Keys.spaced(side.bounds(axis), bounded.size)
    if keys is None:
        return 1, loads, None
    low, high = keys.of(side.low[bounded]), keys.of(side.high[bounded])
    fits = high - low < MAX_POSTED
    bounded, low, high = bounded[fits], low[fits], high[fits]
    cells = np.zeros(keys.count + 1, np.int64)
    np.add.at(cells, low, 1)
    np.add.at(cells, high + 1, -1)
    filled = np.cumsum(cells)[:-1]
    loads[bounded] = np.maximum(np.maximum(filled[low], filled[high]), np.maximum(filled[low + (high - low) // 2], 1))
    return 1, loads, keys


# --- blocks -------------------------------------------------------------------------------------


def blocked(
    boxes: Ids, plain: Bools, sides: Sequence[Side], axes: Sequence[Axis], estimate: Estimate
) -> list[tuple[Ids, int]]:
    """(boxes in block order, words of a block) of every block structure.

    Boxes that constrain the same axes stand together, so that no block is looked up on an axis it does not mention;
    plain ones (a match is a match) apart from those that need more work.
    """
    signature = np.where(plain[boxes], 0, 1).astype(np.int64)
    seen: NDArray[np.int64] = signature
    for side, axis in zip(sides, axes, strict=True):
        _, seen = np.unique(seen * 2 + side.constrained(axis)[boxes], return_inverse=True)
    groups: list[Ids] = []
    kinds, sizes = np.unique(seen, return_counts=True)
    by_size = kinds[np.argsort(-sizes, kind="stable")]
    own = [k for k in by_size if sizes[k] >= _OWN_BLOCKS][:_MAX_GROUPS]
    groups.extend(boxes[seen == k] for k in own)
    left = ~np.isin(seen, own)
    groups.extend(boxes[left & (signature == s)] for s in (0, 1))
    return [(_ordered(group, estimate), _width(group.size)) for group in groups if group.size]


def _width(boxes: int) -> int:
    return next((width for most, width in _WIDTHS if boxes <= most), _MAX_WIDTH)


def _ordered(boxes: Ids, estimate: Estimate) -> Ids:
    starts, ends = [s[boxes] for s in estimate.starts], [e[boxes] for e in estimate.ends]
    return boxes[tiled(starts, ends, 64 * _width(boxes.size))]
