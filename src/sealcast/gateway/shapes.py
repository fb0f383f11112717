"""What bodies and parameters look like: one description that reads them, refuses others, and writes the OpenAPI schema.

Bodies are deterministic CBOR (`wire.cbor`): maps with text keys, each exactly as described. JSON Schema has no byte
strings. They are described as strings with `format: byte-string`, and the document says so once.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

from sealcast.errors import FrameRejected, Misuse
from sealcast.gateway.limits import MAX_BODY_ITEMS
from sealcast.wire import cbor

MAX_NUMBER: Final = 2**63 - 1


class BodyShape(Protocol):
    """One kind of value."""

    def refuse(self, value: object, where: str) -> None:
        """Misuse unless the value is of this shape."""

    def schema(self) -> dict[str, Any]:
        """As OpenAPI 3.1 has it."""


def _wrong(where: str, expected: str) -> Misuse:
    return Misuse(f"{where}: {expected} is expected here")


@dataclass(frozen=True, slots=True)
class Whole:
    """A whole number."""

    least: int = 0
    most: int = MAX_NUMBER

    def refuse(self, value: object, where: str) -> None:
        if type(value) is not int or not self.least <= value <= self.most:
            raise _wrong(where, f"a whole number from {self.least} to {self.most}")

    def schema(self) -> dict[str, Any]:
        return {"type": "integer", "minimum": self.least, "maximum": self.most}


@dataclass(frozen=True, slots=True)
class Bytes:
    """A byte string."""

    least: int = 0
    most: int = MAX_NUMBER

    def refuse(self, value: object, where: str) -> None:
        if not isinstance(value, bytes) or not self.least <= len(value) <= self.most:
            raise _wrong(where, f"a byte string of {self.least} to {self.most} bytes")

    def schema(self) -> dict[str, Any]:
        most = {} if self.most == MAX_NUMBER else {"maxLength": self.most}
        return {"type": "string", "format": "byte-string", "minLength": self.least, **most}


@dataclass(frozen=True, slots=True)
class Text:
    """Text in UTF-8; with a pattern, exactly such text."""

    most: int = 1 << 20
    pattern: str | None = None

    def refuse(self, value: object, where: str) -> None:
        if not isinstance(value, str) or len(value) > self.most:
            raise _wrong(where, f"text of at most {self.most} characters")
        if self.pattern is not None and re.fullmatch(self.pattern, value, re.ASCII) is None:
            raise _wrong(where, f"text like {self.pattern}")

    def schema(self) -> dict[str, Any]:
        pattern = {} if self.pattern is None else {"pattern": f"^{self.pattern}$"}
        return {"type": "string", "maxLength": self.most, **pattern}


@dataclass(frozen=True, slots=True)
class Flag:
    """True or false."""

    def refuse(self, value: object, where: str) -> None:
        if not isinstance(value, bool):
            raise _wrong(where, "true or false")

    def schema(self) -> dict[str, Any]:
        return {"type": "boolean"}


@dataclass(frozen=True, slots=True)
class ListOf:
    """Any number of one shape."""

    each: BodyShape
    least: int = 0
    most: int = 1 << 16

    def refuse(self, value: object, where: str) -> None:
        if not isinstance(value, list) or not self.least <= len(value) <= self.most:
            raise _wrong(where, f"a list of {self.least} to {self.most}")
        for number, item in enumerate(value):
            self.each.refuse(item, f"{where}[{number}]")

    def schema(self) -> dict[str, Any]:
        return {"type": "array", "items": self.each.schema(), "minItems": self.least, "maxItems": self.most}


@dataclass(frozen=True, slots=True)
class RowShape:
    """A list with a fixed number of things, each of its own shape; what they are called, for readers."""

    names: tuple[str, ...]
    shapes: tuple[BodyShape, ...]

    def refuse(self, value: object, where: str) -> None:
        if not isinstance(value, list) or len(value) != len(self.shapes):
            raise _wrong(where, f"a list of {len(self.shapes)} ({', '.join(self.names)})")
        for name, shape, item in zip(self.names, self.shapes, value, strict=True):
            shape.refuse(item, f"{where}.{name}")

    def schema(self) -> dict[str, Any]:
        count = len(self.shapes)
        named = [{"title": n, **s.schema()} for n, s in zip(self.names, self.shapes, strict=True)]
        return {"type": "array", "prefixItems": named, "items": False, "minItems": count, "maxItems": count}


@dataclass(frozen=True, slots=True)
class Map:
    """A map with exactly these keys."""

    fields: Mapping[str, BodyShape]

    def refuse(self, value: object, where: str) -> None:
        if not isinstance(value, dict) or value.keys() != self.fields.keys():
            raise _wrong(where, f"a map with {', '.join(self.fields)}, and nothing else")
        for name, shape in self.fields.items():
            shape.refuse(value[name], name if where == "the body" else f"{where}.{name}")

    def schema(self) -> dict[str, Any]:
        return {
            "type": "object",
            "properties": {name: shape.schema() for name, shape in self.fields.items()},
            "required": list(self.fields),
            "additionalProperties": False,
        }


@dataclass(frozen=True, slots=True)
class MapOf:
    """A map from text to one shape."""

    each: BodyShape

    def refuse(self, value: object, where: str) -> None:
        if not isinstance(value, dict):
            raise _wrong(where, "a map")
        for name, item in value.items():
            self.each.refuse(item, f"{where}.{name}")

    def schema(self) -> dict[str, Any]:
        return {"type": "object", "additionalProperties": self.each.schema()}


@dataclass(frozen=True, slots=True)
class Parameter:
    """One parameter of a query."""

    name: str
    shape: Whole | Text
    about: str
    #: What it is when it is not given; None for one that must be.
    default: int | str | None = None
    required: bool = field(default=False)

    def read(self, given: str | None) -> int | str | None:
        if given is None:
            if self.required:
                raise Misuse(f"the parameter {self.name!r} is missing: {self.about}")
            return self.default
        where = f"parameter {self.name!r}"
        value: int | str = given
        if isinstance(self.shape, Whole):
            if not given.isascii() or not given.isdigit() or len(given) > 19:
                raise _wrong(where, f"a whole number from {self.shape.least} to {self.shape.most}")
            value = int(given)
        self.shape.refuse(value, where)
        return value


def read_body(shape: BodyShape, raw: bytes, most: int) -> Any:
    """A body's value; Misuse when it is another thing."""
    try:
        value = cbor.decode(raw, max_bytes=most, max_items=MAX_BODY_ITEMS)
    except FrameRejected as error:
        raise Misuse(f"the body is no deterministic CBOR (RFC 8949, section 4.2.1): {error.message}") from None
    shape.refuse(value, "the body")
    return value
