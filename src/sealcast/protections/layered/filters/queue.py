"""Whose post comes next: every sender has a queue of its own, and the queues take turns.

    log of posts --scan--> {sender: its posts, oldest first} --next--> one post of each sender, then one more of each

The log is one, and anybody who may append to it can fill it. So a keeper looks through all of it before it computes
anything: what is no post, or is not signed by its sender, is refused there and then, and costs a signature check. What
is left belongs to a sender that is known for sure, and waits behind that sender's own posts and no others.

A sender that has used up its allowance, or whose post cannot be decided about yet, is set aside until the next turn.
The others go on.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

from sealcast.log.port import Record
from sealcast.protections.layered.filters.checks import ProvenPost

#: Of the log, that is looked through at a time, in bytes.
_SCAN_BYTES: Final = 8 << 20
#: Proven posts that are kept in memory, in bytes; the rest are read and proven again when their time comes.
_HELD_BYTES: Final = 16 << 20


@dataclass(slots=True)
class WaitingPost:
    """One post that its sender is proven to have made. It is judged when its time comes."""

    record: Record | None
    proven: ProvenPost | None
    offset: int
    time_us: int


class PostQueue:
    """The posts that wait at one keeper. It is made anew from the log whenever the keeper starts."""

    def __init__(self, taken: int) -> None:
        """Everything before `taken` has been decided about."""
        #: Everything before it has been looked at.
        self.scanned = taken
        self._waiting: dict[str, deque[WaitingPost]] = {}
        #: Whose turn it is, the next one first.
        self._turns: deque[str] = deque()
        self._aside: set[str] = set()
        self._held = 0

    @property
    def taken(self) -> int:
        """Everything before it has been decided about."""
        return min((posts[0].offset for posts in self._waiting.values()), default=self.scanned)

    def waiting(self) -> Counter[str]:
        """How many posts wait, by sender."""
        return Counter({sender: len(posts) for sender, posts in self._waiting.items()})

    def count(self, sender: str) -> int:
        """How many posts of a sender wait."""
        return len(self._waiting.get(sender, ()))

    def since_us(self, sender: str) -> int | None:
        """When the oldest post of a sender came that still waits."""
        posts = self._waiting.get(sender)
        return posts[0].time_us if posts else None

    # --- in -------------------------------------------------------------------------------------------

    def scan(
        self, read: Callable[[int, int], list[Record]], prove: Callable[[Record], ProvenPost | None]
    ) -> Iterator[None]:
        """Looks through what has come since, a part at a time. `prove` gives None for a post that it refused."""
        while new := read(self.scanned, _SCAN_BYTES):
            for record in new:
                self.scanned = record.offset + 1
                proven = prove(record)
                if proven is not None:
                    self._add(proven, record)
            yield

    def _add(self, proven: ProvenPost, record: Record) -> None:
        sender, size = proven.stream.sender, len(record.data)
        post = WaitingPost(None, None, record.offset, record.time_us)
        if self._held + size <= _HELD_BYTES:
            post.record, post.proven = record, proven
            self._held += size
        if sender not in self._waiting:
            self._waiting[sender] = deque()
            self._turns.append(sender)
        self._waiting[sender].append(post)

    # --- out ------------------------------------------------------------------------------------------

    def next(self) -> tuple[str, WaitingPost] | None:
        """Whose turn it is, with its oldest post; None when all who have one are set aside. The post stays until
        `done`."""
        for _ in range(len(self._turns)):
            sender = self._turns[0]
            if sender not in self._aside:
                return sender, self._waiting[sender][0]
            self._turns.rotate(-1)
        return None

    def done(self, sender: str) -> None:
        """The oldest post of a sender has been decided about: the next one's turn."""
        post = self._waiting[sender].popleft()
        if post.record is not None:
            self._held -= len(post.record.data)
        self._turns.remove(sender)
        if self._waiting[sender]:
            self._turns.append(sender)
        else:
            del self._waiting[sender]

    def set_aside(self, sender: str) -> None:
        """A sender whose oldest post has to wait, until `begin`."""
        self._aside.add(sender)

    def begin(self, *, forget: bool = False) -> None:
        """A new turn: nobody is set aside. With `forget`, what was proven has to be proven again."""
        self._aside.clear()
        if forget:
            for posts in self._waiting.values():
                for post in posts:
                    post.proven = None
