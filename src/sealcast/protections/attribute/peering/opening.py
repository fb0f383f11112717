"""Opens events for a peer's subscriber, beside what the peer answers.

Opening takes time, and a parent that waits for an answer could measure it: it would learn which events its child wants.
So events are opened in another thread, and not at once, but after a pause of random length.
"""

from __future__ import annotations

import asyncio
import random
from collections import deque
from collections.abc import Callable, Sequence, Set
from typing import Final

from sealcast.primitives.secrets import Unpicklable
from sealcast.protections.attribute.incoming import Arrivals, SubscriberPeer
from sealcast.wire.carried import CarriedEvent

#: Events that are opened together, and the longest pause before that.
AT_A_TIME: Final = 64
PAUSE_S: Final = 0.2


class OpeningBeside(Unpicklable):
    """What came for one subscriber and is not in its inbox yet."""

    def __init__(self, opened: Callable[[Arrivals], None], out: Callable[[], Set[str]]) -> None:
        """`opened` hears what is in the inbox by now; `out` says which publishers are cut off."""
        self._opened, self._out = opened, out
        self.inbox: SubscriberPeer | None = None
        self._events = deque[bytes]()
        self._arrived = asyncio.Event()
        self._working: asyncio.Future[Arrivals] | None = None

    @property
    def waiting(self) -> int:
        return len(self._events)

    def add(self, events: Sequence[bytes]) -> None:
        if self.inbox is not None and events:
            self._events.extend(events)
            self._arrived.set()

    def has(self, event: bytes) -> bool:
        """Whether there is nothing to do about it: the inbox has it, or there is no inbox."""
        return self.inbox is None or self.inbox.has(CarriedEvent.from_bytes(event))

    async def run(self) -> None:
        """For as long as the process runs."""
        while True:
            await self._arrived.wait()
            self._arrived.clear()
            await asyncio.sleep(random.uniform(0.0, PAUSE_S))
            while self._events and self.inbox is not None:
                some = [self._events[at] for at in range(min(AT_A_TIME, len(self._events)))]
                self._working = asyncio.ensure_future(asyncio.to_thread(_kept, self.inbox, some, self._out()))
                found = await asyncio.shield(self._working)
                for _ in some:
                    self._events.popleft()
                self._opened(found)

    async def settle(self) -> None:
        """Waits for what is being opened: a thread is not ended in the middle."""
        if self._working is not None:
            await asyncio.wait([self._working])


def _kept(inbox: SubscriberPeer, events: Sequence[bytes], out: Set[str]) -> Arrivals:
    """Into the inbox, durably: what its keys open."""
    carried = sorted((CarriedEvent.from_bytes(event) for event in events), key=lambda event: event.position)
    found = inbox.look_at([event for event in carried if not inbox.has(event)], out)
    inbox.keep(found)
    return found
