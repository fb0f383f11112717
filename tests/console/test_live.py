"""Pages that move: one look for all, parts that changed to each, and a bound on what looking takes."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import AsyncIterator, Callable

import pytest

from sealcast import Realm
from sealcast.console import live as live_module
from sealcast.console.html import Markup
from sealcast.console.live import LivePages, Parts
from sealcast.console.looking import RealmLook
from sealcast.console.workers import PageWorkers
from sealcast.errors import Busy, Unavailable
from tests.console import world


def run(realm: Realm, work: Callable[[LivePages, PageWorkers], AsyncIterator[None]], every_s: float = 0.05) -> None:
    async def main() -> None:
        workers = PageWorkers(realm)
        found = LivePages(workers, every_s)
        try:
            async for _ in work(found, workers):
                pass
        finally:
            await found.close()
            workers.close()

    asyncio.run(asyncio.wait_for(main(), 60))


async def parts_of(stream: AsyncIterator[bytes]) -> dict[str, str]:
    """The next parts that a page is told of."""
    async for event in stream:
        if event.startswith(b"event: parts"):
            found: dict[str, str] = json.loads(event.split(b"data: ", 1)[1])
            return found
    raise AssertionError("the stream ended")


def test_a_page_gets_everything_first_and_then_what_changed(realm: Realm) -> None:
    turns = [0]

    def render(look: RealmLook) -> Parts:
        turns[0] += 1
        return {"still": Markup("same"), "moving": Markup(str(turns[0]))}

    async def work(live: LivePages, workers: PageWorkers) -> AsyncIterator[None]:
        stream = live.watch("page", render)
        assert (await parts_of(stream)).keys() == {"still", "moving", "trouble"}
        assert (await parts_of(stream)).keys() == {"moving"}
        # A second browser gets everything, too, and is rendered for no more than the first.
        other, before = live.watch("page", render), turns[0]
        assert (await parts_of(other)).keys() == {"still", "moving", "trouble"}
        assert turns[0] - before <= 2
        await stream.aclose()
        await other.aclose()
        yield

    run(realm, work)


def test_nobody_looks_while_nobody_watches(realm: Realm) -> None:
    looked = [0]

    def render(look: RealmLook) -> Parts:
        looked[0] += 1
        return {}

    async def work(live: LivePages, workers: PageWorkers) -> AsyncIterator[None]:
        stream = live.watch("page", render)
        await parts_of(stream)
        await stream.aclose()
        await asyncio.sleep(0.3)
        before = looked[0]
        await asyncio.sleep(0.3)
        assert looked[0] == before
        yield

    run(realm, work)


def test_a_look_that_takes_long_is_taken_rarely(realm: Realm, monkeypatch: pytest.MonkeyPatch) -> None:
    """Looking takes at most its share of a core, however large the realm is."""
    slept: list[float] = []
    real, here = asyncio.sleep, threading.get_ident()

    async def sleep(seconds: float) -> None:
        if threading.get_ident() != here:  # a server that an earlier test of this process left in its thread
            await real(seconds)
            return
        slept.append(seconds)
        await real(0)

    async def work(live: LivePages, workers: PageWorkers) -> AsyncIterator[None]:
        monkeypatch.setattr(live, "_take_turn", lambda: _spent(0.6))
        monkeypatch.setattr(live_module.asyncio, "sleep", sleep)
        live._channels["page"] = live_module._Channel(lambda look: {})
        looking = asyncio.ensure_future(live._keep_looking())
        while not slept:
            await real(0)
        looking.cancel()
        assert slept[0] > 0.6 / live_module.SHARE - 1
        yield

    run(realm, work)


async def _spent(seconds: float) -> float:
    return seconds


def test_trouble_is_told_and_passes(realm: Realm, monkeypatch: pytest.MonkeyPatch) -> None:
    async def work(live: LivePages, workers: PageWorkers) -> AsyncIterator[None]:
        stream = live.watch("page", lambda look: {})
        await parts_of(stream)

        class Broken:
            def look(self, here: Realm) -> RealmLook:
                raise Unavailable("the disk is gone")

        real = live._looks
        monkeypatch.setattr(live, "_looks", Broken())
        assert "the disk is gone" in (await parts_of(stream))["trouble"]
        monkeypatch.setattr(live, "_looks", real)
        assert (await parts_of(stream))["trouble"] == ""
        await stream.aclose()
        yield

    run(realm, work)


def test_pages_that_watch_are_bounded(realm: Realm, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live_module, "MAX_WATCHING", 1)

    async def work(live: LivePages, workers: PageWorkers) -> AsyncIterator[None]:
        stream = live.watch("page", lambda look: {})
        await parts_of(stream)
        with pytest.raises(Busy):
            await parts_of(live.watch("page", lambda look: {}))
        await stream.aclose()
        yield

    run(realm, work)


def test_what_needs_attention_comes_first(realm: Realm) -> None:
    from sealcast.console.attention import attention
    from sealcast.console.looking import ConsoleLooks

    found = attention(ConsoleLooks().look(realm))
    assert [each.level for each in found] == sorted((each.level for each in found), reverse=True)
    (refused,) = [each for each in found if "refused" in each.what]
    assert refused.topic == world.TOPIC and "sealcast rejected list" in refused.remedy
