"""sealcast pub: stdin or a file -> events, a line or a row each; or one event from the words of the command."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from sealcast.cli import talk
from sealcast.cli.tracing import TracesTo, traces_to
from sealcast.errors import SealcastError

if TYPE_CHECKING:
    from sealcast.cli.pub_lines import LineBatch
    from sealcast.clients.publisher import Publisher
    from sealcast.model.schema import Schema

app = talk.Commands()

ERRORS_KEPT: Final = 100


class Format(StrEnum):
    JSONL = "jsonl"
    CSV = "csv"
    PARQUET = "parquet"
    ARROW = "arrow"


#: By the ending of a file's name; any other is JSON Lines.
_ENDINGS: Final = {
    ".csv": Format.CSV,
    ".parquet": Format.PARQUET,
    ".arrow": Format.ARROW,
    ".arrows": Format.ARROW,
    ".feather": Format.ARROW,
    ".ipc": Format.ARROW,
}


@app.command(
    epilog="""Example: echo '{"attributes": {"symbol": "IBM", "price": 101.5}, "payload": "hello"}' | """
    "sealcast pub quotes --as nyse; or: sealcast pub quotes --as nyse --file quotes.parquet; or one event: "
    "sealcast pub quotes --as nyse symbol=IBM price=118 --payload hello"
)
def pub(
    topic: Annotated[str, typer.Argument(metavar="TOPIC")],
    as_: talk.AsOption,
    words: Annotated[
        list[str] | None, typer.Argument(metavar="[NAME=VALUE]...", help="One event: its attributes.")
    ] = None,
    payload: Annotated[str | None, typer.Option(metavar="TEXT", help="One event: its payload.")] = None,
    file: Annotated[Path | None, typer.Option(metavar="FILE", help="Read this instead of stdin.")] = None,
    format: Annotated[
        Format | None, typer.Option(help="What the input is; without it, the ending of FILE says so, or it is jsonl.")
    ] = None,
    cloudevents: Annotated[
        bool, typer.Option("--cloudevents", help="Lines are CloudEvents 1.0 in structured JSON.")
    ] = False,
    broker: Annotated[
        str, typer.Option(metavar="BROKER", help="Where to publish: a broker that serves the topic.")
    ] = "broker",
    readers: Annotated[
        str,
        typer.Option(metavar="FILTER", help="Let only these entities open the events: \"name LIKE 'ward-%'\"."),
    ] = "",
    key_file: talk.KeyFileOption = None,
    traces: TracesTo = None,
) -> None:
    """Publish events, one JSON object a line: {"attributes": {...}, "payload": text, "content_type"?}.

    A line without payload may be flat: {"symbol": "IBM", "price": 118}. Words such as symbol=IBM publish one event and
    read no input; symbol= is NULL.

    Binary payloads go in "payload_base64". CSV has a header, a column an attribute, and payload, payload_base64 and
    content_type if they exist; an empty field is NULL. Parquet and Arrow have the same columns, with a binary or string
    payload. Prints each event's position (partition/offset/row), when it is durable. A line or row that is no event, or
    that the topic's schema does not admit, is named and skipped; the others are published, and the exit code is 1.
    While a gateway cannot be reached, events are queued on this disk.

    With --cloudevents, a line is a CloudEvent. All of it is sealed as the payload; attributes of the topic's schema are
    taken from its attributes of the same name, or else from the members of its data.
    """
    from sealcast.clients.publisher import Publisher

    one = bool(words) or payload is not None
    if one and (file is not None or format is not None):
        raise typer.BadParameter(
            "NAME=VALUE and --payload are one event, --file and --format are input: give one of them"
        )
    if cloudevents and (one or format not in (None, Format.JSONL)):
        raise typer.BadParameter("--cloudevents are lines of JSON: leave NAME=VALUE, --payload and --format away")
    form = format or _ENDINGS.get(file.suffix.lower() if file is not None else "", Format.JSONL)
    if not one and file is None and form is Format.JSONL and sys.stdin.isatty():
        talk.note('a line each {"attributes": {...}, "payload": "text"}; end with Ctrl-D')
    job = _Job(readers, "event" if one else "line" if form in (Format.JSONL, Format.CSV) else "row")
    with (
        traces_to(traces) as traced,
        Publisher(talk.open_entity_realm(as_, key_file), topic, as_=as_, broker=broker, traces=traced) as publisher,
    ):
        schema = publisher.realm.state().topic(topic).schema
        total, batches = _one(words or [], payload, schema) if one else _opened(form, file, schema, cloudevents)
        with talk.progress("publishing", total) as bar, job.accounted():
            for batch in batches:
                job.publish(publisher, batch)
                if bar is not None:
                    bar.update(bar.task_ids[0], completed=batch.done)
            if job.queued:
                job.waiting = publisher.flush()
    job.report()


def _one(words: list[str], payload: str | None, schema: Schema) -> tuple[int, Iterator[LineBatch]]:
    from sealcast.cli.pub_lines import one_event

    return 1, iter([one_event(words, payload, schema)])


def _opened(
    form: Format, file: Path | None, schema: Schema, cloudevents: bool
) -> tuple[int | None, Iterator[LineBatch]]:
    """How much input there is, if that is known, and the input in batches."""
    from sealcast.cli import pub_lines, pub_tables

    if form is Format.PARQUET and not cloudevents:
        return pub_tables.parquet(file, schema)
    if form is Format.ARROW:
        return pub_tables.arrow(file, schema)
    descriptor = sys.stdin.fileno() if file is None else os.open(file, os.O_RDONLY)
    size = os.fstat(descriptor).st_size or None
    if cloudevents:
        return size, pub_lines.cloudevent_lines(descriptor, schema)
    if form is Format.CSV:
        return size, pub_lines.csv_lines(descriptor, schema)
    return size, pub_lines.json_lines(descriptor, schema)


class _Job:
    """What was read, published and refused so far."""

    def __init__(self, readers: str, unit: str) -> None:
        """`unit` is what input is counted in: lines, rows or events."""
        self._readers, self._unit = readers, unit
        self._positions: list[str] = []
        self._published = 0
        self._refused = 0
        self._errors: list[dict[str, object]] = []
        #: Events that could not be sent, and frames that still wait for the gateway at the end.
        self.queued = 0
        self.waiting = 0

    def publish(self, publisher: Publisher, batch: LineBatch) -> None:
        outcome = publisher.publish_admissible(batch.given, readers=self._readers)
        # The publisher counts within its batch; people count from the beginning of the input.
        refused = batch.refused + [(batch.numbers[refusal.index], refusal.error) for refusal in outcome.refusals]
        for number, why in sorted(refused, key=itemgetter(0)):
            self._refuse(number, why.message, why.attribute)
        self._published += len(outcome.positions)
        self.queued += outcome.queued
        if talk.given.json:
            self._positions += map(str, outcome.positions)
        elif outcome.positions:
            talk.say("\n".join(map(str, outcome.positions)))

    @contextmanager
    def accounted(self) -> Iterator[None]:
        """Says what was published before an error, which does not take it back."""
        try:
            yield
        except SealcastError:
            if self._published:
                talk.note(f"{self._published:,} published before this:")
            raise

    def _refuse(self, number: int, message: str, attribute: str | None) -> None:
        self._refused += 1
        if len(self._errors) < ERRORS_KEPT:
            self._errors.append({self._unit: number, "message": message, "attribute": attribute})
            talk.note(f"{self._unit} {number}: {message}")

    def report(self) -> None:
        if self._refused > len(self._errors):
            talk.note(f"... and {self._refused - len(self._errors):,} more {self._unit}s")
        if talk.given.json:
            talk.emit(
                {
                    "published": self._published,
                    "refused": self._refused,
                    "queued": self.queued,
                    "positions": self._positions,
                    "errors": self._errors,
                }
            )
        queued = f", {self.queued:,} queued" if self.queued else ""
        talk.note(f"{self._published:,} published{queued}" + (f", {self._refused:,} refused" if self._refused else ""))
        if self.waiting:
            talk.warn(
                f"{self.waiting:,} frames wait on this disk, because the gateway cannot be reached. The next `pub` of "
                "this entity on this topic sends them; their token must not have ended by then"
            )
        if self._refused:
            raise typer.Exit(1)
