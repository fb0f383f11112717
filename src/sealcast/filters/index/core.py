"""The index: a batch of events against all subscriptions at once, a bit vector per event.

conditions -> conjuncts -> boxes -> dense | postings | blocks -> pairs -> residuals on survivors -> bits
   (normal.py)  (compile.py)      (plan.py)
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain
from typing import Final

import numpy as np
import pyarrow as pa

from sealcast.errors import Misuse
from sealcast.filters.bits import Words, bit_of, runs, set_bits, words_for
from sealcast.filters.cost import walk
from sealcast.filters.index import plan
from sealcast.filters.index.boxes import Ids
from sealcast.filters.index.building import direct_boxes, fan_of, parts_of
from sealcast.filters.index.compile import NO_RESIDUAL, compiled
from sealcast.filters.index.dense import Dense
from sealcast.filters.index.fan import Fan, IndexPart
from sealcast.filters.index.metering import WorkMeter
from sealcast.filters.tree import Condition, XPath
from sealcast.filters.vector.axes import Axis, Bools, Places
from sealcast.filters.vector.bounds import Prepared
from sealcast.filters.vector.evaluator import Evaluator
from sealcast.filters.work import Measure
from sealcast.model.schema import Schema

#: Events that are matched at a time: bounds what candidates take, whatever the batch and the filters are.
CHUNK_EVENTS: Final = 2_048
#: From this size on, memory comes from the system, cleared already: clearing it again would double the cost.
_FRESH_BYTES: Final = 32 << 20
#: More pairs than any batch has.
NO_LIMIT: Final = 1 << 62
#: Bytes of an answer's words that are held at a time where only pairs are asked for.
_DENSE_BYTES: Final = 8 << 20


@dataclass(frozen=True)
class Index:
    schema: Schema
    #: How many subscriptions.
    count: int
    axes: Sequence[Axis]
    fan: Fan
    dense: Dense | None
    parts: Sequence[IndexPart]
    #: Boxes that hold every event and leave all to their residual, if they have one.
    always: Ids
    residual_of: Ids
    residuals: Sequence[Condition]
    _prepared: Prepared = field(default_factory=Prepared, init=False, repr=False, compare=False)

    @classmethod
    def build(cls, conditions: Sequence[Condition], schema: Schema) -> Index:
        """Subscription i has `conditions[i]`, checked against the schema."""
        boxes = compiled(conditions, schema)
        estimate = plan.Estimate.of(boxes.sides, boxes.axes, boxes.attributes, boxes.owners.size)
        direct = direct_boxes(boxes, estimate.held)
        words = plan.dense_words(direct, estimate.held)
        dense = None
        served = np.zeros(direct.size, np.bool_)
        if words.size:
            bits = runs(words * 64, np.full(words.size, 64))
            served[bits] = direct[bits] >= 0
            dense = Dense.build(direct[bits], words, boxes.sides, boxes.axes)
        fan, plain = fan_of(boxes, direct, served)
        left = np.flatnonzero(np.diff(fan.starts) > 0)
        free = np.ones(boxes.owners.size, np.bool_)
        for axis, side in zip(boxes.axes, boxes.sides, strict=True):
            free &= ~side.constrained(axis)
        always = left[free[left]]
        parts = parts_of(np.setdiff1d(left, always), plain, boxes, estimate, fan)
        return cls(schema, len(conditions), boxes.axes, fan, dense, parts, always, boxes.residual_of, boxes.residuals)

    @cached_property
    def words(self) -> int:
        return words_for(self.count)

    @cached_property
    def reads_payloads(self) -> bool:
        """Whether some filter looks into payloads: without one, `match` needs none."""
        return any(isinstance(node, XPath) for condition in self.residuals for node, _ in walk(condition))

    @cached_property
    def _plain(self) -> bool:
        """Whether every match is a box that is found in a list or a block, and nothing is left to be asked."""
        return self.dense is None and not self.always.size and all(part.plain for part in self.parts)

    @cached_property
    def _meter(self) -> WorkMeter:
        return WorkMeter(self)

    def most_work(self, measure: Measure, events: int) -> Ids:
        """Units of work of each subscription on so many events, at most."""
        return self._meter.most(measure, events) if self.residuals else np.zeros(self.count, np.int64)

    def work(self, columns: pa.RecordBatch, measure: Measure) -> Ids:
        """Units of work of each subscription on these events, the same in every index that has its filter."""
        return self._meter.exact(columns, measure) if self.residuals else np.zeros(self.count, np.int64)

    def asked(self, columns: pa.RecordBatch) -> Iterator[tuple[int, Iterator[tuple[int, Ids, Ids]]]]:
        """Of each chunk of events, its start, and what will be asked: residuals, each with boxes and events."""
        for start, stop, places in self._chunks(columns):
            rows = np.arange(stop - start)
            always = ((int(self.residual_of[box]), np.full(rows.size, box), rows) for box in self.always)
            yield start, (left for left in chain(always, self._left(places, rows)) if left[0] != NO_RESIDUAL)

    def match(
        self, columns: pa.RecordBatch, payloads: Sequence[bytes] | None = None, unasked: Bools | None = None
    ) -> Words:
        """Row e, bit i (word i // 64, bit i % 64): whether subscription i's filter is true of event e. Subscriptions
        that are `unasked` cost as little as can be, and their bits mean nothing."""
        if columns.num_rows == 1 and self._plain:
            return self._match_one(columns)
        asking = self._asking(unasked)
        shape = (columns.num_rows, self.words)
        fresh = 8 * columns.num_rows * self.words >= _FRESH_BYTES
        out = np.zeros(shape, np.uint64) if fresh else np.empty(shape, np.uint64)
        for start, stop, places in self._chunks(columns):
            here = out[start:stop]
            if not fresh:
                here.fill(0)  # right before bits are set, so that they find their words in the cache
            rows = np.arange(stop - start)
            if self.dense is not None:
                self.dense.match(places, rows.size, here)
            for part in self.parts:
                if part.plain:
                    for entries, starts in part.finder.match(places, rows * self.words):
                        part.set(entries, starts, self.fan, here)
            evaluator = self._evaluator(columns, payloads, start, stop)
            for subscriptions, events in self._late(places, rows, evaluator, asking):
                np.bitwise_or.at(here, (events, subscriptions >> 6), bit_of(subscriptions))
        return out

    def _match_one(self, columns: pa.RecordBatch) -> Words:
        """`match` of one event where all is plain. The answer is the same; what a batch needs around it is left out."""
        places = [axis.place(column) for axis, column in zip(self.axes, self._columns(columns), strict=True)]
        out = np.zeros((1, self.words), np.uint64)
        for part in self.parts:
            part.set_one(part.finder.of_one(places), self.fan, out)
        return out

    def pairs(
        self, columns: pa.RecordBatch, payloads: Sequence[bytes] | None = None, unasked: Bools | None = None
    ) -> tuple[Ids, Ids]:
        """The same as (event, subscription) pairs, by event, then by subscription.

        Its cost follows the matches; that of `match` also the width of the table, since it clears every word.
        """
        found = self.few_pairs(columns, payloads, unasked, NO_LIMIT)
        assert found is not None
        return found

    def few_pairs(
        self, columns: pa.RecordBatch, payloads: Sequence[bytes] | None, unasked: Bools | None, most: int
    ) -> tuple[Ids, Ids] | None:
        """The pairs; None as soon as there are more than `most` of them, which nobody should hold as pairs."""
        found, asking, left = [np.empty(0, np.int64)], self._asking(unasked), most
        for start, stop, places in self._chunks(columns):
            keys: list[Ids] = []
            for some in self._keys(columns, payloads, start, stop, places, asking):
                keys.append(some)
                left -= some.size
                if left < 0:
                    return None
            if keys:
                merged = np.sort(np.concatenate(keys))
                fresh = np.ones(merged.size, np.bool_)
                np.not_equal(merged[1:], merged[:-1], out=fresh[1:])  # several boxes may have found a pair
                found.append(merged[fresh] + start * self.count)
        whole = np.concatenate(found)
        events = whole // max(1, self.count)
        return events, whole - events * self.count

    def _keys(
        self,
        columns: pa.RecordBatch,
        payloads: Sequence[bytes] | None,
        start: int,
        stop: int,
        places: Sequence[Places],
        asking: Bools | None,
    ) -> Iterator[Ids]:
        """Pairs of one chunk of events, each as one number."""
        rows = np.arange(stop - start)
        if self.dense is not None:
            yield from self._dense_keys(places, rows)
        for part in self.parts:
            if part.plain:
                for entries, firsts in part.finder.match(places, rows * self.count):
                    subscriptions, firsts = part.matches(entries, firsts, self.fan)
                    yield subscriptions + firsts
        evaluator = self._evaluator(columns, payloads, start, stop)
        for subscriptions, events in self._late(places, rows, evaluator, asking):
            yield subscriptions + events * self.count

    def _chunks(self, columns: pa.RecordBatch) -> Iterator[tuple[int, int, list[Places]]]:
        places = self._places(columns)
        if 0 < columns.num_rows <= CHUNK_EVENTS:
            yield 0, columns.num_rows, places
            return
        for start in range(0, columns.num_rows, CHUNK_EVENTS):
            stop = min(start + CHUNK_EVENTS, columns.num_rows)
            yield start, stop, [p.slice(start, stop) for p in places]

    def _evaluator(
        self, columns: pa.RecordBatch, payloads: Sequence[bytes] | None, start: int, stop: int
    ) -> Evaluator | None:
        if not self.residuals:
            return None
        here = None if payloads is None else payloads[start:stop]
        return Evaluator(columns.slice(start, stop - start), self.schema, here, self._prepared)

    def _dense_keys(self, places: Sequence[Places], rows: Ids) -> Iterator[Ids]:
        assert self.dense is not None
        step = max(64, _DENSE_BYTES // (8 * self.words))
        for start in range(0, rows.size, step):
            some = rows[start : start + step]
            words = np.zeros((some.size, self.words), np.uint64)
            self.dense.match([p.slice(start, start + some.size) for p in places], some.size, words)
            first = some * self.count
            yield set_bits(words, first, first)[0]

    def _places(self, columns: pa.RecordBatch) -> list[Places]:
        return [axis.places(column) for axis, column in zip(self.axes, self._columns(columns), strict=True)]

    def _columns(self, columns: pa.RecordBatch) -> list[pa.Array]:
        """The column of each axis."""
        try:
            return [columns.column(axis.name) for axis in self.axes]
        except KeyError:
            names = columns.schema.names
            missing = next(axis.name for axis in self.axes if names.count(axis.name) != 1)
            raise Misuse(f"the batch has no column {missing!r}, which filters ask for") from None

    def _asking(self, unasked: Bools | None) -> Bools | None:
        """The boxes that speak for somebody who is asked; None for all."""
        if unasked is None:
            return None
        asking = np.zeros(self.residual_of.size, np.bool_)
        box = np.repeat(np.arange(asking.size), np.diff(self.fan.starts))
        asking[box[~unasked[self.fan.subscriptions]]] = True
        return asking

    def _late(
        self, places: Sequence[Places], rows: Ids, evaluator: Evaluator | None, asking: Bools | None
    ) -> Iterator[tuple[Ids, Ids]]:
        """(subscription, event) pairs of boxes that are not plain: residuals are evaluated on the events left."""
        for box in self.always if asking is None else self.always[asking[self.always]]:
            true = self._true(int(self.residual_of[box]), rows, evaluator)
            yield self.fan.spread(np.full(true.size, box), true)
        for residual, boxes, events in self._left(places, rows, asking):
            holds = np.zeros(rows.size, np.bool_)
            holds[self._true(residual, np.unique(events), evaluator)] = True
            kept = holds[events]
            yield self.fan.spread(boxes[kept], events[kept])

    def _true(self, residual: int, rows: Ids, evaluator: Evaluator | None) -> Ids:
        """Returns those of these events for which the residual is true; all of them if there is none."""
        if residual == NO_RESIDUAL:
            return rows
        assert evaluator is not None
        return rows[evaluator.true(self.residuals[residual], rows)]

    def _left(self, places: Sequence[Places], rows: Ids, asking: Bools | None = None) -> Iterator[tuple[int, Ids, Ids]]:
        """(residual, boxes, events) of boxes that are not plain: pairs whose residual is left to be asked."""
        late = [
            (part.finder.boxes.take(entries), events)
            for part in self.parts
            if not part.plain
            for entries, events in part.finder.match(places, rows)
        ]
        if not late:
            return
        boxes, events = np.concatenate([b for b, _ in late]), np.concatenate([e for _, e in late])
        if asking is not None:
            boxes, events = boxes[asking[boxes]], events[asking[boxes]]
        order = np.argsort(self.residual_of.take(boxes), kind="stable")
        boxes, events = boxes.take(order), events.take(order)
        for residual, start, stop in _segments(self.residual_of.take(boxes)):
            yield residual, boxes[start:stop], events[start:stop]


def _segments(sorted_ids: Ids) -> Iterator[tuple[int, int, int]]:
    """(value, start, stop) of every run of equal values."""
    edges = np.flatnonzero(np.diff(sorted_ids)) + 1
    for start, stop in zip([0, *edges], [*edges, sorted_ids.size], strict=True):
        if stop > start:
            yield int(sorted_ids[start]), int(start), int(stop)
