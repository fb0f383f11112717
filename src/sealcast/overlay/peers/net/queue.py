"""What waits to be sent to one peer: bounded, in order, and honest about what found no room.

A peer that reads slowly fills its own queue and nobody else's. What finds no room is dropped here and now, counted, and
the peer is told the number before the next message, so that it can ask for what it missed. Signs of life go first.

The queue is a peer's, not a connection's: what was not written when a connection broke goes over the next one.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Final

from sealcast.overlay.peers.net.frames import FrameKind, dropped, frame
from sealcast.overlay.peers.net.limits import LinkLimits

#: So much is handed to a connection in one write.
_WRITE_BYTES: Final = 64 << 10
#: Signs of life that wait at the most: who asks for more and takes none gets none.
_MAX_SIGNALS: Final = 16


class SendQueue:
    """Frames for one peer."""

    def __init__(self, limits: LinkLimits) -> None:
        self._limits = limits
        self._messages, self._signals = deque[bytes](), deque[bytes]()
        self.nbytes = 0
        #: Dropped so far, and of these so many that the peer does not know of.
        self.dropped = 0
        self._untold = 0
        self._filled = asyncio.Event()

    def __len__(self) -> int:
        return len(self._messages)

    def put(self, message: bytes) -> bool:
        """Whether it found room."""
        made = frame(FrameKind.MESSAGE, message)
        room = self.nbytes + len(made) <= self._limits.queue_bytes or not self._messages
        room = room and len(self._messages) < self._limits.queue_messages
        if room:
            self._messages.append(made)
            self.nbytes += len(made)
        else:
            self._drop(1)
        self._filled.set()
        return room

    def signal(self, made: bytes) -> None:
        """A frame of the link itself. It is left out where many wait already."""
        if len(self._signals) < _MAX_SIGNALS:
            self._signals.append(made)
            self._filled.set()

    async def filled(self) -> None:
        """Returns as soon as there is something to take."""
        while not (self._signals or self._messages or self._untold):
            self._filled.clear()
            await self._filled.wait()

    def take(self) -> bytes:
        """The next frames in one piece."""
        taken = list(self._signals)
        self._signals.clear()
        if self._untold:
            taken.append(dropped(self._untold))
            self._untold = 0
        size = 0
        while self._messages and size < _WRITE_BYTES:
            taken.append(self._messages.popleft())
            size += len(taken[-1])
        self.nbytes -= size
        return b"".join(taken)

    def discard(self) -> int:
        """Gives up what waits; how many messages that were."""
        given_up = len(self)
        self._messages.clear()
        self.nbytes = 0
        self._drop(given_up)
        return given_up

    def _drop(self, count: int) -> None:
        self.dropped += count
        self._untold += count
