"""Can any event of the schema match? A filter that none can is legal, but its author should hear of it.

The reasoning is sound and simple: the values that are left of one attribute at a time, within one AND, as the exact
ranges that the index is made of. It never calls a filter unsatisfiable that is not; it does not find every one that is.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from sealcast.errors import EventRejected
from sealcast.filters import tree
from sealcast.filters.cost import walk
from sealcast.filters.evaluate import evaluate
from sealcast.filters.tree import Comparison, Condition
from sealcast.filters.unparse import unparse
from sealcast.filters.vector.intervals import Key, Ranges, anything, comparison
from sealcast.filters.vector.leaves import Leaf, leaf, literal, spelled
from sealcast.model.schema import Attribute, Schema

#: What asks something of the event; a condition without any of these is a constant.
_READS: Final = (tree.Name, tree.PathMatch, tree.Regex, tree.XPath, tree.Now)
_NEVER: Final = "it asks for what is never true"


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
    left: dict[str, Ranges] = {}
    for item, sought in _conjuncts(condition, wanted):
        if isinstance(item, tree.And | tree.Or):
            reasons = [impossible(part, schema, wanted=sought) for part in item.items]
            reason = None if None in reasons else reasons[0]
        elif not any(isinstance(node, _READS) for node, _ in walk(item)):
            reason = None if evaluate(item, {}) is sought else _NEVER
        else:
            reason = _narrowed(left, item, sought, schema)
        if reason is not None:
            return reason
    return None


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


def _narrowed(left: dict[str, Ranges], item: Condition, wanted: bool, schema: Schema) -> str | None:
    """Narrows the values that are left of an attribute by one condition; says why, if none are left."""
    found = _asked(item, wanted, schema)
    if found is None:
        return None
    if not found.name:
        return _NEVER
    attribute = schema.by_name[found.name]
    before = left.get(found.name) or _domain(attribute)
    both = before & found.ranges
    points = tuple((low, high) for low, high in both.intervals if low != high or _admits(attribute, low))
    left[found.name] = Ranges(points, both.null)
    if not left[found.name].empty:
        return None
    if not before.intervals or found.ranges.null:
        return f"{found.name} would have to be NULL and not NULL"
    if both.intervals or not found.ranges.intervals:
        return f"no value asked of {found.name} is one it can have"
    said = unparse(item if wanted else tree.Not(item))
    return f"{said} contradicts {unparse(spelled(attribute, Ranges(before.intervals)))}"


def _asked(item: Condition, wanted: bool, schema: Schema) -> Leaf | None:
    """The values of one attribute for which the item may be true, or false."""
    found = leaf(item, schema, wanted=wanted)
    match item:
        case tree.Like(tree.Name(name)) | tree.In(tree.Name(name)) | tree.Between(tree.Name(name)) if found is None:
            return Leaf(name, anything(schema.by_name[name]))
        case tree.PathMatch(name) | tree.Regex(name) if found is None:
            return Leaf(name, anything(schema.by_name[name]))
    return found


def _domain(attribute: Attribute) -> Ranges:
    """Every value between the attribute's bounds, and NULL."""
    every = anything(attribute)
    low = every if attribute.min is None else comparison(attribute, Comparison.GE, attribute.min)
    high = every if attribute.max is None else comparison(attribute, Comparison.LE, attribute.max)
    return Ranges((low & high).intervals, null=True)


def _admits(attribute: Attribute, key: Key) -> bool:
    try:
        attribute.parse(literal(attribute, key).value)
    except EventRejected:
        return False
    return True
