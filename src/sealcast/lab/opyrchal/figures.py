"""Figures 6, 7 and 8 of paper 000: encryptions an event, against subscribers and against the size of the cache.

The paper does not print |S| and p for them; 10,000 and 0.9 are used. A point agrees if it comes within three standard
errors of a closed form that is exact for what is simulated; where there is none, nothing is said about agreement.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from sealcast.groupkeys import closed_forms
from sealcast.groupkeys.catalog import Setting
from sealcast.groupkeys.clusters import by_rule, split
from sealcast.lab.groups import POPULAR_GROUPS, POPULAR_SHARE
from sealcast.lab.opyrchal.claims import claims
from sealcast.lab.points import Point, simulate_all
from sealcast.lab.report import Line, Panel, Report, Row, Told
from sealcast.lab.tally import Tally

EVENTS: Final = 15_000
SEED: Final = 6
ALL: Final = ("simple", "build-up", "clustered", "clustered-popular", "key-tree")
BEST: Final = ("clustered", "clustered-popular", "key-tree")
DISTRIBUTIONS: Final = ("random", "popular")
#: Events before counting, in entries of the cache: all caches are warm.
WARM: Final = 3


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
    panels = [
        Panel(f"{d} groups, N = {rows[0]['subscribers']:,}", "cache entries", "encryptions an event", lines, log_x=True)
        for d in DISTRIBUTIONS
        for lines in [_lines(rows, "cache", "simulated", d) + _lines(rows, "cache", "computed", d)]
    ]
    return _report("opyrchal/fig8", rows, panels, _quick_note(quick))


def _against_subscribers(name: str, plot: Plot, quick: bool, told: Told) -> Report:
    rows = _rows(QUICK[name] if quick else plot, quick, told)
    caches = sorted({int(str(row["cache"])) for row in rows})
    panels = [
        Panel(f"{d} groups, C = {c:,}", "subscribers", "encryptions an event", lines)
        for c in caches
        for d in DISTRIBUTIONS
        for lines in [_lines([row for row in rows if row["cache"] == c], "subscribers", "simulated", d)]
    ]
    return _report(name, rows, panels, [*claims(rows), *_quick_note(quick)])


def _rows(plot: Plot, quick: bool, told: Told) -> list[Row]:
    points = [
        Point(algorithm, Setting(n, cache), distribution, EVENTS // (5 if quick else 1), WARM * cache, SEED + n)
        for distribution in DISTRIBUTIONS
        for cache in plot.caches
        for n in plot.subscribers
        for algorithm in plot.algorithms
    ]
    return [_row(point, found) for point, found in zip(points, simulate_all(points, told), strict=True)]


def _row(point: Point, found: Tally) -> Row:
    exact = _exact(point, found)
    return {
        "algorithm": point.algorithm,
        "distribution": point.distribution,
        "subscribers": point.setting.subscribers,
        "cache": point.setting.cache,
        "clusters": found.clusters,
        "computed": _rounded(_computed(point)),
        "exact": _rounded(exact),
        "simulated": round(found.mean, 3),
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
    """By the paper's own equations, with whole numbers of clusters by its rule."""
    n, c = point.setting.subscribers, point.setting.cache
    popular = point.distribution == "popular"
    s, p = POPULAR_GROUPS, POPULAR_SHARE
    equations: dict[str, Callable[[], float]] = {
        "simple": lambda: (
            closed_forms.simple_popular(n, min(c, s), s, p) if popular else closed_forms.simple_random(n, c)
        ),
        "clustered": lambda: closed_forms.clustered(n, c, by_rule(n, c)),
        "clustered-popular": lambda: (
            closed_forms.clustered_popular_popular(n, min(c, 2 * s), by_rule(n, c - c // 2), s, p)
            if popular
            else closed_forms.clustered_popular_random(n, c, by_rule(n, c - c // 2))
        ),
        "key-tree": lambda: closed_forms.key_tree(n),
    }
    return equations[point.algorithm]() if point.algorithm in equations else None


def _lines(rows: Sequence[Row], x: str, y: str, distribution: str) -> list[Line]:
    lines = []
    for algorithm in dict.fromkeys(str(row["algorithm"]) for row in rows):
        mine = [r for r in rows if (r["algorithm"], r["distribution"]) == (algorithm, distribution)]
        shown = [(float(str(r[x])), float(str(r[y]))) for r in mine if r[y] is not None]
        if shown:
            xs, ys = zip(*sorted(shown), strict=True)
            label = algorithm if y == "simulated" else f"{algorithm}, {y}"
            lines.append(Line(label, xs, ys, dashed=y != "simulated"))
    return lines


def _report(name: str, rows: Sequence[Row], panels: Sequence[Panel], notes: Sequence[str]) -> Report:
    return Report(name, rows, all(row["agrees"] is not False for row in rows), [*_outside(rows), *notes], panels)


def _outside(rows: Sequence[Row]) -> list[str]:
    """How many points were compared, and which fell outside: of many, some do by chance, and a reader must see that.

    The rule stays three standard errors a point and the seed stays what it is. Whoever doubts a point runs it again
    with other seeds; choosing the seed or the rule by the outcome would make agreement mean nothing.
    """
    compared = [row for row in rows if row["agrees"] is not None]
    outside = [
        f"{row['algorithm']} at N = {row['subscribers']:,}, C = {row['cache']:,} "
        f"({(float(str(row['simulated'])) - float(str(row['exact']))) / float(str(row['error'])):+.1f})"
        for row in compared
        if row["agrees"] is False
    ]
    told = f"{len(compared)} points have an exact closed form; {len(outside)} lie outside three standard errors of it"
    return [told + (f": {', '.join(outside)}; about {0.005 * len(compared):.1f} would by chance" if outside else "")]


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 3)


def _quick_note(quick: bool) -> list[str]:
    return ["quick: smaller caches, fewer subscribers and events than the paper's figure"] if quick else []
