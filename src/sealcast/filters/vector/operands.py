"""Operands as columns: attributes, constants and what is computed from them.

Numbers are kept exact: an int or decimal is a whole number of 10**-scale. Where a row's result might not fit 64 bits,
or rounding might differ from the reference, the row is *hard*: the reference evaluator decides it, alone.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import Final

import numpy as np

from sealcast.filters.tree import Arithmetic, ArithmeticOp, Call, Function, Literal, Name, Negate, Operand, Plus
from sealcast.filters.vector.axes import Bools, Numbers
from sealcast.filters.vector.batch import Batch, Rows
from sealcast.filters.vector.intervals import INT_MAX, INT_MIN
from sealcast.model.moments import micros
from sealcast.model.schema import Type

#: Whole numbers below this are added, subtracted and compared in 64 bits without a thought.
_SAFE: Final = float(2**62)
#: Whole numbers up to this are doubles without rounding.
_EXACT_DOUBLE: Final = 2**53
_DOUBLES: Final[dict[ArithmeticOp, Callable[[Numbers, Numbers], Numbers]]] = {
    ArithmeticOp.ADD: np.add,
    ArithmeticOp.SUB: np.subtract,
    ArithmeticOp.MUL: np.multiply,
    ArithmeticOp.DIV: np.divide,
    ArithmeticOp.MOD: np.fmod,
}


@dataclass(frozen=True, slots=True)
class Column:
    """What an operand is worth, row by row.

    `type` is None for NULL throughout. INT and DECIMAL are whole numbers of 10**-scale (INT has scale 0), TIMESTAMP is
    microseconds, BOOL 0 and 1; a STRING has no numbers and is an attribute, `name`. Masks are None for "all" (present)
    and "none" (hard).
    """

    type: Type | None
    values: Numbers
    present: Bools | None = None
    scale: int = 0
    hard: Bools | None = None
    name: str = ""
    constant: bool = False

    @property
    def is_number(self) -> bool:
        return self.type in (Type.INT, Type.FLOAT, Type.DECIMAL)


def both(a: Bools | None, b: Bools | None) -> Bools | None:
    return b if a is None else a if b is None else a & b


def either(a: Bools | None, b: Bools | None) -> Bools | None:
    return b if a is None else a if b is None else a | b


def null(size: int) -> Column:
    return Column(None, np.zeros(size, np.int64), np.zeros(size, np.bool_))


def operand(node: Operand, batch: Batch, rows: Rows | None) -> Column | None:
    """The operand's column; None if only the reference evaluator can say what it is worth."""
    size = batch.size if rows is None else rows.size
    match node:
        case Literal(value):
            return _literal(value, size)
        case Name(name):
            return _attribute(name, batch, rows, size)
        case Negate(inner):
            column = operand(inner, batch, rows)
            return column and _negated(column, size)
        case Plus(inner):
            column = operand(inner, batch, rows)
            return column and (column if column.is_number else null(size))
        case Call(Function.ABS, (inner,)):
            column = operand(inner, batch, rows)
            return column and _distance(column, size)
        case Arithmetic(op, left, right):
            a, b = operand(left, batch, rows), operand(right, batch, rows)
            if a is None or b is None:
                return None
            if not a.is_number or not b.is_number:
                return null(size)
            return computed(op, a, b)
        case _:
            return None


def _literal(value: object, size: int) -> Column | None:
    match value:
        case None:
            return null(size)
        case bool():
            return Column(Type.BOOL, np.full(size, int(value), np.int64), constant=True)
        case int() if INT_MIN <= value <= INT_MAX:
            return Column(Type.INT, np.full(size, value, np.int64), constant=True)
        case float() if np.isfinite(value):
            return Column(Type.FLOAT, np.full(size, value, np.float64), constant=True)
        case Decimal() if value.is_finite():
            scale = max(0, -int(value.as_tuple().exponent))
            ticks = int(value.scaleb(scale)) if scale <= 18 and abs(value) < 10**18 else INT_MAX + 1
            return (
                Column(Type.DECIMAL, np.full(size, ticks, np.int64), None, scale, constant=True)
                if abs(ticks) <= INT_MAX
                else None
            )
        case datetime() if value.tzinfo is not None:
            return Column(Type.TIMESTAMP, np.full(size, micros(value), np.int64), constant=True)
        case _:
            return None


def _attribute(name: str, batch: Batch, rows: Rows | None, size: int) -> Column:
    if not batch.has(name):
        return null(size)
    attribute = batch.schema.by_name[name]
    if attribute.type is Type.STRING:
        distinct = batch.distinct(name)
        present = distinct.present if rows is None or distinct.present is None else distinct.present.take(rows)
        return Column(Type.STRING, np.empty(0, np.int64), present, name=name)
    values, present = batch.numbers(name)
    if rows is not None:
        values, present = values.take(rows), None if present is None else present.take(rows)
    return Column(attribute.type, values, present, attribute.scale)


def _negated(column: Column, size: int) -> Column:
    return _mirrored(np.negative, column, size)


def _distance(column: Column, size: int) -> Column:
    return _mirrored(np.abs, column, size)


def _mirrored(function: Callable[[Numbers], Numbers], column: Column, size: int) -> Column:
    """A function that turns numbers round zero: the least whole number has no opposite in 64 bits."""
    if not column.is_number:
        return null(size)
    hard = column.hard
    if column.values.dtype == np.int64:
        least = column.values == INT_MIN
        hard = either(hard, least) if least.any() else hard
    with np.errstate(over="ignore"):
        return Column(column.type, function(column.values), column.present, column.scale, hard)


# --- arithmetic ---------------------------------------------------------------------------------


def computed(op: ArithmeticOp, a: Column, b: Column) -> Column | None:
    present, hard = both(a.present, b.present), either(a.hard, b.hard)
    if op in (ArithmeticOp.DIV, ArithmeticOp.MOD):
        present = both(present, b.values != 0)
    if Type.FLOAT in (a.type, b.type) or (op is ArithmeticOp.DIV and a.type is b.type is Type.INT):
        return _doubles(op, a, b, present, hard)
    if op is ArithmeticOp.DIV:
        return None  # a quotient of decimals has a hundred digits
    if op is ArithmeticOp.MUL:
        return _product(a, b, present, hard)
    scale = max(a.scale, b.scale)
    left, hard = aligned(a, scale, hard)
    right, hard = aligned(b, scale, hard)
    hard = _unless(np.maximum(np.abs(left.astype(np.float64)), np.abs(right.astype(np.float64))) < _SAFE, hard)
    kind = Type.DECIMAL if Type.DECIMAL in (a.type, b.type) else Type.INT
    with np.errstate(over="ignore", divide="ignore"):
        match op:
            case ArithmeticOp.ADD:
                values = left + right
            case ArithmeticOp.SUB:
                values = left - right
            case _:
                # The sign of the dividend. Hard rows are out of the way: the least number by -1 traps on some machines.
                easy = (right != 0) if hard is None else (right != 0) & ~hard
                values = np.fmod(left, np.where(easy, right, 1))
    return Column(kind, values, present, scale, hard)


def _product(a: Column, b: Column, present: Bools | None, hard: Bools | None) -> Column:
    kind = Type.DECIMAL if Type.DECIMAL in (a.type, b.type) else Type.INT
    hard = _unless(np.abs(a.values.astype(np.float64) * b.values.astype(np.float64)) < _SAFE, hard)
    with np.errstate(over="ignore"):
        return Column(kind, a.values * b.values, present, a.scale + b.scale, hard)


def aligned(column: Column, scale: int, hard: Bools | None) -> tuple[Numbers, Bools | None]:
    """The column in whole numbers of 10**-scale, a finer scale than its own."""
    finer = scale - column.scale
    if finer == 0:
        return column.values, hard
    factor = 10 ** min(finer, 18)
    hard = _unless((np.abs(column.values.astype(np.float64)) < _SAFE / factor) & (finer <= 18), hard)
    with np.errstate(over="ignore"):
        return column.values * np.int64(factor), hard


def _doubles(op: ArithmeticOp, a: Column, b: Column, present: Bools | None, hard: Bools | None) -> Column:
    left, hard = as_double(a, hard)
    right, hard = as_double(b, hard)
    with np.errstate(all="ignore"):
        values = _DOUBLES[op](left, right)
    finite = np.isfinite(values)
    if not finite.all():  # what leaves the numbers is NULL
        present = both(present, finite)
    return Column(Type.FLOAT, values, present, 0, hard)


def as_double(column: Column, hard: Bools | None) -> tuple[Numbers, Bools | None]:
    """Rounded once, as Python rounds: an int by conversion, a decimal by one division of two exact doubles."""
    values = column.values.astype(np.float64)
    if column.scale == 0:
        return values, hard
    hard = _unless((np.abs(values) < _EXACT_DOUBLE) & (column.scale <= 22), hard)
    return values / 10.0**column.scale, hard


def _unless(easy: Bools, hard: Bools | None) -> Bools | None:
    return hard if easy.all() else either(hard, ~easy)
