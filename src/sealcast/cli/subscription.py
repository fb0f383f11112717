"""sealcast subscription: add (one, or many from a file), list, move, remove."""

from __future__ import annotations

import json as jsonlib
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from sealcast.cli import interests, talk
from sealcast.cli.interests import UNKNOWN
from sealcast.errors import FilterRejected, Misuse, Rejected, SealcastError

if TYPE_CHECKING:
    from sealcast.model.subscription import Subscription
    from sealcast.trust.deployment import Realm

app = typer.Typer(help="Add, list, move and remove subscriptions.", **talk.SETTINGS)

#: Of the lines of a file that are refused, so many are shown.
SHOWN = 20


class LinesRefused(Rejected):
    """Some lines of a file are not what they should be."""

    code = "lines"

    def __init__(self, message: str, lines: list[dict[str, object]]) -> None:
        super().__init__(message)
        self.lines = lines

    def as_json(self) -> dict[str, object]:
        return {**super().as_json(), "lines": self.lines}


class Wanted(NamedTuple):
    subscriber: str
    filter: str
    id: str | None


@app.command(
    epilog="""Example: sealcast subscription add quotes --as alice --filter "symbol = 'IBM' AND price > 100" """
)
def add(
    topic: Annotated[str, typer.Argument(metavar="TOPIC")],
    as_: Annotated[str | None, typer.Option("--as", metavar="ENTITY", help="The subscriber.")] = None,
    filter: Annotated[str | None, typer.Option("--filter", metavar="TEXT", help="What it asks for.")] = None,
    id: Annotated[
        str | None, typer.Option("--id", help="A new id [default: the subscriber's name and a number].")
    ] = None,
    file: Annotated[
        Path | None,
        typer.Option("--file", metavar="FILE", help='Many at once: a line each {"subscriber", "filter", "id"?}.'),
    ] = None,
    broker: Annotated[
        str | None, typer.Option("--broker", metavar="BROKER", help="Where a new subscriber is [default: the first].")
    ] = None,
    realm: talk.RealmOption = None,
    json: talk.JsonOption = False,
) -> None:
    """Add a subscription: events of TOPIC that match the filter are sealed for the subscriber from the next batch on.

    Filters are SQL selectors (symbol = 'IBM' AND price BETWEEN 90 AND 110), or start with the name of another format
    (path:, tags:, regex:, xpath:). They are checked against the topic's schema. Of a file all lines are added, or none.

    On a layered topic the filter stays with its subscriber, whose key file must be here: what goes out is encrypted
    labels, for a broker that cannot read them. How many labels it takes is what it costs.
    """
    if (file is None) == (filter is None) or (filter is not None and as_ is None):
        raise typer.BadParameter("give --as ENTITY and --filter TEXT, or --file FILE")
    here = talk.open_realm(realm)
    if interests.is_layered(here.state(), topic):
        _say_layered(_add_layered(here, topic, as_, filter, id, file, broker), json)
        return
    if filter is not None and as_ is not None:
        made = [subscribe(here, topic, as_, filter, id, broker)]
    else:
        assert file is not None
        made = _add_file(here, topic, file, as_, broker)
    if json:
        talk.emit({"subscriptions": [describe(here, s) for s in made]})
        return
    for subscription in made[:SHOWN]:
        talk.say(f"subscription {subscription.id!r} added: {subscription.subscriber!r} on {topic!r}")
    if len(made) > SHOWN:
        talk.say(f"... and {len(made) - SHOWN:,} more")


def subscribe(
    here: Realm, topic: str, subscriber: str, filter: str, id: str | None = None, broker: str | None = None
) -> Subscription:
    """One subscription; a filter that can never be true is added, and remarked on.

    The subscriber asks for it by itself, with its token, at a broker's desk; where its keys are not here, the
    administrator adds it.
    """
    from sealcast.control.requests import subscribe as ask
    from sealcast.control.wallet import Wallet

    here.state().entity(subscriber)
    with talk.about_filter(filter):
        for remark in here.remarks(topic, filter):
            talk.warn(remark)
        if broker is not None or not here.paths.entity_key(subscriber).exists():
            return here.subscribe(topic, subscriber, filter, id, broker=broker)
        with Wallet(here, subscriber) as wallet:
            return ask(wallet, topic, filter, id)


def describe(here: Realm, subscription: Subscription) -> dict[str, object]:
    state = here.state()
    return {
        "id": subscription.id,
        "topic": subscription.topic,
        "subscriber": subscription.subscriber,
        "filter": subscription.filter,
        "slot": state.slot_of(subscription.topic, subscription.subscriber),
        "authorised": state.may_subscribe(subscription.topic, subscription.subscriber),
        "broker": state.home_of(subscription.topic, subscription.subscriber),
    }


@app.command("list", epilog="Example: sealcast subscription list --topic quotes")
def list_(
    topic: Annotated[str | None, typer.Option("--topic", metavar="TOPIC", help="Only this topic's.")] = None,
    as_: Annotated[str | None, typer.Option("--as", metavar="ENTITY", help="Only this subscriber's.")] = None,
    realm: talk.RealmOption = None,
    json: talk.JsonOption = False,
) -> None:
    """List live subscriptions, oldest first."""
    here = talk.open_realm(realm)
    state = here.state()
    names = [state.topic(topic).name] if topic is not None else list(state.topics)
    if as_ is not None:
        state.entity(as_)
    found = [s for n in names for s in state.subscriptions_of(n) if as_ in (None, s.subscriber)]
    layered = [each for name in names if interests.is_layered(state, name) for each in _own(here, name, as_, topic)]
    if json:
        talk.emit({"subscriptions": [*(describe(here, s) for s in found), *layered]})
        return
    rows = [
        (s.id, s.topic, s.subscriber, "yes" if state.may_subscribe(s.topic, s.subscriber) else "no", s.filter)
        for s in found
    ]
    rows += [
        (e["id"] or "", e["topic"], e["subscriber"], "yes" if e["authorised"] else "no", e["filter"] or UNKNOWN)
        for e in layered
    ]
    if any(each["filter"] is None for each in layered):
        talk.note("filters on layered topics are not known to the realm; a subscriber lists its own with --as")
    empty = "no subscriptions yet: sealcast subscription add TOPIC --as ENTITY --filter TEXT"
    talk.table(["id", "topic", "subscriber", "may read", "filter"], rows, empty)


def _own(here: Realm, topic: str, subscriber: str | None, asked: str | None) -> list[dict[str, Any]]:
    """What is known here of a layered topic's subscriptions. That a subscriber's keys are elsewhere is worth refusing
    only if this topic was asked for."""
    from sealcast.errors import NotFound

    try:
        return interests.listed(here, topic, subscriber)
    except NotFound as error:
        if asked is not None:
            raise
        talk.note(f"{topic}: {error.message}")
        return []


@app.command(epilog="Example: sealcast subscription move quotes --as alice --to paris")
def move(
    topic: Annotated[str, typer.Argument(metavar="TOPIC")],
    as_: talk.AsOption,
    to: Annotated[str | None, typer.Option("--to", metavar="BROKER", help="A broker that serves the topic.")] = None,
    abandon: Annotated[
        bool, typer.Option("--abandon", help="The broker that it leaves is gone for good: do not wait for it.")
    ] = False,
    realm: talk.RealmOption = None,
    json: talk.JsonOption = False,
) -> None:
    """Move a subscriber to another broker. It goes on where it was: no event is lost, none comes twice.

    Both brokers seal for it until the one that it leaves has caught up; `sealcast run` sees to that. With --abandon,
    what that one had not delivered yet is given up.
    """
    from sealcast.overlay import moves

    if to is None and not abandon:
        raise typer.BadParameter("say where to: --to BROKER")
    here = talk.open_realm(realm)
    if interests.is_layered(here.state(), topic):
        _move_layered(here, topic, as_, to, json)
        return
    if to is not None:
        moves.move(here, topic, as_, to)
    moves.settle(here, abandon=[(topic, as_)] if abandon else ())
    state = here.state()
    home, under_way = state.home_of(topic, as_), (topic, as_) in moves.moving(state)
    if json:
        talk.emit({"topic": topic, "subscriber": as_, "broker": home, "moving": under_way})
        return
    talk.say(f"{as_!r} is at broker {home!r}" + (", and still served where it was" if under_way else ""))


@app.command(epilog="Example: sealcast subscription remove alice-1")
def remove(
    ids: Annotated[list[str], typer.Argument(metavar="ID")],
    topic: Annotated[str | None, typer.Option("--topic", metavar="TOPIC", help="On this layered topic.")] = None,
    as_: Annotated[str | None, typer.Option("--as", metavar="ENTITY", help="This subscriber's own.")] = None,
    realm: talk.RealmOption = None,
    json: talk.JsonOption = False,
) -> None:
    """Remove subscriptions, all of them or none. What was delivered stays readable.

    Those on layered topics are known where their subscriber's key file is; --topic and --as say which, should there be
    several of that id.
    """
    here = talk.open_realm(realm)
    state = here.state()
    known = [id for id in ids if id in state.subscription_topics and topic is None and as_ is None]
    if not interests.is_layered(state, topic):
        known = ids
    if len(known) < len(ids):
        # First: it refuses what it does not find, and nothing was removed then.
        interests.remove(here, [id for id in ids if id not in known], topic, as_)
    version = here.unsubscribe(*known) if known else state.version
    if json:
        talk.emit({"removed": ids, "version": version})
        return
    for id in ids:
        talk.say(f"subscription {id!r} removed")


# --- layered topics -------------------------------------------------------------------------------------


def _add_layered(
    here: Realm,
    topic: str,
    as_: str | None,
    filter: str | None,
    id: str | None,
    file: Path | None,
    broker: str | None,
) -> list[dict[str, Any]]:
    if filter is not None and as_ is not None:
        return interests.add(here, topic, as_, [(filter, id)], broker)
    assert file is not None
    by_subscriber: dict[str, list[tuple[str, str | None]]] = {}
    for each in _checked_file(here, topic, file, as_):
        by_subscriber.setdefault(each.subscriber, []).append((each.filter, each.id))
    return [made for name, wanted in by_subscriber.items() for made in interests.add(here, topic, name, wanted, broker)]


def _say_layered(made: list[dict[str, Any]], json: bool) -> None:
    if json:
        talk.emit({"subscriptions": made})
        return
    for each in made[:SHOWN]:
        talk.say(
            f"subscription {each['id']!r} added: {each['subscriber']!r} on {each['topic']!r}, at broker "
            f"{each['broker']!r}, {interests.labels_of(each)}"
        )
    if len(made) > SHOWN:
        talk.say(f"... and {len(made) - SHOWN:,} more")


def _move_layered(here: Realm, topic: str, as_: str, to: str | None, json: bool) -> None:
    if to is None:
        raise typer.BadParameter("a subscriber of a layered topic moves at once: say where to, --to BROKER")
    home = here.place_subscriber(topic, as_, to)
    if json:
        talk.emit({"topic": topic, "subscriber": as_, "broker": home, "moving": False})
        return
    talk.say(f"{as_!r} is at broker {home!r}")
    talk.note("what it wants is said again there: by itself when it reads next, or by a pipeline that has its keys")


# --- many at once ---------------------------------------------------------------------------------------


def _add_file(here: Realm, topic: str, file: Path, as_: str | None, broker: str | None = None) -> list[Subscription]:
    return here.subscribe_many(topic, _checked_file(here, topic, file, as_), broker=broker)


def _checked_file(here: Realm, topic: str, file: Path, as_: str | None) -> list[Wanted]:
    """What a file asks for, if every line of it can be had."""
    from sealcast.trust.realm.changes import Right

    state = here.state()
    vet = _vet(here, topic)
    lines = file.read_bytes().splitlines()
    wanted, refused = list[Wanted](), list[dict[str, object]]()
    with talk.progress("checking filters", len(lines)) as bar:
        for number, line in enumerate(lines, 1):
            if not line.strip():
                continue
            try:
                wanted.append(_parse(line, as_))
                vet(wanted[-1].filter)
                state.require(Right.SUBSCRIBE, topic, wanted[-1].subscriber)
            except (Rejected, Misuse) as error:
                refused.append({"line": number, **error.as_json()})
                if len(refused) <= SHOWN:
                    _show(file, number, error, wanted[-1].filter if isinstance(error, FilterRejected) else None)
            if bar is not None and number % 100 == 0:
                bar.update(bar.task_ids[0], completed=number)
    if refused:
        raise LinesRefused(f"{len(refused)} of {len(lines)} lines of {file} were refused; nothing was added", refused)
    if not wanted:
        raise Misuse(f"{file} has no subscriptions in it")
    return wanted


def _vet(here: Realm, topic: str) -> Callable[[str], object]:
    """FilterRejected for what is no filter of the topic's; on a layered one, also for what labels cannot express."""
    from sealcast.filters.check import fit
    from sealcast.filters.labels import label_filter
    from sealcast.filters.parse import parse

    state = here.state()
    schema = state.topic(topic).schema
    if interests.is_layered(state, topic):
        return lambda text: label_filter(fit(parse(text), schema), schema)
    return lambda text: fit(parse(text), schema)


def _parse(line: bytes, as_: str | None) -> Wanted:
    try:
        body = jsonlib.loads(line)
    except (ValueError, RecursionError) as error:
        raise Rejected(f"not JSON: {talk.json_trouble(error)}") from None
    if not isinstance(body, dict) or set(body) - {"id", "subscriber", "filter"}:
        raise Rejected('a subscription is {"subscriber", "filter", "id"?}')
    subscriber, filter, id = body.get("subscriber", as_), body.get("filter"), body.get("id")
    if not isinstance(subscriber, str) or not isinstance(filter, str) or not isinstance(id, str | None):
        raise Rejected("subscriber and filter are texts, and both are needed", hint="or name the subscriber with --as")
    return Wanted(subscriber, filter, id)


def _show(file: Path, number: int, error: SealcastError, filter: str | None) -> None:
    talk.note(f"{file}:{number}: {error.message}" + (f" ({error.hint})" if error.hint else ""))
    if isinstance(error, FilterRejected) and error.at is not None and filter is not None:
        talk.note(talk.marked(filter, error.at))
