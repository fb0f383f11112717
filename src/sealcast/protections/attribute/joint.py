"""All numbers of a schema as one space: paper 003's first form of credentials (section 4.1, figure 3).

The space of events is halved along one attribute after the other, over and over; a subspace is named by the bits of the
halves that it lies in (a dz-expression), so that a subspace holds all whose names begin with its own. An event lies in
one subspace of each depth. A filter's box becomes the fewest subspaces that together are the box.

It saves pairings: one space instead of one for each attribute. It costs labels: where attributes apart take the sum of
what their ranges take, the box takes about its surface, which the paper names as the reason for its second form. So it
suits few attributes with coarse steps; `EventSpace.counts` says what a filter takes in each form.

An absent value has a place of its own, the last of its attribute, which no range holds.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final, NamedTuple

from sealcast.errors import FilterRejected, Misuse
from sealcast.filters.labels.compile import MAX_LABELS
from sealcast.filters.vector.intervals import merged
from sealcast.model.schema import Value
from sealcast.protections.attribute.spaces import MAX_POSITIONS, Label, NumberSpace, Positioned

#: No attribute's name is empty, so that no attribute's label begins like this.
_HEAD: Final = b"\x00\x00Z"
_PREFIX_BYTES: Final = MAX_POSITIONS // 8

#: First and last place.
PlaceRange = tuple[int, int]
#: What a box asks of each attribute: ranges of places, in order, with gaps between them; None for anything.
Box = Sequence[Sequence[PlaceRange] | None]


class _Axis(NamedTuple):
    """One attribute of the space."""

    number: NumberSpace
    #: Places 0 to `valued` - 1 have values, the last of all stands for none, and nothing is between.
    bits: int

    @property
    def valued(self) -> int:
        return self.number.grid.count

    @property
    def absent(self) -> int:
        return (1 << self.bits) - 1

    def place(self, values: Mapping[str, Value]) -> int:
        physical = self.number.attribute.to_physical(values.get(self.number.name))
        assert not isinstance(physical, str)
        return self.absent if physical is None else self.number.grid.place(physical)

    def occupied(self, low: int, high: int) -> PlaceRange | None:
        """The least and the greatest of the places in a range that an event can have."""
        last = high if high == self.absent else min(high, self.valued - 1)
        first = low if low < self.valued else self.absent
        return (first, last) if first <= last else None


@dataclass(frozen=True)
class JointSpace:
    """Position k is the subspace after k halvings."""

    numbers: tuple[NumberSpace, ...]

    def __post_init__(self) -> None:
        if self.positions > MAX_POSITIONS:
            raise Misuse(
                f"the joint space of {', '.join(self.attributes)} takes {self.positions - 1} bits, and "
                f"{MAX_POSITIONS - 1} are allowed",
                hint="give these attributes bounds or coarser steps, or keep them apart",
            )

    @property
    def name(self) -> str:
        return "[joint]"  # no attribute has brackets in its name

    @property
    def attributes(self) -> tuple[str, ...]:
        return tuple(number.name for number in self.numbers)

    @cached_property
    def root(self) -> Label:
        return _label(0, 0)

    @cached_property
    def axes(self) -> tuple[_Axis, ...]:
        return tuple(_Axis(number, number.grid.count.bit_length()) for number in self.numbers)

    @cached_property
    def turns(self) -> tuple[int, ...]:
        """Which axis is halved at each depth: one after the other, as long as they have bits."""
        deepest = max((axis.bits for axis in self.axes), default=0)
        return tuple(i for depth in range(deepest) for i, axis in enumerate(self.axes) if depth < axis.bits)

    @property
    def positions(self) -> int:
        return len(self.turns) + 1

    def labels(self, values: Mapping[str, Value]) -> Positioned:
        point = [axis.place(values) for axis in self.axes]
        left = [axis.bits for axis in self.axes]
        name, found = 0, [self.root]
        for depth, i in enumerate(self.turns, 1):
            left[i] -= 1
            name = name << 1 | point[i] >> left[i] & 1
            found.append(_label(depth, name))
        return tuple(found)

    def path(self, label: Label) -> tuple[Label, ...]:
        found = self._subspace(label)
        if found is None:
            return ()
        depth, name = found
        return tuple(_label(d, name >> (depth - d)) for d in range(depth + 1))

    def position(self, label: Label) -> int:
        found = self._subspace(label)
        return -1 if found is None else found[0]

    def children(self, label: Label) -> tuple[Label, ...]:
        found = self._subspace(label)
        if found is None or found[0] == len(self.turns):
            return ()
        depth, name = found
        return _label(depth + 1, 2 * name), _label(depth + 1, 2 * name + 1)

    def ranges(self, attribute: str, blocks: Iterable[Label]) -> list[PlaceRange]:
        """The places of one attribute that these of its blocks hold."""
        axis = next(axis for axis in self.axes if axis.number.name == attribute)
        found = []
        for label in blocks:
            block = axis.number.block(label)
            assert block is not None
            bits, prefix = block
            free = axis.number.grid.bits - bits
            found.append((prefix << free, min((prefix + 1 << free) - 1, axis.valued - 1)))
        return list(merged(found))

    def cover(self, box: Box, at: int | None = None) -> list[Label]:
        """The fewest subspaces that hold the events of a box and no others. FilterRejected if that takes too many."""
        found: list[Label] = []
        for depth, name in self._subspaces(box):
            found.append(_label(depth, name))
            if len(found) > MAX_LABELS:
                raise FilterRejected(
                    "limit",
                    f"in the joint space of {', '.join(self.attributes)}, the filter takes more than {MAX_LABELS} "
                    f"labels",
                    at=at,
                    hint="ask for ranges that begin and end at round places, or keep the topic's attributes apart",
                )
        return found

    def _subspaces(self, box: Box) -> Iterator[tuple[int, int]]:
        # Whatever is met partly has a label below, so that the steps are at most as many as twice the bits for a label.
        waiting = [(0, 0, tuple((0, axis.absent) for axis in self.axes))]
        while waiting:
            depth, name, sides = waiting.pop()
            met = [_met(axis, side, wanted) for axis, side, wanted in zip(self.axes, sides, box, strict=True)]
            if None in met:
                continue
            if all(met):
                yield depth, name
                continue
            i = self.turns[depth]
            low, high = sides[i]
            middle = (low + high) // 2
            for bit, half in ((1, (middle + 1, high)), (0, (low, middle))):
                waiting.append((depth + 1, 2 * name + bit, (*sides[:i], half, *sides[i + 1 :])))

    def _subspace(self, label: Label) -> tuple[int, int] | None:
        if len(label) != len(_HEAD) + 1 + _PREFIX_BYTES or not label.startswith(_HEAD):
            return None
        depth, name = label[len(_HEAD)], int.from_bytes(label[len(_HEAD) + 1 :], "big")
        return (depth, name) if depth <= len(self.turns) and not name >> depth else None


def _met(axis: _Axis, side: PlaceRange, wanted: Sequence[PlaceRange] | None) -> bool | None:
    """Whether all places of a subspace's side are wanted that an event can have; None if not one of them is."""
    there = axis.occupied(*side)
    if there is None:
        return None
    if wanted is None:
        return True
    low, high = there
    # Ranges have gaps between them, so that what is wanted whole lies in one. No range holds the absent.
    if any(first <= low and high <= last for first, last in wanted):
        return True
    return False if any(first <= high and low <= last for first, last in wanted) else None


def _label(depth: int, name: int) -> Label:
    return _HEAD + bytes((depth,)) + name.to_bytes(_PREFIX_BYTES, "big")
