"""What one attribute must be: a union of closed intervals of its physical values, and whether NULL will do.

This is the only place that turns comparisons with constants into bounds, and it is exact. A bound is a *key*:

    int, decimal, timestamp, bool   an int64 (ticks, microseconds, 0 and 1)
    float                           a finite float, or an infinity where there is no bound
    string                          (0, text, side): side -1 just below the text, 0 the text itself, 1 just above;
                                    TOP, (1, "", 0), is above every text

Keys of one attribute are ordered by `<`. Every open bound has a closed neighbour: `price < 1.005` on ticks of 0.01 is
`ticks <= 100`, `x < 0.1` on floats ends at the greatest double below one tenth, `s < 'b'` ends just below `b`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from datetime import datetime
from decimal import Decimal
from fractions import Fraction
from typing import Any, Final, NamedTuple

from sealcast.filters.tree import Comparison, Value
from sealcast.filters.values import KIND_OF, kind
from sealcast.model.moments import micros
from sealcast.model.schema import Attribute, Type

INT_MIN: Final = -(2**63)
INT_MAX: Final = 2**63 - 1
TextKey = tuple[int, str, int]
BOTTOM: Final[TextKey] = (0, "", 0)
TOP: Final[TextKey] = (1, "", 0)

#: int, float or TextKey, by the attribute's type. One attribute never mixes them, so that they compare.
Key = Any
Interval = tuple[Key, Key]


class Ranges(NamedTuple):
    """Disjoint intervals in ascending order. No interval and no NULL: nothing will do."""

    intervals: tuple[Interval, ...]
    null: bool = False

    @property
    def empty(self) -> bool:
        return not self.intervals and not self.null

    def __and__(self, other: Ranges) -> Ranges:
        met: list[Interval] = []
        i = j = 0
        while i < len(self.intervals) and j < len(other.intervals):
            a, b = self.intervals[i], other.intervals[j]
            low, high = max(a[0], b[0]), min(a[1], b[1])
            if low <= high:
                met.append((low, high))
            if a[1] < b[1]:
                i += 1
            else:
                j += 1
        return Ranges(tuple(met), self.null and other.null)

    def __or__(self, other: Ranges) -> Ranges:
        return Ranges.union((self, other))

    @staticmethod
    def union(many: Sequence[Ranges]) -> Ranges:
        """All at once: joining a thousand alternatives two by two would take a million steps."""
        return Ranges(merged(i for ranges in many for i in ranges.intervals), any(ranges.null for ranges in many))


NOTHING: Final = Ranges(())
ONLY_NULL: Final = Ranges((), null=True)


def merged(intervals: Iterable[Interval]) -> tuple[Interval, ...]:
    """Disjoint and ascending; whole numbers that touch become one interval, so that `IN (1, 2, 3)` is one."""
    result: list[Interval] = []
    for low, high in sorted(intervals):
        if low > high:
            continue
        if result and (low <= result[-1][1] or _touches(result[-1][1], low)):
            result[-1] = (result[-1][0], max(result[-1][1], high))
        else:
            result.append((low, high))
    return tuple(result)


def _touches(high: Key, low: Key) -> bool:
    return bool(high < low and low == _neighbour(high, 1))


def _neighbour(key: Key, step: int) -> Key:
    """The next key above (1) or below (-1)."""
    match key:
        case int():
            return key + step
        case float():
            return math.nextafter(key, step * math.inf)
        case _:
            return (key[0], key[1], key[2] + step)


def complement(ranges: Ranges, attribute: Attribute) -> Ranges:
    """Every value outside the ranges; not NULL, of which neither a comparison nor its negation is true."""
    low, greatest = extremes(attribute)
    gaps: list[Interval] = []
    for start, end in ranges.intervals:
        if low < start:
            gaps.append((low, _neighbour(start, -1)))
        if end == greatest:
            return Ranges(tuple(gaps))
        low = _neighbour(end, 1)
    return Ranges((*gaps, (low, greatest)))


def extremes(attribute: Attribute) -> Interval:
    """The interval of every value the type can hold. The domain is no part of it: admission enforces that, not we."""
    if attribute.type is Type.STRING:
        return BOTTOM, TOP
    if attribute.type is Type.FLOAT:
        return -math.inf, math.inf
    return (0, 1) if attribute.type is Type.BOOL else (INT_MIN, INT_MAX)


def anything(attribute: Attribute) -> Ranges:
    """Every value but NULL."""
    return Ranges((extremes(attribute),))


def comparable(attribute: Attribute, value: Value) -> bool:
    """Whether the language compares this attribute with this constant at all; unlike kinds compare to false."""
    naive = isinstance(value, datetime) and value.tzinfo is None
    return kind(value) == KIND_OF[attribute.type] and not naive


def comparison(attribute: Attribute, op: Comparison, value: Value) -> Ranges:
    """Where `attribute op value` is true, for a value that is comparable and no NULL."""
    if isinstance(value, bool) and op not in (Comparison.EQ, Comparison.NE):
        return NOTHING  # booleans are not ordered
    least, greatest = extremes(attribute)
    below, at, above = _around(attribute, value)
    if op is Comparison.EQ:
        return NOTHING if at is None else Ranges(((at, at),))
    parts: list[Interval] = []
    if below is not None and op in (Comparison.LT, Comparison.LE, Comparison.NE):
        parts.append((least, below if at is None or op is not Comparison.LE else at))
    elif at is not None and op is Comparison.LE:
        parts.append((least, at))
    if above is not None and op in (Comparison.GT, Comparison.GE, Comparison.NE):
        parts.append((above if at is None or op is not Comparison.GE else at, greatest))
    elif at is not None and op is Comparison.GE:
        parts.append((at, greatest))
    return Ranges(tuple(parts) if len(parts) < 2 or at is not None else merged(parts))


def prefix(text: str) -> Ranges:
    """The strings that start with `text`: in code point order they are neighbours, a subtree of the trie of all."""
    if not text:
        return Ranges(((BOTTOM, TOP),))
    return Ranges((((0, text, 0), _after_prefix(text)),))


def _after_prefix(text: str) -> TextKey:
    for last in range(len(text) - 1, -1, -1):
        point = ord(text[last])
        if point < 0x10FFFF:
            # Surrogates are no characters: the next one after U+D7FF is U+E000.
            following = 0xE000 if point == 0xD7FF else point + 1
            return (0, text[:last] + chr(following), -1)
    return TOP


def _around(attribute: Attribute, value: Value) -> tuple[Key | None, Key | None, Key | None]:
    """The greatest key below the value, the key that equals it, and the least above it; None where there is none."""
    match value:
        case str():
            return (0, value, -1), (0, value, 0), (0, value, 1)
        case bool():
            return _whole(int(value), 0, 1)
        case datetime():
            return _whole(micros(value), INT_MIN, INT_MAX)
        case int() | float() | Decimal():
            if isinstance(value, float | Decimal) and not math.isfinite(value):
                return _infinite(attribute, positive=value > 0)
            if attribute.type is Type.FLOAT:
                return _double(value)
            if isinstance(value, int):
                return _whole(value * 10**attribute.scale, INT_MIN, INT_MAX)
            return _whole(Fraction(value) * 10**attribute.scale, INT_MIN, INT_MAX)
        case _:
            return None, None, None


def _infinite(attribute: Attribute, *, positive: bool) -> tuple[Key | None, Key | None, Key | None]:
    least, greatest = extremes(attribute)
    return (greatest, None, None) if positive else (None, None, least)


def _whole(value: int | Fraction, least: int, greatest: int) -> tuple[int | None, int | None, int | None]:
    floor, ceiling = math.floor(value), math.ceil(value)
    if floor != ceiling:
        below, at, above = floor, None, ceiling
    else:
        below, at, above = floor - 1, floor, floor + 1
    return (
        min(below, greatest) if below >= least else None,
        at if at is not None and least <= at <= greatest else None,
        max(above, least) if above <= greatest else None,
    )


def _double(value: int | float | Decimal) -> tuple[float | None, float | None, float | None]:
    try:
        near = float(value)
    except OverflowError:
        near = math.inf if value > 0 else -math.inf
    if math.isinf(near):  # beyond every double: all of them are below it, or all above
        largest = math.nextafter(math.inf, 0.0)
        return (largest, None, None) if near > 0 else (None, None, -largest)
    near += 0.0  # one zero: 0.0 and -0.0 are equal, and bounds are compared by value
    if near == value:
        return math.nextafter(near, -math.inf), near, math.nextafter(near, math.inf)
    if near < value:
        return near, None, math.nextafter(near, math.inf)
    return math.nextafter(near, -math.inf), None, near
