"""Lines of `sealcast pub`: JSON Lines and CSV, in batches by size and time, each line with its number; and the words
of one event on the command line.

In CSV, the first line names the columns: attributes, `payload` or `payload_base64`, `content_type`. An empty field is
NULL. What a field means, the type of its attribute says; a field that is no such value is left as it is, and refused
like the same text in JSON.
"""

from __future__ import annotations

import csv
import json as jsonlib
import os
import re
import select
import time
from base64 import b64decode
from binascii import Error as NotBase64
from collections.abc import Callable, Iterable, Iterator, Sequence
from decimal import Decimal
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from sealcast.cli import talk
from sealcast.errors import EventRejected, Misuse, Rejected

if TYPE_CHECKING:
    from sealcast.model.event import Event
    from sealcast.model.schema import Schema

#: What is published together at most, and how long the first line of a batch waits for others.
LINES_PER_BATCH: Final = 10_000
BYTES_PER_BATCH: Final = 16 << 20
LINGER_SECONDS: Final = 0.02
#: A payload at its largest, in base64, and its attributes.
MAX_LINE_BYTES: Final = 4 << 20
TEXT: Final = "text/plain; charset=utf-8"
_CHUNK: Final = 1 << 20
_FIELDS: Final = {"attributes", "payload", "payload_base64", "content_type"}
_NUMBER: Final = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d+)?", re.ASCII)
_BOOLS: Final = {"true": True, "false": False}


class LineBatch(NamedTuple):
    """Events, or a table of them, with the number of each in the input; and what is no event at all."""

    given: Any
    numbers: Sequence[int]
    refused: list[tuple[int, EventRejected]]
    #: How much of the input is read so far, in the unit of its progress bar.
    done: int


def json_lines(descriptor: int, schema: Schema) -> Iterator[LineBatch]:
    """An event a line; blank lines are passed over."""
    for first, lines, done in _batches(descriptor):
        numbered = ((number, line) for number, line in enumerate(lines, first) if line.strip())
        yield _parsed(numbered, partial(parse, schema=schema), done)


def cloudevent_lines(descriptor: int, schema: Schema) -> Iterator[LineBatch]:
    """A CloudEvent a line, in structured JSON."""
    from sealcast.model.cloudevents import to_event

    for first, lines, done in _batches(descriptor):
        numbered = ((number, line) for number, line in enumerate(lines, first) if line.strip())
        yield _parsed(numbered, lambda line: to_event(line, schema.names), done)


def one_event(words: Sequence[str], payload: str | None, schema: Schema) -> LineBatch:
    """One event from words such as symbol=IBM; an empty value is NULL, as in CSV."""
    attributes = dict[str, object]()
    for word in words:
        name, equals, value = word.partition("=")
        if not equals or name not in schema.by_name:
            raise Misuse(
                f"{word!r} is not NAME=VALUE with the name of an attribute",
                hint=f"the attributes are {', '.join(schema.names[:12])}; the payload is --payload TEXT",
            )
        if name in attributes:
            raise Misuse(f"attribute {name!r} is given twice")
        attributes[name] = _typed(schema, name, value)
    return _parsed([(1, attributes)], lambda given: _event(given, payload, None, None), 1)


def csv_lines(descriptor: int, schema: Schema) -> Iterator[LineBatch]:
    """An event a record, behind a header. A record with line breaks in its fields has the number of its first line."""
    csv.field_size_limit(MAX_LINE_BYTES)
    header: CsvHeader | None = None
    for first, lines, done in _whole_records(_batches(descriptor)):
        records = _records(first, lines)
        if header is None:
            named = next((row for _, row in records), None)
            if named is None:
                continue
            if isinstance(named, EventRejected):
                raise Misuse(f"the first line names no columns: {named.message}")
            header = CsvHeader(named, schema)
        yield _parsed(records, header.event, done)


def parse(line: bytes, schema: Schema) -> Event:
    """One line of JSON as an event, numbers kept exact; EventRejected when it is none.

    Flat lines have attributes alone. A line with "attributes" is never flat, whatever the schema names its own.
    """
    if len(line) > MAX_LINE_BYTES:
        raise EventRejected(f"the line has more than {MAX_LINE_BYTES} bytes")
    try:
        body = jsonlib.loads(line, parse_float=Decimal, parse_constant=_no_number)
    except (ValueError, RecursionError) as error:
        raise EventRejected(f"not JSON: {talk.json_trouble(error)}") from None
    if isinstance(body, dict) and body and "attributes" not in body and body.keys() <= schema.by_name.keys():
        return _event(body, None, None, None)
    if not isinstance(body, dict) or not isinstance(body.get("attributes"), dict):
        raise EventRejected(
            'an event is {"attributes": {...}, "payload": text or "payload_base64": text}, or flat, with attributes '
            f"alone ({', '.join(schema.names[:12])})"
        )
    unknown = sorted(set(body) - _FIELDS)
    if unknown:
        raise EventRejected(f"{unknown[0]!r} is no part of an event: it has {', '.join(sorted(_FIELDS))}")
    text, encoded, kind = body.get("payload"), body.get("payload_base64"), body.get("content_type")
    if not isinstance(text, str | None) or not isinstance(encoded, str | None) or not isinstance(kind, str | None):
        raise EventRejected("payload, payload_base64 and content_type are texts")
    return _event(body["attributes"], text, encoded, kind)


class CsvHeader:
    """The columns of a CSV input."""

    def __init__(self, names: Sequence[str], schema: Schema) -> None:
        from sealcast.model.event import own_column

        own = ["payload", "payload_base64", "content_type"]
        self._own = {name: own_column(name, schema.names) for name in own}
        self._names, self._schema = names, schema
        for name in names:
            if names.count(name) > 1:
                raise Misuse(f"the first line names column {name!r} twice")
            if name not in schema.by_name and name not in self._own.values():
                raise Misuse(
                    f"the first line names column {name!r}, which is neither an attribute "
                    f"({', '.join(schema.names[:12])}) nor one of {', '.join(self._own.values())}",
                    hint="rename or remove the column",
                )

    def event(self, row: list[str] | EventRejected) -> Event:
        if isinstance(row, EventRejected):
            raise row
        if len(row) != len(self._names):
            raise EventRejected(f"the line has {len(row)} fields, and the first line names {len(self._names)}")
        fields = dict(zip(self._names, row, strict=True))
        text, encoded, kind = (fields.pop(self._own[name], "") or None for name in self._own)
        attributes = {name: _typed(self._schema, name, field) for name, field in fields.items()}
        return _event(attributes, text, encoded, kind)


# --- inside -------------------------------------------------------------------------------------


def _typed(schema: Schema, name: str, field: str) -> object:
    """What a text means as a value of this attribute."""
    from sealcast.model.schema import MAX_NUMBER_DIGITS, Type

    kind = schema.by_name[name].type
    if not field:
        return None
    if kind is Type.BOOL:
        return _BOOLS.get(field.lower(), field)
    if kind is Type.STRING or len(field) > MAX_NUMBER_DIGITS or not _NUMBER.fullmatch(field):
        return field
    return int(field) if field.lstrip("+-").isdigit() else Decimal(field)


def _event(attributes: dict[str, object], text: str | None, encoded: str | None, kind: str | None) -> Event:
    from sealcast.model.event import DEFAULT_CONTENT_TYPE, Event

    if text is not None and encoded is not None:
        raise EventRejected("an event has a payload or a payload_base64, not both")
    try:
        payload = b64decode(encoded, validate=True) if encoded is not None else (text or "").encode()
    except NotBase64:
        raise EventRejected("payload_base64 is not base64") from None
    except UnicodeEncodeError:
        raise EventRejected("the payload is not valid Unicode (a lone surrogate)") from None
    return Event(attributes, payload, kind or (DEFAULT_CONTENT_TYPE if text is None else TEXT))


def _no_number(name: str) -> object:
    raise ValueError(f"{name} is no number in JSON")


def _parsed(numbered: Iterable[tuple[int, Any]], parse: Callable[[Any], Event], done: int) -> LineBatch:
    events, numbers, refused = list[Any](), list[int](), list[tuple[int, EventRejected]]()
    for number, line in numbered:
        try:
            events.append(parse(line))
            numbers.append(number)
        except EventRejected as error:
            refused.append((number, error))
    return LineBatch(events, numbers, refused, done)


def _batches(descriptor: int) -> Iterator[tuple[int, list[bytes], int]]:
    """Lines in batches, with the number of the first and how many bytes were read: full ones while input is plenty,
    whatever came within a moment when it is not, so that nothing waits for long."""
    lines, rest, first, read, held, due = list[bytes](), b"", 1, 0, 0, 0.0
    # Not `select`, which knows no descriptor above 1023: a program with many open files may call this, too.
    waiting = select.poll()
    waiting.register(descriptor, select.POLLIN)
    while True:
        if lines:
            full = len(lines) >= LINES_PER_BATCH or held >= BYTES_PER_BATCH
            if full or not waiting.poll(max(0.0, due - time.monotonic()) * 1000):
                yield first, lines, read
                first, lines, held = first + len(lines), [], 0
        chunk = os.read(descriptor, _CHUNK)
        if not chunk:
            break
        read += len(chunk)
        *whole, rest = (rest + chunk).split(b"\n")
        if whole and not lines:
            due = time.monotonic() + LINGER_SECONDS
        lines += whole
        held += sum(map(len, whole))
        # Of a line that is too long, only that it is so need be remembered.
        rest = rest[: MAX_LINE_BYTES + 1]
    lines += [rest] if rest else []
    if lines:
        yield first, lines, read


def _whole_records(batches: Iterator[tuple[int, list[bytes], int]]) -> Iterator[tuple[int, list[bytes], int]]:
    """The same lines, cut where no quoted field is open: quotes are even in number there."""
    begin, held, done, open_ = 1, list[bytes](), 0, False
    for _, lines, done in batches:
        end = len(held)
        for line in lines:
            if len(line) > MAX_LINE_BYTES:
                # Where it ends is not known: what follows could be inside of a quoted field of it.
                raise Rejected(f"line {begin + len(held)} has more than {MAX_LINE_BYTES} bytes; it ends the input")
            held.append(line)
            open_ ^= bool(line.count(b'"') & 1)
            if not open_:
                end = len(held)
        if end:
            yield begin, held[:end], done
            begin, held = begin + end, held[end:]
        if sum(map(len, held)) > BYTES_PER_BATCH:
            raise Misuse(
                f"a quoted field that begins in line {begin} does not end within {BYTES_PER_BATCH} bytes",
                hint='a quotation mark inside a field is written twice: ""',
            )
    if held:
        yield begin, held, done


def _records(first: int, lines: Sequence[bytes]) -> Iterator[tuple[int, Any]]:
    """Each record with the number of its first line: its fields, or why it has none."""
    texts = (_text(line, first == 1 and at == 0) for at, line in enumerate(lines))
    reader, before = csv.reader(texts, strict=True), 0
    while True:
        try:
            row: Any = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            row = EventRejected(f"not CSV: {error}")
        number, before = first + before, reader.line_num
        if row:
            yield number, row


def _text(line: bytes, very_first: bool) -> str:
    """With its end, which belongs to a quoted field that goes on. Bytes that are no UTF-8 stay what they are, and are
    refused where they stand."""
    raw = line.removeprefix(b"\xef\xbb\xbf") if very_first else line
    return raw.removesuffix(b"\r").decode("utf-8", "surrogateescape") + "\n"
