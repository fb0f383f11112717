"""sealcast subscription: add (one, or many from a file), list, move, remove."""

from __future__ import annotations

import shlex
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sealcast.cli import completing, talk
from sealcast.cli.asked_topics import AlsoTopics, Topics, asked
from sealcast.cli.times import moment
from sealcast.errors import NotFound

if TYPE_CHECKING:
    from sealcast.log.suspended import SuspensionNote
    from sealcast.protections.port import Interest
    from sealcast.trust.deployment import Realm
    from sealcast.trust.handles import EntityRealm

app = talk.Commands("Add, list, move and remove subscriptions.")

#: What stands for a filter that this machine does not know.
UNKNOWN = "(its subscriber's own)"
#: Of the lines of a file that are refused, so many are shown.
SHOWN = 20


@app.command(
    epilog="""Example: sealcast subscription add quotes --as alice --filter "symbol = 'IBM' AND price > 100" """,
    context_settings={"allow_extra_args": True},
)
def add(
    topic: Annotated[str, typer.Argument(metavar="TOPIC")],
    as_: Annotated[str | None, typer.Option("--as", metavar="ENTITY", help="The subscriber.")] = None,
    filter: Annotated[str | None, typer.Option(metavar="TEXT", help="What it asks for.")] = None,
    id: Annotated[str | None, typer.Option(help="A new id [default: the subscriber's name and a number].")] = None,
    file: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Many at once: JSON Lines or CSV with subscriber, filter and perhaps id."),
    ] = None,
    broker: Annotated[
        str | None, typer.Option(metavar="BROKER", help="Where a new subscriber is [default: the first].")
    ] = None,
) -> None:
    """Add a subscription: events of TOPIC that match the filter are sealed for the subscriber from the next batch on.

    Filters are SQL selectors (symbol = 'IBM' AND price BETWEEN 90 AND 110), or start with the name of another format
    (path:, tags:, regex:, xpath:). They are checked against the topic's schema.

    A file has a subscription a line: JSON such as {"filter": "price > 100", "subscriber": "alice", "id": "a-1"}, or,
    with a name that ends in .csv, columns of these names. --as names the subscriber of lines that name none. All lines
    are added, or none, and each that is refused is named with the reason.

    Where brokers cannot read, the filter stays with its subscriber, whose key file must be here: what goes out is
    encrypted labels. How many labels it takes is what it costs.
    """
    if talk.given.extra:
        text = " ".join(talk.given.extra)
        who = f" --as {as_}" if as_ is not None else " --as ENTITY"
        raise typer.BadParameter(
            f"{text!r} stands alone; a filter goes with --filter: "
            f"sealcast subscription add {shlex.quote(topic)}{who} --filter {shlex.quote(text)}"
        )
    if (file is None) == (filter is None) or (filter is not None and as_ is None):
        raise typer.BadParameter("give --as ENTITY and --filter TEXT, or --file FILE")
    here = talk.open_realm(afar=True)
    if filter is not None and as_ is not None:
        made = [subscribe(here, topic, as_, filter, id, broker)]
    else:
        assert file is not None
        from sealcast.cli.subscription_files import add_file

        made = add_file(here, topic, file, as_, broker)
        remark(made)
    if talk.given.json:
        talk.emit({"subscriptions": described(here, made)})
        return
    for each in made[:SHOWN]:
        talk.say(f"subscription {each.id!r} added: {each.subscriber!r} on {topic!r}{_at_what_cost(here, each)}")
    if len(made) > SHOWN:
        talk.say(f"... and {len(made) - SHOWN:,} more")


def subscribe(
    here: Realm, topic: str, subscriber: str, filter: str, id: str | None = None, broker: str | None = None
) -> Interest:
    """One subscription; a filter that can never be true is added, and remarked on.

    The subscriber asks for it by itself, with its own keys. Where those are not here, or it is to be at a broker that
    is named, it is left to whoever else can add it.
    """
    from sealcast.clients.realm import side_of

    here.state().entity(subscriber)
    side = side_of(here, topic)
    with talk.about_filter(filter):
        side.vet(filter, here.state().topic(topic))
        for each in here.remarks(topic, filter):
            talk.warn(each)
        if here.site.here and (broker is not None or not here.paths.entity_key(subscriber).exists()):
            (made,) = side.subscribe_many(here, topic, [(subscriber, filter, id)], broker=broker)
        else:
            with side.interests(here, topic, subscriber) as interests:
                made = interests.add(filter, id)
            if broker is not None and broker != made.broker:
                side.move(here, topic, subscriber, broker)
    remark([made])
    return made


def described(here: Realm, interests: Iterable[Interest]) -> list[dict[str, object]]:
    """Subscriptions as documents."""
    from sealcast.clients.realm import side_of

    state, documents = here.state(), list[dict[str, object]]()
    told: dict[str, dict[str, SuspensionNote]] = {}
    for each in interests:
        if each.topic not in told:
            told[each.topic] = suspensions(here, each.topic)
        text, suspended = each.filter, told[each.topic].get(each.id or "")
        schema = state.topic(each.topic).schema
        documents.append(
            {
                "id": each.id,
                "topic": each.topic,
                "subscriber": each.subscriber,
                "filter": text,
                **({} if text is None else side_of(here, each.topic).cost(text, schema).facts),
                "slot": state.slot_of(each.topic, each.subscriber),
                "authorised": state.may_subscribe(each.topic, each.subscriber),
                "broker": each.broker,
                **({} if suspended is None else {"suspended": suspended._asdict()}),
            }
        )
    return documents


def suspensions(here: EntityRealm, topic: str) -> dict[str, SuspensionNote]:
    """By subscription, those that got nothing of some pieces: their filters ask for too much work, or cannot be
    read."""
    serving, site = here.state().serving(topic), here.site
    # Where the realm is, nobody asks brokers on other machines in their subscribers' names.
    found = [site.suspended(topic, broker) for broker in serving if not site.here or site.is_local(broker)]
    return {id: note for each in found for id, note in each.items()}


def warn_of_suspensions(here: EntityRealm, topic: str, subscriber: str | None = None) -> None:
    """Tells owners what they did not get, and why."""
    living = here.state().topic_state(topic).subscriptions
    for id, told in suspensions(here, topic).items():
        if id in living and subscriber in (None, living[id].subscriber):
            talk.warn(
                f"subscription {id!r} was suspended for {told.pieces:,} pieces, the last at {moment(told.last_us)}: "
                f"the filters of {living[id].subscriber!r} ask for more work than they may, or the broker cannot read "
                "it (`sealcast why` says which). Remove it, or narrow it with bounds, such as symbol = 'IBM' AND ..."
            )


def _at_what_cost(here: Realm, interest: Interest) -> str:
    """Where a filter costs something, who bears it and how much; otherwise nothing."""
    from sealcast.clients.realm import side_of

    assert interest.filter is not None
    words = side_of(here, interest.topic).cost(interest.filter, here.state().topic(interest.topic).schema).words
    where = f", at broker {interest.broker!r}" if interest.broker != interest.subscriber else ""
    return f"{where}, {words}" if words else ""


def remark(made: list[Interest]) -> None:
    """Tells what owners should know, once."""
    for remark in dict.fromkeys(remark for each in made for remark in each.remarks):
        talk.note(remark)


@app.command("list", epilog="Example: sealcast subscription list quotes")
def list_(
    topics: Topics = None,
    topic: AlsoTopics = None,
    as_: Annotated[str | None, typer.Option("--as", metavar="ENTITY", help="Only this subscriber's.")] = None,
) -> None:
    """List live subscriptions, oldest first."""
    here = talk.open_realm(afar=True)
    state = here.state()
    names = asked(state, topics, topic)
    if as_ is not None:
        state.entity(as_)
    found = [each for name in names for each in _listed(here, name, as_, named=bool(topics or topic))]
    if talk.given.json:
        talk.emit({"subscriptions": described(here, found)})
        return
    rows = [
        (
            each.id or "",
            each.topic,
            each.subscriber,
            "yes" if state.may_subscribe(each.topic, each.subscriber) else "no",
            each.filter or UNKNOWN,
        )
        for each in found
    ]
    for name in names:
        warn_of_suspensions(here, name, as_)
    if any(each.filter is None for each in found):
        talk.note("filters are sealed to brokers or their subscribers' own: a subscriber lists its own with --as")
    empty = "no subscriptions yet: sealcast subscription add TOPIC --as ENTITY --filter TEXT"
    talk.table(["id", "topic", "subscriber", "may read", "filter"], rows, empty)


def _listed(here: Realm, topic: str, subscriber: str | None, *, named: bool) -> list[Interest]:
    """What is known here of a topic's subscriptions. That a subscriber's keys are elsewhere is worth refusing only if
    this topic was asked for."""
    from sealcast.clients.realm import side_of

    try:
        return side_of(here, topic).listed(here, topic, subscriber)
    except NotFound as error:
        if named:
            raise
        talk.note(f"{topic}: {error.message}")
        return []


@app.command(epilog="Example: sealcast subscription move quotes --as alice --to paris")
def move(
    topic: Annotated[str, typer.Argument(metavar="TOPIC")],
    as_: talk.AsOption,
    to: Annotated[str | None, typer.Option(metavar="BROKER", help="A broker that serves the topic.")] = None,
    abandon: Annotated[
        bool, typer.Option("--abandon", help="The broker that it leaves is gone for good: do not wait for it.")
    ] = False,
) -> None:
    """Move a subscriber to another broker. It goes on where it was: no event is lost, none comes twice.

    Both brokers seal for it until the one that it leaves has caught up; `sealcast run` sees to that. With --abandon,
    what that one had not delivered yet is given up. Where brokers cannot read, it moves at once, and says at the next
    broker what it wants when it reads next, or when a pipeline runs that has its keys.
    """
    from sealcast.clients.realm import side_of

    if to is None and not abandon:
        raise typer.BadParameter("say where to: --to BROKER")
    here = talk.open_realm(afar=True)
    side = side_of(here, topic)
    under_way = side.move(here, topic, as_, to, abandon=abandon)
    with side.mail(here, topic, as_) as mail:
        home = mail.home
    said = f"{as_!r} is at broker {home!r}" + (", and still served where it was" if under_way else "")
    talk.answer({"topic": topic, "subscriber": as_, "broker": home, "moving": under_way}, said)


@app.command(epilog="Example: sealcast subscription remove alice-1")
def remove(
    ids: Annotated[list[str], typer.Argument(metavar="ID", autocompletion=completing.subscriptions)],
    topic: Annotated[str | None, typer.Option(metavar="TOPIC", help="Only on this topic.")] = None,
    as_: Annotated[str | None, typer.Option("--as", metavar="ENTITY", help="Only this subscriber's.")] = None,
) -> None:
    """Remove subscriptions, all of them or none. What was delivered stays readable.

    Encrypted ones are known where their subscriber's key file is. --topic and --as say which is meant, should several
    have that id.
    """
    from sealcast.clients.realm import unsubscribe

    version, troubles = unsubscribe(talk.open_realm(afar=True), ids, topic, as_)
    for trouble in troubles:
        talk.warn(f"ended, but its broker was not told yet: {trouble.message}")
    talk.answer({"removed": ids, "version": version}, *(f"subscription {id!r} removed" for id in ids))
