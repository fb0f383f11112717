"""One connected client of the MQTT broker: its events, in order, each acknowledged before the cursor passes it."""

from __future__ import annotations

import asyncio
from collections import Counter, OrderedDict
from collections.abc import Awaitable, Callable
from typing import Final

from sealcast.mqtt import channels
from sealcast.mqtt.feed import Feed, FeedEntry
from sealcast.mqtt.sessions import Session

#: Events that are sent and not acknowledged.
WINDOW: Final = 64
MAX_PACKET_ID: Final = 65_535

#: Sends an event: channel, data, QoS, packet id (None at QoS 0), and whether it was sent before.
Send = Callable[[str, bytes, int, int | None, bool], Awaitable[None]]


class Live:
    """Delivers to one client while it is connected."""

    def __init__(self, session: Session, feed: Feed, send: Send, counts: Counter[str]) -> None:
        self.session = session
        self._feed, self._send, self._counts = feed, send, counts
        self._at = session.cursor
        self._in_flight: OrderedDict[int, int] = OrderedDict()
        self._packet_id = 0
        self._room = asyncio.Event()
        #: How often it went back.
        self._turns = 0

    async def run(self) -> None:
        """Until it is cancelled."""
        start = self._feed.start
        if self._at < start:
            self._counts["outlived"] += start - self._at  # it was away for longer than events are kept
            self._at = start
        while True:
            await self._feed.beyond(lambda: self._at)
            turns = self._turns
            for entry in await self._feed.read(self._at):
                await self._deliver(entry)
                if self._turns != turns:
                    break  # what was read lies after the place where it goes on
                self._at = entry.offset + 1
                self._move()

    def go_back(self, offset: int) -> None:
        """Goes on at an earlier event: for a topic that the client listens to from there on."""
        self._at = min(self._at, offset)
        self._turns += 1
        self._feed.wake()

    def acknowledged(self, packet_id: int) -> None:
        if self._in_flight.pop(packet_id, None) is not None:
            self._room.set()
            self._move()

    async def _deliver(self, entry: FeedEntry) -> None:
        session = self.session
        listening = session.topics.get(entry.topic)
        if listening is None or entry.offset < listening.since or session.user not in entry.users:
            return
        qos, packet_id = min(entry.qos, listening.qos), None
        if qos:
            while len(self._in_flight) >= WINDOW:
                self._room.clear()
                await self._room.wait()
            packet_id = self._next_id()
            self._in_flight[packet_id] = entry.offset
        again, listening.sent = entry.offset < listening.sent, max(listening.sent, entry.offset + 1)
        await self._send(channels.events(entry.topic), entry.data, qos, packet_id, again and qos > 0)
        self._counts["deliveries"] += 1

    def _next_id(self) -> int:
        self._packet_id = self._packet_id % MAX_PACKET_ID + 1
        while self._packet_id in self._in_flight:
            self._packet_id = self._packet_id % MAX_PACKET_ID + 1
        return self._packet_id

    def _move(self) -> None:
        """The cursor stands before the first event that is not acknowledged."""
        self.session.cursor = min(self._in_flight.values(), default=self._at)
