"""Control topics of a realm whose registry is on a server: requests and answers wait in the same database.

So a gateway passes requests on to a key center, a broker or a discovery node on another machine, and brings the answer
back, without a disk in common. What is promised is as in a directory (`log.control_topics`): a queue is bounded in all
and for each origin, a post is durable when it is acknowledged, and a topic that was dropped is gone. Positions in a
topic are given out under a lock, so that nobody sees a gap.

Whoever has the database can drop envelopes. They are sealed and signed by those who correspond.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from sealcast.errors import Busy, Misuse, NotFound
from sealcast.log.closing import Closing
from sealcast.log.control_topics import (
    ABANDONED_US,
    ID_BYTES,
    MAX_ORIGIN_BYTES,
    MAX_POST_BYTES,
    MAX_QUEUE,
    MAX_QUEUE_BYTES,
    READ_BYTES,
    READ_RECORDS,
    ControlPlane,
    Posted,
    new_topic_id,
)
from sealcast.trust.storage import control_tables
from sealcast.trust.storage.address import Address, Server
from sealcast.trust.storage.beside import as_text
from sealcast.trust.storage.control_tables import NODES, POSTS, TOPICS
from sealcast.trust.storage.opening import open_server
from sealcast.wire.limits import MAX_ENVELOPE_BYTES

if TYPE_CHECKING:
    from sqlalchemy import Connection

#: How often one who waits for an answer looks, and how long a service leaves a queue alone in which it found nothing.
LOOK_S: Final = 0.05
_NOW: Final = "CAST(extract(epoch FROM clock_timestamp()) * 1000000 AS bigint)"
_CREATE: Final = (
    f"INSERT INTO {TOPICS} (id, reply, maker, made_us) VALUES (:topic, :reply, :maker, {_NOW})"
    f" ON CONFLICT (id) DO UPDATE SET reply = {TOPICS}.reply OR excluded.reply, made_us = excluded.made_us"
)
_ABOUT: Final = f"SELECT reply, maker, taken, next FROM {TOPICS} WHERE id = :topic"
_DROP: Final = f"DELETE FROM {TOPICS} WHERE id = :topic"
_SWEEP: Final = f"DELETE FROM {TOPICS} WHERE reply AND made_us < {_NOW} - :older"
_MADE_BY: Final = f"SELECT count(*) FROM {TOPICS} WHERE maker = :maker"
_QUEUED: Final = (
    "SELECT count(*), count(*) FILTER (WHERE origin = :origin), coalesce(sum(length(data)), 0)"
    f" FROM {POSTS} WHERE topic = :topic AND position >= :taken"
)
_POST: Final = (
    f"INSERT INTO {POSTS} (topic, position, at_us, origin, data) VALUES (:topic, :position, {_NOW}, :origin, :data)"
)
_NEXT: Final = f"UPDATE {TOPICS} SET next = :next WHERE id = :topic"
_READ: Final = (
    "SELECT position, at_us, origin, data FROM ("
    " SELECT position, at_us, origin, data, sum(length(data)) OVER (ORDER BY position) AS size"
    f" FROM {POSTS} WHERE topic = :topic AND position >= :first) AS found"
    " WHERE size <= :bytes OR size = length(data) ORDER BY position LIMIT :records"
)
_TAKE: Final = f"UPDATE {TOPICS} SET taken = :offset WHERE id = :topic"
_FORGET: Final = f"DELETE FROM {POSTS} WHERE topic = :topic AND position < :offset"
_LISTS: Final = (
    f"INSERT INTO {NODES} (name, topic, certificate) VALUES (:name, :topic, :certificate)"
    " ON CONFLICT (name) DO UPDATE SET topic = excluded.topic, certificate = excluded.certificate"
)
_LISTED: Final = f"SELECT name, topic, certificate FROM {NODES} ORDER BY name"


class SharedPlane(Closing):
    """The control topics of a realm in its database, as one origin sees them."""

    def __init__(
        self,
        server: Server,
        *,
        origin: str | None = None,
        max_queue: int = MAX_QUEUE,
        max_queue_bytes: int = MAX_QUEUE_BYTES,
    ) -> None:
        self.origin = f"user {os.getuid()}" if origin is None else origin
        if not 0 < len(self.origin.encode()) <= MAX_ORIGIN_BYTES:
            raise Misuse(f"an origin has 1 to {MAX_ORIGIN_BYTES} bytes")
        if max_queue < 1 or max_queue_bytes < MAX_POST_BYTES:
            raise Misuse("a queue holds one envelope at least")
        self._store, self._max_queue, self._max_bytes = open_server(server), max_queue, max_queue_bytes
        self._max_mine = max(1, max_queue // 4)
        #: When a service found nothing in its queue.
        self._empty: dict[bytes, float] = {}

    # --- topics ----------------------------------------------------------------------------------

    def create(self, topic: bytes | None = None, *, reply: bool = False, maker: str | None = None) -> bytes:
        topic = new_topic_id() if topic is None else topic
        with self._at(topic) as connection:
            connection.execute(as_text(_CREATE), {"topic": topic, "reply": reply, "maker": maker})
        return topic

    def exists(self, topic: bytes) -> bool:
        with self._at(topic) as connection:
            return _about(connection, topic) is not None

    def awaits_reply(self, topic: bytes) -> bool:
        with self._at(topic) as connection:
            about = _about(connection, topic)
            return about is not None and bool(about.reply)

    def maker(self, topic: bytes) -> str | None:
        """Who made it through a gateway; None if nobody did."""
        with self._at(topic) as connection:
            about = _about(connection, topic)
            return None if about is None else about.maker

    def made_by(self, maker: str) -> int:
        """How many topics somebody has made through gateways."""
        with self._store.beside(f"control topics of {maker}") as connection:
            return int(connection.execute(as_text(_MADE_BY), {"maker": maker}).scalar_one())

    def drop(self, topic: bytes) -> None:
        self._empty.pop(topic, None)
        with self._at(topic) as connection:
            connection.execute(as_text(_DROP), {"topic": topic})

    def sweep(self, older_than_us: int = ABANDONED_US) -> int:
        with self._store.beside("control topics that nobody waits for") as connection:
            return connection.execute(as_text(_SWEEP), {"older": older_than_us}).rowcount

    # --- posts -----------------------------------------------------------------------------------

    def post(self, topic: bytes, data: bytes) -> int:
        if not 0 < len(data) <= MAX_ENVELOPE_BYTES:
            raise Misuse(f"an envelope has 1 to {MAX_ENVELOPE_BYTES} bytes, not {len(data)}")
        with self._at(topic) as connection:
            about = _there(connection, topic)
            asked = {"topic": topic, "taken": about.taken, "origin": self.origin}
            queued, mine, size = connection.execute(as_text(_QUEUED), asked).one()
            if queued >= self._max_queue or mine >= self._max_mine or size >= self._max_bytes:
                raise Busy("the queue of this control topic is full", hint="try again a little later")
            position = int(about.next)
            row = {"topic": topic, "position": position, "origin": self.origin, "data": data}
            connection.execute(as_text(_POST), row)
            connection.execute(as_text(_NEXT), {"topic": topic, "next": position + 1})
            return position

    def read(
        self, topic: bytes, offset: int, *, records: int | None = None, max_bytes: int = READ_BYTES
    ) -> list[Posted]:
        """With `records`, as a service reads its queue, turn by turn: an empty queue is left alone for a moment."""
        if records is not None and time.monotonic() - self._empty.get(topic, float("-inf")) < LOOK_S:
            return []
        asked = {"topic": topic, "first": offset, "bytes": max_bytes, "records": records or READ_RECORDS}
        with self._at(topic) as connection:
            _there(connection, topic)
            rows = connection.execute(as_text(_READ), asked).all()
        if records is not None and not rows:
            self._empty[topic] = time.monotonic()
        return [Posted(int(at), int(time_us), origin, bytes(data)) for at, time_us, origin, data in rows]

    def wait(self, topic: bytes, offset: int, seconds: float) -> None:
        time.sleep(max(0.0, min(LOOK_S, seconds)))

    def end(self, topic: bytes) -> int:
        with self._at(topic) as connection:
            return int(_there(connection, topic).next)

    def taken(self, topic: bytes) -> int:
        """How far its listener has read."""
        with self._at(topic) as connection:
            return int(_there(connection, topic).taken)

    def take(self, topic: bytes, offset: int) -> None:
        with self._at(topic) as connection:
            _there(connection, topic)
            connection.execute(as_text(_TAKE), {"topic": topic, "offset": offset})
            connection.execute(as_text(_FORGET), {"topic": topic, "offset": offset})

    def close(self) -> None:
        """The connection is this thread's."""

    @contextmanager
    def _at(self, topic: bytes) -> Iterator[Connection]:
        if len(topic) != ID_BYTES:
            raise Misuse(f"a control topic's id has {ID_BYTES} bytes, not {len(topic)}")
        with self._store.beside(f"control topic {topic.hex()}") as connection:
            yield connection


#: Control topics, for those who keep them.
KeptPlane = ControlPlane | SharedPlane


def server_of(registry: Address) -> Server | None:
    """The server that has the control topics: that of the registry, if it has their tables."""
    if isinstance(registry, Path):
        return None
    with open_server(registry).beside("control topics") as connection:
        return registry if control_tables.are_there(connection) else None


def list_node(server: Server, name: str, topic: bytes, certificate: bytes) -> None:
    """Notes where a discovery node listens."""
    with open_server(server).beside("discovery nodes") as connection:
        connection.execute(as_text(_LISTS), {"name": name, "topic": topic, "certificate": certificate})


def listed_nodes(server: Server) -> list[tuple[str, bytes, bytes]]:
    """Where discovery nodes listen: name, topic and certificate of each."""
    with open_server(server).beside("discovery nodes") as connection:
        rows = connection.execute(as_text(_LISTED)).all()
    return [(name, bytes(topic), bytes(certificate)) for name, topic, certificate in rows]


def _about(connection: Connection, topic: bytes) -> Any:
    return connection.execute(as_text(_ABOUT), {"topic": topic}).first()


def _there(connection: Connection, topic: bytes) -> Any:
    if (about := _about(connection, topic)) is None:
        raise NotFound("there is no such control topic", hint="it has moved, or was never here: find it again")
    return about
