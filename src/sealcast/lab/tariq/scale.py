"""`tariq/scale`: what grows with subscribers, and what does not.

Section 2.3 demands that the keys to be managed and the cost of a subscription do not depend on the number of
subscribers, and that rekeying costs little. The first half counts keys of random conjunctions of ranges, and prices a
new epoch with what the real key server takes. The second half counts messages and false positives of simulated peers,
one-hop flooding against multi-credential routing.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from statistics import fmean
from typing import Final

from sealcast.lab.points import run_all
from sealcast.lab.report import Curve, Panel, Report, Row, Told, columns
from sealcast.lab.tariq.costs import CryptoCosts, measured_costs
from sealcast.lab.tariq.ideal import DEPTH, Bits, ideal_event
from sealcast.lab.tariq.joining import JoinPoint, build, degree_of
from sealcast.lab.tariq.workloads import Workload, attribute_names
from sealcast.overlay.peers.port import Dissemination
from sealcast.protections.attribute import scheme
from sealcast.wire.peers import event_id

NAME: Final = "tariq/scale"
SUBSCRIBERS: Final = (64, 256, 1_024, 4_096, 16_384)
PEERS: Final = (64, 128, 256, 512)
ATTRIBUTES: Final = 2
#: Connection requests that the key server makes for each label and epoch.
REQUESTS: Final = 2
#: Labels of one attribute into which routing splits a label.
SPLITS: Final = (1, 2, 4)
_cells: Final = columns("cell", "subscribers", "strategy", "printed", "measured", "agrees")


# --- keys -----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class KeyCount:
    """What a number of subscribers hold."""

    subscribers: int
    #: Of one subscription, on average and at most: credentials, each with its private key.
    mean: float
    most: int


def range_labels(low: int, high: int, depth: int = DEPTH) -> list[Bits]:
    """The fewest labels that cover a range of values, bounds included."""
    found = []
    while low <= high:
        size = (low & -low).bit_length() - 1 if low else depth
        while (1 << size) > high - low + 1:
            size -= 1
        found.append(format(low >> size, f"0{depth - size}b") if size < depth else "")
        low += 1 << size
    return found


def count_keys(subscribers: int, seed: int = 1) -> KeyCount:
    rng, held = random.Random(seed), []
    for _ in range(subscribers):
        labels = 0
        for _ in range(ATTRIBUTES):
            low, high = sorted(rng.choices(range(1 << DEPTH), k=2))
            labels += len(range_labels(low, high))
        held.append(labels)
    return KeyCount(subscribers, fmean(held), max(held))


def epoch_seconds(count: KeyCount, costs: CryptoCosts) -> float:
    """What the key server computes for a new epoch: every label's key, and requests for every seat."""
    return count.subscribers * count.mean * (costs.issue_label + REQUESTS * costs.issue_request)


# --- messages -------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class TrafficPoint:
    peers: int
    dissemination: Dissemination
    split: int
    events: int


@dataclass(frozen=True, slots=True)
class Traffic:
    """The traffic of all events together."""

    messages: int
    false_positives: int
    duplicates: int
    deliveries: int
    missed: int
    links: float


def measure_traffic(point: TrafficPoint) -> Traffic:
    joined = JoinPoint(point.peers, degree_of(point.peers), attributes=ATTRIBUTES)
    net = build(joined, point.split, point.dissemination)
    attributes, work = attribute_names(ATTRIBUTES), Workload(random.Random(2))
    net.add("publisher")
    net.join("publisher")
    before, names = net.messages["Carry"], [name for name in net.peers if name.startswith("p") and name != "publisher"]
    events = [ideal_event("publisher", number, work.values(attributes)) for number in range(point.events)]
    for number, event in enumerate(events):
        net.at(net.now + 1 + number * 0.1, partial(net.publish, "publisher", event))
    net.run(net.now + 30 + point.events * 0.1)
    wanted = [
        (net.peers[name], event) for name in names for event in events if net.peers[name].credentials.wants(event)
    ]
    came = sum(event_id(event) in peer.delivered for peer, event in wanted)
    return Traffic(
        messages=net.messages["Carry"] - before,
        false_positives=net.total("false positives"),
        duplicates=net.total("duplicates"),
        deliveries=came,
        missed=len(wanted) - came,
        links=fmean(len(net.peers[name].node.seats()) for name in names),
    )


# --- the report -----------------------------------------------------------------------------------------


def run(quick: bool, told: Told) -> Report:
    costs = measured_costs(5 if quick else 25)
    counts = [count_keys(number) for number in (SUBSCRIBERS[:3] if quick else SUBSCRIBERS)]
    peers, events = (PEERS[:2], 40) if quick else (PEERS, 200)
    points = [TrafficPoint(number, Dissemination.FLOODING, 1, events) for number in peers]
    points += [TrafficPoint(n, Dissemination.ROUTING, split, events) for n in peers for split in SPLITS]
    found = dict(zip(points, run_all(points, measure_traffic, told, lambda p: p.peers * p.split), strict=True))
    rows = [*_key_rows(counts, costs), *_traffic_rows(found)]
    notes = (
        f"random ranges on {ATTRIBUTES} attributes of {1 << DEPTH} values; the paper's bound of log2 Z = {DEPTH} "
        f"credentials for each is too low: a range can take 2 log2 Z - 2 = {2 * DEPTH - 2}, and two of them "
        f"{ATTRIBUTES * (2 * DEPTH - 2)}, for any number of subscribers",
        f"a new epoch: {1000 * costs.issue_label:.2f} ms for a label's key and {1000 * costs.issue_request:.1f} ms for "
        f"a connection request, {REQUESTS} of them a label, which has a pairing for each slot; the whole grows with "
        "subscribers, no subscriber's part does, and requests are nearly all of it",
        "messages: events sent from a parent to a child; a false positive: an event that reached a peer none of whose "
        "labels it has; a duplicate came over a second tree",
        "routing splits each label into k_D labels at different parents: more places and heartbeats, but not more "
        "messages, and nothing that is not for the child",
    )
    return Report(NAME, rows, all(bool(row["agrees"]) for row in rows), notes, _panels(counts, costs, found))


def _key_rows(counts: Sequence[KeyCount], costs: CryptoCosts) -> Iterator[Row]:
    secret = len(scheme.setup().to_bytes())
    for count in counts:
        seconds = epoch_seconds(count, costs)
        yield _cells(
            cell="secrets of the key server",
            subscribers=count.subscribers,
            printed="a pair of master keys",
            measured=f"1, of {secret} bytes",
            agrees=True,
        )
        yield _cells(
            cell="keys of a subscriber",
            subscribers=count.subscribers,
            printed="as many, whoever else there is",
            measured=f"{count.mean:.1f}",
            agrees=abs(count.mean / counts[-1].mean - 1) < 0.1,
        )
        yield _cells(
            cell="most keys of a subscriber",
            subscribers=count.subscribers,
            printed=f"{ATTRIBUTES * DEPTH}",
            measured=f"{count.most}",
            agrees=count.most <= ATTRIBUTES * DEPTH,
        )
        yield _cells(
            cell="a new epoch at the key server",
            subscribers=count.subscribers,
            measured=f"{seconds:.1f} s, {1000 * seconds / count.subscribers:.0f} ms a subscriber",
            agrees=True,
        )


def _traffic_rows(found: Mapping[TrafficPoint, Traffic]) -> Iterator[Row]:
    for point, traffic in found.items():
        flooding = found[TrafficPoint(point.peers, Dissemination.FLOODING, 1, point.events)]
        routing = point.dissemination is Dissemination.ROUTING
        strategy = f"routing, k_D {point.split}" if routing else "flooding"
        yield _cells(
            cell="messages, false positives, duplicates",
            subscribers=point.peers,
            strategy=strategy,
            printed="fewer false positives" if routing else None,
            measured=f"{traffic.messages:,}, {traffic.false_positives:,}, {traffic.duplicates:,}",
            agrees=traffic.false_positives < flooding.false_positives if routing else True,
        )
        yield _cells(
            cell="deliveries, missed; places of a peer",
            subscribers=point.peers,
            strategy=strategy,
            printed="all",
            measured=f"{traffic.deliveries:,}, {traffic.missed}; {traffic.links:.1f}",
            agrees=traffic.missed == 0,
        )


def _panels(counts: Sequence[KeyCount], costs: CryptoCosts, found: Mapping[TrafficPoint, Traffic]) -> list[Panel]:
    at = [count.subscribers for count in counts]
    keys = [
        Curve("keys of the key server", at, [1] * len(at)),
        Curve("keys of a subscriber", at, [count.mean for count in counts]),
    ]
    epochs = [Curve("a new epoch", at, [epoch_seconds(count, costs) for count in counts])]
    return [
        Panel("keys held", "subscribers", "keys", keys, log_x=True),
        Panel("rekeying", "subscribers", "seconds at the key server", epochs, log_x=True, log_y=True),
        Panel("messages", "peers", "an event", _traffic_curves(found, "messages"), log_x=True),
        Panel("false positives", "peers", "an event", _traffic_curves(found, "false_positives"), log_x=True),
    ]


def _traffic_curves(found: Mapping[TrafficPoint, Traffic], what: str) -> list[Curve]:
    lines = dict[str, list[tuple[int, float]]]()
    for point, traffic in found.items():
        flooding = point.dissemination is Dissemination.FLOODING
        name = "flooding" if flooding else f"routing, k_D {point.split}"
        lines.setdefault(name, []).append((point.peers, getattr(traffic, what) / point.events))
    return [Curve(name, [x for x, _ in line], [y for _, y in line]) for name, line in lines.items()]
