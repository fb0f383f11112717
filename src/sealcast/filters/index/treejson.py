"""A condition as JSON and back, exactly: what a snapshot keeps of filters that are not wholly bounds.

A node is [its name, its fields...]; a constant is [its type, text], so that no number passes through JSON's doubles.
Positions in the filter's text are not kept: nothing that matches events needs them.
"""

from __future__ import annotations

from dataclasses import fields
from datetime import UTC, datetime, timedelta
from decimal import Decimal, InvalidOperation
from typing import Any, Final

from sealcast.errors import Corrupt
from sealcast.filters import tree
from sealcast.filters.tree import Condition, Operand, Value

_NODES: Final[dict[str, type]] = {
    node.__name__: node
    for node in (
        tree.And,
        tree.Or,
        tree.Not,
        tree.Compare,
        tree.Between,
        tree.In,
        tree.Like,
        tree.IsNull,
        tree.Truth,
        tree.PathMatch,
        tree.Regex,
        tree.XPath,
        tree.Name,
        tree.Negate,
        tree.Plus,
        tree.Arithmetic,
        tree.Predicate,
    )
}
_ENUMS: Final = {"Comparison": tree.Comparison, "ArithmeticOp": tree.ArithmeticOp}
#: Says nothing about matching.
_POSITIONS: Final = frozenset({"at", "end", "text"})
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def to_json(node: Condition | Operand) -> list[Any]:
    if isinstance(node, tree.Literal):
        return ["Literal", *_constant(node.value)]
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
        case ["Comparison" | "ArithmeticOp" as kind, str(value)] if value in _ENUMS[kind]._value2member_map_:
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
        case tree.Comparison() | tree.ArithmeticOp():
            return [type(value).__name__, str(value)]
        case tuple():
            return ["()", *map(_field, value)]
        case str() | bool() | None:
            return value
        case _:
            return to_json(value)  # type: ignore[arg-type]


def _constant(value: Value) -> tuple[str, str]:
    match value:
        case None:
            return "null", ""
        case bool():
            return "bool", str(value)
        case int():
            return "int", hex(value)
        case float():
            return "float", value.hex()
        case Decimal():
            return "decimal", str(value)
        case str():
            return "string", value
        case datetime():
            return "timestamp", str((value - _EPOCH) // timedelta(microseconds=1))


def _value(kind: str, text: str) -> Value:
    try:
        match kind:
            case "null":
                return None
            case "bool":
                return text == "True"
            case "int":
                return int(text, 16)
            case "float":
                return float.fromhex(text)
            case "decimal":
                return Decimal(text)
            case "string":
                return text
            case "timestamp":
                return _EPOCH + timedelta(microseconds=int(text))
    except (ValueError, OverflowError, InvalidOperation):
        pass
    raise Corrupt(f"a snapshot's constant of type {kind!r} is none")
