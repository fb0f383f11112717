"""Whether physical columns hold what their schema admits: `Attribute.parse` for a whole batch at once.

`Attribute.parse` decides; this file only saves it work. Each attribute has a vectorised test for rows that are
certainly admissible; the few that are left, bad or merely doubtful, are put to `parse` itself. So the two agree by
construction, the text of a refusal is `parse`'s own, and a batch without a bad row costs a few comparisons per column.
"""

from __future__ import annotations

from decimal import Decimal
from fractions import Fraction
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from sealcast.errors import EventRejected
from sealcast.model import moments
from sealcast.model.schema import MAX_STRING_LENGTH, Attribute, Schema, Type
from sealcast.wire.computing import pc
from sealcast.wire.layout import MIN_INT64, arrow_schema, check_columns, plain

Bools = npt.NDArray[np.bool_]

#: Decimals up to this have one double each, and each double of theirs one shortest spelling.
MAX_EXACT: Final = 10**15
#: Powers of ten that a double holds exactly.
_MAX_POWER: Final = 22
_MAX_STEP: Final = 2**62


def check_domain(schema: Schema, columns: pa.RecordBatch) -> dict[int, tuple[str, str]]:
    """Rows off the schema: (attribute, why), the first in schema order, in the words of `Attribute.parse`."""
    check_columns(columns, arrow_schema(schema))
    found: dict[int, tuple[str, str]] = {}
    for attribute, column in zip(schema.attributes, columns.columns, strict=True):
        if column.null_count == len(column):
            continue
        for row in np.flatnonzero(~admissible(attribute, column)).tolist():
            why = _refusal(attribute, column[row].as_py())
            if why is not None:
                found.setdefault(row, (attribute.name, why))
    return dict(sorted(found.items()))


def _refusal(attribute: Attribute, physical: Any) -> str | None:
    """What `parse` says about one value, if anything."""
    if attribute.type is Type.TIMESTAMP and not moments.FIRST <= physical <= moments.LAST:
        return f"attribute {attribute.name!r}: is outside the calendar's years 1 to 9999"
    try:
        attribute.parse(attribute.from_physical(physical))
    except EventRejected as error:
        return error.message
    return None


def admissible(attribute: Attribute, column: pa.Array) -> Bools:
    """Rows that are certainly admissible, NULLs among them. False means: ask `parse`."""
    match attribute.type:
        case Type.BOOL:
            return np.ones(len(column), dtype=np.bool_)
        case Type.STRING:
            limit = attribute.max_length if attribute.max_length is not None else MAX_STRING_LENGTH
            # A text has at least as many bytes as characters.
            if (pc.max(pc.binary_length(column)).as_py() or 0) <= min(limit, MAX_STRING_LENGTH):
                return np.ones(len(column), dtype=np.bool_)
            short = pc.and_(
                pc.less_equal(pc.utf8_length(column), limit), pc.less_equal(pc.binary_length(column), MAX_STRING_LENGTH)
            )
            return plain(pc.fill_null(short, True))
        case Type.FLOAT:
            return _or_null(column, _float_admissible(attribute, plain(_filled(column, 0.0))))
        case _:
            return _or_null(column, _whole_admissible(attribute, plain(_filled(column, 0))))


def _filled(column: pa.Array, value: float) -> pa.Array:
    return pc.fill_null(column, value) if column.null_count else column


def _or_null(column: pa.Array, good: Bools) -> Bools:
    return np.asarray(good | plain(column.is_null())) if column.null_count else good


def _whole_admissible(attribute: Attribute, values: npt.NDArray[np.int64]) -> Bools:
    low, high = _ticks(attribute, attribute.min), _ticks(attribute, attribute.max)
    if attribute.type is Type.TIMESTAMP:
        low = moments.FIRST if low is None else low
        high = moments.LAST if high is None else high
    if attribute.type is Type.DECIMAL and low is None:
        low = MIN_INT64 + 1
    good = np.ones(len(values), dtype=np.bool_)
    if low is not None:
        good &= values >= low
    if high is not None:
        good &= values <= high
    if attribute.step is not None:
        origin = _ticks(attribute, attribute.min) or 0
        # On the grid of a/b in lowest terms a whole number is a multiple of a, for a and b share no factor.
        step = Fraction(attribute.step) * {Type.DECIMAL: 10**attribute.scale, Type.TIMESTAMP: 1000}.get(
            attribute.type, 1
        )
        if step.numerator < _MAX_STEP:
            # Remainders first: the difference of two 64-bit numbers may not fit 64 bits.
            remainder = np.mod(values, step.numerator) - origin % step.numerator
            good &= remainder == 0
        else:
            good &= values == origin
    return good


def _ticks(attribute: Attribute, bound: Any) -> int | None:
    physical = attribute.to_physical(bound)
    return None if physical is None else int(physical)


def _float_admissible(attribute: Attribute, values: npt.NDArray[np.float64]) -> Bools:
    low, high = attribute.min, attribute.max
    good = np.isfinite(values)
    if isinstance(low, float):
        good &= values >= low
    if isinstance(high, float):
        good &= values <= high
    if attribute.step is not None:
        good &= _on_grid(attribute.step, Decimal(repr(low)) if isinstance(low, float) else Decimal(0), values, good)
    return good


def _on_grid(step: Decimal, origin: Decimal, values: npt.NDArray[np.float64], finite: Bools) -> Bools:
    """Doubles whose shortest spelling is certainly on the decimal grid.

    The nearest grid point is a whole number of 10**-digits. While that number has at most 15 digits and the power of
    ten is exact, one division gives the double nearest to the grid point; if that is the value, then the grid point
    is its shortest spelling, for no two decimals of 15 digits share a double.
    """
    digits = next((d for d in range(_MAX_POWER + 1) if all(_whole(x, d) for x in (step, origin))), None)
    if digits is None:
        return np.zeros(len(values), dtype=np.bool_)
    step_units, origin_units = Fraction(step) * 10**digits, Fraction(origin) * 10**digits
    if max(step_units, abs(origin_units)) > MAX_EXACT:
        return np.zeros(len(values), dtype=np.bool_)
    with np.errstate(over="ignore", invalid="ignore"):
        points = np.rint((np.where(finite, values, 0.0) - float(origin)) / float(step))
        spans = points * float(step_units)
        units = spans + float(origin_units)
        # Products below 2**53 are exact in doubles; 10**15 is below.
        exact = (np.abs(spans) < MAX_EXACT) & (np.abs(units) < MAX_EXACT)
        return np.asarray(exact & (units / 10.0**digits == values), dtype=np.bool_)


def _whole(number: Decimal, digits: int) -> bool:
    return bool((Fraction(number) * 10**digits).denominator == 1)
