"""An event's labels. Publishers make them in batches: each distinct label once, and who has it as numbers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from sealcast.filters.bits import runs, starts
from sealcast.filters.labels import naming
from sealcast.filters.labels.grid import Grid
from sealcast.filters.labels.naming import StringPlan
from sealcast.filters.labels.text import carried
from sealcast.filters.vector.batch import Batch
from sealcast.model.schema import Attribute, Schema, Type, Value

Ints = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class BatchLabels:
    """The labels of a batch: `labels` once each, and of event i those numbered `ids[offsets[i]:offsets[i + 1]]`."""

    labels: list[bytes]
    offsets: Ints
    ids: Ints

    def of(self, event: int) -> list[bytes]:
        return [self.labels[i] for i in self.ids[self.offsets[event] : self.offsets[event + 1]].tolist()]


class Labeller:
    """Values of a schema -> labels."""

    def __init__(self, schema: Schema, plan: StringPlan | None = None) -> None:
        self.schema = schema
        self.plan = plan if plan is not None else StringPlan()

    @cached_property
    def grids(self) -> Mapping[str, Grid]:
        return {a.name: Grid.of(a) for a in self.schema.attributes if a.type is not Type.STRING}

    def most(self) -> int:
        """The most labels that an event can have: what to pad to where their number should say nothing."""
        return sum(self._most(attribute) for attribute in self.schema.attributes)

    def _most(self, attribute: Attribute) -> int:
        if attribute.type is not Type.STRING:
            return 1 + self.grids[attribute.name].bits
        length = attribute.max_length if attribute.max_length is not None else naming.MAX_DEPTH + 1
        # Seven digits a character beyond ASCII, and one of the next character.
        digits = 7 * min(self.plan.text, length) + (length > self.plan.text)
        return 3 + (digits if self.plan.text else 0) + min(self.plan.suffix, length)

    def labels(self, values: Mapping[str, Value]) -> list[bytes]:
        """Makes the labels of one event. An absent attribute has its root and nothing else."""
        found: list[bytes] = []
        for attribute in self.schema.attributes:
            found.append(naming.root(attribute.name))
            value = values.get(attribute.name)
            if isinstance(value, str):
                found += self._text_labels(attribute.name, value)
            elif value is not None:
                physical = attribute.to_physical(value)
                assert physical is not None and not isinstance(physical, str)
                grid = self.grids[attribute.name]
                place = grid.place(physical)
                found += [naming.block(grid.name, b, place >> (grid.bits - b)) for b in range(1, grid.bits + 1)]
        return found

    def _text_labels(self, name: str, text: str) -> list[bytes]:
        found = [naming.subtree(name, ()), naming.exact(name, text)]
        if self.plan.text:
            digits = carried(text, self.plan.text)
            found += [naming.subtree(name, digits[:i]) for i in range(1, len(digits) + 1)]
        return found + [naming.suffix(name, text[-i:]) for i in range(1, min(self.plan.suffix, len(text)) + 1)]

    # --- batches ----------------------------------------------------------------------------------------------------

    def batch(self, columns: pa.RecordBatch) -> BatchLabels:
        """Makes the labels of a batch from the physical columns of its events, as `wire` decodes them."""
        batch = Batch(columns, self.schema)
        known: list[bytes] = []
        events: list[Ints] = []
        ids: list[Ints] = []
        everyone = np.arange(batch.size, dtype=np.int64)
        for attribute in self.schema.attributes:
            events.append(everyone)
            ids.append(np.full(batch.size, len(known), np.int64))
            known.append(naming.root(attribute.name))
            if batch.has(attribute.name):
                make = self._texts if attribute.type is Type.STRING else self._numbers
                for rows, which in make(attribute.name, batch, known):
                    events.append(rows)
                    ids.append(which)
        owner, which = np.concatenate(events), np.concatenate(ids)
        return BatchLabels(known, starts(owner, batch.size), which[np.argsort(owner, kind="stable")])

    def _numbers(self, name: str, batch: Batch, known: list[bytes]) -> Iterable[tuple[Ints, Ints]]:
        values, present = batch.numbers(name)
        rows = np.arange(batch.size) if present is None else np.flatnonzero(present)
        if not rows.size:
            return
        grid = self.grids[name]
        # Distinct places in order: so are their prefixes, and equal ones are neighbours.
        distinct, place = np.unique(grid.places(values[rows]), return_inverse=True)
        for bits in range(1, grid.bits + 1):
            prefixes = distinct >> np.uint64(grid.bits - bits)
            changed = np.empty(prefixes.size, np.bool_)
            changed[0] = True
            np.not_equal(prefixes[1:], prefixes[:-1], out=changed[1:])
            number = np.cumsum(changed) - 1 + len(known)
            known += naming.blocks(name, bits, prefixes[changed].tolist())
            yield rows, number[place]

    def _texts(self, name: str, batch: Batch, known: list[bytes]) -> Iterable[tuple[Ints, Ints]]:
        distinct = batch.distinct(name)
        rows = np.arange(batch.size) if distinct.present is None else np.flatnonzero(distinct.present)
        if not rows.size:
            return
        numbers: dict[bytes, int] = {}
        sizes, flat = [], []
        for text in distinct.texts:
            labels = self._text_labels(name, text)
            sizes.append(len(labels))
            flat += [numbers.setdefault(label, len(numbers)) for label in labels]
        ids = np.array(flat, np.int64) + len(known)
        known += numbers
        firsts = np.cumsum([0, *sizes])
        which = distinct.which[rows]
        # The labels of its text for every event: a run of each.
        counts = np.array(sizes, np.int64)[which]
        yield np.repeat(rows, counts), ids[runs(firsts[which], counts)]
