"""The five claims on throughput that paper 000 draws from its figures, looked at again for every N.

Throughput is inversely proportional to encryptions an event (figure 9), so that a claim "A has x % higher throughput
than B" reads: B needs 1 + x times the encryptions of A. The claims contradict one another; which of them hold, and
where, is the finding.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from sealcast.lab.report import Row


@dataclass(frozen=True, slots=True)
class Claim:
    """`better` has `low` to `high` times the throughput of `worse`."""

    text: str
    distribution: str
    better: str
    worse: str
    low: float
    high: float


#: "About" is taken as a fifth up or down.
CLAIMS: Final = (
    Claim("clustered-popular about 100 % over the key tree", "popular", "clustered-popular", "key-tree", 1.6, 2.4),
    Claim("clustered-popular about 33 % over the key tree", "random", "clustered-popular", "key-tree", 1.07, 1.6),
    Claim("clustered-popular about 50 % over clustered", "popular", "clustered-popular", "clustered", 1.2, 1.8),
    Claim("clustered-popular 10 to 20 % below clustered", "random", "clustered-popular", "clustered", 0.8, 0.9),
    Claim("the key tree about 40 % below clustered", "random", "key-tree", "clustered", 0.48, 0.72),
)


def claims(rows: Sequence[Row]) -> list[str]:
    """A sentence a claim and cache: the ratio for every N, and where it is as claimed."""
    costs = {
        (row["algorithm"], row["distribution"], int(str(row["cache"])), int(str(row["subscribers"]))): float(
            str(row["simulated"])
        )
        for row in rows
    }
    told = []
    for cache in sorted({key[2] for key in costs}):
        for claim in CLAIMS:
            ratios = {
                n: costs[claim.worse, claim.distribution, cache, n] / costs[claim.better, claim.distribution, cache, n]
                for n in sorted({key[3] for key in costs})
            }
            holds = [n for n, ratio in ratios.items() if claim.low <= ratio <= claim.high]
            seen = ", ".join(f"{n:,}: {ratio:.2f}" for n, ratio in ratios.items())
            where = "at N = " + ", ".join(f"{n:,}" for n in holds) if holds else "nowhere"
            about = f"{claim.distribution} groups, C = {cache:,}: {claim.text}"
            told.append(f"{about}: holds {where} (times the throughput: {seen})")
    return told
