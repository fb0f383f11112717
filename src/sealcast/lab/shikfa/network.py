"""The network of the paper's figure 1: real nodes with real keys, and an observer who has all of them.

    P - B4 - B3 - B1 - S1, S2          S1 to S4 subscribe to f, S5 to f'
                \\- B2 - S3, S4, S5

Symbols are read off numbers: the observer raises f, f' and the payload key to every product of at most two keys, and
looks up what a node really sent or holds. What stands in no row of that dictionary is no such symbol.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import combinations

from sealcast.errors import Bug
from sealcast.filters.labels import Conjunction, LabelFilter
from sealcast.primitives.groups import CachedHashes, Element, Exponent, Group
from sealcast.primitives.secrets import Secret
from sealcast.protections.layered.layers import Layers, shared_exponent
from sealcast.protections.layered.messages import FilterMessage, Notification
from sealcast.protections.layered.publish import Publisher
from sealcast.protections.layered.route import Broker
from sealcast.protections.layered.subscribe import Subscriber, own_layers
from sealcast.protections.layered.tree import Tree

PARENTS = {"B4": "P", "B3": "B4", "B1": "B3", "B2": "B3", "S1": "B1", "S2": "B1", "S3": "B2", "S4": "B2", "S5": "B2"}
FILTERS = {"S1": "f", "S2": "f", "S3": "f", "S4": "f", "S5": "f'"}
_MOST = 2


@dataclass(frozen=True, slots=True)
class Sent:
    """A message on a link."""

    sender: str
    receiver: str
    filter: FilterMessage | None = None
    notification: Notification | None = None


class Figure1:
    """The network after everybody subscribed."""

    def __init__(self, group: Group) -> None:
        self.group = group
        self.tree = Tree("P", PARENTS)
        self.hashes = CachedHashes(group, b"figure 1")
        self.keys: dict[tuple[str, str], Exponent] = {
            pair: shared_exponent(Secret.random(), group, b"figure 1", *pair) for pair in self.tree.pairs()
        }
        self.layers = {name: Layers(group, self._own(name)) for name in (*self.tree.names, "P")}
        self.brokers = {name: Broker(self.tree.place(name), self.layers[name]) for name in ("B1", "B2", "B3", "B4")}
        self.sent: list[Sent] = []
        self._symbols: dict[Element, str] = {}
        #: The payload key, once S1 opened it.
        self.shared = Element(b"")
        for label in ("f", "f'"):
            self.name(label, self.hashes(label.encode()))
        for name, wanted in FILTERS.items():
            self._subscribe(name, wanted)

    def _own(self, name: str) -> dict[str, Exponent]:
        return {a if d == name else d: k for (d, a), k in self.keys.items() if name in (d, a)}

    def _subscribe(self, name: str, wanted: str) -> None:
        subscriber = Subscriber(self.tree.place(name), self.layers[name], self.hashes)
        pending = subscriber.encrypt_filter(LabelFilter((Conjunction(((wanted.encode(),),)),)))
        for sender, at in zip((name, *self.tree.ancestors(name)), self.tree.ancestors(name), strict=False):
            for message in pending:
                self.sent.append(Sent(sender, at, filter=message))
            pending = [m for message in pending for m in self.brokers[at].on_filter(sender, message)]

    def publish(self) -> None:
        """An event f, all the way."""
        publisher = Publisher(self.layers["P"], self.hashes, self.tree.targets(frozenset(FILTERS)))
        pending = [("P", *pair) for pair in publisher.encrypt_notification({b"f"}, b"payload").items()]
        while pending:
            sender, name, message = pending.pop(0)
            self.sent.append(Sent(sender, name, notification=message))
            if name in self.brokers:
                pending += [(name, *pair) for pair in self.brokers[name].on_notification(message).items()]
            elif name == "S1":
                off = own_layers(self.tree.place(name), self.layers[name]).inverse
                self.shared = self.group.power(self.group.decode(message.entries[0].key), off)
                self.name("kP", self.shared)

    # --- the observer ---------------------------------------------------------------------------------------------

    def name(self, symbol: str, element: Element) -> None:
        """Enter an element and everything that at most two keys make of it."""
        for count in range(_MOST + 1):
            for chosen in combinations(self.keys, count):
                found = element
                for pair in chosen:
                    found = self.group.power(found, self.keys[pair])
                self._symbols[found] = power(symbol, chosen)

    def symbol(self, element: Element) -> str:
        if element not in self._symbols:
            raise Bug("a node has something that is no product of at most two keys")
        return self._symbols[element]

    def read(self, token: bytes) -> str:
        return self.symbol(self.group.decode(token))


def power(base: str, pairs: Iterable[tuple[str, str]]) -> str:
    """`f^(kB1B4 kS1B3)`, keys in order of their names."""
    names = sorted("k" + descendant + ancestor for descendant, ancestor in pairs)
    return f"{base}^({' '.join(names)})" if names else base
