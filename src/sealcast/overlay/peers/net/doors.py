"""The socket that a process listens on: one for all identities that it hosts, each behind a door of its own.

A door is a random word that stands beside host and port in an identity's address. Whoever dials names it in the TLS
handshake (SNI), which eavesdroppers see, so it says nothing: only the realm's members know whose it is. It chooses the
certificate that is shown and proves nothing. An unknown door is refused before any certificate is shown.

Connections are counted from the moment that TCP has them. Those that have proved nothing are few, from one address and
in all, and short-lived, so that strangers who only connect keep nobody out for long.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Final

from sealcast.overlay.peers.net.frames import LinkEnded, LinkReason
from sealcast.overlay.peers.net.limits import LinkLimits
from sealcast.overlay.peers.net.link import PeerLink
from sealcast.overlay.peers.net.tls import PeerTrust, TlsIdentity, listening_context, proven
from sealcast.transports.listening import listen
from sealcast.trust.keys.peer_addresses import PeerAddress

#: After the operating system refused to accept a connection.
_PAUSE_S: Final = 0.1

Arrived = Callable[[PeerLink], Awaitable[None]]


class AddressGate:
    """How many connections there are, by remote address and in all."""

    def __init__(self, limits: LinkLimits) -> None:
        self._limits = limits
        self._unproven, self._links = Counter[str](), Counter[str]()

    @contextmanager
    def arriving(self, address: str) -> Iterator[bool]:
        """Whether a connection from there may prove itself now; counted while the block lasts."""
        limits = self._limits
        room = (
            self._unproven[address] < limits.unproven_per_address
            and self._unproven.total() < limits.unproven
            and self._links[address] < limits.per_address
            and self._links.total() < limits.links
        )
        with _counted(self._unproven, address) if room else _nothing():
            yield room

    @contextmanager
    def staying(self, address: str) -> Iterator[None]:
        """A link from there, while the block lasts."""
        with _counted(self._links, address):
            yield


class PeerListener:
    """Listens, lets nobody in without proof, and hands proven links to the identity that they asked for."""

    def __init__(self, trust: PeerTrust, limits: LinkLimits) -> None:
        self._trust, self._limits = trust, limits
        self._gate = AddressGate(limits)
        self._doors: dict[str, tuple[TlsIdentity, Arrived]] = {}
        self._socket: socket.socket | None = None
        self._context = listening_context(trust.trust)
        self._context.sni_callback = self._choose
        self._tasks = set[asyncio.Task[None]]()
        #: What became of connections, by reason.
        self.counts = Counter[str]()

    def open(self, host: str, port: int) -> int:
        """Listens from now on; the port, which the system chooses for port 0."""
        found = listen(host, port)
        self._socket = found
        self._start(self._accept(found))
        return int(found.getsockname()[1])

    def serve(self, door: str, identity: TlsIdentity, arrived: Arrived) -> None:
        """Hands links that ask for this door to `arrived`, from now on with this certificate."""
        self._doors[door] = identity, arrived

    async def close(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    # --- inside -------------------------------------------------------------------------------------

    def _start(self, work: Awaitable[None]) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _accept(self, listening: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                connection, address = await loop.sock_accept(listening)
            except OSError:
                self.counts["not-accepted"] += 1  # too many open files, or gone before it was looked at
                await asyncio.sleep(_PAUSE_S)
                continue
            self._start(self._receive(connection, str(address[0])))

    async def _receive(self, connection: socket.socket, address: str) -> None:
        with self._gate.arriving(address) as room:
            if not room:
                self.counts[LinkReason.FULL] += 1
                connection.close()
                return
            try:
                link, arrived = await self._prove(connection)
            except LinkEnded as ended:
                self.counts[ended.reason] += 1
                return
        self.counts["proven"] += 1
        with self._gate.staying(address):
            await arrived(link)

    async def _prove(self, connection: socket.socket) -> tuple[PeerLink, Arrived]:
        loop, limits = asyncio.get_running_loop(), self._limits
        reader = asyncio.StreamReader(loop=loop)
        protocol = asyncio.StreamReaderProtocol(reader, loop=loop)
        try:
            transport, _ = await loop.connect_accepted_socket(
                lambda: protocol,
                connection,
                ssl=self._context,
                ssl_handshake_timeout=limits.handshake_s,
                ssl_shutdown_timeout=limits.goodbye_s,
            )
        except (OSError, ssl.SSLError, EOFError) as error:
            connection.close()
            raise LinkEnded(_why(error), "the handshake failed") from None
        writer = asyncio.StreamWriter(transport, protocol, reader, loop)
        try:
            shown = transport.get_extra_info("ssl_object")
            peer = proven(shown, self._trust)
            arrived = next((a for identity, a in self._doors.values() if identity.server is shown.context), None)
            if arrived is None:
                raise LinkEnded(LinkReason.PROTOCOL, "the door was closed meanwhile")
        except LinkEnded:
            transport.abort()
            raise
        return PeerLink(peer, reader, writer, limits, dialled=False), arrived

    def _choose(self, connection: ssl.SSLObject, door: str | None, context: ssl.SSLContext) -> int | None:
        found = self._doors.get(door or "")
        if found is None:
            return ssl.ALERT_DESCRIPTION_UNRECOGNIZED_NAME
        connection.context = found[0].server
        return None


async def dial(
    address: PeerAddress, name: str, identity: TlsIdentity, trust: PeerTrust, limits: LinkLimits
) -> PeerLink:
    """A link to the entity of that name, if it is who answers at the address; LinkEnded."""
    try:
        async with asyncio.timeout(limits.handshake_s):
            reader, writer = await asyncio.open_connection(
                address.host,
                address.port,
                ssl=identity.client,
                server_hostname=address.door,
                ssl_shutdown_timeout=limits.goodbye_s,
            )
    except TimeoutError:
        raise LinkEnded(LinkReason.UNREACHABLE, f"{name!r} does not answer") from None
    except (OSError, ssl.SSLError, EOFError) as error:
        raise LinkEnded(_why(error), f"{name!r} cannot be reached: {type(error).__name__}") from None
    try:
        peer = proven(writer.get_extra_info("ssl_object"), trust, name)
    except LinkEnded:
        writer.transport.abort()
        raise
    return PeerLink(peer, reader, writer, limits, dialled=True)


def _why(error: Exception) -> LinkReason:
    if isinstance(error, ssl.SSLCertVerificationError):
        return LinkReason.CERTIFICATE
    if isinstance(error, ssl.SSLError):
        return LinkReason.PROTOCOL
    return LinkReason.UNREACHABLE


@contextmanager
def _counted(counter: Counter[str], key: str) -> Iterator[None]:
    counter[key] += 1
    try:
        yield
    finally:
        counter[key] -= 1
        if not counter[key]:
            del counter[key]


@contextmanager
def _nothing() -> Iterator[None]:
    yield
