"""Events that users make in a form: fields for a schema, and values out of what was typed."""

from __future__ import annotations

import re
from collections.abc import Mapping
from decimal import Decimal
from typing import Final

from sealcast.console.html import Markup, element
from sealcast.errors import EventRejected
from sealcast.model.event import Event
from sealcast.model.schema import Attribute, Schema, Type, Value

#: What stands in a form that nobody has filled in yet.
_FIRST: Final = {
    Type.STRING: "IBM",
    Type.INT: "118",
    Type.FLOAT: "118.5",
    Type.DECIMAL: "118.00",
    Type.BOOL: "true",
    Type.TIMESTAMP: "2026-03-01T12:00:00Z",
}
PAYLOAD: Final = "The buyer is Mrs. Jones, account 4711."
_OTHERS: Final[dict[Type, tuple[Value, ...]]] = {
    Type.STRING: ("no", "on"),
    Type.BOOL: (True, False),
    Type.INT: (0, 1),
    Type.DECIMAL: (0, 1),
    Type.FLOAT: (),
    Type.TIMESTAMP: (),
}
_PLAIN: Final = re.compile(r"[A-Za-z_]\w*", re.ASCII)
#: For whoever has no topic yet.
EXAMPLE: Final = Schema.from_json(
    {
        "attributes": [
            {"name": "ward", "type": "string", "max_length": 16},
            {"name": "pulse", "type": "int", "min": 0, "max": 300},
        ]
    }
)
EXAMPLE_VALUES: Final = {"ward": "oncology", "pulse": "118"}
EXAMPLE_PAYLOAD: Final = "The patient is Mrs. Jones, room 12."


def first_values(schema: Schema) -> dict[str, str]:
    """Values that a schema admits, for a form that nobody has filled in yet."""
    if schema is EXAMPLE:
        return dict(EXAMPLE_VALUES)
    return {each.name: _first(each) for each in schema.attributes}


def _first(attribute: Attribute) -> str:
    try:
        attribute.parse(_typed(attribute, _FIRST[attribute.type]))
    except EventRejected:
        least = attribute.to_json().get("min")
        return "" if least is None else str(least)
    return _FIRST[attribute.type]


def event_of(schema: Schema, typed: Mapping[str, str], payload: str) -> Event:
    """An event out of what was typed; nothing typed is an absent attribute. EventRejected names what does not fit."""
    present = [each for each in schema.attributes if typed.get(each.name, "").strip()]
    given = {each.name: _typed(each, typed[each.name].strip()) for each in present}
    return Event(schema.parse(given), payload.encode())


def _typed(attribute: Attribute, text: str) -> object:
    try:
        match attribute.type:
            case Type.INT:
                return int(text)
            case Type.FLOAT:
                return float(text)
            case Type.BOOL:
                return {"true": True, "false": False}[text.lower()]
            case _:
                return text
    except (ValueError, KeyError):
        raise EventRejected(
            f"attribute {attribute.name!r}: {text!r} is no {attribute.type}", attribute=attribute.name
        ) from None


def fields(schema: Schema, values: Mapping[str, str]) -> list[Markup]:
    """An input for each attribute."""
    return [
        element(
            "label",
            f"{each.name} ({each.type})",
            element("input", name=f"a.{each.name}", value=values.get(each.name, ""), autocomplete="off"),
        )
        for each in schema.attributes
    ]


def matching(schema: Schema, event: Event) -> str:
    """A filter that an event matches, in the words that every protection has."""
    conditions = [
        _equals(each, event.attributes[each.name]) for each in schema.attributes if each.name in event.attributes
    ]
    return next((text for text in conditions if text is not None), "")


def unmatching(schema: Schema, event: Event) -> str | None:
    """A filter that an event does not match, in the same words; None where there is none so simple."""
    for each in schema.attributes:
        value = event.attributes.get(each.name)
        for other in _OTHERS[each.type] if each.min is None else (each.min, each.max):
            if value is not None and other is not None and other != value:
                return _equals(each, other)
    return None


def _equals(attribute: Attribute, value: object) -> str | None:
    """Equality, as the filter language writes it; None for a value that it cannot be asked of so simply."""
    name = attribute.name if _PLAIN.fullmatch(attribute.name) else f"[{attribute.name}]"
    if isinstance(value, bool):
        return f"{name} = {str(value).upper()}"
    if isinstance(value, str):
        quoted = value.replace("'", "''")
        return f"{name} = '{quoted}'"
    return f"{name} = {value}" if isinstance(value, int | Decimal) else None
