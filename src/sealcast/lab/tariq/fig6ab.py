"""`tariq/fig6a` and `tariq/fig6b`: connection delay against peers, attributes and out-degree, secure and not.

Each point joins that many simulated peers, which run the real nodes, one after the other into trees that grow. Three
costs of cryptography: none; ours, measured here; and as much for each opened request as explains the overhead that the
paper printed, since its tables of costs did not survive.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final

from sealcast.lab.points import run_all
from sealcast.lab.report import Curve, Panel, Report, Row, Told, columns
from sealcast.lab.tariq.costs import NO_SECURITY, CryptoCosts, measured_costs
from sealcast.lab.tariq.joining import JoinPoint, JoinResult, averaged, degree_of, measure_joins, work_of

PEERS: Final = (64, 128, 256, 512, 1_024, 2_048)
ATTRIBUTES: Final = (1, 2, 4, 8, 16)
DEGREES: Final = (3, 4, 6, 8, 12, 16, 24, 32)
#: Of the skewed workload.
HOT_SPOTS: Final = 4
SEEDS: Final = (1, 2)
#: More peers than these are simulated once: they are many enough to average over.
AVERAGED: Final = 512
#: The paper's overhead, in milliseconds.
PRINTED: Final = (230.0, 300.0)
#: Seconds for each opened request at which the overhead comes out about as printed.
SLOW_REQUEST: Final = 0.065
NONE, OURS, SLOW = "without security", "with ours", f"with {1000 * SLOW_REQUEST:.0f} ms a request"
_cells: Final = columns(
    "cell", "workload", "printed", "simulated", "overhead", "first search", "all", "depth", "opened", "agrees"
)

Found = Mapping[JoinPoint, JoinResult]


def fig6a(quick: bool, told: Told) -> Report:
    costs = _costs(quick)
    peers = PEERS[:3] if quick else PEERS
    points = [
        JoinPoint(number, degree_of(number), hot_spots=spots, costs=each)
        for number in peers
        for spots in (0, HOT_SPOTS)
        for each in costs.values()
    ]
    wide = 64 if quick else 256
    trees = [JoinPoint(wide, degree_of(wide), attributes=number, costs=costs[OURS]) for number in ATTRIBUTES]
    found = _run([*points, *trees], told, SEEDS[:1] if quick else SEEDS)
    rows = [*_rows(found, points, costs, "{0.peers} peers"), *_attribute_rows(found, trees)]
    curves = [_curves(found, costs, spots, lambda p: p.peers, points) for spots in (0, HOT_SPOTS)]
    panels = [
        Panel("connection delay, uniform", "peers", "milliseconds", curves[0], log_x=True),
        Panel(f"connection delay, {HOT_SPOTS} hot spots", "peers", "milliseconds", curves[1], log_x=True),
        Panel(f"connection delay of {wide} peers", "attributes", "milliseconds", _tree_curves(found, trees)),
    ]
    return _report("tariq/fig6a", rows, found, points, costs, panels)


def fig6b(quick: bool, told: Told) -> Report:
    costs = _costs(quick)
    peers, degrees = (128, DEGREES[1::2]) if quick else (1_024, DEGREES)
    points = [
        JoinPoint(peers, degree, hot_spots=spots, costs=each)
        for degree in degrees
        for spots in (0, HOT_SPOTS)
        for each in costs.values()
    ]
    found = _run(points, told, SEEDS[:1])
    rows = list(_rows(found, points, costs, "out-degree {0.degree}"))
    for spots in (0, HOT_SPOTS):
        kin = [point for point in points if point.hot_spots == spots and point.costs is costs[NONE]]
        falls = found[kin[0]].first > found[kin[-1]].first
        rows.append(
            _cells(
                cell="delay falls with the out-degree",
                workload=kin[0].workload,
                printed="significantly",
                simulated=f"{found[kin[0]].first:.0f} to {found[kin[-1]].first:.0f} ms",
                agrees=falls,
            )
        )
    panels = [
        Panel(
            f"connection delay, {peers} peers, {'uniform' if not spots else f'{spots} hot spots'}",
            "out-degree",
            "milliseconds",
            _curves(found, costs, spots, lambda p: p.degree, points),
        )
        for spots in (0, HOT_SPOTS)
    ]
    return _report("tariq/fig6b", rows, found, points, costs, panels)


def _costs(quick: bool) -> dict[str, CryptoCosts]:
    ours = measured_costs(5 if quick else 25)
    return {NONE: NO_SECURITY, OURS: ours, SLOW: replace(ours, open_request=SLOW_REQUEST)}


def _run(points: Sequence[JoinPoint], told: Told, seeds: Sequence[int]) -> Found:
    kin = {
        point: [replace(point, seed=seed) for seed in (seeds if point.peers <= AVERAGED else seeds[:1])]
        for point in points
    }
    asked = list(dict.fromkeys(each for several in kin.values() for each in several))
    found = dict(zip(asked, run_all(asked, measure_joins, told, work_of), strict=True))
    return {point: averaged([found[each] for each in several]) for point, several in kin.items()}


# --- rows -----------------------------------------------------------------------------------------------


def _rows(found: Found, points: Sequence[JoinPoint], costs: Mapping[str, CryptoCosts], cell: str) -> Iterator[Row]:
    low, high = PRINTED
    for point in points:
        name = next(name for name, each in costs.items() if each == point.costs)
        result, plain = found[point], found[replace(point, costs=NO_SECURITY)]
        overhead = result.first - plain.first
        yield _cells(
            cell=f"{cell.format(point)}, {name}",
            workload=point.workload,
            printed=None if name == NONE else f"{low:.0f} to {high:.0f} ms more",
            simulated=f"{result.first:.0f} ms",
            overhead=None if name == NONE else f"{overhead:+.0f} ms",
            **_details(result),
            agrees=name in (NONE, SLOW) or overhead <= high,
        )


def _attribute_rows(found: Found, trees: Sequence[JoinPoint]) -> Iterator[Row]:
    base = found[trees[0]].first
    for point in trees:
        result = found[point]
        yield _cells(
            cell=f"{point.attributes} attributes, a place in one tree",
            workload=point.workload,
            printed="independent of the attributes",
            simulated=f"{result.first:.0f} ms; all its places {result.complete:.0f} ms",
            **_details(result),
            agrees=0.75 <= result.first / base <= 1.34,
        )


def _details(result: JoinResult) -> dict[str, object]:
    return {
        "first search": f"{result.first_share:.0%}",
        "all": f"{result.mean:.0f} ms",
        "depth": f"{result.depth:.1f}, at most {result.deepest:.0f}",
        "opened": round(result.opened, 1),
    }


def _report(
    name: str,
    rows: Sequence[Row],
    found: Found,
    points: Sequence[JoinPoint],
    costs: Mapping[str, CryptoCosts],
    panels: Sequence[Panel],
) -> Report:
    slow = [p for p in points if p.costs == costs[SLOW]]
    steps = [(found[p].first - found[replace(p, costs=NO_SECURITY)].first) / (1000 * SLOW_REQUEST) for p in slow]
    path = sum(steps) / len(steps)
    notes = (
        f"an opened request costs {1000 * costs[OURS].open_request:.2f} ms here (profile A, depth 8, one pairing); "
        f"about {path:.1f} are opened one after the other on the way to a place, so that security adds "
        f"{1000 * path * costs[OURS].open_request:.0f} ms; less than the noise of other trees growing, some 20 ms",
        f"the printed overhead is {PRINTED[0]:.0f} to {PRINTED[1]:.0f} ms, on a 2 GHz Centrino with PBC: "
        f"{PRINTED[0] / path:.0f} to {PRINTED[1] / path:.0f} ms a request, whose slots it had to try one by one",
        "a place is found when the parent's first heartbeat arrives: request, offer, acceptance and heartbeat; the "
        "paper stops when the parent decides",
        "simulated: of newcomers that found a place with their first search, whose share stands beside it; others "
        "waited for a timeout of 2 s or several, which the paper does not state, and some displaced a peer; all: the "
        "mean of both",
        "a search takes as long with many attributes as with one; to have a place in each of many trees takes longer, "
        "since it takes as long as the slowest of these searches",
        "opened: requests that all peers together opened for one place, most of them beside the path",
        "out-degree log2 N where it is not stated, links of 24 to 134 ms, newcomers every 250 ms, each knows 3 peers; "
        f"{len(SEEDS)} seeds up to {AVERAGED} peers",
    )
    return Report(name, rows, all(bool(row["agrees"]) for row in rows), notes, panels)


# --- pictures -------------------------------------------------------------------------------------------


def _curves(
    found: Found,
    costs: Mapping[str, CryptoCosts],
    spots: int,
    x: Callable[[JoinPoint], float],
    points: Sequence[JoinPoint],
) -> list[Curve]:
    lines = []
    for name, each in costs.items():
        kin = [point for point in points if point.hot_spots == spots and point.costs == each]
        lines.append(Curve(name, [x(point) for point in kin], [found[point].first for point in kin]))
    return lines


def _tree_curves(found: Found, trees: Sequence[JoinPoint]) -> list[Curve]:
    at = [point.attributes for point in trees]
    return [
        Curve("a place in one tree, first search", at, [found[point].first for point in trees]),
        Curve("a place in one tree, any search", at, [found[point].mean for point in trees]),
        Curve("places in all trees, any search", at, [found[point].complete for point in trees]),
    ]
