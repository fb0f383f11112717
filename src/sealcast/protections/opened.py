"""Deliveries of one piece, opened together: events in columns, beside why some did not open.

Every protection opens in the same two steps. All rows are opened at once, the fast way, which says of a row only that
it opened or that it did not. What did not is opened alone, the slow way, which says why. So a bad row costs one row,
and what is said of it does not depend on its neighbours.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from sealcast.errors import CannotOpen
from sealcast.log.had import EventId
from sealcast.log.mailbox import Part
from sealcast.log.piece_reader import P
from sealcast.model.event import OpenedEvent, Position
from sealcast.model.moments import moment
from sealcast.protections.verify import VerifiedRecord, opened_event
from sealcast.wire import traceparent
from sealcast.wire.frame import Header
from sealcast.wire.handed import columns_of, handed_column
from sealcast.wire.place_columns import PlaceColumns
from sealcast.wire.records import RecordCodec

#: Fewer rows than this are opened one by one: columns cost a few hundred microseconds to set up, whatever their length.
FEW: Final = 12

Ints = NDArray[np.int64]
#: Opens one row alone; CannotOpen says why not.
One = Callable[[int], VerifiedRecord]
Headers = Mapping[int, Header]


def few(rows: int) -> bool:
    """Whether so many rows are opened one by one."""
    return rows < FEW


class RecordValues(NamedTuple):
    """What stands in records: the attributes as physical columns, and the rest."""

    columns: pa.RecordBatch
    payloads: pa.Array
    content_types: pa.Array
    #: The contexts of traces, where publishers trace.
    traces: pa.Array | None = None

    def take(self, rows: Ints) -> RecordValues:
        picked = pa.array(rows)
        return RecordValues(*(None if each is None else each.take(picked) for each in self))


class OpenedBatch:
    """Events that were opened and verified, in order."""

    def __init__(
        self,
        codec: RecordCodec,
        places: PlaceColumns,
        headers: Headers,
        header_of: Ints,
        records: Sequence[bytes],
        messages_per_event: int = 1,
        values: RecordValues | None = None,
    ) -> None:
        """`header_of` says of each event which of the `headers` is that of its frame."""
        self._codec, self._places, self._headers, self._header_of = codec, places, headers, header_of
        self._records, self._per_event, self._known = records, messages_per_event, values

    def __len__(self) -> int:
        return len(self._records)

    def take(self, rows: Ints) -> OpenedBatch:
        """Those in these rows, which ascend."""
        if rows.size == len(self):
            return self
        values = None if self._known is None else self._known.take(rows)
        records = [self._records[row] for row in rows.tolist()]
        places, header_of = self._places.take(rows), self._header_of[rows]
        return OpenedBatch(self._codec, places, self._headers, header_of, records, self._per_event, values)

    @cached_property
    def nbytes(self) -> int:
        """The bytes of all records."""
        return sum(map(len, self._records))

    @property
    def columns(self) -> pa.RecordBatch:
        """The attributes, as physical columns."""
        return self._values.columns

    def position(self, row: int) -> Position:
        return Position(*(int(each[row]) for each in self._places))

    def frames(self) -> Iterator[tuple[EventId, list[int]]]:
        """Neighbours of one frame: the first of them, and the numbers that their publisher gave them."""
        numbers = self._sequences.tolist()
        for start, end in _runs(self._header_of):
            header = self._headers[int(self._header_of[start])]
            yield EventId(header.publisher, header.boot, numbers[start], header.time), numbers[start:end]

    def contexts(self) -> list[bytes]:
        """The contexts of traces, of those events that their publishers trace."""
        traces = self._values.traces if len(self) else None
        found: list[bytes] = [] if traces is None else traces.drop_null().to_pylist()
        return found

    def events(self) -> list[OpenedEvent]:
        """The events one by one, as Python has them."""
        headers = [self._headers[index] for index in self._header_of.tolist()]
        if few(len(self)):
            each = zip(headers, map(self.position, range(len(self))), self._records, strict=True)
            return [opened_event(header, at, self._codec, record, self._per_event) for header, at, record in each]
        attributes, names = self._codec.schema.attributes, self._codec.schema.names
        columns = [
            map(attribute.from_physical, column.to_pylist())
            for attribute, column in zip(attributes, self.columns.columns, strict=True)
        ]
        moments = {index: moment(header.time) for index, header in self._headers.items()}
        return [
            OpenedEvent(at, header.publisher, moments[index], number, dict(zip(names, values, strict=True)), *rest)
            for at, header, index, number, values, rest in zip(
                map(Position, *(each.tolist() for each in self._places)),
                headers,
                self._header_of.tolist(),
                self._sequences.tolist(),
                zip(*columns, strict=True),
                zip(
                    self._values.payloads.to_pylist(),
                    self._values.content_types.to_pylist(),
                    [header.boot for header in headers],
                    self._traceparents(),
                    strict=True,
                ),
                strict=True,
            )
        ]

    def _traceparents(self) -> list[str | None]:
        traces = self._values.traces
        if traces is None:
            return [None] * len(self)
        return [None if context is None else traceparent.text(context) for context in traces.to_pylist()]

    def arrow(self) -> pa.RecordBatch:
        """The events in columns (`wire.handed.columns_of`)."""
        schema, values = self._codec.schema, self._values
        used, which = np.unique(self._header_of, return_inverse=True)
        headers, picked = [self._headers[index] for index in used.tolist()], pa.array(which)
        columns = columns_of(schema)
        arrays = [
            self._places.texts(),
            pa.array([header.publisher for header in headers], pa.utf8()).take(picked),
            pa.array([header.time for header in headers], pa.int64()).take(picked).view(columns.types[2]),
            pa.array(self._sequences),
            *map(handed_column, schema.attributes, values.columns.columns),
            values.payloads,
            values.content_types,
        ]
        return pa.RecordBatch.from_arrays(arrays, schema=columns)

    @cached_property
    def _sequences(self) -> Ints:
        # Headers number messages.
        first = {index: header.sequence // self._per_event for index, header in self._headers.items()}
        starts = np.fromiter(map(first.__getitem__, self._header_of.tolist()), np.int64, len(self))
        return starts + self._places.row

    @property
    def _values(self) -> RecordValues:
        if self._known is None:
            self._known = decoded(self._codec, self._records)[0]
        return self._known


class OpenedPart(NamedTuple):
    """What became of the first deliveries of a part: some opened, and the others were refused."""

    #: How many were tried: all, unless opening takes so long that whoever waits should have the first ones before.
    tried: int
    opened: OpenedBatch
    #: By row of the part: of each that was opened; and why the others were not.
    rows: Ints
    refused: Mapping[int, CannotOpen]

    def before(self, row: int) -> OpenedBatch:
        """Those that were opened before a row of the part."""
        return self.opened.take(np.arange(int(np.searchsorted(self.rows, row))))


def settle(
    codec: RecordCodec,
    part: Part[P],
    headers: dict[int, Header],
    records: Sequence[bytes | None],
    one: One,
    messages_per_event: int = 1,
    values: RecordValues | None = None,
) -> OpenedPart:
    """What the fast way opened, `records` with the `headers` of their frames, and what `one` says of all other rows. A
    record that is none of the topic's schema is for `one` to refuse as well, unless the `values` of all of them are
    known by now."""
    events = np.asarray(part.events, np.int64)[: len(records)]
    frames = np.asarray(part.piece.frame_index)[events].astype(np.int64)
    found, refused = list(records), dict[int, CannotOpen]()
    rows = [row for row, record in enumerate(found) if record is not None]
    if values is None and not few(len(rows)):
        values, bad = decoded(codec, [record for record in found if record is not None])
        for at in bad:
            found[rows[at]] = None
    for row, record in enumerate(found):
        if record is None:
            try:
                header, found[row] = one(row)
            except CannotOpen as error:
                refused[row] = error
                continue
            if headers.setdefault(int(frames[row]), header) != header:
                # The piece contradicts itself: this row has a header of its own, and its neighbours keep theirs.
                frames[row] = -1 - row
                headers[int(frames[row])] = header
    opened = np.array([row for row, record in enumerate(found) if record is not None], np.int64)
    kept = [record for record in found if record is not None]
    if opened.tolist() != rows:
        values = None
    places, picked = part.piece.places(events[opened]), frames[opened]
    batch = OpenedBatch(codec, places, headers, picked, kept, messages_per_event, values)
    return OpenedPart(len(records), batch, opened, refused)


def refused_part(codec: RecordCodec, part: Part[P], error: CannotOpen) -> OpenedPart:
    """None of them opened, all for one reason."""

    def one(row: int) -> VerifiedRecord:
        raise error

    return settle(codec, part, {}, [None] * len(part), one)


def decoded(codec: RecordCodec, records: Sequence[bytes]) -> tuple[RecordValues, Sequence[int]]:
    """The values of records, and which of these are none of the schema."""
    found = codec.decode(records)
    return RecordValues(found.columns, found.payloads, *_split(found.content_types)), list(found.bad)


def _split(kinds: pa.Array) -> tuple[pa.Array, pa.Array | None]:
    """Content types without contexts of traces, and these."""
    encoded = kinds.dictionary_encode()
    parts = [traceparent.split(kind) for kind in encoded.dictionary.to_pylist()]
    if not any(context for _, context in parts):
        return kinds, None
    plain = pa.array([kind for kind, _ in parts], pa.utf8())
    contexts = pa.array([context or None for _, context in parts], pa.binary())
    return plain.take(encoded.indices), contexts.take(encoded.indices)


def _runs(values: Ints) -> Iterator[tuple[int, int]]:
    """Where neighbours are equal: from, to."""
    cuts = (np.flatnonzero(np.diff(values)) + 1).tolist()
    return zip([0, *cuts], [*cuts, values.size], strict=True) if values.size else iter(())
