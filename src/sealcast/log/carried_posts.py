"""Filter posts to one broker, on a carrier (`post_log.FilterPosts`).

    NAME.posts    the posts; everyone below the broker appends to it, the broker's keeper takes
    NAME.taken    how far the keeper has looked and whose posts wait: the newest record counts, and it is a hint

**When a post came** decides whether its sender had the right then. Whoever appends to a carrier stamps the record with
its own clock, so a keeper believes a stamp only as far as it knows better: a post that was not there when the keeper
last saw the end came after that, and none comes later than now.
"""

from __future__ import annotations

import json
import time
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from typing import Any, Final

from sealcast.log.carried import CarriedLog
from sealcast.log.port import Record
from sealcast.log.post_log import FilterPosts

#: Marks on a carrier before those that are over are removed; and posts.
_KEPT_MARKS: Final = 64
_KEPT_POSTS: Final = 1_024
#: Moments at which the end was seen that a keeper remembers.
_MAX_SEEN: Final = 4_096


class CarriedPosts(FilterPosts):
    """The posts to one broker. Any number of processes append; its keeper alone takes."""

    def __init__(self, posts: CarriedLog, marks: CarriedLog, first: int = 0) -> None:
        """The first post on the carrier has the number `first`, which nobody but the keeper needs to know: marks count
        from the first on the carrier."""
        super().__init__()
        self.log = self._log = posts
        self._marks, self._first = marks, first
        self._mark: dict[str, Any] | None = None
        #: (end, time): what has a number of `end` or more came after that time. Ascending in both.
        self._seen: list[tuple[int, int]] = []

    @property
    def shown(self) -> str:
        return self._log.shown

    def _append(self, made: Sequence[bytes]) -> None:
        self._log.append(made)

    def copy(self, posts: Sequence[Record]) -> None:
        """Appends posts from before the topic was here, with the times at which they came."""
        self._log.copy([(post.time_us, post.data) for post in posts])

    def _waiting_bytes(self, taken: int) -> int:
        return sum(self._log.sizes(taken, self._log.end()))

    def start(self) -> int:
        return self._log.start()

    def end(self) -> int:
        return self._log.end()

    # --- taking ----------------------------------------------------------------------------------

    def read(self, start: int, max_bytes: int) -> list[Record]:
        if not self._seen:
            self._saw(self._first + self._count("taken"), self._count("at"))
        first, now = max(start, self._log.start()), time.time_ns() // 1000
        end = self._log.end()
        if first >= end:
            self._saw(end, now)
            return []
        return [
            record._replace(time_us=min(max(record.time_us, self._after(record.offset)), now))
            for record in self._log.read(first, end, max_bytes)
        ]

    def _saw(self, end: int, at: int) -> None:
        """Everything before `end` was there at that time, and nothing else."""
        while self._seen and self._seen[-1][0] >= end:
            at = max(at, self._seen.pop()[1])
        self._seen = [*self._seen[-_MAX_SEEN:], (end, at)]

    def _after(self, number: int) -> int:
        """The time after which a post of that number came, as far as it is known."""
        known = bisect_right(self._seen, number, key=lambda seen: seen[0])
        return self._seen[known - 1][1] if known else 0

    # --- marks -----------------------------------------------------------------------------------

    def taken(self) -> int:
        self._mark = None
        return self._first + self._count("taken")

    def held(self) -> dict[str, int]:
        found = self._newest().get("held")
        if not isinstance(found, dict):
            return {}
        return {name: count for name, count in found.items() if type(count) is int}

    def take(self, offset: int, held: Mapping[str, int] | None = None, needed: int | None = None) -> None:
        said = {"taken": offset - self._first, "held": dict(held or {})}
        known = self._newest()
        if said != {name: known.get(name) for name in said}:
            self._mark = {**said, "at": time.time_ns() // 1000}
            (number,) = self._marks.append([json.dumps(self._mark).encode()])
            if number - self._marks.start() >= _KEPT_MARKS:
                self._marks.drop(number)
        done = offset if needed is None else min(offset, needed)
        if done - self._log.start() >= _KEPT_POSTS:
            self._log.drop(done)

    def _count(self, name: str) -> int:
        found = self._newest().get(name)
        return found if type(found) is int and found >= 0 else 0

    def _newest(self) -> dict[str, Any]:
        """The newest mark. It is a hint: one that is missing or strange makes the queue seem longer."""
        if self._mark is None:
            self._mark, end = {}, self._marks.end()
            for record in self._marks.read(end - 1, end) if end > self._marks.start() else ():
                try:
                    found = json.loads(record.data)
                except ValueError:
                    break
                self._mark = found if isinstance(found, dict) else {}
        return self._mark

    def close(self) -> None:
        self._log.close()
        self._marks.close()
