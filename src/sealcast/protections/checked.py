"""Events that their schema admits, on their way to becoming messages: a few as rows, many as columns.

A publisher makes them (`clients.intake`), a protection's way turns them into messages. Both kinds give the same bytes,
and a way does not ask which it has. Rows are for a handful of events, for which setting up columns would cost more
than the events do; columns cost a few microseconds an event less.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from sealcast.errors import EventRejected
from sealcast.model.dataclass import dataclass
from sealcast.model.event import DEFAULT_CONTENT_TYPE, MAX_CONTENT_TYPE_LENGTH
from sealcast.model.schema import Schema, Type, Value
from sealcast.wire import traceparent
from sealcast.wire.computing import pc
from sealcast.wire.layout import arrow_schema, plain
from sealcast.wire.records import RecordCodec

Ints = NDArray[np.int64]
#: Why events cannot go, by row.
Refusals = dict[int, EventRejected]


@dataclass(frozen=True, slots=True)
class CheckedEvent:
    """One event, parsed."""

    values: Mapping[str, Value]
    payload: bytes
    content_type: str


class CheckedBatch(ABC):
    """Events of one schema, in order."""

    schema: Schema

    @abstractmethod
    def __len__(self) -> int: ...

    @abstractmethod
    def event(self, row: int) -> CheckedEvent: ...

    @property
    @abstractmethod
    def columns(self) -> pa.RecordBatch:
        """The attributes as physical columns."""

    @property
    @abstractmethod
    def sizes(self) -> Ints:
        """The bytes of each event's payload and texts: nearly all that it takes."""

    @abstractmethod
    def part(self, start: int, end: int) -> CheckedBatch: ...

    @abstractmethod
    def without(self, rows: Collection[int]) -> CheckedBatch: ...

    @abstractmethod
    def traced(self, context: bytes) -> CheckedBatch:
        """The same events, each with the context of a trace for whoever opens it."""

    @abstractmethod
    def records(self, codec: RecordCodec, salts: bytes) -> list[bytes]:
        """The events as messages, whole."""

    @abstractmethod
    def shown(
        self, codec: RecordCodec, hidden: frozenset[str], salts: bytes, sealed: Sequence[bytes], kind: str
    ) -> list[bytes]:
        """The events as messages without the attributes that are hidden, and with something sealed in the place of
        payload and content type."""

    def __iter__(self) -> Iterator[CheckedEvent]:
        return map(self.event, range(len(self)))

    def parts(self, most_bytes: int, most: int) -> Iterator[CheckedBatch]:
        """Neighbours put together as `model.bounded` does it: at most so many events and bytes, one at least."""
        ends, start = np.cumsum(self.sizes), 0
        while start < len(self):
            before = int(ends[start - 1]) if start else 0
            fit = int(np.searchsorted(ends, before + most_bytes, side="right"))
            end = max(start + 1, min(fit, start + most))
            yield self.part(start, end)
            start = end

    def refused(self, rows: Sequence[int], check: Callable[[CheckedEvent], None]) -> Refusals:
        """What a check of one event has against some of them."""
        found: Refusals = {}
        for row in rows:
            try:
                check(self.event(row))
            except EventRejected as error:
                found[row] = error
        return found

    def over(self, most_bytes: int) -> list[int]:
        """The events that are larger than this: the few that a limit could concern."""
        found: list[int] = np.flatnonzero(self.sizes > most_bytes).tolist()
        return found


class CheckedRows(CheckedBatch):
    """A few events, one by one."""

    def __init__(self, schema: Schema, events: Sequence[CheckedEvent]) -> None:
        self.schema, self._events = schema, events

    def __len__(self) -> int:
        return len(self._events)

    def event(self, row: int) -> CheckedEvent:
        return self._events[row]

    @cached_property
    def columns(self) -> pa.RecordBatch:
        kinds = arrow_schema(self.schema)
        cells = ([a.to_physical(e.values.get(a.name)) for e in self._events] for a in self.schema.attributes)
        arrays = [pa.array(column, kind) for column, kind in zip(cells, kinds.types, strict=True)]
        return pa.RecordBatch.from_arrays(arrays, schema=kinds)

    @cached_property
    def sizes(self) -> Ints:
        return np.array(
            [len(e.payload) + sum(_text_bytes(v) for v in e.values.values()) for e in self._events], np.int64
        )

    def part(self, start: int, end: int) -> CheckedRows:
        return CheckedRows(self.schema, self._events[start:end])

    def without(self, rows: Collection[int]) -> CheckedRows:
        return CheckedRows(self.schema, [event for row, event in enumerate(self._events) if row not in rows])

    def traced(self, context: bytes) -> CheckedRows:
        kinds = [traceparent.with_context(event.content_type, context) for event in self._events]
        events = [replace(event, content_type=kind) for event, kind in zip(self._events, kinds, strict=True)]
        return CheckedRows(self.schema, events)

    def records(self, codec: RecordCodec, salts: bytes) -> list[bytes]:
        events = self._events
        kinds = [e.content_type for e in events]
        return codec.encode([e.values for e in events], [e.payload for e in events], kinds, salts)

    def shown(
        self, codec: RecordCodec, hidden: frozenset[str], salts: bytes, sealed: Sequence[bytes], kind: str
    ) -> list[bytes]:
        visible = [{name: None if name in hidden else value for name, value in e.values.items()} for e in self._events]
        return codec.encode(visible, sealed, kind, salts)


class CheckedColumns(CheckedBatch):
    """Many events, as columns."""

    def __init__(
        self, schema: Schema, columns: pa.RecordBatch, payloads: pa.Array, content_types: pa.Array | None = None
    ) -> None:
        """Physical columns, and binary payloads; without content types, all of them are the default."""
        self.schema, self._columns, self._payloads, self._kinds = schema, columns, payloads, content_types

    def __len__(self) -> int:
        rows: int = self._columns.num_rows
        return rows

    def event(self, row: int) -> CheckedEvent:
        cells = (column[row].as_py() for column in self._columns.columns)
        values = {a.name: a.from_physical(cell) for a, cell in zip(self.schema.attributes, cells, strict=True)}
        kind = DEFAULT_CONTENT_TYPE if self._kinds is None else self._kinds[row].as_py()
        return CheckedEvent(values, self._payloads[row].as_py(), kind)

    @property
    def columns(self) -> pa.RecordBatch:
        return self._columns

    @cached_property
    def sizes(self) -> Ints:
        total = plain(pc.binary_length(self._payloads)).astype(np.int64)
        for attribute, column in zip(self.schema.attributes, self._columns.columns, strict=True):
            if attribute.type is Type.STRING:
                total = total + plain(pc.fill_null(pc.binary_length(column), 0))
        return total

    def part(self, start: int, end: int) -> CheckedColumns:
        size = end - start
        kinds = None if self._kinds is None else self._kinds.slice(start, size)
        return CheckedColumns(self.schema, self._columns.slice(start, size), self._payloads.slice(start, size), kinds)

    def without(self, rows: Collection[int]) -> CheckedColumns:
        kept = np.ones(len(self), np.bool_)
        kept[list(rows)] = False
        mask = pa.array(kept)
        kinds = None if self._kinds is None else self._kinds.filter(mask)
        return CheckedColumns(self.schema, self._columns.filter(mask), self._payloads.filter(mask), kinds)

    def traced(self, context: bytes) -> CheckedColumns:
        if self._kinds is None:
            kinds = pa.repeat(pa.scalar(traceparent.with_context(DEFAULT_CONTENT_TYPE, context)), len(self))
        else:
            longest = MAX_CONTENT_TYPE_LENGTH - traceparent.PARAMETER_LENGTH
            marked = pc.binary_join_element_wise(self._kinds, traceparent.parameter(context), "")
            kinds = pc.if_else(pc.less_equal(pc.binary_length(self._kinds), longest), marked, self._kinds)
        return CheckedColumns(self.schema, self._columns, self._payloads, kinds)

    def records(self, codec: RecordCodec, salts: bytes) -> list[bytes]:
        kinds = DEFAULT_CONTENT_TYPE if self._kinds is None else self._kinds
        return codec.encode_columns(self._columns, self._payloads, kinds, salts)

    def shown(
        self, codec: RecordCodec, hidden: frozenset[str], salts: bytes, sealed: Sequence[bytes], kind: str
    ) -> list[bytes]:
        kinds = self._columns.schema
        arrays = [
            pa.nulls(len(self), field.type) if field.name in hidden else column
            for field, column in zip(kinds, self._columns.columns, strict=True)
        ]
        visible = pa.RecordBatch.from_arrays(arrays, schema=kinds)
        return codec.encode_columns(visible, pa.array(sealed, pa.binary()), kind, salts)


def _text_bytes(value: Value) -> int:
    return len(value.encode()) if isinstance(value, str) else 0
