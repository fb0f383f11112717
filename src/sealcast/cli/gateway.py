"""sealcast gateway: publishers and subscribers on other machines, over HTTPS."""

from __future__ import annotations

import asyncio
import sys
import time
from contextlib import ExitStack
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sealcast.cli import talk
from sealcast.cli.metrics import PrometheusPort, PrometheusToken, asked_for
from sealcast.errors import extras_named
from sealcast.telemetry.logs import JsonLog

if TYPE_CHECKING:
    from sealcast.gateway.hub import Hub

app = talk.Commands(no_args_is_help=False)


@app.command(epilog="Example: sealcast gateway --listen 127.0.0.1:7443")
def gateway(
    listen: Annotated[
        str, typer.Option(metavar="HOST:PORT", help="Where to listen; port 0 takes a free one.")
    ] = "127.0.0.1:7443",
    name: Annotated[
        str | None, typer.Option(metavar="NAME", help="Which gateway [default: the one whose keys are here].")
    ] = None,
    prometheus: PrometheusPort = None,
    prometheus_token: PrometheusToken = None,
    console: Annotated[
        bool, typer.Option("--console", help="Show the console at /console/ to entities, by their certificates.")
    ] = False,
    console_admin: Annotated[
        list[str] | None,
        typer.Option(
            metavar="ENTITY", help="Who sees the whole realm on the console, as an administrator does; repeatable."
        ),
    ] = None,
    log_requests: Annotated[bool, typer.Option("--log-requests", help="Write a line for every request.")] = False,
) -> None:
    """Let publishers and subscribers on other machines in, until Ctrl-C.

    It speaks HTTPS (TLS 1.3) with a certificate of the realm, and callers prove who they are with theirs. It hands each
    what is its own, and holds no key that opens anything. A frame is acknowledged when it is durable.

    Make a gateway first, where the authority is: sealcast entity enrol door --role gateway --host gateway.example.org

    With --console, browsers elsewhere that have an entity's certificate (`sealcast entity browser`) open the console at
    https://HOST:PORT/console/. Each sees the topics that it has a place at. Nobody's events are shown, because readers'
    keys are not here, and nothing can be changed.

    The log goes to stderr, one JSON document a line. SIGTERM ends it in good order. A renewed certificate is shown
    without a restart (SIGHUP: at once).
    """
    with extras_named("gateway"):
        from sealcast.gateway.running import GatewayService
    from sealcast.trust.handles import GatewayRealm

    host, _, port = listen.rpartition(":")
    if not host or not port.isdigit() or not 0 <= int(port) < 65_536:
        raise typer.BadParameter(f"{listen!r} is no address: write HOST:PORT", param_hint="--listen")
    if console_admin and not console:
        raise typer.BadParameter("this is about the console: give --console, too", param_hint="--console-admin")
    show = asked_for(prometheus, prometheus_token)
    made = GatewayService(
        GatewayRealm(talk.given.realm),
        name,
        host=host.strip("[]"),
        port=int(port),
        log=sys.stderr,
        log_requests=log_requests,
        console=(console_admin or ()) if console else None,
    )
    talk.given.log = JsonLog(sys.stderr)  # one log, whoever writes to it
    talk.note(
        f"gateway {made.name!r} answers at {', '.join(made.hosts)} on port {made.port}; Ctrl-C stops in good order"
    )
    begin, counts = time.monotonic(), dict[str, Any]()
    with ExitStack() as held:

        def ready(hub: Hub) -> None:
            held.enter_context(show(lambda: hub.metrics.registry))
            counts.update(hub=hub)

        asyncio.run(made.run(ready))
    totals = counts["hub"].metrics.totals()
    document = {"gateway": made.name, "port": made.port, **totals, "seconds": round(time.monotonic() - begin, 3)}
    talk.answer(
        document, f"{totals['requests']:,} requests, {totals['frames']:,} frames, {totals['refused']:,} refused"
    )
