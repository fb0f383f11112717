"""Subscriptions and events: uniform (WL1) and skewed (WL2: 80-20 Zipf around three to five hot spots)."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from sealcast.lab.tariq.ideal import DEPTH, Bits

#: Four of five choices are made among one of five values around a hot spot.
HOT_SHARE: Final = 0.8
HOT_WIDTH: Final = 0.2


def attribute_names(number: int) -> list[str]:
    return [f"a{i}" for i in range(number)]


@dataclass(slots=True)
class Workload:
    """Draws labels and values. `hot_spots` of 0 is uniform."""

    rng: random.Random
    hot_spots: int = 0
    depth: int = DEPTH
    spots: list[int] = field(init=False)

    def __post_init__(self) -> None:
        self.spots = [self.rng.randrange(1 << self.depth) for _ in range(self.hot_spots)]

    def value(self) -> Bits:
        size = 1 << self.depth
        if not self.spots or self.rng.random() >= HOT_SHARE:
            at = self.rng.randrange(size)
        else:
            spot = self._zipf(self.spots)
            width = max(1, int(HOT_WIDTH * size / len(self.spots)))
            at = (spot + self.rng.randrange(width) - width // 2) % size
        return format(at, f"0{self.depth}b")

    def label(self, longest: int | None = None) -> Bits:
        """A label around a value: any length is as likely as any other."""
        return self.value()[: self.rng.randint(1, self.depth if longest is None else longest)]

    def labels(self, attributes: Sequence[str], longest: int | None = None) -> dict[str, tuple[Bits, ...]]:
        """A subscription with one label for each attribute."""
        return {name: (self.label(longest),) for name in attributes}

    def values(self, attributes: Sequence[str]) -> dict[str, Bits]:
        return {name: self.value() for name in attributes}

    def _zipf(self, spots: Sequence[int]) -> int:
        weights = [1 / rank for rank in range(1, len(spots) + 1)]
        return self.rng.choices(spots, weights)[0]
