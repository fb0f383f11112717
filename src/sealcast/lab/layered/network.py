"""The tree of one run, the paper's figure 1 for any number of subscriptions and layers:

    p - b0 - b1 - b2 - s0, s2, ...          R brokers one below the other, and two below them that subscribers are at
               \\- b3 - s1, s3, ...

The publisher encrypts for every node R hops below it, and here that is one. Whoever subscribes stands deeper than R, so
that no layer of its filters ends early.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Final

from sealcast.protections.layered.tree import Path, Tree

PUBLISHER: Final = "p"
HOMES: Final = 2


@dataclass(frozen=True)
class Network:
    """Names say all: subscriber i is subscription i, and what a worker is sent of a network is two numbers."""

    layers: int
    subscribers: int

    @cached_property
    def levels(self) -> tuple[tuple[str, ...], ...]:
        """Brokers, the publisher's child first."""
        trunk = [(f"b{depth}",) for depth in range(self.layers)]
        return *trunk, tuple(f"b{self.layers + i}" for i in range(HOMES))

    @property
    def brokers(self) -> tuple[str, ...]:
        return tuple(name for level in self.levels for name in level)

    @property
    def homes(self) -> tuple[str, ...]:
        """Where subscribers are."""
        return self.levels[-1]

    def subscriber(self, number: int) -> str:
        return f"s{number}"

    def number(self, subscriber: str) -> int:
        return int(subscriber.removeprefix("s"))

    def home(self, number: int) -> str:
        return self.homes[number % len(self.homes)]

    @cached_property
    def tree(self) -> Tree:
        return Tree(PUBLISHER, dict(self._parents()), self.layers)

    def targets(self) -> list[Path]:
        """Whom the publisher encrypts for. Nobody who subscribes stands above the lowest of them."""
        return list(self.tree.targets(frozenset()))

    @cached_property
    def names(self) -> tuple[str, ...]:
        """Everyone, in the order of the list of public keys."""
        return PUBLISHER, *self.tree.names

    def _parents(self) -> Iterator[tuple[str, str]]:
        above: tuple[str, ...] = (PUBLISHER,)
        for level in self.levels:
            yield from ((name, above[0]) for name in level)
            above = level
        for number in range(self.subscribers):
            yield self.subscriber(number), self.home(number)
