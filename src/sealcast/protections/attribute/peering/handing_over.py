"""A publisher's events on their way to every rendezvous: each gets all, and says of each that it has it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from sealcast.overlay.peers.node import PeerNode
from sealcast.primitives.secrets import Unpicklable
from sealcast.wire.carried import CarriedEvent
from sealcast.wire.peers import event_id

#: Gives one event to one rendezvous.
PublishOne = Callable[[bytes, str], None]


class HandingOver(Unpicklable):
    """What is published and not confirmed by all."""

    def __init__(self, node: PeerNode, rendezvous: Sequence[str]) -> None:
        self._node, self.rendezvous = node, tuple(rendezvous)
        #: How logs name each event, and those who have not confirmed it.
        self._awaited: dict[bytes, tuple[bytes, set[str]]] = {}
        self._changed = asyncio.Event()

    @property
    def waiting(self) -> int:
        """Events that somebody has not confirmed."""
        return len(self._awaited)

    def meet(self, rendezvous: Sequence[str]) -> None:
        """Others run the roots from now on: those who are new get everything, those who left are not waited for."""
        before, self.rendezvous = set(self.rendezvous), tuple(rendezvous)
        for id, (_, missing) in list(self._awaited.items()):
            missing &= set(rendezvous)
            missing |= set(rendezvous) - before
            if not missing:
                del self._awaited[id]
        self._changed.set()

    def confirmed(self, id: bytes, rendezvous: str) -> bytes | None:
        """A rendezvous has an event; how logs name it, if anybody waited for that."""
        if id not in self._awaited:
            return None
        named, missing = self._awaited[id]
        missing.discard(rendezvous)
        if not missing:
            del self._awaited[id]
        self._changed.set()
        return named

    async def hand_over(self, carried: Sequence[CarriedEvent], publish: PublishOne) -> None:
        """Returns when every rendezvous has all of them."""
        events = [event.to_bytes() for event in carried]
        for event, about in zip(events, carried, strict=True):
            self._awaited[event_id(event)] = about.id, set(self.rendezvous)
        given = dict.fromkeys(self.rendezvous, 0)
        while self._awaited:
            self._changed.clear()
            given = {name: given.get(name, 0) for name in self.rendezvous}
            for name in self.rendezvous:
                while given[name] < len(events) and self._node.room(name) > 0:
                    publish(events[given[name]], name)
                    given[name] += 1
            if self._awaited:
                await self._changed.wait()
