"""Table 1 of paper 000: calculated mean numbers of encryptions, beside what its equations give and what happens.

The table is a calculation, so that a cell agrees if the equations give what is printed, to within one of its last digit
(the paper rounds some cells and truncates others). Where simulation departs from the equations by more than a tenth,
the notes say so: the equations leave out that some clusters are empty, suppose every cache smart, and divide
subscribers into clusters of 8.77.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from sealcast.groupkeys import closed_forms
from sealcast.groupkeys.catalog import Setting
from sealcast.groupkeys.clusters import by_table_rule, root, split
from sealcast.lab.points import Point, simulate_all
from sealcast.lab.report import Curve, Look, Panel, Report, Row, Told

EVENTS: Final = 15_000
SEED: Final = 2_001
TOLERANCE: Final = 0.1


@dataclass(frozen=True, slots=True)
class Scale:
    """One half of the table."""

    name: str
    n: int
    c: int
    s: int
    p: float


SMALL: Final = Scale("small", 100, 10_000, 10_000, 0.9)
LARGE: Final = Scale("large", 1_000, 100_000, 100_000, 0.8)

#: As printed: uniform and popular groups, for the small and the large half.
PRINTED: Final = {
    ("naive", "small"): ("50", "50"),
    ("simple", "small"): ("50", "6"),
    ("clustered", "small"): ("11", "~11"),
    ("clustered-popular", "small"): ("17", "6.7"),
    ("naive", "large"): ("500", "500"),
    ("simple", "large"): ("500", "101"),
    ("clustered", "large"): ("109", "~109"),
    ("clustered-popular", "large"): ("112", "68"),
}
#: Events before counting starts. Clusters see everything soon; a count of frequencies, which has to tell apart what
#: was asked for twice from what never comes back, takes this many events a popular group.
_WARM_CLUSTERS: Final = 20_000
_WARM_FREQUENCIES: Final = 8


@dataclass(frozen=True, slots=True)
class Cell:
    algorithm: str
    distribution: str
    scale: Scale

    @property
    def name(self) -> str:
        return f"{self.scale.name}, {self.algorithm}, {'uniform' if self.distribution == 'random' else 'popular'}"

    @property
    def printed(self) -> str:
        return PRINTED[self.algorithm, self.scale.name][self.distribution == "popular"]

    @property
    def clusters(self) -> int | None:
        if not self.algorithm.startswith("clustered"):
            return None
        return by_table_rule(self.scale.n, self.scale.c // (2 if self.algorithm == "clustered-popular" else 1))

    def computed(self, clusters: float | None = None) -> float:
        """The mean by the equations, with the table's number of clusters or the one that is given."""
        of, k = self.scale, clusters or self.clusters or 1
        return closed_forms.by_equation(self.algorithm, self.distribution, of.n, of.c, k, of.s, of.p)

    def point(self) -> Point:
        policy = "lru" if self.algorithm == "clustered" else "frequency"
        setting = Setting(self.scale.n, self.scale.c, self.clusters, policy)
        warmup = _WARM_CLUSTERS
        if self.distribution == "popular" and policy == "frequency":
            warmup = _WARM_FREQUENCIES * self.scale.s
        return Point(self.algorithm, setting, self.distribution, EVENTS, warmup, SEED, self.scale.s, self.scale.p)


def cells() -> list[Cell]:
    return [
        Cell(algorithm, distribution, SMALL if half == "small" else LARGE)
        for algorithm, half in PRINTED
        for distribution in ("random", "popular")
    ]


def run(quick: bool, told: Told) -> Report:
    """Computes and simulates all sixteen cells; `quick` simulates the small half only."""
    table = cells()
    simulated = [cell for cell in table if not (quick and cell.scale is LARGE)]
    results = dict(zip(simulated, simulate_all([cell.point() for cell in simulated], told), strict=True))
    rows: list[Row] = [
        {
            "cell": cell.name,
            "printed": float(cell.printed.lstrip("~")),
            "computed": round(cell.computed(), 3),
            "simulated": round(results[cell].mean, 3) if cell in results else None,
            "clusters": cell.clusters,
            "agrees": agrees(cell.printed, cell.computed()),
        }
        for cell in table
    ]
    departures = [_departure(cell, found.mean) for cell, found in results.items() if departs(cell, found.mean)]
    notes = [*_notes(), *departures, *(["quick: the large half is computed, not simulated"] if quick else [])]
    return Report("opyrchal/table1", rows, all(row["agrees"] for row in rows), notes, _panels(rows))


def _panels(rows: Sequence[Row]) -> list[Panel]:
    """The table as a picture: a half a panel, printed and computed and simulated in a column."""
    panels = []
    for scale in (SMALL, LARGE):
        mine = [row for row in rows if str(row["cell"]).startswith(f"{scale.name}, ")]
        lines = [
            Curve(name, [at for at, _ in shown], [y for _, y in shown], look)
            for name, look in (("printed", Look.PRINTED), ("computed", Look.COMPUTED), ("simulated", Look.MEASURED))
            for shown in [[(at, float(str(r[name]))) for at, r in enumerate(mine) if r[name] is not None]]
            if shown
        ]
        ticks = [str(row["cell"]).partition(", ")[2] for row in mine]
        title = f"{scale.name}: N = {scale.n:,}, C = |S| = {scale.c:,}, p = {scale.p}"
        panels.append(Panel(title, "", "mean encryptions an event", lines, log_y=True, ticks=ticks))
    return panels


def agrees(printed: str, computed: float) -> bool:
    digits = printed.lstrip("~")
    unit = 10.0 ** -len(digits.partition(".")[2])
    return abs(float(digits) - computed) < unit


def departs(cell: Cell, simulated: float) -> bool:
    return abs(simulated - cell.computed()) > TOLERANCE * cell.computed()


def _departure(cell: Cell, simulated: float) -> str:
    said = f"{cell.name}: simulated {simulated:.1f}, where the equation says {cell.computed():.1f}"
    if cell.clusters is None:
        return said
    sizes = split(cell.scale.n, cell.clusters)
    exact = closed_forms.exact_mean(sizes, split(cell.scale.c - cell.scale.c // 2, cell.clusters))
    return (
        f"{said}: {cell.scale.n / cell.clusters:.2f} subscribers a cluster are {sizes.count(max(sizes))} clusters of "
        f"{max(sizes)} and {sizes.count(min(sizes))} of {min(sizes)}, which cost {exact:.1f} on uniform groups"
    )


def _notes() -> list[str]:
    odd = Cell("clustered-popular", "popular", SMALL)
    real = root(SMALL.n, SMALL.c // 2)
    unrounded = odd.computed(real)
    return [
        f"small, clustered-popular, popular: the paper prints {odd.printed} and says 11 clusters, which give "
        f"{odd.computed():.2f}; the unrounded number of clusters, {real:.2f}, gives {unrounded:.2f}",
        "numbers of clusters are the roots of 2^(N/K) = C/K, rounded; for large, clustered-popular, C_K exceeds 2^N_K, "
        "and the equation's probability of a hit is 1.0034",
        "simulated with exact frequencies where the paper supposes a smart cache, and least recently used in clusters",
    ]
