"""Connections before they have said anything: how many, from where, and how long.

Ten thousand connections that say nothing must not keep anybody out. One that has not sent a byte costs a file and an
entry in a table here: no task, no TLS. There is room for so many of them, from one address and in all; when there are
more, the oldest goes. An honest client says something at once, so it is the silent ones that go. Addresses whose
attempts were bogus again and again (handshakes that fail, certificates that do not count, no HTTP) are refused for a
while, twice as long each time (paper 004, section 5.1), and forgiven by and by.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
import time
from collections import Counter, OrderedDict
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from sealcast.control.budgets import Budgets
from sealcast.gateway.limits import GatewayLimits
from sealcast.gateway.metrics import GatewayMetrics

_ACCEPTS: Final = 128
_SWEEP_S: Final = 0.25


class GatewayDoors:
    """Takes connections in, and hands those that talk TLS to a protocol."""

    def __init__(
        self,
        listening: socket.socket,
        context: Callable[[], ssl.SSLContext],
        protocol: Callable[[], asyncio.Protocol],
        limits: GatewayLimits,
        metrics: GatewayMetrics,
    ) -> None:
        """`context` is asked for each connection: certificates are exchanged while it runs."""
        self._socket, self._context, self._protocol = listening, context, protocol
        self._limits, self._metrics = limits, metrics
        self._loop = asyncio.get_running_loop()
        #: Those that have said nothing, the oldest first, with their addresses and when they came.
        self._silent: OrderedDict[socket.socket, tuple[str, float]] = OrderedDict()
        self._silent_from = Counter[str]()
        self._handshakes = set[asyncio.Task[None]]()
        self._established = Counter[str]()
        self._bogus = Budgets(limits.bogus)
        self._sweeper = asyncio.ensure_future(self._sweep())
        self._loop.add_reader(self._socket, self._accept)
        metrics.silent.set_function(lambda: len(self._silent))
        metrics.connections.set_function(self._established.total)

    def strike(self, address: str) -> None:
        """A bogus attempt from there."""
        self._bogus.bogus(address, _now())

    def left(self, address: str) -> None:
        """A connection from there has ended."""
        self._established[address] -= 1
        if self._established[address] <= 0:
            del self._established[address]

    def close(self) -> None:
        """Takes in nobody any more."""
        self._loop.remove_reader(self._socket)
        self._socket.close()
        self._sweeper.cancel()
        for task in list(self._handshakes):
            task.cancel()
        for connection in list(self._silent):
            self._forget(connection)
            connection.close()

    # --- inside -------------------------------------------------------------------------------------

    def _accept(self) -> None:
        for _ in range(_ACCEPTS):
            try:
                connection, address = self._socket.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError:
                # Too many open files: the oldest that says nothing makes room, so that the next one is accepted.
                self._metrics.refused("files")
                self._evict()
                return
            self._arrived(connection, str(address[0]))

    def _arrived(self, connection: socket.socket, address: str) -> None:
        limits, now = self._limits, time.monotonic()
        if not self._bogus.spend(address, _now()).admitted:
            self._refuse(connection, "bogus")
            return
        if self._established[address] >= limits.per_address or self._established.total() >= limits.connections:
            self._refuse(connection, "full")
            return
        connection.setblocking(False)
        if self._silent_from[address] >= limits.silent_per_address:
            self._evict(address)
        elif len(self._silent) >= limits.silent:
            self._evict()
        self._silent[connection] = address, now
        self._silent_from[address] += 1
        self._loop.add_reader(connection, self._spoke, connection)

    def _spoke(self, connection: socket.socket) -> None:
        """It sent its first bytes, or has gone."""
        address, _ = self._forget(connection)
        try:
            gone = not connection.recv(1, socket.MSG_PEEK)
        except OSError:
            gone = True
        if gone:
            connection.close()
            return
        if len(self._handshakes) >= self._limits.handshakes:
            self._refuse(connection, "handshakes")
            return
        task = asyncio.ensure_future(self._shake(connection, address))
        self._handshakes.add(task)
        task.add_done_callback(self._handshakes.discard)

    async def _shake(self, connection: socket.socket, address: str) -> None:
        _keep_watch(connection)
        try:
            await self._loop.connect_accepted_socket(
                self._protocol,
                connection,
                ssl=self._context(),
                ssl_handshake_timeout=self._limits.handshake_s,
                ssl_shutdown_timeout=1.0,
            )
        except (OSError, ssl.SSLError, EOFError) as error:
            connection.close()
            # Who hangs up in the middle did nothing bogus: a cable was cut, or a balancer looked whether we are there.
            hung_up = not isinstance(error, ssl.SSLError) or isinstance(error, ssl.SSLEOFError)
            reason = "handshake" if hung_up else "tls"
            self._metrics.refused(reason)
            if reason == "tls":
                self.strike(address)
            return
        self._established[address] += 1

    def _forget(self, connection: socket.socket) -> tuple[str, float]:
        self._loop.remove_reader(connection)
        address, since = self._silent.pop(connection)
        self._silent_from[address] -= 1
        if not self._silent_from[address]:
            del self._silent_from[address]
        return address, since

    def _evict(self, address: str | None = None) -> None:
        """Ends the oldest connection that has said nothing, of one address or of all."""
        for connection, (came_from, _) in self._silent.items():
            if address in (None, came_from):
                self._forget(connection)
                self._refuse(connection, "silent")
                return

    def _refuse(self, connection: socket.socket, reason: str) -> None:
        self._metrics.refused(reason)
        with suppress(OSError):
            connection.close()

    async def _sweep(self) -> None:
        while True:
            await asyncio.sleep(_SWEEP_S)
            before = time.monotonic() - self._limits.silence_s
            while self._silent and next(iter(self._silent.values()))[1] < before:
                self._evict()


def _keep_watch(connection: socket.socket) -> None:
    """Notices within a minute that the other end's machine is gone, also when nothing is sent."""
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in (("TCP_KEEPIDLE", 30), ("TCP_KEEPINTVL", 10), ("TCP_KEEPCNT", 3), ("TCP_USER_TIMEOUT", 60_000)):
        if hasattr(socket, name):
            connection.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)


def _now() -> int:
    return time.monotonic_ns() // 1_000
