"""`tariq/attacks`: what history, timing and collusion reveal about subscriptions, under each strategy.

The paper analyses these attacks in a supplement that is not at hand; its claims are in the text (sections 6.2 to 6.4):
peers learn of each other's labels only which covers which, and with multi-credential routing a subscription stays
unknown unless all d k_D parents collude. Each row is an attack, tried on simulated peers that run the real nodes.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Final

from sealcast.lab.points import run_all
from sealcast.lab.report import Curve, Panel, Report, Row, Told, columns
from sealcast.lab.tariq.coalitions import pooled_trees
from sealcast.lab.tariq.costs import CryptoCosts, measured_costs
from sealcast.lab.tariq.curious import (
    Narrowed,
    answer_times,
    lone_parent,
    offer_suspects,
    parent_and_grandchild,
    pooled,
    watched,
)
from sealcast.lab.tariq.ideal import DEPTH
from sealcast.overlay.peers.port import Dissemination

NAME: Final = "tariq/attacks"
SPLITS: Final = (1, 2, 4)
EVENTS: Final = (10, 30, 100, 300, 1_000)
LONE, FLOODED, BETWEEN = "routing, a parent alone", "flooding, a parent alone", "flooding, a parent and a grandchild"
_cells: Final = columns("attack", "strategy", "events", "printed", "measured", "before", "after", "agrees")


@dataclass(frozen=True, slots=True)
class WatchPoint:
    peers: int
    events: int
    dissemination: Dissemination
    split: int


@dataclass(frozen=True, slots=True)
class AttackResult:
    """Of each attack: the share of labels found, and the bits of doubt before and after."""

    found: dict[str, tuple[float, float, float]]
    #: By how many parents pool: subscriptions that they determine, of how many.
    pooled: dict[int, tuple[int, int]]


def attack(point: WatchPoint) -> AttackResult:
    seen = watched(point.peers, point.events, point.dissemination, point.split)
    found, pools = {}, {}
    if point.dissemination is Dissemination.FLOODING:
        found[FLOODED] = _summary(lone_parent(seen, point.dissemination))
        found[BETWEEN] = _summary(parent_and_grandchild(seen))
    else:
        found[LONE] = _summary(lone_parent(seen, point.dissemination))
        if point.split > 1:
            pools = {number: pooled(seen, number, point.split) for number in range(1, point.split + 1)}
    return AttackResult(found, pools)


def _summary(narrowed: Sequence[Narrowed]) -> tuple[float, float, float]:
    open_ones = [each for each in narrowed if each.before > 1]  # where there is nothing to find, nothing is found
    return (
        fmean(each.found for each in open_ones),
        fmean(math.log2(each.before) for each in open_ones),
        fmean(math.log2(max(1, len(each.left))) for each in open_ones),
    )


def run(quick: bool, told: Told) -> Report:
    peers, events = (60, EVENTS[:3]) if quick else (200, EVENTS)
    points = [WatchPoint(peers, number, Dissemination.FLOODING, 1) for number in events]
    points += [WatchPoint(peers, number, Dissemination.ROUTING, split) for number in events for split in SPLITS]
    found = dict(zip(points, run_all(points, attack, told, lambda p: p.peers * p.events * p.split), strict=True))
    costs = measured_costs(5 if quick else 25)
    rows = [
        row for point, result in found.items() for row in (*_history(point, result), *_collusion(point, result, events))
    ]
    rows += [*_trees(peers, events[-1], (1,) if quick else (1, 2)), *_offers(), *_timing(costs, 10 if quick else 40)]
    notes = (
        "before, after: bits of doubt about a label, that is log2 of how many it may be; 0 is found",
        "a parent alone: it knows the values of events that it can open, and which of them its child was sent",
        "flooding sends every child everything: the parent learns nothing by it. But whoever stands below a child sees "
        "what the child passes on: with a grandchild's help a parent learns the label in between, which definition 6.1 "
        "does not allow and which the text does not mention",
        "routing gives each parent one token; what it sends is the history of that token, which finds the label of the "
        "link, as the paper says. Splitting keeps the subscription's own label from it; labels too fine to be split "
        "into k_D are left out of the counts of collusion",
        "timing: a heartbeat right behind an event, over a link without jitter. A peer that opens events before it "
        "answers tells its parent which it wanted: it must open them beside the node's messages",
    )
    return Report(NAME, rows, all(bool(row["agrees"]) for row in rows), notes, _panels(found, events))


# --- rows -----------------------------------------------------------------------------------------------

#: What the text says of each, and whether it says that labels are found.
_CLAIMS: Final = {
    FLOODED: ("nothing but containment", False),
    BETWEEN: ("nothing but containment", False),
    LONE: ("the label of the link, in the end", True),
}


def _history(point: WatchPoint, result: AttackResult) -> Iterator[Row]:
    for name, (found, before, after) in result.found.items():
        printed, allowed = _CLAIMS[name]
        yield _cells(
            attack=f"history: {name.split(', ')[1]}",
            strategy=_strategy(point),
            events=point.events,
            printed=printed,
            measured=f"{found:.0%} of labels found",
            before=round(before, 1),
            after=round(after, 1),
            agrees=allowed or found == 0,
        )


def _collusion(point: WatchPoint, result: AttackResult, events: Sequence[int]) -> Iterator[Row]:
    if point.events != events[-1]:
        return
    for number, (determined, total) in result.pooled.items():
        all_of_them = number == point.split
        yield _cells(
            attack=f"collusion: {number} of {point.split} parents",
            strategy=_strategy(point),
            events=point.events,
            printed="the subscription" if all_of_them else "not the subscription",
            measured=f"{determined} of {total} subscriptions determined",
            agrees=determined == 0 or all_of_them,
        )


def _trees(peers: int, events: int, splits: Sequence[int]) -> Iterator[Row]:
    """Two attributes, with places in both trees as the paper has it: the d k_D parents of its claim."""
    for split in splits:
        for found in pooled_trees(peers, events, split):
            all_of_them = found.parents == 2 * split
            yield _cells(
                attack=f"collusion, d = 2: {found.parents} of {2 * split} parents",
                strategy=f"multi-credential routing, k_D {split}",
                events=events,
                printed="the subscription" if all_of_them else "not the subscription",
                measured=f"{found.determined} of {found.subscriptions} subscriptions determined",
                agrees=found.determined == 0 or all_of_them,
            )


def _offers() -> Iterator[Row]:
    """Finding F10: a newcomer reads the acceptor's label from which slot's key an offer is under."""
    for form, one_key in (("one key for each slot, as printed", False), ("one key in all slots", True)):
        suspects = offer_suspects(one_key)
        yield _cells(
            attack="connecting: a newcomer reads the offer",
            strategy=form,
            printed="nothing but containment",
            measured="the acceptor's label" if suspects == 1 else f"one of {suspects} labels, as before",
            before=round(math.log2(DEPTH + 1), 1),
            after=round(math.log2(suspects), 1),
            agrees=suspects > 1,
        )


def _timing(costs: CryptoCosts, events: int) -> Iterator[Row]:
    for inline in (True, False):
        wanted, unwanted = answer_times(costs, inline, events)
        gap = 1000 * (fmean(wanted) - fmean(unwanted))
        told_apart = min(wanted) > max(unwanted)
        yield _cells(
            attack="timing: answers behind an event",
            strategy="opened before the answer" if inline else "opened beside it",
            events=events,
            measured=f"{gap:+.2f} ms if it was wanted; {'told apart' if told_apart else 'not told apart'}",
            before=1.0,
            after=0.0 if told_apart else 1.0,
            agrees=told_apart is inline,
        )


def _strategy(point: WatchPoint) -> str:
    if point.dissemination is Dissemination.FLOODING:
        return "one-hop flooding"
    return f"multi-credential routing, k_D {point.split}"


def _panels(found: dict[WatchPoint, AttackResult], events: Sequence[int]) -> list[Panel]:
    doubts, shares = dict[str, list[float]](), dict[str, list[float]]()
    for point, result in found.items():
        for name, (share, _, after) in result.found.items():
            label = name if name != LONE else f"{name}, k_D {point.split}"
            doubts.setdefault(label, []).append(after)
            shares.setdefault(label, []).append(share)
    pools = [
        Curve(
            f"k_D {point.split}", [n / point.split for n in result.pooled], [d / t for d, t in result.pooled.values()]
        )
        for point, result in found.items()
        if result.pooled and point.events == events[-1]
    ]
    return [
        Panel("doubt left", "events seen", "bits", [Curve(n, events, y) for n, y in doubts.items()], log_x=True),
        Panel("labels found", "events seen", "share", [Curve(n, events, y) for n, y in shares.items()], log_x=True),
        Panel("subscriptions determined", "share of their parents that pool", "share", pools),
    ]
