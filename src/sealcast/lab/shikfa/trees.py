"""A tree with subscribers, real nodes with real keys, and every power that any of them computes counted.

    P - one broker - fan-out brokers - ... down to a depth, subscribers at the lowest, in turn

A share of the subscribers asks for one label, everyone else for one of its own. What nodes did is counted by the group
that they compute in, so that nothing is counted that did not happen, and nothing happens that is not counted.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from time import process_time
from typing import Final

from sealcast.errors import Bug
from sealcast.filters.labels import Conjunction, LabelFilter
from sealcast.primitives.curve import CURVE
from sealcast.primitives.groups import CachedHashes, Element, Exponent, Group
from sealcast.primitives.modular import NAMES
from sealcast.primitives.secrets import Secret
from sealcast.protections.layered.layers import Layers, shared_exponent
from sealcast.protections.layered.open import Opener
from sealcast.protections.layered.publish import Publisher
from sealcast.protections.layered.route import Broker
from sealcast.protections.layered.subscribe import Subscriber
from sealcast.protections.layered.tree import Tree

PUBLISHER: Final = "P"
POPULAR: Final = "popular"
UNWANTED: Final = "unwanted"
_DOMAIN: Final = b"cost"
_PAYLOAD: Final = b"payload"


class Counted:
    """A group that counts the powers asked of it."""

    def __init__(self, group: Group) -> None:
        self._group = group
        self.powers = 0
        self.name, self.order, self.wire_bytes = group.name, group.order, group.wire_bytes
        self.hash, self.random, self.decode, self.encode = group.hash, group.random, group.decode, group.encode

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
    """Where everyone is, and who wants what."""

    layers: int
    parents: dict[str, str]
    wanted: dict[str, str]


def regular(layers: int, depth: int, fan_out: int, subscribers: int, equal: float) -> Shape:
    """`depth` levels of brokers."""
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


class Running:
    """A shape with nodes in it, after everybody subscribed. Nothing is cached: every power is computed."""

    def __init__(self, shape: Shape, group: Group) -> None:
        self.group = Counted(group)
        self.shape = shape
        self.tree = Tree(PUBLISHER, shape.parents, shape.layers)
        self.hashes = CachedHashes(self.group, _DOMAIN)
        self.keys = {pair: shared_exponent(Secret.random(), self.group, _DOMAIN, *pair) for pair in self.tree.pairs()}
        self._of: dict[str, dict[str, Exponent]] = {name: {} for name in (PUBLISHER, *self.tree.names)}
        for (descendant, ancestor), key in self.keys.items():
            self._of[descendant][ancestor] = self._of[ancestor][descendant] = key
        brokers = [name for name in self.tree.names if name not in shape.wanted]
        self.brokers = {name: Broker(self.tree.place(name), self.layers(name)) for name in brokers}
        targets = list(self.tree.targets(frozenset(shape.wanted)))
        self.publisher = Publisher(self.layers(PUBLISHER), self.hashes, targets, cached=0)
        self.openers = {name: Opener(self.tree.place(name), self.layers(name)) for name in shape.wanted}
        self.filters = sum(self._subscribe(name) for name in shape.wanted)

    def layers(self, name: str) -> Layers:
        return Layers(self.group, self._of[name], cached=0)

    def _subscribe(self, name: str) -> int:
        before = self.group.powers
        wanted = LabelFilter((Conjunction(((self.shape.wanted[name].encode(),),)),))
        pending = Subscriber(self.tree.place(name), self.layers(name), self.hashes).encrypt_filter(wanted)
        sender = name
        while pending:
            at = self.shape.parents[sender]
            pending = [onwards for message in pending for onwards in self.brokers[at].on_filter(sender, message)]
            sender = at
        return self.group.powers - before

    def publish(self, labels: Sequence[str]) -> Spent:
        """Events of one label each, all the way; whoever gets one opens it."""
        powers, entries, began = {"publisher": 0, "brokers": 0, "subscribers": 0}, 0, process_time()
        for label in labels:
            reached: set[str] = set()
            for party, sent in self.way(label, reached):
                powers[party] += sent[0]
                entries += sent[1]
            if reached != {name for name, wanted in self.shape.wanted.items() if wanted == label}:
                raise Bug(f"an event {label} reached others than those who want it")
        seconds = process_time() - began
        sizes = [len(broker.table) for broker in self.brokers.values()]
        return Spent(self.filters, **powers, rows=sum(sizes), largest=max(sizes), entries=entries, seconds=seconds)

    def way(self, label: str, reached: set[str]) -> Iterator[tuple[str, tuple[int, int]]]:
        """Who computed how many powers and sent how many entries, node by node."""
        before = self.group.powers
        pending = list(self.publisher.encrypt_notification({label.encode()}, _PAYLOAD).items())
        yield "publisher", (self.group.powers - before, sum(len(m.entries) for _, m in pending))
        while pending:
            name, message = pending.pop()
            before = self.group.powers
            if name in self.brokers:
                onwards = self.brokers[name].on_notification(message)
                yield "brokers", (self.group.powers - before, sum(len(m.entries) for m in onwards.values()))
                pending += onwards.items()
            else:
                if self.openers[name].open(message) != _PAYLOAD:
                    raise Bug("an event was opened that nobody sent")
                reached.add(name)
                yield "subscribers", (self.group.powers - before, 0)
