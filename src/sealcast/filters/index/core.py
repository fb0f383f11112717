"""The index: a batch of events against all subscriptions at once, a bit vector per event.

conditions -> conjuncts -> boxes -> dense | postings | blocks -> pairs -> residuals on survivors -> bits
   (normal.py)  (compile.py)      (plan.py)
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from sealcast.errors import Misuse
from sealcast.filters.bits import Words, words_for
from sealcast.filters.cost import walk
from sealcast.filters.index import plan
from sealcast.filters.index.blocks import Blocks
from sealcast.filters.index.boxes import Ids
from sealcast.filters.index.compile import NO_RESIDUAL, Compiled, compiled
from sealcast.filters.index.dense import Dense
from sealcast.filters.index.extract import bit_of, runs
from sealcast.filters.index.postings import Postings
from sealcast.filters.tree import Condition, XPath
from sealcast.filters.vector import Evaluator
from sealcast.filters.vector.axes import Axis, Places
from sealcast.model.schema import Schema

#: Events that are matched at a time: bounds what candidates take, whatever the batch and the filters are.
CHUNK_EVENTS: Final = 16_384


@dataclass(frozen=True, slots=True)
class Fan:
    """The subscriptions that a box speaks for: `subscriptions[starts[b]:starts[b + 1]]`."""

    starts: Ids
    subscriptions: Ids

    def spread(self, boxes: Ids, events: Ids) -> tuple[Ids, Ids]:
        """(subscription, event) pairs of (box, event) pairs."""
        starts = self.starts.take(boxes)
        counts = self.starts.take(boxes + 1) - starts
        return self.subscriptions.take(runs(starts, counts)), np.repeat(events, counts)


@dataclass(frozen=True, slots=True)
class Part:
    """A structure that finds boxes. `plain`: a box found is a match, and no other box speaks for its subscriptions."""

    finder: Blocks | Postings
    plain: bool
    #: Where every box speaks for one subscription: its word and its bit, by entry.
    targets: tuple[Ids, Words] | None

    @classmethod
    def of(cls, finder: Blocks | Postings, plain: bool, fan: Fan) -> Part:
        starts = fan.starts.take(finder.boxes)
        if not plain or (fan.starts.take(finder.boxes + 1) - starts != 1).any():
            return cls(finder, plain, None)
        subscriptions = fan.subscriptions.take(starts)
        return cls(finder, plain, (subscriptions >> 6, bit_of(subscriptions)))

    def set(self, entries: Ids, events: Ids, fan: Fan, out: Words) -> None:
        """The bits of these matches. Adding is setting: no pair comes twice, and it is five times as fast as `or`."""
        if self.targets is not None:
            words, bits = self.targets[0].take(entries), self.targets[1].take(entries)
        else:
            subscriptions, events = fan.spread(self.finder.boxes.take(entries), events)
            words, bits = subscriptions >> 6, bit_of(subscriptions)
        np.add.at(out.reshape(-1), events * out.shape[1] + words, bits)


@dataclass(frozen=True, slots=True)
class Index:
    schema: Schema
    #: How many subscriptions.
    count: int
    axes: Sequence[Axis]
    fan: Fan
    dense: Dense | None
    parts: Sequence[Part]
    #: Boxes that hold every event and leave all to their residual, if they have one.
    always: Ids
    residual_of: Ids
    residuals: Sequence[Condition]

    @classmethod
    def build(cls, conditions: Sequence[Condition], schema: Schema) -> Index:
        """Subscription i has `conditions[i]`, checked against the schema."""
        boxes = compiled(conditions, schema)
        estimate = plan.Estimate.of(boxes.sides, boxes.axes, boxes.attributes, boxes.owners.size)
        direct = _direct(boxes, estimate.held)
        words = plan.dense_words(direct, estimate.held)
        dense = None
        served = np.zeros(direct.size, np.bool_)
        if words.size:
            bits = runs(words * 64, np.full(words.size, 64))
            served[bits] = direct[bits] >= 0
            dense = Dense.build(direct[bits], words, boxes.sides, boxes.axes)
        fan, plain = _fan(boxes, direct, served)
        left = np.flatnonzero(np.diff(fan.starts) > 0)
        free = np.ones(boxes.owners.size, np.bool_)
        for axis, side in zip(boxes.axes, boxes.sides, strict=True):
            free &= ~side.constrained(axis)
        always = left[free[left]]
        parts = _parts(np.setdiff1d(left, always), plain, boxes, estimate, fan)
        return cls(schema, len(conditions), boxes.axes, fan, dense, parts, always, boxes.residual_of, boxes.residuals)

    @property
    def words(self) -> int:
        return words_for(self.count)

    @property
    def reads_payloads(self) -> bool:
        """Whether some filter looks into payloads: without one, `match` needs none."""
        return any(isinstance(node, XPath) for condition in self.residuals for node, _ in walk(condition))

    def match(self, columns: pa.RecordBatch, payloads: Sequence[bytes] | None = None) -> Words:
        """Row e, bit i (word i // 64, bit i % 64): whether subscription i's filter is true of event e."""
        events = columns.num_rows
        out = np.zeros((events, self.words), np.uint64)
        places = self._places(columns)
        for start in range(0, events, CHUNK_EVENTS):
            stop = min(start + CHUNK_EVENTS, events)
            part = [p.slice(start, stop) for p in places]
            if self.dense is not None:
                self.dense.match(part, stop - start, out[start:stop])
            late = self._scatter(part, stop - start, out[start:stop])
            self._settle(late, columns.slice(start, stop - start), payloads and payloads[start:stop], out[start:stop])
        return out

    def _places(self, columns: pa.RecordBatch) -> list[Places]:
        names = columns.schema.names
        missing = [axis.name for axis in self.axes if axis.name not in names]
        if missing:
            raise Misuse(f"the batch has no column {missing[0]!r}, which filters ask for")
        return [axis.places(columns.column(axis.name)) for axis in self.axes]

    def _scatter(self, places: Sequence[Places], events: int, out: Words) -> list[tuple[Ids, Ids]]:
        """Sets the bits of plain boxes; returns the (box, event) pairs that need more."""
        late: list[tuple[Ids, Ids]] = []
        for part in self.parts:
            for entries, found in part.finder.match(places, events):
                if part.plain:
                    part.set(entries, found, self.fan, out)
                else:
                    late.append((part.finder.boxes.take(entries), found))
        return late

    def _settle(
        self,
        late: list[tuple[Ids, Ids]],
        columns: pa.RecordBatch,
        payloads: Sequence[bytes] | None,
        out: Words,
    ) -> None:
        """Residuals, each on the events that its boxes left, then the bits, which several boxes may set."""
        evaluator = Evaluator(columns, self.schema, payloads)
        for box in self.always:
            residual = self.residual_of[box]
            rows = np.arange(columns.num_rows)
            if residual != NO_RESIDUAL:
                rows = np.flatnonzero(evaluator.true(self.residuals[residual]))
            self._set(np.full(rows.size, box), rows, out)
        if not late:
            return
        boxes, events = (np.concatenate(side) for side in zip(*late, strict=True))
        order = np.argsort(self.residual_of.take(boxes), kind="stable")
        boxes, events = boxes.take(order), events.take(order)
        for residual, start, stop in _segments(self.residual_of.take(boxes)):
            some, rows = boxes[start:stop], events[start:stop]
            if residual != NO_RESIDUAL:
                asked, back = np.unique(rows, return_inverse=True)
                true = evaluator.true(self.residuals[residual], asked)[back]
                some, rows = some[true], rows[true]
            self._set(some, rows, out)

    def _set(self, boxes: Ids, events: Ids, out: Words) -> None:
        subscriptions, events = self.fan.spread(boxes, events)
        np.bitwise_or.at(out, (events, subscriptions >> 6), bit_of(subscriptions))


def _segments(sorted_ids: Ids) -> Iterator[tuple[int, int, int]]:
    """(value, start, stop) of every run of equal values."""
    edges = np.flatnonzero(np.diff(sorted_ids)) + 1
    for start, stop in zip([0, *edges], [*edges, sorted_ids.size], strict=True):
        if stop > start:
            yield int(sorted_ids[start]), int(start), int(stop)


# --- building -----------------------------------------------------------------------------------


def _direct(boxes: Compiled, held: NDArray[np.float64]) -> Ids:
    """For each bit of the answer, the box that a dense word would take: its filter's widest without residual, or -1."""
    sure = np.flatnonzero(boxes.residual_of == NO_RESIDUAL)
    ascending = sure[np.argsort(held[sure], kind="stable")]
    best = np.full(int(boxes.filters.max(initial=-1)) + 1, -1, np.int64)
    best[boxes.owners[ascending]] = ascending  # the last assignment stays: the widest
    direct = np.full(words_for(boxes.filters.size) * 64, -1, np.int64)
    direct[: boxes.filters.size] = best[boxes.filters]
    return direct


def _fan(boxes: Compiled, direct: Ids, served: NDArray[np.bool_]) -> tuple[Fan, NDArray[np.bool_]]:
    """Whom each box has still to speak for, and whether it is plain."""
    count = boxes.owners.size
    subscribers = np.argsort(boxes.filters, kind="stable")
    sizes = np.bincount(boxes.filters, minlength=int(boxes.owners.max(initial=-1)) + 1)
    begins = np.cumsum(sizes) - sizes
    per_box = sizes[boxes.owners]
    subscription = subscribers[runs(begins[boxes.owners], per_box)]
    box = np.repeat(np.arange(count), per_box)
    done = served[subscription] & (direct[subscription] == box)
    starts = np.zeros(count + 1, np.int64)
    np.cumsum(np.bincount(box[~done], minlength=count), out=starts[1:])
    single = np.bincount(boxes.owners, minlength=1)[boxes.owners] == 1
    plain = single & (boxes.residual_of == NO_RESIDUAL)
    return Fan(starts, subscription[~done]), plain


def _parts(left: Ids, plain: NDArray[np.bool_], boxes: Compiled, estimate: plan.Estimate, fan: Fan) -> list[Part]:
    parts: list[Part] = []
    structures, rest = plan.posted(left, boxes.sides, boxes.axes, estimate)
    for axis, keys, chosen in structures:
        for kind in (True, False):
            some = chosen[plain[chosen] == kind]
            if some.size:
                parts.append(Part.of(Postings.build(some, axis, keys, boxes.sides, boxes.axes), kind, fan))
    for some, width in plan.blocked(rest, plain, boxes.sides, boxes.axes, estimate):
        parts.append(Part.of(Blocks.build(some, boxes.sides, boxes.axes, width), bool(plain[some].all()), fan))
    return parts


Arrays = Mapping[str, NDArray[np.generic]]
