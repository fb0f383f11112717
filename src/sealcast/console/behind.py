"""Pages behind a gateway: a process of its own, which answers on a socket that the gateway's process gave it.

    browser ── mutual TLS ──> gateway (who asks, budgets) ── Unix socket, `sealcast-caller: NAME` ──> these pages

Pages need code that opens frames and makes keys, which must not be in the gateway's process (docs/adr/0058). The socket
is in a directory that its user alone may enter, so that whoever speaks to it is the gateway, and says who asks. The
process ends with the gateway's: its standard input is a pipe that closes then.
"""

from __future__ import annotations

import asyncio
import json
import socket
import sys
import threading

from starlette.datastructures import Headers
from starlette.types import ASGIApp

from sealcast.clients.realm import Realm
from sealcast.console.app import Console, application, refusing
from sealcast.console.guard import Guard, NotLetIn
from sealcast.console.serving import PageServer
from sealcast.console.viewer import Viewer
from sealcast.gateway.pages import CALLER, PREFIX


class GatewayDoor:
    """For entities, by the certificate that the gateway has judged."""

    scheme, entrance = "https", "/"

    def __init__(self, hosts: frozenset[str], administrators: frozenset[str]) -> None:
        """`hosts` are those of the gateway's certificate; its port may be another one outside."""
        self._hosts, self._administrators = hosts, administrators

    def answers_at(self, host: str) -> bool:
        name, colon, port = host.rpartition(":")
        if not colon or not port.isdigit():
            name = host
        return name.strip("[]").lower() in self._hosts

    def viewer(self, path: str, headers: Headers) -> Viewer | NotLetIn:
        named = headers.getlist(CALLER)
        if len(named) != 1 or not named[0]:
            return NotLetIn(401, "Nobody knows who asks.", "Open the console through the gateway.")
        return Viewer.over_gateway(named[0], everything=named[0] in self._administrators)


def behind(console: Console, door: GatewayDoor) -> ASGIApp:
    """The pages of a console behind a gateway."""
    return Guard(application(console), door, refusing(PREFIX))


def main() -> None:
    """`python -m sealcast.console.behind`, as the gateway starts it: what it needs is a JSON document."""
    given = json.loads(sys.argv[1])
    listening = socket.socket(fileno=given["fd"])
    door = GatewayDoor(frozenset(given["hosts"]), frozenset(given["administrators"]))
    asyncio.run(_serve(Realm(given["realm"]), PageServer(listening), door))


async def _serve(realm: Realm, server: PageServer, door: GatewayDoor) -> None:
    threading.Thread(target=_end_with_gateway, args=(server,), daemon=True).start()
    console = Console(realm, prefix=PREFIX)
    await server.serve(console, behind(console, door))


def _end_with_gateway(server: PageServer) -> None:
    sys.stdin.read()
    server.stop()


if __name__ == "__main__":
    main()
