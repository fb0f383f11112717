"""Posting filters to a broker of a layered topic: signed, numbered, appended to its log, durable on return.

    NODE/topics/TOPIC/filters/in         an embedded log of posts (`wire.posts`), from everyone below the broker
    NODE/topics/TOPIC/filters/in/taken   how far the broker's keeper has looked: what is beyond it is unread
    NODE/topics/TOPIC/filters/in/held    whose posts wait for their sender's turn, and how many

Subscribers and brokers post alike; the keeper decides (keeper.py). Unread posts are bounded, and beyond
that posting is Busy: a broker that is down for a while is no reason to lose filters, and none to fill its disk either.
A keeper reads junk as fast as it checks signatures. What it has read waits for its sender's turn (queue.py), and counts
against that sender alone: whoever has a share of posts waiting is Busy, and nobody else.

**Numbers.** The keeper takes a number once and none below it, for each sender, tree and kind of post. Who wants an
effect exactly once chooses the number, writes down what it is about to post, and posts the same under the same number
after a crash. Who names no number gets one by the clock.
"""

from __future__ import annotations

import json
import os
from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from sealcast.control.topics import Busy
from sealcast.errors import Misuse
from sealcast.log import files, queue_mark
from sealcast.log.closing import Closing
from sealcast.log.embedded import EmbeddedLog
from sealcast.log.port import Record
from sealcast.log.segment import list_segments, path_of
from sealcast.protections.layered.tree import TreeId
from sealcast.trust.handles import OpenRealm
from sealcast.trust.keys.identity import Identity
from sealcast.wire import posts
from sealcast.wire.frame import token_digest
from sealcast.wire.posts import Filter, PostHeader

#: Posts that may lie unread at one broker, and their bytes.
MAX_WAITING: Final = 65_536
#: Posts of one sender that may wait for its turn.
MAX_SHARE: Final = 4_096
MAX_WAITING_BYTES: Final = 256 << 20
_SEGMENT_BYTES: Final = 16 << 20
_HELD: Final = "held"
_MAX_HELD_BYTES: Final = 16 << 20


class Numbered(NamedTuple):
    """What is to be posted in one tree. More than fits into one post goes into several, numbered on from this."""

    tree: TreeId
    filters: Sequence[Filter]
    number: int
    #: The first of them says that everything before has ended.
    fresh: bool = False


class PostLog(Closing):
    """The posts to one broker. Any number of processes append; its keeper alone takes."""

    def __init__(
        self, directory: Path, *, max_waiting: int = MAX_WAITING, max_waiting_bytes: int = MAX_WAITING_BYTES
    ) -> None:
        self.directory = directory
        self._max_waiting, self._max_bytes = max_waiting, max_waiting_bytes
        self._log = EmbeddedLog(directory, segment_bytes=_SEGMENT_BYTES)
        self._held: dict[str, int] | None = None

    def check_share(self, sender: str) -> None:
        """Busy when so many posts of a sender wait that it has to wait itself."""
        if (held := self.held().get(sender, 0)) >= MAX_SHARE:
            raise Busy(
                f"{held} filter posts of {sender!r} wait in {self.directory}, {MAX_SHARE} may; nothing was posted",
                hint="try again a little later: filters are taken as fast as their labels are allowed",
            )

    def append(self, made: Sequence[bytes]) -> None:
        """All of them, neighbours, durable on return; Busy when too many are unread."""
        taken = max(self.taken(), self._log.start())
        waiting = self._log.end() - taken
        # Those that race past the bound are one append a sender, and retention leaves room for twice as much.
        if waiting >= self._max_waiting or (waiting and self._bytes_since(taken) > self._max_bytes):
            raise Busy(
                f"{waiting} filter posts lie unread in {self.directory}, {self._max_waiting} may; nothing was posted",
                hint="try again a little later; is the broker running? sealcast run",
            )
        self._log.append(made)

    def read(self, start: int, max_bytes: int) -> list[Record]:
        """What comes at `start` and after it, at most so much; something, if there is anything."""
        first = max(start, self._log.start())
        return list(self._log.read(first, None, max_bytes)) if first < self._log.end() else []

    def end(self) -> int:
        return self._log.end()

    def taken(self) -> int:
        """Everything before it was read; what waits of that is `held`."""
        return queue_mark.read(self.directory)

    def held(self) -> dict[str, int]:
        """How many posts wait that were read, by sender. Like the mark it is a hint: what is lost of it makes the queue
        seem shorter, until the keeper's next turn."""
        try:
            raw = (self.directory / _HELD).read_bytes()
            found = json.loads(raw[:_MAX_HELD_BYTES])
        except (FileNotFoundError, ValueError):
            return {}
        return {name: count for name, count in found.items() if type(count) is int} if type(found) is dict else {}

    def take(self, offset: int, held: Mapping[str, int] | None = None) -> None:
        """Its keeper has read everything before `offset`, and these posts wait."""
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

    def _bytes_since(self, offset: int) -> int:
        """Of the segments that have records at `offset` or after it: at most one segment more than there is."""
        firsts = list_segments(self.directory)
        since = max(bisect_right(firsts, offset) - 1, 0)
        with files.named(self.directory, "reading"):
            return sum(path_of(self.directory, first).stat().st_size for first in firsts[since:])

    def close(self) -> None:
        self._log.close()


def signed_posts(topic_id: bytes, sender: Identity, receiver: str, what: Numbered, token: bytes = b"") -> list[bytes]:
    """The posts that say it, in order."""
    made = []
    for part, filters in enumerate(posts.batches(what.filters)):
        body, fresh = posts.encode_body(filters), what.fresh and part == 0
        header = PostHeader(
            topic_id,
            receiver,
            sender.name,
            *what.tree,
            what.number + part,
            fresh,
            posts.digest(body),
            token_digest(token),
        )
        made.append(posts.encode(header, sender.signer.sign(posts.to_be_signed(header)), body, token))
    return made


def post_many(
    realm: OpenRealm, topic: str, sender: Identity, to_broker: str, what: Iterable[Numbered], token: bytes = b""
) -> None:
    """All of them in one durable append; Busy, and nothing was posted, when the broker does not keep up."""
    about = realm.state().topic(topic)
    made = [each for one in what for each in signed_posts(about.id, sender, to_broker, one, token)]
    if not made:
        raise Misuse("there is nothing to post")
    with PostLog(realm.paths.topic(topic, to_broker).filter_posts) as log:
        log.check_share(sender.name)
        log.append(made)
