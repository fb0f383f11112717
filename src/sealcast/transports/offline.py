"""Sealed frames that wait on this disk until a gateway can be reached: durable, in order, bounded by bytes.

    QUEUE/frames      an embedded log of frames as they were sealed
    QUEUE/frames/taken    how far they are known to have arrived
    QUEUE/refused     frames that the gateway would not have, kept for whoever wants to know

Frames wait as they were sealed and signed. So one that is sent again, because the answer was lost or this note was, is
byte for byte the one before, and is recognised. It also dies as it was sealed: a token or an epoch that ended meanwhile
ends it, and the broker counts it as rejected. A queue is no place for events that must not be late.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from sealcast.errors import Busy
from sealcast.log import files, queue_mark
from sealcast.log.closing import Closing
from sealcast.log.embedded import EmbeddedLog

#: What may wait, for each publisher, topic and broker.
MAX_QUEUED_BYTES: Final = 256 << 20
#: What is kept of refused frames.
MAX_REFUSED_BYTES: Final = 16 << 20
_SEGMENT_BYTES: Final = 16 << 20


class FrameQueue(Closing):
    """One publisher's frames for one broker. Several processes may share it; one at a time sends (`sending`)."""

    def __init__(self, directory: Path, *, max_bytes: int = MAX_QUEUED_BYTES) -> None:
        self._directory, self._max_bytes = directory, max_bytes
        self._log = EmbeddedLog(directory / "frames", segment_bytes=_SEGMENT_BYTES)
        self._sending = files.FileLock(directory / "sending.lock")

    def __len__(self) -> int:
        end = self._log.end()
        # Nearly always nothing waits, and everything that did was removed: then nobody has to read how far it was.
        return end - self._first() if end > self._log.start() else 0

    def put(self, frames: Sequence[bytes]) -> None:
        """All of them, durable on return; Busy, and none of them, when there is no room."""
        first, end = self._first(), self._log.end()
        waiting = sum(self._log.sizes(first, end)) if first < end else 0
        wanted = sum(map(len, frames))
        if waiting + wanted > self._max_bytes:
            raise Busy(
                f"{waiting:,} bytes of frames wait for the gateway in {self._directory}, {self._max_bytes:,} may; "
                "nothing was published",
                hint="they are sent when the gateway can be reached; publish again then",
            )
        self._log.append(frames)

    def sending(self) -> files.FileLock:
        """Held while frames are sent: they arrive in order."""
        return self._sending

    def next(self, most: int, most_bytes: int) -> list[bytes]:
        """The frames that are to be sent next."""
        first = self._first()
        end = min(self._log.end(), first + most)
        return [record.data for record in self._log.read(first, end, most_bytes)] if first < end else []

    def arrived(self, count: int) -> None:
        """The first so many need not be sent any more."""
        first = self._first() + count
        queue_mark.write(self._log.directory, first)
        if first == self._log.end():
            self._log.drop(first)

    def refuse(self, frame: bytes) -> None:
        """Keeps a frame that the gateway refused, and goes on with the next."""
        with EmbeddedLog(self._directory / "refused", segment_bytes=_SEGMENT_BYTES) as log:
            log.append([frame])
            log.retain(max_bytes=MAX_REFUSED_BYTES)
        self.arrived(1)

    def close(self) -> None:
        self._sending.close()
        self._log.close()

    def _first(self) -> int:
        return max(queue_mark.read(self._log.directory), self._log.start())
