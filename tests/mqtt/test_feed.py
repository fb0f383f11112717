"""The feed keeps what is recent in memory, within bounds, and reads the rest from its log."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import pytest
from amqtt.adapters import BufferWriter
from amqtt.broker import Broker
from amqtt.contexts import BrokerConfig, ListenerConfig

from sealcast.errors import Unavailable
from sealcast.log.embedded import EmbeddedLog
from sealcast.mqtt import feed as module
from sealcast.mqtt.feed import Feed
from sealcast.mqtt.handler import ConnectionHandler
from sealcast.mqtt.live import Live
from sealcast.mqtt.matching import MessageMatcher, Users
from sealcast.mqtt.sessions import Listening, Session


class Everybody:
    """Delivers everything to one user. Its registry cannot be asked for a while."""

    version = 1

    def __init__(self, away: int = 0) -> None:
        self.away, self.due = away, bool(away)

    def look(self) -> None:
        if self.away:
            self.away -= 1
            raise Unavailable("the registry is away")
        self.due = False

    def users(self, topic: str, messages: Sequence[bytes]) -> list[Users]:
        return [frozenset({"ann"})] * len(messages)


def test_events_in_memory_are_bounded_by_their_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Eight thousand events of two million bytes each would be sixteen gigabytes."""
    monkeypatch.setattr(module, "MAX_TAIL_BYTES", 10_000)
    sent = [bytes([number]) * 1_000 for number in range(40)]

    async def publish_and_read() -> list[bytes]:
        feed = Feed(EmbeddedLog(tmp_path / "log"), cast(MessageMatcher, Everybody()))
        running = asyncio.ensure_future(feed.run())
        for data in sent:
            await feed.append("t", 1, data)
        await feed.beyond(lambda: len(sent) - 1)
        assert sum(len(entry.data) for entry in feed._tail) == feed._tail_bytes <= 10_000
        found: list[Any] = []
        while len(found) < len(sent):
            found += await feed.read(len(found))
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        feed.close()
        return [entry.data for entry in found]

    assert asyncio.run(publish_and_read()) == sent


def test_nothing_is_delivered_while_the_registry_cannot_be_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is asked again, less and less often, by one of all who wait. Events stay durable and acknowledged."""
    monkeypatch.setattr(module, "FIRST_WAIT", 0.01)
    monkeypatch.setattr(module, "LONGEST_WAIT", 0.02)
    said, matcher = list[str](), Everybody()

    async def through_an_outage() -> list[bytes]:
        feed = Feed(EmbeddedLog(tmp_path / "log"), cast(MessageMatcher, matcher), said.append)
        running = asyncio.ensure_future(feed.run())
        await feed.append("t", 1, b"before")
        await feed.beyond(lambda: 0)
        assert [entry.data for entry in await feed.read(0)] == [b"before"]
        matcher.away, matcher.due = 1_000_000, True
        readers = [asyncio.ensure_future(feed.read(0)) for _ in range(5)]
        await feed.append("t", 1, b"meanwhile")
        await asyncio.sleep(0.2)
        assert not any(reader.done() for reader in readers) and feed.end == 1, "also what was matched before waits"
        assert matcher.away > 1_000_000 - 40, "all who wait share the attempts"
        matcher.away = 0
        await feed.beyond(lambda: 1)
        for reader in readers:
            assert (await reader)[0].data == b"before"
        found = await feed.read(0)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        feed.close()
        return [entry.data for entry in found]

    assert asyncio.run(through_an_outage()) == [b"before", b"meanwhile"]
    assert len(said) == 2 and "nothing is delivered" in said[0] and "goes on" in said[1]


@pytest.mark.parametrize("told", [True, False])
def test_what_comes_while_a_connection_ends_waits_for_the_next(tmp_path: Path, told: bool) -> None:
    """At QoS 0, too: amqtt writes it to the closed connection and says nothing. So a handler that was not told that its
    client has gone loses it."""

    async def place() -> int:
        feed = Feed(EmbeddedLog(tmp_path / "log"), cast(MessageMatcher, Everybody()))
        running = asyncio.ensure_future(feed.run())
        await feed.append("t", 0, b"event")
        session = Session("ann", "phone", True, 0, {"t": Listening(0, 0)})
        listeners = {"default": ListenerConfig(bind="127.0.0.1:0")}
        handler = ConnectionHandler(Broker(BrokerConfig(listeners=listeners, plugins={})).plugins_manager)
        handler.writer = BufferWriter()
        if told:
            await handler.handle_connection_closed()
        delivering = asyncio.ensure_future(Live(session, feed, handler.send, Counter()).run())
        while not delivering.done() and session.cursor == 0:
            await asyncio.sleep(0.01)
        delivering.cancel()
        running.cancel()
        await asyncio.gather(delivering, running, return_exceptions=True)
        feed.close()
        return session.cursor

    assert asyncio.run(place()) == (0 if told else 1)
