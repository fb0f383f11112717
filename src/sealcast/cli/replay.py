"""sealcast replay: a span of the past for a reader, sealed for it anew by its rights of now."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from sealcast.cli import talk
from sealcast.cli.times import exact_moment, microseconds, moment
from sealcast.errors import Misuse

if TYPE_CHECKING:
    from sealcast.protections.recall import Recalled
    from sealcast.trust.realm.topics import Topic

app = talk.Commands()


@app.command(
    epilog="Example: sealcast replay quotes --as alice --filter 'price > 100' --from 2026-08-01 --to 2026-08-02"
)
def replay(
    topic: Annotated[str, typer.Argument(metavar="TOPIC")],
    as_: talk.AsOption,
    filter: Annotated[str, typer.Option(metavar="TEXT", help="What to replay; its right may say less.")],
    from_: Annotated[str, typer.Option("--from", metavar="TIME", help="What was delivered at this time or later.")],
    to: Annotated[str | None, typer.Option(metavar="TIME", help="And before this [default: now].")] = None,
    max_: Annotated[
        int | None,
        typer.Option("--max", metavar="N", min=1, help="End with the batch that has the Nth event [default: 100000]."),
    ] = None,
) -> None:
    """Replay a span of time for a reader, also of events that it was not subscribed to then.

    The reader must have the right to subscribe now; what its right's template leaves out it does not get. The events
    are sealed once more, for this reader alone, with the broker's secrets; that is kept on record (`sealcast audit
    --received`). A mailbox and its cursor are not touched. What was delivered to the reader itself, `sealcast sub
    --from TIME --to TIME` shows without the broker.

    On topics whose brokers cannot read, the filter is sealed with the reader's keys, and brokers match it as they match
    subscriptions. Events of an epoch whose keys the reader never got are left out.
    """
    from sealcast.cli.sub import describe
    from sealcast.clients.replayed import replayed_events
    from sealcast.protections.frame_steps import MatchingStep
    from sealcast.protections.port import client_side
    from sealcast.protections.recall import MAX_EVENTS, recall
    from sealcast.protections.steps import StepName

    here = talk.open_realm()
    state = here.state()
    state.entity(as_)
    about = state.topic(topic)
    _refuse_lacking(about)
    broker = state.home_of(about.name, as_)
    first, last = microseconds(from_, "--from"), here.clock() if to is None else microseconds(to, "--to")
    with talk.about_filter(filter):
        asks = client_side(about.protection).asks_of_past(here, topic, as_, filter)
        step = MatchingStep.of(StepName(str(here.paths.root), topic, broker))
        found = recall(step, as_, asks, first, last, MAX_EVENTS if max_ is None else max_)
    done = found.replayed
    events = map(describe, replayed_events(here, topic, broker, done))
    if talk.given.json:
        said = {"topic": topic, "reader": as_, "filter": filter, "template": done.template}
        span = {"from": moment(first), "to": moment(last), "version": done.version}
        rest = {"next": _next(found), "closed_epochs": found.closed_epochs}
        talk.emit(said | span | rest | {"events": list(events)})
        return
    talk.say_lines(events)
    talk.note(f"{done.events} events replayed for {as_!r}, by its rights of now (version {done.version})")
    if found.closed_epochs:
        epochs = ", ".join(map(str, found.closed_epochs))
        talk.note(f"events of epochs that {as_!r} has no keys of were left out: {epochs}")
    if found.next_us is not None:
        talk.note(f"there is more: go on with the same command and --from {_next(found)}")


def _next(found: Recalled) -> str | None:
    return None if found.next_us is None else exact_moment(found.next_us)


def _refuse_lacking(topic: Topic) -> None:
    """Misuse where the topic's protection cannot replay."""
    why = topic.protection.lacks.get("replay")
    if why is not None:
        raise Misuse(
            f"topic {topic.name!r} is {topic.protection.name}: {why}",
            hint=f"what can be seen: sealcast status, explain {topic.name}",
        )
