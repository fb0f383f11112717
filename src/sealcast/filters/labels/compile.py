"""A checked filter -> conjunctions of slots of labels, exactly, or FilterRejected with what can be expressed.

    the condition --NOT pushed inwards, ANDs multiplied out--> conjunctions of what each attribute must be
                  --joined where they differ in one attribute, dropped where another one holds them--> fewer of them
                  --ranges covered--> slots of labels

Only truth matters: a subscription gets what its filter is true of, so NOT asks where its operand is *false*, and an
absent attribute, of which comparisons are unknown, is in neither set. That is also what labels can say: an absent
attribute has its root alone, no slot holds a root, so whatever asks something of it does not match. The converse has
no label: `x IS NULL` is refused.
"""

from __future__ import annotations

from collections.abc import Iterable, Set
from dataclasses import dataclass
from functools import cached_property
from typing import Final, NamedTuple

from sealcast.errors import FilterRejected
from sealcast.filters.labels import naming, text
from sealcast.filters.labels.events import Labeller
from sealcast.filters.labels.naming import StringPlan
from sealcast.filters.like import compile_like
from sealcast.filters.tree import And, Condition, IsNull, Like, Name, Not, Or, PathMatch, Regex, XPath
from sealcast.filters.vector.intervals import Ranges, anything
from sealcast.filters.vector.leaves import always, leaf
from sealcast.model.schema import Attribute, Schema, Type

#: Alternatives of one filter, each of which brokers keep and forward as a whole.
MAX_CONJUNCTIONS: Final = 64
#: Conjunctions while ANDs are multiplied out, before those that others hold are dropped.
MAX_PRODUCT: Final = 4_096
#: Labels of one filter, all conjunctions together.
MAX_LABELS: Final = 4_096

CAN: Final = (
    "labels express comparisons of one attribute with constants, BETWEEN, IN, LIKE with one %, paths without +, "
    "IS NOT NULL, booleans, and AND, OR, NOT of these"
)


@dataclass(frozen=True, slots=True)
class Conjunction:
    """True of an event that has a label of every slot. In order, so that equal ones are equal."""

    slots: tuple[tuple[bytes, ...], ...]

    def matches(self, labels: Set[bytes]) -> bool:
        return all(not labels.isdisjoint(slot) for slot in self.slots)


class LabelCost(NamedTuple):
    """What a filter costs whoever encrypts, keeps and forwards it."""

    conjunctions: int
    labels: int
    slots: int


@dataclass(frozen=True)
class LabelFilter:
    """A filter as labels. Without conjunctions it matches nothing."""

    conjunctions: tuple[Conjunction, ...]

    def matches(self, labels: Set[bytes]) -> bool:
        return any(conjunction.matches(labels) for conjunction in self.conjunctions)

    @cached_property
    def cost(self) -> LabelCost:
        slots = [slot for conjunction in self.conjunctions for slot in conjunction.slots]
        return LabelCost(len(self.conjunctions), sum(map(len, slots)), len(slots))


def label_filter(condition: Condition, schema: Schema, plan: StringPlan | None = None) -> LabelFilter:
    """The condition (as `check` returns it) in labels. FilterRejected (`inexpressible` or `limit`) with its place."""
    compiler = _Compiler(Labeller(schema, plan), condition.at)
    return LabelFilter(compiler.slots(compiler.alternatives(condition, wanted=True)))


# --- what a conjunction asks --------------------------------------------------------------------------------------


class _Wanted(NamedTuple):
    """What one conjunction asks of one attribute."""

    ranges: Ranges
    #: Where in the filter.
    at: int


class _Alternative(NamedTuple):
    """One conjunction: of each attribute in which ranges it lies, and which endings it may have."""

    ranges: dict[str, _Wanted]
    endings: dict[str, frozenset[str]]

    def key(self) -> tuple[tuple[str, object], ...]:
        ranges = sorted((name, wanted.ranges) for name, wanted in self.ranges.items())
        return (*ranges, *sorted((name, tuple(sorted(ends))) for name, ends in self.endings.items()))

    def holds(self, other: _Alternative) -> bool:
        """Whether whatever the other is true of, this is true of."""
        return all(
            name in other.ranges and other.ranges[name].ranges & wanted.ranges == other.ranges[name].ranges
            for name, wanted in self.ranges.items()
        ) and all(
            name in other.endings and _met_endings(other.endings[name], ends) == other.endings[name]
            for name, ends in self.endings.items()
        )


class _Compiler:
    def __init__(self, labeller: Labeller, at: int) -> None:
        self._labeller = labeller
        self._schema = labeller.schema
        self._plan = labeller.plan
        self._at = at

    # --- alternatives ---------------------------------------------------------------------------------------------

    def alternatives(self, condition: Condition, *, wanted: bool) -> list[_Alternative]:
        match condition:
            case Not(operand):
                return self.alternatives(operand, wanted=not wanted)
            case And(items) | Or(items):
                parts = [self.alternatives(item, wanted=wanted) for item in items]
                if isinstance(condition, And) != wanted:
                    return self._fewer([a for part in parts for a in part], condition.at)
                product = [_Alternative({}, {})]
                for part in sorted(parts, key=len):
                    if len(product) * len(part) > MAX_PRODUCT:
                        raise self._too_many(condition.at)
                    met = [both for a in product for b in part if (both := _met(a, b)) is not None]
                    product = self._fewer(met, condition.at)
                return product
            case Like(Name(name)) if name in self._schema.by_name and wanted != condition.negated:
                ending = self._ending(condition, self._schema.by_name[name])
                return self._leaf(condition, wanted=wanted) if ending is None else ending
            case _:
                return self._leaf(condition, wanted=wanted)

    def _leaf(self, condition: Condition, *, wanted: bool) -> list[_Alternative]:
        found = leaf(condition, self._schema, wanted=wanted)
        if found is always:
            return [_Alternative({}, {})]
        if found is None or not found.exact:
            raise FilterRejected("inexpressible", _why(condition, wanted), at=condition.at, hint=CAN)
        if found.ranges.empty:
            return []
        return [_Alternative({found.name: _Wanted(found.ranges, condition.at)}, {})]

    def _ending(self, node: Like, attribute: Attribute) -> list[_Alternative] | None:
        """LIKE '%b' and LIKE 'a%b'; None for every other pattern."""
        pattern = compile_like(node.pattern, node.escape)
        if attribute.type is not Type.STRING or len(pattern.segments) != 2 or not pattern.suffix:
            return None
        start, end = (segment.plain for segment in pattern.segments)
        if start is None or end is None:
            return None
        if len(end) > self._plan.suffix:
            raise self._too_long("an ending", self._plan.suffix, node.at)
        endings = {attribute.name: frozenset((end,))}
        if not start:
            return [_Alternative({}, endings)]
        if any(start.endswith(end[:k]) for k in range(1, min(len(start), len(end)) + 1)):
            # A text shorter than both together could begin with one and end in the other.
            raise FilterRejected(
                "inexpressible", f"in {node.pattern!r}, the beginning and the ending may overlap", at=node.at, hint=CAN
            )
        begins = leaf(Like(node.operand, _escaped(start) + "%", "\\"), self._schema, wanted=True)
        assert begins is not None
        return [_Alternative({attribute.name: _Wanted(begins.ranges, node.at)}, endings)]

    def _fewer(self, found: list[_Alternative], at: int) -> list[_Alternative]:
        """Joined where two differ in one attribute alone; without those that another one holds."""
        joined = _joined({alternative.key(): alternative for alternative in found}.values())
        if len(joined) > MAX_CONJUNCTIONS * 4:
            raise self._too_many(at)
        kept: list[_Alternative] = []
        for i, one in enumerate(joined):
            held = any(other.holds(one) and (j < i or not one.holds(other)) for j, other in enumerate(joined) if j != i)
            if not held:
                kept.append(one)
        if len(kept) > MAX_CONJUNCTIONS:
            raise self._too_many(at)
        return kept

    def _too_many(self, at: int) -> FilterRejected:
        return FilterRejected(
            "limit",
            f"as alternatives, the filter has more than {MAX_CONJUNCTIONS} conjunctions",
            at=at,
            hint="OR and IN of one attribute count once; make several subscriptions of the rest",
        )

    def _too_long(self, what: str, limit: int, at: int) -> FilterRejected:
        return FilterRejected(
            "limit",
            f"{what} has at most {limit} characters in labels" if limit else f"this topic has no labels for {what}",
            at=at,
            hint="texts of any length can be compared with = and IN",
        )

    # --- slots ----------------------------------------------------------------------------------------------------

    def slots(self, alternatives: Iterable[_Alternative]) -> tuple[Conjunction, ...]:
        found: dict[Conjunction, None] = {}
        labels = 0
        for alternative in alternatives:
            slots: list[tuple[bytes, ...]] = []
            for name, wanted in alternative.ranges.items():
                covered = self._covered(self._schema.by_name[name], wanted)
                if covered is not None:
                    slots.append(tuple(sorted(covered)))
            for name, endings in alternative.endings.items():
                slots.append(tuple(sorted(naming.suffix(name, ending) for ending in endings)))
            if not all(slots):
                continue  # the domain has no such value
            if not slots:  # every event: each has this root
                return (Conjunction(((naming.root(self._schema.names[0]),),)),)
            labels += sum(map(len, slots))
            if labels > MAX_LABELS:
                raise FilterRejected("limit", f"the filter takes more than {MAX_LABELS} labels", at=self._at)
            found.setdefault(Conjunction(tuple(sorted(slots))))
        return tuple(sorted(found, key=lambda conjunction: conjunction.slots))

    def _covered(self, attribute: Attribute, wanted: _Wanted) -> list[bytes] | None:
        """The labels of a slot; None if it asks for nothing."""
        if attribute.type is Type.STRING:
            labels, whole = self._text_cover(attribute, wanted)
        else:
            grid = self._labeller.grids[attribute.name]
            places = [p for low, high in wanted.ranges.intervals if (p := grid.between(low, high)) is not None]
            labels = [naming.block(attribute.name, *block) for block in grid.cover(places)]
            whole = grid.is_all(places)
        if not wanted.ranges.null:
            return labels
        if whole:
            return None  # any value, or none
        raise FilterRejected(
            "inexpressible",
            f"an absent attribute has no label of its own: {attribute.name} IS NULL cannot be asked for",
            at=wanted.at,
            hint=CAN,
        )

    def _text_cover(self, attribute: Attribute, wanted: _Wanted) -> tuple[list[bytes], bool]:
        if wanted.ranges.intervals == anything(attribute).intervals:
            return [naming.subtree(attribute.name, ())], True
        depth = self._plan.text  # without any, events have no subtree but the whole: only single texts can be asked for
        alone: list[str] = []
        stretches: list[text.Stretch] = []
        for low, high in wanted.ranges.intervals:
            longest = max(len(key[1]) for key in (low, high))
            if low == high and any(0xD800 <= ord(c) < 0xE000 for c in low[1]):
                continue  # no event has a lone surrogate
            if depth and longest <= depth:
                stretches.append(text.stretch((low, high)))
            elif low == high:
                alone.append(low[1])  # a text is a label by itself, however long
            else:
                raise self._too_long("a text compared by order, prefix or inequality", depth, wanted.at)
        nodes = text.cover(stretches)
        labels = [
            naming.exact(attribute.name, text.spelled(node))
            if text.is_text(node)
            else naming.subtree(attribute.name, node)
            for node in nodes
        ]
        return labels + [naming.exact(attribute.name, one) for one in alone], nodes == [()]


# --- of alternatives ----------------------------------------------------------------------------------------------


def _met(a: _Alternative, b: _Alternative) -> _Alternative | None:
    """Both; None if that is impossible."""
    ranges, endings = dict(a.ranges), dict(a.endings)
    for name, wanted in b.ranges.items():
        if name in ranges:
            both = ranges[name].ranges & wanted.ranges
            if both.empty:
                return None
            wanted = _Wanted(both, wanted.at if wanted.ranges.null else ranges[name].at)
        ranges[name] = wanted
    for name, ends in b.endings.items():
        if name in endings:
            ends = _met_endings(endings[name], ends)
            if not ends:
                return None
        endings[name] = ends
    for name in endings.keys() & ranges.keys():  # what has an ending is there
        wanted = ranges[name]
        if not wanted.ranges.intervals:
            return None
        ranges[name] = _Wanted(Ranges(wanted.ranges.intervals), wanted.at)
    return _Alternative(ranges, endings)


def _met_endings(a: frozenset[str], b: frozenset[str]) -> frozenset[str]:
    """Texts that end in one of each: the longer of two, if it ends in the shorter."""
    both = {max(x, y, key=len) for x in a for y in b if x.endswith(y) or y.endswith(x)}
    return _fewest(both)


def _fewest(endings: Iterable[str]) -> frozenset[str]:
    """Without those that end in another one."""
    every = frozenset(endings)
    return frozenset(x for x in every if not any(x[i:] in every for i in range(1, len(x))))


def _joined(found: Iterable[_Alternative]) -> list[_Alternative]:
    """Alternatives that are equal but for the ranges of one attribute, or its endings, become one. Attribute by
    attribute, so that it takes as many passes as there are attributes and not a comparison of each with each."""
    current = list(found)
    for part, together in (("ranges", _any_range), ("endings", _any_ending)):
        for name in sorted({name for alternative in current for name in getattr(alternative, part)}):
            groups: dict[object, list[_Alternative]] = {}
            for alternative in current:
                asked = getattr(alternative, part)
                rest = alternative._replace(**{part: {n: a for n, a in asked.items() if n != name}})
                groups.setdefault((name in asked, rest.key()), []).append(alternative)
            current = [
                first._replace(**{part: {**getattr(first, part), name: together([first, *others], name)}})
                if others
                else first
                for first, *others in groups.values()
            ]
    return current


def _any_range(group: list[_Alternative], name: str) -> _Wanted:
    every = [alternative.ranges[name] for alternative in group]
    at = next((wanted.at for wanted in every if wanted.ranges.null), every[0].at)
    return _Wanted(Ranges.union([wanted.ranges for wanted in every]), at)


def _any_ending(group: list[_Alternative], name: str) -> frozenset[str]:
    return _fewest(end for alternative in group for end in alternative.endings[name])


# --- words ----------------------------------------------------------------------------------------------------------


def _why(condition: Condition, wanted: bool) -> str:
    match condition:
        case Like(pattern=pattern):
            negated = "NOT " if wanted == condition.negated else ""
            return f"{negated}LIKE {pattern!r} looks inside a text, or asks for what does not have an ending"
        case PathMatch():
            return "a path with + looks inside a text"
        case Regex():
            return "a regular expression looks inside a text; LIKE with a % at one end does not"
        case XPath():
            return "XPath reads the payload, which nobody on the way can"
        case IsNull():
            return "only attributes can be asked to be NULL or not"
        case _:
            return "this compares two attributes, or computes"


def _escaped(literal: str) -> str:
    return literal.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_")
