"""What `sealcast match` reads: a schema, subscriptions and events, from files that others wrote.

Whatever is wrong with a line is said with the file, the line, the id and the place in the filter. An event off the
schema is no error here: refusing it is the publisher's part, and the run goes on without it.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any, Final, TypeVar

from sealcast.errors import FilterRejected, Rejected, SchemaRejected
from sealcast.filters.check import check
from sealcast.filters.parse import parse
from sealcast.model.event import Event
from sealcast.model.schema import Schema

#: An id as it stands in the file: it comes out in `pairs.parquet` as it went in.
Id = int | str
T = TypeVar("T")

#: A payload at its largest, in base64, and its attributes.
MAX_LINE_BYTES: Final = 4 << 20
MAX_SCHEMA_BYTES: Final = 4 << 20
MAX_ID_LENGTH: Final = 1024


@dataclass(frozen=True, slots=True)
class Asked:
    """A line of the subscriptions."""

    id: Id
    filter: str
    #: File and line.
    where: str = ""

    @property
    def name(self) -> str:
        """For whoever finds fault with the filter."""
        return f"{self.where}: subscription {self.id!r}" if self.where else f"subscription {self.id!r}"


@dataclass(frozen=True, slots=True)
class GivenEvent:
    """A line of the events."""

    id: Id
    event: Event


@dataclass(frozen=True, slots=True)
class Inputs:
    schema: Schema
    subscriptions: tuple[Asked, ...]
    events: tuple[GivenEvent, ...]
    #: What the authors of filters should know: that one can never match, say.
    warnings: tuple[str, ...] = ()


def read(schema: Path, subscriptions: Path, events: Path) -> Inputs:
    """All three files, checked; Rejected names the first thing that is wrong."""
    about = _read_schema(schema)
    warnings: list[str] = []

    def subscription(where: str, id: Id, body: dict[str, Any]) -> Asked:
        text = body.get("filter")
        if not isinstance(text, str):
            raise Rejected(f'{where}: subscription {id!r} has no filter: a line is {{"id": ..., "filter": text}}')
        asked = Asked(id, text, where)
        with naming(asked.name, text):
            warnings.extend(f"{asked.name}: {warned.message}" for warned in check(parse(text), about).warnings)
        return asked

    def event(where: str, id: Id, body: dict[str, Any]) -> GivenEvent:
        attributes = body.get("attributes")
        if not isinstance(attributes, dict):
            raise Rejected(f'{where}: event {id!r} has no attributes: a line is {{"id": ..., "attributes": {{...}}}}')
        return GivenEvent(id, Event(attributes, _payload(f"{where}: event {id!r}", body)))

    asked = tuple(_lines(subscriptions, "subscription", subscription))
    given = tuple(_lines(events, "event", event))
    warnings += [f"{path} is empty" for path, found in ((subscriptions, asked), (events, given)) if not found]
    return Inputs(about, asked, given, tuple(warnings))


def _read_schema(path: Path) -> Schema:
    with path.open("rb") as file:
        raw = file.read(MAX_SCHEMA_BYTES + 1)
    try:
        if len(raw) > MAX_SCHEMA_BYTES:
            raise ValueError(f"more than {MAX_SCHEMA_BYTES} bytes")
        return Schema.from_json(_json(raw))
    except ValueError as error:
        raise SchemaRejected(f"{path} is not JSON: {error}") from None
    except SchemaRejected as error:
        raise SchemaRejected(f"{path}: {error.message}", hint=error.hint) from None


@contextmanager
def naming(name: str, text: str) -> Iterator[None]:
    """Whatever is wrong with a filter is said with the subscription and the place in the text."""
    try:
        yield
    except FilterRejected as error:
        place = "" if error.at is None else f", at character {error.at}"
        named = FilterRejected(error.kind, f"{name}{place}: {error.message}", at=error.at, hint=error.hint)
        named.add_note(text)  # so that whoever shows it can point at the place
        raise named from None


def _payload(where: str, body: dict[str, Any]) -> bytes:
    text, encoded = body.get("payload"), body.get("payload_base64")
    if not isinstance(text, str | None) or not isinstance(encoded, str | None) or (text and encoded):
        raise Rejected(f"{where}: an event has a text as its payload or its payload_base64, or neither")
    try:
        return base64.b64decode(encoded, validate=True) if encoded is not None else (text or "").encode()
    except binascii.Error:
        raise Rejected(f"{where}: payload_base64 is not base64") from None
    except UnicodeEncodeError:
        raise Rejected(f"{where}: the payload is not valid Unicode (a lone surrogate)") from None


# --- lines ----------------------------------------------------------------------------------------------


def _lines(path: Path, what: str, make: Callable[[str, Id, dict[str, Any]], T]) -> Iterator[T]:
    """Every line that is not blank, made into what it says; ids are there and come once."""
    first: dict[str, int] = {}
    with path.open("rb") as file:
        for number, line in enumerate(_bounded(file, path), 1):
            if not line.strip():
                continue
            where = f"{path}:{number}"
            try:
                body = _json(line)
            except ValueError as error:
                raise Rejected(f"{where}: not JSON: {error}") from None
            if not isinstance(body, dict):
                raise Rejected(f"{where}: a line is a JSON object")
            id = _id(where, what, body.get("id"))
            # 1 and "1" are two ids in JSON and one in a column of texts: no file needs both.
            before = first.setdefault(str(id), number)
            if before != number:
                raise Rejected(f"{where}: {what} id {id!r} was given before, in line {before}")
            yield make(where, id, body)


def _bounded(file: Any, path: Path) -> Iterator[bytes]:
    number = 0
    while line := file.readline(MAX_LINE_BYTES + 1):
        number += 1
        if len(line) > MAX_LINE_BYTES:
            raise Rejected(f"{path}:{number}: a line has at most {MAX_LINE_BYTES} bytes")
        yield line


def _id(where: str, what: str, given: object) -> Id:
    if isinstance(given, int) and not isinstance(given, bool):
        return given
    if isinstance(given, str) and 0 < len(given) <= MAX_ID_LENGTH and not _surrogates(given):
        return given
    raise Rejected(f"{where}: a {what} needs an id, a text of 1 to {MAX_ID_LENGTH} characters or a whole number")


def _surrogates(text: str) -> bool:
    return not text.isascii() and any("\ud800" <= c <= "\udfff" for c in text)


def _json(raw: bytes) -> Any:
    """Strict JSON, numbers kept exact."""
    try:
        return json.loads(raw, parse_float=Decimal, parse_constant=_no_number)
    except RecursionError:
        raise ValueError("nested too deeply") from None


def _no_number(name: str) -> object:
    raise ValueError(f"{name} is no number in JSON")
