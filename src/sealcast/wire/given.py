"""From what a publisher was given to physical columns: `Attribute.parse` for a whole batch at once.

    Arrow columns of any type            --physical_column-->  a physical column, and the rows that are refused
    Python values, a list per attribute  --physical_values-->  the same

`Attribute.parse` decides; this file only saves it work. For each pair of an attribute's type and an Arrow type that is
common there is a vectorised conversion, which also says for which rows it is certainly right. The few rows that are
left, and columns of other types, are put to `parse` itself, as Python has them. So the two agree by construction, and
the text of a refusal is `parse`'s own. A row that is refused has no meaning in its column: whoever asked drops it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from decimal import Decimal
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from sealcast.errors import EventRejected
from sealcast.model import moments
from sealcast.model.schema import Attribute, Type
from sealcast.wire.cbor import is_utf8
from sealcast.wire.computing import pc
from sealcast.wire.domain import MAX_EXACT, admissible
from sealcast.wire.layout import ARROW_TYPES, plain

Bools = npt.NDArray[np.bool_]

_INT64_MAX: Final = 2**63 - 1
#: Microseconds in Arrow's units; nanoseconds are divided.
_MICROS: Final = {"s": 1_000_000, "ms": 1_000, "us": 1}
_NANOS: Final = 1_000
_UTC_MICROS: Final = pa.timestamp("us", "UTC")
#: What Arrow says when Python values do not fit the type that was asked for.
_UNFIT: Final = (pa.ArrowException, OverflowError, UnicodeEncodeError, ValueError, TypeError)

Refusals = dict[int, EventRejected]
#: A physical column, and the rows in which it is certainly what `parse` would make.
Converted = tuple[pa.Array, Bools]
#: What was given in a row, as Python has it.
Original = Callable[[int], object]


def physical_column(
    attribute: Attribute, given: pa.Array, original: Original | None = None
) -> tuple[pa.Array, Refusals]:
    """The physical column, and the rows that hold nothing admissible. `original` says what was given in a row, where
    Arrow's own word is not the first."""
    if pa.types.is_dictionary(given.type):
        given = given.dictionary_decode()
    if given.null_count == len(given):
        return pa.nulls(len(given), ARROW_TYPES[attribute.type]), {}
    original = original or _shown(attribute, given)
    found = _CONVERSIONS[attribute.type](attribute, given)
    if found is None:
        return _parsed(attribute, len(given), original)
    column, sure = found
    sure = (sure & admissible(attribute, column)) | plain(given.is_null())
    refused: Refusals = {}
    changed: dict[int, object] = {}
    for row in np.flatnonzero(~sure).tolist():
        try:
            changed[row] = attribute.to_physical(attribute.parse(original(row)))
        except EventRejected as error:
            refused[row] = error
    return (_replaced(column, changed) if changed else column), refused


def physical_values(attribute: Attribute, values: Sequence[object]) -> tuple[pa.Array, Refusals]:
    """`physical_column` of Python values."""
    column = _as_arrow(attribute, values)
    if column is None:
        return _parsed(attribute, len(values), values.__getitem__)
    return physical_column(attribute, column, values.__getitem__)


def is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))


def is_binary(kind: pa.DataType) -> bool:
    types = pa.types
    sized = types.is_fixed_size_binary(kind) and not types.is_decimal(kind)
    return bool(types.is_binary(kind) or types.is_large_binary(kind) or types.is_binary_view(kind) or sized)


# --- inside -------------------------------------------------------------------------------------


def _as_arrow(attribute: Attribute, values: Sequence[Any]) -> pa.Array | None:
    """Python values as an Arrow column that converts to what `parse` makes of each; None where only `parse` can tell.
    Types are compared exactly: a subclass may mean something else."""
    kinds = {*map(type, values)} - {type(None)}
    try:
        match attribute.type:
            case Type.INT if kinds <= {int}:
                return pa.array(values, pa.int64())
            case Type.BOOL if kinds <= {bool}:
                return pa.array(values, pa.bool_())
            case Type.STRING if kinds <= {str}:
                return pa.array(values, pa.utf8())
            case Type.FLOAT if kinds <= {int, float, Decimal}:
                return pa.array([None if v is None else float(v) for v in values], pa.float64())
            case Type.DECIMAL if kinds <= {int, Decimal}:
                return pa.array(values, pa.decimal128(38, attribute.scale))
            case Type.DECIMAL if kinds <= {float}:
                return pa.array(values, pa.float64())
            case Type.TIMESTAMP if kinds <= {datetime}:
                return pa.array(values, _UTC_MICROS)
            case Type.TIMESTAMP if kinds <= {int}:
                return pa.array(values, pa.int64())
            case Type.TIMESTAMP if kinds <= {str}:
                read = datetime.fromisoformat
                return pa.array([None if v is None else read(v) for v in values], _UTC_MICROS)
    except _UNFIT:
        return None
    return None


def _shown(attribute: Attribute, given: pa.Array) -> Original:
    """What Arrow holds in a row as Python has it, or EventRejected where Python has no such thing."""

    def shown(row: int) -> object:
        cell = given[row]
        try:
            if pa.types.is_timestamp(given.type) and cell.is_valid:
                return moments.moment(_micros_of(cell.value, given.type.unit))
            return cell.as_py()
        except OverflowError:
            why = "is outside the calendar's years 1 to 9999"
        except UnicodeDecodeError:
            why = "is not UTF-8"
        except ValueError as error:
            why = str(error)
        raise EventRejected(f"attribute {attribute.name!r}: {why}", attribute=attribute.name)

    return shown


def _micros_of(value: int, unit: str) -> int:
    if unit != "ns":
        return value * _MICROS[unit]
    if value % _NANOS:
        raise ValueError("is finer than a microsecond")
    return value // _NANOS


def _parsed(attribute: Attribute, count: int, original: Original) -> tuple[pa.Array, Refusals]:
    """Value by value, where nothing faster is certain to agree."""
    found: list[object] = [None] * count
    refused: Refusals = {}
    for row in range(count):
        try:
            found[row] = attribute.to_physical(attribute.parse(original(row)))
        except EventRejected as error:
            refused[row] = error
    return pa.array(found, ARROW_TYPES[attribute.type]), refused


def _replaced(column: pa.Array, changed: Mapping[int, object]) -> pa.Array:
    mask = np.zeros(len(column), np.bool_)
    mask[list(changed)] = True
    return pc.replace_with_mask(column, pa.array(mask), pa.array(list(changed.values()), column.type))


# --- conversions: the column, and the rows in which it is certainly what `parse` would make -------


def _bool(attribute: Attribute, given: pa.Array) -> Converted | None:
    return (given, np.ones(len(given), np.bool_)) if pa.types.is_boolean(given.type) else None


def _string(attribute: Attribute, given: pa.Array) -> Converted | None:
    if not is_text(given.type):
        return None
    sure = np.ones(len(given), np.bool_)
    try:
        given.validate(full=True)
    except pa.ArrowInvalid:
        # Arrow does not look whether a text is one unless it is asked to. Whoever reads it does.
        raw = given.cast(pa.large_binary()).to_pylist()
        sure = np.array([text is None or is_utf8(text) for text in raw], np.bool_)
        given = pa.array([text if good else None for text, good in zip(raw, sure, strict=True)], pa.large_binary())
    return given.cast(pa.utf8()), sure


def _int(attribute: Attribute, given: pa.Array) -> Converted | None:
    if pa.types.is_integer(given.type):
        return _whole(given, plain(pc.fill_null(given, 0)), 1)
    if not pa.types.is_floating(given.type):
        return None
    floats = _floats(given)
    sure = np.isfinite(floats) & (np.abs(floats) < 2.0**63)
    sure &= np.trunc(np.where(sure, floats, 0.0)) == floats
    return _array(given, np.where(sure, floats, 0.0).astype(np.int64), pa.int64()), sure


def _float(attribute: Attribute, given: pa.Array) -> Converted | None:
    if pa.types.is_integer(given.type):
        floats = plain(pc.fill_null(given, 0)).astype(np.float64)
    elif pa.types.is_floating(given.type):
        floats = _floats(given)
    else:
        return None
    return _array(given, floats + 0.0, pa.float64()), np.isfinite(floats)


def _decimal(attribute: Attribute, given: pa.Array) -> Converted | None:
    scale = attribute.scale
    if pa.types.is_integer(given.type):
        return _whole(given, plain(pc.fill_null(given, 0)), 10**scale)
    if pa.types.is_floating(given.type):
        floats = _floats(given)
        with np.errstate(over="ignore", invalid="ignore"):
            ticks = np.rint(floats * 10.0**scale)
            # As in `domain`: no two decimals of 15 digits share a double, so this is the one that it stands for.
            sure = (np.abs(ticks) < MAX_EXACT) & (ticks / 10.0**scale == floats)
        return _array(given, np.where(sure, ticks, 0.0).astype(np.int64), pa.int64()), sure
    if not pa.types.is_decimal128(given.type) or given.type.scale < 0:
        return None
    halves = np.frombuffer(given.buffers()[1], "<i8", 2 * len(given), 16 * given.offset).reshape(-1, 2)
    # What is under a NULL is anything.
    low = np.where(plain(given.is_valid()), halves[:, 0], 0)
    small = (halves[:, 1] == low >> 63) | plain(given.is_null())
    more = scale - given.type.scale
    if more >= 0:
        column, sure = _whole(given, low, 10**more)
        return column, sure & small
    unit = 10**-more
    if unit > _INT64_MAX:
        return None
    return _array(given, low // unit, pa.int64()), small & (low % unit == 0)


def _timestamp(attribute: Attribute, given: pa.Array) -> Converted | None:
    if pa.types.is_integer(given.type):
        return _whole(given, plain(pc.fill_null(given, 0)), 1000)
    if not pa.types.is_timestamp(given.type):
        return None
    ticks = plain(pc.fill_null(given.cast(pa.int64()), 0))
    if given.type.unit == "ns":
        return _array(given, ticks // _NANOS, pa.int64()), ticks % _NANOS == 0
    return _whole(given, ticks, _MICROS[given.type.unit])


_CONVERSIONS: Final[Mapping[Type, Callable[[Attribute, pa.Array], Converted | None]]] = {
    Type.BOOL: _bool,
    Type.STRING: _string,
    Type.INT: _int,
    Type.FLOAT: _float,
    Type.DECIMAL: _decimal,
    Type.TIMESTAMP: _timestamp,
}


def _whole(given: pa.Array, values: npt.NDArray[Any], factor: int) -> Converted:
    """Whole numbers times a factor, where that fits 64 bits."""
    limit = _INT64_MAX // factor
    sure = values <= values.dtype.type(min(limit, np.iinfo(values.dtype).max))
    if np.iinfo(values.dtype).min < 0:
        sure &= values >= values.dtype.type(max(-limit, np.iinfo(values.dtype).min))
    return _array(given, np.where(sure, values, 0).astype(np.int64) * factor, pa.int64()), sure


def _floats(given: pa.Array) -> npt.NDArray[np.float64]:
    return plain(pc.fill_null(given.cast(pa.float64()), 0.0))


def _array(given: pa.Array, values: npt.NDArray[Any], kind: pa.DataType) -> pa.Array:
    """Values with the NULLs of what was given."""
    return pa.array(values, kind, mask=plain(given.is_null()) if given.null_count else None)
