"""Many peers on a virtual clock: a discrete-event simulation that runs the real nodes.

Only time and the network are simulated. Messages take a delay that belongs to the pair of peers, so that each link
keeps its order. A peer handles one message at a time, and is busy for as long as its cryptography takes (`costs`). With
`wire`, every message is written to bytes and read again.
"""

from __future__ import annotations

import random
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from heapq import heappop, heappush
from typing import Final

from sealcast.errors import Bug
from sealcast.lab.tariq.costs import NO_SECURITY, CryptoCosts
from sealcast.lab.tariq.ideal import Conjunction, IdealCredentials, Meter, ideal_advertisement
from sealcast.overlay.peers.node import PeerNode
from sealcast.overlay.peers.port import (
    Closed,
    Deliver,
    Linked,
    Missed,
    PeerEffect,
    PeerId,
    PeerSettings,
    SeatAddress,
    Send,
    Wake,
    Weakened,
)
from sealcast.wire import peers
from sealcast.wire.peers import PeerMessage

TOPIC: Final = bytes(16)
#: The paper's links (section 7), in seconds.
DELAYS: Final = (0.024, 0.134)
#: How long it takes until a peer notices that a host is gone that says nothing.
SILENCE_SECONDS: Final = 5.0


@dataclass(slots=True)
class SimulatedPeer:
    """A node with its clock: what waits for it, and until when it is busy."""

    node: PeerNode
    credentials: IdealCredentials
    alive: bool = True
    busy: float = 0.0
    inbox: deque[Callable[[], list[PeerEffect]]] = field(default_factory=deque)
    wake: float | None = None
    started: float = 0.0
    #: When each seat began to search, and how long it took until it had its first parent.
    delays: dict[int, float] = field(default_factory=dict)
    #: Events by id, and when each came.
    delivered: dict[bytes, float] = field(default_factory=dict)
    twice: int = 0
    missed: list[Missed] = field(default_factory=list)


class Simulation:
    """A network of peers of one topic."""

    def __init__(
        self,
        seed: int,
        *,
        settings: PeerSettings | None = None,
        costs: CryptoCosts = NO_SECURITY,
        delays: tuple[float, float] = DELAYS,
        wire: bool = False,
        make: Callable[[PeerId, Meter], IdealCredentials] | None = None,
    ) -> None:
        """`make`: credentials for a peer; ideal ones unless others are asked for."""
        self.rng = random.Random(seed)
        self.settings = settings or PeerSettings()
        self.costs = costs
        self.now = 0.0
        self.peers: dict[PeerId, SimulatedPeer] = {}
        self.rendezvous: list[PeerId] = []
        self.messages: Counter[str] = Counter()
        self.counts: Counter[str] = Counter()
        #: Hears of every message when it is sent: when, from whom, to whom.
        self.watch: Callable[[float, PeerId, PeerId, PeerMessage], None] | None = None
        #: Whether a peer opens an event before it handles the next message, or beside it.
        self.opens_inline = True
        self.closed: list[Closed] = []
        self.weakened: list[Weakened] = []
        self._delays = delays
        self._wire = wire
        self._make = make or (lambda name, meter: IdealCredentials(name, meter=meter))
        self._pairs: dict[tuple[PeerId, PeerId], float] = {}
        self._heap: list[tuple[float, int, Callable[[], None]]] = []
        self._number = 0
        #: Pairs of sides that cannot reach each other.
        self._cut: Callable[[PeerId, PeerId], bool] = lambda a, b: False

    # --- who is there ---------------------------------------------------------------------------

    def add(self, name: PeerId, *, roots: Sequence[str] = (), rendezvous: Sequence[PeerId] = ()) -> IdealCredentials:
        """A peer that has not joined yet. With `roots` it is a rendezvous for these attributes."""
        credentials = self._make(name, Meter(self.costs))
        credentials.add_roots(roots)
        if roots:
            others = list(self.rendezvous)
            self.rendezvous.append(name)
            for other in others:
                self._run(other, partial(self.peers[other].node.meet, self.rendezvous, self.now))
        self.peers[name] = SimulatedPeer(self._node(name, credentials, rendezvous or self.rendezvous), credentials)
        return credentials

    def subscriber(self, name: PeerId, conjunctions: Iterable[Conjunction], split: int = 1) -> IdealCredentials:
        credentials = self.add(name)
        for conjunction in conjunctions:
            credentials.subscribe(conjunction, split)
        return credentials

    def _node(self, name: PeerId, credentials: IdealCredentials, rendezvous: Sequence[PeerId]) -> PeerNode:
        rng = random.Random(self.rng.getrandbits(64))
        return PeerNode(TOPIC, name, credentials, rendezvous, settings=self.settings, rng=rng)

    def join(self, name: PeerId, contacts: Sequence[PeerId] = (), away: float | None = None) -> None:
        peer = self.peers[name]
        peer.started = self.now
        advertisement = ideal_advertisement(name)
        had = tuple(peer.delivered)
        self._run(
            name, lambda: peer.node.join(contacts, self.now, away=away, delivered=had, advertisement=advertisement)
        )

    def publish(self, name: PeerId, event: bytes, attributes: int = 0) -> None:
        """Seals, which takes its time, and publishes."""
        peer = self.peers[name]
        sealed = self.now + self.costs.sealing(attributes)
        self.at(sealed, lambda: self._run(name, lambda: peer.node.publish(event, self.now)))

    def set_costs(self, costs: CryptoCosts) -> None:
        """From now on cryptography costs this much."""
        self.costs = costs
        for peer in self.peers.values():
            peer.credentials.meter.costs = costs

    # --- what goes wrong ------------------------------------------------------------------------

    def leave(self, name: PeerId) -> None:
        peer = self.peers[name]
        self._run(name, lambda: peer.node.leave(self.now))
        self.at(self.now, lambda: setattr(peer, "alive", False))

    def crash(self, name: PeerId, *, silent: bool = True) -> None:
        """A peer is gone. With `silent` nobody is told: its host lost its power, or its cable."""
        self.peers[name].alive = False
        self.peers[name].inbox.clear()
        if not silent:
            for other, peer in self.peers.items():
                if peer.alive:
                    self.at(self.now + self.delay(name, other), self._downed(other, name))

    def restart(self, name: PeerId, contacts: Sequence[PeerId], away: float | None = None) -> None:
        """Starts the same peer again, with nothing in its memory."""
        old = self.peers[name]
        node = self._node(name, old.credentials, self.rendezvous)
        self.peers[name] = SimulatedPeer(
            node, old.credentials, delivered=old.delivered, twice=old.twice, missed=old.missed
        )
        self.join(name, contacts, away)

    def partition(self, side: Iterable[PeerId]) -> None:
        """Cuts the cable between these peers and all others."""
        one = frozenset(side)
        self._cut = lambda a, b: (a in one) != (b in one)

    def heal(self) -> None:
        self._cut = lambda a, b: False

    # --- time -----------------------------------------------------------------------------------

    def at(self, time: float, action: Callable[[], None]) -> None:
        self._number += 1
        heappush(self._heap, (time, self._number, action))

    def run(self, until: float, most: int | None = None) -> int:
        """Lets everything happen until then; how many things did. Bug if there are more than `most`."""
        done = 0
        while self._heap and self._heap[0][0] <= until:
            time, _, action = heappop(self._heap)
            self.now = max(self.now, time)
            action()
            done += 1
            if most is not None and done > most:
                raise Bug(f"{most} things happened by {self.now}: this does not end")
        self.now = until
        return done

    def delay(self, one: PeerId, other: PeerId) -> float:
        pair = (one, other) if one < other else (other, one)
        if pair not in self._pairs:
            self._pairs[pair] = self.rng.uniform(*self._delays)
        return self._pairs[pair]

    # --- the network ----------------------------------------------------------------------------

    def _run(self, name: PeerId, handle: Callable[[], list[PeerEffect]]) -> None:
        """Handles something at a peer, or puts it behind what the peer is busy with."""
        peer = self.peers[name]
        if peer.inbox or peer.busy > self.now:
            peer.inbox.append(handle)
            if len(peer.inbox) == 1:
                self.at(peer.busy, lambda: self._drain(name, peer))
        else:
            self._handle(name, peer, handle)

    def _drain(self, name: PeerId, peer: SimulatedPeer) -> None:
        while peer.inbox and peer.busy <= self.now:
            self._handle(name, peer, peer.inbox.popleft())
        if peer.inbox:
            self.at(peer.busy, lambda: self._drain(name, peer))

    def _handle(self, name: PeerId, peer: SimulatedPeer, handle: Callable[[], list[PeerEffect]]) -> None:
        if not peer.alive:
            return
        effects = handle()
        peer.busy = self.now + peer.credentials.meter.take()
        for effect in effects:
            self._effect(name, peer, effect)

    def _effect(self, name: PeerId, peer: SimulatedPeer, effect: PeerEffect) -> None:
        match effect:
            case Send():
                self._send(name, effect.to, effect.message, peer.busy)
            case Deliver():
                # What the peer passes on goes first; then it opens the event for itself.
                opened = peer.busy + self.costs.opening(self._attributes(peer))
                if self.opens_inline:
                    peer.busy = opened
                peer.twice += effect.id in peer.delivered
                peer.delivered.setdefault(effect.id, opened)
            case Wake():
                peer.wake = effect.at
                self.at(max(effect.at, self.now), lambda: self._tick(name, peer, effect.at))
            case Linked(seat, parent):
                self.counts["links" if parent else "lost parents"] += 1
                if parent is not None:
                    peer.delays.setdefault(seat, self.now - peer.started)
                    self._check_cover(name, seat, parent)
            case Missed():
                peer.missed.append(effect)
            case Closed():
                self.closed.append(effect)
            case Weakened():
                self.weakened.append(effect)

    def _attributes(self, peer: SimulatedPeer) -> int:
        return max((len(each) for each in peer.credentials.conjunctions), default=0)

    def _send(self, name: PeerId, to: PeerId, message: PeerMessage, at: float) -> None:
        self.messages[type(message.body).__name__] += 1
        if self.watch is not None:
            self.watch(at, name, to, message)
        if self._wire:
            data = peers.encode(message)
            self.counts["bytes"] += len(data)
            message = peers.parse(data)
        self.at(at + self.delay(name, to), lambda: self._arrive(name, to, message))

    def _arrive(self, name: PeerId, to: PeerId, message: PeerMessage) -> None:
        target = self.peers.get(to)
        if target is None or not target.alive or self._cut(name, to):
            self.counts["messages lost"] += 1
            self.at(self.now + SILENCE_SECONDS, self._downed(name, to))
            if self._cut(name, to):
                self.at(self.now + SILENCE_SECONDS, self._downed(to, name))
            return
        self._run(to, lambda: target.node.receive(name, message, self.now))

    def _downed(self, name: PeerId, other: PeerId) -> Callable[[], None]:
        def tell() -> None:
            peer = self.peers.get(name)
            if peer is not None and peer.alive:
                self._run(name, lambda: peer.node.down(other, self.now))

        return tell

    def _tick(self, name: PeerId, peer: SimulatedPeer, at: float) -> None:
        if peer.alive and peer.wake == at:
            peer.wake = None
            self._run(name, lambda: peer.node.tick(self.now))

    # --- what must hold -------------------------------------------------------------------------

    def label(self, address: SeatAddress) -> str:
        return self.peers[address.peer].credentials.places[address.seat].label

    def _check_cover(self, name: PeerId, seat: int, parent: SeatAddress) -> None:
        child = self.peers[name].credentials.places[seat]
        if not child.label.startswith(self.label(parent)):
            raise Bug(f"{parent} does not cover {name}'s seat {seat}")

    def living(self) -> list[PeerId]:
        return [name for name, peer in self.peers.items() if peer.alive and peer.node.seats()]

    def homeless(self) -> list[SeatAddress]:
        """Seats of living peers from which no living chain of parents leads to a root."""
        up: dict[SeatAddress, SeatAddress | None] = {}
        roots = set()
        for name in self.living():
            for view in self.peers[name].node.seats():
                address = SeatAddress(name, view.seat)
                up[address] = view.parent
                if view.root:
                    roots.add(address)
        return [seat for seat in up if not self._reaches(seat, up, roots)]

    def _reaches(self, seat: SeatAddress, up: dict[SeatAddress, SeatAddress | None], roots: set[SeatAddress]) -> bool:
        passed = set[SeatAddress]()
        at: SeatAddress | None = seat
        while at is not None and at in up and at not in passed:
            if at in roots:
                return True
            passed.add(at)
            at = up[at]
        return False

    def check_forest(self) -> None:
        """Bug unless every parent covers its children, each link is known at both ends, and bounds are kept."""
        limit = self.settings
        for name in self.living():
            for view in self.peers[name].node.seats():
                most = limit.root_children + limit.root_overflow if view.root else limit.children + limit.overflow
                if len(view.children) > most:
                    raise Bug(f"{name} has {len(view.children)} children")
                for child in view.children:
                    if self.peers[child.peer].alive:
                        self._check_cover(child.peer, child.seat, SeatAddress(name, view.seat))

    def shared_parents(self) -> int:
        """How many more seats there are than parents, over all subscriptions and trees of living peers."""
        found = 0
        for name in self.living():
            groups = defaultdict[tuple[str, int], list[PeerId]](list)
            for view in self.peers[name].node.seats():
                if view.parent is not None:
                    plan = self.peers[name].credentials.seats[view.seat]
                    groups[plan.attribute, plan.group].append(view.parent.peer)
            found += sum(len(parents) - len(set(parents)) for parents in groups.values())
        return found

    def depths(self) -> dict[str, list[int]]:
        """The depth of every seat, by attribute."""
        found = defaultdict(list)
        for name in self.living():
            for view in self.peers[name].node.seats():
                if view.depth is not None and not view.root:
                    found[view.attribute].append(view.depth)
        return dict(found)

    def total(self, what: str) -> int:
        """A count of all nodes together."""
        return sum(peer.node.counts.get(what, 0) for peer in self.peers.values())
