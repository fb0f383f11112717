"""A seat that needs a parent: it asks, takes the first good offer or swap, and asks more urgently if none comes.

Each search is one request at one urgency. A round that ends without a place goes one step up `LADDER`; after the last
step the seat pauses, longer each time and with jitter, and begins again: it never gives up, and never floods. A seat
that was displaced skips the step that displaces others. So every displacement belongs to one newcomer, and the search
ends: without this rule peers that do not cover each other displace one another for ever (finding F11).

Where parents route, a seat whose parent routes for another seat of the same subscription keeps that place and goes on
asking until it finds a parent of its own: peers that could be one may come later. Each pause is twice as long as the
last. Such a seat takes a free place or none, so that every move leaves fewer seats that share a parent, and this ends.
"""

from __future__ import annotations

from typing import Final

from sealcast.errors import Bug, Rejected
from sealcast.overlay.peers.contacts import LADDER, Contacts
from sealcast.overlay.peers.core import ACCEPT, OFFER, PeerCore, milliseconds, proof, proves
from sealcast.overlay.peers.port import Dissemination, Linked, PeerId, SeatAddress, Weakened
from sealcast.overlay.peers.seat import PendingLink, PendingProof, PendingSwap, Reservation, SearchRound, Seat
from sealcast.primitives.secrets import Secret
from sealcast.wire.peers import (
    Accept,
    Decline,
    Offer,
    PartingReason,
    Replace,
    Reprove,
    Search,
    Swap,
    Unlink,
    Urgency,
)

#: Of a seat that was displaced.
DISPLACED_LADDER: Final = tuple(step for step in LADDER if step[0] is not Urgency.DISPLACE)
MAX_FALLBACKS: Final = 8


class Searching:
    """The searching side of a node."""

    def __init__(self, core: PeerCore) -> None:
        self._core = core
        self.contacts = Contacts(core)

    # --- rounds ---------------------------------------------------------------------------------

    def start(self, seat: Seat, contact: PeerId | None = None) -> None:
        """Begins a search at its first step, at `contact` if one is named."""
        self._decline_all(seat)
        seat.rounds = 0
        self._begin(seat, contact)

    def _begin(self, seat: Seat, contact: PeerId | None = None) -> None:
        core = self._core
        urgency, at_rendezvous = self._step(seat)
        # A seat with children begins at a rendezvous: only a root can be sure not to be below it.
        chosen = contact or self.contacts.choose(seat, at_rendezvous or bool(seat.children))
        if chosen is None:
            self._pause(seat)
            return
        ask = core.credentials.ask(seat.number)
        seat.round = SearchRound(core.new_search(), urgency, ask.key, chosen)
        core.counts["searches apart" if seat.rooted else "searches"] += 1
        heard = tuple(seat.heard.items()) if seat.children else ()
        body = Search(
            seat.round.search, core.name, seat.number, seat.plan.attribute, ask.request, urgency, heard, hops=0
        )
        core.send(chosen, None, None, body)
        core.timers.set(("search", seat.number), core.now + core.settings.search_seconds)

    def _step(self, seat: Seat) -> tuple[Urgency, bool]:
        """How urgently a seat asks now, and whether it begins at a rendezvous."""
        if not seat.rooted:
            ladder = DISPLACED_LADDER if seat.displaced else LADDER
            return ladder[seat.rounds % len(ladder)]
        # Who has a place takes none from others for a better one. A root that is full has one more in the end.
        others = self.contacts.apart(seat, self.contacts.roots())
        return Urgency.OVERFLOW if others and seat.rounds % 2 else Urgency.FREE, True

    def _pause(self, seat: Seat) -> None:
        core, settings = self._core, self._core.settings
        seat.round = None
        cycle = seat.rounds if seat.rooted else seat.rounds // len(LADDER)
        most = settings.apart_most_seconds if seat.rooted else settings.retry_most_seconds
        pause = min(settings.retry_seconds * 2 ** min(cycle, 16), most)
        core.timers.set(("search", seat.number), core.now + pause * core.rng.uniform(0.5, 1.5))

    def _next(self, seat: Seat) -> None:
        """The round has found nothing."""
        core = self._core
        self._decline_all(seat)
        seat.round = None
        seat.rounds += 1
        ladder = DISPLACED_LADDER if seat.displaced else LADDER
        if seat.rooted:
            self._settle(seat)
        elif seat.rounds % len(ladder):
            self._begin(seat)
        else:
            core.counts["searches that failed"] += 1
            self._pause(seat)

    def _settle(self, seat: Seat) -> None:
        """The seat has a place. If its parent routes for another seat of its group, it asks again later."""
        if self.contacts.crowded(seat):
            self._pause(seat)
        else:
            self._core.timers.cancel(("search", seat.number))

    def again(self) -> None:
        """Others may be there now: seats that share a parent with another of their group ask soon."""
        for seat in self._core.seats.values():
            if self.contacts.crowded(seat) and seat.round is None and seat.pending is None:
                seat.rounds = 0
                self._pause(seat)

    def on_timer(self, seat: Seat) -> None:
        """Nothing came in time: an offer to fall back on is taken, or the next round begins."""
        if seat.pending is not None:
            seat.pending = None
            self._next(seat)
        elif seat.round is None:
            if not seat.rooted or self.contacts.crowded(seat):
                self._begin(seat)
        elif not self._fall_back(seat):
            self._next(seat)

    def _fall_back(self, seat: Seat) -> bool:
        round = seat.round
        if round is None or not round.fallback:
            return False
        good = [each for each in round.fallback if not self.contacts.weak(seat, each.peer)]
        if good:
            self._take(seat, good[0])
            return True
        if round.urgency is not Urgency.OVERFLOW or seat.rooted:
            return False
        self._core.effects.append(Weakened(seat.number, round.fallback[0].peer))
        self._take(seat, round.fallback[0])
        return True

    # --- offers ---------------------------------------------------------------------------------

    def on_offer(self, seat: Seat, acceptor: SeatAddress, body: Offer) -> None:
        core = self._core
        key = self._expected(seat, acceptor, body.search)
        if key is None:
            core.reply(seat, acceptor, Decline(body.search))
        elif not proves(body.proof, key, OFFER, body.search, acceptor):
            core.strike(acceptor.peer, "an offer without the key of the request")
        elif seat.proof is not None and seat.proof.search == body.search:
            seat.proof = None
            core.timers.cancel(("proof", seat.number))
            if core.settings.dissemination is Dissemination.ROUTING:
                seat.greeted, seat.away = False, 0.0  # the parent will say what the new token finds
        elif seat.swap is not None and seat.swap.search == body.search:
            self._move(seat, seat.swap, acceptor)
        else:
            self._offered(seat, acceptor, body)

    def _expected(self, seat: Seat, acceptor: SeatAddress, search: bytes) -> Secret | None:
        """The key that an offer to this seat has to prove; None if the seat waits for no such offer."""
        if seat.proof is not None and seat.proof.search == search:
            return seat.proof.key if acceptor == seat.parent else None
        if seat.pending is not None:
            return None
        if seat.swap is not None and seat.swap.search == search:
            return seat.swap.key if acceptor == seat.swap.newcomer and seat.parent is not None else None
        return seat.round.key if seat.round is not None and seat.round.search == search else None

    def _offered(self, seat: Seat, acceptor: SeatAddress, body: Offer) -> None:
        core, round = self._core, seat.round
        if round is None:
            raise Bug("a seat is offered places while it searches")
        weak = self.contacts.weak(seat, acceptor.peer)
        patient = body.root and round.urgency is Urgency.FREE and core.settings.root_patience_seconds > 0
        # Pulses reach a seat that has a parent, and all that is below it: they do not tell who is not. A root is not.
        below = seat.parent is not None and bool(seat.children) and not body.root
        needless = seat.parent is not None and not self.contacts.crowded(seat)
        if below or needless:
            core.reply(seat, acceptor, Decline(body.search))
        elif not weak and not patient:
            self._take(seat, acceptor)
        elif len(round.fallback) >= MAX_FALLBACKS:
            core.reply(seat, acceptor, Decline(body.search))
        else:
            round.fallback.append(acceptor)
            if not weak:
                core.timers.set(("search", seat.number), core.now + core.settings.root_patience_seconds)

    def _take(self, seat: Seat, acceptor: SeatAddress) -> None:
        round = seat.round
        if round is None:
            raise Bug("a seat takes offers while it searches")
        if acceptor in round.fallback:
            round.fallback.remove(acceptor)
        self._decline_all(seat)
        self._answer(seat, acceptor, round.search, round.key)

    def _answer(self, seat: Seat, acceptor: SeatAddress, search: bytes, key: Secret) -> None:
        core = self._core
        token, away = self._token(seat), self._away(seat)
        seat.pending = PendingLink(acceptor, search, away)
        given = proof(key, ACCEPT, search, acceptor, token)
        core.reply(seat, acceptor, Accept(search, given, token, milliseconds(away or 0.0)))
        core.timers.set(("search", seat.number), core.now + core.settings.search_seconds)

    def _decline_all(self, seat: Seat) -> None:
        round = seat.round
        if round is not None:
            for acceptor in round.fallback:
                self._core.reply(seat, acceptor, Decline(round.search))
            round.fallback.clear()

    # --- swaps ----------------------------------------------------------------------------------

    def on_swap(self, seat: Seat, leaves: SeatAddress, body: Swap) -> None:
        """A seat that does not cover this one offers its place: it is taken if this one covers that seat."""
        core = self._core
        if seat.pending is not None or seat.parent is not None or not core.room(seat):
            return
        round, parent = seat.round, SeatAddress(body.parent, body.parent_seat)
        if round is None or round.search != body.search or self.contacts.weak(seat, parent.peer):
            return
        try:
            key = core.credentials.open_request(seat.number, body.request, leaves.peer)
        except Rejected as error:
            core.strike(leaves.peer, error.message)
            return
        core.counts["requests opened"] += 1
        if key is None:
            return
        self._decline_all(seat)
        token, away = self._token(seat), self._away(seat)
        seat.pending = PendingLink(parent, round.search, away, takeover=(leaves, body.own, key))
        given = proof(round.key, ACCEPT, round.search, parent, token)
        away_ms = milliseconds(away or 0.0)
        core.reply(seat, parent, Replace(round.search, leaves.peer, leaves.seat, given, token, away_ms))
        core.timers.set(("search", seat.number), core.now + core.settings.search_seconds)

    def _move(self, seat: Seat, swap: PendingSwap, acceptor: SeatAddress) -> None:
        """The newcomer that took over this seat's place offers to be its parent."""
        seat.swap = None
        if self.contacts.weak(seat, acceptor.peer):
            self._core.reply(seat, acceptor, Decline(swap.search))
        else:
            self._answer(seat, acceptor, swap.search, swap.key)

    # --- links ----------------------------------------------------------------------------------

    def linked(self, seat: Seat) -> None:
        """The parent that was chosen has answered with its pulse."""
        core, pending = self._core, seat.pending
        if pending is None:
            raise Bug("a seat is linked to the parent that it chose")
        if seat.parent is not None and seat.parent != pending.parent:
            core.reply(seat, seat.parent, Unlink(PartingReason.MOVED))
            seat.former = seat.parent
        seat.parent, seat.pending, seat.round, seat.swap, seat.proof = pending.parent, None, None, None, None
        seat.rounds, seat.displaced = 0, False
        seat.greeted, seat.away = False, pending.away
        seat.fetching.clear()
        seat.to_fetch.clear()
        core.timers.cancel(("proof", seat.number))
        self._settle(seat)
        core.effects.append(Linked(seat.number, pending.parent))
        self.contacts.know([pending.parent.peer])
        if pending.takeover is not None:
            child, search, key = pending.takeover
            until = core.now + core.settings.offer_seconds
            seat.reservations[search] = Reservation(child, key, until)
            core.timers.set(("reservations", seat.number), until)
            core.reply(seat, child, Offer(search, False, proof(key, OFFER, search, core.address(seat))))

    def lost(self, seat: Seat, *, contact: PeerId | None = None) -> None:
        """The parent is gone. A move that is under way goes on; else the seat searches."""
        core = self._core
        seat.former, seat.parent, seat.swap, seat.proof = seat.parent, None, None, None
        core.timers.cancel(("silent", seat.number))
        core.timers.cancel(("proof", seat.number))
        core.effects.append(Linked(seat.number, None))
        if seat.pending is None:
            self.start(seat, contact)

    def failed(self, seat: Seat) -> None:
        """Who was asked, or was chosen as a parent, is gone or does not agree."""
        waiting = seat.pending is not None or seat.round is not None
        seat.pending = None
        if waiting:
            self._next(seat)

    def reprove(self, seat: Seat) -> None:
        """Shows the parent a request of the new epoch."""
        core, parent = self._core, seat.parent
        if parent is None:
            return
        search, ask = core.new_search(), core.credentials.ask(seat.number)
        seat.proof = PendingProof(search, ask.key)
        core.reply(seat, parent, Reprove(search, ask.request, self._token(seat)))
        core.timers.set(("proof", seat.number), core.now + core.settings.offer_seconds)

    # --- what a parent is told ------------------------------------------------------------------

    def _token(self, seat: Seat) -> bytes:
        core = self._core
        flooding = core.settings.dissemination is Dissemination.FLOODING
        return b"" if flooding else core.credentials.token(seat.number)

    def _away(self, seat: Seat) -> float | None:
        return None if seat.last_complete is None else self._core.now - seat.last_complete
