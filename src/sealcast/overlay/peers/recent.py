"""The events that a peer remembers: ids of all, so that each is handled once, and the last of them whole."""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Iterator
from itertools import islice
from typing import NamedTuple

from sealcast.overlay.peers.port import PeerSettings


class RecentEvent(NamedTuple):
    """An event that a parent still has for children that were away."""

    received: float
    event: bytes


class RecentEvents:
    """Bounded by number, bytes and age. What is let go is counted, so that a child can be told."""

    def __init__(self, settings: PeerSettings, first: int = 0) -> None:
        """Arrivals are numbered from `first` on: another number in each life, so that those of two are not confused."""
        self._settings = settings
        #: How many were kept so far, and `first`.
        self.arrivals = self._first = first
        self._seen: OrderedDict[bytes, None] = OrderedDict()
        self._kept: OrderedDict[bytes, RecentEvent] = OrderedDict()
        self._bytes = 0
        self._aside: OrderedDict[bytes, RecentEvent] = OrderedDict()
        self._aside_bytes = 0
        #: When those were received that were let go, ascending; of the oldest of them only the time is known.
        self._let_go: deque[float] = deque(maxlen=settings.seen_events)

    def seen(self, event: bytes) -> bool:
        return event in self._seen

    def add_seen(self, event: bytes) -> None:
        self._seen[event] = None
        if len(self._seen) > self._settings.seen_events:
            self._seen.popitem(last=False)

    def keep(self, id: bytes, event: bytes, now: float) -> None:
        self._kept[id] = RecentEvent(now, event)
        self._bytes += len(event)
        self.arrivals += 1
        self._trim(now)

    def set_aside(self, id: bytes, event: bytes, now: float) -> None:
        """Keeps an event that was for nobody here, for a short time: it may be for somebody with newer credentials."""
        self._aside[id] = RecentEvent(now, event)
        self._aside_bytes += len(event)
        limit, oldest = self._settings, now - self._settings.history_seconds
        while self._aside:
            first, (received, _) = next(iter(self._aside.items()))
            fits = len(self._aside) <= limit.kept_events and self._aside_bytes <= limit.kept_bytes // 4
            if fits and received >= oldest:
                return
            self.drop_aside(first)

    def aside(self) -> list[tuple[bytes, bytes]]:
        """What was set aside, the oldest first."""
        return [(id, event) for id, (_, event) in self._aside.items()]

    def drop_aside(self, id: bytes) -> None:
        self._aside_bytes -= len(self._aside.pop(id).event)

    def get(self, id: bytes) -> bytes | None:
        found = self._kept.get(id)
        return None if found is None else found.event

    def since(self, time: float) -> Iterator[tuple[bytes, bytes]]:
        """Ids and events that were received at `time` or later, the newest first."""
        for id, (received, event) in reversed(self._kept.items()):
            if received < time:
                return
            yield id, event

    def after(self, arrival: int, most: int) -> tuple[list[bytes], int, int]:
        """Ids of what was kept after that arrival, the oldest first and at most so many; the last one's number; and how
        many came after it and were let go. From the oldest on for a number that is none of ours."""
        known = arrival if self._first <= arrival <= self.arrivals else self._first
        oldest = self.arrivals - len(self._kept)
        begin = max(known, oldest)
        found = list(islice(self._kept, begin - oldest, begin - oldest + most))
        return found, begin + len(found), begin - known

    def lost_since(self, time: float) -> int:
        """How many were received at `time` or later and let go."""
        count = 0
        for received in reversed(self._let_go):
            if received < time:
                break
            count += 1
        return count

    def _trim(self, now: float) -> None:
        limit, oldest = self._settings, now - self._settings.kept_seconds
        while self._kept:
            id, (received, event) = next(iter(self._kept.items()))
            fits = len(self._kept) <= limit.kept_events and self._bytes <= limit.kept_bytes
            if fits and received >= oldest:
                return
            del self._kept[id]
            self._bytes -= len(event)
            self._let_go.append(received)
