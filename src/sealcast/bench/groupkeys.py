"""Suite `groupkeys`: encryptions per event of our algorithm over those of the best of paper 000's, and what it costs.

    random           N = 1,000, C = 10,000, every group equally likely
    popular          the same, nine events in ten for one of 10,000 fixed groups
    content-small    filters with continuous thresholds (lab/groups.py), C = 2,000
    content          the same, C = 10,000; ratio of what both need beyond one encryption per event, the floor
    cpu, planning    what it costs in CPU time: groupkeys_cpu.py
    membership       what joining and leaving cost the others: groupkeys_members.py
    pipeline         the whole pipeline on Spark: groupkeys_pipeline.py

The best is the best on that very workload, over all of the paper's algorithms, policies and numbers of clusters below.
Ours gets no more bytes than that best one's entries take: a bit a subscriber that an entry is about, and a key of 32
bytes. What ours remembers holds no keys at all. Events before those that are counted warm both sides up.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np

from sealcast.bench.report import BenchRow
from sealcast.errors import Bug
from sealcast.filters.bits import Words
from sealcast.groupkeys.catalog import Setting, entry_bytes, make
from sealcast.groupkeys.clusters import by_full_tables, by_rule
from sealcast.groupkeys.interface import Algorithm
from sealcast.groupkeys.mosaic.planner import Mosaic
from sealcast.lab import groups
from sealcast.primitives.secrets import KEY_BYTES

SUBSCRIBERS: Final = 1_000
SEED: Final = 1


@dataclass(frozen=True, slots=True)
class Case:
    """A workload, how much of it only warms up, and the numbers of clusters worth trying on it."""

    name: str
    cache: int
    warm: int
    counted: int
    make: Callable[[int, int, int], Words]
    clusters: tuple[int, ...]

    def groups(self) -> Words:
        return self.make(self.warm + self.counted, SUBSCRIBERS, SEED)


#: Clusters as the paper's rule and as full tables have them; few and large ones where groups are alike.
_MANY: Final = (150, by_rule(SUBSCRIBERS, 10_000), by_full_tables(SUBSCRIBERS, 10_000))
_FEW: Final = (2, 5, 10, 20, 40)

CASES: Final = {
    case.name: case
    for case in (
        Case("random", 10_000, 5_000, 3_000, groups.random_groups, _MANY),
        Case("popular", 10_000, 40_000, 10_000, groups.popular_groups, _MANY),
        Case("content-small", 2_000, 15_000, 15_000, groups.content_groups, _FEW),
        Case("content", 10_000, 15_000, 15_000, groups.content_groups, _FEW),
    )
}


@dataclass(frozen=True, slots=True)
class Rival:
    """One of the paper's algorithms as it is set up for a case, and what its entries take."""

    name: str
    setting: Setting
    nbytes: int

    def make(self) -> Algorithm:
        return make(self.name.partition(",")[0], self.setting)


def rivals(case: Case) -> Iterator[Rival]:
    n, c = SUBSCRIBERS, case.cache
    for policy in ("lru", "frequency"):
        yield Rival(f"simple, {policy}", Setting(n, c, policy=policy), c * entry_bytes(n))
    yield Rival("build-up", Setting(n, c), c * entry_bytes(n))
    yield Rival("key-tree", Setting(n, 0), 2 * n * KEY_BYTES)
    for k in case.clusters:
        part = entry_bytes(-(-n // k))
        yield Rival(f"clustered, K={k}", Setting(n, c, k), c * part)
        for policy in ("lru", "frequency"):
            halves = c // 2 * entry_bytes(n) + (c - c // 2) * part
            yield Rival(f"clustered-popular, K={k}, {policy}", Setting(n, c, k, policy), halves)


def mean(algorithm: Algorithm, case: Case, events: Words) -> float:
    return float(np.mean(algorithm.count(events)[case.warm :]))


def best(case: Case, events: Words) -> tuple[Rival, float]:
    """Finds the paper's best algorithm on a workload, and its mean."""
    return min(((rival, mean(rival.make(), case, events)) for rival in rivals(case)), key=lambda pair: pair[1])


def encryptions(case: Case, floor: float = 0.0) -> BenchRow:
    """Measures one row. The ratio is that of what is above `floor`."""
    events = case.groups()
    rival, reference = best(case, events)
    mosaic = Mosaic(SUBSCRIBERS, rival.nbytes, seed=SEED)
    ours = mean(mosaic, case, events)
    if mosaic.nbytes > rival.nbytes:
        raise Bug(f"mosaic takes {mosaic.nbytes} bytes, more than the {rival.nbytes} of {rival.name}")
    labels, keys = mosaic.keys_per_subscriber()
    told = (
        f"{rival.name} in {rival.nbytes:,} bytes (ours in {mosaic.nbytes:,}; "
        f"a subscriber was given {labels:,.0f} labels and {keys:,.0f} keys)"
    )
    return BenchRow(case.name, ours, reference, told, (ours - floor) / (reference - floor), "encryptions per event")


def rows() -> Iterator[BenchRow]:
    yield encryptions(CASES["random"])
    yield encryptions(CASES["popular"])
    yield encryptions(CASES["content-small"])
    yield encryptions(CASES["content"], floor=1.0)
