"""Connecting peers: how long a newcomer takes until it has its place (figures 6a and 6b)."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from statistics import fmean, median
from typing import Final

from sealcast.lab.tariq.costs import NO_SECURITY, CryptoCosts
from sealcast.lab.tariq.ideal import DEPTH
from sealcast.lab.tariq.simulate import Simulation
from sealcast.lab.tariq.workloads import Workload, attribute_names
from sealcast.overlay.peers.port import Dissemination, PeerSettings

#: Seconds between two newcomers.
APART: Final = 0.25
#: Peers that a newcomer knows: it begins at one of them.
KNOWN: Final = 3


def degree_of(peers: int) -> int:
    """The paper's out-degree."""
    return max(2, round(math.log2(peers)))


def quiet_settings(degree: int, dissemination: Dissemination = Dissemination.FLOODING) -> PeerSettings:
    """Nobody crashes: heartbeats are rare. The root is a peer like others, as in the paper, and its offer is taken."""
    return PeerSettings(
        dissemination=dissemination,
        children=degree,
        overflow=degree,
        root_children=degree,
        pulse_seconds=60.0,
        silent_seconds=600.0,
        search_seconds=2.0,
        root_patience_seconds=0.0,
        searches_per_window=1 << 20,
        own_searches_per_window=1 << 20,
    )


@dataclass(frozen=True, slots=True)
class JoinPoint:
    """Peers that join one after the other, in as many trees as there are attributes."""

    peers: int
    degree: int
    attributes: int = 1
    hot_spots: int = 0
    #: Of labels: with several attributes, coarse ones are matched now and then.
    longest: int = DEPTH
    costs: CryptoCosts = NO_SECURITY
    seed: int = 1

    @property
    def workload(self) -> str:
        return f"skewed, {self.hot_spots} hot spots" if self.hot_spots else "uniform"


@dataclass(frozen=True, slots=True)
class JoinResult:
    """Milliseconds until a place was found, and what it took."""

    mean: float
    median: float
    #: Of newcomers that found a place with their first search, without anybody's being displaced.
    first: float
    #: Which share of newcomers did.
    first_share: float
    #: Until a newcomer had all of its places.
    complete: float
    depth: float
    deepest: float
    #: Connection requests that were opened for each place.
    opened: float
    messages: float


def build(point: JoinPoint, split: int = 1, dissemination: Dissemination = Dissemination.FLOODING) -> Simulation:
    """All peers, joined, with one rendezvous."""
    net = Simulation(point.seed, settings=quiet_settings(point.degree, dissemination), costs=point.costs)
    attributes = attribute_names(point.attributes)
    net.add("root", roots=attributes)
    net.join("root")
    work, choose = Workload(random.Random(point.seed), point.hot_spots), random.Random(point.seed + 1)
    names: list[str] = ["root"]

    def arrive(name: str) -> None:
        net.join(name, choose.sample(names, min(KNOWN, len(names))))
        names.append(name)

    for number in range(point.peers):
        name = f"p{number}"
        net.subscriber(name, [work.labels(attributes, point.longest)], split)
        net.at(1.0 + number * APART, partial(arrive, name))
    net.run(1.0 + point.peers * APART + 120)
    return net


def measure_joins(point: JoinPoint) -> JoinResult:
    net = build(point)
    delays = [1000 * delay for peer in net.peers.values() for delay in peer.delays.values()]
    limit = 1000 * net.settings.search_seconds
    first = [delay for delay in delays if delay < limit]
    depths = [depth for found in net.depths().values() for depth in found]
    searches = sum(net.messages[kind] for kind in ("Search", "Offer", "Accept", "Decline", "Swap", "Replace"))
    return JoinResult(
        mean=fmean(delays),
        median=median(delays),
        first=fmean(first),
        first_share=len(first) / len(delays),
        complete=1000 * fmean(max(peer.delays.values()) for peer in net.peers.values() if peer.delays),
        depth=fmean(depths),
        deepest=max(depths),
        opened=net.total("requests opened") / len(delays),
        messages=searches / len(delays),
    )


def work_of(point: JoinPoint) -> float:
    return point.peers * math.sqrt(point.peers) * point.attributes


def averaged(results: Sequence[JoinResult]) -> JoinResult:
    """One result of several seeds."""
    return JoinResult(**{name: fmean(getattr(each, name) for each in results) for name in JoinResult.__slots__})
