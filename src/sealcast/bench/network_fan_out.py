"""Row `fan-out` of suite `network`: one event for a thousand followers of one ledger, all over TLS.

    ours        CPU of the gateway's process for an event that a thousand connections follow
    reference   CPU of a bare asyncio server that writes the same bytes to a thousand TLS connections

Both servers have the same certificate and the same clients, which are in this process and are not counted. An event
ends when every client has all of its bytes. The ratio is ours by the reference: what the gateway adds to the network.
"""

from __future__ import annotations

import asyncio
import os
import ssl
import statistics
import tempfile
import threading
import time
from asyncio import sslproto
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Final

from sealcast.bench.network_world import GATEWAY, PATIENCE_S, ServerProcess, files_for, gateway
from sealcast.bench.report import BenchRow
from sealcast.errors import Unavailable
from sealcast.gateway.newest import SeenRealm
from sealcast.gateway.serving import TLS_BUFFER_BYTES
from sealcast.gateway.tls import server_context
from sealcast.log.entry import Entry, PieceRef, slot_bits
from sealcast.log.ledger import Ledger
from sealcast.log.offsets import PinnedOffset
from sealcast.log.pieces import Pieces
from sealcast.model.schema import Attribute, Schema, Type
from sealcast.trust.certificates.certificate import parse
from sealcast.trust.deployment import Realm
from sealcast.trust.handles import GatewayRealm
from sealcast.trust.tls import HTTP, bare_context, show

FOLLOWERS: Final = 1_000
EVENTS: Final = 20
ROUNDS: Final = 3
#: The same for a first look.
QUICK: Final = (50, 4, 1)
PIECE_BYTES: Final = 1_200
_TOPIC, _READER = "quotes", "reader"
_PATH: Final = f"/v1/topics/{_TOPIC}/brokers/broker/mail/follow?from="
_AT_ONCE: Final = 32


def rows(*, quick: bool = False) -> Iterator[BenchRow]:
    """Milliseconds of the server's CPU for one event."""
    followers, events, rounds = QUICK if quick else (FOLLOWERS, EVENTS, ROUNDS)
    with tempfile.TemporaryDirectory(prefix="sealcast-fan-out-") as directory, files_for(followers):
        world = _World(Path(directory) / "realm")
        ours, reference = asyncio.run(_measure(world, followers, events, rounds))
    yield BenchRow(
        "fan-out", ours, reference, f"bare TLS writes to {followers} connections", ours / reference, "CPU ms/event"
    )


class _World:
    """A realm with one reader and a gateway, and a ledger that grows by an event at a time."""

    def __init__(self, root: Path) -> None:
        self.realm = Realm.create(root)
        self.realm.create_topic(_TOPIC, Schema((Attribute("price", Type.INT, min=0, max=1_000),)))
        self.realm.enrol(_READER)
        self.realm.grant(_TOPIC, _READER)
        self.realm.subscribe(_TOPIC, _READER, "price > 0")
        self.realm.add_gateway(GATEWAY, ["localhost"])
        state = self.realm.state()
        self._slot = state.slot_of(_TOPIC, _READER) or 0
        self._paths, self._about = self.realm.paths.topic(_TOPIC), state.topic(_TOPIC)
        self.ledger = Ledger(self._paths.ledger, self.realm.broker().journal_key(self._about.id))

    def client_context(self) -> ssl.SSLContext:
        state = self.realm.state()
        trust = self.realm.trust(state)
        context = bare_context(ssl.PROTOCOL_TLS_CLIENT, trust.root.der, HTTP)
        certificate = parse(state.entity(_READER).certificate)
        show([context], self.realm.identity(_READER), certificate, [trust.issuer_of(certificate.der)])
        return context

    def deliver(self) -> None:
        """One more record, with one piece that is the reader's."""
        last = self.ledger.last_span()
        start = last.end if last is not None else PinnedOffset.initial(self._about.partitions)
        first = start.partitions[0]
        now = max(time.time_ns() // 1_000, start.time_us)
        end = replace(
            start, partitions=(first + 1, *start.partitions[1:]), version=self.realm.registry.version(), time_us=now
        )
        staged = Pieces(self._paths.pieces).stage(0, first, first + 1, os.urandom(PIECE_BYTES))
        slots = slot_bits([self._slot])
        ref = PieceRef(staged.name, staged.digest, staged.size, 0, first, first + 1, 1, 1, 1, slots)
        self.ledger.commit(Entry("bench", self.ledger.end(), start, end, (ref,)))


# --- servers, each in a process of its own --------------------------------------------------------------


def _bare(root: str, pipe: Connection) -> None:
    realm = GatewayRealm(root)
    state = realm.state()
    context = server_context(realm.gateway(GATEWAY), SeenRealm(state, realm.trust(state)), realm.clock())
    asyncio.run(_write_to_all(context, pipe))


async def _write_to_all(context: ssl.SSLContext, pipe: Connection) -> None:
    """Writes so many bytes to everybody when it is told to."""
    sslproto.SSLProtocol.max_size = TLS_BUFFER_BYTES
    loop, done = asyncio.get_running_loop(), asyncio.Event()
    known = set[asyncio.Transport]()

    class Listener(asyncio.Protocol):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            assert isinstance(transport, asyncio.Transport)
            known.add(transport)

    def write(data: bytes) -> None:
        for transport in known:
            transport.write(data)

    def obey() -> None:
        while True:
            said: Any = pipe.recv()
            if said == "cpu":
                pipe.send(time.process_time())
            elif isinstance(said, bytes):
                loop.call_soon_threadsafe(write, said)
            else:
                loop.call_soon_threadsafe(done.set)
                return

    server = await loop.create_server(Listener, "127.0.0.1", 0, ssl=context, backlog=2_048)
    pipe.send(server.sockets[0].getsockname()[1])
    threading.Thread(target=obey, daemon=True).start()
    await done.wait()
    server.close()


# --- clients -------------------------------------------------------------------------------------------


class _Follower(asyncio.Protocol):
    """Counts what it gets."""

    def __init__(self, request: bytes) -> None:
        self._request, self.got = request, 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        transport.write(self._request or b"?")

    def data_received(self, data: bytes) -> None:
        self.got += len(data)


async def _connect(port: int, context: ssl.SSLContext, request: bytes, count: int) -> list[_Follower]:
    loop, limit = asyncio.get_running_loop(), asyncio.Semaphore(_AT_ONCE)

    async def one() -> _Follower:
        async with limit:
            made = _Follower(request)
            await loop.create_connection(lambda: made, "127.0.0.1", port, ssl=context, server_hostname="localhost")
            return made

    return list(await asyncio.gather(*(one() for _ in range(count))))


async def _until(followers: list[_Follower], wanted: list[int]) -> None:
    """Until each has as much as it is to have. A sign of life may have come to some of them before."""
    until = time.monotonic() + PATIENCE_S
    while any(follower.got < least for follower, least in zip(followers, wanted, strict=True)):
        if time.monotonic() > until:
            raise Unavailable("followers of the benchmark did not get what they follow")
        await asyncio.sleep(0.005)


async def _settled(followers: list[_Follower]) -> int:
    """Bytes that each has when nothing more comes: the same for all."""
    before = -1
    while (now := sum(follower.got for follower in followers)) != before or not now:
        before = now
        await asyncio.sleep(0.5)
    return followers[0].got


async def _measure(world: _World, count: int, events: int, rounds: int) -> tuple[float, float]:
    sslproto.SSLProtocol.max_size = TLS_BUFFER_BYTES
    context, root = world.client_context(), world.realm.paths.root
    world.deliver()
    with closing(ServerProcess(gateway, root)) as gate, closing(ServerProcess(_bare, root)) as bare:
        request = f"GET {_PATH}{world.ledger.end()} HTTP/1.1\r\nhost: localhost\r\n\r\n".encode()
        following = await _connect(gate.port, context, request, count)
        plain = await _connect(bare.port, context, b"", count)
        before = await _settled(following)
        world.deliver()
        size = await _settled(following) - before
        ours, reference = list[float](), list[float]()
        for _ in range(rounds):
            spent = gate.cpu()
            for _ in range(events):
                wanted = [follower.got + size for follower in following]
                world.deliver()
                await _until(following, wanted)
            ours.append(gate.cpu() - spent)
            spent, data = bare.cpu(), bytes(size)
            for _ in range(events):
                wanted = [follower.got + size for follower in plain]
                bare.say(data)
                await _until(plain, wanted)
            reference.append(bare.cpu() - spent)
        for follower in (*following, *plain):
            follower.transport.abort()
    return statistics.median(ours) * 1e3 / events, statistics.median(reference) * 1e3 / events
