"""Functions whose answer is decided by ranges of their attribute, so that an index, and labels, can find them.

ABS(x) compares with a number where x lies between two numbers, or outside of them. LEFT(x, 2) = 'DE' is a prefix. Other
functions have no ranges: they are asked, once for each text that comes.
"""

from __future__ import annotations

from typing import Final

from sealcast.filters import tree, values
from sealcast.filters.tree import MIRRORED, Comparison, Function, Value
from sealcast.filters.vector.intervals import NOTHING, Ranges, comparable, comparison, complement, prefix
from sealcast.model.schema import Attribute, Type

#: What is true where the first is not.
_OPPOSITE: Final = {
    Comparison.NE: Comparison.EQ,
    Comparison.GE: Comparison.LT,
    Comparison.GT: Comparison.LE,
}


def function_ranges(op: Comparison, call: tree.Call, constant: Value, attribute: Attribute) -> Ranges | None:
    """Where the call, whose first argument is the attribute, compares as asked; None if ranges cannot say.

    Both sides are of one kind and not NULL: anything else is left to be asked.
    """
    if call.function is Function.ABS and values.KIND_OF[attribute.type] == values.kind(constant) == "number":
        return _distance(attribute, op, constant)
    match call.function, call.arguments[1:]:
        case Function.LEFT, (tree.Literal(int(count)),) if count >= 0 and isinstance(constant, str):
            return _beginning(attribute, op, count, constant)
    return None


def _distance(attribute: Attribute, op: Comparison, constant: Value) -> Ranges | None:
    opposite = values.negate(constant)
    if opposite is None or not comparable(attribute, constant) or not comparable(attribute, opposite):
        return None
    if op in _OPPOSITE:
        rest = _distance(attribute, _OPPOSITE[op], constant)
        return None if rest is None else complement(rest, attribute)
    above, below = comparison(attribute, MIRRORED[op], opposite), comparison(attribute, op, constant)
    if op is not Comparison.EQ:
        return above & below
    return NOTHING if values.compare(Comparison.LT, constant, 0) else above | below


def _beginning(attribute: Attribute, op: Comparison, count: int, constant: str) -> Ranges | None:
    if attribute.type is not Type.STRING or op not in (Comparison.EQ, Comparison.NE):
        return None
    if len(constant) > count:
        true = NOTHING
    else:
        true = prefix(constant) if len(constant) == count else comparison(attribute, Comparison.EQ, constant)
    return complement(true, attribute) if op is Comparison.NE else true
