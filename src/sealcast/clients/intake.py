"""What a publisher is given, checked against the schema of its topic: events, an Arrow table, or a pandas frame.

A table has a column for each attribute (a missing one is NULL), and `payload` (binary or string) and `content_type`
(string) if it likes. An attribute of one of these two names keeps it; the other column then gets an underscore, as when
a subscriber reads. What is said of a row is what `Publisher.publish_one` says of the same event.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import numpy as np
import pyarrow as pa

from sealcast.errors import EventRejected, Misuse
from sealcast.model.bounded import bounded
from sealcast.model.event import DEFAULT_CONTENT_TYPE, MAX_CONTENT_TYPE_LENGTH, MAX_PAYLOAD_BYTES, Event, own_column
from sealcast.model.schema import Schema
from sealcast.protections.checked import CheckedBatch, CheckedColumns, CheckedEvent, CheckedRows, Refusals
from sealcast.wire.computing import pc
from sealcast.wire.given import is_binary, is_text, physical_column, physical_values
from sealcast.wire.layout import arrow_schema, plain

if TYPE_CHECKING:
    import pandas as pd

#: What `Publisher.publish` takes.
Given: TypeAlias = "Iterable[Event] | pa.Table | pa.RecordBatch | pd.DataFrame"
#: Fewer events than this go one by one: columns cost a few hundred microseconds to set up, whatever their length.
FEW: Final = 12
#: What becomes columns at a time: full frames, and far less than Arrow's columns hold.
ROWS_AT_A_TIME: Final = 64_000
BYTES_AT_A_TIME: Final = 256 << 20

#: How many events there were, those that the schema admits, and why it does not admit the others, by row.
Taken = tuple[int, CheckedBatch, Refusals]


def taken(schema: Schema, given: Given) -> Iterator[Taken]:
    """What was given, in order and in batches."""
    if isinstance(given, pa.RecordBatch):
        given = pa.Table.from_batches([given])
    if isinstance(given, pa.Table):
        for start in range(0, given.num_rows, ROWS_AT_A_TIME):
            # A table may come in many small chunks; frames should not.
            for batch in given.slice(start, ROWS_AT_A_TIME).combine_chunks().to_batches():
                yield from (_from_batch(schema, piece) for piece in _pieces(batch))
    elif _is_frame(given):
        frame: Any = given
        for start in range(0, len(frame), ROWS_AT_A_TIME):
            yield _from_frame(schema, frame.iloc[start : start + ROWS_AT_A_TIME])
    else:
        for some in bounded(given, lambda event: len(event.payload), BYTES_AT_A_TIME, ROWS_AT_A_TIME):
            yield _by_row(schema, some) if len(some) < FEW else _by_column(schema, some)


def admissible(schema: Schema, event: Event) -> CheckedEvent:
    """What a publisher asks of an event before it seals it, or EventRejected."""
    if len(event.payload) > MAX_PAYLOAD_BYTES:
        raise _too_large(len(event.payload))
    if not _is_kind(event.content_type):
        raise _no_kind()
    return CheckedEvent(schema.parse(event.attributes), event.payload, event.content_type)


# --- events -------------------------------------------------------------------------------------


def _by_row(schema: Schema, events: Sequence[Event]) -> Taken:
    checked, refused = list[CheckedEvent](), Refusals()
    for row, event in enumerate(events):
        try:
            checked.append(admissible(schema, event))
        except EventRejected as error:
            refused[row] = error
    return len(events), CheckedRows(schema, checked), refused


def _by_column(schema: Schema, events: Sequence[Event]) -> Taken:
    given, known = [event.attributes for event in events], {*schema.names}
    columns = (
        physical_values(attribute, [each.get(attribute.name) for each in given]) for attribute in schema.attributes
    )
    arrays, wrong = zip(*columns, strict=True)
    kinds = [event.content_type for event in events]
    unfit = {kind for kind in {*kinds} if not _is_kind(kind)}
    doubtful = {
        row
        for row, event in enumerate(events)
        if len(event.payload) > MAX_PAYLOAD_BYTES
        or event.content_type in unfit
        or not known.issuperset(event.attributes)
    }
    refused = Refusals()
    for row in sorted(doubtful.union(*wrong)):
        try:
            admissible(schema, events[row])  # the first thing that is wrong with it is the one that is said
        except EventRejected as error:
            refused[row] = error
    payloads = pa.array([event.payload for event in events], pa.binary())
    return _columns(schema, arrays, payloads, None if {*kinds} == {DEFAULT_CONTENT_TYPE} else pa.array(kinds), refused)


# --- tables -------------------------------------------------------------------------------------


def _is_frame(given: object) -> bool:
    """Without importing pandas: whoever has a frame has imported it."""
    pandas = sys.modules.get("pandas")
    return pandas is not None and isinstance(given, pandas.DataFrame)


def _pieces(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Halves of it, and halves of these, until each is small enough."""
    rows = batch.num_rows
    if rows < 2 or batch.nbytes <= BYTES_AT_A_TIME:
        yield batch
        return
    yield from _pieces(batch.slice(0, rows // 2))
    yield from _pieces(batch.slice(rows // 2))


def _from_frame(schema: Schema, frame: pd.DataFrame) -> Taken:
    """NaN and NaT are NULL, as they are for pandas."""
    columns: dict[str, Any] = {}
    for at, name in enumerate(map(str, frame.columns)):
        if name in columns:
            raise _two(name)
        series = frame.iloc[:, at]
        if series.dtype == object:
            # Python's own values, each of which the schema takes or refuses by itself.
            columns[name] = [None if null else value for value, null in zip(series, series.isna(), strict=True)]
        else:
            columns[name] = pa.array(series, from_pandas=True)
    return _from_columns(schema, len(frame), columns)


def _two(name: str) -> Misuse:
    return Misuse(f"there are two columns {name!r}", hint="drop or rename one of them")


def _from_batch(schema: Schema, batch: pa.RecordBatch) -> Taken:
    names = batch.schema.names
    for name in names:
        if names.count(name) > 1:
            raise _two(name)
    return _from_columns(schema, batch.num_rows, dict(zip(names, batch.columns, strict=True)))


def _from_columns(schema: Schema, count: int, given: Mapping[str, pa.Array | list[object]]) -> Taken:
    payload, kind = (own_column(name, schema.names) for name in ("payload", "content_type"))
    for name in given:
        if name not in schema.by_name and name not in (payload, kind):
            raise Misuse(
                f"column {name!r} is neither an attribute ({', '.join(schema.names[:12])}), nor {payload!r}, nor "
                f"{kind!r}",
                hint="drop or rename columns before publishing",
            )
    refused = Refusals()
    payloads = _payloads(payload, given.get(payload), count, refused)
    kinds = _kinds(kind, given.get(kind), refused)
    arrays = []
    for attribute, wanted in zip(schema.attributes, arrow_schema(schema).types, strict=True):
        column = given.get(attribute.name)
        if column is None:
            arrays.append(pa.nulls(count, wanted))
            continue
        made = physical_values if isinstance(column, list) else physical_column
        array, wrong = made(attribute, column)
        arrays.append(array)
        refused = wrong | refused
    return _columns(schema, arrays, payloads, kinds, refused)


def _payloads(name: str, given: pa.Array | list[object] | None, count: int, refused: Refusals) -> pa.Array:
    if given is None:
        return pa.repeat(pa.scalar(b"", pa.binary()), count)
    column = _plain_column(name, given, "binary or string")
    if pa.types.is_null(column.type):
        column = column.cast(pa.binary())
    if not is_text(column.type) and not is_binary(column.type):
        raise Misuse(f"column {name!r} is of type {column.type}; a payload is binary or string")
    lengths = pc.fill_null(pc.binary_length(column), 0)
    large = plain(pc.greater(lengths, MAX_PAYLOAD_BYTES))
    if large.any():
        for row in np.flatnonzero(large).tolist():
            refused[row] = _too_large(lengths[row].as_py())
        column = pc.if_else(pa.array(large), pa.scalar(None, column.type), column)
    return pc.fill_null(column.cast(pa.binary()), b"")


def _kinds(name: str, given: pa.Array | list[object] | None, refused: Refusals) -> pa.Array | None:
    if given is None:
        return None
    column = _plain_column(name, given, "a string")
    if pa.types.is_null(column.type):
        return None
    if not is_text(column.type):
        raise Misuse(f"column {name!r} is of type {column.type}; a content type is a string")
    # As bytes: a text that is none must not be shown before it was looked at.
    raw = pc.fill_null(column.cast(pa.binary()), DEFAULT_CONTENT_TYPE.encode())
    unfit = [kind for kind in pc.unique(raw).to_pylist() if not _is_kind(kind.decode("latin-1"))]
    if unfit:
        wrong = pc.is_in(raw, pa.array(unfit, pa.binary()))
        for row in np.flatnonzero(plain(wrong)).tolist():
            refused.setdefault(row, _no_kind())
        raw = pc.if_else(wrong, pa.scalar(DEFAULT_CONTENT_TYPE.encode()), raw)
    return raw.cast(pa.utf8())


def _plain_column(name: str, given: pa.Array | list[object], wanted: str) -> pa.Array:
    try:
        column = pa.array(given) if isinstance(given, list) else given
    except (pa.ArrowException, TypeError, ValueError, OverflowError):
        raise Misuse(f"column {name!r} holds values of several types; it has to be {wanted}") from None
    return column.dictionary_decode() if pa.types.is_dictionary(column.type) else column


def _columns(
    schema: Schema, arrays: Sequence[pa.Array], payloads: pa.Array, kinds: pa.Array | None, refused: Refusals
) -> Taken:
    columns = pa.RecordBatch.from_arrays(list(arrays), schema=arrow_schema(schema))
    batch = CheckedColumns(schema, columns, payloads, kinds)
    return len(batch), (batch.without(refused) if refused else batch), refused


# --- what is asked of both ----------------------------------------------------------------------


def _too_large(size: int) -> EventRejected:
    return EventRejected(f"the payload has {size} bytes, {MAX_PAYLOAD_BYTES} are allowed")


def _is_kind(kind: str) -> bool:
    return 0 < len(kind) <= MAX_CONTENT_TYPE_LENGTH and kind.isascii() and kind.isprintable()


def _no_kind() -> EventRejected:
    return EventRejected(f"a content type has 1 to {MAX_CONTENT_TYPE_LENGTH} printable ASCII characters")
