"""The network of the paper's figure 1, and an observer who has the keys of all its nodes.

    P - B4 - B3 - B1 - S1, S2          S1 to S4 subscribe to f, S5 to f'
                \\- B2 - S3, S4, S5

Symbols are read off numbers: the observer raises f, f' and the payload key to every product of at most two keys, and
looks up what a node really sent or holds. What stands in no row of that dictionary is no such symbol.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import combinations
from typing import Final

from sealcast.errors import Bug
from sealcast.lab.shikfa.net import Net, only
from sealcast.primitives.groups import Element, Group
from sealcast.protections.layered.subscribe import own_layers
from sealcast.protections.layered.tree import Tree

PARENTS: Final = {
    "B4": "P",
    "B3": "B4",
    "B1": "B3",
    "B2": "B3",
    "S1": "B1",
    "S2": "B1",
    "S3": "B2",
    "S4": "B2",
    "S5": "B2",
}
FILTERS: Final = {"S1": "f", "S2": "f", "S3": "f", "S4": "f", "S5": "f'"}
_MOST: Final = 2


class Figure1(Net):
    """The network after everybody subscribed, with the observer's dictionary."""

    def __init__(self, group: Group) -> None:
        super().__init__(Tree("P", PARENTS), group)
        self._symbols: dict[Element, str] = {}
        for label in ("f", "f'"):
            self.name(label, self.hashes(label.encode()))
        for name, wanted in FILTERS.items():
            self.subscribe(name, only(wanted.encode()))

    def published(self) -> Element:
        """Publishes an event f, and names the payload key as S1 opens it."""
        if "S1" not in self.publish(frozenset({b"f"}), b"payload").got:
            raise Bug("an event f did not reach S1")
        message = next(m for sent, m in self.notifications() if sent.receiver == "S1")
        off = own_layers(self.tree.place("S1"), self.layers["S1"]).inverse
        shared = self.group.power(self.group.decode(message.entries[0].key), off)
        self.name("kP", shared)
        return shared

    # --- the observer ---------------------------------------------------------------------------------------------

    def name(self, symbol: str, element: Element) -> None:
        """Enters an element and everything that at most two keys make of it."""
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
