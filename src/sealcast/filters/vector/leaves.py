"""One condition about one attribute, as ranges: comparison with a constant, BETWEEN, IN, LIKE, IS NULL and their kin.

What compares two attributes, computes, or looks inside a string or a payload has no ranges, or only a necessary part
of them (`LIKE 'ab%c'` implies the prefix `ab`); then `exact` is false and the condition stays a residual.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from decimal import Decimal
from typing import Final, NamedTuple

from sealcast.filters import functions, tree, values
from sealcast.filters.like import LikePattern, compile_like
from sealcast.filters.tree import MIRRORED, Comparison, Condition, Operand, Value
from sealcast.filters.vector.computed import function_ranges
from sealcast.filters.vector.intervals import (
    NOTHING,
    ONLY_NULL,
    Key,
    Ranges,
    anything,
    comparable,
    comparison,
    complement,
    extremes,
    prefix,
)
from sealcast.model import moments
from sealcast.model.schema import Attribute, Schema, Type


class Leaf(NamedTuple):
    """Ranges of one attribute; not `exact`: too wide, so that the condition itself has still to be asked."""

    name: str
    ranges: Ranges
    exact: bool = True


#: True of every event, whatever its attributes are.
always: Final = Leaf("", NOTHING)
#: True of none.
_NEVER: Final = Leaf("", NOTHING)


def leaf(condition: Condition, schema: Schema, *, wanted: bool) -> Leaf | None:
    """Where the condition is true (`wanted`) or false; None if ranges of one attribute cannot say."""
    match condition:
        case tree.Compare(op, left, right):
            return _compare(op, left, right, schema, wanted)
        case tree.Between(operand, low, high, negated):
            return _between(operand, low, high, schema, wanted != negated)
        case tree.In():
            return _member(condition, schema, wanted)
        case tree.IsNull(tree.Name(name), negated) if name in schema.by_name:
            return Leaf(name, ONLY_NULL if wanted != negated else anything(schema.by_name[name]))
        case tree.Truth(operand):
            return _truth(operand, schema, wanted)
        case tree.Like(tree.Name(name)) | tree.PathMatch(name) | tree.Regex(name) if name in schema.by_name:
            attribute = schema.by_name[name]
            # Unknown of anything but a string.
            return _text(condition, attribute, wanted) if attribute.type is Type.STRING else _NEVER
        case _:
            return None


# --- back to a condition ------------------------------------------------------------------------


def spelled(attribute: Attribute, ranges: Ranges) -> Condition:
    """A condition that is true where the attribute lies in the ranges."""
    name = tree.Name(attribute.name)
    if attribute.type is Type.TIMESTAMP:
        # What lies beyond, no event can be and no literal can say.
        ranges = ranges & Ranges(((moments.FIRST, moments.LAST),), null=True)
    items: list[Condition] = [tree.IsNull(name)] if ranges.null else []
    items.extend(_spelled(attribute, name, low, high) for low, high in ranges.intervals)
    return items[0] if len(items) == 1 else tree.Or(tuple(items))


def _spelled(attribute: Attribute, name: tree.Name, low: Key, high: Key) -> Condition:
    least, greatest = extremes(attribute)
    if low == high:
        return tree.Compare(Comparison.EQ, name, literal(attribute, low))
    bounds: list[Condition] = []
    if low != least:
        op = Comparison.GT if isinstance(low, tuple) and low[2] > 0 else Comparison.GE
        bounds.append(tree.Compare(op, name, literal(attribute, low)))
    if high != greatest:
        op = Comparison.LT if isinstance(high, tuple) and high[2] < 0 else Comparison.LE
        bounds.append(tree.Compare(op, name, literal(attribute, high)))
    if not bounds:
        return tree.IsNull(name, negated=True)
    return bounds[0] if len(bounds) == 1 else tree.And(tuple(bounds))


def literal(attribute: Attribute, key: Key) -> tree.Literal:
    """The value that a key stands for."""
    if attribute.type is Type.BOOL:
        return tree.Literal(bool(key))
    return tree.Literal(key[1] if isinstance(key, tuple) else attribute.from_physical(key))


# --- constants ----------------------------------------------------------------------------------


class _Constant(NamedTuple):
    value: Value


def _constant(operand: Operand) -> _Constant | None:
    """The operand's value if no event can change it."""
    match operand:
        case tree.Literal(value):
            return _Constant(value)
        case tree.Negate(inner):
            known = _constant(inner)
            return known and _Constant(values.negate(known.value))
        case tree.Plus(inner):
            known = _constant(inner)
            return known and _Constant(values.number(known.value))
        case tree.Arithmetic(op, left, right):
            a, b = _constant(left), _constant(right)
            return _Constant(values.arithmetic(op, a.value, b.value)) if a and b else None
        case tree.Call(function, arguments):
            known_all = [_constant(argument) for argument in arguments]
            found = [one.value for one in known_all if one is not None]
            return _Constant(functions.call(function, found)) if len(found) == len(arguments) else None
        case _:
            return None


def _indexable(value: Value) -> bool:
    """NaN is no place on a line. The parser does not make it; a tree built by hand may hold it."""
    return not (isinstance(value, float | Decimal) and math.isnan(value))


# --- comparisons --------------------------------------------------------------------------------


def _compare(op: Comparison, left: Operand, right: Operand, schema: Schema, wanted: bool) -> Leaf | None:
    if not isinstance(left, tree.Name | tree.Call) or _constant(left) is not None:
        op, left, right = MIRRORED[op], right, left
    constant = _constant(right)
    if isinstance(left, tree.Call):
        return None if constant is None else _called(op, left, [constant.value], schema, wanted)
    if (
        not isinstance(left, tree.Name)
        or left.name not in schema.by_name
        or constant is None
        or not _indexable(constant.value)
    ):
        return None
    if constant.value is None:
        return _NEVER  # unknown, whatever the attribute is
    attribute = schema.by_name[left.name]
    ranges = comparison(attribute, op, constant.value) if comparable(attribute, constant.value) else NOTHING
    return _either(attribute, ranges, wanted)


def _either(attribute: Attribute, true: Ranges, wanted: bool) -> Leaf:
    """For what is never unknown of an attribute that is there: false is everything else."""
    return Leaf(attribute.name, true if wanted else complement(true, attribute))


def _called(op: Comparison, call: tree.Call, constants: Sequence[Value], schema: Schema, wanted: bool) -> Leaf | None:
    """A function of one attribute, compared with a constant, or `=` with one of several."""
    subject = call.arguments[0]
    if not isinstance(subject, tree.Name) or subject.name not in schema.by_name:
        return None
    attribute = schema.by_name[subject.name]
    found = [function_ranges(op, call, constant, attribute) for constant in constants if _indexable(constant)]
    known = [ranges for ranges in found if ranges is not None]
    return _either(attribute, Ranges.union(known), wanted) if len(known) == len(constants) else None


def _between(operand: Operand, low: Operand, high: Operand, schema: Schema, wanted: bool) -> Leaf | None:
    """`low <= operand AND operand <= high`: true if both are, false if one is, even where the other is unknown."""
    at_least = _compare(Comparison.GE, operand, low, schema, wanted)
    at_most = _compare(Comparison.LE, operand, high, schema, wanted)
    if at_least is None or at_most is None:
        return None
    name = at_least.name or at_most.name
    ranges = at_least.ranges & at_most.ranges if wanted else at_least.ranges | at_most.ranges
    return Leaf(name, ranges)


def _member(node: tree.In, schema: Schema, wanted: bool) -> Leaf | None:
    """IN is a chain of =, NOT IN a chain of <>, which is false between unlike kinds; a NULL item leaves it unknown."""
    if isinstance(node.operand, tree.Call):
        constants = [one.value for one in map(_constant, node.items) if one is not None]
        whole = len(constants) == len(node.items)
        return _called(Comparison.EQ, node.operand, constants, schema, wanted != node.negated) if whole else None
    if not isinstance(node.operand, tree.Name) or node.operand.name not in schema.by_name:
        return None
    attribute = schema.by_name[node.operand.name]
    found: list[Ranges] = []
    has_null = has_unlike = False
    for item in node.items:
        constant = _constant(item)
        if constant is None or not _indexable(constant.value):
            return None
        if constant.value is None:
            has_null = True
        elif comparable(attribute, constant.value):
            found.append(comparison(attribute, Comparison.EQ, constant.value))
        else:
            has_unlike |= values.kind(constant.value) != values.KIND_OF[attribute.type]
    listed = Ranges.union(found)
    if wanted != node.negated:  # IN is true, or NOT IN is false: it is in the list, or it differs in kind from an item
        return Leaf(attribute.name, anything(attribute) if node.negated and has_unlike and not has_null else listed)
    if has_null or (node.negated and has_unlike):
        return _NEVER
    return Leaf(attribute.name, complement(listed, attribute))


def _truth(operand: Operand, schema: Schema, wanted: bool) -> Leaf | None:
    if isinstance(operand, tree.Literal):
        return always if operand.value is wanted else _NEVER
    if isinstance(operand, tree.Name) and operand.name in schema.by_name:
        attribute = schema.by_name[operand.name]
        if attribute.type is Type.BOOL:
            return Leaf(attribute.name, comparison(attribute, Comparison.EQ, wanted))
    return None


# --- strings ------------------------------------------------------------------------------------


def _text(condition: Condition, attribute: Attribute, wanted: bool) -> Leaf | None:
    match condition:
        case tree.Like(_, pattern, escape, negated):
            return _like(compile_like(pattern, escape), attribute, wanted != negated)
        case tree.PathMatch(_, levels):
            return _path(levels, attribute, wanted)
        case tree.Regex(_, pattern):
            return _necessary(attribute, _regex_prefix(pattern), wanted)
        case _:
            return None


def _like(pattern: LikePattern, attribute: Attribute, wanted: bool) -> Leaf | None:
    if pattern.exact:
        return _either(attribute, comparison(attribute, Comparison.EQ, pattern.prefix), wanted)
    if pattern.only_prefix:
        return _either(attribute, prefix(pattern.prefix), wanted)
    return _necessary(attribute, pattern.prefix, wanted)


def _path(levels: tuple[str, ...], attribute: Attribute, wanted: bool) -> Leaf | None:
    below = levels[-1] == "#"  # the path itself and everything below it
    fixed = levels[:-1] if below else levels
    if "+" in fixed:
        return _necessary(attribute, "".join(level + "/" for level in fixed[: fixed.index("+")]), wanted)
    if not fixed:
        return _either(attribute, anything(attribute), wanted)
    path = "/".join(fixed)
    itself = comparison(attribute, Comparison.EQ, path)
    return _either(attribute, itself | prefix(path + "/") if below else itself, wanted)


def _necessary(attribute: Attribute, literal: str, wanted: bool) -> Leaf | None:
    """A prefix that what matches must have; a residual decides. What does not match need not have or lack it."""
    return Leaf(attribute.name, prefix(literal), exact=False) if wanted and literal else None


_ANCHORED: Final = re.compile(r"\^([A-Za-z0-9 _/:@,=-]+)([*?{]?)")


def _regex_prefix(pattern: str) -> str:
    """The literal after a leading `^`; with an alternative anywhere in the pattern, none is certain."""
    found = _ANCHORED.match(pattern)
    if found is None or "|" in pattern:
        return ""
    return found[1][:-1] if found[2] else found[1]
