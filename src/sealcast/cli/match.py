"""sealcast match: events against subscriptions, sealed and opened, in a batch."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from time import monotonic
from types import FrameType
from typing import TYPE_CHECKING, Annotated, Final

import typer

from sealcast.cli import talk
from sealcast.model.protection import DEFAULT_PROTECTION, PROTECTIONS, with_setting

if TYPE_CHECKING:
    from sealcast.lab.match_outcome import MatchOutcome

app = talk.Commands(shared=talk.JSON_ONLY)

#: Of refused events and warnings, so many are shown.
SHOWN: Final = 20

SchemaFile = Annotated[
    Path,
    typer.Option("--schema", metavar="FILE", help='{"attributes": [{"name", "type", ...}]}'),
]
SubscriptionsFile = Annotated[
    Path,
    typer.Option("--subscriptions", metavar="FILE", help='A line each {"id", "filter"}.'),
]
EventsFile = Annotated[
    Path,
    typer.Option("--events", metavar="FILE", help='A line each {"id", "attributes"}.'),
]


@app.command(
    epilog="Example: sealcast match --schema schema.json --subscriptions subscriptions.jsonl --events events.jsonl "
    "--out result"
)
def match(
    schema: SchemaFile,
    subscriptions: SubscriptionsFile,
    events: EventsFile,
    protection: Annotated[
        str, typer.Option("--protection", metavar="NAME", help=f"How events are protected: {', '.join(PROTECTIONS)}.")
    ] = DEFAULT_PROTECTION.name,
    layers: Annotated[
        int | None,
        typer.Option(
            "--layers",
            metavar="R",
            help=f"Layers, for {' or '.join(with_setting('layers'))}: so many brokers keep it.",
        ),
    ] = None,
    profile: Annotated[
        str | None, typer.Option("--profile", metavar="A|P", help="For attribute: the profile [default: A].")
    ] = None,
    joint: Annotated[bool, typer.Option("--joint", help="For attribute: one space for all numbers.")] = False,
    out: Annotated[
        Path | None, typer.Option("--out", metavar="DIR", help="Write DIR/pairs.parquet (event, subscription).")
    ] = None,
) -> None:
    """Match events against subscriptions with the protection at work: keys, sealing, the pipeline on Spark, opening.

    A pair counts when the subscriber opened the event with its own keys. Events off the schema are named on stderr and
    left out. Everything happens in a private realm that is removed afterwards.

    Subscribers, publishers and brokers do what they do under that protection anywhere else. A filter that the
    protection cannot express is refused.
    """
    from sealcast.lab.match import STAGES, protection_named
    from sealcast.lab.match import match as run
    from sealcast.lab.match_input import read

    wanted = protection_named(protection, layers, None if profile is None else profile.upper(), joint or None)
    began = monotonic()
    inputs = read(schema, subscriptions, events)
    reading = monotonic() - began
    _some(inputs.warnings, talk.warn)
    with _ended_in_order(), _stages(len(STAGES)) as told:
        outcome = run(inputs, wanted, told=told)
    outcome = replace(outcome, seconds={"read": reading, **outcome.seconds, "total": monotonic() - began})
    _some(outcome.warnings, talk.warn)
    _some([f"event {r.id!r} refused: {r.message}" for r in outcome.refused], talk.note)
    written = outcome.write(out) if out is not None else None
    if not talk.emitted(outcome.summary()):
        _report(outcome, written)


def _report(outcome: MatchOutcome, written: Path | None) -> None:
    about = outcome.summary()
    talk.say(
        f"{about['pairs']:,} pairs: {about['matched_events']:,} of {about['events']:,} events reached somebody, "
        f"the widest {about['max_fanout']:,} of {about['subscriptions']:,} subscriptions"
        + (f"; {about['rejected']:,} refused" if about["rejected"] else "")
    )
    talk.say(f"each opened by its subscriber with its own keys, protection {outcome.protection}")
    talk.say("seconds: " + ", ".join(f"{stage} {taken:.1f}" for stage, taken in outcome.seconds.items()))
    if written is not None:
        talk.say(f"pairs are in {written}")


def _some(lines: list[str] | tuple[str, ...], say: Callable[[str], None]) -> None:
    for line in lines[:SHOWN]:
        say(line)
    if len(lines) > SHOWN:
        talk.note(f"... and {len(lines) - SHOWN:,} more like that")


@contextmanager
def _ended_in_order() -> Iterator[None]:
    """Being told to end is no reason to leave keys and events behind: it ends the way an interrupt does."""

    def end(number: int, frame: FrameType | None) -> None:
        sys.exit(128 + number)

    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


@contextmanager
def _stages(count: int) -> Iterator[Callable[[str], None]]:
    """A bar that moves from stage to stage, in front of a person."""
    with talk.progress("", count) as bar:
        done: list[str] = []

        def told(stage: str) -> None:
            if bar is not None:
                if stage not in done:
                    done.append(stage)
                bar.update(bar.task_ids[0], description=f"{stage:<8}", completed=len(done) - 1)

        yield told
