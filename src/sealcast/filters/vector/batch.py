"""A batch of events as filters ask for it: a column as numbers, as texts once each, or an event as a whole.

Everything is made when first asked for and kept: a batch is asked the same by many filters.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from sealcast.errors import Misuse
from sealcast.filters.evaluate import FilterInput
from sealcast.filters.tree import Value
from sealcast.filters.vector.axes import Bools, Numbers, numbers
from sealcast.model.schema import Schema
from sealcast.wire.computing import pc

Rows = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Distinct:
    """A string column by its distinct texts."""

    texts: Sequence[str]
    #: Which text each event has; meaningless where it has none.
    which: NDArray[np.int64]
    present: Bools | None


class Batch:
    def __init__(self, columns: pa.RecordBatch, schema: Schema, payloads: Sequence[bytes] | None = None) -> None:
        if payloads is not None and len(payloads) != columns.num_rows:
            raise Misuse(f"{columns.num_rows} events come with {len(payloads)} payloads")
        self.schema = schema
        self.size = columns.num_rows
        self._columns = columns
        self._names = frozenset(columns.schema.names)
        self._payloads = payloads
        self._numbers: dict[str, tuple[Numbers, Bools | None]] = {}
        self._encoded: dict[str, pa.DictionaryArray] = {}
        self._distinct: dict[str, Distinct] = {}
        self._events: dict[int, FilterInput] = {}

    def has(self, name: str) -> bool:
        """An attribute that the schema does not know, or the batch does not carry, is NULL throughout."""
        return name in self._names and name in self.schema.by_name

    def column(self, name: str) -> pa.Array:
        return self._columns.column(name)

    def numbers(self, name: str) -> tuple[Numbers, Bools | None]:
        if name not in self._numbers:
            self._numbers[name] = numbers(self.column(name), name)
        return self._numbers[name]

    def encoded(self, name: str) -> pa.DictionaryArray:
        """A string column by its distinct texts, as Arrow has it."""
        if name not in self._encoded:
            self._encoded[name] = pc.dictionary_encode(self.column(name))
        return self._encoded[name]

    def distinct(self, name: str) -> Distinct:
        if name not in self._distinct:
            encoded = self.encoded(name)
            indices = encoded.indices
            present = None if indices.null_count == 0 else np.asarray(pc.is_valid(indices))
            which = pc.fill_null(indices, 0).to_numpy(zero_copy_only=False).astype(np.int64)
            self._distinct[name] = Distinct(encoded.dictionary.to_pylist(), which, present)
        return self._distinct[name]

    def event(self, row: int) -> FilterInput:
        """One event, for the reference evaluator. Its payload is parsed at most once, however many filters ask."""
        if row not in self._events:
            payload = None if self._payloads is None else self._payloads[row]
            self._events[row] = FilterInput(_Row(self, row), payload)
        return self._events[row]


class _Row(dict[str, Value]):
    """An event's attributes, each converted when it is first asked for: filters read few of them."""

    def __init__(self, batch: Batch, row: int) -> None:
        super().__init__()
        self._batch = batch
        self._row = row

    def get(self, name: str, default: Value = None) -> Value:  # type: ignore[override]
        if name not in self:
            physical = self._batch.column(name)[self._row].as_py() if self._batch.has(name) else None
            attribute = self._batch.schema.by_name.get(name)
            self[name] = default if physical is None or attribute is None else attribute.from_physical(physical)
        return self[name]
