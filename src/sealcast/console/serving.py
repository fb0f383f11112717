"""The console's server: on loopback only, under a host name of its own.

Browsers send cookies to every port of a host. Were the console at 127.0.0.1, any other server on this machine that the
user visits would get its cookie. So it is at a name under `localhost` that is drawn for each run: browsers lead all of
them to this machine without asking anybody (RFC 6761), and nobody else knows the name.
"""

from __future__ import annotations

import asyncio
import ipaddress
import signal
import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from secrets import token_hex
from typing import Final

from starlette.types import ASGIApp
from uvicorn import Config, Server

from sealcast.clients.realm import Realm
from sealcast.console.app import Console, guarded
from sealcast.console.viewer import Viewer
from sealcast.console.visits import Visits
from sealcast.errors import Misuse
from sealcast.transports.listening import listen

_NAME_BYTES: Final = 8
#: Connections at once. A page holds one, and loads its files over a few more.
MAX_CONNECTIONS: Final = 2_048
#: A page that is open ends at once when the console does.
DRAIN_S: Final = 2


class PageServer:
    """uvicorn around pages, on a socket that listens already. `run` serves until it is asked to stop."""

    def __init__(self, listening: socket.socket) -> None:
        self._socket = listening
        self._server: Server | None = None
        #: Set when requests are answered.
        self.started = threading.Event()

    async def serve(self, console: Console, pages: ASGIApp) -> None:
        """Serves until SIGTERM, Ctrl-C or `stop`, and closes the console then."""
        config = Config(
            pages,
            http="httptools",
            loop="asyncio",
            ws="none",
            lifespan="off",
            interface="asgi3",
            log_config=None,
            access_log=False,
            proxy_headers=False,
            server_header=False,
            limit_concurrency=MAX_CONNECTIONS,
            timeout_graceful_shutdown=DRAIN_S,
        )
        server = self._server = Server(config)
        config.load()
        server.lifespan = config.lifespan_class(config)
        loop = asyncio.get_running_loop()
        with suppress(ValueError, RuntimeError):  # in another thread than the first there are no signals
            loop.add_signal_handler(signal.SIGTERM, self.stop)
            loop.add_signal_handler(signal.SIGINT, self.stop)
        await server.startup([self._socket])
        self.started.set()
        try:
            await server.main_loop()
        finally:
            await console.close()
            await server.shutdown([self._socket])

    def stop(self) -> None:
        """Ends it in good order, from any thread."""
        if self._server is not None:
            self._server.should_exit = True


class ConsoleService(PageServer):
    """One console on loopback."""

    def __init__(
        self,
        realm: Realm,
        viewer: Viewer,
        host: str = "127.0.0.1",
        port: int = 0,
        *,
        numeric: bool = False,
        figures: Path | None = None,
        tell: Callable[[str], None] = lambda words: None,
    ) -> None:
        """It listens from now on; port 0 takes a free one. With `numeric`, its links name the address itself: for
        browsers that cannot find names under `localhost`. `tell` is told whatever is changed from a page."""
        if not _is_loopback(host):
            raise Misuse(
                f"{host} is not this machine alone, and a console speaks no TLS",
                hint="for a browser elsewhere, forward its port over SSH (ssh -L 7790:127.0.0.1:7790 HOST), "
                "or let entities in over the gateway: sealcast gateway --console",
            )
        super().__init__(listen(host, port))
        self._realm, self._viewer, self._figures, self._tell = realm, viewer, figures, tell
        self.port = int(self._socket.getsockname()[1])
        shown = f"[{host}]" if ":" in host else host
        self.host = f"{shown if numeric else f'sealcast-{token_hex(_NAME_BYTES)}.localhost'}:{self.port}"
        self.visits = Visits()

    def link(self) -> str:
        """A link that lets one browser in, once."""
        return f"http://{self.host}/open/{self.visits.link()}"

    async def run(self) -> None:
        """Serves until SIGTERM, Ctrl-C or `stop`."""
        console = Console(self._realm, figures=self._figures, tell=self._tell)
        await self.serve(console, guarded(console, self.visits, self._viewer, frozenset({self.host})))


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
