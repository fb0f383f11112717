"""sealcast replay: a span of the past for a reader, sealed for it anew by its rights of now."""

from __future__ import annotations

from typing import Annotated

import typer

from sealcast.cli import overlay, talk
from sealcast.cli.times import microseconds, moment

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
) -> None:
    """Replay a span of time for a reader, also of events that it was not subscribed to then.

    The reader must have the right to subscribe now; what its right's template leaves out it does not get. The events
    are sealed once more, for this reader alone, with the broker's secrets; that is kept on record (`sealcast audit
    --received`). A mailbox and its cursor are not touched. What was delivered to the reader itself, `sealcast sub
    --from TIME --to TIME` shows without the broker.
    """
    from sealcast.cli.sub import describe
    from sealcast.protections.endpoint.client import replayed_events
    from sealcast.protections.endpoint.recall import recall
    from sealcast.protections.frame_steps import FramesStep
    from sealcast.protections.steps import StepName

    here = talk.open_realm()
    state = here.state()
    state.entity(as_)
    overlay.refuse_blind(state.topic(topic), "seal its past once more")
    broker = state.home_of(state.topic(topic).name, as_)
    first, last = microseconds(from_, "--from"), here.clock() if to is None else microseconds(to, "--to")
    with talk.about_filter(filter):
        step = FramesStep.of(StepName(str(here.paths.root), topic, broker))
        done = recall(step, as_, filter, first, last)
    events = map(describe, replayed_events(here, topic, broker, done))
    if talk.given.json:
        about = {"topic": topic, "reader": as_, "filter": filter, "template": done.template}
        span = {"from": moment(first), "to": moment(last), "version": done.version}
        talk.emit(about | span | {"events": list(events)})
        return
    talk.say_lines(events)
    talk.note(f"{done.events} events replayed for {as_!r}, by its rights of now (version {done.version})")
