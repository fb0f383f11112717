"""The tree of one run: a publisher, brokers below it, and the subscriptions at the lowest of them.

    p - b0 - b1 - s0, s2, ...          R levels of brokers for R layers: a subscriber stands R + 1 hops
          \\- b2 - s1, s3, ...          below the publisher, and no layer ends early

A level has twice the brokers of the one above it, up to four: each of those R hops below the publisher is one more
place that it encrypts every event for.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Final

from sealcast.schemes.layered.tree import Path, Tree

PUBLISHER: Final = "p"
FAN_OUT: Final = 2
MAX_ABREAST: Final = 4


@dataclass(frozen=True)
class Network:
    """Names say all: subscriber i is subscription i, and what a worker is sent of a network is two numbers."""

    layers: int
    subscribers: int

    @cached_property
    def levels(self) -> tuple[tuple[str, ...], ...]:
        """Brokers, the publisher's child first."""
        found: list[tuple[str, ...]] = []
        number = 0
        for level in range(self.layers):
            size = min(FAN_OUT**level, MAX_ABREAST)
            found.append(tuple(f"b{number + i}" for i in range(size)))
            number += size
        return tuple(found)

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
            for i, name in enumerate(level):
                yield name, above[i * len(above) // len(level)]
            above = level
        for number in range(self.subscribers):
            yield self.subscriber(number), self.home(number)
