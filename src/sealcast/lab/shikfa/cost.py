"""`shikfa/cost`: what the layers cost, in powers, in time and in rows of tables.

The paper has no numbers of its own. Its protocol says what they must be, exactly (`forms.py`); beside them stands what
real nodes with real keys did (`trees.py`), without caches, so that nothing hides. Against the number of layers, the
depth of the tree, its fan-out and the share of subscribers who want the same; modulo a prime and on the curve. Each
point is a task of a Spark job.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from operator import attrgetter
from typing import Final

from sealcast.errors import Bug
from sealcast.lab.points import run_all
from sealcast.lab.report import Curve, Look, Panel, Report, Row, Told
from sealcast.lab.shikfa import forms
from sealcast.lab.shikfa.network import FILTERS, PARENTS, Figure1
from sealcast.lab.shikfa.trees import POPULAR, PUBLISHER, UNWANTED, RunningTree, Shape, Spent, group_of, regular
from sealcast.primitives.curve import CURVE
from sealcast.primitives.groups import Element
from sealcast.wire.notifications import LayeredEntry

NAME: Final = "shikfa/cost"
LAYERS: Final = (2, 3, 4, 5)
GROUPS: Final = (CURVE.name, "modp-2048", "modp-3072")
#: Events of a point: one that many want, one that one subscriber wants, one that nobody wants.
EVENTS: Final = 3


@dataclass(frozen=True, slots=True)
class CostPoint:
    """A tree, its subscribers, and the group that they compute in."""

    layers: int
    depth: int = 4
    fan_out: int = 2
    subscribers: int = 24
    equal: float = 0.5
    group: str = CURVE.name

    @property
    def shape(self) -> Shape:
        return regular(self.layers, self.depth, self.fan_out, self.subscribers, self.equal)

    @property
    def events(self) -> tuple[str, ...]:
        alone = (name for name, wanted in self.shape.wanted.items() if name == wanted)
        return POPULAR, next(alone, UNWANTED), UNWANTED

    def __str__(self) -> str:
        return (
            f"r {self.layers}, depth {self.depth}, fan-out {self.fan_out}, {self.equal:.0%} of {self.subscribers} equal"
        )


def measure(point: CostPoint) -> Spent:
    return RunningTree(point.shape, group_of(point.group)).spend(point.events)


def points(quick: bool) -> list[CostPoint]:
    """Lists the points: a base for each r, and others that differ from it in one thing alone."""
    base = [CostPoint(layers, subscribers=12 if quick else 24) for layers in LAYERS]
    varied: list[CostPoint] = []
    for point in base:
        varied += [replace(point, depth=depth) for depth in ((2, 5) if quick else (2, 3, 5, 6))]
        varied += [replace(point, fan_out=fan_out) for fan_out in ((1, 3) if quick else (1, 3, 4))]
        varied += [replace(point, equal=equal) for equal in ((0.0, 1.0) if quick else (0.0, 0.25, 0.75, 1.0))]
    slow = [replace(point, group=group) for group in GROUPS[1 : 2 if quick else None] for point in base]
    return base + varied + slow


def run(quick: bool, told: Told) -> Report:
    asked = points(quick)
    found = run_all(asked, measure, told, _work)
    rows: list[Row] = [*_closed_forms(), *(_row(point, spent) for point, spent in zip(asked, found, strict=True))]
    measured = dict(zip(asked, found, strict=True))
    notes = (
        "a tree: powers for events = the publisher's + brokers' + subscribers'; entries on links; rows of all tables, "
        "of the largest; powers for filters on their way up",
        f"of {EVENTS} events together: one that many want, one that one subscriber wants, one that nobody wants",
        "nothing is cached; with caches, tokens that were seen before cost nothing and the payload key remains",
        "an entry is [EN1; EN2] on a link; those of one event on one link travel together, with the body once",
        "the paper prints no costs: `printed` is what its protocol comes to; naive: layers off and on one by one",
    )
    return Report(NAME, rows, all(bool(row["agrees"]) for row in rows), notes, _panels(measured))


def _work(point: CostPoint) -> float:
    times = {CURVE.name: 1, "modp-2048": 80, "modp-3072": 250}
    return times[point.group] * forms.expected(point.shape, point.events).events


def _row(point: CostPoint, spent: Spent) -> Row:
    computed = _told(forms.expected(point.shape, point.events))
    return {
        "cell": str(point),
        "group": point.group,
        "printed": None,
        "computed": computed,
        "measured": _told(spent),
        "agrees": computed == _told(spent),
        "milliseconds": round(spent.seconds * 1e3, 2),
    }


def _told(spent: Spent) -> str:
    by = f"{spent.events} = {spent.publisher} + {spent.brokers} + {spent.subscribers}"
    return f"{by}; {spent.entries}; {spent.rows}, {spent.largest}; {spent.filters}"


# --- closed forms ---------------------------------------------------------------------------------------------------

FIGURE1: Final = Shape(2, dict(PARENTS), dict(FILTERS))


def _closed_forms() -> Iterator[Row]:
    """Checks each closed form at a node that does just that."""
    cells: list[tuple[str, str, int, Callable[[], int]]] = [("a miss", "1", 1, partial(_at_broker, 1, UNWANTED))]
    for d in (1, 2, 3):
        cells.append((f"a hit, {d} destinations", "1 + 2 d", 1 + 2 * d, partial(_at_broker, d, POPULAR)))
    for t in (1, 2, 3):
        cells.append((f"publisher, {t} targets", "2 t", 2 * t, partial(_at_publisher, t)))
    for r in LAYERS:
        cells.append((f"subscriber, {r} layers", "1", 1, partial(_at_subscriber, r)))
    cells += [
        ("figure 1, 4 matches", "33", forms.expected(FIGURE1, ["f"]).events, lambda: _figure1("f").events),
        ("figure 1, 4 matches, naive", "54", forms.naive(FIGURE1, "f"), _naive),
        ("figure 1, no match", "3", forms.expected(FIGURE1, [UNWANTED]).events, lambda: _figure1(UNWANTED).events),
        ("figure 1, entries on links", "11", forms.expected(FIGURE1, ["f"]).entries, lambda: _figure1("f").entries),
    ]
    for cell, printed, computed, measured in cells:
        found = measured()
        agrees = found == computed and (not printed.isdecimal() or int(printed) == computed)
        texts = {"printed": printed, "computed": str(computed), "measured": str(found)}
        yield {"cell": cell, "group": CURVE.name, **texts, "agrees": agrees, "milliseconds": None}


def _at_broker(destinations: int, label: str) -> int:
    """Counts the powers of the publisher's child, which has one row with so many paths."""
    running = RunningTree(regular(2, 2, 1, destinations, 1.0), CURVE)
    before = running.powers()
    running.publish(frozenset({label.encode()}), b"payload")
    return (running.powers() - before)["B0"]


def _at_publisher(targets: int) -> int:
    return RunningTree(regular(2, 2, targets, targets, 1.0), CURVE).spend([POPULAR]).publisher


def _at_subscriber(layers: int) -> int:
    return RunningTree(regular(layers, layers, 1, 1, 1.0), CURVE).spend([POPULAR]).subscribers


def _figure1(label: str) -> Spent:
    return RunningTree(FIGURE1, CURVE).spend([label])


def _naive() -> int:
    """Counts the powers of an event f in figure 1, layer by layer, and compares each step with what nodes sent."""
    net, spent = Figure1(CURVE), 0
    label, shared = net.hashes(b"f"), net.published()
    arrived = [(sent, message.entries) for sent, message in net.notifications()]

    def raised(element: Element, pairs: Sequence[tuple[str, str]], off: bool = False) -> Element:
        nonlocal spent
        for pair in pairs:
            element = net.group.power(element, net.keys[pair].inverse if off else net.keys[pair])
            spent += 1
        return element

    def peeled(entry: LayeredEntry, pairs: Sequence[tuple[str, str]]) -> list[Element]:
        return [raised(net.group.decode(token), pairs, off=True) for token in (entry.tokens[0], entry.key)]

    def sends(name: str, made: Iterable[tuple[str, Sequence[Element], Sequence[tuple[str, str]]]]) -> None:
        """Puts the layers on and compares with what the node sent: for each child, [EN1; EN2] and their layers."""
        expected = {(child, *(net.group.encode(raised(e, pairs)) for e in elements)) for child, elements, pairs in made}
        if expected != {(at.receiver, e.tokens[0], e.key) for at, sent in arrived if at.sender == name for e in sent}:
            raise Bug(f"{name} sent something else than the layers, one by one, come to")

    sends(PUBLISHER, [("B4", (label, shared), [("B4", PUBLISHER), ("B3", PUBLISHER)])])
    for at, entries in arrived:
        name, place = at.receiver, net.tree.place(at.receiver)
        if name not in FILTERS:
            here = [(entry, peeled(entry, [(name, place.top)])) for entry in entries]
            paths = [(path, bare) for e, bare in here for path in net.brokers[name].secure_look_up(e.tokens)]
            sends(name, [(path[0], bare, [(path[-1], name)]) for path, bare in paths])
        elif peeled(entries[0], [(name, ancestor) for ancestor in place.chain]) != [label, shared]:
            raise Bug(f"{name} opened something else than was published")
    return spent


# --- pictures -------------------------------------------------------------------------------------------------------


def _panels(measured: dict[CostPoint, Spent]) -> list[Panel]:
    here = {point: spent for point, spent in measured.items() if point.group == CURVE.name}
    base = [point for point in here if point == _base(point)]
    who = [
        Curve(name, [p.layers for p in base], [getattr(here[p], name) / EVENTS for p in base])
        for name in ("publisher", "brokers", "subscribers")
    ]
    looks = {Look.COMPUTED: "computed"}
    return [
        Panel("powers by who computes them", "layers r", "powers an event", who),
        Panel("time by group", "layers r", "CPU milliseconds an event", _times(measured), log_y=True),
        Panel("deeper trees", "levels of brokers", "powers an event", _lines(here, "depth", _powers), looks=looks),
        Panel("wider trees", "fan-out", "powers an event", _lines(here, "fan_out", _powers), looks=looks),
        Panel("equal filters: events", "share equal", "powers an event", _lines(here, "equal", _powers), looks=looks),
        Panel("equal filters: tables", "share equal", "rows of all tables", _lines(here, "equal", _rows), looks=looks),
    ]


def _powers(spent: Spent) -> float:
    return spent.events / EVENTS


def _rows(spent: Spent) -> float:
    return spent.rows


def _times(measured: dict[CostPoint, Spent]) -> list[Curve]:
    base = {point: spent.seconds / EVENTS * 1e3 for point, spent in measured.items() if point == _base(point)}
    by_group = {group: {p.layers: ms for p, ms in base.items() if p.group == group} for group in GROUPS}
    return [Curve(group, list(found), list(found.values())) for group, found in by_group.items() if found]


def _lines(measured: dict[CostPoint, Spent], what: str, of: Callable[[Spent], float]) -> list[Curve]:
    """A curve for each r, over the points that differ from the base in this alone."""
    lines = []
    for layers in LAYERS:
        usual = {what: getattr(CostPoint(layers), what)}
        kin = [p for p in measured if p.layers == layers and replace(p, **usual) == _base(p)]
        kin.sort(key=attrgetter(what))
        x = [float(getattr(p, what)) for p in kin]
        lines.append(Curve(f"r = {layers}", x, [of(measured[p]) for p in kin]))
        lines.append(Curve(f"r = {layers}", x, [of(forms.expected(p.shape, p.events)) for p in kin], Look.COMPUTED))
    return lines


def _base(point: CostPoint) -> CostPoint:
    return CostPoint(point.layers, subscribers=point.subscribers, group=point.group)
