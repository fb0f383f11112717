"""A gateway, from its start to its end: `sealcast gateway` and the tests run it through this."""

from __future__ import annotations

import asyncio
import signal
import ssl
import threading
from collections.abc import Callable, Collection
from contextlib import suppress
from typing import Final, TextIO

from sealcast.errors import CertificateRejected, Misuse, NotFound
from sealcast.gateway import openapi
from sealcast.gateway.hub import Hub
from sealcast.gateway.limits import DEFAULT_LIMITS, GatewayLimits
from sealcast.gateway.pages import Pages
from sealcast.gateway.serving import GatewayServer
from sealcast.gateway.tls import server_context
from sealcast.telemetry.logs import JsonLog
from sealcast.transports.listening import listen
from sealcast.trust.certificates.roles import Role
from sealcast.trust.handles import GatewayRealm

#: How often it looks whether the registry has a newer certificate for it.
_LOOK_S: Final = 1.0


class GatewayService:
    """One gateway. `run` serves until it is asked to stop."""

    def __init__(
        self,
        realm: GatewayRealm,
        name: str | None = None,
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        limits: GatewayLimits = DEFAULT_LIMITS,
        log: TextIO | None = None,
        log_requests: bool = False,
        console: Collection[str] | None = None,
    ) -> None:
        """Of that name, or the only one whose keys are here. It listens from now on; port 0 takes a free one. With
        `console`, it has the console's pages; the entities that are named there see the whole realm on them."""
        self._realm, self._limits, self._console = realm, limits, console
        if console is not None and not realm.site.here:
            raise Misuse(
                "this is a broker's own machine, and a console shows the realm",
                hint="start the gateway with --console where the realm is",
            )
        self._identity = realm.gateway(name or _only(realm))
        self._log = JsonLog(log, requests=log_requests)
        # Before anything is started: a gateway whose certificate does not count says so at once.
        state = realm.state()
        for each in console or ():
            state.entity(each)
        own = state.entity(self._identity.name).certificate
        found = realm.trust(state).verify(own, realm.clock(), state.revoked, role=Role.GATEWAY)
        self.hosts, self.name = found.hosts, self._identity.name
        self._socket = listen(host, port)
        self.port = int(self._socket.getsockname()[1])
        self._context: ssl.SSLContext | None = None
        self._shown = b""
        self._server: GatewayServer | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self.hub: Hub | None = None
        #: Set when requests are answered.
        self.started = threading.Event()

    async def run(self, ready: Callable[[Hub], None] = lambda hub: None) -> None:
        """Serves until SIGTERM, Ctrl-C or `stop`; SIGHUP lets it look for its newest certificate now."""
        self._loop = asyncio.get_running_loop()
        hub = self.hub = Hub(self._realm, self._identity, self._limits, self._log, openapi.document())
        pages: Pages | None = None
        try:
            self._exchange()
            if self._console is not None:
                pages = Pages(self._realm.paths.root, self.hosts, self._console, self._log)
            self._server = GatewayServer(hub, self._socket, self._current, pages)
            with suppress(ValueError, RuntimeError):  # in another thread than the first there are no signals
                self._loop.add_signal_handler(signal.SIGHUP, self._exchange)
                self._loop.add_signal_handler(signal.SIGTERM, self.stop)
                self._loop.add_signal_handler(signal.SIGINT, self.stop)
            keeping = asyncio.ensure_future(self._keep_certificate())
            # Not `serve`, which answers to signals itself, and ends the process by the one that it got.
            serving = asyncio.ensure_future(self._server._serve())
            while not self._server.started and not serving.done():
                await asyncio.sleep(0.005)
            ready(hub)
            self._log.write(
                "started", listen=f"{self._socket.getsockname()[0]}:{self.port}", version=hub.newest.version
            )
            self.started.set()
            try:
                await serving
            finally:
                keeping.cancel()
            self._log.write("stopped")
        finally:
            if pages is not None:
                await pages.close()
            hub.close()
            self._socket.close()

    def stop(self) -> None:
        """Ends it in good order, from any thread."""
        if self._server is not None:
            self._server.should_exit = True

    def _current(self) -> ssl.SSLContext:
        assert self._context is not None
        return self._context

    def _exchange(self) -> None:
        """Shows the newest certificate that the registry has of it, from the next connection on."""
        assert self.hub is not None
        seen = self.hub.newest.seen
        shown = seen.state.entity(self._identity.name).certificate
        try:
            self._context = server_context(self._identity, seen, self._realm.clock())
        except (CertificateRejected, Misuse) as error:
            if self._context is None:
                raise
            # The one before is shown on: readiness says that it does not count.
            self._log.write("certificate", message=error.message)
            return
        if self._shown:
            self._log.write("certificate", message="the next certificate is shown from now on")
        self._shown = shown

    async def _keep_certificate(self) -> None:
        assert self.hub is not None
        known = self.hub.newest.seen.state.founding
        while True:
            await asyncio.sleep(_LOOK_S)
            state = self.hub.newest.seen.state
            if state.entity(self._identity.name).certificate != self._shown or state.founding != known:
                known = state.founding
                self._exchange()


def _only(realm: GatewayRealm) -> str:
    known = [who.name for who in realm.state().holders(Role.GATEWAY)]
    here = [name for name in known if realm.paths.gateway_key(name).exists()]
    if len(here) == 1:
        return here[0]
    if here:
        raise Misuse(f"the keys of several gateways are here: {', '.join(here)}", hint="say which: --name NAME")
    raise NotFound(
        "the realm has no gateway whose keys are here",
        hint="make one where the authority is: sealcast entity enrol NAME --role gateway --host HOST",
    )
