"""sealcast carrier: add, list; and `sealcast topic move`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from sealcast.cli import talk

if TYPE_CHECKING:
    from sealcast.trust.realm.machine import RealmState

app = talk.Commands("Name the Kafka clusters and NATS servers that keep topics for this realm.")

NameOption = Annotated[
    str | None, typer.Option("--name", metavar="NAME", help="What the topic is called there [default: REALM.TOPIC].")
]
ReplicasOption = Annotated[int, typer.Option(min=1, help="On how many machines each record is, if the topic is made.")]
InSyncOption = Annotated[
    int, typer.Option(min=1, help="On how many of them it has to be before it is acknowledged, if the topic is made.")
]


@app.command(epilog="Example: sealcast carrier add kafka kafka://broker1:9092,broker2:9092")
def add(
    name: Annotated[str, typer.Argument(metavar="CARRIER", help="A new name, or one that has moved.")],
    address: Annotated[str, typer.Argument(help="kafka://HOST:PORT,... or nats://HOST:PORT,...")],
) -> None:
    """Name a carrier, and say where it is reached. Nothing is sent to it yet.

    The address is public. How a machine proves who it is stands in secrets/carriers/CARRIER.conf of the realm on that
    machine, name=value a line, readable by its owner only: security.protocol, ssl.ca.location,
    ssl.certificate.location, ssl.key.location, ssl.key.password, sasl.mechanism, sasl.username and sasl.password for
    Kafka; user, password, token, credentials, tls.ca, tls.certificate and tls.key for NATS.
    """
    here = talk.open_realm()
    stored = here.add_carrier(name, address)
    document = {"carrier": name, "address": stored, "settings": str(here.paths.carrier_settings(name))}
    talk.answer(
        document, f"carrier {name!r} is reached at {stored}", f"settings, if it needs any: {document['settings']}"
    )


@app.command("list", epilog="Example: sealcast carrier list --json")
def list_() -> None:
    """List the carriers of the realm, and the topics that each keeps."""
    state = talk.open_realm(afar=True).state()
    carriers = [(name, address, topics_on(state, name)) for name, address in state.carriers.items()]
    columns = ("carrier", "address", "topics")
    rows = [(name, address, ", ".join(each["topic"] for each in kept) or "-") for name, address, kept in carriers]
    document = {"carriers": [dict(zip(columns, each, strict=True)) for each in carriers]}
    talk.answer_table(document, columns, rows, "no carriers: sealcast carrier add")


def topics_on(state: RealmState, carrier: str) -> list[dict[str, str]]:
    """What a carrier keeps."""
    return [
        {"topic": topic, "broker": broker, "name": place.name}
        for (topic, broker), place in state.carried.items()
        if place.carrier == carrier
    ]


def move(
    topic: Annotated[str, typer.Argument(metavar="TOPIC")],
    to: Annotated[
        str,
        typer.Option(
            "--to",
            metavar="CARRIER",
            help="A carrier (sealcast carrier list), or embedded: the realm's directory.",
        ),
    ],
    broker: Annotated[
        str | None,
        typer.Option(metavar="BROKER", help="Whose part of the topic is moved [default: of a layered topic, all]."),
    ] = None,
    name: NameOption = None,
    replicas: ReplicasOption = 1,
    in_sync: InSyncOption = 1,
    yes: Annotated[bool, typer.Option("--yes", help="Not needed: a topic can move back.", hidden=True)] = False,
) -> None:
    """Move a topic to a carrier, to another carrier, or back to the realm's directory, while no pipeline runs it.

    Frames, ledger and sealed pieces are moved, and of a layered topic each broker's routing table and the filters that
    wait for it. The topic is made there, unless it exists already, and removed where it was. Everything keeps its
    number, so that deliveries and cursors go on as they were. Publishers that are running go on where the topic is from
    then on; while it is copied, they are told to try again. From one carrier to another it passes through the
    directory, which needs room for it. If this is cut short, do it again.
    """
    from sealcast.trust.realm.rules.carriers import EMBEDDED

    here = talk.open_realm()
    here.state().topic(topic)  # says what is wrong
    place = "the realm's directory" if to == EMBEDDED else f"carrier {to!r}"
    done = here.move_topic(topic, to, broker=broker, name=name, replicas=replicas, in_sync=in_sync)
    if done.left:
        talk.note(f"others have records in it, so it stays where it was: {', '.join(done.left)}")
    where = f"in {place}" if to == EMBEDDED else f"on {place} as {done.name!r}"
    document = {"topic": topic, "carrier": to, "name": done.name, "copied": done.copied, "version": done.version}
    talk.answer(
        document | {"left": list(done.left)},
        f"topic {topic!r} is {where}; {talk.counted(done.copied, 'frame')} copied",
    )
