"""Control topics and posts behind a gateway.

Envelopes are sealed and signed by those who correspond. A gateway that drops them keeps one from asking; it can neither
read them nor answer in another's name.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Final

from sealcast.errors import NotFound, Unavailable
from sealcast.log.closing import Closing
from sealcast.log.control_topics import ID_BYTES, Posted
from sealcast.transports.https import Connection, path_of
from sealcast.transports.problems import strange

#: A long-poll at the most.
LONGEST_S: Final = 30.0
#: How long a service leaves a queue alone in which it found nothing.
IDLE_S: Final = 0.1
#: Posts of one request.
MAX_POSTS: Final = 512
#: How long a broker that cannot be reached is tried before whoever posts goes on, and posts again later.
PATIENCE_S: Final = 10.0


class RemotePlane(Closing):
    """The control topics of a realm, as one entity uses them."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        #: Topics that were made here, and how far each is known to go.
        self._own: dict[bytes, int] = {}
        #: What a long-poll brought, until it is read.
        self._ahead: dict[bytes, list[Posted]] = {}
        #: Topics that are posted to as answers.
        self._answering: set[bytes] = set()
        #: When a service found nothing in its queue.
        self._empty: dict[bytes, float] = {}

    def create(self, topic: bytes | None = None, *, reply: bool = False) -> bytes:
        topic = os.urandom(ID_BYTES) if topic is None else topic
        self._connection.send("PUT", f"{_path(topic)}?reply={int(reply)}")
        self._own.setdefault(topic, 0)
        return topic

    def exists(self, topic: bytes) -> bool:
        """A topic of one's own is there until a gateway says otherwise."""
        return topic in self._own

    def drop(self, topic: bytes) -> None:
        self._own.pop(topic, None)
        self._ahead.pop(topic, None)
        with suppress(NotFound, Unavailable):  # whoever serves drops what its maker has left
            self._connection.send("DELETE", _path(topic), patience_s=0.0)

    def sweep(self) -> int:
        """Those who serve do that."""
        return 0

    def awaits_reply(self, topic: bytes) -> bool:
        """Who keeps the topics knows, and refuses an answer to any other: the next post there is one."""
        self._answering.add(topic)
        return True

    def post(self, topic: bytes, data: bytes) -> int:
        reply = topic in self._answering
        self._answering.discard(topic)
        match self._connection.send("POST", f"{_path(topic)}?reply={int(reply)}", {"data": data}):
            case {"offset": int(offset)}:
                return offset
            case _:
                raise strange()

    def read(self, topic: bytes, offset: int, *, records: int | None = None) -> list[Posted]:
        """With `records`, as a service reads its queue, turn by turn: at most so many, and an empty queue is left
        alone for a moment."""
        ahead = self._ahead.pop(topic, None)
        if ahead and ahead[0].offset == offset:
            return ahead
        if records is None:
            return self._read(topic, offset, 0.0)
        if time.monotonic() - self._empty.get(topic, float("-inf")) < IDLE_S:
            return []
        found = self._read(topic, offset, 0.0)[:records]
        if not found:
            self._empty[topic] = time.monotonic()
        return found

    def take(self, topic: bytes, offset: int) -> None:
        """Whoever reads on from an offset needs nothing before it: the next `read` says so."""

    def wait(self, topic: bytes, offset: int, seconds: float) -> None:
        self._ahead[topic] = self._read(topic, offset, min(max(1.0, seconds), LONGEST_S))

    def end(self, topic: bytes) -> int:
        if topic not in self._own:
            raise NotFound("there is no such control topic")
        return self._own[topic]

    def close(self) -> None:
        """The connection is its site's."""

    def _read(self, topic: bytes, offset: int, wait_s: float) -> list[Posted]:
        try:
            found = self._connection.get(_path(topic), {"from": offset}, wait_s=wait_s)
        except NotFound:
            self._own.pop(topic, None)
            raise
        match found:
            case {"records": list(rows), "end": int(end)}:
                posts = [Posted(*row) for row in rows if _is_post(row, offset)]
                if len(posts) == len(rows):
                    self._own[topic] = end
                    return posts
        raise strange()


def _path(topic: bytes) -> str:
    return path_of("control", topic.hex())


def _is_post(row: Any, offset: int) -> bool:
    match row:
        case [int(number), int(), str(), bytes()]:
            return number >= offset
        case _:
            return False


class RemotePosts(Closing):
    """The posts to one broker of a tree."""

    def __init__(self, connection: Connection, topic: str, broker: str) -> None:
        self._connection, self._path = connection, path_of("topics", topic, "brokers", broker, "posts")

    def check_share(self, sender: str, /) -> None:
        """Whoever keeps the posts says so when they come."""

    def append(self, made: Sequence[bytes], /) -> None:
        """In order. Each is numbered by its sender, so that one that comes twice is taken once."""
        for first in range(0, len(made), MAX_POSTS):
            self._connection.send(
                "POST", self._path, {"posts": list(made[first : first + MAX_POSTS])}, patience_s=PATIENCE_S
            )

    def close(self) -> None:
        """The connection is its site's."""
