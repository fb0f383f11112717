"""`tariq/fig6c`: from an event's dissemination until it is decrypted and verified, at everybody who wants it.

160 publishers publish 10 events each. The peers run the real nodes, and an event goes from its publisher to the root
and down the trees. As in figure 6a there are three costs of cryptography: none, ours, and a slow one that explains the
paper's overhead.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from statistics import fmean
from typing import Final

from sealcast.lab.points import run_all
from sealcast.lab.report import Curve, Panel, Report, Row, Told, columns
from sealcast.lab.tariq.costs import NO_SECURITY, CryptoCosts, measured_costs
from sealcast.lab.tariq.ideal import DEPTH, ideal_event
from sealcast.lab.tariq.joining import JoinPoint, build, degree_of
from sealcast.lab.tariq.workloads import Workload, attribute_names
from sealcast.overlay.peers.port import Dissemination
from sealcast.wire.peers import event_id

NAME: Final = "tariq/fig6c"
PEERS: Final = (64, 128, 256, 512, 1_024, 2_048)
PUBLISHERS: Final = 160
EVENTS: Final = 10
HOT_SPOTS: Final = 4
#: The paper's overhead, in milliseconds.
PRINTED: Final = (150.0, 250.0)
#: Seconds between two events of all publishers together.
APART: Final = 0.1
#: Seconds for a seal, and for an opening with verification, at which the overhead comes out about as printed.
SLOW_OPENING: Final = 0.1
NONE, OURS, SLOW = "without security", "with ours", f"with {1000 * SLOW_OPENING:.0f} ms for a seal and for an opening"
_cells: Final = columns(
    "cell", "workload", "strategy", "printed", "simulated", "overhead", "deliveries", "missed", "depth", "agrees"
)


@dataclass(frozen=True, slots=True)
class SpreadPoint:
    """Peers that have joined, and how many events they get."""

    joined: JoinPoint
    publishers: int
    events: int
    dissemination: Dissemination = Dissemination.FLOODING


@dataclass(frozen=True, slots=True)
class SpreadResult:
    """Milliseconds, and what was counted."""

    mean: float
    #: Until the last one who wants it has it.
    last: float
    deliveries: int
    missed: int
    depth: float


def measure_spread(point: SpreadPoint) -> SpreadResult:
    asked = point.joined
    split = 2 if point.dissemination is Dissemination.ROUTING else 1
    # Joined without costs: only what the events go through counts.
    net = build(replace(asked, costs=NO_SECURITY), split, point.dissemination)
    net.set_costs(asked.costs)
    attributes = attribute_names(asked.attributes)
    work = Workload(random.Random(asked.seed + 2), asked.hot_spots)
    names = [name for name in net.peers if name != "root"]
    begin, sent = net.now + 5, dict[bytes, float]()
    for number in range(point.publishers):
        net.add(f"publisher{number}")
        net.join(f"publisher{number}")
    for number in range(point.publishers * point.events):
        event = ideal_event(f"publisher{number % point.publishers}", number, work.values(attributes))
        sent[event] = begin + number * APART
        net.at(sent[event], partial(net.publish, f"publisher{number % point.publishers}", event, asked.attributes))
    net.run(begin + len(sent) * APART + 60)
    delays, last, missed = [], [], 0
    for event, time in sent.items():
        peers = [net.peers[name] for name in names if net.peers[name].credentials.wants(event)]
        came = [1000 * (peer.delivered[event_id(event)] - time) for peer in peers if event_id(event) in peer.delivered]
        missed += len(peers) - len(came)
        delays += came
        last += [max(came)] if came else []
    depths = [depth for found in net.depths().values() for depth in found]
    return SpreadResult(fmean(delays), fmean(last), len(delays), missed, fmean(depths))


def run(quick: bool, told: Told) -> Report:
    ours = measured_costs(5 if quick else 25)
    slow = replace(ours, open_event=SLOW_OPENING, open_attribute=0.0, seal_event=SLOW_OPENING, seal_attribute=0.0)
    costs = {NONE: NO_SECURITY, OURS: ours, SLOW: slow}
    publishers, events = (16, 4) if quick else (PUBLISHERS, EVENTS)
    peers = PEERS[:3] if quick else PEERS
    points = [
        SpreadPoint(JoinPoint(number, degree_of(number), hot_spots=spots, costs=each), publishers, events)
        for number in peers
        for spots in (0, HOT_SPOTS)
        for each in costs.values()
    ]
    base = JoinPoint(peers[-2], degree_of(peers[-2]), costs=ours)
    points += [
        SpreadPoint(replace(base, attributes=number, longest=longest), publishers, events, how)
        for number, longest in ((1, DEPTH), (4, 2))
        for how in Dissemination
    ]
    points = list(dict.fromkeys(points))
    found = dict(zip(points, run_all(points, measure_spread, told, _work), strict=True))
    rows = list(_rows(found, costs))
    notes = (
        f"an event with one attribute takes {1000 * ours.sealing(1):.1f} ms to seal and sign here, and "
        f"{1000 * ours.opening(1):.1f} ms to open and verify; a peer on the way checks the publisher's signature and "
        f"the tags, {1000 * (ours.check_event + ours.tag_test):.2f} ms, and passes the event on before it opens it",
        f"the printed overhead, {PRINTED[0]:.0f} to {PRINTED[1]:.0f} ms, is on a 2 GHz Centrino with PBC; there a peer "
        "decrypts an event before it passes it on, so that the cost comes again at every level",
        f"{publishers} publishers x {events} events, {1000 * APART:.0f} ms apart; from sealing to verifying; one root",
        "missed: deliveries that were wanted and did not come",
    )
    return Report(NAME, rows, all(bool(row["agrees"]) for row in rows), notes, _panels(found, costs))


def _work(point: SpreadPoint) -> float:
    return point.joined.peers * point.joined.attributes * (10 + point.publishers * point.events / 40)


def _rows(found: Mapping[SpreadPoint, SpreadResult], costs: Mapping[str, CryptoCosts]) -> Iterator[Row]:
    low, high = PRINTED
    for point, result in found.items():
        name = next(name for name, each in costs.items() if each == point.joined.costs)
        plain = found.get(replace(point, joined=replace(point.joined, costs=NO_SECURITY)))
        overhead = None if plain is None or name == NONE else result.mean - plain.mean
        several = "" if point.joined.attributes == 1 else f", {point.joined.attributes} attributes"
        yield _cells(
            cell=f"{point.joined.peers} peers{several}, {name}",
            workload=point.joined.workload,
            strategy=str(point.dissemination),
            printed=None if overhead is None else f"{low:.0f} to {high:.0f} ms more",
            simulated=f"{result.mean:.0f} ms; the last {result.last:.0f} ms",
            overhead=None if overhead is None else f"{overhead:+.1f} ms",
            deliveries=result.deliveries,
            missed=result.missed,
            depth=round(result.depth, 1),
            agrees=not result.missed and (overhead is None or name == SLOW or overhead <= high),
        )


def _panels(found: Mapping[SpreadPoint, SpreadResult], costs: Mapping[str, CryptoCosts]) -> Sequence[Panel]:
    panels = []
    for spots in (0, HOT_SPOTS):
        lines = []
        for name, each in costs.items():
            kin = [
                point
                for point in found
                if point.joined.hot_spots == spots
                and point.joined.costs == each
                and (point.joined.attributes, point.dissemination) == (1, Dissemination.FLOODING)
            ]
            lines.append(Curve(name, [p.joined.peers for p in kin], [found[p].mean for p in kin]))
        title = f"dissemination delay, {'uniform' if not spots else f'{spots} hot spots'}"
        panels.append(Panel(title, "peers", "milliseconds", lines, log_x=True))
    return panels
