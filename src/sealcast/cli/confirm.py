"""sealcast confirm: what became of the frames that a gateway acknowledged."""

from __future__ import annotations

from typing import Annotated

import typer

from sealcast.cli import talk

app = talk.Commands()


@app.command(epilog="Example: sealcast confirm quotes --as nyse --realm sealcast://gateway.example.org:7443")
def confirm(
    topic: Annotated[str, typer.Argument(metavar="TOPIC")],
    as_: talk.AsOption,
    broker: Annotated[
        str, typer.Option(metavar="BROKER", help="Where it publishes: a broker that serves the topic.")
    ] = "broker",
) -> None:
    """Ask the brokers whether the frames that a gateway acknowledged are in their signed ledgers.

    A gateway signs for every frame that it has taken. This compares its receipts with the brokers' own signed word,
    which the gateway carries and cannot make. A frame that is there and that no batch has taken yet is `waiting`: ask
    again when the pipeline runs. One that is lost is named, with the gateway's receipt and the broker's statement as
    evidence under --json, and the exit code is 1. Publish its events again, by another gateway.
    """
    from sealcast.clients.publisher import Publisher

    with Publisher(talk.open_realm(afar=True), topic, as_=as_, broker=broker) as publisher:
        found = publisher.confirm()
    lost = [
        {
            "frame": f"{frame.partition}/{frame.offset}",
            "standing": frame.standing,
            "receipt": frame.receipt.hex(),
            "statement": frame.statement.hex(),
        }
        for frame in found.lost
    ]
    for each in lost:
        talk.warn(f"frame {each['frame']} was acknowledged, and is not there ({each['standing']})")
    document = {"committed": found.committed, "waiting": found.waiting, "lost": lost}
    talk.answer(document, f"{found.committed:,} frames committed, {found.waiting:,} waiting, {len(lost):,} lost")
    if lost:
        raise typer.Exit(1)
