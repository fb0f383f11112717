"""uvicorn around the application: its protocol with our limits of time and size, and a server that drains.

uvicorn parses HTTP (httptools) and runs the application. What it leaves open is closed here: the certificate of the
other end, a limit on a request's head and on how long it may take, one on how long the other end may take nothing of an
answer, and what waits when a connection ends or the gateway is to stop.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from asyncio import sslproto
from collections.abc import Callable
from functools import partial
from typing import Any, Final

from uvicorn import Config, Server
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from sealcast.gateway.app import CONNECTION, GatewayApp
from sealcast.gateway.doors import GatewayDoors
from sealcast.gateway.hub import Hub
from sealcast.gateway.limits import MAX_HEAD_BYTES
from sealcast.gateway.pages import Pages
from sealcast.gateway.tls import shown_by

#: asyncio reserves so much for every TLS connection, for as long as it lasts; its own choice is four times that, and a
#: thousand readers who wait would cost a quarter of a gigabyte.
TLS_BUFFER_BYTES: Final = 64 << 10


class GatewayProtocol(HttpToolsProtocol):
    """One connection, after its handshake."""

    def __init__(self, *arguments: Any, hub: Hub, doors: Callable[[], GatewayDoors], **settings: Any) -> None:
        super().__init__(*arguments, **settings)
        self._hub, self._doors = hub, doors
        self.certificate: bytes | None = None
        self.waits: set[asyncio.Timeout] = set()
        self._deadline: asyncio.TimerHandle | None = None
        self._stalled: asyncio.TimerHandle | None = None
        self._head = 0
        self._whole = True

    # --- what the application asks (asked.Connection) -----------------------------------------------

    @property
    def leaving(self) -> bool:
        return self._hub.leaving or self.gone

    @property
    def gone(self) -> bool:
        return self.transport.is_closing()

    def abort(self) -> None:
        self.transport.abort()

    # --- the connection -----------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.certificate = shown_by(transport.get_extra_info("ssl_object"))
        self._due(self._hub.limits.head_s)

    def connection_lost(self, exc: Exception | None) -> None:
        self._due(None)
        self._resumed()
        self.end_waits()
        self._doors().left(self.client[0] if self.client else "?")
        super().connection_lost(exc)

    def end_waits(self) -> None:
        """Whatever waits for something answers now with what there is."""
        for limit in list(self.waits):
            limit.reschedule(self.loop.time())

    def pause_writing(self) -> None:
        super().pause_writing()
        if self._stalled is None:
            self._stalled = self.loop.call_later(self._hub.limits.stall_s, self.transport.abort)

    def resume_writing(self) -> None:
        self._resumed()
        super().resume_writing()

    def _resumed(self) -> None:
        if self._stalled is not None:
            self._stalled.cancel()
            self._stalled = None

    def _due(self, seconds: float | None) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None
        if seconds is not None:
            self._deadline = self.loop.call_later(seconds, self.transport.abort)

    # --- requests -----------------------------------------------------------------------------------

    def data_received(self, data: bytes) -> None:
        if self.parser is None or self.transport.is_closing():
            return
        super().data_received(data)

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self.scope[CONNECTION] = self  # type: ignore[typeddict-unknown-key]
        self._head, self._whole = 0, False
        if self._deadline is None:
            self._due(self._hub.limits.head_s)

    def on_url(self, url: bytes) -> None:
        self._count(url)
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        self._count(name, value)
        super().on_header(name, value)

    def on_headers_complete(self) -> None:
        self._due(None)
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        self._whole = True
        super().on_message_complete()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if not self._whole and not self.pipeline:
            # It was refused before all of it had come: what is left of it is not waited for.
            self.transport.close()

    def send_400_response(self, msg: str) -> None:
        self._doors().strike(self.client[0] if self.client else "?")
        super().send_400_response(msg)

    def _count(self, *parts: bytes) -> None:
        self._head += sum(map(len, parts))
        if self._head > MAX_HEAD_BYTES:
            raise ValueError("the head of a request is too large")


class GatewayServer(Server):
    """uvicorn's server, behind our doors."""

    def __init__(
        self,
        hub: Hub,
        listening: socket.socket,
        context: Callable[[], ssl.SSLContext],
        pages: Pages | None = None,
    ) -> None:
        limits = hub.limits
        config = Config(
            GatewayApp(hub, pages),
            http="httptools",
            loop="asyncio",
            ws="none",
            lifespan="off",
            interface="asgi3",
            log_config=None,
            access_log=False,
            proxy_headers=False,
            server_header=False,
            timeout_keep_alive=int(limits.idle_s),
            timeout_graceful_shutdown=int(limits.drain_s),
        )
        super().__init__(config)
        sslproto.SSLProtocol.max_size = TLS_BUFFER_BYTES
        config.load()
        self._hub, self._listening, self._context = hub, listening, context
        self.doors: GatewayDoors | None = None

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        make = partial(
            GatewayProtocol,
            config=self.config,
            server_state=self.server_state,
            app_state={},
            hub=self._hub,
            doors=self._opened,
        )
        self.servers = []
        self.doors = GatewayDoors(self._listening, self._context, make, self._hub.limits, self._hub.metrics)
        self.started = True

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Takes in nobody, lets nobody wait, and ends when what is under way has."""
        self._hub.leaving = True
        self._opened().close()
        self._hub.feeds.wake()
        for connection in list(self.server_state.connections):
            if isinstance(connection, GatewayProtocol):
                connection.end_waits()
        await super().shutdown()

    def _opened(self) -> GatewayDoors:
        assert self.doors is not None
        return self.doors
