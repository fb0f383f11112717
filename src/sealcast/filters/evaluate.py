"""The reference evaluator: what a filter says of one event, true, false or unknown (None).

Everything faster (`vector`, `index`) must agree with this file.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any, Final

from sealcast.filters import functions, patterns, tree
from sealcast.filters.like import compile_like
from sealcast.filters.tree import Comparison, Condition, Operand, Value
from sealcast.filters.values import arithmetic, compare, invert, kind, negate, number
from sealcast.filters.xpath import Document


class FilterInput:
    """What a filter is asked of: attributes (an absent one is NULL), a payload, and the clock for UTC()."""

    __slots__ = ("_document", "_now", "_payload", "attributes")

    def __init__(self, attributes: Mapping[str, Value], payload: bytes | None = None, now: int | None = None) -> None:
        self.attributes = attributes
        self._payload = payload
        self._document: Document | None = None
        self._now = now

    def document(self) -> Document | None:
        """The payload as XML, parsed when first asked for; None if it is none."""
        if self._document is None and self._payload is not None:
            self._document = Document.parse(self._payload)
            self._payload = None
        return self._document

    def now(self) -> int:
        """Milliseconds since 1970, the same for the whole evaluation."""
        if self._now is None:
            self._now = time.time_ns() // 1_000_000
        return self._now


def evaluate(
    condition: Condition, attributes: Mapping[str, Value], payload: bytes | None = None, *, now: int | None = None
) -> bool | None:
    """Whether the event matches: only True does; None is SQL's unknown. `now` is what UTC() says, in milliseconds."""
    return holds(condition, FilterInput(attributes, payload, now))


def holds(condition: Condition, event: FilterInput) -> bool | None:
    return _CONDITIONS[type(condition)](condition, event)


def worth(operand: Operand, event: FilterInput) -> Value:
    return _OPERANDS[type(operand)](operand, event)


# --- conditions ---------------------------------------------------------------------------------


# The loop stands in the function, not in a helper with a generator: two Python frames a level of the tree, no more.


def _junction(node: tree.And | tree.Or, event: FilterInput) -> bool | None:
    """AND is false if one item is false, OR is true if one is true; else they are unknown if one is unknown."""
    decisive = type(node) is tree.Or
    result: bool | None = not decisive
    for item in node.items:
        truth = holds(item, event)
        if truth is decisive:
            return decisive
        if truth is None:
            result = None
    return result


def _truth(node: tree.Truth, event: FilterInput) -> bool | None:
    # A number or string where a condition should be is unknown, not false: so `NOT 5` matches nothing either.
    value = worth(node.operand, event)
    return value if isinstance(value, bool) else None


def _between(node: tree.Between, event: FilterInput) -> bool | None:
    value = worth(node.operand, event)
    above = compare(Comparison.GE, value, worth(node.low, event))
    below = compare(Comparison.LE, value, worth(node.high, event))
    inside = False if above is False or below is False else None if above is None or below is None else True
    return invert(inside) if node.negated else inside


def _in(node: tree.In, event: FilterInput) -> bool | None:
    """IN is a chain of =, NOT IN a chain of <>: as `<>` is false between unlike kinds, so is NOT IN (as in Qpid).

    But a NULL in the list leaves NOT IN unknown before a value of another kind makes it false.
    """
    value = worth(node.operand, event)
    if value is None:
        return None
    null = unlike = False
    for item in node.items:
        candidate = worth(item, event)
        if candidate is None:
            null = True
        elif kind(candidate) != kind(value):
            unlike = True
        elif compare(Comparison.EQ, value, candidate):
            return not node.negated
    if null:
        return None
    return node.negated and not unlike


def _like(node: tree.Like, event: FilterInput) -> bool | None:
    value = worth(node.operand, event)
    if not isinstance(value, str):
        return None
    matched = compile_like(node.pattern, node.escape).matches(value)
    return invert(matched) if node.negated else matched


def _in_split(node: tree.InSplit, event: FilterInput) -> bool | None:
    text, item = worth(node.operand, event), worth(node.item, event)
    if not isinstance(text, str) or not isinstance(item, str):
        return None
    return item in functions.parts(text, node.separator)


def _call(node: tree.Call, event: FilterInput) -> Value:
    return functions.call(node.function, [worth(argument, event) for argument in node.arguments])


def _path(node: tree.PathMatch, event: FilterInput) -> bool | None:
    value = event.attributes.get(node.name)
    return patterns.path_matches(node.levels, value) if isinstance(value, str) else None


def _regex(node: tree.Regex, event: FilterInput) -> bool | None:
    value = event.attributes.get(node.name)
    return patterns.regex_matcher(node.pattern)(value) if isinstance(value, str) else None


def _xpath(node: tree.XPath, event: FilterInput) -> bool | None:
    document = event.document()
    return None if document is None else document.matches(node.expression)


_CONDITIONS: Final[dict[type, Callable[[Any, FilterInput], bool | None]]] = {
    tree.And: _junction,
    tree.Or: _junction,
    tree.Not: lambda node, event: invert(holds(node.operand, event)),
    tree.Truth: _truth,
    tree.Compare: lambda node, event: compare(node.op, worth(node.left, event), worth(node.right, event)),
    tree.Between: _between,
    tree.In: _in,
    tree.Like: _like,
    tree.IsNull: lambda node, event: (worth(node.operand, event) is None) is not node.negated,
    tree.PathMatch: _path,
    tree.Regex: _regex,
    tree.XPath: _xpath,
    tree.InSplit: _in_split,
}
_OPERANDS: Final[dict[type, Callable[[Any, FilterInput], Value]]] = {
    tree.Literal: lambda node, event: node.value,
    tree.Name: lambda node, event: event.attributes.get(node.name),
    tree.Negate: lambda node, event: negate(worth(node.operand, event)),
    tree.Plus: lambda node, event: number(worth(node.operand, event)),
    tree.Arithmetic: lambda node, event: arithmetic(node.op, worth(node.left, event), worth(node.right, event)),
    tree.Call: _call,
    tree.Predicate: lambda node, event: holds(node.condition, event),
    tree.Now: lambda node, event: event.now(),
}
