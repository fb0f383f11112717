"""What the operators say of two values: the language's semantics in one place, for the reference evaluator.

Five kinds of value: number, string, boolean, timestamp and NULL. Numbers are int, float and Decimal, compared by
their exact worth whatever their type. A number is always finite: arithmetic that leaves the numbers gives NULL.

    comparison   NULL on either side: unknown. Unlike kinds: false, `<>` included. Booleans know only = and <>.
    + - *        int with int is exact; a Decimal with an int or Decimal is exact to 100 digits; a float makes doubles.
    /            doubles: 5 / 2 is 2.5, as in RabbitMQ, ActiveMQ and Broker-J. With a Decimal and no float, decimals.
    %            the remainder has the sign of the dividend, as in Java, C and Erlang.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from decimal import Context, Decimal, DivisionByZero, InvalidOperation, Overflow
from typing import Any, Final

from sealcast.filters.tree import ArithmeticOp, Comparison, Value

Truth = bool | None
Number = int | float | Decimal

#: Rounds nothing that schemas admit (19 digits a value) short of products of five; traps what is not a number.
DECIMAL_CONTEXT: Final = Context(prec=100, Emin=-9_999, Emax=9_999, traps=[InvalidOperation, DivisionByZero, Overflow])
#: Whole numbers beyond this many bits are NULL: nobody's attribute, and multiplication must not grow without end.
MAX_INT_BITS: Final = 4_096

_ORDER: Final[dict[Comparison, Callable[[Any, Any], bool]]] = {
    Comparison.EQ: operator.eq,
    Comparison.NE: operator.ne,
    Comparison.LT: operator.lt,
    Comparison.LE: operator.le,
    Comparison.GT: operator.gt,
    Comparison.GE: operator.ge,
}


def kind(value: Value) -> str | None:
    """`number`, `string`, `boolean` or `timestamp`; None for NULL."""
    if value is None:
        return None
    # bool first: Python counts it among the ints, the language does not.
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, int | float | Decimal):
        return "number"
    return "string" if isinstance(value, str) else "timestamp"


def compare(op: Comparison, left: Value, right: Value) -> Truth:
    """Python compares int, float and Decimal exactly, and strings by code point: both are what the language wants."""
    if left is None or right is None:
        return None
    if type(left) is not type(right):
        if kind(left) != kind(right):
            return False
    elif isinstance(left, bool) and op is not Comparison.EQ and op is not Comparison.NE:
        return False
    return _ORDER[op](left, right)


def number(value: Value) -> Number | None:
    """The value if it is a finite number, else NULL."""
    if isinstance(value, bool) or not isinstance(value, int | float | Decimal):
        return None
    if isinstance(value, int):
        return value
    finite = value.is_finite() if isinstance(value, Decimal) else math.isfinite(value)
    return value if finite else None


def negate(value: Value) -> Number | None:
    known = number(value)
    if known is None:
        return None
    return known.copy_negate() if isinstance(known, Decimal) else -known


def arithmetic(op: ArithmeticOp, left: Value, right: Value) -> Number | None:
    """NULL for a NULL, for what is no number, for division by zero and for a result that is no finite number."""
    a, b = number(left), number(right)
    if a is None or b is None or (b == 0 and (op is ArithmeticOp.DIV or op is ArithmeticOp.MOD)):
        return None
    try:
        if isinstance(a, float) or isinstance(b, float):
            return number(_double(op, float(a), float(b)))
        if isinstance(a, Decimal) or isinstance(b, Decimal):
            return _decimal(op, Decimal(a), Decimal(b))
        if op is ArithmeticOp.DIV:
            return number(float(a) / float(b))
        return _whole(op, a, b)
    except (OverflowError, InvalidOperation, Overflow):
        return None


def _whole(op: ArithmeticOp, a: int, b: int) -> int | None:
    if op is ArithmeticOp.ADD:
        result = a + b
    elif op is ArithmeticOp.SUB:
        result = a - b
    elif op is ArithmeticOp.MUL:
        result = a * b
    else:
        result = abs(a) % abs(b)
        result = -result if a < 0 else result
    return result if result.bit_length() <= MAX_INT_BITS else None


def _double(op: ArithmeticOp, a: float, b: float) -> float:
    if op is ArithmeticOp.ADD:
        return a + b
    if op is ArithmeticOp.SUB:
        return a - b
    if op is ArithmeticOp.MUL:
        return a * b
    return a / b if op is ArithmeticOp.DIV else math.fmod(a, b)


def _decimal(op: ArithmeticOp, a: Decimal, b: Decimal) -> Decimal:
    if op is ArithmeticOp.ADD:
        return DECIMAL_CONTEXT.add(a, b)
    if op is ArithmeticOp.SUB:
        return DECIMAL_CONTEXT.subtract(a, b)
    if op is ArithmeticOp.MUL:
        return DECIMAL_CONTEXT.multiply(a, b)
    return DECIMAL_CONTEXT.divide(a, b) if op is ArithmeticOp.DIV else DECIMAL_CONTEXT.remainder(a, b)


def invert(truth: Truth) -> Truth:
    return None if truth is None else not truth
