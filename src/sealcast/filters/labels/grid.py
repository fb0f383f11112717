"""Numbers, moments and booleans as places 0 .. Z - 1, and sets of places as the fewest aligned blocks.

    int, decimal, timestamp   (physical - first) / step; without a domain, whatever 64 bits hold
    bool                      0 and 1
    float with a domain       with min, max and step, as above, by the shortest decimal that names the float;
    float otherwise           its bits, turned so that their order is that of the numbers

Bounds are inclusive, so that Z = [(max - min) / step] + 1 (paper 003 leaves the maximum out), and L bits name a place.
A block is all places with a common prefix. Places from Z to 2^L - 1 have no value: a block may hold them or not, and
where that saves labels it does. A block is never the whole line, whose label is the root: an absent value has it, too.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterable
from dataclasses import dataclass
from decimal import Decimal, localcontext
from fractions import Fraction
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from sealcast.errors import EventRejected
from sealcast.filters.vector.intervals import INT_MAX, INT_MIN, merged
from sealcast.model import moments
from sealcast.model.schema import MAX_NUMBER_DIGITS, Attribute, Type

Places = NDArray[np.uint64]
#: A block: how many bits of prefix, and the prefix.
Block = tuple[int, int]
_LARGEST: Final = math.nextafter(math.inf, 0.0)
_MASK: Final = (1 << 64) - 1


@dataclass(frozen=True, slots=True)
class Grid:
    """The places of one attribute."""

    name: str
    #: The physical value (or, of a float, its turned bits) at place 0, and the distance to the next place.
    first: int
    step: int
    #: Z.
    count: int
    kind: str = "whole"
    #: Of a float with a domain: where it starts and its step, exactly.
    start: Decimal = Decimal(0)
    pitch: Decimal = Decimal(1)

    @classmethod
    def of(cls, attribute: Attribute) -> Grid:
        if attribute.type is Type.FLOAT:
            return _floats(attribute)
        if attribute.type is Type.BOOL:
            return cls(attribute.name, 0, 1, 2)
        least, greatest = (moments.FIRST, moments.LAST) if attribute.type is Type.TIMESTAMP else (INT_MIN, INT_MAX)
        step = 1
        if attribute.step is not None:
            unit = 1000 if attribute.type is Type.TIMESTAMP else 10**attribute.scale
            # Whole multiples of a/b are multiples of a: a step finer than a tick leaves those that are ticks.
            step = (Fraction(attribute.step) * unit).numerator
        low = attribute.to_physical(attribute.min)
        high = attribute.to_physical(attribute.max)
        first = int(low) if low is not None else -(-least // step) * step
        return cls(attribute.name, first, step, ((int(high) if high is not None else greatest) - first) // step + 1)

    @property
    def bits(self) -> int:
        """L: at least one, since the root alone says nothing."""
        return max(1, (self.count - 1).bit_length())

    # --- values -----------------------------------------------------------------------------------------------------

    def place(self, physical: bool | int | float) -> int:
        """Where a value is, or EventRejected if it is nowhere."""
        if self.kind == "decimal":
            with localcontext(prec=MAX_NUMBER_DIGITS):
                at, over = divmod(Decimal(repr(float(physical))) - self.start, self.pitch)
            place = -1 if over else int(at)
        else:
            value = turned(float(physical)) if self.kind == "bits" else int(physical)
            place, off = divmod(value - self.first, self.step)
            place = -1 if off else place
        if not 0 <= place < self.count:
            raise EventRejected(f"attribute {self.name!r}: the value is not in its domain", attribute=self.name)
        return place

    def places(self, values: NDArray[Any]) -> Places:
        """`place` of a column."""
        if self.kind == "decimal":
            distinct, which = np.unique(values, return_inverse=True)
            found: Places = np.array([self.place(v) for v in distinct.tolist()], np.uint64)
            return found[which]
        if self.kind == "bits":
            raw = (values + 0.0).view(np.uint64)  # -0.0 is 0.0
            raw = np.where(raw >> np.uint64(63), ~raw, raw | np.uint64(1 << 63))
        else:
            raw = values.astype(np.int64).view(np.uint64)
        # Modulo 2^64: the distance of two int64 needs 64 bits.
        away = raw - np.uint64(self.first & _MASK)
        if self.step > 1:
            places, off = away // np.uint64(self.step), away % np.uint64(self.step)
            inside = (off == 0) & (places <= np.uint64(self.count - 1))
        else:
            places, inside = away, away <= np.uint64(self.count - 1)
        if not inside.all():
            raise EventRejected(f"attribute {self.name!r}: a value is not in its domain", attribute=self.name)
        return places

    # --- ranges -----------------------------------------------------------------------------------------------------

    def between(self, low: int | float, high: int | float) -> tuple[int, int] | None:
        """The first and the last place within two keys of `intervals`; None if there is none."""
        if self.kind == "decimal":
            first = 0 if low == -math.inf else math.ceil(self._fraction(float(low)))
            last = self.count - 1 if high == math.inf else math.floor(self._fraction(float(high)))
        else:
            if self.kind == "bits":
                low, high = (turned(max(-_LARGEST, min(_LARGEST, float(key)))) for key in (low, high))
            first, last = -((self.first - int(low)) // self.step), (int(high) - self.first) // self.step
        first, last = max(first, 0), min(last, self.count - 1)
        return (first, last) if first <= last else None

    def _fraction(self, value: float) -> Fraction:
        # Shortest decimals are ordered as their floats are, so that bounds may be compared by theirs.
        return (Fraction(repr(value)) - Fraction(self.start)) / Fraction(self.pitch)

    def cover(self, ranges: Iterable[tuple[int, int]]) -> list[Block]:
        """The fewest blocks that hold the places of these ranges and no other place that has a value."""
        blocks: list[Block] = []
        for first, last in merged(ranges):
            if last == self.count - 1:
                last = (1 << self.bits) - 1  # nothing is there
            blocks.extend(self._aligned(first, last))
        return blocks

    def _aligned(self, first: int, last: int) -> Iterable[Block]:
        while first <= last and first < self.count:
            free = (first & -first).bit_length() - 1 if first else self.bits
            free = min(free, self.bits - 1, (last - first + 1).bit_length() - 1)
            yield self.bits - free, first >> free
            first += 1 << free

    def is_all(self, ranges: Iterable[tuple[int, int]]) -> bool:
        return merged(ranges) == ((0, self.count - 1),)


def _floats(attribute: Attribute) -> Grid:
    low, high, step = attribute.min, attribute.max, attribute.step
    if isinstance(low, float) and isinstance(high, float) and step is not None:
        start = Decimal(repr(low))
        count = int((Fraction(repr(high)) - Fraction(start)) / Fraction(step)) + 1
        if count <= 1 << 64:
            return Grid(attribute.name, 0, 1, count, "decimal", start, step)
    first = turned(low if isinstance(low, float) else -_LARGEST)
    last = turned(high if isinstance(high, float) else _LARGEST)
    return Grid(attribute.name, first, 1, last - first + 1, "bits")


def joint_bits(grids: Iterable[Grid]) -> int:
    """How many bits name a place in the space of several attributes, where an absent value has a place of its own."""
    return sum(grid.count.bit_length() for grid in grids)


def turned(value: float) -> int:
    """The bits of a float such that greater floats have greater ones."""
    raw = int(struct.unpack(">Q", struct.pack(">d", value + 0.0))[0])
    return raw ^ _MASK if raw >> 63 else raw | 1 << 63
