"""The events of an MQTT broker, in one durable log, with who gets each. Sessions read it, each from its own place.

    append ── batch ──> log (durable) ──> acknowledged ──> matched ──> tail, in memory ──> sessions that are connected
                         └──────────────── read and matched again ──> sessions that come back, or are slow

Appends that wait are made durable together. What is recent is in memory with its users, matched once for everybody. It
is matched again when the registry has changed since: what counts is what holds when a message is delivered. As long as
the registry cannot be asked, nothing is delivered, and it is asked again, less and less often.
"""

from __future__ import annotations

import asyncio
import struct
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import groupby, islice
from typing import Any, Final, NamedTuple, TypeVar

from sealcast.errors import Corrupt, SealcastError, Unavailable
from sealcast.log.closing import Closing
from sealcast.log.embedded import EmbeddedLog
from sealcast.model.protection import Retention
from sealcast.mqtt.matching import MessageMatcher, Users

T = TypeVar("T")
_HEAD: Final = struct.Struct(">4sBB")
_MAGIC: Final = b"SCL1"
#: Events that are made durable at a time.
EVENTS_PER_APPEND: Final = 1_024
BYTES_PER_APPEND: Final = 8 << 20
#: Of events that wait to be made durable. Beyond it, connections are not read from.
MAX_WAITING_BYTES: Final = 32 << 20
#: Events in memory, for sessions that keep up, and their bytes: an event may have two million.
MAX_TAIL: Final = 8_192
MAX_TAIL_BYTES: Final = 64 << 20
#: Events that are read and matched at a time for those that do not.
EVENTS_PER_READ: Final = 512
BYTES_PER_READ: Final = 8 << 20
#: How long it waits before it asks again a registry that could not be asked, in seconds: twice as long each time.
FIRST_WAIT: Final = 0.25
LONGEST_WAIT: Final = 8.0


class FeedEntry(NamedTuple):
    """One event, and the users that it is for at a version of the registry."""

    offset: int
    topic: str
    qos: int
    data: bytes
    users: Users
    version: int


class _Waiting(NamedTuple):
    record: bytes
    durable: asyncio.Future[None]


class Feed(Closing):
    """Used by one event loop. Files and matching are the work of one other thread."""

    def __init__(
        self, log: EmbeddedLog, matcher: MessageMatcher, told: Callable[[str], None] = lambda text: None
    ) -> None:
        self._log, self._matcher, self._told = log, matcher, told
        self._looking = asyncio.Lock()
        self._thread = ThreadPoolExecutor(1, "sealcast-mqtt-feed")
        self._waiting: deque[_Waiting] = deque()
        self._waiting_bytes = 0
        self._some, self._room = asyncio.Event(), asyncio.Event()
        self._room.set()
        self._tail: deque[FeedEntry] = deque()
        self._tail_bytes = 0
        self._end = log.end()
        self._grown = asyncio.Event()

    @property
    def end(self) -> int:
        """One past the last event that is matched."""
        return self._end

    @property
    def start(self) -> int:
        return self._log.start()

    def append(self, topic: str, qos: int, data: bytes) -> asyncio.Future[None]:
        """Done when the event is durable. Events are in the log in the order of the calls."""
        durable = asyncio.get_running_loop().create_future()
        self._waiting.append(_Waiting(record_of(topic, qos, data), durable))
        self._waiting_bytes += len(data)
        if self._waiting_bytes > MAX_WAITING_BYTES:
            self._room.clear()
        self._some.set()
        return durable

    async def room(self) -> None:
        """Waits until there is room for more events."""
        await self._room.wait()

    async def run(self) -> None:
        """Makes durable and matches what is appended, until it is cancelled."""
        while True:
            await self._some.wait()
            batch = self._take()
            if not batch:
                self._some.clear()
                continue
            try:
                offsets = await self._work(self._log.append, [each.record for each in batch])
            except SealcastError as error:
                # Not durable, and so not acknowledged: publishers send it again.
                for each in batch:
                    if not each.durable.done():
                        each.durable.set_exception(error)
                continue
            for each in batch:
                if not each.durable.done():
                    each.durable.set_result(None)
            entries = [entry_of(offset, each.record) for offset, each in zip(offsets, batch, strict=True)]
            await self.look()
            self._remember(await self._work(self._matched, entries))
            self._end = offsets.stop
            self.wake()

    async def beyond(self, place: Callable[[], int]) -> None:
        """Waits until there is an event at a session's place, which may go back meanwhile (`wake`)."""
        while self._end <= place():
            await self._grown.wait()

    def wake(self) -> None:
        """Lets every session look at its place again."""
        grown, self._grown = self._grown, asyncio.Event()
        grown.set()

    def retained(self, retention: Retention, now_us: int) -> int:
        """Where the newest events begin that a new subscription is matched with."""
        after = self._log.offset_at(now_us - retention.seconds * 1_000_000)
        return min(self._end, max(self._log.start(), self._end - retention.events, after))

    async def read(self, offset: int) -> Sequence[FeedEntry]:
        """Events from an offset on, some at a time, with the users that each is for now."""
        await self.look()
        first = self._tail[0].offset if self._tail else self._end
        if offset < first:
            return await self._work(self._stored, offset)
        found = list(islice(self._tail, offset - first, offset - first + EVENTS_PER_READ))
        if all(entry.version == self._matcher.version for entry in found):
            return found
        return await self._work(self._matched, found)

    async def look(self, *, now: bool = False) -> None:
        """Goes by the newest registry, unless it was looked at a moment ago. Waits while it cannot be asked."""
        if not now and not self._matcher.due:
            return
        async with self._looking:
            wait = FIRST_WAIT
            while now or self._matcher.due:
                try:
                    await self._work(self._matcher.look)
                    break
                except Unavailable as error:
                    if wait == FIRST_WAIT:
                        self._told(f"nothing is delivered until the registry can be asked again: {error.message}")
                    await asyncio.sleep(wait)
                    wait = min(2 * wait, LONGEST_WAIT)
            if wait > FIRST_WAIT:
                self._told("the registry can be asked again: delivery goes on")

    async def retain(self, max_bytes: int) -> None:
        """Drops the oldest events beyond a size, whoever still waits for them."""
        await self._work(lambda: self._log.retain(max_bytes=max_bytes))

    def close(self) -> None:
        self._thread.shutdown()
        self._log.close()

    # --- inside -------------------------------------------------------------------------------------

    def _take(self) -> list[_Waiting]:
        batch, size = list[_Waiting](), 0
        while self._waiting and len(batch) < EVENTS_PER_APPEND and size < BYTES_PER_APPEND:
            batch.append(self._waiting.popleft())
            size += len(batch[-1].record)
        self._waiting_bytes = max(0, self._waiting_bytes - size) if self._waiting else 0
        if self._waiting_bytes <= MAX_WAITING_BYTES:
            self._room.set()
        return batch

    def _remember(self, entries: Sequence[FeedEntry]) -> None:
        self._tail.extend(entries)
        self._tail_bytes += sum(len(entry.data) for entry in entries)
        while len(self._tail) > MAX_TAIL or self._tail_bytes > MAX_TAIL_BYTES:
            self._tail_bytes -= len(self._tail.popleft().data)

    async def _work(self, task: Callable[..., T], *arguments: Any) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, task, *arguments)

    def _stored(self, offset: int) -> list[FeedEntry]:
        records = self._log.read(offset, min(self._end, offset + EVENTS_PER_READ), BYTES_PER_READ)
        return self._matched([entry_of(record.offset, record.data) for record in records])

    def _matched(self, entries: Sequence[FeedEntry]) -> list[FeedEntry]:
        version, found = self._matcher.version, list[FeedEntry]()
        for topic, group in groupby(entries, key=lambda entry: entry.topic):
            some = list(group)
            users = self._matcher.users(topic, [entry.data for entry in some])
            found += [entry._replace(users=who, version=version) for entry, who in zip(some, users, strict=True)]
        return found


def record_of(topic: str, qos: int, data: bytes) -> bytes:
    """An event as the log holds it."""
    name = topic.encode("ascii")
    return _HEAD.pack(_MAGIC, qos, len(name)) + name + data


def entry_of(offset: int, record: bytes) -> FeedEntry:
    """What a record of the log holds, for nobody yet; Corrupt for anything else."""
    if len(record) < _HEAD.size:
        raise Corrupt(f"event {offset} of the MQTT broker's log is too short")
    magic, qos, length = _HEAD.unpack_from(record)
    if magic != _MAGIC:
        raise Corrupt(f"event {offset} of the MQTT broker's log is none")
    end = _HEAD.size + length
    return FeedEntry(offset, record[_HEAD.size : end].decode("ascii"), qos, record[end:], frozenset(), 0)
