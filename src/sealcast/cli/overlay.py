"""sealcast overlay: add, remove, place, show."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sealcast.cli import forest, talk
from sealcast.errors import Misuse

if TYPE_CHECKING:
    from sealcast.trust.realm.layering import Layering
    from sealcast.trust.realm.overlays import Overlay
    from sealcast.trust.realm.state import RealmState
    from sealcast.trust.realm.topics import Topic

app = typer.Typer(
    help="The brokers of a layered topic: which stands below which, and who reads where.", **talk.SETTINGS
)

TopicArgument = Annotated[str, typer.Argument(metavar="TOPIC", help="A topic whose protection is layered.")]


@app.command(epilog="Example: sealcast overlay add quotes paris --under quotes-node-1")
def add(
    topic: TopicArgument,
    broker: Annotated[str, typer.Argument(metavar="BROKER", help="A broker; enrolled, if the name is new.")],
    under: Annotated[
        str | None, typer.Option(metavar="BROKER", help="Whom it stands below [default: it is a root].")
    ] = None,
    realm: talk.RealmOption = None,
    json: talk.JsonOption = False,
) -> None:
    """Let a broker join a topic's overlay, or move in it.

    A root takes frames in from publishers and is handed the topic's keys for that; the others are handed none. Moving a
    broker that has anybody below it begins a new generation of the overlay: keys are agreed on anew, and subscribers
    send their filters again, by themselves.
    """
    here = talk.open_realm(realm)
    before = here.state().overlay(topic).generation
    made = here.place_node(topic, broker, under=under)
    state = here.state()
    if json:
        talk.emit(forest.as_json(made, state, topic))
        return
    talk.say(f"broker {broker!r} stands {'as a root' if under is None else f'below {under!r}'} of topic {topic!r}")
    _say_generation(made, before)


@app.command(epilog="Example: sealcast overlay remove quotes paris")
def remove(
    topic: TopicArgument,
    broker: Annotated[str, typer.Argument(metavar="BROKER")],
    realm: talk.RealmOption = None,
    json: talk.JsonOption = False,
) -> None:
    """Take a broker out of a topic's overlay. Whoever stands below it moves up, to below the one above it.

    Below a root that leaves, brokers become roots; subscribers there are placed anew when they next subscribe.
    """
    here = talk.open_realm(realm)
    before = here.state().overlay(topic).generation
    made = here.remove_node(topic, broker)
    if json:
        talk.emit(forest.as_json(made, here.state(), topic))
        return
    talk.say(f"broker {broker!r} has left the overlay of topic {topic!r}")
    _say_generation(made, before)


@app.command(epilog="Example: sealcast overlay place quotes alice --at quotes-node-2")
def place(
    topic: TopicArgument,
    subscriber: Annotated[str, typer.Argument(metavar="SUBSCRIBER", help="Who reads.")],
    at: Annotated[
        str | None,
        typer.Option(metavar="BROKER", help="The broker it stands below [default: where there is most room]."),
    ] = None,
    realm: talk.RealmOption = None,
    json: talk.JsonOption = False,
) -> None:
    """Place a subscriber below a broker. Whoever is not placed is, when it first subscribes.

    Moving one that was placed before begins a new generation of the overlay.
    """
    here = talk.open_realm(realm)
    before = here.state().overlay(topic).generation
    where = here.place_subscriber(topic, subscriber, at)
    state = here.state()
    made, layers = state.overlay(topic), layering_of(state.topic(topic)).layers
    if json:
        talk.emit({"topic": topic, "subscriber": subscriber, "at": where, "depth": made.depth(subscriber)})
        return
    talk.say(f"{subscriber!r} stands below broker {where!r} of topic {topic!r}")
    if (hops := made.depth(subscriber)) < layers:
        talk.warn(f"it is {hops} hops from publishers: of the topic's {layers} layers, that many count for it")
    _say_generation(made, before)


@app.command(epilog="Example: sealcast overlay show quotes --svg overlay.svg")
def show(
    topic: TopicArgument,
    svg: Annotated[Path | None, typer.Option(metavar="FILE", help="Draw it into a file, too.")] = None,
    everyone: Annotated[
        bool, typer.Option("--all", help=f"Name every subscriber, not {forest.MAX_NAMED} at a broker.")
    ] = False,
    realm: talk.RealmOption = None,
    json: talk.JsonOption = False,
) -> None:
    """Show a topic's overlay as a tree: publishers on top, then roots, brokers, and who reads where.

    Depth counts hops from publishers. From as many hops on as the topic has layers, all of them count.
    """
    state = talk.open_realm(realm).state()
    layering, overlay = layering_of(state.topic(topic)), state.overlay(topic)
    drawn = forest.forest(state, topic, everyone=everyone)
    title = f"{topic}: {layering.layers} layers in {layering.group}, {len(overlay.parents)} brokers"
    if svg is not None:
        svg.write_text(forest.svg(drawn, title), encoding="utf-8")
    if json:
        talk.emit(forest.as_json(overlay, state, topic) | {"svg": None if svg is None else str(svg)})
        return
    talk.say(title + f", epoch {state.topic(topic).epoch}, generation {overlay.generation}")
    for line in forest.lines(drawn):
        talk.say(line)
    if not overlay.parents:
        talk.note(f"no broker yet: sealcast overlay add {topic} BROKER")
    if svg is not None:
        talk.note(f"drawn into {svg}")


# --- for `sealcast topic` -----------------------------------------------------------------------------


def wanted(
    protection: str, layers: int | None, group: str | None, nodes: int | None, fan_out: int | None, padded: bool
) -> Layering | None:
    """What the options of `topic create` ask for; None for a topic that is not layered."""
    from sealcast.trust.realm.layering import DEFAULT_GROUP, DEFAULT_LAYERS, GROUPS, LAYERED, Layering

    if protection != LAYERED:
        given = {"--layers": layers, "--group": group, "--nodes": nodes, "--fan-out": fan_out, "--pad": padded or None}
        for option in (name for name, value in given.items() if value is not None):
            raise Misuse(
                f"{option} is for layered topics, and this one's protection is {protection!r}",
                hint=f"add --protection {LAYERED}, or leave {option} out",
            )
        return None
    # As people write them: modp2048 is modp-2048.
    spelt = {name.replace("-", ""): name for name in GROUPS}
    named = DEFAULT_GROUP if group is None else spelt.get(group.replace("-", "").lower(), group)
    return Layering(DEFAULT_LAYERS if layers is None else layers, named, padded)


def summary(state: RealmState, topic: str) -> list[tuple[str, object]]:
    """What `topic show` says of a layered topic besides; nothing of the others."""
    layering, overlay = state.topic(topic).layering, state.overlay(topic)
    if layering is None:
        return []
    nodes = f"{len(overlay.parents)}, {len(overlay.roots)} of them roots: sealcast overlay show {topic}"
    padded = ", events padded" if layering.padded else ""
    return [("layers", f"{layering.layers}, in {layering.group}{padded}"), ("nodes", nodes)]


def readers(state: RealmState, topic: str) -> list[tuple[str, object]]:
    """How many read. What they want on a layered topic is for them and, encrypted, their brokers to know."""
    found = state.topic_state(topic)
    if found.topic.layering is not None:
        may = sum(state.may_subscribe(topic, name) for name in found.places)
        return [
            ("subscribers", f"{len(found.places)} ({may} may read)"),
            ("publishers", len(state.publishers_of(topic))),
        ]
    may = len(list(state.authorised_slots(topic)))
    return [("subscribers", f"{len(found.slots)} ({may} may read)"), ("subscriptions", len(found.subscriptions))]


def layering_of(topic: Topic) -> Layering:
    if topic.layering is None:
        raise Misuse(
            f"topic {topic.name!r} has no overlay: its protection is {topic.protection!r}",
            hint="one that has: sealcast topic create NAME --schema FILE --protection layered",
        )
    return topic.layering


def refuse_layered(topic: Topic, what: str) -> None:
    """For what needs someone who reads: on a layered topic nobody does but its publishers and subscribers."""
    if topic.layering is not None:
        raise Misuse(
            f"topic {topic.name!r} is layered: its brokers cannot read, and neither can whoever would {what}",
            hint=f"what can be seen: sealcast status, overlay show {topic.name}, explain {topic.name}",
        )


def _say_generation(made: Overlay, before: int) -> None:
    if made.generation != before:
        talk.note(f"generation {made.generation} of the overlay has begun: keys and filters follow by themselves")
