"""sealcast overlay: add, remove, place, show."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sealcast.cli import forest, peer_trees, talk
from sealcast.errors import Misuse

if TYPE_CHECKING:
    from sealcast.model.protection import Protection
    from sealcast.trust.realm.overlays import Overlay
    from sealcast.trust.realm.state import RealmState
    from sealcast.trust.realm.topics import Topic

app = talk.Commands("Place the brokers and subscribers of a layered topic in its tree, and show it.")

TopicArgument = Annotated[str, typer.Argument(metavar="TOPIC", help="A topic whose protection is layered.")]


@app.command(epilog="Example: sealcast overlay add quotes paris --under quotes-node-1")
def add(
    topic: TopicArgument,
    broker: Annotated[str, typer.Argument(metavar="BROKER", help="A broker, which is enrolled if its name is new.")],
    under: Annotated[
        str | None, typer.Option(metavar="BROKER", help="The broker above it [default: none, it is a root].")
    ] = None,
) -> None:
    """Add a broker to a topic's overlay, or move it there.

    A root takes frames from publishers, and gets the topic's keys for that; the others get none. Moving a broker that
    has anybody below it begins a new generation of the overlay: keys are agreed on anew, and subscribers send their
    filters again, without being asked.
    """
    here = talk.open_realm()
    before = here.state().overlay(topic).generation
    made = here.place_node(topic, broker, under=under)
    said = f"broker {broker!r} stands {'as a root' if under is None else f'below {under!r}'} of topic {topic!r}"
    talk.answer(forest.as_json(made, here.state(), topic), said)
    _note_generation(made, before)


@app.command(epilog="Example: sealcast overlay remove quotes paris")
def remove(
    topic: TopicArgument,
    broker: Annotated[str, typer.Argument(metavar="BROKER")],
) -> None:
    """Take a broker out of a topic's overlay. Whoever stands below it moves up one place.

    If a root leaves, the brokers below it become roots, and its subscribers are placed anew when they next subscribe.
    """
    here = talk.open_realm()
    before = here.state().overlay(topic).generation
    made = here.remove_node(topic, broker)
    said = f"broker {broker!r} has left the overlay of topic {topic!r}"
    talk.answer(forest.as_json(made, here.state(), topic), said)
    _note_generation(made, before)


@app.command(epilog="Example: sealcast overlay place quotes alice --at quotes-node-2")
def place(
    topic: TopicArgument,
    subscriber: Annotated[str, typer.Argument(metavar="SUBSCRIBER", help="The entity that subscribes.")],
    at: Annotated[
        str | None,
        typer.Option(metavar="BROKER", help="The broker above it [default: the one with most room]."),
    ] = None,
) -> None:
    """Place a subscriber below a broker. Without this, a subscriber is placed when it first subscribes.

    Moving a subscriber that was placed before begins a new generation of the overlay.
    """
    here = talk.open_realm()
    before = here.state().overlay(topic).generation
    where = here.place_subscriber(topic, subscriber, at)
    state = here.state()
    made, layers = state.overlay(topic), require_overlay(state.topic(topic)).depth
    hops, said = made.depth(subscriber), f"{subscriber!r} stands below broker {where!r} of topic {topic!r}"
    talk.answer({"topic": topic, "subscriber": subscriber, "at": where, "depth": hops}, said)
    if hops < layers and not talk.given.json:
        talk.warn(f"it is only {hops} hops from publishers, so only {hops} of the topic's {layers} layers protect it")
    _note_generation(made, before)


@app.command(epilog="Example: sealcast overlay show quotes --svg overlay.svg")
def show(
    topic: Annotated[
        str, typer.Argument(metavar="TOPIC", help="A topic whose brokers stand in a tree, or that peers carry.")
    ],
    svg: Annotated[Path | None, typer.Option(metavar="FILE", help="Also draw it into this file.")] = None,
    everyone: Annotated[
        bool, typer.Option("--all", help=f"Name every subscriber, not only {forest.MAX_NAMED} at each broker.")
    ] = False,
) -> None:
    """Show a topic's overlay as a tree: publishers on top, then roots, brokers, and subscribers.

    Depth is the number of hops from publishers. A subscriber has all layers if its depth is at least their number.
    A topic without brokers has a tree of peers for each attribute: shown are those that run on this machine.
    """
    here = talk.open_realm()
    state = here.state()
    if state.topic(topic).protection.peers:
        peer_trees.show(here, topic, svg)
        return
    protection, overlay = require_overlay(state.topic(topic)), state.overlay(topic)
    drawn = forest.forest(state, topic, everyone=everyone)
    title = f"{topic}: {protection.summary}, {len(overlay.parents)} brokers"
    if svg is not None:
        svg.write_text(forest.svg(drawn, title), encoding="utf-8")
    if talk.emitted(forest.as_json(overlay, state, topic) | {"svg": None if svg is None else str(svg)}):
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
    protection: str, options: Mapping[str, tuple[str, object]], only: Mapping[str, tuple[object, str]]
) -> Protection:
    """What the options of `topic create` ask for; an option that the protection does not have is refused by name.

    `options` are the settings of protections, each with its option and value, and `only` the options of topics that
    have something which others do not, each with its value and what that is. None is what was not given.
    """
    from sealcast.model.protection import PROTECTIONS, protection_of, with_setting

    given = {setting: value for setting, (_, value) in options.items() if value is not None}
    for setting in given:
        kinds = with_setting(setting)
        if protection in PROTECTIONS and protection not in kinds:
            raise _not_for(options[setting][0], protection, kinds)
    asked = protection_of(protection, given)
    for option, (value, fact) in only.items():
        if value is not None and not getattr(asked, fact):
            raise _not_for(option, protection, [kind.name for kind in PROTECTIONS.values() if getattr(kind, fact)])
    return asked


def _not_for(option: str, protection: str, kinds: Sequence[str]) -> Misuse:
    return Misuse(
        f"{option} is for {' or '.join(kinds)} topics, and this one's protection is {protection!r}",
        hint=f"add --protection {kinds[0]}, or leave {option} out",
    )


def summary(state: RealmState, topic: str) -> list[tuple[str, object]]:
    """What `topic show` says of a topic's settings and overlay; nothing where there are none."""
    protection, overlay = state.topic(topic).protection, state.overlay(topic)
    rows: list[tuple[str, object]] = [("settings", protection.summary)] if protection.summary else []
    if protection.overlay:
        nodes = f"{len(overlay.parents)}, {len(overlay.roots)} of them roots: sealcast overlay show {topic}"
        rows.append(("nodes", nodes))
    return rows


def readers(state: RealmState, topic: str) -> list[tuple[str, object]]:
    """How many read. What they want on a topic with an overlay is for them and, encrypted, their brokers to know."""
    found = state.topic_state(topic)
    if found.topic.protection.overlay:
        may = sum(state.may_subscribe(topic, name) for name in found.places)
        return [
            ("subscribers", f"{len(found.places)} ({may} may read)"),
            ("publishers", len(state.publishers_of(topic))),
        ]
    may = len(list(state.authorised_slots(topic)))
    return [("subscribers", f"{len(found.slots)} ({may} may read)"), ("subscriptions", len(found.subscriptions))]


def require_overlay(topic: Topic) -> Protection:
    if not topic.protection.overlay:
        raise Misuse(
            f"topic {topic.name!r} has no overlay: its protection is {topic.protection.name!r}",
            hint="make one that has: sealcast topic create NAME --schema FILE --protection layered",
        )
    return topic.protection


def _note_generation(made: Overlay, before: int) -> None:
    if made.generation != before and not talk.given.json:
        talk.note(f"generation {made.generation} of the overlay has begun: keys and filters follow by themselves")
