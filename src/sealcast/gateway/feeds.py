"""Logs that are followed: one watcher for all of them, and one reading of a page for all who want the same.

A follower waits until its log goes beyond where it is. The watcher looks at the ends of those logs that anyone waits
for, every LOOK_S; an end is a few bytes in a file. So a thousand followers cost the disk what one costs it. A carrier
is asked by another watcher, in a thread: one that does not answer keeps nobody waiting who follows anything else.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Hashable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final, NamedTuple

from sealcast.errors import NotFound, SealcastError
from sealcast.gateway.work import Workers
from sealcast.log.closing import Closing
from sealcast.log.embedded import EmbeddedLog
from sealcast.log.port import PartitionLog, Record

LOOK_S: Final = 0.01
#: How often a carrier is asked.
ASK_S: Final = 0.02
#: How often those who follow are told that nothing happened.
BEAT_S: Final = 15.0
#: Pages that are kept for those who follow closely behind each other, and logs that are kept open.
_PAGES: Final = 4
_PAGE_BYTES: Final = 4 << 20
_OPEN: Final = 1_024


class Page(NamedTuple):
    """Some records, and how far the log goes."""

    records: tuple[Record, ...]
    start: int
    end: int


class CarriedPlace(NamedTuple):
    """A log on a carrier."""

    key: Hashable
    open: Callable[[], PartitionLog]


class LogFeed(Closing):
    """One log, open to be read. What was never written to has no directory yet: it is an empty log."""

    def __init__(self, place: Path | CarriedPlace) -> None:
        self.place = place
        #: Those who wait for it, or are reading it: it stays open for them.
        self.watched = 0
        self.gone = False
        self.end = 0
        self._log: PartitionLog | None = place.open() if isinstance(place, CarriedPlace) else None
        #: How far those who follow see it, and what is done before they see more.
        self.ready = 0
        self.prepare: Callable[[int], Awaitable[object]] | None = None
        self._moved, self._shown = asyncio.Event(), asyncio.Event()
        self._pages: OrderedDict[Hashable, asyncio.Future[Page]] = OrderedDict()
        self.look()

    def look(self) -> None:
        """How far it goes now; wakes whoever waits for more. A carrier is not asked here (`asked`)."""
        if isinstance(self.place, Path):
            if self._log is None and self.place.is_dir():
                self._log = EmbeddedLog(self.place, read_only=True)
            self._reached(0 if self._log is None else self._log.end())

    async def asked(self, workers: Workers | None = None) -> None:
        """The same, also of a carrier."""
        log = self._log
        if isinstance(self.place, Path) or log is None:
            self.look()
        else:
            self._reached(await (asyncio.to_thread(log.end) if workers is None else workers.run(log.end)))

    def _reached(self, end: int) -> None:
        if end != self.end:
            self.end = end
            self._wake()

    def start(self) -> int:
        # A ledger on a carrier keeps its records; others are in directories.
        return 0 if self._log is None or isinstance(self.place, CarriedPlace) else self._log.start()

    def offset_at(self, time_us: int) -> int:
        return 0 if self._log is None else self._log.offset_at(time_us)

    async def beyond(self, offset: int) -> None:
        """Until there is a record at `offset`."""
        with self._watching():
            while self.end <= offset:
                if self.gone:
                    raise NotFound("this log is no more")
                await self._moved.wait()

    async def moves(self, offset: int) -> bool:
        """Until there is a record at `offset`, or a while is over: whether there is. Nobody has a timer of its own: who
        follows is woken with all others, every BEAT_S, and when the gateway is to stop."""
        if self.gone:
            raise NotFound("this log is no more")
        if self.ready <= offset:
            with self._watching():
                await self._shown.wait()
        return self.ready > offset

    async def show(self) -> None:
        """Lets those who follow see what is new, once that is prepared for all of them: woken before, each would wait a
        second time for the same."""
        end = self.end
        if end == self.ready:
            return
        if self.prepare is not None:
            with suppress(SealcastError):  # whoever reads is told
                await self.prepare(end - 1)
        self.ready = end
        self._wake_followers()

    def wake(self) -> None:
        """Lets everybody look whether there is still something to wait for."""
        self._wake()
        self._wake_followers()

    async def page(self, first: int, max_bytes: int, workers: Workers) -> Page:
        """Records from `first` on, at most so much; read once for all who ask for the same at the same time."""
        await self.asked(workers)
        log, end = self._log, self.end
        if log is None or first >= end:
            if first > end:
                raise NotFound(f"the log ends at {end}, and record {first} was asked for")
            return Page((), self.start(), end)
        key = first, end, max_bytes
        known = self._pages.get(key)
        if known is None or (known.done() and (known.cancelled() or known.exception() is not None)):
            known = self._pages[key] = asyncio.ensure_future(workers.run(lambda: _read(log, first, end, max_bytes)))
            while len(self._pages) > _PAGES:
                self._pages.popitem(last=False)
        with self._watching():
            page = await asyncio.shield(known)
        if sum(len(record.data) for record in page.records) > _PAGE_BYTES:
            self._pages.pop(key, None)
        return page

    def close(self) -> None:
        self.gone = True
        self.wake()
        if self._log is not None:
            self._log.close()
            self._log = None

    @contextmanager
    def _watching(self) -> Iterator[None]:
        self.watched += 1
        try:
            yield
        finally:
            self.watched -= 1

    def _wake_followers(self) -> None:
        shown, self._shown = self._shown, asyncio.Event()
        shown.set()

    def _wake(self) -> None:
        moved, self._moved = self._moved, asyncio.Event()
        moved.set()


def _read(log: PartitionLog, first: int, end: int, max_bytes: int) -> Page:
    start = log.start()
    if first < start:
        raise NotFound(f"the log begins at {start}: what was before is gone", hint=f"go on from {start}")
    return Page(tuple(log.read(first, end, max_bytes)), start, end)


class Feeds(Closing):
    """All logs that are followed, by directory, or by their names on a carrier."""

    def __init__(self) -> None:
        self._feeds: OrderedDict[Hashable, LogFeed] = OrderedDict()
        self._loop = asyncio.get_running_loop()
        self._watchers = [asyncio.ensure_future(self._watch()), asyncio.ensure_future(self._watch_carried())]

    def of(self, place: Path | CarriedPlace) -> LogFeed:
        key = _key(place)
        feed = self._feeds.get(key)
        if feed is None:
            feed = self._feeds[key] = LogFeed(place)
            self._make_room()
        self._feeds.move_to_end(key)
        return feed

    def drop(self, place: Path | CarriedPlace) -> None:
        """A log that is no more."""
        feed = self._feeds.pop(_key(place), None)
        if feed is not None:
            feed.close()

    @property
    def followers(self) -> int:
        return sum(feed.watched for feed in self._feeds.values())

    def close(self) -> None:
        for watcher in self._watchers:
            watcher.cancel()
        while self._feeds:
            self._feeds.popitem()[1].close()

    def _make_room(self) -> None:
        if len(self._feeds) <= _OPEN:
            return
        for place in [feed.place for feed in self._feeds.values() if not feed.watched][: len(self._feeds) - _OPEN]:
            self.drop(place)

    def wake(self) -> None:
        """Wakes all who follow: the gateway is to stop, or a while is over."""
        for feed in self._feeds.values():
            feed.wake()

    async def _watch(self) -> None:
        beat = self._loop.time() + BEAT_S
        while True:
            await asyncio.sleep(LOOK_S)
            if self._loop.time() >= beat:
                beat = self._loop.time() + BEAT_S
                self.wake()
            for feed in self._watched(Path):
                try:
                    feed.look()
                    await feed.show()
                except SealcastError:
                    # Whoever waits finds out by reading: the error is theirs to be told.
                    self.drop(feed.place)

    async def _watch_carried(self) -> None:
        while True:
            await asyncio.sleep(ASK_S)
            for feed in self._watched(CarriedPlace):
                with suppress(SealcastError):  # a carrier that is away may be back at any moment
                    await feed.asked()
                    await feed.show()

    def _watched(self, kind: type) -> list[LogFeed]:
        return [feed for feed in self._feeds.values() if feed.watched and isinstance(feed.place, kind)]


def _key(place: Path | CarriedPlace) -> Hashable:
    return place.key if isinstance(place, CarriedPlace) else place
