"""What one looks for among advertisements: by path, by tags, by schema, or by a word.

    market.*                      by path: a glob of the whole of it; /market/* means the same
    Sports=NBA, Team=*            by tags: each is there, with that value, or with any
    @price:decimal, @symbol       by schema: it has these attributes, of these types where one is named
    @price; market.*; Sports=NBA  all of it together, in this order
    quot                          a plain word: in the path or in the name of an attribute, whatever the case

Paths and tags are those of templates (`trust.realm.templates`).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Final

from sealcast.control.discovery.advertisements import Advertisement, What
from sealcast.errors import FilterRejected, FrameRejected, Misuse
from sealcast.model.schema import Schema, Type
from sealcast.trust.realm.templates import EVERYTHING, Template
from sealcast.wire import cbor

MAX_CHARACTERS: Final = 1_024
MAX_ATTRIBUTES: Final = 32
#: Advertisements in one answer; the rest is asked for by where the last one ended.
MAX_ANSWERS: Final = 64

_WORD: Final = re.compile(r"[A-Za-z0-9_-]+", re.ASCII)
_ATTRIBUTE: Final = re.compile(r"@\s*(?P<name>[^\s@:,;=]{1,128})\s*(?::\s*(?P<type>\w+))?\s*", re.ASCII)
_SLASHES: Final = re.compile(r"(?P<path>/[A-Za-z0-9._*/-]+)", re.ASCII)


@dataclass(frozen=True, slots=True)
class DiscoveryQuery:
    """What to look for, and from where on to list it."""

    text: str
    #: None: whatever is offered.
    what: What | None = What.TOPIC
    #: (owner, id) of the last advertisement of the answer before.
    after: tuple[str, bytes] | None = None

    def __post_init__(self) -> None:
        Matcher.parse(self.text)

    def to_bytes(self) -> bytes:
        after = None if self.after is None else list(self.after)
        return cbor.encode([self.text, None if self.what is None else str(self.what), after])

    @classmethod
    def from_bytes(cls, data: bytes) -> DiscoveryQuery:
        """FilterRejected or Misuse when it is none."""
        try:
            body = cbor.decode(data, max_bytes=8 * MAX_CHARACTERS, max_depth=2, max_items=16)
        except FrameRejected as error:
            raise Misuse(f"this is no query: {error.message}") from None
        match body:
            case [str(text), None | str() as what, None | [str(), bytes()] as after] if what in (None, *What):
                return cls(text, None if what is None else What(what), None if after is None else (after[0], after[1]))
            case _:
                raise Misuse("this is no query")


@dataclass(frozen=True, slots=True)
class Matcher:
    """A query's text, understood."""

    word: str
    attributes: tuple[tuple[str, Type | None], ...]
    template: Template

    @classmethod
    def parse(cls, text: str) -> Matcher:
        """FilterRejected, with the offset, for what is no query."""
        if not 0 < len(text.strip()) <= len(text) <= MAX_CHARACTERS:
            raise FilterRejected("syntax", f"a query has 1 to {MAX_CHARACTERS} characters", at=0, hint="* finds all")
        if _WORD.fullmatch(text.strip()):
            return cls(text.strip().casefold(), (), EVERYTHING)
        attributes, rest = _attributes(text)
        if not rest.strip():
            return cls("", attributes, EVERYTHING)
        # Paths may be written as directories are: what follows the first slash, dots for the others.
        path = _SLASHES.match(rest.lstrip())
        if path is not None:
            rest = path["path"].strip("/").replace("/", ".") + rest.lstrip()[path.end() :]
        return cls("", attributes, Template.parse(rest))

    def matches(self, about: Advertisement) -> bool:
        schema = about.schema
        if self.word and self.word not in about.path.casefold() and not _word_in(self.word, schema):
            return False
        if not all(_has(schema, name, type) for name, type in self.attributes):
            return False
        return self.template.admits_topic(about.path) and self.template.admits(about.tags)


def _attributes(text: str) -> tuple[tuple[tuple[str, Type | None], ...], str]:
    """The attributes a query begins with, and what follows them."""
    found: list[tuple[str, Type | None]] = []
    at = len(text) - len(text.lstrip())
    if not text.startswith("@", at):
        return (), text
    while True:
        match = _ATTRIBUTE.match(text, at)
        if match is None or len(found) == MAX_ATTRIBUTES:
            raise FilterRejected("syntax", "an attribute should stand here", at=at, hint="write @NAME or @NAME:TYPE")
        found.append((match["name"], _type(match["type"], match.start("type"))))
        at = match.end()
        if not text.startswith(",", at):
            break
        at += 1 + len(text[at + 1 :]) - len(text[at + 1 :].lstrip())
    if at < len(text) and text[at] != ";":
        raise FilterRejected("syntax", "a semicolon should stand here", at=at, hint="write @NAME; PATH; TAG=VALUE")
    return tuple(found), text[at + 1 :]


def _type(name: str | None, at: int) -> Type | None:
    if name is None:
        return None
    if name not in Type._value2member_map_:
        raise FilterRejected("type", f"{name!r} is no type", at=at, hint=f"types are {', '.join(Type)}")
    return Type(name)


def _has(schema: Schema | None, name: str, type: Type | None) -> bool:
    found: Any = None if schema is None else next((a for a in schema.attributes if a.name == name), None)
    return found is not None and type in (None, found.type)


def _word_in(word: str, schema: Schema | None) -> bool:
    return schema is not None and any(word in name.casefold() for name in schema.names)
