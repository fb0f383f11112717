"""What a node must do later: one time for each key, the earliest first."""

from __future__ import annotations

from collections.abc import Iterator
from heapq import heapify, heappop, heappush
from typing import Final, TypeAlias

TimerKey: TypeAlias = tuple[str, int]
#: The heap is cleaned when it is so many times as long as it has to be.
STALE: Final = 8


class Timers:
    """Times by key. Setting a key again replaces its time."""

    def __init__(self) -> None:
        self._at: dict[TimerKey, float] = {}
        self._heap: list[tuple[float, TimerKey]] = []

    def set(self, key: TimerKey, at: float) -> None:
        if self._at.get(key) == at:
            return
        self._at[key] = at
        heappush(self._heap, (at, key))
        if len(self._heap) > STALE * (len(self._at) + 1):
            self._heap = [(time, each) for each, time in self._at.items()]
            heapify(self._heap)

    def cancel(self, key: TimerKey) -> None:
        self._at.pop(key, None)

    def due(self, now: float) -> Iterator[TimerKey]:
        """Takes out what is due, also what becomes due meanwhile."""
        while (at := self.next()) is not None and at <= now:
            _, key = heappop(self._heap)
            del self._at[key]
            yield key

    def next(self) -> float | None:
        # Entries that were replaced or cancelled stay in the heap until they come up, or are too many.
        while self._heap and self._at.get(self._heap[0][1]) != self._heap[0][0]:
            heappop(self._heap)
        return self._heap[0][0] if self._heap else None
