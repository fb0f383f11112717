"""What the filters of an index will cost on a batch, subscription by subscription, before any of them is asked.

Bounds are looked up and cost nothing here. What is left of a filter, its residual, is asked of the events that lie
within the filter's bounds: so many units for each (work.py). Each subscription is charged for its own filter as if
nobody else had the same, and whatever else is in the table: the same filter on the same events costs the same in every
index.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa

from sealcast.filters.index.boxes import Ids
from sealcast.filters.index.compile import NO_RESIDUAL
from sealcast.filters.work import MOST, Measure, Work

if TYPE_CHECKING:
    from sealcast.filters.index.core import Index


_EVENTS_PER_TURN: Final = 2_048


class WorkMeter:
    """Counts the work that one index does."""

    def __init__(self, index: Index) -> None:
        self._index = index
        self._works = [Work.of(condition, index.schema) for condition in index.residuals]
        self._once, self._each = (np.array([work[i] for work in self._works], np.int64) for i in (0, 1))
        self._xpath = np.array([bool(work.xpaths) for work in self._works], np.bool_)
        names = {name for work in self._works for name in work.each_character}
        self._characters = {
            name: np.array([work.each_character.get(name, 0) for work in self._works], np.int64) for name in names
        }
        # Who asks what: a subscription and a residual, once for every box of its filter that has it.
        fan = index.fan
        residual = np.repeat(index.residual_of, np.diff(fan.starts))
        asks = residual != NO_RESIDUAL
        self._subscription, self._residual = fan.subscriptions[asks], residual[asks]

    def most(self, measure: Measure, events: int) -> Ids:
        """Returns what each subscription costs at most on so many events, without looking at any of them."""
        each = self._each + sum(weight * measure.longest(name) for name, weight in self._characters.items())
        units = np.where(self._xpath, MOST, np.minimum(self._once * _turns(events) + each * events, MOST))
        total = np.zeros(self._index.count, np.int64)
        np.add.at(total, self._subscription, units[self._residual])
        return np.minimum(total, MOST)

    def exact(self, columns: pa.RecordBatch, measure: Measure) -> Ids:
        """Returns what each subscription costs on these events."""
        index, boxes = self._index, np.zeros(self._index.residual_of.size, np.int64)
        for start, asked in index.asked(columns):
            for residual, some, events in asked:
                np.add.at(boxes, some, measure.each(self._works[residual], events + start))
            np.minimum(boxes, MOST, out=boxes)
        used = np.flatnonzero(boxes)
        boxes[used] += self._once[index.residual_of[used]] * _turns(columns.num_rows)
        total = np.zeros(index.count, np.int64)
        np.add.at(total, index.fan.subscriptions, np.repeat(boxes, np.diff(index.fan.starts)))
        return np.minimum(total, MOST)


def _turns(events: int) -> int:
    """How often patterns may have to be compiled: for every chunk of events, if they were forgotten meanwhile."""
    return events // _EVENTS_PER_TURN + 1
