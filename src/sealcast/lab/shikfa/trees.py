"""Trees with subscribers in which every power that a node computes is counted.

    P - one broker - fan-out brokers - ... down to a depth, subscribers at the lowest, in turn

A share of the subscribers asks for one label, everyone else for one of its own. What a node did is counted by the group
that it computes in, so that nothing is counted that did not happen, and nothing happens that is not counted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from time import process_time
from typing import Final

from sealcast.errors import Bug
from sealcast.lab.shikfa.net import Net, only
from sealcast.primitives.curve import CURVE
from sealcast.primitives.groups import Element, Exponent, Group
from sealcast.primitives.modular import NAMES
from sealcast.protections.layered.tree import Tree

PUBLISHER: Final = "P"
POPULAR: Final = "popular"
UNWANTED: Final = "unwanted"


class Counted:
    """A group that counts the powers asked of it."""

    def __init__(self, group: Group) -> None:
        self._group = group
        self.powers = 0
        self.name, self.order, self.wire_bytes = group.name, group.order, group.wire_bytes
        self.hash, self.random, self.decode, self.encode = group.hash, group.random, group.decode, group.encode
        self.hash_many = group.hash_many

    def power(self, element: Element, exponent: Exponent) -> Element:
        self.powers += 1
        return self._group.power(element, exponent)

    def power_many(self, elements: Sequence[Element], exponent: Exponent) -> list[Element]:
        self.powers += len(elements)
        return self._group.power_many(elements, exponent)


def group_of(name: str) -> Group:
    return CURVE if name == CURVE.name else NAMES[name]()


@dataclass(frozen=True, slots=True)
class Shape:
    """A tree, and which label each of its subscribers wants."""

    layers: int
    parents: dict[str, str]
    wanted: dict[str, str]


def regular(layers: int, depth: int, fan_out: int, subscribers: int, equal: float) -> Shape:
    """Makes the tree above, with `depth` levels of brokers."""
    level, parents = ["B0"], {"B0": PUBLISHER}
    for _ in range(depth - 1):
        below = [(f"{name}.{i}", name) for name in level for i in range(fan_out)]
        parents |= dict(below)
        level = [name for name, _ in below]
    names = [f"S{i}" for i in range(subscribers)]
    parents |= {name: level[i % len(level)] for i, name in enumerate(names)}
    # Spread evenly over the brokers, whatever their number is: the popular ones are not the first ones.
    popular = {names[i * 7 % subscribers] for i in range(round(equal * subscribers))}
    return Shape(layers, parents, {name: POPULAR if name in popular else name for name in names})


@dataclass(frozen=True, slots=True)
class Spent:
    """Powers by who computed them, and what they were for."""

    filters: int
    publisher: int
    brokers: int
    subscribers: int
    #: Rows of all tables, and of the largest.
    rows: int
    largest: int
    #: Entries on links: [EN1; EN2] of one event, the body not counted.
    entries: int
    seconds: float

    @property
    def events(self) -> int:
        return self.publisher + self.brokers + self.subscribers


class RunningTree(Net):
    """A shape with nodes in it, after everybody subscribed. Nothing is cached: every power is computed."""

    def __init__(self, shape: Shape, group: Group) -> None:
        self._counted: dict[str, Counted] = {}
        super().__init__(Tree(PUBLISHER, shape.parents, shape.layers), group, cached=0)
        self.shape = shape
        for name, label in shape.wanted.items():
            self.subscribe(name, only(label.encode()))
        self._for_filters = self.powers().total()

    def computing(self, name: str) -> Group:
        return self._counted.setdefault(name, Counted(self.group))

    def powers(self) -> Counter[str]:
        """How many powers each node computed so far."""
        return Counter({name: group.powers for name, group in self._counted.items()})

    def spend(self, labels: Sequence[str]) -> Spent:
        """Publishes events of one label each; what they cost, all the way."""
        before, sent, began = self.powers(), len(self.sent), process_time()
        for label in labels:
            reached = self.publish(frozenset({label.encode()}), b"payload").got
            if reached != {name for name, wanted in self.shape.wanted.items() if wanted == label}:
                raise Bug(f"an event {label} reached others than those who want it")
        seconds, powers = process_time() - began, self.powers() - before
        subscribers = sum(powers.pop(name, 0) for name in self.shape.wanted)
        publisher, brokers = powers.pop(PUBLISHER), powers.total()
        entries = sum(len(message.entries) for _, message in self.notifications(sent))
        sizes = [len(broker.table) for broker in self.brokers.values()]
        return Spent(self._for_filters, publisher, brokers, subscribers, sum(sizes), max(sizes), entries, seconds)
