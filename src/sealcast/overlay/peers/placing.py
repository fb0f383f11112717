"""Who covers a newcomer and has room takes it: the paper's Algorithm 1 at the searched peer, repaired (spec A.5).

    1  a search that this seat has seen: dropped
    2  the seat covers the newcomer and has room: it offers a place
    3  it covers the newcomer and has no room: the search goes to its children and its parent
    4  it does not, and the search came from its parent: it offers to swap places with the newcomer
    5  it does not, and the search came from elsewhere: the search goes to its parent; the root covers everybody
    6  a search that found nothing comes again, more urgently: one coverer without room gives a child's place
       (`DISPLACE`), or takes one more than it wants (`OVERFLOW`)

Two rules are ours. A seat to which no events come takes nobody. And a seat whose newest pulse is not newer than what
the newcomer has passed to its own children may be below it: it passes the search up, so that no circle is made.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from sealcast.errors import Rejected
from sealcast.overlay.peers.core import ACCEPT, OFFER, PeerCore, proof, proves
from sealcast.overlay.peers.passing import Passing
from sealcast.overlay.peers.port import Dissemination, PeerId, SeatAddress
from sealcast.overlay.peers.pulses import Pulses
from sealcast.overlay.peers.seat import ChildLink, PendingSwap, Reservation, Seat
from sealcast.primitives.secrets import Secret
from sealcast.wire import limits
from sealcast.wire.peers import (
    Accept,
    Decline,
    Offer,
    PartingReason,
    PeerMessage,
    Replace,
    Reprove,
    Search,
    Swap,
    Unlink,
    Urgency,
)

#: Searches of covered seats that a full seat remembers, for children that swap.
MAX_COVERED: Final = 256


class Placing:
    """The searched side of a node."""

    def __init__(self, core: PeerCore, passing: Passing, pulses: Pulses) -> None:
        self._core = core
        self._passing = passing
        self._pulses = pulses
        self._seen: dict[tuple[bytes, int | None], None] = {}

    # --- searches -------------------------------------------------------------------------------

    def on_search(self, sender: PeerId, message: PeerMessage, body: Search) -> None:
        core = self._core
        if sender != core.name and not core.conduct.may_search(sender, body.origin, core.now):
            core.counts["searches over the limit"] += 1
            return
        seat = self._addressed(message, body)
        came = None if message.source is None else SeatAddress(sender, message.source)
        if not self._first(body.search, None if seat is None else seat.number):  # rule 1
            return
        origin = SeatAddress(body.origin, body.seat)
        if seat is None:
            self._to_rendezvous(sender, body)
        elif origin != core.address(seat):
            self._place(seat, origin, sender, came, body)

    def _addressed(self, message: PeerMessage, body: Search) -> Seat | None:
        """The seat that the search is for; None if there is none to which events come."""
        core = self._core
        if message.target is not None:
            seat = core.seats.get(message.target)
            return seat if seat is not None and seat.plan.attribute == body.attribute and seat.rooted else None
        origin = SeatAddress(body.origin, body.seat)
        fit = [each for each in core.in_tree(body.attribute) if each.rooted and core.address(each) != origin]
        return core.rng.choice(fit) if fit else None

    def _first(self, search: bytes, seat: int | None) -> bool:
        if (search, seat) in self._seen:
            return False
        self._seen[search, seat] = None
        if len(self._seen) > self._core.settings.seen_searches:
            del self._seen[next(iter(self._seen))]
        return True

    def _place(self, seat: Seat, origin: SeatAddress, sender: PeerId, came: SeatAddress | None, body: Search) -> None:
        core = self._core
        try:
            key = core.credentials.open_request(seat.number, body.request, body.origin)
        except Rejected as error:
            # Who passes a search on from a seat has checked it. Who has no seat in this tree could not.
            if came is not None or sender == body.origin:
                core.strike(sender, error.message)
            return
        core.counts["requests opened"] += 1
        if seat.parent == origin:
            # Our own parent searches: we are below it, and so is all that we could offer.
            self._to_rendezvous(sender, body)
        elif not self._pulses.newer(seat, body.heard):
            self._forward(seat, came, body, children=False)
        elif key is not None:
            self._covers(seat, origin, came, body, key)
        elif came is not None and came == seat.parent:
            if body.urgency == Urgency.FREE:
                self._offer_swap(seat, origin, body)  # rule 4
        else:
            self._forward(seat, came, body, children=False)  # rule 5

    def _covers(self, seat: Seat, origin: SeatAddress, came: SeatAddress | None, body: Search, key: Secret) -> None:
        core, urgency = self._core, Urgency(body.urgency)
        # Parents that route learn a token from each child: a peer's labels go to different ones as long as there are.
        twice = core.settings.dissemination is Dissemination.ROUTING and any(
            child.peer == origin.peer for each in core.in_tree(body.attribute) for child in each.children
        )
        if core.room(seat) and (not twice or urgency is Urgency.OVERFLOW):
            self._offer(seat, origin, body.search, key)  # rule 2
        elif urgency is Urgency.DISPLACE and not twice and self._can_displace(seat):
            core.counts["places taken away"] += 1
            self._offer(seat, origin, body.search, key, displaces=True)  # rule 6
        elif urgency is Urgency.OVERFLOW and core.room(seat, overflow=True):
            core.counts["overflow links"] += 1
            self._offer(seat, origin, body.search, key)  # rule 6
        else:
            seat.covered[body.search] = (origin, key)
            if len(seat.covered) > MAX_COVERED:
                seat.covered.popitem(last=False)
            self._forward(seat, came, body, children=True)  # rule 3

    def _can_displace(self, seat: Seat) -> bool:
        busy = any(each.displaces for each in seat.reservations.values())
        return bool(seat.children) and not busy and self._core.room(seat, overflow=True)

    def _offer(self, seat: Seat, origin: SeatAddress, search: bytes, key: Secret, *, displaces: bool = False) -> None:
        core = self._core
        until = core.now + core.settings.offer_seconds
        seat.reservations[search] = Reservation(origin, key, until, displaces)
        core.timers.set(("reservations", seat.number), until)
        core.counts["offers"] += 1
        core.reply(seat, origin, Offer(search, seat.plan.root, proof(key, OFFER, search, core.address(seat))))

    def _forward(self, seat: Seat, came: SeatAddress | None, body: Search, *, children: bool) -> None:
        core = self._core
        if body.hops >= limits.MAX_PEER_HOPS:
            return
        onward = replace(body, hops=body.hops + 1)
        origin = SeatAddress(body.origin, body.seat)
        targets = [seat.parent, *(seat.children if children else ())]
        for to in targets:
            if to is not None and to not in (came, origin):
                core.reply(seat, to, onward)

    def _to_rendezvous(self, sender: PeerId, body: Search) -> None:
        """A search that found nobody here who could help it."""
        core = self._core
        others = [each for each in core.rendezvous if each not in (core.name, sender, body.origin)]
        if others and body.hops < limits.MAX_PEER_HOPS:
            core.send(core.rng.choice(others), None, None, replace(body, hops=body.hops + 1))

    def _offer_swap(self, seat: Seat, origin: SeatAddress, body: Search) -> None:
        core, parent = self._core, seat.parent
        busy = seat.swap is not None and seat.swap.until > core.now
        if parent is None or busy or seat.pending is not None:
            return
        own, ask = core.new_search(), core.credentials.ask(seat.number)
        seat.swap = PendingSwap(own, ask.key, origin, core.now + core.settings.offer_seconds)
        core.counts["swaps offered"] += 1
        core.reply(seat, origin, Swap(body.search, own, parent.peer, parent.seat, ask.request))

    # --- answers to offers ----------------------------------------------------------------------

    def on_accept(self, seat: Seat, child: SeatAddress, body: Accept) -> None:
        held = seat.reservations.get(body.search)
        if held is None or held.origin != child or not seat.rooted:
            self._core.reply(seat, child, Unlink(PartingReason.UNKNOWN))
            return
        del seat.reservations[body.search]
        if not self._proved(seat, child, held.key, body):
            return
        if held.displaces and not self._core.room(seat):
            self._displace(seat, child)
        self.link(seat, child, body.token, body.away / 1000)

    def on_decline(self, seat: Seat, child: SeatAddress, body: Decline) -> None:
        held = seat.reservations.get(body.search)
        if held is not None and held.origin == child:
            del seat.reservations[body.search]

    def on_replace(self, seat: Seat, newcomer: SeatAddress, body: Replace) -> None:
        """A newcomer that this seat covers takes the place of one of its children, which will be the newcomer's."""
        core = self._core
        origin, key = seat.covered.pop(body.search, (None, None))
        leaves = SeatAddress(body.child, body.child_seat)
        known = key is not None and origin == newcomer and leaves in seat.children and seat.rooted
        # For a moment both are children, so that the one that leaves misses nothing.
        if not known or key is None or not core.room(seat, overflow=True):
            core.reply(seat, newcomer, Unlink(PartingReason.UNKNOWN))
        elif self._proved(seat, newcomer, key, body):
            core.counts["swaps"] += 1
            self.link(seat, newcomer, body.token, body.away / 1000)

    def on_reprove(self, seat: Seat, child: SeatAddress, body: Reprove) -> None:
        """A child shows in a new epoch that it is still covered."""
        core = self._core
        link = seat.children.get(child)
        if link is None:
            core.reply(seat, child, Unlink(PartingReason.UNKNOWN))
            return
        try:
            key = core.credentials.open_request(seat.number, body.request, child.peer)
            self._check_token(seat, body.token)
        except Rejected as error:
            core.strike(child.peer, error.message)
            key = None
        if key is None:
            self.part(seat, child, PartingReason.REFUSED)
            return
        link.tokens, link.proved = (*self._tokens(body.token), *link.tokens[:1]), core.now
        offer = Offer(body.search, seat.plan.root, proof(key, OFFER, body.search, core.address(seat)))
        core.reply(seat, child, offer)
        if link.tokens:
            # Events of the new epoch may have come before the token that finds them.
            self._passing.greet(seat, child, 0.0)

    def _proved(self, seat: Seat, child: SeatAddress, key: Secret, body: Accept | Replace) -> bool:
        core = self._core
        try:
            if not proves(body.proof, key, ACCEPT, body.search, core.address(seat), body.token):
                raise Rejected("a seat took a place without the key of its own request")
            self._check_token(seat, body.token)
        except Rejected as error:
            core.strike(child.peer, error.message)
            core.reply(seat, child, Unlink(PartingReason.REFUSED))
            return False
        return True

    def _check_token(self, seat: Seat, token: bytes) -> None:
        if self._core.settings.dissemination is Dissemination.ROUTING:
            self._core.credentials.check_token(seat.plan.attribute, token)

    def _tokens(self, token: bytes) -> tuple[bytes, ...]:
        """A parent that floods keeps no token, even if a child gave it one."""
        return (token,) if self._core.settings.dissemination is Dissemination.ROUTING else ()

    # --- links ----------------------------------------------------------------------------------

    def link(self, seat: Seat, child: SeatAddress, token: bytes, away: float) -> None:
        core = self._core
        if seat.parent == child:
            core.reply(seat, child, Unlink(PartingReason.REFUSED))
            return
        seat.children[child] = ChildLink(self._tokens(token), core.now, core.now)
        self._pulses.pass_to(seat, child)
        self._passing.greet(seat, child, away)

    def part(self, seat: Seat, child: SeatAddress, reason: PartingReason) -> None:
        if seat.children.pop(child, None) is not None:
            self._core.reply(seat, child, Unlink(reason))

    def _displace(self, seat: Seat, newcomer: SeatAddress) -> None:
        others = [child for child in seat.children if child != newcomer]
        if others:
            self._core.counts["displaced"] += 1
            self.part(seat, self._core.rng.choice(others), PartingReason.DISPLACED)

    def expire(self, seat: Seat) -> None:
        """Lets go of places that nobody came for."""
        now = self._core.now
        for search in [key for key, held in seat.reservations.items() if held.until <= now]:
            del seat.reservations[search]
        if seat.reservations:
            until = min(held.until for held in seat.reservations.values())
            self._core.timers.set(("reservations", seat.number), until)
