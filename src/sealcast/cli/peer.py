"""sealcast peer: the peers of topics without brokers."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from sealcast.cli import peer_trees, talk
from sealcast.cli.metrics import PrometheusPort, PrometheusToken, asked_for, counting
from sealcast.cli.stopping import stop_asked

if TYPE_CHECKING:
    from threading import Event

    from prometheus_client import CollectorRegistry

    from sealcast.protections.attribute.peering.host import PeerHost

app = talk.group("Run and show the peers that carry the events of `attribute` topics.")

#: With --once: how long nothing has happened when all is done.
SETTLED_S: Final = 2.0


@app.command(daemon=True, epilog="Example: sealcast peer run --listen 127.0.0.1:7400")
def run(
    names: Annotated[
        list[str] | None, typer.Option("--as", metavar="ENTITY", help="Host this entity; can be repeated.")
    ] = None,
    listen: Annotated[
        str, typer.Option(metavar="HOST:PORT", help="Where to listen; port 0 takes a free one.")
    ] = "127.0.0.1:0",
    announce: Annotated[
        str | None, typer.Option(metavar="HOST", help="The host that others dial [default: the one of --listen].")
    ] = None,
    once: Annotated[bool, typer.Option("--once", help="Carry everything that waits, and stop.")] = False,
    heartbeat: Annotated[
        float, typer.Option(metavar="SECONDS", min=0.1, max=60.0, help="How soon a silent peer is noticed.")
    ] = 5.0,
    relay_only: Annotated[
        bool, typer.Option("--no-rendezvous", help="Do not offer to run the roots of trees.")
    ] = False,
    prometheus: PrometheusPort = None,
    prometheus_token: PrometheusToken = None,
) -> None:
    """Host peers until Ctrl-C: of every entity whose keys are here, or of those that are named.

    A peer carries the events of its publisher to others, keeps for its subscriber what its keys open, and passes on
    what is for peers below it, which it cannot read. Peers talk TLS 1.3 and prove who they are with the realm's
    certificates. They find each other in the registry. A process that is killed loses nothing: it continues where it
    stopped, gets what others kept meanwhile, and says what it missed.

    All peers of a topic should have the same --heartbeat: a peer is given up after about three of them.
    """
    from sealcast.protections.attribute.peering.host import PeerHost
    from sealcast.protections.attribute.peering.hosting import ListenAt, with_heartbeat

    host, _, port = listen.rpartition(":")
    if not host or not port.isdigit() or not 0 <= int(port) < 65_536:
        raise typer.BadParameter(f"{listen!r} is no address: write HOST:PORT", param_hint="--listen")
    at = ListenAt(host.strip("[]"), int(port), announce)
    limits, settings = with_heartbeat(heartbeat)
    made = PeerHost(
        talk.open_entity_realm(),
        names or None,
        at,
        rendezvous=not relay_only,
        limits=limits,
        settings=settings,
        told=talk.note,
    )
    begin, show = time.monotonic(), asked_for(prometheus, prometheus_token)
    with stop_asked() as stop, show(lambda: metrics_of(made)):
        counts = asyncio.run(_run(made, stop, once))
    shown = ("peers", "published", "received", "forwarded", "deliveries", "refused", "missed", "dropped", "links")
    document: dict[str, Any] = {**dict.fromkeys(shown, 0), **counts, "seconds": round(time.monotonic() - begin, 3)}
    said = (
        f"{document['peers']:,} peers: {document['published']:,} events published, {document['received']:,} received, "
        f"{document['forwarded']:,} forwarded, {document['deliveries']:,} delivered, {document['refused']:,} refused, "
        f"{document['missed']:,} missed"
    )
    talk.answer(document, said)


def metrics_of(host: PeerHost) -> CollectorRegistry:
    """What the peers of a topic did, all of them together: no number is anybody's own."""
    labels = ("topic", "outcome")
    return counting("sealcast_peer_events", "Events at peers, and what became of them", labels, host.counted)


async def _run(host: PeerHost, stop: Event, once: bool) -> dict[str, int]:
    if not once:
        talk.note("peers are running; Ctrl-C stops in good order")
    return dict(await host.run(stop.is_set, once=SETTLED_S if once else None))


@app.command(epilog="Example: sealcast peer show")
def show(
    topic: Annotated[str | None, typer.Option(metavar="TOPIC", help="Only the peers of this topic.")] = None,
    svg: Annotated[Path | None, typer.Option(metavar="FILE", help="Draw the trees of --topic into this file.")] = None,
) -> None:
    """Show the peers whose processes run on this machine, and their places in the trees.

    What peers elsewhere have told, theirs show. A peer whose process died is shown as it last stood.
    """
    if svg is not None and topic is None:
        raise typer.BadParameter("say which topic: --topic TOPIC", param_hint="--svg")
    peer_trees.show(talk.open_realm(), topic, svg)
