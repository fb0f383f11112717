"""One entity on one topic: its node, and everything that must be durable before anything is said about it.

    messages ──> node ──> effects ──> (1) what it keeps for others, durably ──> (2) what it sends
                             └──────> its own events, opened beside ──────────> its inbox, durably

So what a peer tells others ("taken", or nothing more to fetch) is true after a crash, too. What is written before a
crash and was not told comes again, and is recognised. A peer that was started anew takes back what it kept, and from
that what its inbox lacks; it says for how long it heard nothing, and gets what its parents kept of that time.

Opening takes time, and answers must not tell who opened what: a parent that waits for an answer could measure it. So
events are opened in another thread, and not at once, but after a pause of random length.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from typing import Final

from sealcast.log.closing import Closing
from sealcast.log.relayed import RelayedLog
from sealcast.model.rejection import Reason
from sealcast.overlay.peers import port
from sealcast.overlay.peers.node import PeerNode
from sealcast.overlay.peers.port import Deliver, PeerEffect, PeerSettings, Wake
from sealcast.primitives.secrets import Unpicklable
from sealcast.protections.attribute.incoming import Arrivals, SubscriberPeer, may_receive
from sealcast.protections.attribute.interests import CredentialInterests
from sealcast.protections.attribute.keys import CredentialRing
from sealcast.protections.attribute.outgoing import PublisherPeer
from sealcast.protections.attribute.peering.away import AwayNote
from sealcast.protections.attribute.peering.handing_over import HandingOver
from sealcast.protections.attribute.peering.hosting import Wires, settings_for
from sealcast.protections.attribute.peering.journal import PeerJournal
from sealcast.protections.attribute.peering.opening import OpeningBeside
from sealcast.protections.attribute.peering.places import PeerPlaces, PlannedPlaces
from sealcast.protections.attribute.peering.rendezvous import contacts_of
from sealcast.trust.handles import EntityRealm
from sealcast.trust.realm.state import RealmState
from sealcast.wire import peers
from sealcast.wire.peers import Carry, Inject, PeerMessage, event_id

#: Effects that wait to be made durable, beyond which a link is not read: who sends more waits.
MAX_PENDING: Final = 1_024
#: How often the log is signed, and the time noted up to which everything was heard.
NOTE_S: Final = 1.0
_MICROSECONDS: Final = 1_000_000


class PeerMember(Closing, Unpicklable):
    """One entity's peer on one topic, while its process runs. Close it."""

    def __init__(
        self,
        realm: EntityRealm,
        topic: str,
        name: str,
        rendezvous: Sequence[str],
        wires: Wires,
        settings: PeerSettings,
        told: Callable[[str], None],
    ) -> None:
        """NotFound where the entity's keys are not on this machine; Locked where another process runs its peer."""
        self.topic, self.name, self._realm, self._wires = topic, name, realm, wires
        identity, about, paths = realm.identity(name), realm.state().topic(topic), realm.paths.topic(topic, name)
        self.topic_id, self._paths = about.id, paths
        with ExitStack() as held:
            self._ring = held.enter_context(CredentialRing(realm, topic, identity))
            self._places = PeerPlaces(realm, topic, name, self._ring)
            self.node = PeerNode(about.id, name, self._places, rendezvous, settings=settings_for(about, settings))
            self._relayed = held.enter_context(RelayedLog(paths.relayed, settings.kept_bytes))
            self.journal = held.enter_context(PeerJournal(paths.peer_log, (topic, about.id), identity, told))
            self._interests = held.enter_context(CredentialInterests(realm, topic, name, self._ring))
            self._held = held.pop_all()
        self.publisher: PublisherPeer | None = None
        self._pending = deque[PeerEffect]()
        #: What opens events for its subscriber, beside everything else.
        self.beside = OpeningBeside(self._note_opened, lambda: self.node.out(self._now()))
        self._to_keep = list[bytes]()
        self._filled, self._drained = asyncio.Event(), asyncio.Event()
        self._drained.set()
        self._timer: asyncio.TimerHandle | None = None
        #: Of events that are older than this, less what clocks may differ by, no rendezvous takes any.
        self._patience_us = (about.parameters.stale_after_s - about.parameters.max_skew_s) * _MICROSECONDS
        self._outgoing = HandingOver(self.node, rendezvous, settings)
        self._joined = False
        self._away = AwayNote(paths.heard, realm.clock)
        #: When something last happened, by the loop's clock.
        self.active = 0.0

    # --- the registry -------------------------------------------------------------------------------

    def follow(self, state: RealmState) -> None:
        """Goes by this registry in whom it believes."""
        self._places.state = state

    async def look(self, state: RealmState, rendezvous: Sequence[str]) -> None:
        """Goes by the newest registry. Unavailable or Rejected where the key center does not give the keys that are
        missing: it is tried again. The center is asked beside everything else, so that links stay alive meanwhile."""
        self.follow(state)
        if tuple(rendezvous) != self.rendezvous:
            self._take(self.node.meet(rendezvous, self._now()))
            self._outgoing.meet(rendezvous)
        self._open_outbox()
        receives = may_receive(state, self.topic, self.name, self._realm.clock())
        planned = await asyncio.to_thread(self._prepare, receives, self.name in self.rendezvous)
        if receives:
            self._open_inbox()
        seats, epoch = self._places.take(planned)
        now = self._now()
        if not self._joined:
            self._restore(now)
        before, effects = self.node.early(), list[PeerEffect]()
        if seats or not self._joined:
            contacts = contacts_of(state, self.topic, self.name)
            # The number of a filter says when it was kept: in microseconds since 1970.
            kept = [each.number for each in self._interests.present()] if self.beside.inbox is not None else []
            away = None if self._joined else self._away.before(min(kept, default=None))
            advertisement = self.topic_id if self.publisher is not None else None
            self._joined = True
            effects += self.node.join(contacts, now, away=away, advertisement=advertisement)
        if epoch:
            effects += self.node.renew(now)
        # What had been set aside is kept from now on, unless it was passed on, and so kept, at once.
        self._to_keep += [each.event for each in effects if isinstance(each, Deliver) and each.id not in before]
        self._take(effects)

    def _prepare(self, receives: bool, serves: bool) -> PlannedPlaces | None:
        if receives:
            self._interests.refresh()
        return self._places.prepare(rendezvous=serves)

    def _open_outbox(self) -> None:
        """The publisher's side, once it has a log of its own."""
        if self.publisher is None and self._paths.frames_root.is_dir():
            self.publisher = self._held.enter_context(PublisherPeer(self._realm, self.topic, self.name))
            self._held.enter_context(self.publisher.alone())
            if self._joined:
                self._take(self.node.join((), self._now(), advertisement=self.topic_id))

    def _open_inbox(self) -> None:
        """The subscriber's side, once it has a filter."""
        if self.beside.inbox is None:
            self.beside.inbox = self._held.enter_context(SubscriberPeer(self._realm, self.topic, self.name))
            self._held.enter_context(self.beside.inbox.alone())

    def _restore(self, now: float) -> None:
        """What this peer kept in its former life. All of it was passed on; what its inbox lacks is opened now."""
        clock, kept = self._realm.clock(), list(self._relayed.since(0))
        oldest = kept[0].time_us if kept and self._relayed.let_go else self._away.since_us
        wanted = (record.data for record in kept if self._places.wants(record.data))
        self.beside.add([event for event in wanted if not self.beside.has(event)])
        ages = ((max(0, clock - record.time_us) / _MICROSECONDS, record.data) for record in kept)
        self.node.restore(ages, now, max(0, clock - max(oldest, self._away.since_us)) / _MICROSECONDS)

    @property
    def rendezvous(self) -> tuple[str, ...]:
        """Who runs the roots, as this peer knows it."""
        return self._outgoing.rendezvous

    @property
    def unconfirmed(self) -> Mapping[str, int]:
        """How many of its publisher's events each rendezvous has not confirmed."""
        return self._outgoing.unconfirmed

    # --- messages -----------------------------------------------------------------------------------

    async def receive(self, sender: str, message: PeerMessage) -> None:
        """Handles a message, and waits while too much is on its way already."""
        body, now = message.body, self._now()
        event = body.event if isinstance(body, Carry | Inject) else b""
        fresh = bool(event) and not self.node.knows(event_id(event))
        broken = self.node.broken_rules
        effects = self.node.receive(sender, message, now)
        if fresh:
            self._arrived(sender, event, refused=self.node.broken_rules > broken)
        self._take(effects)
        while len(self._pending) + self.beside.waiting > MAX_PENDING:
            self._drained.clear()
            await self._drained.wait()

    def _arrived(self, sender: str, event: bytes, *, refused: bool) -> None:
        """What became of an event. One that nobody here took, as before there are roots, comes again."""
        self.active, id = self._now(), event_id(event)
        if refused or self.node.knows(id):
            self.journal.arrived(sender, event, taken=not refused)
        if self.node.holds(id):
            self._to_keep.append(event)

    def down(self, peer: str) -> None:
        self._take(self.node.down(peer, self._now()))

    def _take(self, effects: Sequence[PeerEffect]) -> None:
        """Effects wait until what they rest on is durable; times do not."""
        for effect in effects:
            if isinstance(effect, Wake):
                self._wake(effect.at)
            elif isinstance(effect, Deliver):
                self.beside.add([effect.event])
            else:
                self._pending.append(effect)
        if self._pending or self._to_keep:
            self._filled.set()

    def _wake(self, at: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = asyncio.get_running_loop().call_at(at, lambda: self._take(self.node.tick(self._now())))

    # --- making durable, then sending ---------------------------------------------------------------

    async def run(self) -> None:
        """Does what effects ask for, in order, for as long as the process runs."""
        noted = self._now()
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(NOTE_S):
                    await self._filled.wait()
            self._commit()
            if self._now() - noted >= NOTE_S:
                noted = self._now()
                self.note()

    def _commit(self) -> None:
        self._filled.clear()
        effects, self._pending = list(self._pending), deque()
        keep, self._to_keep = self._to_keep, []
        self._relayed.keep(keep)
        for effect in effects:
            self._do(effect)
        self._drained.set()

    def _note_opened(self, found: Arrivals) -> None:
        self.active = self._now()
        self.journal.opened(found)
        for refused in found.rejected:
            publisher = self._places.state.entity_numbered(refused.position.partition)
            if refused.reason is Reason.SEAL and publisher not in self.node.out(self._now()):
                # Its publisher signed it: nobody else can have made it so.
                self._take(self.node.refused(publisher, self._now(), refused.detail))
        self._drained.set()

    def _do(self, effect: PeerEffect) -> None:
        match effect:
            case port.Send(to, message):
                room = self._wires.send(to, peers.encode(message))
                if isinstance(message.body, Carry):
                    self.journal.passed_on(to, message.body.event, room=room)
            case port.Confirmed(id, rendezvous):
                named = self._outgoing.confirmed(id, rendezvous)
                if named is not None:
                    self.journal.published(named, rendezvous)
            case port.Missed():
                if effect.events or self._away.seconds is not None:
                    self.journal.missed(effect)  # of who was never here before, nothing is known to be missing
            case port.Linked():
                self.journal.linked(effect)
            case port.Closed(peer, reason, _):
                self.journal.cut_off(effect)
                self._wires.cut(peer, reason)
            case port.Weakened():
                self.journal.weakened(effect)

    # --- publishing ---------------------------------------------------------------------------------

    async def publish(self) -> None:
        """Hands out what its publisher's log holds, for as long as the process runs."""
        while True:
            if self.publisher is not None and self._joined:
                too_old = self._realm.clock() - self._patience_us
                for counted in self._outgoing.advance(self.publisher, self._publish_one, too_old):
                    self.journal.handed_over(counted)
            await self._outgoing.change()

    def _publish_one(self, event: bytes, rendezvous: str) -> None:
        self.active = self._now()
        if rendezvous == self.name and not self.node.knows(event_id(event)):
            self._to_keep.append(event)
        self._take(self.node.publish(event, self._now(), to=rendezvous))

    # --- what is noted ------------------------------------------------------------------------------

    def note(self) -> None:
        """Signs what was done since the last time, and up to when everything was heard."""
        self.journal.flush(self._realm.clock())
        if self._joined and not self._pending:
            behind = self.node.behind(self._now())
            if behind is not None:
                self._away.heard(behind)

    @property
    def idle(self) -> bool:
        """Nothing waits to go out, and every seat has what there is to be had."""
        settled = self.publisher is None or not self.publisher.waiting()
        quiet = not self._pending and not self._outgoing.waiting and not self.beside.waiting
        return self._joined and settled and self.node.placed and quiet

    def leave(self) -> None:
        """Says good-bye to parents and children."""
        for effect in self.node.leave(self._now()):
            self._do(effect)

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self.journal.flush(self._realm.clock())
        self._held.close()

    @staticmethod
    def _now() -> float:
        return asyncio.get_running_loop().time()
