"""How long a text that functions make can be, said beforehand: a constant, and a multiple of every attribute's."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Final, NamedTuple

from sealcast.filters import tree
from sealcast.filters.limits import MAX_COMPUTED_TEXT
from sealcast.filters.tree import Condition, Function, Operand

#: One character in capitals, or in small letters, is up to three.
_CASES: Final = 3


class Longest(NamedTuple):
    """At most `constant` characters, and `times` the length of each of these attributes."""

    constant: int
    times: Mapping[str, int]

    def multiplied(self, factor: int) -> Longest:
        return Longest(self.constant * factor, {name: count * factor for name, count in self.times.items()})


def longest(node: Operand | Condition) -> Longest:
    """What a node reads and makes. No text is longer than `MAX_COMPUTED_TEXT`, so no factor is of use beyond it."""
    match node:
        case tree.Literal(str(text)):
            return Longest(len(text), {})
        case tree.Name(name):
            return Longest(0, {name: 1})
        case tree.Call(function, arguments):
            return _bounded(_call(function, arguments))
        case tree.InSplit(operand, separator, item):
            return _sum([longest(operand), longest(item), Longest(len(separator), {})])
        case _:
            return Longest(1, {})


def _call(function: Function, arguments: tuple[Operand, ...]) -> Longest:
    texts = _sum([longest(argument) for argument in arguments])
    match function, arguments:
        case ((Function.UPPER | Function.LOWER), _):
            return texts.multiplied(_CASES)
        case Function.CONCAT_WS, (separator, *others):
            return _sum([texts, longest(separator).multiplied(len(others))])
        case Function.REPLACE, (text, tree.Literal(str(old)), tree.Literal(str(new))):
            return longest(text).multiplied(1 + -(-len(new) // len(old)))
        case _:
            return texts


def _sum(parts: list[Longest]) -> Longest:
    times = Counter[str]()
    for part in parts:
        times.update(part.times)
    return Longest(sum(part.constant for part in parts), times)


def _bounded(found: Longest) -> Longest:
    times = {name: min(count, MAX_COMPUTED_TEXT) for name, count in found.times.items()}
    return Longest(min(found.constant, MAX_COMPUTED_TEXT), times)
