"""The feed keeps what is recent in memory, within bounds, and reads the rest from its log."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import pytest

from sealcast.log.embedded import EmbeddedLog
from sealcast.mqtt import feed as module
from sealcast.mqtt.feed import Feed
from sealcast.mqtt.matching import MessageMatcher, Users


class Everybody:
    """Delivers everything to one user."""

    version = 1

    def look(self, *, now: bool = False) -> None:
        pass

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
        await feed.beyond(len(sent) - 1)
        assert sum(len(entry.data) for entry in feed._tail) == feed._tail_bytes <= 10_000
        found: list[Any] = []
        while len(found) < len(sent):
            found += await feed.read(len(found))
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        feed.close()
        return [entry.data for entry in found]

    assert asyncio.run(publish_and_read()) == sent
