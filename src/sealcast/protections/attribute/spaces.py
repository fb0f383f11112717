"""The spaces of credentials: what an event's labels are, by position, in each dimension that the scheme encrypts for.

    NumberSpace   an attribute with an order:   the root, then a block of places for each bit (paper 003, section 4.1)
    TextSpace     a string from its beginning:  the root, the text itself, then a subtree for each digit (section 4.2)
    EndingSpace   a string from its end:        the root, then an ending for each character
    JointSpace    all numbers at once: joint.py, the paper's first form

A string has two spaces, because a filter may ask for a beginning and for an ending of the same string: only what lies
in two spaces can be asked for together. A label has one position in its space, so that its owner knows which ciphertext
is the one for it. The number of positions depends on the schema alone: where a value has no label, None says that the
publisher puts something random there. So neither the length of a string nor the absence of a value shows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final, Protocol

from sealcast.filters.labels import naming, text
from sealcast.filters.labels.grid import Grid
from sealcast.filters.labels.naming import StringPlan
from sealcast.model.schema import Attribute, Value
from sealcast.wire.limits import MAX_ATTRIBUTE_POSITIONS

Label = bytes
#: The labels of a value, by position; None where it has none.
Positioned = tuple[Label | None, ...]

#: Of one event in one space. With as many as the 256 bits of profile A's hash, those for a label that an event has not
#: can be computed from those that it has (finding F7 of the scheme's analysis); half as many leave a wide margin.
MAX_POSITIONS: Final = MAX_ATTRIBUTE_POSITIONS
#: Digits of a text that every topic has labels for, if texts are that long: four characters of any script.
_LEAST_DIGITS: Final = 28
_DIGITS_EACH: Final = 7
_ASCII_DIGITS_EACH: Final = 2
#: Before the digits of a text: the root, the text itself, and the subtree of all texts.
_BEFORE_DIGITS: Final = 3


class CredentialSpace(Protocol):
    """One dimension of the scheme."""

    @property
    def name(self) -> str:
        """What the scheme calls it; an attribute's name, where it is the attribute's only or first space."""

    @property
    def attributes(self) -> tuple[str, ...]:
        """The attributes whose values it is about."""

    @property
    def root(self) -> Label:
        """The label of everything, at position 0; an absent value has no other."""

    @property
    def positions(self) -> int: ...

    def labels(self, values: Mapping[str, Value]) -> Positioned:
        """Of one event; EventRejected for a value outside its domain."""

    def path(self, label: Label) -> tuple[Label, ...]:
        """The labels that hold this one, from the root to itself; empty for what is no label of this space."""

    def position(self, label: Label) -> int:
        """Where events have it that have it; -1 for what is no label of this space."""

    def children(self, label: Label) -> tuple[Label, ...]:
        """Labels that together hold what this one holds; empty where there are none."""


@dataclass(frozen=True)
class _OfOneAttribute:
    """What spaces of a single attribute have in common."""

    attribute: Attribute

    @property
    def name(self) -> str:
        return self.attribute.name

    @property
    def attributes(self) -> tuple[str, ...]:
        return (self.attribute.name,)

    @cached_property
    def root(self) -> Label:
        return naming.root(self.name)


@dataclass(frozen=True)
class NumberSpace(_OfOneAttribute):
    """Numbers, moments and booleans: position b is the block of the first b bits of a value's place."""

    @cached_property
    def grid(self) -> Grid:
        return Grid.of(self.attribute)

    @property
    def positions(self) -> int:
        return self.grid.bits + 1

    def labels(self, values: Mapping[str, Value]) -> Positioned:
        physical = self.attribute.to_physical(values.get(self.name))
        if physical is None:
            return padded([self.root], self.positions)
        assert not isinstance(physical, str)
        return (self.root, *self._blocks(self.grid.bits, self.grid.place(physical)))

    def path(self, label: Label) -> tuple[Label, ...]:
        if label == self.root:
            return (self.root,)
        found = self.block(label)
        return (self.root, *self._blocks(*found)) if found is not None else ()

    def position(self, label: Label) -> int:
        return len(self.path(label)) - 1

    def children(self, label: Label) -> tuple[Label, ...]:
        # Of the root there are none: an absent value has the root, and nothing below it.
        found = self.block(label)
        if found is None or found[0] == self.grid.bits:
            return ()
        bits, prefix = found
        return tuple(naming.blocks(self.name, bits + 1, (2 * prefix, 2 * prefix + 1)))

    def block(self, label: Label) -> tuple[int, int] | None:
        """Bits and prefix that the label states, if it is a block of this space."""
        start = naming.head(self.name) + naming.BLOCK
        if len(label) != len(start) + 9 or not label.startswith(start):
            return None
        bits, prefix = label[len(start)], int.from_bytes(label[len(start) + 1 :], "big")
        return (bits, prefix) if 1 <= bits <= self.grid.bits and not prefix >> bits else None

    def _blocks(self, bits: int, prefix: int) -> list[Label]:
        return [naming.block(self.name, b, prefix >> (bits - b)) for b in range(1, bits + 1)]


@dataclass(frozen=True)
class TextSpace(_OfOneAttribute):
    """Strings from their beginning: order, prefixes and equality."""

    plan: StringPlan

    @cached_property
    def digits(self) -> int:
        """How many digits of a text have labels: as many as its characters take in ASCII, at the most."""
        longest = self.attribute.max_length
        deep = self.plan.text if longest is None else min(self.plan.text, longest)
        if not deep:
            return 0
        enough = min(_DIGITS_EACH * deep, max(_ASCII_DIGITS_EACH * deep, _LEAST_DIGITS))
        more = longest is None or longest > deep  # the first digit of the next character
        return min(enough + more, MAX_POSITIONS - _BEFORE_DIGITS)

    @property
    def positions(self) -> int:
        return _BEFORE_DIGITS + self.digits

    def labels(self, values: Mapping[str, Value]) -> Positioned:
        value = values.get(self.name)
        if value is None:
            return padded([self.root], self.positions)
        assert isinstance(value, str)
        return padded(
            [self.root, naming.exact(self.name, value), *self._subtrees(self._carried(value))], self.positions
        )

    def path(self, label: Label) -> tuple[Label, ...]:
        if label == self.root:
            return (self.root,)
        one = self._exact(label)
        if one is not None:
            return (self.root, *self._subtrees(self._carried(one)), label)
        node = self.node(label)
        return (self.root, *self._subtrees(node)) if node is not None and len(node) <= self.digits else ()

    def position(self, label: Label) -> int:
        path = self.path(label)
        if not path or label == self.root:
            return len(path) - 1
        return 1 if self._exact(label) is not None else len(path)

    def children(self, label: Label) -> tuple[Label, ...]:
        node = self.node(label)
        if node is None or len(node) >= self.digits or text.characters(node) > self.plan.text:
            return ()
        return tuple(
            naming.exact(self.name, text.spelled(child)) if text.is_text(child) else naming.subtree(self.name, child)
            for child in text.children(node)
        )

    def node(self, label: Label) -> text.Digits | None:
        """The digits that the label states, if it is a subtree of some texts of this attribute."""
        start = naming.head(self.name) + naming.SUBTREE
        if not label.startswith(start) or len(label) - len(start) > _DIGITS_EACH * (naming.MAX_DEPTH + 1):
            return None
        found = tuple(label[len(start) :])
        return found if text.is_node(found) else None

    def longer(self, label: Label) -> bool:
        """Whether the label is for texts that are longer than the attribute's may be."""
        one, node, longest = self._exact(label), self.node(label), self.attribute.max_length
        size = len(one) if one is not None else text.characters(node) if node is not None else 0
        return longest is not None and size > longest

    def _carried(self, value: str) -> text.Digits:
        return text.carried(value, self.plan.text)[: self.digits] if self.digits else ()

    def _subtrees(self, node: text.Digits) -> list[Label]:
        start = naming.head(self.name) + naming.SUBTREE
        every = bytes(node)
        return [start + every[:i] for i in range(len(every) + 1)]

    def _exact(self, label: Label) -> str | None:
        return stated(label, self.name, naming.EXACT)


@dataclass(frozen=True)
class EndingSpace:
    """Strings from their end: position k is the ending of k characters."""

    attribute: Attribute
    plan: StringPlan

    @property
    def name(self) -> str:
        return ending_name(self.attribute.name)

    @property
    def attributes(self) -> tuple[str, ...]:
        return (self.attribute.name,)

    @cached_property
    def root(self) -> Label:
        return naming.root(self.attribute.name)

    @property
    def positions(self) -> int:
        longest = self.attribute.max_length
        return 1 + (self.plan.suffix if longest is None else min(self.plan.suffix, longest))

    def labels(self, values: Mapping[str, Value]) -> Positioned:
        value = values.get(self.attribute.name)
        if value is None:
            return padded([self.root], self.positions)
        assert isinstance(value, str)
        return padded([self.root, *self._endings(value[-self.positions + 1 :])], self.positions)

    def path(self, label: Label) -> tuple[Label, ...]:
        if label == self.root:
            return (self.root,)
        ending = stated(label, self.attribute.name, naming.SUFFIX)
        return (self.root, *self._endings(ending)) if ending and len(ending) < self.positions else ()

    def position(self, label: Label) -> int:
        return len(self.path(label)) - 1

    def children(self, label: Label) -> tuple[Label, ...]:
        return ()  # a million characters may come before an ending

    def _endings(self, value: str) -> list[Label]:
        return [naming.suffix(self.attribute.name, value[-k:]) for k in range(1, len(value) + 1)]


def ending_name(attribute: str) -> str:
    return attribute + naming.ENDING_MARK


def padded(labels: Sequence[Label], positions: int) -> Positioned:
    return (*labels, *(None,) * (positions - len(labels)))


def stated(label: Label, attribute: str, space: bytes) -> str | None:
    """The text that a label of this attribute and kind states; None if it is none."""
    start = naming.head(attribute) + space
    if not label.startswith(start):
        return None
    try:
        return label[len(start) :].decode()
    except UnicodeDecodeError:
        return None
