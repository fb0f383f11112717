"""Pages that move: one look at the realm for all of them, and to each what changed on it, as server-sent events.

    looker thread ── RealmLook ──> channels (a page each) ── parts that changed ──> every browser on that page

A look costs the same for one page as for a hundred. A part of a page is rendered once, and the message about it is
encoded once; a browser costs one write. While nobody watches, nobody looks. However large a realm is, looking takes at
most `SHARE` of a core: the more a look takes, the rarer it is.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final

from sealcast.clients.realm import Realm
from sealcast.console.html import Markup, element
from sealcast.console.looking import ConsoleLooks, RealmLook
from sealcast.console.workers import PageWorkers
from sealcast.errors import Busy, SealcastError

EVERY_S: Final = 1.0
SHARE: Final = 0.03
#: A browser that hears nothing for so long would think that the connection is gone.
BEAT_S: Final = 15.0
#: Pages that watch at once.
MAX_WATCHING: Final = 1_024

#: The parts of a page that may change, by the ids of their elements.
Parts = Mapping[str, Markup]
Render = Callable[[RealmLook], Parts]


#: The part that says why there is nothing newer; every page that moves has it.
TROUBLE: Final = "trouble"


@dataclass(slots=True)
class _Channel:
    """One page, for everyone who has it open."""

    render: Render
    parts: dict[str, Markup] = field(default_factory=dict)
    #: The turn with which each part last changed.
    changed: dict[str, int] = field(default_factory=dict)
    watching: int = 0
    #: The newest message, by the turn that its receivers have seen before.
    messages: dict[int, bytes] = field(default_factory=dict)

    def take(self, parts: Parts, turn: int) -> None:
        self.messages.clear()
        for name, markup in parts.items():
            if self.parts.get(name) != markup:
                self.parts[name], self.changed[name] = markup, turn

    def since(self, seen: int) -> bytes:
        """What changed after a turn, as one event; empty if nothing did."""
        found = self.messages.get(seen)
        if found is None:
            parts = {name: self.parts[name] for name, at in self.changed.items() if at > seen}
            found = _event("parts", json.dumps(parts)) if parts else b""
            self.messages[seen] = found
        return found


class LivePages:
    """All pages that move. Everything but looking and rendering happens in the event loop."""

    def __init__(self, workers: PageWorkers, every_s: float = EVERY_S) -> None:
        self._workers, self._every_s = workers, every_s
        self._looks = ConsoleLooks()
        self._channels = dict[str, _Channel]()
        self._turn = 0
        self._look: RealmLook | None = None
        self._looked_at = 0.0
        self._one = asyncio.Lock()
        self._moved = asyncio.Condition()
        self._looking: asyncio.Task[None] | None = None
        self._closed = False

    async def newest(self) -> RealmLook:
        """A look that is at most a second old: for a page that is asked for now."""
        async with self._one:
            if self._look is None or time.monotonic() - self._looked_at > self._every_s:
                self._look = await self._workers.run(self._looks.look)
                self._looked_at = time.monotonic()
            return self._look

    async def watch(self, name: str, render: Render) -> AsyncIterator[bytes]:
        """The events of one browser that has a page open: all its parts, then what changes."""
        if sum(channel.watching for channel in self._channels.values()) >= MAX_WATCHING:
            raise Busy("too many pages are open", hint="close some, and reload this one")
        channel = self._channels.setdefault(name, _Channel(render))
        channel.watching += 1
        try:
            if self._looking is None:
                self._looking = asyncio.ensure_future(self._keep_looking())
            seen = 0
            yield b": welcome\n\n"
            while not self._closed:
                message, seen = channel.since(seen), self._turn
                if message:
                    yield message
                if not await self._moves(seen):
                    yield b": beat\n\n"
        finally:
            channel.watching -= 1
            if not channel.watching:
                self._channels.pop(name, None)

    async def _moves(self, seen: int) -> bool:
        """Whether there is a turn after that one, before a browser has to hear something."""
        async with self._moved:
            with suppress(TimeoutError):
                async with asyncio.timeout(BEAT_S):
                    await self._moved.wait_for(lambda: self._turn > seen or self._closed)
        return self._turn > seen

    async def _keep_looking(self) -> None:
        """For as long as anybody watches."""
        try:
            while self._channels and not self._closed:
                began = time.monotonic()
                spent = await self._take_turn()
                async with self._moved:
                    self._moved.notify_all()
                await asyncio.sleep(max(self._every_s, spent / SHARE) - (time.monotonic() - began))
        finally:
            self._looking = None

    async def _take_turn(self) -> float:
        """One look, and what it shows; the processor seconds that it took."""
        renders = {name: channel.render for name, channel in self._channels.items()}

        def work(realm: Realm) -> tuple[RealmLook, dict[str, Parts], float]:
            began = time.thread_time()
            look = self._looks.look(realm)
            shown = {name: render(look) for name, render in renders.items()}
            return look, shown, time.thread_time() - began

        async with self._one:
            try:
                self._look, shown, spent = await self._workers.run(work)
            except SealcastError as error:
                # Pages stay as they are, and say why.
                said = element("p", f"Nothing newer can be shown: {error.message}", class_="bad")
                shown, spent = {name: {TROUBLE: said} for name in renders}, 0.0
            else:
                self._looked_at = time.monotonic()
                shown = {name: {TROUBLE: Markup(), **parts} for name, parts in shown.items()}
        self._turn += 1
        for name, parts in shown.items():
            if name in self._channels:
                self._channels[name].take(parts, self._turn)
        return spent

    async def close(self) -> None:
        """Ends every page's stream."""
        self._closed = True
        async with self._moved:
            self._moved.notify_all()
        if self._looking is not None:
            self._looking.cancel()


def _event(kind: str, data: str) -> bytes:
    return f"event: {kind}\ndata: {data}\n\n".encode()
