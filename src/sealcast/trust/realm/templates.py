"""Topic templates: which topics a token is for, and which of their events (paper 004, section 4.8.3).

    Sports=NBA, Team=*             events whose Sports is NBA and that have a Team, of any topic of the audience
    market.*; symbol=IBM           of topics named market.…, the events of IBM
    market.*                       all events of those topics
    *                              everything; written out, for nothing empty means everything

A template is `GLOB`, `TAGS` or `GLOB; TAGS`. In a glob, `*` is any number of characters. A tag is NAME=VALUE or NAME=*,
which asks only that the attribute is there. Values are read in the type that the topic's schema gives the attribute;
quotes ('it''s', "a, b") protect characters and say nothing of the type. Names with odd characters stand in [ ].

The tags compile to a tree of `sealcast.filters`, so that the vectorised evaluator and the index enforce them for every
event: what a publisher sends must satisfy it, what a subscriber asks for is joined to it by AND. `admits` is the
reference, which needs no schema and which the tree must agree with.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import datetime
from decimal import Decimal, InvalidOperation
from functools import lru_cache
from typing import TYPE_CHECKING, Final

from sealcast.errors import EventRejected, FilterRejected
from sealcast.filters.timestamps import parse_timestamp
from sealcast.model.dataclass import dataclass
from sealcast.model.schema import Attribute, Schema, Type, Value
from sealcast.wire.limits import MAX_TEMPLATE_BYTES

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa
    from numpy.typing import NDArray

    from sealcast.filters.tree import Condition

#: Tags of a template: every one is a comparison for every event.
MAX_TAGS: Final = 32
#: A topic's name has at most 64 characters; a glob needs no more.
MAX_GLOB_LENGTH: Final = 64
ANY: Final = "*"

_GLOB: Final = re.compile(r"\s*+(?P<glob>[A-Za-z0-9._*-]++)\s*+(?:(?P<more>;)|\Z)", re.ASCII)
_PLAIN_NAME: Final = re.compile(r"[^\W\d][\w$.:-]*|\$[\w$.:-]*")
_PLAIN_VALUE: Final = re.compile(r"""[^\s,;'"*](?:[^,;'"*]*[^\s,;'"*])?""")


@dataclass(frozen=True, slots=True)
class Tag:
    """One demand on an attribute. `value` is text, read in the attribute's type; None asks only for presence."""

    name: str
    value: str | None

    def __str__(self) -> str:
        name = self.name
        if not _PLAIN_NAME.fullmatch(name):
            name = "[" + name.replace("[", "[[").replace("]", "]]") + "]"
        if self.value is None:
            return f"{name}={ANY}"
        plain = _PLAIN_VALUE.fullmatch(self.value) is not None
        return f"{name}={self.value if plain else _quoted(self.value)}"


@dataclass(frozen=True, slots=True)
class Template:
    """Topics by a glob of their names, events by tags. Made by `parse`; `str` gives its one normal spelling."""

    topics: str
    tags: tuple[Tag, ...] = ()

    @classmethod
    def parse(cls, text: str) -> Template:
        """FilterRejected, with the offset, for what is no template or too long for one."""
        _check_text(text)
        glob, start = ANY, 0
        match = _GLOB.match(text)
        if match is not None:
            glob, start = match["glob"], match.end()
            if len(glob) > MAX_GLOB_LENGTH:
                raise FilterRejected("limit", f"a topic's part has at most {MAX_GLOB_LENGTH} characters", at=0)
            # A run of stars says what one says.
            glob = re.sub(r"\*+", ANY, glob)
            if match["more"] is None:
                return cls(glob)
        elif not text.strip():
            raise FilterRejected("syntax", "a template is empty", at=0, hint=f"write {ANY} for everything")
        template = cls(glob, _tags(text, start))
        # Quotes are doubled in the normal spelling, which is the one that travels.
        _check_text(str(template))
        return template

    @property
    def every_event(self) -> bool:
        """Whether the topic alone decides: there are no tags to ask an event for."""
        return not self.tags

    # --- topics -------------------------------------------------------------------------------------

    def admits_topic(self, name: str) -> bool:
        """Whether the template is for a topic of that name."""
        return _glob_matches(self.topics, name)

    # --- events -------------------------------------------------------------------------------------

    def admits(self, attributes: Mapping[str, Value]) -> bool:
        """The reference: whether an event with these values (an absent one is NULL) is one of the template's."""
        return all(_holds(tag, attributes.get(tag.name)) for tag in self.tags)

    def condition(self, schema: Schema | None = None) -> Condition:
        """The tags as a filter's tree; with a schema, typed against it, or FilterRejected saying what does not fit."""
        if not self.tags:
            return _every_event()
        return _tree(self.tags) if schema is None else _fitted(self.tags, schema)

    def within(self, wanted: Condition, schema: Schema) -> Condition:
        """What a subscriber asks for, joined to what it may have."""
        if not self.tags:
            return wanted
        from sealcast.filters.tree import And

        may = self.condition(schema)
        parts = [p for c in (may, wanted) for p in (c.items if isinstance(c, And) else (c,))]
        return And(tuple(parts), at=wanted.at, end=wanted.end)

    def admits_rows(self, columns: pa.RecordBatch, schema: Schema) -> NDArray[np.bool_]:
        """`admits` for a whole batch at once, by the vectorised evaluator."""
        from sealcast.filters.vector.evaluator import Evaluator

        return Evaluator(columns, schema).true(self.condition(schema))

    # --- order --------------------------------------------------------------------------------------

    def meet(self, other: Template, schema: Schema) -> Template | None:
        """The template for what both are for, of topics that are this one's; None when no event is."""
        found = {tag.name: tag for tag in self.tags}
        for tag in other.tags:
            mine = found.get(tag.name)
            if mine is None or _tag_covers(mine, tag, schema):
                found[tag.name] = tag
            elif not _tag_covers(tag, mine, schema):
                return None
        return Template(self.topics, tuple(found.values()))

    def __str__(self) -> str:
        tags = ", ".join(map(str, self.tags))
        if not tags:
            return self.topics
        return tags if self.topics == ANY else f"{self.topics}; {tags}"


EVERYTHING: Final = Template(ANY)


# --- reading ------------------------------------------------------------------------------------------


def _check_text(text: str) -> None:
    try:
        size = len(text.encode())
    except UnicodeEncodeError as error:
        raise FilterRejected("syntax", "a template is not valid Unicode (a lone surrogate)", at=error.start) from None
    if size > MAX_TEMPLATE_BYTES:
        raise FilterRejected("limit", f"a template takes at most {MAX_TEMPLATE_BYTES} bytes, not {size}", at=0)


def _tags(text: str, start: int) -> tuple[Tag, ...]:
    # Trees of filters take a while to import, every command loads this file, and most templates have no tags.
    from sealcast.filters.formats import parse_tags
    from sealcast.filters.tree import And

    tree = parse_tags(text, start)
    items = tree.items if isinstance(tree, And) else (tree,)
    if len(items) > MAX_TAGS:
        raise FilterRejected("limit", f"a template has at most {MAX_TAGS} tags", at=items[MAX_TAGS].at)
    found: dict[str, Tag] = {}
    for item in items:
        tag, bare = _tag(item)
        if bare and tag.value is not None and ";" in tag.value:
            raise FilterRejected(
                "syntax", "a semicolon ends the topic's part, which comes first", at=item.at, hint="quote the value"
            )
        if tag.name in found:
            raise FilterRejected("syntax", f"{tag.name!r} stands twice: one of them would be idle", at=item.at)
        found[tag.name] = tag
    return tuple(found.values())


def _tag(item: Condition) -> tuple[Tag, bool]:
    """The tag, and whether its value was written without quotes."""
    from sealcast.filters.tree import Compare, Comparison, IsNull, Literal, Name

    match item:
        case IsNull(Name(name), True):
            return Tag(name, None), True
        case Compare(Comparison.EQ, Name(name), Literal(str(value)) as literal):
            return Tag(name, value), literal.text is not None
    raise FilterRejected("syntax", "a tag should stand here", at=item.at, hint="write NAME=VALUE or NAME=*")


def _quoted(value: str) -> str:
    return "'" + value.replace("'", "''") + "'"


# --- globs --------------------------------------------------------------------------------------------


def _glob_matches(glob: str, name: str) -> bool:
    """Leftmost places for all parts but the last: linear, nothing is ever tried twice."""
    first, *rest = glob.split(ANY)
    if not rest:
        return name == glob
    *middle, last = rest
    if len(name) < len(first) + len(last) or not name.startswith(first) or not name.endswith(last):
        return False
    at, end = len(first), len(name) - len(last)
    for part in middle:
        found = name.find(part, at, end)
        if found < 0:
            return False
        at = found + len(part)
    return True


# --- tags ---------------------------------------------------------------------------------------------


@lru_cache(maxsize=1)
def _every_event() -> Condition:
    from sealcast.filters.tree import Literal, Truth

    return Truth(Literal(True))


def _tree(tags: tuple[Tag, ...]) -> Condition:
    from sealcast.filters.tree import And, Compare, Comparison, IsNull, Literal, Name

    items: list[Condition] = [
        IsNull(Name(t.name), True)
        if t.value is None
        else Compare(Comparison.EQ, Name(t.name), Literal(t.value, text=t.value))
        for t in tags
    ]
    return items[0] if len(items) == 1 else And(tuple(items))


@lru_cache(maxsize=1024)
def _fitted(tags: tuple[Tag, ...], schema: Schema) -> Condition:
    from sealcast.filters.check import fit  # most tokens have no tags, and every command loads this file

    return fit(_tree(tags), schema)


def _tag_covers(tag: Tag, other: Tag, schema: Schema) -> bool:
    if tag.value is None or tag.value == other.value:
        return True
    if other.value is None:
        return False
    mine, theirs = _fitted((tag,), schema), _fitted((other,), schema)
    return mine == theirs


def _holds(tag: Tag, value: Value) -> bool:
    """A value and a tag's text, read as what the value is."""
    if value is None or tag.value is None:
        return value is not None
    match value:
        case str():
            return value == tag.value
        case bool():
            return tag.value.lower() == ("true" if value else "false")
        case datetime():
            return _moment(tag.value) == value
        case float():
            return _read(Attribute(tag.name, Type.FLOAT), tag.value) == value
        case _:
            number = _decimal(tag.value)
            return number is not None and number == value


def _decimal(text: str) -> Decimal | None:
    try:
        number = Decimal(text)
    except InvalidOperation:
        return None
    return number if number.is_finite() else None


def _read(attribute: Attribute, text: str) -> Value:
    try:
        return attribute.parse(_decimal(text))
    except EventRejected:
        return None


def _moment(text: str) -> datetime | None:
    try:
        return parse_timestamp(Decimal(text) if text.isdecimal() else text, 0)
    except FilterRejected:
        return None
