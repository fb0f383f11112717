"""From a batch of messages to columns: vectorised, and strict about every byte of every row.

The fixed parts of all messages are gathered into one matrix, whose columns are read as they stand. The variable parts
(strings, content type, payload) are found from the lengths, and because they tile the joined messages exactly, one
Arrow array over that buffer holds them all; a column is then every k-th of its segments. A row that breaks a rule is
named and nulled; its neighbours do not notice. Nothing here trusts a length before it was checked against the
message's own.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from sealcast.errors import EventRejected, Misuse
from sealcast.model import moments
from sealcast.model.dataclass import dataclass
from sealcast.model.event import MAX_PAYLOAD_BYTES
from sealcast.model.schema import Attribute, Type
from sealcast.wire.cbor import is_utf8
from sealcast.wire.computing import pc
from sealcast.wire.layout import (
    MIN_INT64,
    RECORD_AT,
    TRAILER_BYTES,
    MessageLayout,
    content_type_bytes,
)
from sealcast.wire.limits import MAX_MESSAGE_BYTES

Bytes = npt.NDArray[np.uint8]
Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]
Cells = npt.NDArray[Any]

#: Arrow's binary offsets have 31 bits.
MAX_BATCH_BYTES = 2**31 - 1


@dataclass(frozen=True, eq=False)
class Decoded:
    """A batch of messages as columns. A bad row is NULL in every column, its payload and content type are empty."""

    #: Physical columns named by attribute, a row per message.
    columns: pa.RecordBatch
    #: Why a row is no record of this schema.
    bad: dict[int, str]
    #: Where the payload starts in its message; it runs to the end. Zero for a bad row.
    payload_start: Ints
    _segments: _Segments

    @cached_property
    def payloads(self) -> pa.Array:
        """The payloads as an Arrow binary column: copied out when a filter asks for them, not before."""
        return self._segments.column(-1)

    @cached_property
    def content_types(self) -> pa.Array:
        """Decodes the content types alike."""
        return self._segments.column(-2).cast(pa.utf8())


def decode(layout: MessageLayout, messages: Sequence[bytes]) -> Decoded:
    """The columns of messages from anywhere."""
    lengths = np.fromiter(map(len, messages), dtype=np.int64, count=len(messages))
    if int(lengths.sum()) > MAX_BATCH_BYTES:
        raise Misuse(f"a batch has {int(lengths.sum())} bytes, {MAX_BATCH_BYTES} are allowed")
    return decode_joined(layout, b"".join(messages), lengths)


def decode_joined(layout: MessageLayout, buffer: bytes, lengths: Ints) -> Decoded:
    """Decodes messages that are in one piece already."""
    if len(buffer) > MAX_BATCH_BYTES:
        raise Misuse(f"a batch has {len(buffer)} bytes, {MAX_BATCH_BYTES} are allowed")
    bad = _Bad(len(lengths))
    fixed = _fixed_parts(layout, buffer, lengths, bad)
    present = _presence(layout, fixed, bad)
    cells = [_cell(layout, fixed, j, present[j], bad) for j in range(len(layout.schema.attributes))]
    variable = _variable_lengths(layout, fixed, cells, lengths, bad)
    segments = _Segments(layout, buffer, lengths, variable, bad)
    if _check_text(layout, segments, bad) | _check_kinds(layout, buffer, lengths, variable, segments, bad):
        segments = _Segments(layout, buffer, lengths, variable, bad)
    arrays = [
        _array(layout, j, cells[j], present[j] & bad.good, segments) for j in range(len(layout.schema.attributes))
    ]
    start = np.where(bad.good, layout.fixed_bytes + _sums(variable[:, :-1]), 0)
    return Decoded(
        columns=pa.RecordBatch.from_arrays(arrays, schema=layout.arrow_schema),
        bad=bad.texts(),
        payload_start=start.astype(np.int64),
        _segments=segments,
    )


class _Bad:
    """Which rows failed, and the first reason of each."""

    def __init__(self, count: int) -> None:
        self.good: Bools = np.ones(count, dtype=np.bool_)
        self._found: list[tuple[Bools, str]] = []

    def fail(self, rows: Bools, why: str) -> bool:
        fresh = rows & self.good
        if not fresh.any():
            return False
        self.good &= ~fresh
        self._found.append((fresh, why))
        return True

    def texts(self) -> dict[int, str]:
        found = {int(row): why for rows, why in self._found for row in np.flatnonzero(rows)}
        return dict(sorted(found.items()))


def _fixed_parts(layout: MessageLayout, buffer: bytes, lengths: Ints, bad: _Bad) -> Bytes:
    """The fixed parts as a matrix, a row per message; zeros for messages of an impossible length."""
    width = layout.fixed_bytes
    bad.fail(lengths < width, f"shorter than the {width} bytes that every message of this schema has")
    bad.fail(lengths > MAX_MESSAGE_BYTES, f"longer than the {MAX_MESSAGE_BYTES} bytes allowed")
    starts = np.cumsum(lengths) - lengths
    if bad.good.all() and len(lengths):
        fixed = _taken(buffer, starts, width)
    else:
        fixed = np.zeros((len(lengths), width), dtype=np.uint8)
        fixed[bad.good] = _taken(buffer, starts[bad.good], width)
    bad.fail(fixed[:, 0] != 0, "does not start with a zero byte")
    return fixed


def _taken(buffer: bytes, starts: Ints, width: int) -> Bytes:
    """So many bytes from each of these places, a row each."""
    if not starts.size or not width:
        return np.zeros((starts.size, width), dtype=np.uint8)
    # An element of so many bytes is copied in one go, a row of as many elements one by one: a tenth of the cost.
    windows: Cells = np.ndarray((len(buffer) - width + 1,), f"V{width}", buffer, strides=(1,))
    return windows[starts].view(np.uint8).reshape(-1, width)


def _presence(layout: MessageLayout, fixed: Bytes, bad: _Bad) -> list[Bools]:
    """Of each attribute: which messages have it."""
    attributes, each = len(layout.schema.attributes), list[Bools]()
    for byte in range(layout.presence_bytes):
        bits = fixed[:, RECORD_AT + byte].copy()
        here = min(8, attributes - 8 * byte)
        each += [(bits & (1 << bit)).astype(np.bool_) for bit in range(here)]
        bad.fail(bits >= 1 << here, "has a presence bit for an attribute that does not exist")
    return each


def _cell(layout: MessageLayout, fixed: Bytes, column: int, present: Bools, bad: _Bad) -> Cells:
    """One attribute's cells, checked: an absent one is zero, and one value has one spelling."""
    attribute, at = layout.schema.attributes[column], layout.cell_at[column]
    match attribute.type:
        case Type.BOOL:
            cell: Cells = fixed[:, at].copy()
            bad.fail(cell > 1, _about(attribute, "a bool is 0 or 1"))
        case Type.STRING:
            cell = _read(fixed, at, "<u4")
        case Type.FLOAT:
            cell = _read(fixed, at, "<f8")
            bad.fail(~np.isfinite(cell), _about(attribute, "is not a finite number"))
            bad.fail((cell == 0) & np.signbit(cell), _about(attribute, "zero has no sign"))
        case _:
            cell = _read(fixed, at, "<i8")
            if attribute.type is Type.TIMESTAMP:
                outside = (cell < moments.FIRST) | (cell > moments.LAST)
                bad.fail(outside, _about(attribute, "is outside the calendar's years 1 to 9999"))
            if attribute.type is Type.DECIMAL:
                bad.fail(cell == MIN_INT64, _about(attribute, "does not fit"))
    bad.fail(~present & (cell != 0), _about(attribute, "is absent and yet has a value"))
    return cell


def _variable_lengths(
    layout: MessageLayout, fixed: Bytes, cells: list[Cells], lengths: Ints, bad: _Bad
) -> npt.NDArray[np.int64]:
    """Lengths of the strings, the content type and the payload, a row per message; they add up or the row is bad."""
    strings = layout.string_columns
    variable = np.empty((len(lengths), len(strings) + 2), dtype=np.int64)
    for at, column in enumerate(strings):
        variable[:, at] = cells[column]
    variable[:, -2] = fixed[:, layout.fixed_bytes - TRAILER_BYTES]
    variable[:, -1] = _read(fixed, layout.fixed_bytes - TRAILER_BYTES + 1, "<u4")
    bad.fail(layout.fixed_bytes + _sums(variable) != lengths, "its lengths do not add up to the message")
    bad.fail(variable[:, -1] > MAX_PAYLOAD_BYTES, f"has a payload over the {MAX_PAYLOAD_BYTES} bytes allowed")
    return variable


def _sums(rows: Ints) -> Ints:
    """The sum of each row. Of rows as short as these, numpy adds whole columns in a tenth of the time."""
    total: Ints = rows[:, 0].copy()
    for column in rows.T[1:]:
        total += column
    return total


class _Segments:
    """The joined messages, cut into fixed part, strings, content type and payload each; a bad one is left whole."""

    def __init__(
        self, layout: MessageLayout, buffer: bytes, lengths: Ints, variable: npt.NDArray[np.int64], bad: _Bad
    ) -> None:
        self._count, self._each = len(lengths), variable.shape[1] + 1
        cuts = np.empty((self._count, self._each), dtype=np.int32)
        cuts[:, 0] = layout.fixed_bytes
        cuts[:, 1:] = variable
        if not bad.good.all():
            cuts[~bad.good] = 0
            cuts[~bad.good, 0] = lengths[~bad.good]
        ends = np.zeros(cuts.size + 1, dtype=np.int32)
        np.cumsum(cuts.ravel(), out=ends[1:])
        self._all = pa.Array.from_buffers(pa.binary(), cuts.size, [None, pa.py_buffer(ends), pa.py_buffer(buffer)])
        self._columns: dict[int, pa.Array] = {}

    def column(self, which: int) -> pa.Array:
        """The `which`-th segment of every message, put together once."""
        which %= self._each
        if which not in self._columns:
            self._columns[which] = self._all.take(pa.array(np.arange(which, self._each * self._count, self._each)))
        return self._columns[which]


def _check_text(layout: MessageLayout, segments: _Segments, bad: _Bad) -> bool:
    """Whether there were rows whose strings are not UTF-8; they are bad now."""
    count = len(bad.good)
    found = False
    for at, column in enumerate(layout.string_columns):
        texts = segments.column(1 + at)
        try:
            texts.cast(pa.utf8())
        except pa.ArrowInvalid:
            rows = np.fromiter((not is_utf8(t) for t in texts.to_pylist()), dtype=np.bool_, count=count)
            found |= bad.fail(rows, _about(layout.schema.attributes[column], "is not UTF-8"))
    return found


def _check_kinds(
    layout: MessageLayout, buffer: bytes, lengths: Ints, variable: Ints, segments: _Segments, bad: _Bad
) -> bool:
    """Whether there were rows whose content type is none; they are bad now."""
    only = _only_kind(layout, buffer, lengths, variable) if bad.good.all() and len(lengths) else None
    if only is not None and _is_content_type(only):
        return False
    kinds = segments.column(-2)
    wrong = [kind for kind in pc.unique(kinds).to_pylist() if not _is_content_type(kind)]
    if not wrong:
        return False
    rows = pc.is_in(kinds, pa.array(wrong, pa.binary())).to_numpy(zero_copy_only=False)
    return bad.fail(rows, "its content type is not 1 to 255 printable ASCII characters")


def _only_kind(layout: MessageLayout, buffer: bytes, lengths: Ints, variable: Ints) -> bytes | None:
    """The content type that all of these messages have, as most batches do; None where they differ. Comparing costs a
    tenth of putting them together in a column."""
    width = int(variable[0, -2])
    if not width or (variable[:, -2] != width).any():
        return None
    ends = np.cumsum(lengths) - variable[:, -1]
    kinds = _taken(buffer, ends - width, width)
    return kinds[0].tobytes() if bool((kinds == kinds[0]).all()) else None


def _array(layout: MessageLayout, column: int, cell: Cells, valid: Bools, segments: _Segments) -> pa.Array:
    """One attribute's Arrow column, without copying what is already as Arrow wants it."""
    count = len(valid)
    kind = layout.arrow_schema.types[column]
    bitmap = None if valid.all() else pa.py_buffer(np.packbits(valid, bitorder="little"))
    match layout.schema.attributes[column].type:
        case Type.STRING:
            texts = segments.column(1 + layout.string_columns.index(column))
            return pa.Array.from_buffers(kind, count, [bitmap, *texts.buffers()[1:]])
        case Type.BOOL:
            values = pa.py_buffer(np.packbits(cell.view(np.bool_) & valid, bitorder="little"))
        case _:
            # Whatever a bad row had in its cell is not to be seen, not even under a NULL.
            values = pa.py_buffer(cell if bitmap is None else np.where(valid, cell, 0).astype(cell.dtype))
    return pa.Array.from_buffers(kind, count, [bitmap, values])


def _read(fixed: Bytes, at: int, dtype: str) -> Cells:
    """The numbers that stand at one place of each fixed part."""
    count, width = fixed.shape
    # One number is copied in one go, the bytes of one are copied one by one.
    return np.ndarray((count,), dtype, fixed.data, at, (width,)).copy() if count else np.zeros(0, dtype)


def _about(attribute: Attribute, why: str) -> str:
    return f"attribute {attribute.name!r}: {why}"


def _is_content_type(kind: bytes) -> bool:
    try:
        content_type_bytes(kind.decode("ascii"))
    except (UnicodeDecodeError, EventRejected):
        return False
    return True
