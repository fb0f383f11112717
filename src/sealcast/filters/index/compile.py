"""From filters to boxes: equal filters once, each as one box or several, bounds as arrays."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from typing import Final

import numpy as np

from sealcast.filters.index.boxes import Ids, Side
from sealcast.filters.index.normal import MAX_PRODUCT, Conjunct, normalise
from sealcast.filters.tree import And, Condition
from sealcast.filters.vector.axes import Axis, axis_of
from sealcast.filters.vector.intervals import Interval, Key, Ranges
from sealcast.filters.vector.leaves import spelled
from sealcast.model.schema import Attribute, Schema

#: What a box says of one attribute: an interval (None: none will do) and whether NULL will do.
Piece = tuple[Interval | None, bool]
NO_RESIDUAL: Final = -1


@dataclass(frozen=True, slots=True)
class Compiled:
    axes: Sequence[Axis]
    attributes: Sequence[Attribute]
    #: By axis.
    sides: Sequence[Side]
    #: The distinct filter that each box belongs to.
    owners: Ids
    #: What is left to evaluate where a box holds: a number in `residuals`, or NO_RESIDUAL.
    residual_of: Ids
    residuals: Sequence[Condition]
    #: The distinct filter of each subscription.
    filters: Ids


def compiled(conditions: Sequence[Condition], schema: Schema) -> Compiled:
    distinct: dict[tuple[Conjunct, ...], int] = {}
    filters = np.empty(len(conditions), np.int64)
    for i, condition in enumerate(conditions):
        filters[i] = distinct.setdefault(normalise(condition, schema), len(distinct))
    owners: list[int] = []
    residual_of: list[int] = []
    residuals: dict[Condition, int] = {}
    pieces: dict[str, list[tuple[int, Piece]]] = {}
    for conjuncts, number in distinct.items():
        for conjunct in conjuncts:
            boxes, residual = _boxes(conjunct, schema)
            left = NO_RESIDUAL if residual is None else residuals.setdefault(residual, len(residuals))
            for box in boxes:
                for name, piece in box:
                    pieces.setdefault(name, []).append((len(owners), piece))
                residual_of.append(left)
                owners.append(number)
    attributes = [schema.by_name[name] for name in pieces]
    axes: list[Axis] = []
    sides: list[Side] = []
    for attribute in attributes:
        axis, side = _side(attribute, pieces[attribute.name], len(owners))
        axes.append(axis)
        sides.append(side)
    return Compiled(
        axes,
        attributes,
        sides,
        np.array(owners, np.int64),
        np.array(residual_of, np.int64),
        list(residuals),
        filters,
    )


def _boxes(conjunct: Conjunct, schema: Schema) -> tuple[list[list[tuple[str, Piece]]], Condition | None]:
    """Every combination of intervals, while they are few; else only the longest list is taken apart.

    The other attributes then get the hull of their intervals, which is too wide, and their intervals as a residual.
    """
    residual = list(conjunct.residual)
    choices = {name: _pieces(ranges) for name, ranges in conjunct.ranges}
    lengths = [len(pieces) for pieces in choices.values()]
    if math.prod(lengths) > max(MAX_PRODUCT, *lengths, 0):
        longest = max(choices, key=lambda name: len(choices[name]))
        for name, ranges in conjunct.ranges:
            if name != longest and len(choices[name]) > 1:
                choices[name] = [((ranges.intervals[0][0], ranges.intervals[-1][1]), ranges.null)]
                residual.append(spelled(schema.by_name[name], ranges))
    if not residual:
        left = None
    else:
        left = residual[0] if len(residual) == 1 else And(tuple(residual))
    return [list(zip(choices, combination, strict=True)) for combination in product(*choices.values())], left


def _pieces(ranges: Ranges) -> list[Piece]:
    if not ranges.intervals:
        return [(None, ranges.null)]
    first, *others = ranges.intervals
    return [(first, ranges.null), *((interval, False) for interval in others)]


def _side(attribute: Attribute, pieces: list[tuple[int, Piece]], count: int) -> tuple[Axis, Side]:
    keys: list[Key] = [key for _, (interval, _) in pieces if interval is not None for key in interval]
    axis = axis_of(attribute, keys)
    low, high = np.full(count, axis.least, axis.dtype), np.full(count, axis.greatest, axis.dtype)
    null = np.ones(count, np.bool_)
    box = np.array([box for box, _ in pieces], np.int64)
    # An empty interval is one whose low end is above its high end.
    low[box] = [axis.greatest if i is None else axis.key(i[0]) for _, (i, _) in pieces]
    high[box] = [axis.least if i is None else axis.key(i[1]) for _, (i, _) in pieces]
    null[box] = [accepts for _, (_, accepts) in pieces]
    return axis, Side(low, high, null)
