"""sealcast mqtt broker: an MQTT broker that matches sealed events against sealed filters."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from sealcast.cli import talk
from sealcast.cli.metrics import PrometheusPort, PrometheusToken
from sealcast.cli.stopping import stop_asked

if TYPE_CHECKING:
    from threading import Event

    from sealcast.mqtt.broker import Address

EXAMPLE: Final = "Example: sealcast mqtt broker --listen 127.0.0.1:1883"


def broker(
    listen: Annotated[str, typer.Option(metavar="HOST:PORT", help="Where to listen.")] = "127.0.0.1:1883",
    cert: Annotated[Path | None, typer.Option(metavar="FILE", help="TLS: the broker's certificate.")] = None,
    key: Annotated[Path | None, typer.Option(metavar="FILE", help="TLS: its key.")] = None,
    node: Annotated[str, typer.Option("--broker", metavar="NAME", help="Whose halves it matches with.")] = "broker",
    keep: Annotated[int, typer.Option("--keep-mib", metavar="N", min=16, help="Of events, for clients away.")] = 1024,
    prometheus: PrometheusPort = None,
    prometheus_token: PrometheusToken = None,
) -> None:
    """Be an MQTT broker (3.1.1) for the realm's searchable topics, until Ctrl-C.

    It delivers each event to those whose sealed filters match it, and reads neither. An event at QoS 1 is acknowledged
    when it is durable. Clients sign in with their own keys, as sealcast.mqtt.Client does. Clients that were away get
    what they missed, as far back as --keep-mib reaches.
    """
    from sealcast.mqtt.broker import Address

    host, _, port = listen.rpartition(":")
    if not host or not port.isdigit() or not 0 < int(port) < 65_536:
        raise typer.BadParameter(f"{listen!r} is no address: write HOST:PORT", param_hint="--listen")
    address = Address(host.strip("[]"), int(port), cert, key)
    begin = time.monotonic()
    with ExitStack() as held:
        stop = held.enter_context(stop_asked())
        counts = asyncio.run(_serve(held, address, node, keep << 20, (prometheus, prometheus_token), stop))
    names = ("events", "deliveries", "refused", "connections")
    document = {**dict.fromkeys(names, 0), **counts, "seconds": round(time.monotonic() - begin, 3)}
    said = (
        f"{document['events']:,} events in, {document['deliveries']:,} deliveries, {document['refused']:,} refused, "
        f"{document['connections']:,} connections"
    )
    talk.answer(document, said)


async def _serve(
    held: ExitStack, address: Address, node: str, keep: int, metrics: tuple[int | None, Path | None], stop: Event
) -> Counter[str]:
    from sealcast.broker.metrics_page import read_token
    from sealcast.errors import Bug, SealcastError
    from sealcast.mqtt.broker import MatchingBroker
    from sealcast.mqtt.counting import serve_counts

    made = MatchingBroker(talk.open_broker_realm(), address, broker=node, max_bytes=keep, told=talk.note)
    await made.begin()
    talk.note(f"listening on {address.host}:{address.port}; Ctrl-C stops in good order")
    port, token = metrics
    if port is not None:
        served = held.enter_context(serve_counts("broker", made.counts, port, read_token(token)))
        talk.note(f"metrics on http://127.0.0.1:{served.port}/metrics")
    while not stop.is_set() and made.failed() is None:
        await asyncio.sleep(0.05)
    failure = made.failed()
    await made.close()
    if isinstance(failure, SealcastError):
        raise failure
    if failure is not None:
        raise Bug(f"the broker cannot go on: {type(failure).__name__}") from failure
    return made.counts
