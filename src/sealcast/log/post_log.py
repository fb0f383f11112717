"""Posts to one broker, in order: the filters that everyone below a broker of a layered topic sends up to it.

    DIRECTORY           an embedded log of posts (`wire.posts`)
    DIRECTORY/taken     how far the broker's keeper has looked: what is beyond it is unread
    DIRECTORY/held      whose posts wait for their sender's turn, and how many

Unread posts are bounded, and beyond that posting is Busy: a broker that is down for a while is no reason to lose
filters, and none to fill its disk either. A keeper reads junk as fast as it checks signatures. What it has read waits
for its sender's turn, and counts against that sender alone: whoever has a share of posts waiting is Busy, and nobody
else.
"""

from __future__ import annotations

import json
import os
from abc import ABC, abstractmethod
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from sealcast.errors import Busy
from sealcast.log import files, queue_mark
from sealcast.log.closing import Closing
from sealcast.log.embedded import RetiringLog
from sealcast.log.port import Record
from sealcast.log.segment import list_segments, path_of

#: Posts that may lie unread at one broker, and their bytes.
MAX_WAITING: Final = 65_536
#: Posts of one sender that may wait for its turn.
MAX_SHARE: Final = 4_096
MAX_WAITING_BYTES: Final = 256 << 20
_SEGMENT_BYTES: Final = 16 << 20
_HELD: Final = "held"
_MAX_HELD_BYTES: Final = 16 << 20


class FilterPosts(Closing, ABC):
    """The posts to one broker, wherever they are. Any number of processes append; its keeper alone takes."""

    def __init__(self, *, max_waiting: int = MAX_WAITING, max_waiting_bytes: int = MAX_WAITING_BYTES) -> None:
        self._max_waiting, self._max_bytes = max_waiting, max_waiting_bytes

    @property
    @abstractmethod
    def shown(self) -> str:
        """As messages call it."""

    def check_share(self, sender: str) -> None:
        """Busy when so many posts of a sender wait that it has to wait itself."""
        if (held := self.held().get(sender, 0)) >= MAX_SHARE:
            raise Busy(
                f"{held} filter posts of {sender!r} wait in {self.shown}, {MAX_SHARE} may; nothing was posted",
                hint="try again a little later: filters are taken as fast as their labels are allowed",
            )

    def append(self, made: Sequence[bytes]) -> None:
        """All of them, durable on return; Busy when too many are unread."""
        taken = max(self.taken(), self.start())
        waiting = self.end() - taken
        # Those that race past the bound are one append a sender, and retention leaves room for twice as much.
        if waiting >= self._max_waiting or (waiting > 0 and self._waiting_bytes(taken) > self._max_bytes):
            raise Busy(
                f"{waiting} filter posts lie unread in {self.shown}, {self._max_waiting} may; nothing was posted",
                hint="try again a little later; is the broker running? sealcast run",
            )
        self._append(made)

    def waiting(self) -> int:
        """How many have not been decided about."""
        return max(0, self.end() - self.taken()) + sum(self.held().values())

    @abstractmethod
    def _append(self, made: Sequence[bytes]) -> None: ...

    @abstractmethod
    def _waiting_bytes(self, taken: int) -> int:
        """About how many bytes the posts from `taken` on have."""

    @abstractmethod
    def start(self) -> int: ...

    @abstractmethod
    def end(self) -> int: ...

    @abstractmethod
    def read(self, start: int, max_bytes: int) -> list[Record]:
        """What comes at `start` and after it, at most so much; something, if there is anything."""

    @abstractmethod
    def taken(self) -> int:
        """Everything before it was read; what waits of that is `held`."""

    @abstractmethod
    def held(self) -> dict[str, int]:
        """How many posts wait that were read, by sender. Like the mark it is a hint: what is lost of it makes the queue
        seem shorter, until the keeper's next turn."""

    @abstractmethod
    def take(self, offset: int, held: Mapping[str, int] | None = None, needed: int | None = None) -> None:
        """Its keeper has read everything before `offset`, and these posts wait; none from before `needed`."""


class PostLog(FilterPosts):
    """The posts to one broker, in its directory."""

    def __init__(
        self, directory: Path, *, max_waiting: int = MAX_WAITING, max_waiting_bytes: int = MAX_WAITING_BYTES
    ) -> None:
        super().__init__(max_waiting=max_waiting, max_waiting_bytes=max_waiting_bytes)
        self.directory = directory
        self._log = RetiringLog(directory, segment_bytes=_SEGMENT_BYTES)
        self._held: dict[str, int] | None = None

    @property
    def shown(self) -> str:
        return str(self.directory)

    def _append(self, made: Sequence[bytes]) -> None:
        self._log.append(made)

    def retire(self, to: str) -> None:
        """Lets nobody post here any more: the topic is being moved."""
        self._log.retire(to)

    def start(self) -> int:
        return self._log.start()

    def read(self, start: int, max_bytes: int) -> list[Record]:
        first = max(start, self._log.start())
        return list(self._log.read(first, None, max_bytes)) if first < self._log.end() else []

    def end(self) -> int:
        return self._log.end()

    def taken(self) -> int:
        return queue_mark.read(self.directory)

    def held(self) -> dict[str, int]:
        try:
            raw = (self.directory / _HELD).read_bytes()
            found = json.loads(raw[:_MAX_HELD_BYTES])
        except (FileNotFoundError, ValueError):
            return {}
        return {name: count for name, count in found.items() if type(count) is int} if type(found) is dict else {}

    def take(self, offset: int, held: Mapping[str, int] | None = None, needed: int | None = None) -> None:
        if offset > self.taken():
            queue_mark.write(self.directory, offset)
            self._log.retain(max_bytes=2 * self._max_bytes + _SEGMENT_BYTES)
        now = dict(held or {})
        if now != (self.held() if self._held is None else self._held):
            staged = self.directory / f".{_HELD}-{os.getpid()}"
            with files.named(self.directory / _HELD, "writing"):
                staged.write_text(json.dumps(now))
                staged.rename(self.directory / _HELD)
        self._held = now

    def _waiting_bytes(self, taken: int) -> int:
        """Of the segments that have records at `taken` or after it: at most one segment more than there is."""
        firsts = list_segments(self.directory)
        since = max(bisect_right(firsts, taken) - 1, 0)
        with files.named(self.directory, "reading"):
            return sum(path_of(self.directory, first).stat().st_size for first in firsts[since:])

    def close(self) -> None:
        self._log.close()
