"""From a condition to a disjunction of conjuncts: what must each attribute be, and what is left to evaluate.

Only truth matters here: an event belongs to a subscription when its filter is true, not when it is unknown. So every
condition has a *true set*, and NOT asks for the *false set* of what it negates, three-valued logic and all:

    true(a AND b) = true(a) & true(b)      false(a AND b) = false(a) | false(b)      (and the dual for OR)
    true(a < 5)   = values below 5         false(a < 5)   = values from 5 on          NULL is in neither

A conjunct may be *wider* than the truth only where it carries a residual: the part that is evaluated on survivors.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from sealcast.filters.tree import And, Condition, Not, Or
from sealcast.filters.vector.intervals import Ranges
from sealcast.filters.vector.leaves import always, leaf
from sealcast.model.schema import Schema

#: Conjuncts that multiplying out ANDs of ORs may make of one filter; what goes beyond stays a residual.
MAX_PRODUCT: Final = 64


class Conjunct(NamedTuple):
    """All ranges hold and all residuals are true. Attributes are in order of name, so that equals are equal."""

    ranges: tuple[tuple[str, Ranges], ...] = ()
    residual: tuple[Condition, ...] = ()


EVERYTHING: Final = Conjunct()


def normalise(condition: Condition, schema: Schema) -> tuple[Conjunct, ...]:
    """The condition is true of an event exactly when one of these is. None of them: never true."""
    return _set(condition, schema, wanted=True)


def _set(condition: Condition, schema: Schema, *, wanted: bool) -> tuple[Conjunct, ...]:
    match condition:
        case Not(operand):
            return _set(operand, schema, wanted=not wanted)
        case And(items) | Or(items):
            if isinstance(condition, And) == wanted:
                return _all(items, schema, wanted=wanted)
            return _union(c for item in items for c in _set(item, schema, wanted=wanted))
        case _:
            found = leaf(condition, schema, wanted=wanted)
            if found is always:
                return (EVERYTHING,)
            if found is None:
                return (Conjunct(residual=(_said(condition, wanted),)),)
            if found.ranges.empty:
                return ()
            residual = () if found.exact else (_said(condition, wanted),)
            return (Conjunct(((found.name, found.ranges),), residual),)


def _said(condition: Condition, wanted: bool) -> Condition:
    return condition if wanted else Not(condition)


def _all(items: tuple[Condition, ...], schema: Schema, *, wanted: bool) -> tuple[Conjunct, ...]:
    """Multiplied out, the longest alternative first, since a long list is the most selective thing a filter can say."""
    factors = [(_set(item, schema, wanted=wanted), item) for item in items]
    single = _met([alternatives[0] for alternatives, _ in factors if len(alternatives) == 1])
    if single is None or any(not alternatives for alternatives, _ in factors):
        return ()
    product: tuple[Conjunct, ...] = (single,)
    several = [factor for factor in factors if len(factor[0]) > 1]
    for alternatives, item in sorted(several, key=lambda factor: -len(factor[0])):
        if len(product) > 1 and len(product) * len(alternatives) > MAX_PRODUCT:
            hull = _hull(alternatives)
            alternatives = (Conjunct(hull.ranges, (_said(item, wanted),)),)
        met = (_met([a, b]) for a in product for b in alternatives)
        product = tuple(c for c in met if c is not None)
    return product if len(product) < 2 else _union(product)


def _met(conjuncts: Sequence[Conjunct]) -> Conjunct | None:
    """All of them; None if that is impossible."""
    if len(conjuncts) == 1:
        return conjuncts[0]
    ranges: dict[str, Ranges] = {}
    residual: dict[Condition, None] = {}
    for conjunct in conjuncts:
        for name, allowed in conjunct.ranges:
            both = ranges[name] & allowed if name in ranges else allowed
            if both.empty:
                return None
            ranges[name] = both
        residual.update(dict.fromkeys(conjunct.residual))
    return Conjunct(tuple(sorted(ranges.items(), key=_name)), tuple(residual))


def _name(item: tuple[str, Ranges]) -> str:
    return item[0]


def _hull(alternatives: tuple[Conjunct, ...]) -> Conjunct:
    """What holds whichever of them is true: the attributes they all constrain."""
    shared = dict(alternatives[0].ranges)
    for other in alternatives[1:]:
        theirs = dict(other.ranges)
        shared = {name: shared[name] | theirs[name] for name in shared.keys() & theirs.keys()}
    return Conjunct(tuple(sorted(shared.items(), key=_name)))


def _union(conjuncts: Iterable[Conjunct]) -> tuple[Conjunct, ...]:
    """Without repetition; alternatives about one attribute and nothing else become one."""
    kept: dict[Conjunct, None] = {}
    alone: dict[str, list[Ranges]] = {}
    for conjunct in conjuncts:
        if conjunct == EVERYTHING:
            return (EVERYTHING,)
        if len(conjunct.ranges) == 1 and not conjunct.residual:
            name, ranges = conjunct.ranges[0]
            alone.setdefault(name, []).append(ranges)
        else:
            kept.setdefault(conjunct)
    return tuple(Conjunct(((name, Ranges.union(ranges)),)) for name, ranges in alone.items()) + tuple(kept)
