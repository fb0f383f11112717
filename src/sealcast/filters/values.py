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
from sealcast.model.schema import Type

Truth = bool | None
Number = int | float | Decimal

#: Rounds nothing that schemas admit (19 digits a value) short of products of five; traps what is not a number.
DECIMAL_CONTEXT: Final = Context(prec=100, Emin=-9_999, Emax=9_999, traps=[InvalidOperation, DivisionByZero, Overflow])
#: Whole numbers beyond this many bits are NULL: nobody's attribute, and multiplication must not grow without end.
MAX_INT_BITS: Final = 4_096

#: Of two values, or of two columns of them.
ORDER: Final[dict[Comparison, Callable[[Any, Any], Any]]] = {
    Comparison.EQ: operator.eq,
    Comparison.NE: operator.ne,
    Comparison.LT: operator.lt,
    Comparison.LE: operator.le,
    Comparison.GT: operator.gt,
    Comparison.GE: operator.ge,
}


#: The kind of value that an attribute of each type has.
KIND_OF: Final = {
    Type.INT: "number",
    Type.FLOAT: "number",
    Type.DECIMAL: "number",
    Type.STRING: "string",
    Type.BOOL: "boolean",
    Type.TIMESTAMP: "timestamp",
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
    answer: bool = ORDER[op](left, right)
    return answer


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
            return number(_DOUBLES[op](float(a), float(b)))
        if isinstance(a, Decimal) or isinstance(b, Decimal):
            return _DECIMALS[op](Decimal(a), Decimal(b))
        if op is ArithmeticOp.DIV:
            return number(float(a) / float(b))
        return _whole(op, a, b)
    except (OverflowError, InvalidOperation, Overflow):
        return None


def _whole(op: ArithmeticOp, a: int, b: int) -> int | None:
    result = _WHOLE[op](a, b)
    return result if result.bit_length() <= MAX_INT_BITS else None


def _remainder(a: int, b: int) -> int:
    return -(-a % abs(b)) if a < 0 else a % abs(b)


_WHOLE: Final[dict[ArithmeticOp, Callable[[int, int], int]]] = {
    ArithmeticOp.ADD: operator.add,
    ArithmeticOp.SUB: operator.sub,
    ArithmeticOp.MUL: operator.mul,
    ArithmeticOp.MOD: _remainder,
}
_DOUBLES: Final[dict[ArithmeticOp, Callable[[float, float], float]]] = {
    ArithmeticOp.ADD: operator.add,
    ArithmeticOp.SUB: operator.sub,
    ArithmeticOp.MUL: operator.mul,
    ArithmeticOp.DIV: operator.truediv,
    ArithmeticOp.MOD: math.fmod,
}
_DECIMALS: Final[dict[ArithmeticOp, Callable[[Decimal, Decimal], Decimal]]] = {
    ArithmeticOp.ADD: DECIMAL_CONTEXT.add,
    ArithmeticOp.SUB: DECIMAL_CONTEXT.subtract,
    ArithmeticOp.MUL: DECIMAL_CONTEXT.multiply,
    ArithmeticOp.DIV: DECIMAL_CONTEXT.divide,
    ArithmeticOp.MOD: DECIMAL_CONTEXT.remainder,
}


def invert(truth: Truth) -> Truth:
    return None if truth is None else not truth
