"""Peers for tests of links: a realm with certificates, transports on loopback, and strangers who speak raw TLS."""

from __future__ import annotations

import asyncio
import os
import ssl
import time
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sealcast.errors import Rejected
from sealcast.overlay.peers.net.doors import PeerListener
from sealcast.overlay.peers.net.frames import BOOT_BYTES, FrameKind, LinkReason, frame
from sealcast.overlay.peers.net.limits import LinkLimits
from sealcast.overlay.peers.net.tls import PeerTrust, TlsIdentity
from sealcast.overlay.peers.net.transport import Transport
from sealcast.trust.deployment import Realm
from sealcast.trust.keys.peer_addresses import PeerAddress

HOST = "127.0.0.1"
#: How long a test waits for what happens at once on a machine that has nothing else to do.
PATIENT = 120.0
#: Short enough for tests, long enough for a machine that has other things to do.
QUICK = LinkLimits(
    handshake_s=2.0,
    hello_s=1.0,
    frame_s=1.0,
    heartbeat_s=0.3,
    silence_s=1.5,
    stall_s=3.0,
    goodbye_s=0.5,
    retry_s=0.05,
    retry_most_s=0.4,
    give_up_s=2.0,
    penalty_s=0.5,
    penalty_most_s=2.0,
)


def realm_of(directory: Path, names: Sequence[str]) -> Realm:
    realm = Realm.create(directory)
    realm.enrol_many(names)
    return realm


def trust_of(realm: Realm) -> PeerTrust:
    return PeerTrust(realm.state(), realm.trust(), realm.clock)


def tls_of(realm: Realm, name: str) -> TlsIdentity:
    return TlsIdentity(realm.identity(name), realm.state().entity(name).certificate, realm.trust())


@dataclass
class Ear:
    """Hears what happens on an identity's links."""

    #: Messages that begin with this are refused.
    refuses: bytes = b"\xff"
    messages: list[tuple[str, bytes]] = field(default_factory=list)
    ups: list[str] = field(default_factory=list)
    downs: list[tuple[str, LinkReason]] = field(default_factory=list)
    missed: dict[str, int] = field(default_factory=dict)
    #: Waited for before a message is done with.
    pause_s: float = 0.0

    def on_up(self, peer: str) -> None:
        self.ups.append(peer)

    def on_down(self, peer: str, reason: LinkReason) -> None:
        self.downs.append((peer, reason))

    def on_missed(self, peer: str, count: int) -> None:
        self.missed[peer] = self.missed.get(peer, 0) + count

    async def on_message(self, peer: str, message: bytes) -> None:
        if message.startswith(self.refuses):
            raise Rejected("this message is forged")
        if self.pause_s:
            await asyncio.sleep(self.pause_s)
        self.messages.append((peer, message))

    def of(self, peer: str) -> list[bytes]:
        return [message for who, message in self.messages if who == peer]

    def reasons(self, peer: str) -> list[LinkReason]:
        return [reason for who, reason in self.downs if who == peer]


class Process:
    """A process of peers, as far as links go. Several of them run in one test."""

    def __init__(self, realm: Realm, book: dict[str, PeerAddress], limits: LinkLimits = QUICK) -> None:
        self.realm, self.book, self.limits = realm, book, limits
        self.trust = trust_of(realm)
        self.listener = PeerListener(self.trust, limits)
        self.port = self.listener.open(HOST, 0)
        self.near: dict[str, Transport] = {}
        self.boot = os.urandom(BOOT_BYTES)
        self.ears: dict[str, Ear] = {}

    def add(self, name: str, ear: Ear | None = None) -> Transport:
        identity = tls_of(self.realm, name)
        self.ears[name] = ear or Ear()
        made = Transport(identity, self.trust, self.limits, self.boot, self.book.get, self.ears[name], self.near)
        address = PeerAddress(HOST, self.port, os.urandom(16).hex())
        self.listener.serve(address.door, identity, made.arrived)
        self.book[name] = address
        return made

    def look(self) -> None:
        """At the registry, as a process does all the time."""
        self.trust.update(self.realm.state(), self.realm.trust())
        for each in self.near.values():
            each.recheck()

    async def close(self) -> None:
        for each in list(self.near.values()):
            await each.close()
        await self.listener.close()


@dataclass
class Stranger:
    """Somebody who speaks TLS and whatever else it likes."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    @classmethod
    async def dial(cls, address: PeerAddress, context: ssl.SSLContext, *, door: str | None = None) -> Stranger:
        found = await asyncio.open_connection(
            address.host, address.port, ssl=context, server_hostname=address.door if door is None else door
        )
        return cls(*found)

    def say(self, raw: bytes) -> None:
        self.writer.write(raw)

    async def hello(self) -> None:
        self.say(frame(FrameKind.HELLO, os.urandom(BOOT_BYTES)))
        assert (await self.hear())[0] is FrameKind.HELLO

    async def hear(self) -> tuple[FrameKind, bytes]:
        head = await asyncio.wait_for(self.reader.readexactly(5), PATIENT)
        body = await asyncio.wait_for(self.reader.readexactly(int.from_bytes(head[:4], "big") - 1), PATIENT)
        return FrameKind(head[4]), body

    async def told(self) -> str | None:
        """Why the other end says goodbye; None if it just goes."""
        try:
            while True:
                kind, body = await self.hear()
                if kind is FrameKind.BYE:
                    return body.decode()
        except (asyncio.IncompleteReadError, OSError):
            return None

    def close(self) -> None:
        self.writer.transport.abort()


async def until(holds: Callable[[], object], within: float = PATIENT) -> None:
    """Waits until something holds; fails when it does not in time. It looks so rarely that most of the time is left for
    the peers in the same event loop, also where a look takes long."""
    async with asyncio.timeout(within):
        while True:
            began = time.monotonic()
            if holds():
                return
            await asyncio.sleep(max(0.01, 3 * (time.monotonic() - began)))


def run(work: Callable[[], Coroutine[Any, Any, None]] | Coroutine[Any, Any, None]) -> None:
    """A test's own event loop."""
    asyncio.run(work if asyncio.iscoroutine(work) else work())  # type: ignore[operator]


Check = Callable[[], Awaitable[None]]
