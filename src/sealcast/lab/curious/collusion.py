"""`shikfa/collusion`: every kind of coalition tries, on random trees, and gets what is claimed: no more and no less.

In every tree, subscribers take one label each; events have every label alone and every two together, so that what
events can tell, they tell. A coalition is after a subscriber outside it, who has another label than its own members:

    keys      pooled keys open the subscriber's filter somewhere on its way
    asking    in a tree where nobody else subscribed, a subscriber of the coalition asks for that very filter, and for
              one that nobody has; a broker of the coalition sees whether its table grows
    events    one of its brokers names the subscriber's row, from events of which the coalition has the content
    payloads  which events it opens: none, what its own members asked for, the subscriber's too, or all

`protections/layered/exposure.py` has the claims; nothing here computes with them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import combinations
from random import Random
from typing import Final

from sealcast.errors import Bug, Rejected
from sealcast.lab.curious.pooling import Observer, Pool, Wiretap
from sealcast.lab.report import Report, Told
from sealcast.lab.shikfa.net import Net, only
from sealcast.primitives.curve import CURVE
from sealcast.primitives.groups import Group
from sealcast.protections.layered.exposure import CLAIMS, Exposure, Reach, way
from sealcast.protections.layered.messages import Notification
from sealcast.protections.layered.tree import Tree
from sealcast.wire.notifications import LayeredEntry

LABELS: Final = (b"oil", b"gas", b"tin", b"zinc")
#: Asked for by nobody.
UNWANTED: Final = b"lead"
TREES: Final = 60
QUICK_TREES: Final = 8
LAYERS: Final = (2, 3, 4, 5)
#: Coalitions of one kind after one subscriber: trees have many that differ in names alone.
_MOST_CASES: Final = 6


def random_tree(random: Random, layers: int) -> tuple[Tree, list[str]]:
    """A tree, and who subscribes in it: leaves, and brokers of which some have a filter of their own."""
    tree = Tree("P", {}, layers)
    spine = ["P"]
    for i in range(random.choice((2, layers, layers + 1))):
        spine.append(f"B{i}")
        tree.join(spine[-1], spine[-2])
    for i in range(len(spine), len(spine) + random.randint(1, 3)):
        above = [name for name in ("P", *tree.names) if name == "P" or tree.depth(name) <= layers]
        tree.join(f"B{i}", random.choice(above))
    brokers = list(tree.names)
    homes = [spine[-1], spine[-1], *(random.choice(brokers) for _ in range(random.randint(2, 4)))]
    for i, home in enumerate(homes):
        tree.join(f"S{i}", home)
    share = random.choice((0, 0.5))
    subscribing = [name for name in brokers if tree.depth(name) > 1 and random.random() < share]
    return tree, [f"S{i}" for i in range(len(homes))] + subscribing


class CollusionWorld:
    """One tree with its subscriptions, its events, and somebody who wrote everything down."""

    def __init__(self, random: Random, layers: int, group: Group = CURVE) -> None:
        self.tree, subscribers = random_tree(random, layers)
        self.net = Net(self.tree, group, random)
        # The first four differ; those after them meet one of them, and are aggregated with it.
        self.labels = {n: LABELS[i] if i < len(LABELS) else random.choice(LABELS) for i, n in enumerate(subscribers)}
        for name, label in self.labels.items():
            self.net.subscribe(name, only(label))
        for labels in [(label,) for label in (*LABELS, UNWANTED)] + list(combinations(LABELS, 2)):
            self.net.publish(frozenset(labels), b"+".join(labels))
        self.observer = Observer(self.net, (*LABELS, UNWANTED))

    @property
    def brokers(self) -> list[str]:
        """The brokers that do not subscribe themselves."""
        return [name for name in self.tree.names if name.startswith("B") and name not in self.labels]

    @property
    def subscribing(self) -> list[str]:
        return [name for name in self.labels if name.startswith("B")]

    @property
    def leaves(self) -> list[str]:
        return [name for name in self.labels if name.startswith("S")]


# --- coalitions ---------------------------------------------------------------------------------------------------


def coalitions(world: CollusionWorld, subscriber: str) -> Iterator[tuple[str, Wiretap]]:
    """Lists (kind, members) of every coalition that might be after a subscriber, members in the order of the claims."""
    tree, up = world.tree, way(world.tree, subscriber)
    others = [name for name in world.leaves if world.labels[name] != world.labels[subscriber]]
    yield "publisher", Wiretap(("P",))
    for broker in world.brokers:
        yield "publisher+root" if tree.depth(broker) == 1 else "publisher+broker", Wiretap((broker, "P"))
    for count, kind in ((tree.layers, "r brokers"), (tree.layers - 1, "r-1 brokers")):
        for i in range(len(up) - count + 1):
            if set(world.subscribing).isdisjoint(up[i : i + count]):
                yield kind, Wiretap(up[i : i + count])
    for broker in world.brokers:
        for other in others:
            yield "broker+subscriber", Wiretap((broker, other))
            if tree.depth(broker) == 1:
                yield "active root+subscriber", Wiretap((broker, other), active=True)
    for broker in world.subscribing:
        if world.labels[broker] != world.labels[subscriber]:
            yield "subscribing broker", Wiretap((broker,))
    for both in combinations(others, 2):
        yield "two subscribers", Wiretap(both)
    for other in others:
        if tree.depth(other) <= tree.layers and set(world.subscribing).isdisjoint(way(tree, other)):
            yield "root..subscriber", Wiretap((*way(tree, other), other))
    if not world.subscribing:
        yield "all brokers", Wiretap(tuple(world.brokers))
    links = [(name, tree.ancestors(name)[0]) for name in tree.names]
    for count in range(1, len(links) + 1, 2):
        yield "eavesdropper", Wiretap((), frozenset(links[:count]))


def measured(world: CollusionWorld, tap: Wiretap, subscriber: str) -> Exposure:
    """Tries what a coalition gets of one subscriber."""
    pool, label = Pool(world.net, world.observer, tap), world.labels[subscriber]
    opened = pool.events() | (rerouted(world, *tap.members) if tap.active else set())
    brokers = [name for name in tap.members if name.startswith("B") and name in way(world.tree, subscriber)]
    return Exposure(
        label in pool.filters(subscriber),
        any(_asked(world, broker, asker, subscriber) for broker in brokers for asker in tap.members if asker[0] == "S"),
        any(_row_is_named(world, pool, broker, subscriber, opened) for broker in brokers),
        _reach(world, tap, subscriber, opened),
    )


def rerouted(world: CollusionWorld, root: str, friend: str) -> set[bytes]:
    """The events that an active root makes its friend below open: beside the key of each it puts the tokens of the
    friend's own row, and the brokers between them, who are honest, route it there. Which of an event's entries is for
    the friend's branch the root does not know: it tries each."""
    net, opened = world.net, set[bytes]()
    if root not in way(world.tree, friend):
        return opened
    path, node = net.path(root, friend), net.brokers[root]
    rows = [row for row in node.table.rows() if path in row.paths]
    add, top, last = node.layers.add, node.place.top, path[-1]
    tokens = tuple(sorted({add(last, token) for row in rows for slot in row.slots for token in slot}))
    for message in [message for sent, message in net.notifications() if sent.receiver == root]:
        for entry in message.entries:
            bent = LayeredEntry(tokens, node.layers.swap(top, last, entry.key), final=len(path) == 1)
            if _opens(net, path[0], Notification(message.event, (bent,), message.body), friend):
                opened.add(message.event)
    return opened


def _opens(net: Net, at: str, message: Notification, friend: str) -> bool:
    """Whether a message that a broker gets reaches the friend by the rules, and opens there."""
    if at == friend and any(entry.final for entry in message.entries):
        try:
            return bool(net.opener(friend).open(message))
        except Rejected:
            return False
    return any(_opens(net, child, m, friend) for child, m in net.brokers[at].on_notification(message).items())


def _row_is_named(world: CollusionWorld, pool: Pool, broker: str, subscriber: str, known: set[bytes]) -> bool:
    path, label = world.net.path(broker, subscriber), world.labels[subscriber]
    names = pool.named(broker, known, (*LABELS, UNWANTED))
    rows = [row.slots[0][0] for row in world.net.brokers[broker].table.rows() if path in row.paths]
    named = [names[token] for token in rows if len(names[token]) == 1]
    return {label} in named


def _asked(world: CollusionWorld, broker: str, asker: str, subscriber: str) -> bool:
    grown = []
    for guess in (world.labels[subscriber], UNWANTED):
        net = Net(world.tree, world.net.group, Random(1))
        net.subscribe(subscriber, only(world.labels[subscriber]))
        before = len(net.brokers[broker].table)
        net.subscribe(asker, only(guess))
        grown.append(len(net.brokers[broker].table) > before)
    return grown == [False, True]


def _reach(world: CollusionWorld, tap: Wiretap, subscriber: str, opened: set[bytes]) -> Reach:
    events = world.net.events
    asked = {world.labels[name] for name in tap.members if name in world.labels}
    own = {event for event, about in events.items() if not about.labels.isdisjoint(asked)}
    passing = {event for event, about in events.items() if world.labels[subscriber] in about.labels} - own
    if opened >= events.keys():
        return Reach.ALL
    if opened >= passing and passing:
        return Reach.PASSING
    if not opened <= own:
        raise Bug(f"{tap.members} opened some of what {subscriber} gets, and not the rest")
    return Reach.OWN if opened else Reach.NONE


# --- the experiment -----------------------------------------------------------------------------------------------


@dataclass(slots=True)
class CollusionTally:
    """Cases of one kind with one number of layers."""

    cases: int = 0
    wrong: int = 0
    found: Counter[str] = field(default_factory=Counter)

    def add(self, found: Exposure, claimed: Exposure) -> None:
        self.cases += 1
        self.wrong += found != claimed
        self.found.update(name for name in ("keys", "asking", "events") if getattr(found, name))
        self.found[found.payloads] += 1

    def row(self, kind: str, layers: int) -> dict[str, object]:
        of = {name: f"{self.found[name]} of {self.cases}" for name in ("keys", "asking", "events")}
        payloads = ", ".join(f"{reach} {self.found[reach]}" for reach in Reach if self.found[reach])
        return {
            "coalition": kind,
            "layers": layers,
            "cases": self.cases,
            **of,
            "payloads": payloads,
            "wrong": self.wrong,
        }


def drill(world: CollusionWorld, random: Random, most: int = _MOST_CASES) -> Iterator[tuple[str, Wiretap, str]]:
    """The cases of one world: for two subscribers, a few coalitions of every kind."""
    for subscriber in random.sample(world.leaves, 2):
        by_kind: dict[str, list[Wiretap]] = {}
        for kind, tap in coalitions(world, subscriber):
            by_kind.setdefault(kind, []).append(tap)
        for kind, taps in by_kind.items():
            for tap in random.sample(taps, min(most, len(taps))):
                yield kind, tap, subscriber


def run(quick: bool, told: Told) -> Report:
    trees = QUICK_TREES if quick else TREES
    tallies: dict[tuple[str, int], CollusionTally] = {}
    for seed in range(trees):
        told(seed, trees)
        random, layers = Random(seed), LAYERS[seed % len(LAYERS)]
        world = CollusionWorld(random, layers)
        for kind, tap, subscriber in drill(world, random):
            claimed = CLAIMS[kind].rule(world.tree, tap.members, subscriber)
            tallies.setdefault((kind, layers), CollusionTally()).add(measured(world, tap, subscriber), claimed)
    told(trees, trees)
    rows = [tallies[kind, r].row(kind, r) for kind in CLAIMS for r in LAYERS if (kind, r) in tallies]
    notes = (
        "keys, asking, events: in how many cases a coalition learnt a filter of a subscriber outside it, in that way",
        "payloads: which events it opened, and in how many cases",
        "wrong: cases in which it got more or less than protections/layered/exposure.py claims",
        "the paper says that r consecutive nodes are needed; a publisher and a child of it, asking, and events whose "
        "content is known, it does not mention",
    )
    return Report("shikfa/collusion", rows, not any(row["wrong"] for row in rows), notes)
