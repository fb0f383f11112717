"""The link between two identities of one process: the same manners as a connection, and no connection."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable

from sealcast.overlay.peers.net.frames import LinkEnded, LinkReason
from sealcast.overlay.peers.net.limits import LinkLimits
from sealcast.overlay.peers.net.tls import ProvenPeer


class NearLink:
    """One direction of it: from whoever holds it to `peer`."""

    def __init__(self, peer: ProvenPeer, limits: LinkLimits) -> None:
        self.peer = peer
        self.reason = LinkReason.CLOSED
        self._limits = limits
        self._messages, self._bytes, self._dropped = deque[bytes](), 0, 0
        self._filled = asyncio.Event()
        self._ended: LinkEnded | None = None

    def put(self, message: bytes) -> bool:
        """Whether it found room."""
        limits = self._limits
        room = self._bytes + len(message) <= limits.queue_bytes and len(self._messages) < limits.queue_messages
        if room:
            self._messages.append(message)
            self._bytes += len(message)
        else:
            self._dropped += 1
        self._filled.set()
        return room

    def end(self, why: LinkEnded) -> None:
        self._ended, self.reason = why, why.reason
        self._filled.set()

    async def run(self, on_message: Callable[[bytes], Awaitable[None]], on_missed: Callable[[int], None]) -> LinkEnded:
        """Hands messages over until the link ends; why it did."""
        while self._ended is None:
            if self._dropped:
                dropped, self._dropped = self._dropped, 0
                on_missed(dropped)
            while self._messages and self._ended is None:
                message = self._messages.popleft()
                self._bytes -= len(message)
                try:
                    await on_message(message)
                except LinkEnded as refused:
                    self.end(refused)
                await asyncio.sleep(0)  # whoever else has something to do comes in between
            self._filled.clear()
            if not (self._messages or self._dropped or self._ended):
                await self._filled.wait()
        return self._ended
