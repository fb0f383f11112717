"""sealcast broker: add, reach, leave, list, show."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from sealcast.cli import talk

if TYPE_CHECKING:
    from sealcast.trust.deployment import Realm
    from sealcast.trust.realm.machine import RealmState

app = talk.Commands("Add, list and show end-point brokers.")


@app.command(epilog="Example: sealcast broker add paris --serve quotes")
def add(
    name: Annotated[str, typer.Argument(metavar="BROKER", help="A new name.")],
    serve: Annotated[
        list[str] | None, typer.Option(metavar="TOPIC", help="A topic that it serves; can be repeated.")
    ] = None,
    join: Annotated[
        str | None, typer.Option(metavar="BROKER", help="The broker whose list of secure topics it takes over.")
    ] = None,
) -> None:
    """Add a broker with a key file of its own, a certificate, and the keys of the topics that it serves.

    Each publisher and each subscriber is at one broker; events reach subscribers at all of them. Start a running
    `sealcast run` again to include the new broker, or run it alone with `sealcast run --node BROKER`.
    """
    from sealcast.overlay.brokers import Node
    from sealcast.trust.layout import FIRST_BROKER

    here = talk.open_realm()
    here.add_broker(name, serve or ())
    through = join or (FIRST_BROKER if here.paths.broker_key_of(FIRST_BROKER).exists() else None)
    with Node(here, name) as node:
        learnt = node.join(through) if through is not None else 0
    described = _described(here, here.state(), name)
    serving = ", ".join(described["serves"]) or "no topic yet: sealcast topic serve TOPIC " + name
    lines = [f"broker {name!r} added; its keys are in {here.paths.broker_key_of(name)}", f"it serves {serving}"]
    if through is not None:
        lines.append(f"it knows {len(node.known.secure)} secure topics, {learnt} of them from {through!r}")
    talk.answer({**described, "learnt": learnt}, *lines)


@app.command(epilog="Example: sealcast broker reach paris sealcast://paris.example:7443 --realm paris-home")
def reach(
    name: Annotated[str, typer.Argument(metavar="BROKER", help="A broker on a machine of its own.")],
    address: Annotated[str, typer.Argument(metavar="ADDRESS", help="The gateway there: sealcast://HOST:PORT.")],
    gateway: Annotated[
        str | None, typer.Option(metavar="NAME", help="That gateway [default: the one that joined from this home].")
    ] = None,
) -> None:
    """Say where a broker on a machine of its own is reached: by everybody, through the gateway of that machine.

    Say it before the broker serves its first topic; later, the address can be another one. Run it in the broker's home,
    or where the administrator's keys are.
    """
    from sealcast.transports.address import GatewayAddress
    from sealcast.trust import homes
    from sealcast.trust.certificates.roles import Role
    from sealcast.trust.realm.changes import AnnounceGateway

    at = GatewayAddress.parse(address)
    here = talk.open_realm(afar=True)
    door = gateway or homes.joined(here.paths, Role.GATEWAY)[0]
    version = here.registry.apply(AnnounceGateway(name, door, at.host, at.port))
    document = {"broker": name, "gateway": door, "address": str(at), "version": version}
    talk.answer(document, f"broker {name!r} is reached at {at}, through gateway {door!r}")


@app.command(epilog="Example: sealcast broker leave paris")
def leave(
    name: Annotated[str, typer.Argument(metavar="BROKER", help="A broker that is to go.")],
) -> None:
    """Let a broker go: move everyone whom it serves to other brokers, and take it out of every overlay.

    The broker has to run on, and its gateway, if it has one: what is on its way there goes to its subscribers' new
    brokers, and they read what it delivered before. Run this again: when nobody moves any more and its subscribers have
    read what is there (sealcast status, on its machine), it can be stopped, and revoked (sealcast entity revoke).
    Publishers choose another broker themselves.

    Exit code 1 if somebody has to stay, because no other broker serves the topic.
    """
    from sealcast.overlay.moves import rehome

    here = talk.open_realm()
    here.state().broker_number(name)
    overlays = [topic for topic, found in here.state().topics.items() if name in found.overlay.parents]
    for topic in overlays:
        here.remove_node(topic, name)
    moved = rehome(here, name, gone=False)
    state = here.state()
    served = [(t, s) for t, found in state.topics.items() for s in found.slots if state.served_at(t, s, name)]
    stays = [(t, s) for t, s in served if state.home_of(t, s) == name and len(_open(state, t, s)) == 1]
    document = {
        "broker": name,
        "moved": [{"topic": t, "subscriber": s, "to": to} for t, s, to in moved],
        "left_overlays": overlays,
        "moving": len(served) - len(stays),
        "stays": [{"topic": t, "subscriber": s} for t, s in stays],
    }
    lines = [f"{s!r} moves to broker {to!r} on topic {t!r}" for t, s, to in moved]
    lines += [f"it has left the overlay of topic {topic!r}" for topic in overlays]
    lines.append(f"{document['moving']} of its subscribers are on their way" if served else "it serves nobody any more")
    talk.answer(document, *lines)
    for topic, subscriber in stays:
        talk.warn(f"{subscriber!r} stays: no other broker serves topic {topic!r} (sealcast topic serve {topic} BROKER)")
    if stays:
        raise typer.Exit(1)


def _open(state: RealmState, topic: str, subscriber: str) -> list[str]:
    """The brokers that seal for a subscriber now."""
    return [stay.broker for stay in state.stays_of(topic, subscriber) if stay.until is None]


@app.command("list", epilog="Example: sealcast broker list --json")
def list_() -> None:
    """List all brokers, in the order of their numbers."""
    here = talk.open_realm()
    state = here.state()
    found = [_described(here, state, name) for name in state.brokers()]
    rows = [
        (b["number"], b["name"], "yes" if b["keys_here"] else "no", ", ".join(b["serves"]) or "-", b["subscribers"])
        if not b["revoked"]
        else (b["number"], b["name"], "revoked", "-", b["subscribers"])
        for b in found
    ]
    columns = ["number", "name", "keys here", "serves", "subscribers"]
    talk.answer_table({"brokers": found}, columns, rows, "no brokers")


@app.command(epilog="Example: sealcast broker show paris")
def show(
    name: Annotated[str, typer.Argument(metavar="BROKER")],
) -> None:
    """Show a broker: what it serves, where it forwards to, what waits, which topics it knows, and who is moving."""
    from sealcast.overlay.memory import KnowledgeStore
    from sealcast.overlay.routing import links, waiting

    here = talk.open_realm()
    state = here.state()
    document = _described(here, state, name)
    document["links"] = [
        {"topic": link.topic, "to": link.destination, "waiting": waiting(here, link, version)}
        for link, version in links(state, name).items()
    ]
    names = {found.topic.id: topic for topic, found in state.topics.items()}
    document["knows"] = [
        {"topic": names.get(topic), "id": topic.hex(), "source": str(how.source), "by": how.by}
        for topic, how in KnowledgeStore(here.paths.broker(name) / "knowledge").read().secure.items()
    ]
    if talk.emitted(document):
        return
    talk.pairs(
        [
            ("broker", f"{name} (number {document['number']}{', revoked' if document['revoked'] else ''})"),
            ("serves", ", ".join(document["serves"]) or "nothing"),
            ("subscribers", f"{document['subscribers']}, {document['moving']} of them moving"),
            *((f"forwards {e['topic']}", f"to {e['to']}, {e['waiting']} frames waiting") for e in document["links"]),
            *(("knows", f"{e['topic'] or e['id']} is secure: {e['source']}, {e['by']}") for e in document["knows"]),
        ]
    )


def _described(here: Realm, state: RealmState, name: str) -> dict[str, Any]:
    number = state.broker_number(name)
    serves = [topic for topic in state.topics if name in state.serving(topic)]
    there = [
        state.stays_of(topic, subscriber)
        for topic, found in state.topics.items()
        for subscriber in found.slots
        if state.served_at(topic, subscriber, name)
    ]
    return {
        "name": name,
        "number": number,
        "revoked": state.entity(name).revoked,
        "keys_here": here.paths.broker_key_of(name).exists(),
        "serves": serves,
        "subscribers": len(there),
        "moving": sum(sum(stay.until is None for stay in stays) > 1 for stays in there),
    }
