"""Frames on their way from one broker's machine to another's: handed to the gateway of the broker that they are for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from sealcast.model.bounded import bounded
from sealcast.transports.https import Connection, path_of
from sealcast.transports.problems import strange

#: Of one request.
MAX_FRAMES: Final = 1_024
MAX_BYTES: Final = 24 << 20
#: A broker that cannot be reached is left to the next turn: others wait for theirs.
PATIENCE_S: Final = 3.0


class RemoteForwarded:
    """The calling broker's frames of one partition, in another broker's log."""

    def __init__(self, connection: Connection, topic: str, broker: str, partition: int) -> None:
        self._connection, self._topic, self._partition = connection, topic, partition
        self._path = path_of("brokers", broker, "forwarded")

    def next_origin(self) -> int:
        return self._asked("next")

    def through(self, taken: int) -> int:
        return self._asked("through", taken=taken)

    def index_of(self, origin: int) -> int:
        return self._asked("index", origin=origin)

    def take(self, frames: Sequence[tuple[int, bytes]], /) -> int:
        """Durable when this returns. A request whose answer was lost is sent again, and appends nothing twice."""
        begin = self.next_origin()
        fresh = [(offset, frame) for offset, frame in frames if offset >= begin]
        for some in bounded(fresh, lambda pair: len(pair[1]), MAX_BYTES, MAX_FRAMES):
            body = {"topic": self._topic, "partition": self._partition, "frames": [list(pair) for pair in some]}
            if _number(self._connection.send("POST", self._path, body, patience_s=PATIENCE_S), "next") <= some[-1][0]:
                raise strange()
        return len(fresh)

    def _asked(self, what: str, **more: int) -> int:
        query: dict[str, int | str] = {"topic": self._topic, "partition": self._partition, **more}
        return _number(self._connection.get(self._path, query, patience_s=PATIENCE_S), what)


def _number(found: Any, name: str) -> int:
    value = found.get(name) if isinstance(found, dict) else None
    if type(value) is not int or value < 0:
        raise strange()
    return value
