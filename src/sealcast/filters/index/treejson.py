"""A condition as JSON and back, exactly: what a snapshot keeps of filters that are not wholly bounds.

A node is [its name, its fields...]; a constant is [its type, text], so that no number passes through JSON's doubles.
Positions in the filter's text are not kept: nothing that matches events needs them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from datetime import datetime
from decimal import Decimal, InvalidOperation
from typing import Any, Final, get_args

from sealcast.errors import Corrupt
from sealcast.filters import tree
from sealcast.filters.tree import Condition, Operand, Value
from sealcast.model.moments import micros, moment

#: Every node that a checked filter is made of; constants have their own form.
_NODES: Final[dict[str, type]] = {
    node.__name__: node
    for node in get_args(Condition) + get_args(Operand)
    if node is not tree.Literal and node is not tree.Now
}
_ENUMS: Final = {"Comparison": tree.Comparison, "ArithmeticOp": tree.ArithmeticOp, "Function": tree.Function}
#: Says nothing about matching.
_POSITIONS: Final = frozenset({"at", "end", "text"})
#: The types of constants: their name, and how they are written and read.
_CONSTANTS: Final[dict[type, tuple[str, Callable[[Any], str], Callable[[str], Value]]]] = {
    type(None): ("null", lambda _: "", lambda _: None),
    bool: ("bool", str, lambda text: text == "True"),
    int: ("int", hex, lambda text: int(text, 16)),
    float: ("float", float.hex, float.fromhex),
    Decimal: ("decimal", str, Decimal),
    str: ("string", str, str),
    datetime: ("timestamp", lambda value: str(micros(value)), lambda text: moment(int(text))),
}
_READ: Final = {name: read for name, _, read in _CONSTANTS.values()}


def to_json(node: Condition | Operand) -> list[Any]:
    if isinstance(node, tree.Literal):
        name, write, _ = _CONSTANTS[type(node.value)]
        return ["Literal", name, write(node.value)]
    return [
        type(node).__name__,
        *(_field(getattr(node, field.name)) for field in fields(node) if field.name not in _POSITIONS),
    ]


def from_json(body: object) -> Any:
    """The condition or operand; Corrupt for anything that `to_json` does not write."""
    match body:
        case ["Literal", str(kind), str(text)]:
            return tree.Literal(_value(kind, text))
        case ["()", *items]:
            return tuple(from_json(item) for item in items)
        case [str(kind), str(value)] if kind in _ENUMS and value in _ENUMS[kind]._value2member_map_:
            return _ENUMS[kind](value)
        case [str(name), *items] if name in _NODES:
            names = [field.name for field in fields(_NODES[name]) if field.name not in _POSITIONS]
            if len(names) == len(items):
                return _NODES[name](**{n: from_json(item) for n, item in zip(names, items, strict=True)})
        case str() | bool() | None:
            return body
    raise Corrupt("a snapshot's residual filter is not one")


def _field(value: object) -> object:
    match value:
        case tree.Comparison() | tree.ArithmeticOp() | tree.Function():
            return [type(value).__name__, str(value)]
        case tuple():
            return ["()", *map(_field, value)]
        case str() | bool() | None:
            return value
        case _:
            return to_json(value)  # type: ignore[arg-type]


def _value(kind: str, text: str) -> Value:
    try:
        return _READ[kind](text)
    except (KeyError, ValueError, OverflowError, InvalidOperation):
        raise Corrupt(f"a snapshot's constant of type {kind!r} is none") from None
