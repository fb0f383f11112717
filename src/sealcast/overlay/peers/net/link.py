"""One connection between two peers, from its first frame to its last.

    greet     both sides say HELLO; before that, nothing else is read
    run       reads, writes and asks for signs of life until one of these ends

A message is handed on and waited for before the next one is read: who sends faster than we work is slowed down by TCP,
and nobody else is.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

from sealcast.overlay.peers.net.frames import (
    PING_BYTES,
    FrameKind,
    LinkEnded,
    LinkReason,
    bye,
    bye_reason,
    dropped_count,
    frame,
    read_frame,
)
from sealcast.overlay.peers.net.limits import LinkLimits
from sealcast.overlay.peers.net.queue import SendQueue
from sealcast.overlay.peers.net.tls import ProvenPeer

OnMessage = Callable[[bytes], Awaitable[None]]
OnMissed = Callable[[int], None]
#: What is buffered for the other end before writing waits: little, so that a slow peer shows in its queue.
WRITE_BUFFER_BYTES = 64 << 10


class PeerLink:
    """A connection whose other end is proven."""

    def __init__(
        self,
        peer: ProvenPeer,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        limits: LinkLimits,
        *,
        dialled: bool,
    ) -> None:
        self.peer = peer
        #: Whether this end began it.
        self.dialled = dialled
        #: Which process is at the other end; known after `greet`.
        self.boot = b""
        #: Why it ended.
        self.reason = LinkReason.CLOSED
        #: Set when it takes nothing more from the queue.
        self.gone = asyncio.Event()
        self._reader, self._writer, self._limits = reader, writer, limits
        self._ended: asyncio.Future[LinkEnded] = asyncio.get_running_loop().create_future()
        writer.transport.set_write_buffer_limits(high=WRITE_BUFFER_BYTES)

    async def greet(self, boot: bytes) -> None:
        """Says who this process is, and hears the same; LinkEnded."""
        self._writer.write(frame(FrameKind.HELLO, boot))
        kind, body = await read_frame(self._reader, silence_s=self._limits.hello_s, frame_s=self._limits.hello_s)
        if kind is FrameKind.BYE:
            raise LinkEnded(bye_reason(body), f"{self.peer.name!r} refused the link: {bye_reason(body)}")
        if kind is not FrameKind.HELLO:
            raise LinkEnded(LinkReason.MALFORMED, f"{self.peer.name!r} began with a {kind.name}")
        self.boot = body

    def end(self, why: LinkEnded) -> None:
        """Ends the link soon, for this reason, which the other end is told."""
        if not self._ended.done():
            self._ended.set_result(why)

    async def run(self, queue: SendQueue, on_message: OnMessage, on_missed: OnMissed) -> LinkEnded:
        """Reads and writes until it ends; why it did."""
        work: tuple[Coroutine[Any, Any, LinkEnded], ...] = (
            self._read(queue, on_message, on_missed),
            self._write(queue),
            self._ask(queue),
        )
        tasks = [asyncio.ensure_future(each) for each in work]
        try:
            done, _ = await asyncio.wait([*tasks, self._ended], return_when=asyncio.FIRST_COMPLETED)
            ended = next(iter(done)).result()
        except LinkEnded as refused:
            ended = refused
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            self.gone.set()
        self.reason = ended.reason
        return ended

    async def retire(self, on_message: OnMessage, on_missed: OnMissed) -> LinkEnded:
        """Tells the other end that another link is used, and reads what it had sent before it heard of that."""
        duplicate = LinkEnded(LinkReason.DUPLICATE, "there is another link to the same peer")
        try:
            self._writer.write(bye(duplicate.reason))
            async with asyncio.timeout(self._limits.goodbye_s):
                await self._read(None, on_message, on_missed)
        except TimeoutError:
            return duplicate
        except LinkEnded as ended:
            return duplicate if ended.reason is LinkReason.LOST else ended
        return duplicate

    async def close(self, why: LinkReason) -> None:
        """Says goodbye, if the other end still listens, and lets go of the connection."""
        transport = self._writer.transport
        if not transport.is_closing() and transport.get_write_buffer_size() == 0:
            self._writer.write(bye(why))
        self._writer.close()
        try:
            async with asyncio.timeout(self._limits.goodbye_s):
                await self._writer.wait_closed()
        except (TimeoutError, OSError):
            transport.abort()

    # --- inside -------------------------------------------------------------------------------------

    async def _read(self, queue: SendQueue | None, on_message: OnMessage, on_missed: OnMissed) -> LinkEnded:
        limits = self._limits
        while True:
            kind, body = await read_frame(self._reader, silence_s=limits.silence_s, frame_s=limits.frame_s)
            match kind:
                case FrameKind.MESSAGE if not self._ended.done() or queue is None:
                    await on_message(body)
                case FrameKind.MESSAGE:
                    return self._ended.result()
                case FrameKind.PING if queue is not None:
                    queue.signal(frame(FrameKind.PONG, body))
                case FrameKind.PING | FrameKind.PONG:
                    pass  # that it came is all that it says
                case FrameKind.DROPPED:
                    on_missed(dropped_count(body))
                case FrameKind.BYE:
                    return LinkEnded(bye_reason(body), f"{self.peer.name!r} ended the link: {bye_reason(body)}")
                case FrameKind.HELLO:
                    return LinkEnded(LinkReason.MALFORMED, f"{self.peer.name!r} said HELLO twice")

    async def _write(self, queue: SendQueue) -> LinkEnded:
        while True:
            await queue.filled()
            if self._ended.done():
                return self._ended.result()  # what waits is for the next link, or for nobody
            self._writer.write(queue.take())
            try:
                async with asyncio.timeout(self._limits.stall_s):
                    await self._writer.drain()
            except TimeoutError:
                return LinkEnded(LinkReason.STALLED, f"{self.peer.name!r} takes nothing of what is sent to it")
            except OSError:
                return LinkEnded(LinkReason.LOST, "the connection broke")

    async def _ask(self, queue: SendQueue) -> LinkEnded:
        while True:
            await asyncio.sleep(self._limits.heartbeat_s)
            queue.signal(frame(FrameKind.PING, os.urandom(PING_BYTES)))
