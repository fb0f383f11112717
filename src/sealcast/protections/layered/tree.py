"""Where nodes stand: the tree of one publisher. Keys, tables and trees are per publisher; a node may be in several.

    v_0 = S, v_1 = its parent, ..., v_n = P       top(v) = the r-th ancestor of v, or P if there are fewer

A place is what one node knows of it: its ancestors up to r. The publisher knows its descendants down to r. Nobody
needs more, and `Tree`, which has it all, is for whoever sets a deployment up.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from sealcast.errors import Misuse, NotFound
from sealcast.wire import cbor

#: Two is what paper 001 describes: one layer hides from the parent, the other from the grandparent.
MIN_LAYERS: Final = 2
MAX_LAYERS: Final = 16
MAX_TREE_DEPTH: Final = 64

#: Ids of the last hops that a filter came, the nearest first: at most r of them. The last one shares the layer's key.
Path = tuple[str, ...]


class TreeId(NamedTuple):
    """Which tree of a topic keys and rows are for: whose, in which epoch of the topic, in which generation of its
    overlay."""

    publisher: str
    epoch: int
    generation: int

    def domain(self, topic_id: bytes) -> bytes:
        """What all keys of the tree are derived for: no two trees, of any topics, have the same."""
        return cbor.encode([topic_id, self.epoch, self.generation, self.publisher])


@dataclass(frozen=True, slots=True)
class TreePlace:
    """Where one node stands."""

    name: str
    #: Its ancestors, the parent first: r of them, or fewer, and then the last is the publisher.
    chain: Path
    publisher: str
    layers: int

    def __post_init__(self) -> None:
        if not MIN_LAYERS <= self.layers <= MAX_LAYERS:
            raise Misuse(f"{MIN_LAYERS} to {MAX_LAYERS} layers, not {self.layers}")
        if not 0 < len(self.chain) <= self.layers or self.name in self.chain:
            raise Misuse(f"{self.name} has one to {self.layers} ancestors, the parent first")
        if len(self.chain) < self.layers and self.chain[-1] != self.publisher:
            raise Misuse(f"fewer than {self.layers} ancestors of {self.name} end at the publisher")

    @property
    def parent(self) -> str:
        return self.chain[0]

    @property
    def top(self) -> str:
        return self.chain[-1]


class Tree:
    """One publisher and everyone below it. It grows: nodes join."""

    def __init__(self, publisher: str, parents: Mapping[str, str], layers: int = MIN_LAYERS) -> None:
        self.publisher = publisher
        self.layers = layers
        self._parents: dict[str, str] = {}
        self._children: dict[str, dict[str, None]] = {publisher: {}}
        waiting = dict(parents)
        while waiting:
            ready = [name for name, parent in waiting.items() if parent in self._children]
            if not ready:
                raise Misuse(f"{next(iter(waiting))} is not connected to the publisher {publisher}")
            for name in ready:
                self.join(name, waiting.pop(name))

    def join(self, name: str, parent: str) -> None:
        if name in self._children:
            raise Misuse(f"{name} is in the tree already")
        if parent not in self._children:
            raise NotFound(f"there is no node {parent!r} to join")
        if self.depth(parent) >= MAX_TREE_DEPTH:
            raise Misuse(f"a tree is at most {MAX_TREE_DEPTH} hops deep")
        self._parents[name] = parent
        self._children[name] = {}
        self._children[parent][name] = None

    @property
    def names(self) -> tuple[str, ...]:
        """Everyone but the publisher."""
        return tuple(self._parents)

    def __contains__(self, name: str) -> bool:
        return name in self._children

    def children(self, name: str) -> tuple[str, ...]:
        return tuple(self._children[name])

    def ancestors(self, name: str) -> Path:
        """From the parent to the publisher."""
        found: list[str] = []
        while name != self.publisher:
            name = self._parents[name]
            found.append(name)
        return tuple(found)

    def depth(self, name: str) -> int:
        return len(self.ancestors(name))

    def place(self, name: str) -> TreePlace:
        return TreePlace(name, self.ancestors(name)[: self.layers], self.publisher, self.layers)

    def pairs(self) -> Iterator[tuple[str, str]]:
        """(descendant, ancestor) of everyone who shares a key."""
        for name in self._parents:
            for ancestor in self.ancestors(name)[: self.layers]:
                yield name, ancestor

    def targets(self, subscribers: frozenset[str]) -> Iterator[Path]:
        """Whom the publisher encrypts for, each as its way from the publisher's child down: every r-th descendant, and
        whoever subscribes above them."""
        for name in self._parents:
            up = self.ancestors(name)
            if len(up) == self.layers or (1 < len(up) < self.layers and name in subscribers):
                yield (*reversed(up[:-1]), name)
