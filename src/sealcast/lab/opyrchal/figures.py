"""Figures 6, 7 and 8 of paper 000: encryptions an event, against subscribers and against the size of the cache.

The paper does not print |S| and p for them; 10,000 and 0.9 are used. A point agrees if it comes within three standard
errors of a closed form that is exact for what is simulated; where there is none, nothing is said about agreement. Of
many points some lie outside by chance, so that those are simulated again, on other groups and more of them, and the
second outcome decides: what is wrong stays wrong.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from sealcast.groupkeys import closed_forms
from sealcast.groupkeys.catalog import Setting
from sealcast.groupkeys.clusters import by_rule, split
from sealcast.lab.groups import POPULAR_GROUPS, POPULAR_SHARE
from sealcast.lab.opyrchal.claims import claims, orders
from sealcast.lab.points import Point, simulate_all
from sealcast.lab.report import Curve, Look, Panel, Report, Row, Told
from sealcast.lab.tally import Tally

EVENTS: Final = 15_000
SEED: Final = 6
ALL: Final = ("simple", "build-up", "clustered", "clustered-popular", "key-tree")
BEST: Final = ("clustered", "clustered-popular", "key-tree")
DISTRIBUTIONS: Final = ("random", "popular")
#: Events before counting, in entries of the cache: all caches are warm.
WARM: Final = 3
#: A point outside three standard errors: other groups, and so many times as many events.
AGAIN_SEED: Final = 1_000_003
AGAIN_EVENTS: Final = 4
LOOKS: Final = {
    Look.COMPUTED: "the paper's equations",
    Look.EXACT: "exact mean; Che where popular",
    Look.BOUND: "no scheme with as many keys is below",
}


@dataclass(frozen=True, slots=True)
class Plot:
    """Which points a figure has."""

    algorithms: Sequence[str]
    subscribers: Sequence[int]
    caches: Sequence[int]


FIG6: Final = Plot(ALL, (100, 250, 500, 750, 1_000, 1_500, 2_000), (10_000,))
FIG7: Final = Plot(BEST, (100, 500, 1_000, 2_000, 3_000, 5_000), (10_000, 20_000))
FIG8: Final = Plot(ALL, (1_000,), (1_000, 2_000, 5_000, 10_000, 20_000, 50_000, 100_000))
QUICK: Final = {
    "opyrchal/fig6": Plot(ALL, (100, 500, 1_000), (1_000,)),
    "opyrchal/fig7": Plot(BEST, (100, 500, 1_000), (1_000, 2_000)),
    "opyrchal/fig8": Plot(ALL, (200,), (500, 1_000, 2_000)),
}


def fig6(quick: bool, told: Told) -> Report:
    return _against_subscribers("opyrchal/fig6", FIG6, quick, told)


def fig7(quick: bool, told: Told) -> Report:
    return _against_subscribers("opyrchal/fig7", FIG7, quick, told)


def fig8(quick: bool, told: Told) -> Report:
    rows = _rows(QUICK["opyrchal/fig8"] if quick else FIG8, quick, told)
    title = f"groups, N = {rows[0]['subscribers']:,}"
    panels = [_panel(f"{d} {title}", "cache", "cache entries", rows, d) for d in DISTRIBUTIONS]
    return _report("opyrchal/fig8", rows, panels, [*orders(rows), *_quick_note(quick)])


def _against_subscribers(name: str, plot: Plot, quick: bool, told: Told) -> Report:
    rows = _rows(QUICK[name] if quick else plot, quick, told)
    caches = sorted({int(str(row["cache"])) for row in rows})
    panels = [
        _panel(f"{d} groups, C = {c:,}", "subscribers", "subscribers", [r for r in rows if r["cache"] == c], d)
        for c in caches
        for d in DISTRIBUTIONS
    ]
    return _report(name, rows, panels, [*claims(rows), *orders(rows), *_quick_note(quick)])


# --- points ---------------------------------------------------------------------------------------------


def _rows(plot: Plot, quick: bool, told: Told) -> Sequence[Row]:
    points = [
        Point(algorithm, Setting(n, cache), distribution, EVENTS // (5 if quick else 1), WARM * cache, SEED + n)
        for distribution in DISTRIBUTIONS
        for cache in plot.caches
        for n in plot.subscribers
        for algorithm in plot.algorithms
    ]
    rows = [_row(point, found) for point, found in zip(points, simulate_all(points, told), strict=True)]
    outside = [at for at, row in enumerate(rows) if row["agrees"] is False]
    if outside:
        others = [
            replace(p, seed=p.seed + AGAIN_SEED, events=AGAIN_EVENTS * p.events)
            for p in map(points.__getitem__, outside)
        ]
        for at, point, found in zip(outside, others, simulate_all(others, told), strict=True):
            rows[at] = {**rows[at], **_judged(point, found, "again")}
    return rows


def _row(point: Point, found: Tally) -> dict[str, object]:
    exact = _exact(point, found)
    return {
        "algorithm": point.algorithm,
        "distribution": point.distribution,
        "subscribers": point.setting.subscribers,
        "cache": point.setting.cache,
        "clusters": found.clusters,
        "computed": _rounded(_computed(point)),
        "predicted": _rounded(_che(point, found) if exact is None else exact),
        "exact": _rounded(exact),
        "bound": _rounded(_bound(point)),
        **_judged(point, found, "simulated"),
        "again": None,
    }


def _judged(point: Point, found: Tally, name: str) -> dict[str, object]:
    exact = _exact(point, found)
    return {
        name: round(found.mean, 3),
        "error": round(found.error, 4),
        "agrees": None if exact is None else abs(found.mean - exact) <= 3 * found.error,
    }


def _exact(point: Point, found: Tally) -> float | None:
    """The mean of what is simulated, where a closed form is exact for it."""
    n, c = point.setting.subscribers, point.setting.cache
    if point.algorithm == "key-tree":
        return closed_forms.key_tree(n) if point.distribution == "random" else None
    if point.algorithm == "simple" and point.distribution == "random" and n >= 64:
        return closed_forms.naive(n)  # no group of so many comes back
    if point.distribution == "random" and found.clusters is not None and n >= 64:
        behind = c if point.algorithm == "clustered" else c - c // 2
        return closed_forms.exact_mean(split(n, found.clusters), split(behind, found.clusters))
    return None


def _computed(point: Point) -> float | None:
    """The mean by the paper's own equations, with whole numbers of clusters by its rule."""
    if point.algorithm == "build-up":
        return None
    n, c = point.setting.subscribers, point.setting.cache
    k = by_rule(n, c if point.algorithm == "clustered" else c - c // 2)
    return closed_forms.by_equation(point.algorithm, point.distribution, n, c, k, POPULAR_GROUPS, POPULAR_SHARE)


def _che(point: Point, found: Tally) -> float | None:
    """Close to the mean of what is simulated on the popular set: hits of whole groups by Che's approximation, parts in
    clusters as random as those of random groups."""
    n, c = point.setting.subscribers, point.setting.cache
    if point.distribution != "popular":
        return None
    if point.algorithm == "key-tree":
        return closed_forms.key_tree(n)
    if point.algorithm == "simple":
        return closed_forms.simple_popular_lru(n, c, point.popular, point.share)
    if found.clusters is None:
        return None
    sizes = split(n, found.clusters)
    if point.algorithm == "clustered":
        return closed_forms.exact_mean(sizes, split(c, found.clusters))
    return closed_forms.clustered_popular_popular_lru(n, c, sizes, point.popular, point.share)


def _bound(point: Point) -> float | None:
    """The fewest that any scheme needs on random groups, with a key for each entry and each subscriber."""
    n, c = point.setting.subscribers, point.setting.cache
    return closed_forms.least_mean(n, n + c) if point.distribution == "random" else None


# --- the picture and the words --------------------------------------------------------------------------


def _panel(title: str, x: str, x_label: str, rows: Sequence[Row], distribution: str) -> Panel:
    drawn = [row for row in rows if row["distribution"] == distribution]
    lines = [
        _line(algorithm, x, y, [row for row in drawn if row["algorithm"] == algorithm], look)
        for y, look in (("simulated", Look.MEASURED), ("computed", Look.COMPUTED), ("predicted", Look.EXACT))
        for algorithm in dict.fromkeys(str(row["algorithm"]) for row in rows)
    ]
    lines.append(_line("bound", x, "bound", drawn, Look.BOUND))
    shown = [line for line in lines if line.x]
    looks = {look: text for look, text in LOOKS.items() if any(line.look is look for line in shown)}
    return Panel(title, x_label, "encryptions an event", shown, log_x=x == "cache", log_y=True, looks=looks)


def _line(label: str, x: str, y: str, rows: Sequence[Row], look: Look) -> Curve:
    points = dict(sorted((float(str(r[x])), float(str(r[y]))) for r in rows if r[y] is not None))
    return Curve(label, tuple(points), tuple(points.values()), look)


def _report(name: str, rows: Sequence[Row], panels: Sequence[Panel], notes: Sequence[str]) -> Report:
    return Report(name, rows, all(row["agrees"] is not False for row in rows), [*_outside(rows), *notes], panels)


def _outside(rows: Sequence[Row]) -> list[str]:
    """How many points were compared, which fell outside at first, and what became of them."""
    compared = [row for row in rows if row["agrees"] is not None]
    again = [row for row in compared if row["again"] is not None]
    told = f"{len(compared)} points have an exact closed form; {len(again)} lay outside three standard errors of it"
    if not again:
        return [told]
    still = [row for row in again if row["agrees"] is False]
    named = "; ".join(_named(row) for row in again)
    return [
        f"{told} (about {0.005 * len(compared):.1f} would by chance) and were simulated again on other groups, "
        f"{AGAIN_EVENTS} times as many: {len(still)} lie outside again ({named})"
    ]


def _named(row: Mapping[str, object]) -> str:
    return (
        f"{row['algorithm']} at N = {row['subscribers']:,}, C = {row['cache']:,}: exact {row['exact']}, "
        f"simulated {row['simulated']}, then {row['again']}"
    )


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 3)


def _quick_note(quick: bool) -> list[str]:
    return ["quick: smaller caches, fewer subscribers and events than the paper's figure"] if quick else []
