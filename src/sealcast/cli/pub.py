"""sealcast pub: stdin -> events, a line each."""

from __future__ import annotations

import base64
import binascii
import json as jsonlib
import os
import select
import sys
from collections.abc import Iterator
from decimal import Decimal
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from sealcast.cli import talk
from sealcast.errors import EventRejected

if TYPE_CHECKING:
    from sealcast.clients.publisher import Publisher
    from sealcast.model.event import Event

app = talk.Commands()

#: Lines that are published together, unless the input pauses before.
LINES_PER_BATCH: Final = 10_000
#: A payload at its largest, in base64, and its attributes.
MAX_LINE_BYTES: Final = 4 << 20
ERRORS_KEPT: Final = 100
_CHUNK: Final = 1 << 20
_FIELDS: Final = {"attributes", "payload", "payload_base64", "content_type"}
TEXT: Final = "text/plain; charset=utf-8"


@app.command(
    epilog="""Example: echo '{"attributes": {"symbol": "IBM", "price": 101.5}, "payload": "hello"}' | """
    "sealcast pub quotes --as nyse"
)
def pub(
    topic: Annotated[str, typer.Argument(metavar="TOPIC")],
    as_: talk.AsOption,
    file: Annotated[Path | None, typer.Option(metavar="FILE", help="Read this instead of stdin.")] = None,
    broker: Annotated[
        str, typer.Option(metavar="BROKER", help="Where to publish: a broker that serves the topic.")
    ] = "broker",
    readers: Annotated[
        str,
        typer.Option(metavar="FILTER", help="Let only these entities open the events: \"name LIKE 'ward-%'\"."),
    ] = "",
) -> None:
    """Publish events, one JSON object a line: {"attributes": {...}, "payload": text, "content_type"?}.

    Binary payloads go in "payload_base64". Prints each event's position (partition/offset/row), when it is durable.
    A line that is no event, or that the topic's schema does not admit, is named and skipped; the others are
    published, and the exit code is 1.
    """
    from sealcast.clients.publisher import Publisher

    if file is None and sys.stdin.isatty():
        talk.note('a line each {"attributes": {...}, "payload": "text"}; end with Ctrl-D')
    job = _Job(readers)
    descriptor = sys.stdin.fileno() if file is None else os.open(file, os.O_RDONLY)
    size = os.fstat(descriptor).st_size or None
    with (
        Publisher(talk.open_realm(), topic, as_=as_, broker=broker) as publisher,
        talk.progress("publishing", size) as bar,
    ):
        read = 0
        for batch in _batches(descriptor):
            job.publish(publisher, batch)
            read += sum(len(line) + 1 for line in batch)
            if bar is not None:
                bar.update(bar.task_ids[0], completed=read)
    job.report()


class _Job:
    """What was read, published and refused so far."""

    def __init__(self, readers: str) -> None:
        self._readers = readers
        self._line = 0
        self._positions: list[str] = []
        self._published = 0
        self._refused = 0
        self._errors: list[dict[str, object]] = []

    def publish(self, publisher: Publisher, lines: list[bytes]) -> None:
        events: list[Event] = []
        numbers, refused = list[int](), list[tuple[int, EventRejected]]()
        for line in lines:
            self._line += 1
            if not line.strip():
                continue
            try:
                events.append(parse(line))
                numbers.append(self._line)
            except EventRejected as error:
                refused.append((self._line, error))
        outcome = publisher.publish_admissible(events, readers=self._readers)
        # The publisher counts within its batch; people count lines.
        refused += [(numbers[refusal.index], refusal.error) for refusal in outcome.refusals]
        for number, why in sorted(refused, key=itemgetter(0)):
            self._refuse(number, why.message, why.attribute)
        self._published += len(outcome.positions)
        if talk.given.json:
            self._positions += map(str, outcome.positions)
        elif outcome.positions:
            talk.say("\n".join(map(str, outcome.positions)))

    def _refuse(self, line: int, message: str, attribute: str | None) -> None:
        self._refused += 1
        if len(self._errors) < ERRORS_KEPT:
            self._errors.append({"line": line, "message": message, "attribute": attribute})
            talk.note(f"line {line}: {message}")

    def report(self) -> None:
        if self._refused > len(self._errors):
            talk.note(f"... and {self._refused - len(self._errors):,} more lines")
        if talk.given.json:
            talk.emit(
                {
                    "published": self._published,
                    "refused": self._refused,
                    "positions": self._positions,
                    "errors": self._errors,
                }
            )
        talk.note(f"{self._published:,} published" + (f", {self._refused:,} refused" if self._refused else ""))
        if self._refused:
            raise typer.Exit(1)


def parse(line: bytes) -> Event:
    """One line of input as an event, numbers kept exact; EventRejected when it is none."""
    from sealcast.model.event import DEFAULT_CONTENT_TYPE, Event

    if len(line) > MAX_LINE_BYTES:
        raise EventRejected(f"the line has more than {MAX_LINE_BYTES} bytes")
    try:
        body = jsonlib.loads(line, parse_float=Decimal, parse_constant=_no_number)
    except (ValueError, RecursionError) as error:
        raise EventRejected(f"not JSON: {talk.json_trouble(error)}") from None
    if not isinstance(body, dict) or not isinstance(body.get("attributes"), dict):
        raise EventRejected('an event is {"attributes": {...}, "payload": text or "payload_base64": text}')
    unknown = sorted(set(body) - _FIELDS)
    if unknown:
        raise EventRejected(f"{unknown[0]!r} is no part of an event: it has {', '.join(sorted(_FIELDS))}")
    text, encoded, kind = body.get("payload"), body.get("payload_base64"), body.get("content_type")
    if not isinstance(text, str | None) or not isinstance(encoded, str | None) or not isinstance(kind, str | None):
        raise EventRejected("payload, payload_base64 and content_type are texts")
    if text is not None and encoded is not None:
        raise EventRejected("an event has a payload or a payload_base64, not both")
    try:
        payload = base64.b64decode(encoded, validate=True) if encoded is not None else (text or "").encode()
    except binascii.Error:
        raise EventRejected("payload_base64 is not base64") from None
    except UnicodeEncodeError:
        raise EventRejected("the payload is not valid Unicode (a lone surrogate)") from None
    return Event(body["attributes"], payload, kind or (DEFAULT_CONTENT_TYPE if text is None else TEXT))


def _no_number(name: str) -> object:
    raise ValueError(f"{name} is no number in JSON")


def _batches(descriptor: int) -> Iterator[list[bytes]]:
    """Lines in batches: full ones while input is plenty, whatever is there when it pauses, so that nothing waits."""
    lines, rest = list[bytes](), b""
    # Not `select`, which knows no descriptor above 1023: a program with many open files may call this, too.
    waiting = select.poll()
    waiting.register(descriptor, select.POLLIN)
    while True:
        if lines and (len(lines) >= LINES_PER_BATCH or not waiting.poll(0)):
            yield lines
            lines = []
        chunk = os.read(descriptor, _CHUNK)
        if not chunk:
            break
        *whole, rest = (rest + chunk).split(b"\n")
        lines += whole
        # Of a line that is too long, only that it is so need be remembered.
        rest = rest[: MAX_LINE_BYTES + 1]
    lines += [rest] if rest else []
    if lines:
        yield lines
