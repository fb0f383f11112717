"""Events: from publishers to the roots, from parents to children, and again to children that were away.

A peer that has an event handles it once, for all of its seats: on each attribute on which the event carries the tag of
the seat's own label, it passes the event to children. One-hop flooding passes it to all of them, multi-credential
routing to those whose token it matches. The paper lets a parent pass on what it can *decrypt*; with two attributes or
more that loses most deliveries, since a parent that matches on one attribute need not match on the others (finding F8).
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Iterable
from typing import Final

from sealcast.errors import Rejected, Unavailable
from sealcast.overlay.peers.core import PeerCore, milliseconds
from sealcast.overlay.peers.port import Confirmed, Deliver, Dissemination, Missed, PeerId, SeatAddress
from sealcast.overlay.peers.seat import Seat
from sealcast.wire import limits
from sealcast.wire.peers import (
    Announce,
    Carry,
    Fetch,
    Inject,
    Inventory,
    PartingReason,
    PeerMessage,
    Taken,
    Unknown,
    Unlink,
    event_id,
)

#: A child's absence began so much earlier than it says, as far as its parent can tell: messages are on their way.
SKEW_SECONDS: Final = 2.0
#: Events that a child asks for at a time: its parent's queue has room for them.
FETCH_EACH: Final = 256
#: A rendezvous that is not ready is given events again after so long, the first time.
SOON_SECONDS: Final = 0.1
MAX_PUBLISHERS: Final = 65_536
#: Events that a publisher gives a rendezvous again at a time, when no answer came.
AGAIN: Final = 256


class Passing:
    """What a node does with events."""

    def __init__(self, core: PeerCore) -> None:
        self._core = core
        #: Publishers that have announced themselves here, and their advertisements.
        self._publishers: OrderedDict[PeerId, None] = OrderedDict()
        self._advertisement: bytes | None = None
        #: How soon a rendezvous that was not ready is given events again.
        self._soon = SOON_SECONDS
        #: What was delivered before this start. Such events are still kept and passed on: others may need them.
        self._delivered: OrderedDict[bytes, None] = OrderedDict()
        #: What each rendezvous has not confirmed yet, in the order of publishing.
        self._unconfirmed: dict[PeerId, OrderedDict[bytes, bytes]] = {each: OrderedDict() for each in core.rendezvous}

    def delivered_before(self, ids: Iterable[bytes]) -> None:
        for id in ids:
            self._delivered[id] = None
            if len(self._delivered) > self._core.settings.seen_events:
                self._delivered.popitem(last=False)

    # --- a publisher ----------------------------------------------------------------------------

    def advertise(self, advertisement: bytes) -> None:
        """Announces this peer's events to every rendezvous; before any is published."""
        self._advertisement = advertisement
        for rendezvous in self._core.rendezvous:
            self._announce(rendezvous)

    def meet(self) -> None:
        """Goes by the rendezvous of now."""
        new = [each for each in self._core.rendezvous if each not in self._unconfirmed]
        self._unconfirmed = {each: self._unconfirmed.get(each, OrderedDict()) for each in self._core.rendezvous}
        for rendezvous in new:
            self._announce(rendezvous)

    def room(self, rendezvous: PeerId) -> int:
        """How many more events this rendezvous may be given before it has confirmed some."""
        return self._core.settings.unconfirmed_events - len(self._unconfirmed[rendezvous])

    def publish(self, event: bytes, to: PeerId) -> bytes:
        id, core = event_id(event), self._core
        if self.room(to) < 1:
            raise Unavailable(f"{to} has not confirmed {core.settings.unconfirmed_events} events", hint="try later")
        self._unconfirmed[to][id] = event
        core.send(to, None, None, Inject(event))
        self._again_later()
        return id

    def withdraw(self, ids: Iterable[bytes]) -> None:
        for id in ids:
            for waiting in self._unconfirmed.values():
                waiting.pop(id, None)

    def on_taken(self, sender: PeerId, message: PeerMessage, body: Taken) -> None:
        waiting = self._unconfirmed.get(sender)
        self._soon = SOON_SECONDS
        if waiting is not None and waiting.pop(body.event, None) is not None:
            self._core.effects.append(Confirmed(body.event, sender))

    def publish_again(self) -> None:
        """Gives each rendezvous the oldest events that it has not confirmed."""
        self._soon = min(2 * self._soon, self._core.settings.search_seconds)
        for rendezvous, waiting in self._unconfirmed.items():
            if waiting:
                self._announce(rendezvous)
                for event in list(waiting.values())[:AGAIN]:
                    self._core.send(rendezvous, None, None, Inject(event))
        if any(self._unconfirmed.values()):
            self._again_later()

    def on_unknown(self, sender: PeerId, message: PeerMessage, body: Unknown) -> None:
        """A rendezvous does not know this publisher: it was started anew, or is not ready yet. It is given everything
        again, soon at first and then ever later."""
        if self._unconfirmed.get(sender):
            self._announce(sender)
            self._again_later(self._soon)

    def _again_later(self, seconds: float | None = None) -> None:
        pause = self._core.settings.search_seconds if seconds is None else seconds
        self._core.timers.set(("publish", 0), self._core.now + pause * self._core.rng.uniform(1.0, 2.0))

    def _announce(self, rendezvous: PeerId) -> None:
        if self._advertisement is not None:
            self._core.send(rendezvous, None, None, Announce(self._advertisement))

    # --- a rendezvous ---------------------------------------------------------------------------

    def on_announce(self, sender: PeerId, message: PeerMessage, body: Announce) -> None:
        core = self._core
        if not core.has_roots:
            return
        try:
            core.credentials.check_publisher(sender, body.advertisement)
        except Rejected as error:
            core.strike(sender, error.message)
            return
        self._publishers[sender] = None
        self._publishers.move_to_end(sender)
        if len(self._publishers) > MAX_PUBLISHERS:
            self._publishers.popitem(last=False)

    def on_inject(self, sender: PeerId, message: PeerMessage, body: Inject) -> None:
        core = self._core
        if not core.has_roots or sender not in self._publishers:
            core.send(sender, None, None, Unknown())
        elif self.take(body.event, sender, publisher=True):
            core.send(sender, None, None, Taken(event_id(body.event)))

    # --- everybody ------------------------------------------------------------------------------

    def on_carry(self, sender: PeerId, message: PeerMessage, body: Carry) -> None:
        core = self._core
        # For whichever seat it was meant: a peer gets an event once, for all of its seats.
        if core.is_fellow(sender) or any(sender in seat.upstream() for seat in core.seats.values()):
            self.take(body.event, sender)
        elif message.source is not None and message.target is not None:
            core.send(sender, message.target, message.source, Unlink(PartingReason.UNKNOWN))

    def take(self, event: bytes, sender: PeerId, *, publisher: bool = False) -> bool:
        """Handles an event once: passes it on, and delivers it here if it is wanted. False if it was refused.
        `publisher`: it comes from a publisher, who answers for what is in it."""
        core, id = self._core, event_id(event)
        if core.recent.seen(id):
            core.counts["duplicates"] += 1
            return True
        try:
            core.credentials.check_event(event)
            if publisher:
                core.credentials.check_points(event)
        except Rejected as error:
            core.strike(sender, error.message)
            return False
        core.recent.add_seen(id)
        core.counts["events"] += 1
        for seat in core.seats.values():
            seat.fetching.discard(id)
        if not self._handled(id, event, sender):
            core.counts["false positives"] += 1
            core.recent.set_aside(id, event, core.now)
        elif core.credentials.early(event):
            core.recent.set_aside(id, event, core.now)
        return True

    def _handled(self, id: bytes, event: bytes, sender: PeerId) -> bool:
        """Keeps, passes on and delivers an event, if it carries a label of a seat here."""
        core = self._core
        matched = [s for s in core.seats.values() if s.plan.root or core.credentials.matches(s.number, event)]
        if matched:
            core.recent.keep(id, event, core.now)
            self._pass_on(matched, event, sender)  # first: others wait
            self._deliver(id, event)
        return bool(matched)

    def _deliver(self, id: bytes, event: bytes) -> None:
        core = self._core
        if id not in self._delivered and core.credentials.wants(event):
            core.effects.append(Deliver(id, event))

    def reconsider(self) -> None:
        """There are new credentials: events that found nobody may find somebody now. An epoch's first events come
        before every peer has its keys. A root passes them on all the same, and cannot tell whether its own subscriber
        wants them."""
        core = self._core
        for id, event in core.recent.aside():
            if core.recent.get(id) is not None:
                if not core.credentials.early(event):
                    self._deliver(id, event)
                    core.recent.drop_aside(id)
            elif self._handled(id, event, core.name):
                core.counts["found later"] += 1
                core.recent.drop_aside(id)

    def _pass_on(self, matched: list[Seat], event: bytes, sender: PeerId) -> None:
        """To each peer once, whichever of its seats are children here: it handles the event for all of them."""
        core, done = self._core, {self._core.name, sender}
        tested: dict[tuple[str, bytes], bool] = {}
        for seat in matched:
            for child, link in seat.children.items():
                if child.peer not in done and self._for_child(seat, link.tokens, event, tested):
                    done.add(child.peer)
                    core.counts["events passed on"] += 1
                    core.reply(seat, child, Carry(event))

    def _for_child(
        self, seat: Seat, tokens: tuple[bytes, ...], event: bytes, tested: dict[tuple[str, bytes], bool]
    ) -> bool:
        if self._core.settings.dissemination is Dissemination.FLOODING:
            return True
        for token in tokens:
            key = (seat.plan.attribute, token)
            if key not in tested:
                tested[key] = self._core.credentials.routes(seat.plan.attribute, token, event)
            if tested[key]:
                return True
        return False

    # --- children that were away ----------------------------------------------------------------

    def greet(self, seat: Seat, child: SeatAddress, away: float) -> None:
        """Tells a new child which of the events it may want are still here."""
        core, link = self._core, seat.children[child]
        begin = core.now - away - core.settings.history_seconds
        tested: dict[tuple[str, bytes], bool] = {}
        found = []
        for id, event in core.recent.since(begin):
            tested.clear()
            own = seat.plan.root or core.credentials.matches(seat.number, event)
            if own and self._for_child(seat, link.tokens, event, tested):
                found.append(id)
            if len(found) == limits.MAX_INVENTORY_EVENTS:
                break
        link.offered = set(found)
        self._inventory(seat, child, tuple(reversed(found)), core.recent.lost_since(core.now - away - SKEW_SECONDS))

    def _inventory(self, seat: Seat, child: SeatAddress, events: tuple[bytes, ...], lost: int) -> None:
        since = seat.complete_since
        reach = 0 if since is None else milliseconds(self._core.now - since)
        self._core.reply(seat, child, Inventory(events, reach, lost))

    def on_inventory(self, seat: Seat, parent: SeatAddress, body: Inventory) -> None:
        core = self._core
        if seat.parent != parent:
            return
        if seat.greeted:
            # The next one answers a fetch: what was asked for and is not here by now, is gone.
            if seat.fetching:
                gone, seat.fetching = len(seat.fetching), set()
                self._missed(seat, 0.0, gone)
        else:
            seat.greeted = True
            self._note_reach(seat, body)
            seat.to_fetch = deque(dict.fromkeys(body.events))
        wanted = list[bytes]()
        while seat.to_fetch and len(wanted) < FETCH_EACH:
            id = seat.to_fetch.popleft()
            if not core.recent.seen(id):
                wanted.append(id)
        if wanted:
            seat.fetching = set(wanted)
            core.reply(seat, parent, Fetch(tuple(wanted)))

    def _note_reach(self, seat: Seat, body: Inventory) -> None:
        """Keeps from when on this seat knows everything, and says so if something may be missing."""
        core, reach, away = self._core, body.reach / 1000, seat.away or 0.0
        unknown = max(0.0, away - reach)
        if seat.complete_since is None:
            seat.complete_since = core.now - min(reach, away + core.settings.history_seconds)
        elif unknown > 0:
            seat.complete_since = core.now - reach
        if unknown > 0 or (body.lost and seat.away is not None):
            self._missed(seat, unknown, body.lost)
            if seat.last_complete is not None:
                seat.last_complete = max(seat.last_complete, core.now - reach)  # of what is said once, nobody is asked

    def _missed(self, seat: Seat, seconds: float, events: int) -> None:
        """Says what a seat lacks for good. Those below it lack that, too: they ask again, and are told, or find a
        parent that has it."""
        core = self._core
        core.effects.append(Missed(seat.number, seat.plan.attribute, seconds, events))
        if events:
            seat.complete_since = core.now
        for child in list(seat.children):
            del seat.children[child]
            core.reply(seat, child, Unlink(PartingReason.SILENT))

    def on_fetch(self, seat: Seat, child: SeatAddress, body: Fetch) -> None:
        core = self._core
        link = seat.children.get(child)
        if link is None:
            core.reply(seat, child, Unlink(PartingReason.UNKNOWN))
            return
        for id in body.events:
            event = core.recent.get(id) if id in link.offered else None
            if event is not None:
                link.offered.discard(id)
                core.reply(seat, child, Carry(event))
        self._inventory(seat, child, (), 0)
