"""One peer of one topic: a state machine without input or output of its own (port.py says how it is driven).

searching   a seat of ours needs a parent                 placing   others search, and we may have a place
pulses      heartbeats                                    passing   events
comparing   what other rendezvous have
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, NamedTuple

from sealcast.errors import Misuse
from sealcast.overlay.peers.comparing import Comparing
from sealcast.overlay.peers.core import PeerCore
from sealcast.overlay.peers.passing import Passing
from sealcast.overlay.peers.placing import Placing
from sealcast.overlay.peers.port import (
    Confirmed,
    PeerCredentials,
    PeerEffect,
    PeerId,
    PeerSettings,
    SeatAddress,
    Wake,
)
from sealcast.overlay.peers.pulses import Pulses
from sealcast.overlay.peers.searching import Searching
from sealcast.overlay.peers.seat import Seat
from sealcast.overlay.peers.timers import TimerKey
from sealcast.wire.peers import (
    Accept,
    Alive,
    Announce,
    AskNews,
    Carry,
    Decline,
    Fetch,
    Inject,
    Inventory,
    News,
    Offer,
    PartingReason,
    PeerBody,
    PeerMessage,
    Pulse,
    Replace,
    Reprove,
    Search,
    Swap,
    Taken,
    Unknown,
    Unlink,
    event_id,
)

#: What can be due for a seat.
SEAT_TIMERS: Final = ("search", "silent", "proof", "reservations", "children")


class SeatView(NamedTuple):
    """What can be shown about a seat."""

    seat: int
    attribute: str
    root: bool
    parent: SeatAddress | None
    children: tuple[SeatAddress, ...]
    depth: int | None


class PeerNode:
    """A peer's node. `rng` decides whom to ask and how long to pause; keys never come from it."""

    def __init__(
        self,
        topic: bytes,
        name: PeerId,
        credentials: PeerCredentials,
        rendezvous: Sequence[PeerId],
        *,
        settings: PeerSettings | None = None,
        rng: random.Random | None = None,
    ) -> None:
        if not rendezvous:
            raise Misuse("a topic's peers need a rendezvous at least")
        self._core = PeerCore(
            topic, name, credentials, settings or PeerSettings(), rng or random.SystemRandom(), rendezvous
        )
        self._searching = Searching(self._core)
        self._comparing = Comparing(self._core)
        self._pulses = Pulses(self._core, self._searching, self._comparing)
        self._passing = Passing(self._core)
        self._placing = Placing(self._core, self._passing, self._pulses)
        self._woken: float | None = None
        #: For how many seconds before it was started a root has everything.
        self._complete = 0.0
        passing, placing, searching, pulses = self._passing, self._placing, self._searching, self._pulses
        self._for_peers: dict[type[PeerBody], Callable[[PeerId, PeerMessage, Any], None]] = {
            Search: placing.on_search,
            Announce: passing.on_announce,
            Inject: passing.on_inject,
            Taken: passing.on_taken,
            Unknown: passing.on_unknown,
            AskNews: self._comparing.on_ask,
            News: self._comparing.on_news,
            Carry: passing.on_carry,
        }
        self._for_seats: dict[type[PeerBody], Callable[[Seat, SeatAddress, Any], None]] = {
            Offer: searching.on_offer,
            Accept: placing.on_accept,
            Decline: placing.on_decline,
            Swap: searching.on_swap,
            Replace: placing.on_replace,
            Reprove: placing.on_reprove,
            Pulse: pulses.on_pulse,
            Alive: pulses.on_alive,
            Inventory: passing.on_inventory,
            Fetch: passing.on_fetch,
            Unlink: self._on_unlink,
        }

    # --- what the process asks for --------------------------------------------------------------

    def restore(self, events: Iterable[tuple[float, bytes]], now: float, complete: float = 0.0) -> None:
        """Takes back what this peer kept before it was started anew: events with their ages in seconds, the oldest
        first, all of them handled then. Before `join`.

        A root says with `complete` for how many seconds back it has every event that it confirmed.
        """
        core = self._core
        core.now, self._complete = now, complete
        for age, event in events:
            core.recent.add_seen(event_id(event))
            core.recent.keep(event_id(event), event, now - age)

    def join(
        self,
        contacts: Sequence[PeerId],
        now: float,
        *,
        away: float | None = None,
        delivered: Iterable[bytes] = (),
        advertisement: bytes | None = None,
    ) -> list[PeerEffect]:
        """Takes the seats that the credentials name, and leaves those that they name no more.

        A peer that was here before says for how long it heard nothing (`away`), and the ids of the events that were
        `delivered` to it last, so that none is delivered again.
        """
        core = self._core
        core.now = now
        self._passing.delivered_before(delivered)
        self._searching.contacts.know([each for each in contacts if each != core.name])
        for seat in list(core.seats.values()):
            plan = core.credentials.seats.get(seat.number)
            # A place that is a root's from now on, or was one, is another place.
            if plan is None or plan.root != seat.plan.root:
                self._leave_seat(core.seats.pop(seat.number))
            else:
                seat.plan = plan
        new = [Seat(number, plan) for number, plan in core.credentials.seats.items() if number not in core.seats]
        for seat in new:
            core.seats[seat.number] = seat
            if away is not None:
                seat.last_complete = now - away
            if seat.plan.root:
                seat.complete_since = now - self._complete
        if any(seat.plan.root for seat in new):
            self._comparing.begin(away)
            self._pulses.beat()
        if advertisement is not None:
            self._passing.advertise(advertisement)
        for seat in new:
            if not seat.plan.root:
                self._searching.start(seat)
        if new:
            self._passing.reconsider()
        return self._done()

    def meet(self, rendezvous: Sequence[PeerId], now: float) -> list[PeerEffect]:
        """Other peers run the roots from now on. What those before have not confirmed is forgotten."""
        if not rendezvous:
            raise Misuse("a topic's peers need a rendezvous at least")
        self._core.now, self._core.rendezvous = now, tuple(dict.fromkeys(rendezvous))
        self._passing.meet()
        self._comparing.meet()
        self._searching.again()
        return self._done()

    def publish(self, event: bytes, now: float, to: PeerId | None = None) -> list[PeerEffect]:
        """Gives a new event to one rendezvous, or to all; `Confirmed` says when each has it.

        Unavailable if a rendezvous has too many that it has not confirmed: `room` says how many it takes.
        """
        core = self._core
        core.now = now
        for rendezvous in core.rendezvous if to is None else (to,):
            if rendezvous == core.name:
                if self._passing.take(event, core.name):
                    core.effects.append(Confirmed(event_id(event), core.name))
            else:
                self._passing.publish(event, rendezvous)
        return self._done()

    def room(self, rendezvous: PeerId) -> int:
        """How many events this rendezvous may still be given before it has confirmed some."""
        return self._passing.room(rendezvous)

    def withdraw(self, ids: Iterable[bytes]) -> None:
        """Gives up events that were published and that some rendezvous has not confirmed."""
        self._passing.withdraw(ids)

    def renew(self, now: float) -> list[PeerEffect]:
        """A new epoch has begun, and the credentials are of it: proves every link again, and asks that of children."""
        core = self._core
        core.now = now
        for seat in core.seats.values():
            self._searching.reprove(seat)
            core.timers.set(("children", seat.number), now + 2 * core.settings.offer_seconds)
        self._searching.again()
        self._passing.reconsider()
        return self._done()

    def leave(self, now: float) -> list[PeerEffect]:
        """Says good-bye to all parents and children."""
        core = self._core
        core.now = now
        for seat in core.seats.values():
            self._leave_seat(seat)
        core.seats.clear()
        return self._done()

    # --- what the transport says ----------------------------------------------------------------

    def receive(self, sender: PeerId, message: PeerMessage, now: float) -> list[PeerEffect]:
        """Handles a message that came over a connection on which the peer `sender` proved its name."""
        core = self._core
        core.now = now
        if message.topic != core.topic or sender == core.name:
            raise Misuse("a node gets the messages of its own topic, from other peers")
        if core.conduct.banned(sender, now):
            return []
        self._dispatch(sender, message)
        return self._done()

    def down(self, peer: PeerId, now: float) -> list[PeerEffect]:
        """The connection to a peer is gone, or could not be made; messages to it may be lost."""
        core = self._core
        core.now = now
        self._searching.contacts.forget(peer)
        self._comparing.down(peer)
        self._drop(peer)
        return self._done()

    def refused(self, peer: PeerId, now: float, reason: str = "malformed") -> list[PeerEffect]:
        """A peer sent bytes that are no message, or published what does not open."""
        self._core.now = now
        self._core.strike(peer, reason)
        return self._done()

    def tick(self, now: float) -> list[PeerEffect]:
        """Does what is due."""
        core = self._core
        core.now = now
        for key in core.timers.due(now):
            self._timer(key)
        return self._done()

    # --- what can be asked about it -------------------------------------------------------------

    def seats(self) -> list[SeatView]:
        """Every seat with its neighbours, for people and for checks."""
        return [
            SeatView(
                seat.number,
                seat.plan.attribute,
                seat.plan.root,
                seat.parent,
                tuple(seat.children),
                None if seat.pulse is None or not seat.rooted else seat.pulse.depth,
            )
            for seat in self._core.seats.values()
        ]

    def knows(self, id: bytes) -> bool:
        """Whether an event was handled here, as far as that is remembered."""
        return self._core.recent.seen(id)

    def holds(self, id: bytes) -> bool:
        """Whether an event is still kept for children."""
        return self._core.recent.get(id) is not None

    def early(self) -> frozenset[bytes]:
        """Events that were handled here before there were keys to tell whether this peer wants them."""
        return frozenset(id for id, _ in self._core.recent.aside() if self.holds(id))

    def behind(self, now: float) -> float | None:
        """For how many seconds some seat may have missed something; None if one never had a parent."""
        root = now - self._comparing.behind(now)
        times = [root if seat.plan.root else seat.last_complete for seat in self._core.seats.values()]
        known = [each for each in times if each is not None]
        return None if len(known) < len(times) else now - min(known, default=now)

    def out(self, now: float) -> frozenset[PeerId]:
        """Those who broke too many rules, and are cut off now."""
        return self._core.conduct.out(now)

    @property
    def placed(self) -> bool:
        """Whether every seat has a parent, or is a root, and has what its parent had for it."""
        return all(seat.rooted and seat.caught_up for seat in self._core.seats.values())

    @property
    def broken_rules(self) -> int:
        """How often somebody sent what it should not have."""
        return self._core.counts["broken rules"]

    @property
    def counts(self) -> dict[str, int]:
        """What happened here so far."""
        return dict(self._core.counts)

    # --- inside ---------------------------------------------------------------------------------

    def _dispatch(self, sender: PeerId, message: PeerMessage) -> None:
        """Gives a message to the part that handles it: with both seats if it goes from seat to seat."""
        core, body = self._core, message.body
        for_peer = self._for_peers.get(type(body))
        if for_peer is not None:
            for_peer(sender, message, body)
            return
        if isinstance(body, Fetch) and message.source is None and message.target is None:
            self._comparing.on_fetch(sender, body)
            return
        if message.source is None or message.target is None:
            core.strike(sender, "a message between seats names both of them")
            return
        seat, other = core.seats.get(message.target), SeatAddress(sender, message.source)
        if seat is not None:
            self._for_seats[type(body)](seat, other, body)
        elif isinstance(body, Offer):
            core.send(sender, message.target, message.source, Decline(body.search))
        elif not isinstance(body, Decline | Unlink):
            core.send(sender, message.target, message.source, Unlink(PartingReason.UNKNOWN))

    def _on_unlink(self, seat: Seat, other: SeatAddress, body: Unlink) -> None:
        seat.children.pop(other, None)
        if seat.parent == other:
            seat.displaced = body.reason == PartingReason.DISPLACED
            self._searching.lost(seat)
        elif seat.pending is not None and seat.pending.parent == other:
            self._searching.failed(seat)

    def _timer(self, key: TimerKey) -> None:
        core, (what, number) = self._core, key
        if what == "pulse":
            self._pulses.beat()
            self._comparing.ask()
            return
        if what == "publish":
            self._passing.publish_again()
            return
        seat = core.seats.get(number)
        if seat is None:
            return
        match what:
            case "search":
                self._searching.on_timer(seat)
            case "silent" | "proof" if seat.parent is not None:
                # No newer pulse, or no proof in the new epoch: this parent is none any more.
                core.reply(seat, seat.parent, Unlink(PartingReason.SILENT))
                self._searching.lost(seat)
            case "reservations":
                self._placing.expire(seat)
            case "children":
                renewed = core.now - 2 * core.settings.offer_seconds
                for child in [each for each, link in seat.children.items() if link.proved < renewed]:
                    self._placing.part(seat, child, PartingReason.REFUSED)

    def _leave_seat(self, seat: Seat) -> None:
        core = self._core
        for what in SEAT_TIMERS:
            core.timers.cancel((what, seat.number))
        for other in (seat.parent, *seat.children):
            if other is not None:
                core.reply(seat, other, Unlink(PartingReason.LEAVING))

    def _drop(self, peer: PeerId) -> None:
        """Ends all links with a peer that cannot be reached, or is cut off."""
        for seat in list(self._core.seats.values()):
            for child in [each for each in seat.children if each.peer == peer]:
                del seat.children[child]
            for search in [key for key, held in seat.reservations.items() if held.origin.peer == peer]:
                del seat.reservations[search]
            chosen = seat.pending is not None and seat.pending.parent.peer == peer
            asked = seat.round is not None and seat.round.contact == peer and not seat.round.fallback
            if chosen or (asked and seat.pending is None):
                self._searching.failed(seat)
            if seat.parent is not None and seat.parent.peer == peer:
                self._searching.lost(seat)

    def _done(self) -> list[PeerEffect]:
        """Handles what seats of this peer told each other, and hands out the effects."""
        core = self._core
        while core.local or core.cut:
            if core.cut:
                self._drop(core.cut.pop())
            else:
                self._dispatch(core.name, core.local.popleft())
        at = core.timers.next()
        if at is not None and at != self._woken:
            self._woken = at
            core.effects.append(Wake(at))
        effects, core.effects = core.effects, []
        return effects
