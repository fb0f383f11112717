"""sealcast mqtt bridge: frames from an MQTT broker into the log, mail from mailboxes out to it."""

from __future__ import annotations

import time
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated, Final

import typer

from sealcast.cli import talk
from sealcast.cli.metrics import PrometheusPort, PrometheusToken
from sealcast.cli.stopping import stop_asked

EXAMPLE: Final = "Example: sealcast mqtt bridge quotes --host 127.0.0.1 --subscriber alice"


def bridge(
    topics: Annotated[list[str], typer.Argument(metavar="TOPIC...")],
    host: Annotated[str, typer.Option(metavar="HOST", help="Where the MQTT broker is.")] = "127.0.0.1",
    port: Annotated[int | None, typer.Option(metavar="PORT", help="Default: 1883, with TLS 8883.")] = None,
    subscriber: Annotated[
        list[str] | None,
        typer.Option(metavar="ENTITY", help="Whose mail to send; repeat it for several. Its cursor moves with it."),
    ] = None,
    protocol: Annotated[str, typer.Option(metavar="VERSION", help="Of MQTT: 5 or 3.1.1.")] = "5",
    name: Annotated[
        str, typer.Option(metavar="NAME", help="The bridge's client id: its session is its own.")
    ] = "bridge",
    user: Annotated[str | None, typer.Option(metavar="NAME", help="Of the bridge, at the MQTT broker.")] = None,
    password_file: Annotated[Path | None, typer.Option(metavar="FILE", help="Its password is the first line.")] = None,
    ca: Annotated[Path | None, typer.Option(metavar="FILE", help="TLS: the authority of the MQTT broker.")] = None,
    cert: Annotated[Path | None, typer.Option(metavar="FILE", help="TLS: the bridge's own certificate.")] = None,
    key: Annotated[Path | None, typer.Option(metavar="FILE", help="TLS: its key.")] = None,
    at: Annotated[
        str, typer.Option("--broker", metavar="NAME", help="Whose log frames without a name go to.")
    ] = "broker",
    once: Annotated[bool, typer.Option("--once", help="Stop when nothing is left to do.")] = False,
    prometheus: PrometheusPort = None,
    prometheus_token: PrometheusToken = None,
) -> None:
    """Carry frames from an MQTT broker into the log, and subscribers' mail out to it, until Ctrl-C.

    A frame is acknowledged when it is durable in the log. Mail counts as delivered when the MQTT broker has
    acknowledged it. A bridge that was killed continues where it stopped. It has no keys: it can read nothing.
    """
    from sealcast.broker.metrics_page import read_token
    from sealcast.mqtt.bridge import Bridge
    from sealcast.mqtt.counting import serve_counts
    from sealcast.mqtt.link import MqttLink
    from sealcast.trust.handles import EntityRealm

    chosen = port if port is not None else 1883 if ca is None else 8883
    password = None if password_file is None else password_file.read_text().partition("\n")[0]
    link = MqttLink(host, chosen, name, protocol, user, password, ca, cert, key)
    begin = time.monotonic()
    with (
        ExitStack() as held,
        Bridge(
            EntityRealm(talk.given.realm), link, topics, broker=at, subscribers=subscriber or (), told=talk.note
        ) as made,
    ):
        if prometheus is not None:
            served = held.enter_context(serve_counts("bridge", made.counts, prometheus, read_token(prometheus_token)))
            talk.note(f"metrics on http://127.0.0.1:{served.port}/metrics")
        stop = held.enter_context(stop_asked())
        counts = made.run(stop, once=once)
    names = ("frames", "duplicates", "refused", "messages", "deliveries", "connections")
    document = {**dict.fromkeys(names, 0), **counts, "seconds": round(time.monotonic() - begin, 3)}
    said = (
        f"{document['frames']:,} frames in, {document['refused']:,} refused, {document['duplicates']:,} duplicates; "
        f"{document['deliveries']:,} deliveries out in {document['messages']:,} messages"
    )
    talk.answer(document, said)
