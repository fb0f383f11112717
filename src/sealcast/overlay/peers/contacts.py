"""Whom a seat asks when it needs a parent, and which parents it should not have.

Where parents route, a parent learns a token from each child. So the seats of one subscription, its *group*, shall have
different parents as long as there are some: a seat asks those first who are no parent of its group.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from sealcast.overlay.peers.core import PeerCore
from sealcast.overlay.peers.port import Dissemination, PeerId
from sealcast.overlay.peers.seat import Seat
from sealcast.wire.peers import Urgency

#: The steps of a search: its urgency, and whether it begins at a rendezvous rather than at any peer that is known.
LADDER: Final[tuple[tuple[Urgency, bool], ...]] = (
    (Urgency.FREE, False),
    (Urgency.FREE, True),
    (Urgency.DISPLACE, False),
    (Urgency.OVERFLOW, True),
)
#: A rendezvous that was down is left in peace for so many searches, if there are others.
DOWN_SEARCHES: Final = len(LADDER) + 1
MAX_CONTACTS: Final = 256


class Contacts:
    """The peers that a node knows, and which of them suit a seat."""

    def __init__(self, core: PeerCore) -> None:
        self._core = core
        self._contacts: dict[PeerId, None] = {}
        #: When a rendezvous was last out of reach.
        self._down: dict[PeerId, float] = {}

    def know(self, peers: Sequence[PeerId]) -> None:
        """Peers that a search can begin at. The ones that were named last are kept."""
        for peer in peers:
            self._contacts.pop(peer, None)
            self._contacts[peer] = None
        while len(self._contacts) > MAX_CONTACTS:
            del self._contacts[next(iter(self._contacts))]

    def forget(self, peer: PeerId) -> None:
        """A peer is out of reach."""
        self._contacts.pop(peer, None)
        core = self._core
        if peer in core.rendezvous:
            self._down[peer] = core.now
            self._down = {each: at for each, at in self._down.items() if each in core.rendezvous}

    def roots(self) -> list[PeerId]:
        """The rendezvous that can be asked: not those that were down a moment ago, if there are others."""
        core = self._core
        roots = [each for each in core.rendezvous if not core.conduct.banned(each, core.now)]
        since = core.now - DOWN_SEARCHES * core.settings.search_seconds
        return [each for each in roots if self._down.get(each, since) <= since] or roots

    def apart(self, seat: Seat, peers: list[PeerId]) -> list[PeerId]:
        return [each for each in peers if not self.weak(seat, each)]

    def choose(self, seat: Seat, rendezvous: bool) -> PeerId | None:
        """Whom to ask: somebody who could be a parent of its own for this seat, if anybody is known. If none of them
        answered, it asks the parents of its group in the end: they are alive."""
        core, roots = self._core, self.roots()
        known = [each for each in self._contacts if not core.conduct.banned(each, core.now)]
        choice = roots if rendezvous or not known else known
        best = self.apart(seat, choice)
        if rendezvous and not seat.rooted and seat.rounds >= len(LADDER):
            best = [each for each in choice if each not in best]
        return core.rng.choice(best or choice) if choice else None

    def weak(self, seat: Seat, peer: PeerId) -> bool:
        """Whether this parent routes for another seat of the same group already, and would know both labels' tokens."""
        core = self._core
        if core.settings.dissemination is not Dissemination.ROUTING or peer == core.name:
            return False
        others = (
            each
            for each in core.in_tree(seat.plan.attribute)
            if each is not seat and each.plan.group == seat.plan.group and not each.plan.root
        )
        return any(
            (each.parent is not None and each.parent.peer == peer)
            or (each.pending is not None and each.pending.parent.peer == peer)
            for each in others
        )

    def crowded(self, seat: Seat) -> bool:
        """Whether another seat of the same group has the same parent."""
        return seat.parent is not None and self.weak(seat, seat.parent.peer)
