"""What paper 000 draws from its figures, looked at again for every N and every C.

Throughput is inversely proportional to encryptions an event (figure 9), so that a claim "A has x % higher throughput
than B" reads: B needs 1 + x times the encryptions of A. Its five claims on throughput contradict one another; which of
them hold, and where, is the finding. Besides, its text says of each figure who comes before whom.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from sealcast.lab.report import Row


@dataclass(frozen=True, slots=True)
class ThroughputClaim:
    """`better` has `low` to `high` times the throughput of `worse`."""

    text: str
    distribution: str
    better: str
    worse: str
    low: float
    high: float


#: "About" is taken as a fifth up or down.
CLAIMS: Final = (
    ThroughputClaim(
        "clustered-popular about 100 % over the key tree", "popular", "clustered-popular", "key-tree", 1.6, 2.4
    ),
    ThroughputClaim(
        "clustered-popular about 33 % over the key tree", "random", "clustered-popular", "key-tree", 1.07, 1.6
    ),
    ThroughputClaim(
        "clustered-popular about 50 % over clustered", "popular", "clustered-popular", "clustered", 1.2, 1.8
    ),
    ThroughputClaim(
        "clustered-popular 10 to 20 % below clustered", "random", "clustered-popular", "clustered", 0.8, 0.9
    ),
    ThroughputClaim("the key tree about 40 % below clustered", "random", "key-tree", "clustered", 0.48, 0.72),
)


Costs = Mapping[str, float]


@dataclass(frozen=True, slots=True)
class CostOrder:
    """What the text says of the costs of several algorithms, side by side."""

    text: str
    distribution: str
    algorithms: frozenset[str]
    holds: Callable[[Costs], bool]


#: "Similar" is taken as a fifth up or down, "little effect" as a twentieth.
SIMILAR: Final = 0.2
LITTLE: Final = 0.05
_BEST: Final = frozenset({"clustered", "clustered-popular", "key-tree"})
_CACHES: Final = frozenset({"simple", "build-up"})

ORDERS: Final = (
    CostOrder(
        *("clustered, clustered-popular and the key tree need fewer than simple and build-up", "random"),
        _BEST | _CACHES,
        lambda cost: max(cost[a] for a in _BEST) < min(cost[a] for a in _CACHES),
    ),
    CostOrder(
        *("both clustered caches need fewer than the key tree", "random"),
        _BEST,
        lambda cost: max(cost["clustered"], cost["clustered-popular"]) < cost["key-tree"],
    ),
    CostOrder(
        *("clustered and clustered-popular are similar", "random"),
        frozenset({"clustered", "clustered-popular"}),
        lambda cost: abs(cost["clustered-popular"] / cost["clustered"] - 1) <= SIMILAR,
    ),
    CostOrder(
        *("the key tree needs most", "popular"),
        _BEST,
        lambda cost: cost["key-tree"] >= max(cost.values()),
    ),
    CostOrder(
        *("clustered-popular needs fewest", "popular"),
        _BEST,
        lambda cost: cost["clustered-popular"] <= min(cost.values()),
    ),
    *(
        CostOrder(
            *("build-up has little effect beside simple", distribution),
            _CACHES,
            lambda cost: cost["build-up"] >= (1 - LITTLE) * cost["simple"],
        )
        for distribution in ("random", "popular")
    ),
)


def claims(rows: Sequence[Row]) -> list[str]:
    """A sentence a claim and cache: the ratio for every N, and where it is as claimed."""
    costs = _costs(rows)
    told = []
    for cache in sorted({c for _, c, _ in costs}):
        for claim in CLAIMS:
            ratios = {
                n: cost[claim.worse] / cost[claim.better]
                for (distribution, c, n), cost in costs.items()
                if (distribution, c) == (claim.distribution, cache)
            }
            holds = [n for n, ratio in ratios.items() if claim.low <= ratio <= claim.high]
            seen = ", ".join(f"{n:,}: {ratio:.2f}" for n, ratio in ratios.items())
            about = f"{claim.distribution} groups, C = {cache:,}: {claim.text}"
            told.append(f"{about}: holds {_where(holds, 'N')} (times the throughput: {seen})")
    return told


def orders(rows: Sequence[Row]) -> list[str]:
    """A sentence a statement, cache and number of subscribers, as far as the algorithms it speaks of are there."""
    costs = _costs(rows)
    told = []
    for order in ORDERS:
        asked = {
            (c, n): order.holds(cost)
            for (distribution, c, n), cost in costs.items()
            if distribution == order.distribution and order.algorithms <= cost.keys()
        }
        if not asked:
            continue
        caches = sorted({c for c, _ in asked})
        # Of several caches and one N, as in figure 8, the caches are listed; otherwise the numbers of subscribers.
        if len({n for _, n in asked}) == 1:
            told.append(_said(order, "", _where([c for (c, _), holds in sorted(asked.items()) if holds], "C")))
        else:
            told += [
                _said(
                    order,
                    f", C = {cache:,}",
                    _where([n for (c, n), h in sorted(asked.items()) if h and c == cache], "N"),
                )
                for cache in caches
            ]
    return told


def _said(order: CostOrder, about: str, where: str) -> str:
    return f"{order.distribution} groups{about}: {order.text}: holds {where}"


def _where(holds: Sequence[int], name: str) -> str:
    return f"at {name} = " + ", ".join(f"{n:,}" for n in holds) if holds else "nowhere"


def _costs(rows: Sequence[Row]) -> dict[tuple[str, int, int], dict[str, float]]:
    """By distribution, cache and subscribers: what each algorithm costs."""
    costs: dict[tuple[str, int, int], dict[str, float]] = {}
    for row in rows:
        at = str(row["distribution"]), int(str(row["cache"])), int(str(row["subscribers"]))
        costs.setdefault(at, {})[str(row["algorithm"])] = float(str(row["simulated"]))
    return dict(sorted(costs.items()))
