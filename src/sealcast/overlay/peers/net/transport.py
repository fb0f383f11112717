"""One identity's links to other peers: dialled when there is something to say, kept where somebody asked for it.

Of two links between the same two processes one stays, and both ends agree on which without asking: the one that the
smaller name dialled. A link of a process that began anew replaces the one of its former life.

Identities of one process reach each other without a connection, in the same way otherwise: each has to count as a peer,
what waits is bounded, and what finds no room is counted and told.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Callable, Coroutine
from typing import Any, Final, Protocol

from sealcast.errors import Rejected
from sealcast.overlay.peers.net.doors import dial
from sealcast.overlay.peers.net.frames import LinkEnded, LinkReason
from sealcast.overlay.peers.net.limits import LinkLimits
from sealcast.overlay.peers.net.link import PeerLink
from sealcast.overlay.peers.net.near import NearLink
from sealcast.overlay.peers.net.penalties import Penalties
from sealcast.overlay.peers.net.queue import SendQueue
from sealcast.overlay.peers.net.tls import PeerTrust, TlsIdentity
from sealcast.trust.keys.peer_addresses import PeerAddress

#: Ends for which the other end is to blame, and stays out for a while.
_BLAMED: Final = frozenset({LinkReason.OVERSIZED, LinkReason.MALFORMED, LinkReason.REFUSED})


class PeerEvents(Protocol):
    """Who is told what happens on an identity's links."""

    def on_up(self, peer: str) -> None: ...
    def on_down(self, peer: str, reason: LinkReason) -> None: ...
    def on_missed(self, peer: str, count: int) -> None:
        """The peer had so many more messages for us, and no room for them."""

    async def on_message(self, peer: str, message: bytes) -> None:
        """Rejected, of any kind, if the peer should not have sent this: it is cut off and stays out for a while."""


class Transport:
    """The links of one identity."""

    def __init__(
        self,
        identity: TlsIdentity,
        trust: PeerTrust,
        limits: LinkLimits,
        boot: bytes,
        find: Callable[[str], PeerAddress | None],
        events: PeerEvents,
        near: dict[str, Transport],
    ) -> None:
        """`find` knows addresses. `near` are the transports of this process, by name, to which this one is added."""
        self.identity, self.name = identity, identity.name
        self._trust, self._limits, self._boot, self._find, self._events = trust, limits, boot, find, events
        self._near = near
        self._links: dict[str, PeerLink | NearLink] = {}
        self._queues: dict[str, SendQueue] = {}
        self._kept = set[str]()
        self._penalties = Penalties(limits)
        self._tasks: dict[asyncio.Task[None], str] = {}
        self._dialling = set[str]()
        #: What became of links and messages, by reason.
        self.counts = Counter[str]()
        #: Set when one of our own tasks failed as none should.
        self.failed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        near[self.name] = self

    # --- sending ------------------------------------------------------------------------------------

    @property
    def links(self) -> list[str]:
        """Those who are linked now."""
        return sorted(self._links)

    def send(self, peer: str, message: bytes) -> bool:
        """Whether it found room in the peer's queue. It goes over the link that there is, or over the next one."""
        found = self._links.get(peer)
        if peer in self._near and not isinstance(found, NearLink):
            found = self._link_near(peer)
        if isinstance(found, NearLink):
            room = found.put(message)
        else:
            room = self._queue(peer).put(message)
            self._reach(peer)
        self.counts["sent" if room else "dropped"] += 1
        return room

    def waiting(self, peer: str) -> int:
        """How many bytes wait for a peer."""
        queue = self._queues.get(peer)
        return 0 if queue is None else queue.nbytes

    def keep(self, peer: str) -> None:
        """Links to this peer again whenever the link breaks, until `let_go`."""
        self._kept.add(peer)
        if peer in self._near:
            self._link_near(peer)
        else:
            self._reach(peer)

    def let_go(self, peer: str) -> None:
        self._kept.discard(peer)

    def cut(self, peer: str, why: LinkEnded) -> None:
        """Ends the link to a peer, and gives up what waits for it."""
        self._kept.discard(peer)
        if peer in self._queues:
            self.counts["dropped"] += self._queues[peer].discard()
        if why.reason in _BLAMED:
            self._penalties.add(peer)
        link = self._links.get(peer)
        if link is not None:
            link.end(why)

    def recheck(self) -> list[str]:
        """Cuts off everyone whose certificate does not count any more; who that was. For whenever the registry moved,
        and from time to time."""
        gone = list[str]()
        for name, link in list(self._links.items()):
            try:
                self._trust.prove(link.peer.der, name)
            except LinkEnded as why:
                gone.append(name)
                self.cut(name, why)
        return gone

    async def close(self) -> None:
        """Ends all links in good order."""
        self._kept.clear()
        self._near.pop(self.name, None)
        for link in list(self._links.values()):
            link.end(LinkEnded(LinkReason.CLOSED, "this process ends"))
        tasks = list(self._tasks)
        if tasks:
            await asyncio.wait(tasks, timeout=2 * self._limits.goodbye_s)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    # --- links --------------------------------------------------------------------------------------

    async def arrived(self, link: PeerLink) -> None:
        """A proven link that somebody else dialled: for the listener."""
        await self._run(self._hold(link), link.peer.name)

    async def _hold(self, link: PeerLink) -> LinkEnded:
        """A link from its first frame to its end; why it ended."""
        name = link.peer.name
        ended = LinkEnded(LinkReason.PENALTY, f"{name!r} was cut off a moment ago")
        if not self._penalties.out(name):
            try:
                await link.greet(self._boot)
                ended = await self._settle(link)
            except LinkEnded as refused:
                ended = refused
        if ended.reason in _BLAMED:
            self._penalties.add(name)
        self.counts[f"ended:{ended.reason}"] += 1
        await link.close(ended.reason)
        return ended

    async def _settle(self, link: PeerLink) -> LinkEnded:
        """Lets the link live if it is the one to stay; why it ended."""
        name = link.peer.name
        before = self._links.get(name)
        if isinstance(before, PeerLink):
            if not self._replaces(link, before):
                return await link.retire(self._handler(name), self._missed(name))
            before.end(LinkEnded(LinkReason.DUPLICATE, "another link took its place"))
        self._links[name] = link
        self.counts["links"] += 1
        if before is None:
            self._events.on_up(name)
        elif isinstance(before, PeerLink):
            await before.gone.wait()  # one writer at a time takes from the queue
        try:
            ended = await link.run(self._queue(name), self._handler(name), self._missed(name))
            if ended.reason is LinkReason.DUPLICATE and self._links.get(name) is not link:
                ended = await link.retire(self._handler(name), self._missed(name))
            return ended
        finally:
            if self._links.get(name) is link:
                del self._links[name]
                self._events.on_down(name, link.reason)
                if self._wanted(name) and not self.failed.done():
                    self._reach(name)

    def _replaces(self, link: PeerLink, before: PeerLink) -> bool:
        """Whether a new link takes the place of the one that there is. Both ends find the same."""
        if link.boot != before.boot or link.dialled == before.dialled:
            return True
        return link.dialled == (self.name < link.peer.name)

    def _link_near(self, peer: str) -> NearLink | None:
        """The link to an identity of this process."""
        other = self._near[peer]
        try:
            mine = self._trust.prove(other.identity.certificate.der, peer)
        except LinkEnded as why:
            self.counts[f"ended:{why.reason}"] += 1
            return None
        found = self._links.get(peer)
        if isinstance(found, NearLink):
            return found
        made = NearLink(mine, self._limits)
        self._links[peer] = made
        self._run(self._hold_near(made, other), peer)
        self._events.on_up(peer)
        other._link_near(self.name)
        return made

    async def _hold_near(self, link: NearLink, other: Transport) -> LinkEnded:
        name = link.peer.name
        try:
            ended = await link.run(other._handler(self.name), other._missed(self.name))
        finally:
            if self._links.get(name) is link:
                del self._links[name]
                self._events.on_down(name, link.reason)
        return ended

    # --- reaching others ----------------------------------------------------------------------------

    def _queue(self, peer: str) -> SendQueue:
        return self._queues.setdefault(peer, SendQueue(self._limits))

    def _wanted(self, peer: str) -> bool:
        return peer in self._kept or len(self._queues.get(peer, ())) > 0

    def _reach(self, peer: str) -> None:
        """Dials, unless there is a link or somebody dials already."""
        if peer not in self._links and peer not in self._dialling and peer != self.name:
            self._dialling.add(peer)
            self._run(self._dial(peer), peer)

    async def _dial(self, peer: str) -> None:
        loop, limits = asyncio.get_running_loop(), self._limits
        delay, give_up = limits.retry_s, loop.time() + limits.give_up_s
        try:
            while peer not in self._links and self._wanted(peer):
                began = loop.time()
                ended = await self._attempt(peer)
                if loop.time() - began > limits.heartbeat_s:  # it was up for a while: begin anew
                    delay, give_up = limits.retry_s, loop.time() + limits.give_up_s
                elif peer not in self._kept and loop.time() > give_up:
                    self._give_up(peer, ended)
                    return
                await asyncio.sleep(random.uniform(0.5, 1.0) * delay)
                delay = min(2 * delay, limits.retry_most_s)
        finally:
            self._dialling.discard(peer)

    async def _attempt(self, peer: str) -> LinkEnded:
        address = self._find(peer)
        if address is None:
            return LinkEnded(LinkReason.UNREACHABLE, f"nobody knows where {peer!r} is")
        if self._penalties.out(peer):
            return LinkEnded(LinkReason.PENALTY, f"{peer!r} was cut off a moment ago")
        try:
            link = await dial(address, peer, self.identity, self._trust, self._limits)
        except LinkEnded as refused:
            self.counts[f"ended:{refused.reason}"] += 1
            return refused
        return await self._hold(link)

    def _give_up(self, peer: str, why: LinkEnded) -> None:
        self.counts["dropped"] += self._queue(peer).discard()
        self.counts["given-up"] += 1
        self._events.on_down(peer, why.reason)

    # --- tasks --------------------------------------------------------------------------------------

    def _handler(self, peer: str) -> Callable[[bytes], Coroutine[Any, Any, None]]:
        async def handle(message: bytes) -> None:
            self.counts["received"] += 1
            try:
                await self._events.on_message(peer, message)
            except Rejected as refused:
                self.counts[f"refused:{refused.code}"] += 1
                raise LinkEnded(LinkReason.REFUSED, f"{peer!r} sent what it should not: {refused.message}") from None

        return handle

    def _missed(self, peer: str) -> Callable[[int], None]:
        def missed(count: int) -> None:
            self.counts["missed"] += count
            self._events.on_missed(peer, count)

        return missed

    def _run(self, work: Coroutine[Any, Any, object], peer: str) -> asyncio.Task[None]:
        async def watched() -> None:
            try:
                await work
            except asyncio.CancelledError:
                raise
            except BaseException as error:
                # Nobody awaits these tasks: whoever runs the process must hear of it.
                if not self.failed.done():
                    self.failed.set_exception(error)
                raise

        task = asyncio.ensure_future(watched())
        self._tasks[task] = peer
        task.add_done_callback(self._finished)
        return task

    def _finished(self, task: asyncio.Task[None]) -> None:
        self._tasks.pop(task, None)
        if not task.cancelled():
            task.exception()  # `failed` has it
