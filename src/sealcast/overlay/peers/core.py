"""What the parts of a node share: its seats, its time, and what it asks for."""

from __future__ import annotations

import os
import random
from collections import Counter, deque
from collections.abc import Iterator, Sequence
from typing import Final

from sealcast.overlay.peers.conduct import Conduct
from sealcast.overlay.peers.port import (
    Closed,
    PeerCredentials,
    PeerEffect,
    PeerId,
    PeerSettings,
    SeatAddress,
    Send,
)
from sealcast.overlay.peers.recent import RecentEvents
from sealcast.overlay.peers.seat import Seat
from sealcast.overlay.peers.timers import Timers
from sealcast.primitives import mac
from sealcast.primitives.secrets import Secret
from sealcast.wire import limits
from sealcast.wire.peers import SEARCH_BYTES, PeerBody, PeerMessage

#: What separates the two proofs under one connection key (SPEC.md, section 17).
OFFER: Final = b"peer offer"
ACCEPT: Final = b"peer accept"
#: Arrivals are numbered from a random number of so many bytes. It decides nothing, so that it is not `rng`'s.
_START_BYTES: Final = 6


class PeerCore:
    """The state of one peer on one topic, and the way out for its messages."""

    def __init__(
        self,
        topic: bytes,
        name: PeerId,
        credentials: PeerCredentials,
        settings: PeerSettings,
        rng: random.Random,
        rendezvous: Sequence[PeerId],
    ) -> None:
        self.topic = topic
        self.name = name
        self.credentials = credentials
        self.settings = settings
        self.rng = rng
        self.rendezvous = tuple(dict.fromkeys(rendezvous))
        self.now = 0.0
        self.seats: dict[int, Seat] = {}
        self.timers = Timers()
        self.conduct = Conduct(settings)
        self.recent = RecentEvents(settings, first=int.from_bytes(os.urandom(_START_BYTES)))
        self.effects: list[PeerEffect] = []
        #: Messages between seats of this peer: they never leave it.
        self.local: deque[PeerMessage] = deque()
        #: Peers that were cut off by what is being handled; their links are closed when it is done.
        self.cut: list[PeerId] = []
        self.counts: Counter[str] = Counter()

    # --- the way out ----------------------------------------------------------------------------

    def send(self, to: PeerId, source: int | None, target: int | None, body: PeerBody) -> None:
        message = PeerMessage(self.topic, source, target, body)
        if to == self.name:
            self.local.append(message)
        else:
            self.effects.append(Send(to, message))

    def reply(self, seat: Seat, to: SeatAddress, body: PeerBody) -> None:
        """A message from a seat of ours to another seat."""
        self.send(to.peer, seat.number, to.seat, body)

    def strike(self, peer: PeerId, reason: str) -> None:
        """Counts a broken rule against who sent it, and cuts it off when it was one too many."""
        self.counts["broken rules"] += 1
        if peer == self.name:
            return
        until = self.conduct.strike(peer, self.now)
        if until is not None:
            self.effects.append(Closed(peer, reason, until))
            self.cut.append(peer)

    # --- seats ----------------------------------------------------------------------------------

    def address(self, seat: Seat) -> SeatAddress:
        return SeatAddress(self.name, seat.number)

    def in_tree(self, attribute: str) -> Iterator[Seat]:
        return (seat for seat in self.seats.values() if seat.plan.attribute == attribute)

    @property
    def has_roots(self) -> bool:
        """Whether this peer is a rendezvous."""
        return any(seat.plan.root for seat in self.seats.values())

    def is_fellow(self, peer: PeerId) -> bool:
        """Whether both of us run roots."""
        return peer in self.rendezvous and peer != self.name and self.has_roots

    def room(self, seat: Seat, *, overflow: bool = False) -> bool:
        """Whether a seat can take one more child; places that are held count."""
        limit = self.settings
        most = limit.root_children if seat.plan.root else limit.children
        if overflow:
            most += limit.root_overflow if seat.plan.root else limit.overflow
        return len(seat.children) + len(seat.reservations) < most

    # --- proofs ---------------------------------------------------------------------------------

    def new_search(self) -> bytes:
        return self.rng.randbytes(SEARCH_BYTES)


def proof(key: Secret, what: bytes, search: bytes, acceptor: SeatAddress, *more: bytes) -> bytes:
    """What shows that the sender knows the connection key, bound to the search and to the parent-to-be."""
    return mac.tag(key, what, search, acceptor.peer.encode(), acceptor.seat.to_bytes(2, "big"), *more)


def proves(given: bytes, key: Secret, what: bytes, search: bytes, acceptor: SeatAddress, *more: bytes) -> bool:
    return mac.verify(key, given, what, search, acceptor.peer.encode(), acceptor.seat.to_bytes(2, "big"), *more)


def milliseconds(seconds: float) -> int:
    """Milliseconds as they stand on the wire: not negative, a week at most."""
    return min(max(0, round(seconds * 1000)), limits.MAX_PEER_MILLISECONDS)
