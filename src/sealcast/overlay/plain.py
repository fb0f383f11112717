"""The logs of plain topics at one broker: what was published there without a token, as much of it as there is room for.

Whoever is certified may publish on plain topics, and nobody promised to keep anything. So there is room for each topic
and for all together. When all together are too much, the largest log gives way first: who sends little keeps it.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Final

from sealcast.log import files
from sealcast.log.embedded import EmbeddedLog

#: Of one plain topic at one broker, and of all of them.
PLAIN_LOG_BYTES: Final = 64 << 20
PLAIN_TOTAL_BYTES: Final = 1 << 30
#: Retention removes whole segments.
SEGMENT_BYTES: Final = 1 << 20
#: Appends after which sizes are looked up again: another process of this broker may have appended, too.
_LOOK_EVERY: Final = 1_024


class PlainLogs:
    """The logs below one directory, a topic each."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        #: Bytes of each log, by its directory.
        self._sizes: dict[Path, int] = {}
        self._appends = 0

    def log(self, topic: bytes) -> Path:
        """Where what was published on a topic lies."""
        return self._directory / topic.hex()

    def append(self, topic: bytes, body: bytes) -> None:
        """Adds a message. Older ones, of this topic or of others, may go for it."""
        path = self.log(topic)
        with EmbeddedLog(path, segment_bytes=SEGMENT_BYTES) as log:
            log.append([body])
            log.retain(max_bytes=PLAIN_LOG_BYTES)
        if self._appends % _LOOK_EVERY == 0:
            self._look()
        self._appends += 1
        self._sizes[path] = _size(path)
        if sum(self._sizes.values()) > PLAIN_TOTAL_BYTES:
            self._look()
            self._make_room()

    def _look(self) -> None:
        with files.named(self._directory, "reading"):
            self._sizes = {path: _size(path) for path in self._directory.iterdir()}

    def _make_room(self) -> None:
        while sum(self._sizes.values()) > PLAIN_TOTAL_BYTES:
            largest = max(self._sizes, key=self._sizes.__getitem__)
            before = self._sizes[largest]
            with EmbeddedLog(largest, segment_bytes=SEGMENT_BYTES) as log:
                log.retain(max_bytes=before // 2)
            self._sizes[largest] = _size(largest)
            if self._sizes[largest] >= before:  # one segment, which is appended to: all of it goes
                with files.named(largest, "removing"):
                    shutil.rmtree(largest)
                del self._sizes[largest]


def _size(log: Path) -> int:
    with files.named(log, "reading"):
        return sum(path.stat().st_size for path in log.iterdir())
