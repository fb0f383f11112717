"""A few peers on a virtual clock, for tests that look closely."""

from __future__ import annotations

import random
from collections.abc import Sequence

from sealcast.lab.tariq.ideal import ideal_event
from sealcast.lab.tariq.simulate import Simulation
from sealcast.lab.tariq.workloads import Workload, attribute_names
from sealcast.overlay.peers.port import PeerSettings, SeatAddress
from sealcast.wire.peers import event_id

ROOT = SeatAddress("root", 0)


def one_tree(
    labels: dict[str, str], *, settings: PeerSettings | None = None, seed: int = 1, **more: object
) -> Simulation:
    """A tree of one attribute: peers by name with one label each, who join one after the other at the root."""
    net = Simulation(seed, settings=settings, wire=True)
    net.add("root", roots=["a"])
    net.join("root")
    for name, label in labels.items():
        join_one(net, name, label)
    return net


def join_one(net: Simulation, name: str, label: str, contact: str = "root", seconds: float = 20.0) -> None:
    net.subscriber(name, [{"a": (label,)}])
    net.join(name, [contact])
    net.run(net.now + seconds)


def parent(net: Simulation, name: str, seat: int = 0) -> str | None:
    (view,) = [each for each in net.peers[name].node.seats() if each.seat == seat]
    return None if view.parent is None else view.parent.peer


def children(net: Simulation, name: str, seat: int = 0) -> set[str]:
    (view,) = [each for each in net.peers[name].node.seats() if each.seat == seat]
    return {child.peer for child in view.children}


class Crowd:
    """Many peers with churn, and what they were to get."""

    def __init__(
        self,
        peers: int,
        attributes: int,
        seed: int,
        *,
        settings: PeerSettings,
        split: int = 1,
        rendezvous: int = 3,
        hot_spots: int = 0,
        apart: float = 0.01,
        wire: bool = False,
    ) -> None:
        self.net = Simulation(seed, settings=settings, wire=wire)
        self.rng = random.Random(seed)
        self.names: list[str] = []
        self.attributes = attribute_names(attributes)
        self.work = Workload(random.Random(seed + 1), hot_spots)
        self.events: list[tuple[float, bytes]] = []
        self.gone: dict[str, float] = {}
        #: Since when each peer was there without a break.
        self.since: dict[str, float] = {}
        for number in range(rendezvous):
            self.net.add(f"root{number}", roots=self.attributes)
            self.net.join(f"root{number}")
        for number in range(peers):
            self.net.subscriber(f"p{number}", [self.work.labels(self.attributes)], split)
            self.net.at(0.5 + number * apart, lambda name=f"p{number}": self.join(name))
        self.net.add("publisher")
        self.net.join("publisher")
        self.joined = 0.5 + peers * apart

    def join(self, name: str) -> None:
        self.net.join(name, self.contacts())
        self.names.append(name)
        self.since[name] = self.net.now

    def contacts(self) -> Sequence[str]:
        return self.rng.sample(self.names, min(3, len(self.names)))

    def publish(self) -> None:
        event = ideal_event("publisher", len(self.events), self.work.values(self.attributes))
        self.events.append((self.net.now, event))
        self.net.publish("publisher", event)

    def lose_one(self) -> None:
        """Somebody leaves: politely, with its process, or with its host."""
        name = self.rng.choice(self.names)
        if not self.net.peers[name].alive:
            return
        match self.rng.randrange(3):
            case 0:
                self.net.leave(name)
            case 1:
                self.net.crash(name, silent=False)
            case _:
                self.net.crash(name)
        self.gone[name] = self.net.now

    def bring_one_back(self) -> None:
        if self.gone:
            name = self.rng.choice(sorted(self.gone))
            away = self.net.now - self.gone.pop(name)
            self.net.restart(name, self.contacts(), away)

    def lacking(self) -> dict[str, int]:
        """Of each peer that lives, how many events it wants that were published while it was there, and lacks."""
        return {
            name: lacks
            for name in self.names
            if self.net.peers[name].alive
            and (
                lacks := sum(
                    time >= self.since[name]
                    and self.net.peers[name].credentials.wants(event)
                    and event_id(event) not in self.net.peers[name].delivered
                    for time, event in self.events
                )
            )
        }

    def deliveries(self, *, settled: float) -> tuple[int, int, int]:
        """Wanted and delivered, wanted and not, and delivered although unwanted; of peers that live. Events of the
        time in which a peer first joined (`settled` seconds) are left out."""
        got = missing = wrong = 0
        for name in self.names:
            peer = self.net.peers[name]
            if not peer.alive:
                continue
            for time, event in self.events:
                here = event_id(event) in peer.delivered
                if peer.credentials.wants(event):
                    if time >= self.since[name] + settled:
                        got, missing = got + here, missing + (not here)
                else:
                    wrong += here
        return got, missing, wrong
