"""A publisher's events on their way to every rendezvous: each gets all, and says of each that it has it.

    the publisher's log ──> batches ──> a queue for each rendezvous ──> given, as far as it has confirmed others
                               └──────> in the account, in order, once every rendezvous has all of a batch

A rendezvous that does not answer holds up nobody but itself: the others get what is published later. What it lacks
waits here. That is bounded: with too many events that somebody has not confirmed, no more are taken out of the log.
"""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from sealcast.overlay.peers.node import PeerNode
from sealcast.overlay.peers.port import PeerSettings
from sealcast.primitives.secrets import Unpicklable
from sealcast.protections.attribute.outgoing import OutgoingBatch, PublisherPeer
from sealcast.wire import frame
from sealcast.wire.peers import event_id

#: Gives one event to one rendezvous.
PublishOne = Callable[[bytes, str], None]
#: How often a publisher's log is looked at.
LOOK_S: Final = 0.1


@dataclass(slots=True)
class _Batch:
    batch: OutgoingBatch
    #: Events of it that somebody has not confirmed.
    left: int


@dataclass(slots=True)
class _Awaited:
    """An event that somebody has not confirmed."""

    event: bytes
    #: How logs name it.
    named: bytes
    #: When it was published, by its publisher's word.
    time_us: int
    missing: set[str]
    batch: _Batch


class HandingOver(Unpicklable):
    """What is published and not confirmed by all."""

    def __init__(self, node: PeerNode, rendezvous: Sequence[str], settings: PeerSettings) -> None:
        self._node, self.rendezvous = node, tuple(rendezvous)
        self._most, self._most_bytes = settings.unconfirmed_events, settings.kept_bytes
        self._batches = deque[_Batch]()
        self._awaited: dict[bytes, _Awaited] = {}
        self._nbytes = 0
        #: What each rendezvous is still to be given, in order.
        self._queues: dict[str, deque[bytes]] = {name: deque() for name in rendezvous}
        self._changed = asyncio.Event()

    @property
    def waiting(self) -> int:
        """Events that somebody has not confirmed."""
        return len(self._awaited)

    @property
    def unconfirmed(self) -> Mapping[str, int]:
        """How many events each rendezvous has not confirmed."""
        return Counter(name for each in self._awaited.values() for name in each.missing)

    def meet(self, rendezvous: Sequence[str]) -> None:
        """Others run the roots from now on: those who are new get everything, those who left are not waited for."""
        before, self.rendezvous = self._queues, tuple(rendezvous)
        self._queues = {name: before.get(name, deque(self._awaited)) for name in rendezvous}
        for id, each in list(self._awaited.items()):
            each.missing = (each.missing & set(rendezvous)) | (set(rendezvous) - set(before))
            if not each.missing:
                self._drop(id)
        self._changed.set()

    def confirmed(self, id: bytes, rendezvous: str) -> bytes | None:
        """A rendezvous has an event; how logs name it, if anybody waited for that."""
        each = self._awaited.get(id)
        if each is None:
            return None
        each.missing.discard(rendezvous)
        if not each.missing:
            self._drop(id)
        self._changed.set()
        return each.named

    def advance(self, publisher: PublisherPeer, publish: PublishOne, too_old_us: int) -> Iterator[Mapping[str, int]]:
        """Takes what waits out of the publisher's log, and gives each rendezvous what it has room for. What was counted
        of batches that went out by now. Events from before `too_old_us` are given up: nobody would take them."""
        while len(self._awaited) < self._most and self._nbytes < self._most_bytes:
            batch = publisher.next_batch()
            if batch is None:
                break
            self._add(batch)
        given_up = self._give_up(too_old_us)
        for name, queue in self._queues.items():
            while queue and self._node.room(name) > 0:
                found = self._awaited.get(queue.popleft())
                if found is not None:
                    publish(found.event, name)
        while self._batches and not self._batches[0].left:
            batch = self._batches.popleft().batch
            yield {**publisher.sent(batch), "published": len(batch.events)}
        if given_up:
            yield {"given up": given_up}

    async def change(self) -> None:
        """Returns when somebody confirmed something, and after a moment at the latest."""
        with suppress(TimeoutError):
            async with asyncio.timeout(LOOK_S):
                await self._changed.wait()
        self._changed.clear()

    def _add(self, batch: OutgoingBatch) -> None:
        added = _Batch(batch, len(batch.events))
        self._batches.append(added)
        for about in batch.events:
            event, time_us = about.to_bytes(), frame.parse_signed(about.signed).header.time
            self._awaited[event_id(event)] = _Awaited(event, about.id, time_us, set(self.rendezvous), added)
            self._nbytes += len(event)
            for queue in self._queues.values():
                queue.append(event_id(event))

    def _give_up(self, too_old_us: int) -> int:
        """Forgets events that no rendezvous takes any more; how many. Who publishes is in the order of time."""
        found = list[bytes]()
        for id, each in self._awaited.items():
            if each.time_us >= too_old_us:
                break
            found.append(id)
        for id in found:
            self._drop(id)
        self._node.withdraw(found)
        return len(found)

    def _drop(self, id: bytes) -> None:
        gone = self._awaited.pop(id)
        gone.batch.left -= 1
        self._nbytes -= len(gone.event)
