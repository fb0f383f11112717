"""sealcast dead-letters: events that a reader could not open or process, and put aside."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from sealcast.cli import talk
from sealcast.cli.times import moment
from sealcast.errors import CannotOpen, NotFound

if TYPE_CHECKING:
    from sealcast.log.dead_letters import DeadLetter, DeadLetters
    from sealcast.model.event import OpenedEvent
    from sealcast.trust.handles import EntityRealm

app = talk.group("Events that a reader could not open or process, and put aside.")

Topic = Annotated[str, typer.Argument(metavar="TOPIC")]
Places = Annotated[list[str] | None, typer.Argument(metavar="[EVENT]...", help="Only these; without any, all.")]


@app.command("list", epilog="Example: sealcast dead-letters list quotes --as alice")
def list_(topic: Topic, as_: talk.AsOption) -> None:
    """List a reader's dead letters: which event, when it was put aside, and why."""
    _, letters = _open(topic, as_)
    found = letters.all()
    rows = [(each.position, moment(each.at_us), each.publisher or "", each.code, each.why) for each in found]
    document = {"dead_letters": [{**asdict(each), "at": moment(each.at_us)} for each in found]}
    talk.answer_table(document, ["event", "put aside", "publisher", "code", "why"], rows, "nothing was put aside")


@app.command(epilog="Example: sealcast dead-letters replay quotes --as alice")
def replay(
    topic: Topic,
    as_: talk.AsOption,
    events: Places = None,
    keep: Annotated[bool, typer.Option("--keep", help="Keep the letters of events that were printed.")] = False,
) -> None:
    """Open dead letters again and print their events, as `sub` does.

    The letter of an event that was printed is removed, unless --keep says otherwise. One that still does not open is
    named, and kept, and the exit code is 1. The reader's cursor stays.
    """
    from sealcast.cli.sub import describe

    here, letters = _open(topic, as_)
    wanted = _wanted(letters, events)
    opened, failed = list[dict[str, object]](), list[dict[str, str]]()
    for letter in wanted:
        try:
            event = _opened(here, topic, as_, letter)
        except (CannotOpen, NotFound) as error:
            failed.append({"position": letter.position, "why": error.message})
            talk.warn(f"event {letter.position}: {error.message}")
            continue
        opened.append(describe(event))
        if not talk.given.json:
            talk.say_lines([opened[-1]])
        if not keep and not talk.given.json:
            letters.remove([letter.position])
    if talk.given.json:
        talk.emit({"events": opened, "failed": failed})
        if not keep:
            letters.remove([str(each["position"]) for each in opened])
    if not wanted:
        talk.note("nothing to replay")
    if failed:
        raise typer.Exit(1)


@app.command(epilog="Example: sealcast dead-letters remove quotes --as alice 0/17/3 --yes")
def remove(
    topic: Topic,
    as_: talk.AsOption,
    events: Places = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
) -> None:
    """Forget dead letters. Their events stay where they are, and are not handed out again."""
    _, letters = _open(topic, as_)
    gone = [each.position for each in _wanted(letters, events)]
    if gone and not yes:
        talk.confirm(f"{talk.counted(len(gone), 'dead letter')} of {as_!r} are forgotten, for good.")
    talk.answer({"removed": letters.remove(gone)}, f"{talk.counted(len(gone), 'dead letter')} removed")


def _open(topic: str, reader: str) -> tuple[EntityRealm, DeadLetters]:
    from sealcast.log.dead_letters import DeadLetters

    here = talk.open_entity_realm()
    state = here.state()
    about, who = state.topic(topic), state.entity(reader)
    return here, DeadLetters(here.paths.topic(about.name).dead_letters(who.name))


def _wanted(letters: DeadLetters, events: list[str] | None) -> list[DeadLetter]:
    """The letters of these events, or all. An event without a letter is named: it is a slip of the finger, and whoever
    made it must not take the command for done."""
    found = letters.all()
    known = {each.position for each in found}
    if unknown := [each for each in events or () if each not in known]:
        raise NotFound(f"no dead letter of event {', '.join(unknown)}: `sealcast dead-letters list` shows all")
    return [each for each in found if not events or each.position in events]


def _opened(here: EntityRealm, topic: str, reader: str, letter: DeadLetter) -> OpenedEvent:
    """The event of a letter, opened anew."""
    from sealcast.clients.subscriber import Subscriber
    from sealcast.protections.port import client_side

    with (
        client_side(here.state().topic(topic).protection).key_asker(here, topic, reader) as ask,
        Subscriber(here, topic, reader, from_=letter.position, peek=True, ask=ask) as subscriber,
    ):
        found = subscriber.poll(1)
    if not found or str(found[0].position) != letter.position:
        raise NotFound("it is not in the mailbox any more")
    return found[0]
