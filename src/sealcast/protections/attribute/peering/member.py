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
import random
from collections import Counter, deque
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import Final, Protocol

from sealcast.errors import FrameRejected, Rejected
from sealcast.log.closing import Closing
from sealcast.log.peer_log import PeerLogWriter
from sealcast.log.relayed import RelayedLog
from sealcast.overlay.peers.node import PeerNode
from sealcast.overlay.peers.port import (
    Closed,
    Confirmed,
    Deliver,
    Linked,
    Missed,
    PeerEffect,
    PeerSettings,
    Send,
    Wake,
    Weakened,
)
from sealcast.primitives.secrets import Unpicklable
from sealcast.protections.attribute.incoming import Arrivals, SubscriberPeer, may_receive
from sealcast.protections.attribute.interests import CredentialInterests
from sealcast.protections.attribute.keys import CredentialRing
from sealcast.protections.attribute.outgoing import PublisherPeer
from sealcast.protections.attribute.peering.away import AwayNote
from sealcast.protections.attribute.peering.handing_over import HandingOver
from sealcast.protections.attribute.peering.opening import OpeningBeside
from sealcast.protections.attribute.peering.places import PeerPlaces
from sealcast.trust.handles import EntityRealm
from sealcast.trust.realm.state import RealmState
from sealcast.wire import peers
from sealcast.wire.carried import CarriedEvent
from sealcast.wire.peer_logs import NO_EVENT, EntryKind, PeerEntry
from sealcast.wire.peers import Carry, Inject, PeerMessage, event_id

#: Effects that wait to be made durable, beyond which a link is not read: who sends more waits.
MAX_PENDING: Final = 1_024
#: Other peers that a node is told about.
CONTACTS: Final = 16
#: How often the log is signed, and the time noted up to which everything was heard.
NOTE_S: Final = 1.0
_MICROSECONDS: Final = 1_000_000


class Wires(Protocol):
    """What a member asks of the process that hosts it."""

    def send(self, peer: str, message: bytes) -> bool: ...
    def cut(self, peer: str, reason: str) -> None: ...


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
        self.topic, self.name, self._realm, self._wires, self._told = topic, name, realm, wires, told
        identity, about, paths = realm.identity(name), realm.state().topic(topic), realm.paths.topic(topic, name)
        self.topic_id, self._paths = about.id, paths
        with ExitStack() as held:
            self._ring = held.enter_context(CredentialRing(realm, topic, identity))
            self._places = PeerPlaces(realm, topic, name, self._ring)
            self.node = PeerNode(about.id, name, self._places, rendezvous, settings=settings)
            self._relayed = held.enter_context(RelayedLog(paths.relayed, settings.kept_bytes))
            self._log = held.enter_context(PeerLogWriter(paths.peer_log, about.id, name, identity.signer))
            self._held = held.pop_all()
        self.publisher: PublisherPeer | None = None
        self.subscriber: SubscriberPeer | None = None
        self.counts = Counter[str]()
        self._pending = deque[PeerEffect]()
        #: What opens events for its subscriber, beside everything else.
        self.beside = OpeningBeside(self._note_opened)
        self._to_keep = list[bytes]()
        self._filled, self._drained = asyncio.Event(), asyncio.Event()
        self._drained.set()
        self._timer: asyncio.TimerHandle | None = None
        self._outgoing = HandingOver(self.node, rendezvous)
        self._joined = False
        self._away = AwayNote(paths.heard, realm.clock)
        #: When something last happened, by the loop's clock.
        self.active = 0.0

    # --- the registry -------------------------------------------------------------------------------

    def look(self, state: RealmState, rendezvous: Sequence[str]) -> None:
        """Goes by the newest registry. Unavailable or Rejected where the key center does not give the keys that are
        missing: it is tried again."""
        now = self._now()
        self._places.state = state
        if tuple(rendezvous) != self.rendezvous:
            self._take(self.node.meet(rendezvous, now))
            self._outgoing.meet(rendezvous)
        self._open_logs(state)
        seats, epoch = self._places.refresh(rendezvous=self.name in self.rendezvous)
        if not self._joined:
            self._restore(now)
        if seats or not self._joined:
            others = [name for name in state.peers if name != self.name and state.rights_of(self.topic, name)]
            contacts = random.sample(others, min(CONTACTS, len(others)))
            away = None if self._joined else self._away_for()
            advertisement = self.topic_id if self.publisher is not None else None
            self._joined = True
            self._take(self.node.join(contacts, now, away=away, advertisement=advertisement))
        if epoch:
            found = self.node.renew(now)
            self._to_keep += [each.event for each in found if isinstance(each, Deliver)]  # they had been set aside
            self._take(found)

    def _away_for(self) -> float | None:
        """For how long this peer heard nothing: since it last did, or else since its first filter was kept."""
        if self._away.seconds is not None or self.subscriber is None:
            return self._away.seconds
        with CredentialInterests(self._realm, self.topic, self.name, self._ring) as interests:
            numbers = [each.number for each in interests.present()]  # microseconds since 1970
        return max(0, self._realm.clock() - min(numbers)) / _MICROSECONDS if numbers else None

    def _open_logs(self, state: RealmState) -> None:
        """The publisher's side once it has a log of its own, the subscriber's once it has a filter."""
        if self.publisher is None and self._paths.frames_root.is_dir():
            self.publisher = self._held.enter_context(PublisherPeer(self._realm, self.topic, self.name))
            self._held.enter_context(self.publisher.alone())
            if self._joined:
                self._take(self.node.join((), self._now(), advertisement=self.topic_id))
        if may_receive(self._realm, self.topic, self.name):
            with CredentialInterests(self._realm, self.topic, self.name, self._ring) as interests:
                interests.refresh()
            if self.subscriber is None:
                self.subscriber = self._held.enter_context(SubscriberPeer(self._realm, self.topic, self.name))
                self._held.enter_context(self.subscriber.alone())
                self.beside.inbox = self.subscriber

    def _restore(self, now: float) -> None:
        """What this peer kept in its former life. All of it was passed on; what its inbox lacks is opened now."""
        clock, kept = self._realm.clock(), list(self._relayed.since(0))
        oldest = kept[0].time_us if kept and self._relayed.let_go else self._away.since_us
        if self.subscriber is not None:
            wanted = (record.data for record in kept if self._places.wants(record.data))
            self.beside.add([event for event in wanted if not self.subscriber.has(CarriedEvent.from_bytes(event))])
        ages = ((max(0, clock - record.time_us) / _MICROSECONDS, record.data) for record in kept)
        self.node.restore(ages, now, max(0, clock - max(oldest, self._away.since_us)) / _MICROSECONDS)

    @property
    def rendezvous(self) -> tuple[str, ...]:
        """Who runs the roots, as this peer knows it."""
        return self._outgoing.rendezvous

    # --- messages -----------------------------------------------------------------------------------

    async def receive(self, sender: str, message: PeerMessage) -> None:
        """Handles a message, and waits while too much is on its way already."""
        body, now = message.body, self._now()
        event = body.event if isinstance(body, Carry | Inject) else b""
        fresh = bool(event) and not self.node.knows(event_id(event))
        effects = self.node.receive(sender, message, now)
        if fresh:
            self._note_arrival(sender, event)
        self._take(effects)
        while len(self._pending) + self.beside.waiting > MAX_PENDING:
            self._drained.clear()
            await self._drained.wait()

    def down(self, peer: str) -> None:
        self._take(self.node.down(peer, self._now()))

    def _note_arrival(self, sender: str, event: bytes) -> None:
        id = event_id(event)
        self.active = self._now()
        if not self.node.knows(id):
            self.counts["refused"] += 1
            self._log.add(PeerEntry(EntryKind.REFUSED, _named(event), sender, "it did not pass the checks"))
            return
        self.counts["received"] += 1
        self._log.add(PeerEntry(EntryKind.RECEIVED, _named(event), sender))
        if self.node.holds(id):
            self._to_keep.append(event)

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
            try:
                async with asyncio.timeout(NOTE_S):
                    await self._filled.wait()
            except TimeoutError:
                pass
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
        self.counts["deliveries"] += len(found.events)
        for event in found.events:
            self._log.add(PeerEntry(EntryKind.DELIVERED, event.id))
        for rejection in found.rejected:
            self.counts["refused"] += 1
            self._log.add(PeerEntry(EntryKind.REFUSED, NO_EVENT, "", f"{rejection.position}: {rejection.detail}"))
        self._drained.set()

    # --- effects ------------------------------------------------------------------------------------

    def _do(self, effect: PeerEffect) -> None:
        match effect:
            case Send(to, message):
                room = self._wires.send(to, peers.encode(message))
                if isinstance(message.body, Carry):
                    self.counts["forwarded" if room else "dropped"] += 1
                    kind = EntryKind.FORWARDED if room else EntryKind.MISSED
                    self._log.add(PeerEntry(kind, _named(message.body.event), to, "" if room else "its queue is full"))
            case Confirmed(id, rendezvous):
                named = self._outgoing.confirmed(id, rendezvous)
                if named is not None:
                    self._log.add(PeerEntry(EntryKind.PUBLISHED, named, rendezvous))
            case Missed(seat, attribute, seconds, count):
                if not count and self._away.seconds is None:
                    return  # it was never here before: nothing is known to be missing
                self.counts["missed"] += count
                said = f"{self.name} missed up to {count} events on {self.topic!r}"
                said += f", and does not know what came in {seconds:.0f} s before" if seconds else ""
                self._told(said)
                self._log.add(
                    PeerEntry(EntryKind.MISSED, NO_EVENT, "", f"{attribute}: {count} events, {seconds:.0f} s")
                )
            case Linked(seat, parent):
                kind = EntryKind.UNLINKED if parent is None else EntryKind.LINKED
                self._log.add(PeerEntry(kind, NO_EVENT, "" if parent is None else parent.peer, str(seat)))
            case Closed(peer, reason, _):
                self.counts["cut off"] += 1
                self._log.add(PeerEntry(EntryKind.CUT_OFF, NO_EVENT, peer, reason))
                self._wires.cut(peer, reason)
            case Weakened(seat, parent_peer):
                self._told(
                    f"{self.name}: two places of one subscription are below {parent_peer}, since no other was found"
                )

    # --- publishing ---------------------------------------------------------------------------------

    async def publish(self) -> None:
        """Hands out what its publisher's log holds, for as long as the process runs."""
        while True:
            if self.publisher is not None and self._joined and self.publisher.waiting():
                for batch in self.publisher.batches():
                    await self._outgoing.hand_over(batch.events, self._publish_one)
                    self.counts.update(self.publisher.sent(batch))
                    self.counts["published"] += len(batch.events)
            await asyncio.sleep(0.1)

    def _publish_one(self, event: bytes, rendezvous: str) -> None:
        self.active = self._now()
        if rendezvous == self.name and not self.node.knows(event_id(event)):
            self._to_keep.append(event)
        self._take(self.node.publish(event, self._now(), to=rendezvous))

    # --- what is noted ------------------------------------------------------------------------------

    def note(self) -> None:
        """Signs what was done since the last time, and up to when everything was heard."""
        self._log.flush(self._realm.clock())
        if self._joined and not self._pending:
            behind = self.node.behind(self._now())
            if behind is not None:
                self._away.heard(behind)

    @property
    def idle(self) -> bool:
        """Nothing waits to go out, and every seat has what there is to be had."""
        settled = self.publisher is None or not self.publisher.waiting()
        placed = all(seat.root or seat.parent is not None for seat in self.node.seats())
        quiet = not self._pending and not self._outgoing.waiting and not self.beside.waiting
        return self._joined and settled and placed and quiet

    def leave(self) -> None:
        """Says good-bye to parents and children."""
        for effect in self.node.leave(self._now()):
            self._do(effect)

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._log.flush(self._realm.clock())
        self._held.close()

    @staticmethod
    def _now() -> float:
        return asyncio.get_running_loop().time()


def _named(event: bytes) -> bytes:
    """How logs name an event, so that whoever reads its publisher's log finds it."""
    try:
        return CarriedEvent.from_bytes(event).id
    except (FrameRejected, Rejected):
        return NO_EVENT
