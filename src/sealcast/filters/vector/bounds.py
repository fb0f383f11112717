"""A condition that is all bounds, ready to be compared with columns; worked out once, however many batches ask."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from sealcast.filters.tree import Condition
from sealcast.filters.vector.asked import Lexicon
from sealcast.filters.vector.axes import Axis, Bools, Numbers, axis_of
from sealcast.filters.vector.leaves import Leaf, always, leaf
from sealcast.model.schema import Schema

#: Up to this many intervals are compared one by one; more are searched in.
_FEW_INTERVALS: Final = 3


@dataclass(frozen=True, slots=True)
class Bounds:
    """Where a condition is true, or where it is false: intervals of one axis, ascending, and whether NULL will do.

    Without an axis: nowhere, or everywhere.
    """

    axis: Axis | None
    lows: Numbers
    highs: Numbers
    null: bool
    everywhere: bool = False

    @classmethod
    def of(cls, found: Leaf, schema: Schema) -> Bounds:
        if found.ranges.empty:
            return cls(None, np.empty(0), np.empty(0), null=False, everywhere=found is always)
        intervals = found.ranges.intervals
        axis = axis_of(schema.by_name[found.name], [key for interval in intervals for key in interval])
        lows = np.array([axis.key(low) for low, _ in intervals], axis.dtype)
        highs = np.array([axis.key(high) for _, high in intervals], axis.dtype)
        return cls(axis, lows, highs, found.ranges.null)

    def hold(self, values: Numbers) -> Bools:
        if self.lows.size <= _FEW_INTERVALS:
            inside = np.zeros(values.size, np.bool_)
            for low, high in zip(self.lows, self.highs, strict=True):
                inside |= (low <= values) & (values <= high)
            return inside
        at = np.searchsorted(self.lows, values, side="right") - 1
        return (at >= 0) & (values <= self.highs[np.maximum(at, 0)])


class Prepared:
    """Bounds by condition, and what patterns said of texts. By identity, since hashing a long list costs as much as a
    batch; the node is kept with its bounds, so that its identity stays its own."""

    def __init__(self) -> None:
        self._kept: dict[int, tuple[Condition, tuple[Bounds, Bounds] | None]] = {}
        self._lexicons: dict[str, Lexicon] = {}

    def lexicon(self, name: str) -> Lexicon:
        """The texts of a column that were seen so far."""
        if name not in self._lexicons:
            self._lexicons[name] = Lexicon()
        return self._lexicons[name]

    def bounds(self, condition: Condition, schema: Schema) -> tuple[Bounds, Bounds] | None:
        """Where the condition is true and where it is false; None if bounds cannot say."""
        if id(condition) not in self._kept:
            self._kept[id(condition)] = condition, self._worked_out(condition, schema)
        return self._kept[id(condition)][1]

    @staticmethod
    def _worked_out(condition: Condition, schema: Schema) -> tuple[Bounds, Bounds] | None:
        when_true = leaf(condition, schema, wanted=True)
        if when_true is None or not when_true.exact:
            return None
        when_false = leaf(condition, schema, wanted=False)
        if when_false is None or not when_false.exact:
            return None
        return Bounds.of(when_true, schema), Bounds.of(when_false, schema)
