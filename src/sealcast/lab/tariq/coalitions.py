"""What parents of one subscriber find together where a subscription asks for several attributes (d of them).

As in the paper, a peer takes places in the trees of all its attributes here, each label split into k_D. A parent knows
the values of the events that it can open, and which of them it passed on to the child. (Peers of `sealcast peer run`
have places on one attribute, so that no parent hears of the others.)
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Iterable
from functools import partial
from typing import NamedTuple

from sealcast.lab.tariq.curious import below, consistent, merged
from sealcast.lab.tariq.ideal import Bits, event_values, ideal_event
from sealcast.lab.tariq.joining import JoinPoint, build
from sealcast.lab.tariq.simulate import Simulation
from sealcast.lab.tariq.workloads import Workload, attribute_names
from sealcast.overlay.peers.port import Dissemination, PeerId, SeatAddress
from sealcast.wire.peers import Carry, PeerMessage

#: Coarse labels: with several attributes, fine ones are hardly ever matched.
LONGEST = 3


class Pooled(NamedTuple):
    """So many parents of a subscriber put together what they found."""

    parents: int
    #: Subscriptions that they determined, and of how many.
    determined: int
    subscriptions: int


class _Seen(NamedTuple):
    net: Simulation
    events: list[dict[str, Bits]]
    #: By parent's and child's seats, the numbers of the events that were passed on.
    carried: dict[tuple[SeatAddress, SeatAddress], set[int]]
    parents: dict[SeatAddress, SeatAddress]


def pooled_trees(peers: int, events: int, split: int, attributes: int = 2, seed: int = 1) -> list[Pooled]:
    """For every number of parents up to all of them: those of the first tree first."""
    seen = _watched(peers, events, split, attributes, seed)
    by_peer = defaultdict[PeerId, list[SeatAddress]](list)
    for seat in sorted(seen.parents, key=lambda each: (_attribute(seen.net, each), each)):
        by_peer[seat.peer].append(seat)
    # Where two places are below one peer, events go over one of the links: nobody can tell for which.
    asked = {
        name: seats
        for name, seats in by_peer.items()
        if len(seats) == split * attributes == len({seen.parents[seat].peer for seat in seats})
    }
    return [
        Pooled(number, sum(_determined(seen, name, seats[:number]) for name, seats in asked.items()), len(asked))
        for number in range(1, split * attributes + 1)
    ]


def _watched(peers: int, events: int, split: int, attributes: int, seed: int) -> _Seen:
    net = build(JoinPoint(peers, 6, attributes=attributes, longest=LONGEST, seed=seed), split, Dissemination.ROUTING)
    work, names = Workload(random.Random(seed + 2)), attribute_names(attributes)
    values = [{name: work.value() for name in names} for _ in range(events)]
    numbers = {tuple(each.values()): number for number, each in enumerate(values)}
    carried = defaultdict[tuple[SeatAddress, SeatAddress], set[int]](set)

    def watch(at: float, sender: PeerId, to: PeerId, message: PeerMessage) -> None:
        if isinstance(message.body, Carry) and message.source is not None and message.target is not None:
            link = (SeatAddress(sender, message.source), SeatAddress(to, message.target))
            carried[link].add(numbers[tuple(event_values(message.body.event).values())])

    net.add("publisher")
    net.join("publisher")
    net.watch = watch
    for number, each in enumerate(values):
        net.at(net.now + 1 + number * 0.1, partial(net.publish, "publisher", ideal_event("publisher", number, each)))
    net.run(net.now + events * 0.1 + 10)
    parents = {
        SeatAddress(name, view.seat): view.parent
        for name, peer in net.peers.items()
        for view in peer.node.seats()
        if view.parent is not None
    }
    return _Seen(net, values, dict(carried), parents)


def _determined(seen: _Seen, peer: PeerId, seats: Iterable[SeatAddress]) -> bool:
    """Whether the parents of these places know every label of the subscription."""
    found = defaultdict[str, set[Bits]](set)
    for seat in seats:
        left = _left(seen, seat)
        if len(left) == 1:
            found[_attribute(seen.net, seat)].add(left[0])
    (truth,) = seen.net.peers[peer].credentials.conjunctions
    return all(merged(found[name]) == set(labels) for name, labels in truth.items())


def _left(seen: _Seen, seat: SeatAddress) -> list[Bits]:
    """The labels that a place may have, as far as its parent can tell."""
    parent, attribute = seen.parents[seat], _attribute(seen.net, seat)
    known = _known(seen, parent)
    sent = seen.carried.get((parent, seat), set()) & known
    wanted, unwanted = ({seen.events[number][attribute] for number in some} for some in (sent, known - sent))
    return consistent(below(seen.net.label(parent)), wanted, unwanted)


def _known(seen: _Seen, seat: SeatAddress) -> set[int]:
    """The events whose values the peer of a seat knows: those that it can open; at the root, all."""
    asked = seen.net.peers[seat.peer].credentials.conjunctions
    return {
        number
        for number, event in enumerate(seen.events)
        if not asked
        or any(all(any(event[a].startswith(x) for x in labels) for a, labels in each.items()) for each in asked)
    }


def _attribute(net: Simulation, seat: SeatAddress) -> str:
    return net.peers[seat.peer].credentials.places[seat.seat].plan.attribute
