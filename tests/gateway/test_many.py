"""Many readers who wait at the same time: all are answered, and each takes a bounded share of memory."""

from __future__ import annotations

import asyncio
import ssl
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from sealcast.clients.publisher import Publisher
from sealcast.control.budgets import Allowance
from sealcast.gateway.limits import DEFAULT_LIMITS
from sealcast.model.event import Event
from tests.clients.pump import pump
from tests.gateway.world import AT, TOPIC, RunningGateway, identity_pem, make_realm, running

#: Of both ends, which are in one process here: TLS's own memory, and 64 KiB that asyncio reserves at each end.
BYTES_EACH = 600 << 10
PLENTY = Allowance(per_second=100_000, burst=100_000)


async def _wait_and_read(served: RunningGateway, identity: Path, count: int) -> list[bytes]:
    """The first line of every answer to long-polls that all wait when the mail comes."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_verify_locations(served.root)
    context.load_cert_chain(identity)
    limit = asyncio.Semaphore(16)
    request = f"GET {AT}/mail/ledger?from=0&wait=60 HTTP/1.1\r\nhost: localhost\r\n\r\n".encode()

    async def ask() -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        async with limit:
            found = await asyncio.open_connection("localhost", served.port, ssl=context)
            found[1].write(request)
            await found[1].drain()
            return found

    asked = await asyncio.gather(*(ask() for _ in range(count)))
    while served.hub.feeds.followers < count:  # the test's own limit bounds this
        await asyncio.sleep(0.02)
    await asyncio.to_thread(_publish, served)
    lines = await asyncio.gather(*(reader.readline() for reader, _ in asked))
    for _, writer in asked:
        writer.transport.abort()
    return list(lines)


def _publish(served: RunningGateway) -> None:
    with Publisher(served.realm, TOPIC, "nyse") as publisher:
        publisher.publish([Event({"price": 700}, b"for many")])
    pump(served.realm, TOPIC)


@pytest.mark.parametrize("count", [40, pytest.param(1_000, marks=pytest.mark.soak)])
def test_all_who_wait_are_answered(tmp_path: Path, count: int) -> None:
    (tmp_path / "clients").mkdir()
    limits = replace(DEFAULT_LIMITS, waiting=count, caller=PLENTY, address=PLENTY)
    with running(make_realm(tmp_path / "market"), tmp_path / "clients", limits) as served:
        identity = identity_pem(served.realm, "alice", tmp_path / "clients")
        before = psutil.Process().memory_info().rss
        lines = asyncio.run(_wait_and_read(served, identity, count))
        assert lines == [b"HTTP/1.1 200 OK\r\n"] * count
        assert psutil.Process().memory_info().rss - before < (64 << 20) + count * BYTES_EACH
        assert served.hub.metrics.value("sealcast_gateway_waiting_requests") == 0


async def _follow_and_read(served: RunningGateway, identity: Path, count: int, deaf: int) -> list[int]:
    """How many records each of those who read has got in the end, beside some who follow and never read."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_verify_locations(served.root)
    context.load_cert_chain(identity)
    limit = asyncio.Semaphore(16)
    request = f"GET {AT}/mail/follow?from=0 HTTP/1.1\r\nhost: localhost\r\n\r\n".encode()

    async def ask() -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        async with limit:
            found = await asyncio.open_connection("localhost", served.port, ssl=context, limit=1 << 12)
            found[1].write(request)
            await found[1].drain()
            return found

    async def read(reader: asyncio.StreamReader) -> int:
        held = b""
        while held.count(b"\x66record") < EVENTS:
            held += await reader.read(1 << 16)
        return held.count(b"\x66record")

    asked = await asyncio.gather(*(ask() for _ in range(count + deaf)))
    while served.hub.feeds.followers < count + deaf:  # the test's own limit bounds this
        await asyncio.sleep(0.02)
    for _, writer in asked[:deaf]:
        writer.transport.pause_reading()  # type: ignore[attr-defined]
    reading = asyncio.gather(*(read(reader) for reader, _ in asked[deaf:]))
    for _ in range(EVENTS):
        await asyncio.to_thread(_publish, served)
    got = await reading
    for _, writer in asked:
        writer.transport.abort()
    return list(got)


EVENTS = 5


@pytest.mark.parametrize(("count", "deaf"), [(30, 10), pytest.param(1_000, 100, marks=pytest.mark.soak)])
def test_followers_who_do_not_read_keep_nobody_waiting(tmp_path: Path, count: int, deaf: int) -> None:
    (tmp_path / "clients").mkdir()
    limits = replace(DEFAULT_LIMITS, waiting=2 * (count + deaf), caller=PLENTY, address=PLENTY)
    with running(make_realm(tmp_path / "market"), tmp_path / "clients", limits) as served:
        identity = identity_pem(served.realm, "alice", tmp_path / "clients")
        before = psutil.Process().memory_info().rss
        assert asyncio.run(_follow_and_read(served, identity, count, deaf)) == [EVENTS] * count
        assert psutil.Process().memory_info().rss - before < (64 << 20) + (count + deaf) * BYTES_EACH
