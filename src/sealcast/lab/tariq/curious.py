"""What curious peers see, and what they conclude: labels of others, narrowed down by the events that pass.

A parent can open what it gets, and so knows the values of the events that it passes on. Whoever also knows which of
them a child wanted narrows the child's label down: it is a prefix of every wanted value and of none of the others. How
many labels remain is what the child still keeps to itself.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

from sealcast.lab.tariq.costs import CryptoCosts
from sealcast.lab.tariq.ideal import DEPTH, Bits, event_values, ideal_event
from sealcast.lab.tariq.joining import JoinPoint, build
from sealcast.lab.tariq.simulate import Simulation
from sealcast.lab.tariq.workloads import Workload
from sealcast.overlay.peers.core import OFFER, proof, proves
from sealcast.overlay.peers.port import Dissemination, PeerId, PeerSettings, SeatAddress
from sealcast.primitives.secrets import Secret
from sealcast.wire.peers import Alive, Carry, PeerMessage, Pulse

ATTRIBUTE = "a0"


@dataclass(frozen=True, slots=True)
class SeenLinks:
    """One tree, and which values went over each of its links."""

    labels: dict[SeatAddress, Bits]
    parents: dict[SeatAddress, SeatAddress]
    carried: dict[tuple[SeatAddress, SeatAddress], set[Bits]]
    values: set[Bits]
    #: Of each peer the labels of its subscription, before they were split.
    subscribed: dict[PeerId, tuple[Bits, ...]]

    def children(self, seat: SeatAddress) -> list[SeatAddress]:
        return [child for child, parent in self.parents.items() if parent == seat]

    def known_to(self, seat: SeatAddress) -> set[Bits]:
        """Values of the events that the seat gets and can open."""
        return {value for value in self.values if value.startswith(self.labels[seat])}


def watched(peers: int, events: int, dissemination: Dissemination, split: int, seed: int = 1) -> SeenLinks:
    """A tree of so many peers, and so many events through it."""
    net = build(JoinPoint(peers, 6, seed=seed), split, dissemination)
    work = Workload(random.Random(seed + 2))
    carried = defaultdict[tuple[SeatAddress, SeatAddress], set[Bits]](set)

    def watch(at: float, sender: PeerId, to: PeerId, message: PeerMessage) -> None:
        if isinstance(message.body, Carry) and message.source is not None and message.target is not None:
            link = (SeatAddress(sender, message.source), SeatAddress(to, message.target))
            carried[link].add(event_values(message.body.event)[ATTRIBUTE])

    net.add("publisher")
    net.join("publisher")
    net.watch = watch
    values = [work.value() for _ in range(events)]
    for number, value in enumerate(values):
        event = ideal_event("publisher", number, {ATTRIBUTE: value})
        net.at(net.now + 1 + number * 0.1, partial(net.publish, "publisher", event))
    net.run(net.now + events * 0.1 + 10)
    labels, parents = {}, {}
    for name, peer in net.peers.items():
        for view in peer.node.seats():
            labels[SeatAddress(name, view.seat)] = peer.credentials.places[view.seat].label
            if view.parent is not None:
                parents[SeatAddress(name, view.seat)] = view.parent
    subscribed = {
        name: tuple(each[ATTRIBUTE][0] for each in peer.credentials.conjunctions)
        for name, peer in net.peers.items()
        if peer.credentials.conjunctions
    }
    return SeenLinks(labels, parents, dict(carried), set(values), subscribed)


# --- conclusions ----------------------------------------------------------------------------------------


class Narrowed(NamedTuple):
    """Labels that somebody's may be: before anything was seen, and after."""

    before: int
    left: list[Bits]
    truth: Bits

    @property
    def found(self) -> bool:
        return self.left == [self.truth]


def below(label: Bits) -> Iterator[Bits]:
    """Every label that this one covers."""
    yield label
    if len(label) < DEPTH:
        yield from below(label + "0")
        yield from below(label + "1")


def consistent(candidates: Iterable[Bits], wanted: set[Bits], unwanted: set[Bits]) -> list[Bits]:
    """Those that cover every wanted value and none of the unwanted."""
    return [
        label
        for label in candidates
        if all(value.startswith(label) for value in wanted) and not any(value.startswith(label) for value in unwanted)
    ]


def lone_parent(seen: SeenLinks, dissemination: Dissemination) -> list[Narrowed]:
    """What each parent learns about each of its children, by what it sent them."""
    found = []
    for child, parent in seen.parents.items():
        candidates = list(below(seen.labels[parent]))
        known = seen.known_to(parent)
        sent = seen.carried.get((parent, child), set())
        if dissemination is Dissemination.FLOODING:
            left = candidates  # it sent everything to everybody: the child's label had no part in it
        else:
            left = consistent(candidates, sent, known - sent)
        found.append(Narrowed(len(candidates), left, seen.labels[child]))
    return found


def parent_and_grandchild(seen: SeenLinks) -> list[Narrowed]:
    """What a parent and a child's child learn together: the one in between passes on what it wants."""
    found = []
    for middle, parent in seen.parents.items():
        known = seen.known_to(parent)
        for grandchild in seen.children(middle)[:1]:
            label, above = seen.labels[grandchild], len(seen.labels[parent])
            candidates = [label[:size] for size in range(above, len(label) + 1)]
            passed = seen.carried.get((middle, grandchild), set())
            left = consistent(candidates, passed, known - passed)
            found.append(Narrowed(len(candidates), left, seen.labels[middle]))
    return found


def pooled(seen: SeenLinks, parents: int, split: int) -> tuple[int, int]:
    """So many of a subscriber's parents pool what they know: how many subscriptions they determine, of how many.

    They put together the labels of the child's seats that each of them found. Subscriptions that could not be split
    into so many labels are left out.
    """
    determined = total = 0
    by_peer = defaultdict[PeerId, list[SeatAddress]](list)
    for seat in seen.parents:
        by_peer[seat.peer].append(seat)
    for peer, seats in by_peer.items():
        if len(seats) != split:
            continue
        total += 1
        (truth,) = seen.subscribed[peer]
        found = set()
        for seat in sorted(seats)[:parents]:
            parent = seen.parents[seat]
            sent, known = seen.carried.get((parent, seat), set()), seen.known_to(parent)
            left = consistent(below(seen.labels[parent]), sent, known - sent)
            if len(left) == 1:
                found.add(left[0])
        determined += merged(found) == {truth}
    return determined, total


def merged(labels: set[Bits]) -> set[Bits]:
    """The labels with halves put together to wholes, as far as possible."""
    found = set(labels)
    while True:
        pair = next((label for label in found if label.endswith("0") and label[:-1] + "1" in found), None)
        if pair is None:
            return found
        found -= {pair, pair[:-1] + "1"}
        found.add(pair[:-1])


# --- connecting -----------------------------------------------------------------------------------------


def offer_suspects(one_key: bool, seed: int = 1) -> int:
    """A newcomer with a value for a label made the slots of its request, and gets an offer: how many labels may the
    acceptor have? With `one_key` all slots hide the same key; else each has its own, as in the paper (finding F10)."""
    rng = random.Random(seed)
    own = Workload(rng).value()
    same, search, acceptor = Secret(rng.randbytes(32)), rng.randbytes(16), SeatAddress("acceptor", 0)
    slots = {own[:size]: same if one_key else Secret(rng.randbytes(32)) for size in range(len(own) + 1)}
    offer = proof(slots[rng.choice(sorted(slots))], OFFER, search, acceptor)
    return sum(proves(offer, key, OFFER, search, acceptor) for key in slots.values())


# --- timing ---------------------------------------------------------------------------------------------


def answer_times(costs: CryptoCosts, inline: bool, events: int) -> tuple[list[float], list[float]]:
    """How long a child's answer to a heartbeat takes, in seconds, that comes right behind an event: one that the child
    wants, and one that it does not. The child opens what it wants before it answers, or (`inline` false) beside."""
    settings = PeerSettings(pulse_seconds=5.0, root_patience_seconds=0.0)
    net = Simulation(1, settings=settings, costs=costs)
    net.opens_inline = inline
    net.add("root", roots=[ATTRIBUTE])
    net.join("root")
    net.subscriber("child", [{ATTRIBUTE: ("0",)}])
    net.join("child", ["root"])
    net.add("publisher")
    net.join("publisher")
    net.run(1.0)
    times: dict[bool, list[float]] = {True: [], False: []}
    asked, wanted = [0.0], [False]

    def watch(at: float, sender: PeerId, to: PeerId, message: PeerMessage) -> None:
        if isinstance(message.body, Pulse):
            asked[0] = at
        elif isinstance(message.body, Alive):
            times[wanted[0]].append(at + net.delay(sender, to) - asked[0])

    net.watch = watch
    on_the_way = net.delay("publisher", "root")
    for number in range(events):
        pulse = 5.0 * (number + 1)
        value = "01010101" if number % 2 else "11010101"
        event = ideal_event("publisher", number, {ATTRIBUTE: value})
        sent = pulse - on_the_way - costs.sealing(1) - costs.check_event - 0.001
        net.at(pulse - 1.0, partial(_note, wanted, value.startswith("0")))
        net.at(sent, partial(net.publish, "publisher", event, 1))
    net.run(5.0 * events + 2)
    return times[True], times[False]


def _note(place: list[bool], value: bool) -> None:
    place[0] = value
