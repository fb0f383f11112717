"""Templates of `sealcast sub --format`: an event as one line of text.

Python's own formatting would let a template reach into objects. Here a template names fields from a fixed list, and
nothing else. An event is one line, whatever its publisher wrote: control characters in values appear as escapes, so
that nobody can forge the line of another event.
"""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Callable, Mapping
from string import Formatter
from typing import TYPE_CHECKING, Any, Final

from sealcast.cli import talk
from sealcast.errors import Misuse

if TYPE_CHECKING:
    from sealcast.model.event import OpenedEvent
    from sealcast.model.schema import Schema

_ATTRIBUTE: Final = re.compile(r"attributes\[([^\[\]]+)\]")
_NAMES_SHOWN: Final = 12
_Part = Callable[["OpenedEvent"], str]


class LineTemplate:
    """A template that was checked against the topic's schema."""

    def __init__(self, text: str, schema: Schema) -> None:
        self._schema = schema
        try:
            parts = list(Formatter().parse(text))
        except ValueError:
            raise self._refusal(f"the braces in --format {text!r} do not match (write {{{{ for a brace)") from None
        self._parts: list[str | _Part] = []
        for literal, field, spec, conversion in parts:
            self._parts.append(literal)
            if field is not None:
                if spec or conversion:
                    raise self._refusal(f"--format takes names of fields alone, so {{{field}}} can have no ':' or '!'")
                self._parts.append(self._part(field))

    def line(self, event: OpenedEvent) -> str:
        return "".join(part if isinstance(part, str) else _in_one_line(part(event)) for part in self._parts)

    def _part(self, field: str) -> _Part:
        if field in _FIELDS:
            return _FIELDS[field]
        named = _ATTRIBUTE.fullmatch(field)
        if named is None or named[1] not in self._schema.by_name:
            raise self._refusal(f"--format names {{{field}}}, which is no field of an event")
        name = named[1]
        return lambda event: _shown(event.attributes.get(name))

    def _refusal(self, message: str) -> Misuse:
        names = ", ".join(self._schema.names[:_NAMES_SHOWN]) + ", ..." * (len(self._schema.names) > _NAMES_SHOWN)
        fields = ", ".join(f"{{{name}}}" for name in _FIELDS)
        return Misuse(message, hint=f"the fields are {fields} and {{attributes[NAME]}}, where NAME is one of {names}")


def _shown(value: Any) -> str:
    """A value as text; NULL is empty, as in CSV."""
    from sealcast.model.schema import value_to_json

    plain = value_to_json(value)
    if plain is None:
        return ""
    return plain if isinstance(plain, str) else talk.as_json(plain)


def _attributes(event: OpenedEvent) -> str:
    from sealcast.model.schema import value_to_json

    return talk.as_json({name: value_to_json(value) for name, value in event.attributes.items()})


def _payload(event: OpenedEvent) -> str:
    try:
        return event.payload.decode()
    except UnicodeDecodeError:
        return b64encode(event.payload).decode()


def _in_one_line(text: str) -> str:
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


_FIELDS: Final[Mapping[str, _Part]] = {
    "position": lambda event: str(event.position),
    "publisher": lambda event: event.publisher,
    "published_at": lambda event: _shown(event.published_at),
    "boot": lambda event: event.boot.hex(),
    "sequence": lambda event: str(event.sequence),
    "content_type": lambda event: event.content_type,
    "attributes": _attributes,
    "payload": _payload,
    "payload_base64": lambda event: b64encode(event.payload).decode(),
}
