"""sealcast sub: a subscriber's events -> stdout, one JSON object a line, or one line by a template."""

from __future__ import annotations

import base64
import dataclasses
import re
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Annotated, Final

import typer

from sealcast.cli import talk
from sealcast.cli.times import microseconds, since
from sealcast.cli.tracing import TracesTo, traces_to

if TYPE_CHECKING:
    from sealcast.clients.subscriber import Subscriber
    from sealcast.errors import CannotOpen
    from sealcast.model.event import OpenedEvent, Position
    from sealcast.trust.handles import EntityRealm

Write = Callable[[Sequence["OpenedEvent"]], None]
Shown = Callable[["OpenedEvent"], dict[str, object]]
app = talk.Commands()

EVENTS_PER_ACK: Final = 1_000
WAIT_SECONDS: Final = 1.0
MAX_DELAY_US: Final = 60_000_000
_DELAY: Final = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|s)")

FilterOption = Annotated[
    str | None, typer.Option(metavar="TEXT", help="Subscribe first, unless it has this filter already.")
]
FromOption = Annotated[
    str | None,
    typer.Option(
        "--from",
        metavar="PLACE",
        help="Instead of at the cursor: so long ago (90s, 15m, 1h, 7d), a time (2026-03-01, 2026-03-01T12:00Z), "
        "a number of deliveries (0: all), an event, start or end.",
    ),
]
CountOption = Annotated[
    int | None, typer.Option("--count", "--max", metavar="N", min=1, help="Stop after so many events.")
]
FormatOption = Annotated[
    str | None,
    typer.Option(
        metavar="TEMPLATE",
        help="A line of text instead of JSON: '{publisher} {attributes[symbol]} {payload}'. A wrong name lists all.",
    ),
]
CloudEventsOption = Annotated[bool, typer.Option("--cloudevents", help="Print CloudEvents 1.0 in structured JSON.")]
GroupOption = Annotated[
    str | None,
    typer.Option(
        metavar="NAME", help="Share the events with all who name this group; each publisher's go to one at a time."
    ),
]
ToOption = Annotated[
    str | None, typer.Option(metavar="TIME", help="Only what was delivered before this time; the cursor stays.")
]
SpacingOption = Annotated[
    str | None,
    typer.Option(
        metavar="DELAY",
        help="With --follow: hold events back for DELAY (200ms, 2s), and print them as far apart as published.",
    ),
]
FollowOption = Annotated[bool, typer.Option("--follow", "-f", help="Wait for more, until Ctrl-C.")]
AckOption = Annotated[bool, typer.Option("--ack/--no-ack", help="Move the cursor past what was printed.")]
DeadOption = Annotated[
    bool, typer.Option("--dead-letters", help="Put aside what does not open, and go on: see `sealcast dead-letters`.")
]
SkipOption = Annotated[bool, typer.Option("--skip-unopenable", help="Report what does not open, and go on.")]


@app.command(
    epilog="""Example: sealcast sub quotes --as alice --filter "symbol = 'IBM'" --follow; """
    "or: sealcast sub quotes --as alice --from 1h --count 10 --format '{publisher} {attributes[symbol]} {payload}'"
)
def sub(
    topic: Annotated[str, typer.Argument(metavar="TOPIC")],
    as_: talk.AsOption,
    filter: FilterOption = None,
    from_: FromOption = None,
    to: ToOption = None,
    follow: FollowOption = False,
    count: CountOption = None,
    ack: AckOption = True,
    skip: SkipOption = False,
    spacing: SpacingOption = None,
    format: FormatOption = None,
    cloudevents: CloudEventsOption = False,
    group: GroupOption = None,
    dead_letters: DeadOption = False,
    key_file: talk.KeyFileOption = None,
    traces: TracesTo = None,
) -> None:
    """Open the events a subscriber gets, one JSON object a line, from its durable cursor on.

    Lines have position, publisher, published_at, boot, sequence, attributes, content_type and payload (payload_base64
    when it is not text). Publisher, boot and sequence together name an event. Events are acknowledged once their lines
    are written, and not printed again. With --json: one document {"events": [...]}.

    --from leaves the cursor where it is. Its times are when an event was delivered, not when it was published.

    A mailbox has one reading process, unless all of them name a --group. A group has a place of its own: --from says
    where a new one begins. What a member got and did not acknowledge goes to another one when it ends.
    """
    from sealcast.cli.subscription import warn_of_suspensions
    from sealcast.clients.subscriber import Subscriber
    from sealcast.protections.port import client_side

    _refuse_contradictions(follow, to, spacing, format, cloudevents)
    _refuse_in_groups(group, to, spacing, ack)
    start = None if from_ is None else since(from_) or from_
    until = None if to is None else microseconds(to, "--to")
    ack = ack and to is None  # a look at the past is no reason to skip what lies before it
    delay_us = None if spacing is None else _delay_us(spacing)
    here, failed = talk.open_entity_realm(as_, key_file), list[str]()
    shown = _shown(topic, cloudevents)
    write = _writer(here, topic, format, shown)
    if filter is not None:
        _ensure(topic, as_, filter)

    def report(position: Position, error: CannotOpen) -> None:
        failed.append(str(position))
        talk.warn(f"event {position} does not open: {error.message}")

    skipped = report if skip or dead_letters else None
    warn_of_suspensions(here, topic, as_)
    with (
        client_side(here.state().topic(topic).protection).key_asker(here, topic, as_) as ask,
        traces_to(traces) as traced,
        Subscriber(
            here,
            topic,
            as_,
            from_=start,
            until_us=until,
            unopenable=skipped,
            ask=ask,
            traces=traced,
            group=group,
            peek=not ack,
            dead_letters=dead_letters,
        ) as subscriber,
    ):
        if subscriber.trouble is not None:
            talk.warn(f"its broker was not told what is wanted: {subscriber.trouble.message}")
        if talk.given.json:
            _emit(subscriber, count, ack, failed, shown)
        elif delay_us is not None:
            _print_spaced(subscriber, write, delay_us, count, ack)
        else:
            _print(subscriber, write, follow, count, ack)
        _tell(subscriber)


def _emit(subscriber: Subscriber, count: int | None, ack: bool, failed: Sequence[str], shown: Shown) -> None:
    """One document of all events. `failed` are those that did not open by the time that it is written."""
    events = _collect(subscriber, count)
    told = {"unopenable": failed, "dropped": dataclasses.asdict(subscriber.dropped)}
    talk.emit({"events": [shown(e) for e in events], **told})
    if ack:
        subscriber.ack()
    if failed:
        raise typer.Exit(1)


def _tell(subscriber: Subscriber) -> None:
    """What its owner should know of deliveries that were passed over."""
    dropped = subscriber.dropped
    for publisher, count in sorted(dropped.poisoned.items()):
        talk.warn(
            f"{count} passed over that never open: {publisher!r} signed them, or a broker on the way altered them"
        )
    if dropped.misrouted:
        told = "; its broker was told, and `sealcast audit` shows it" if subscriber.reported else ""
        talk.warn(f"{dropped.misrouted} passed over that no filter asks for: a broker above sent them here{told}")
    if dropped.missed:
        talk.warn(
            f"{talk.counted(dropped.missed, 'event')} missed: removed before being read, by the topic's retention or "
            "because they were forgotten (`sealcast topic show` says how long it keeps them)"
        )
    if dropped.perhaps_missed:
        talk.warn(
            f"up to {talk.counted(dropped.perhaps_missed, 'event')} more may be missing: a broker above removed them "
            "before the next one on their way took them, and nobody can tell which of them were for this reader"
        )
    if dropped.repeated:
        talk.warn(f"{dropped.repeated} passed over that were delivered before: a broker repeats them")


def _refuse_contradictions(
    follow: bool, to: str | None, spacing: str | None, format: str | None, cloudevents: bool
) -> None:
    if talk.given.json and follow:
        raise typer.BadParameter("one document cannot follow: leave --json away, lines are JSON already")
    if to is not None and follow:
        raise typer.BadParameter("--follow has no end, --to is one: give one of them")
    if spacing is not None and not follow:
        raise typer.BadParameter("spacing is for a stream: add --follow")
    if talk.given.json and format is not None:
        raise typer.BadParameter("--json prints a document, --format lines of text: give one of them")
    if cloudevents and format is not None:
        raise typer.BadParameter("--cloudevents prints JSON, --format lines of text: give one of them")


def _refuse_in_groups(group: str | None, to: str | None, spacing: str | None, ack: bool) -> None:
    if group is not None and (to is not None or spacing is not None or not ack):
        raise typer.BadParameter("--group is for work that is done once: leave --to, --spacing and --no-ack away")


def _writer(here: EntityRealm, topic: str, format: str | None, shown: Shown) -> Write:
    """What prints events: as JSON Lines, or by a template, which is checked now."""
    if format is None:
        return lambda events: talk.say_lines(map(shown, events))
    from sealcast.cli.templates import LineTemplate

    template = LineTemplate(format, here.state().topic(topic).schema)

    def write(events: Sequence[OpenedEvent]) -> None:
        if events:
            talk.say("\n".join(map(template.line, events)))

    return write


def _shown(topic: str, cloudevents: bool) -> Shown:
    """An event as JSON: in our own words, or as a CloudEvent."""
    if not cloudevents:
        return describe
    from sealcast.model.cloudevents import from_event

    return lambda event: from_event(event, topic)


def describe(event: OpenedEvent) -> dict[str, object]:
    """An opened event as JSON has it."""
    from sealcast.model.schema import value_to_json

    body: dict[str, object] = {
        "position": str(event.position),
        "publisher": event.publisher,
        "published_at": value_to_json(event.published_at),
        "boot": event.boot.hex(),
        "sequence": event.sequence,
        "attributes": {name: value_to_json(value) for name, value in event.attributes.items()},
        "content_type": event.content_type,
    }
    try:
        body["payload"] = event.payload.decode()
    except UnicodeDecodeError:
        body["payload_base64"] = base64.b64encode(event.payload).decode()
    return body


def _ensure(topic: str, subscriber: str, filter: str) -> None:
    from sealcast.cli.subscription import subscribe
    from sealcast.clients.realm import side_of

    here = talk.open_realm(afar=True)
    side = side_of(here, topic)
    own = [each.filter for each in side.listed(here, topic, subscriber)]
    if filter not in own:
        made, cost = subscribe(here, topic, subscriber, filter), side.cost(filter, here.state().topic(topic).schema)
        words = f" ({cost.words})" if cost.words else ""
        talk.note(f"subscription {made.id!r} added{words}; it counts from the next batch on")
    others = sum(each != filter for each in own)
    if others:
        talk.note(f"{subscriber!r} has {others} other subscription{'s' * (others > 1)} here: their events come too")


def _collect(subscriber: Subscriber, limit: int | None) -> list[OpenedEvent]:
    events: list[OpenedEvent] = []
    while more := subscriber.poll(_share(limit, len(events))):
        events += more
    return events


def _print(subscriber: Subscriber, write: Write, follow: bool, limit: int | None, ack: bool) -> None:
    printed = 0
    while limit is None or printed < limit:
        events = subscriber.poll(_share(limit, printed), WAIT_SECONDS if follow else 0.0)
        if not events and not follow:
            break
        # Written first, acknowledged second: a reader that goes away in between gets them again.
        write(events)
        printed += len(events)
        if ack:
            subscriber.ack()


def _print_spaced(subscriber: Subscriber, write: Write, delay_us: int, limit: int | None, ack: bool) -> None:
    from sealcast.clients.jitter import JitterBuffer, SpacedReader

    reader = SpacedReader(subscriber, JitterBuffer(delay_us), limit=limit)
    for events in reader.follow():
        write(events)
        if ack:
            reader.ack()


def _delay_us(text: str) -> int:
    found = _DELAY.fullmatch(text)
    delay = 0 if found is None else round(float(found[1]) * {"ms": 1_000, "s": 1_000_000}[found[2]])
    if not 0 < delay <= MAX_DELAY_US:
        raise typer.BadParameter(f"a delay is a number of ms or s above 0 and up to a minute, not {text!r}")
    return delay


def _share(limit: int | None, done: int) -> int:
    return EVENTS_PER_ACK if limit is None else min(EVENTS_PER_ACK, limit - done)
