"""Can any event of the schema match? A filter that none can is legal, but its author should hear of it.

The reasoning is sound and simple: bounds, listed values and NULLs of one attribute at a time, within one AND. It
never calls a filter unsatisfiable that is not; it does not find every one that is.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from sealcast.errors import EventRejected
from sealcast.filters import tree
from sealcast.filters.cost import walk
from sealcast.filters.evaluate import evaluate
from sealcast.filters.tree import MIRRORED, Comparison, Condition, Value
from sealcast.filters.values import compare
from sealcast.model.schema import Attribute, Schema, Type

_OPPOSITE: Final = {
    Comparison.EQ: Comparison.NE,
    Comparison.NE: Comparison.EQ,
    Comparison.LT: Comparison.GE,
    Comparison.GE: Comparison.LT,
    Comparison.GT: Comparison.LE,
    Comparison.LE: Comparison.GT,
}
#: What asks something of the event; a condition without any of these is a constant.
_READS: Final = (tree.Name, tree.PathMatch, tree.Regex, tree.XPath, tree.Now)


@dataclass(frozen=True, slots=True)
class Warned:
    """Something legal that its author probably did not mean."""

    message: str
    at: int


def warnings(condition: Condition, schema: Schema) -> tuple[Warned, ...]:
    """For a checked filter: that no event can match it, or which alternatives of an OR none can."""
    reason = impossible(condition, schema)
    if reason is not None:
        return (Warned(f"no event can match this filter: {reason}", condition.at),)
    if not isinstance(condition, tree.Or):
        return ()
    dead = [(item.at, impossible(item, schema)) for item in condition.items]
    return tuple(Warned(f"no event can match this part: {why}", at) for at, why in dead if why is not None)


def impossible(condition: Condition, schema: Schema, *, wanted: bool = True) -> str | None:
    """Why the condition is true of no event of the schema (or false, where that is wanted); None if it may be."""
    asked: dict[str, _Wanted] = {}
    for item, sought in _conjuncts(condition, wanted):
        if isinstance(item, tree.And | tree.Or):
            reasons = [impossible(part, schema, wanted=sought) for part in item.items]
            if all(reason is not None for reason in reasons):
                return reasons[0]
        elif not any(isinstance(node, _READS) for node, _ in walk(item)):
            if evaluate(item, {}) is not sought:
                return "it asks for what is never true"
        else:
            for name, op, value in _demands(item, sought):
                asked.setdefault(name, _Wanted(schema.by_name[name])).narrow(op, value)
    return next((reason for w in asked.values() if (reason := w.contradiction()) is not None), None)


def _conjuncts(condition: Condition, wanted: bool) -> Iterator[tuple[Condition, bool]]:
    """What must all be true, or false, for the condition to be: NOTs are pushed inwards, and what is left of AND and
    OR are alternatives."""
    match condition:
        case tree.Not(inner):
            yield from _conjuncts(inner, not wanted)
        case tree.And(items) | tree.Or(items) if isinstance(condition, tree.And) is wanted:
            for item in items:
                yield from _conjuncts(item, wanted)
        case _:
            yield condition, wanted


#: What a demand may ask beside a comparison.
_NULL: Final = "null"
_PRESENT: Final = "present"


def _demands(item: Condition, wanted: bool) -> Iterator[tuple[str, Comparison | str, Any]]:
    """(attribute, comparison or _NULL or _PRESENT, constant) for what the item, true or false, demands of one."""
    match item:
        case tree.Compare(op, tree.Name(name), tree.Literal(value)):
            yield name, op if wanted else _OPPOSITE[op], value
        case tree.Compare(op, tree.Literal(value), tree.Name(name)):
            yield name, MIRRORED[op if wanted else _OPPOSITE[op]], value
        case tree.Between(tree.Name(name), tree.Literal(low), tree.Literal(high), negated) if negated is not wanted:
            yield name, Comparison.GE, low
            yield name, Comparison.LE, high
        case tree.In(tree.Name(name), items, False) if wanted and all(isinstance(i, tree.Literal) for i in items):
            yield name, Comparison.EQ, tuple(i.value for i in items if isinstance(i, tree.Literal))
        case tree.Truth(tree.Name(name)):
            yield name, Comparison.EQ, wanted
        case tree.IsNull(tree.Name(name), negated):
            yield name, _PRESENT if negated is wanted else _NULL, None
        case tree.Like(tree.Name(name)) | tree.In(tree.Name(name)) | tree.Between(tree.Name(name)):
            yield name, _PRESENT, None
        case tree.PathMatch(name) | tree.Regex(name):
            yield name, _PRESENT, None


class _Wanted:
    """What one conjunction asks of one attribute."""

    def __init__(self, attribute: Attribute) -> None:
        self._attribute = attribute
        self._low: tuple[Value, bool] | None = None if attribute.min is None else (attribute.min, False)
        self._high: tuple[Value, bool] | None = None if attribute.max is None else (attribute.max, False)
        self._listed: list[Value] | None = None
        self._not: list[Value] = []
        self._null = self._present = False

    def narrow(self, op: Comparison | str, value: Any) -> None:
        if op == _NULL:
            self._null = True
            return
        self._present = True
        if op == Comparison.EQ:
            values = value if isinstance(value, tuple) else (value,)
            self._listed = [v for v in values if self._listed is None or any(_equal(v, w) for w in self._listed)]
        elif op == Comparison.NE:
            self._not.append(value)
        elif op == Comparison.GT or op == Comparison.GE:
            if self._low is None or _above(value, op == Comparison.GT, *self._low):
                self._low = (value, op == Comparison.GT)
        elif (op == Comparison.LT or op == Comparison.LE) and (
            self._high is None or _above(*self._high, value, op == Comparison.LT)
        ):
            self._high = (value, op == Comparison.LT)

    def contradiction(self) -> str | None:
        name = self._attribute.name
        if self._null and self._present:
            return f"{name} would have to be NULL and not NULL"
        if not self._present:
            return None
        if self._listed is not None and not any(self._admits(value) for value in self._listed):
            return f"no value asked of {name} is one it can have"
        if self._low is not None and self._high is not None and self._empty(*self._low, *self._high):
            low, high = _bound(self._low, "above", "at least"), _bound(self._high, "below", "at most")
            return f"{name} cannot be {low} and {high}"
        return None

    def _admits(self, value: Value) -> bool:
        if any(_equal(value, other) for other in self._not):
            return False
        if self._low is not None and not compare(Comparison.GT if self._low[1] else Comparison.GE, value, self._low[0]):
            return False
        if self._high is not None and not compare(
            Comparison.LT if self._high[1] else Comparison.LE, value, self._high[0]
        ):
            return False
        try:
            self._attribute.parse(value)
        except EventRejected:
            return False
        return True

    def _empty(self, low: Any, above: bool, high: Any, below: bool) -> bool:
        if self._attribute.type is Type.INT:
            first = math.floor(low) + 1 if above else math.ceil(low)
            last = math.ceil(high) - 1 if below else math.floor(high)
            return bool(first > last)
        return bool(low > high or (low == high and (above or below)))


def _equal(a: Value, b: Value) -> bool:
    return compare(Comparison.EQ, a, b) is True


def _above(a: Any, a_open: bool, b: Any, b_open: bool) -> bool:
    """Whether bound a, from below, leaves less than bound b."""
    return bool(a > b or (a == b and a_open and not b_open))


def _bound(bound: tuple[Value, bool], open_word: str, closed_word: str) -> str:
    return f"{open_word if bound[1] else closed_word} {bound[0]}"
