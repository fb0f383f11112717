"""What pre-filters are held against: a counter of keys that forgets nothing."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

import numpy as np

from sealcast.prefilters import Keys, Members


def keys(number: int, seed: int) -> Keys:
    """Random keys; those of different seeds have nothing in common."""
    return np.random.default_rng(seed).integers(0, 2**64, number, dtype=np.uint64)


@dataclass
class Churn:
    """Adds, removes and looks up at random, and counts what goes wrong."""

    members: Members
    universe: Keys
    seed: int
    truth: Counter[int] = field(default_factory=Counter)
    added: int = 0
    removed: int = 0
    false_negatives: int = 0
    #: Look-ups of keys outside the universe: how many, with how many yeses, and how many theory expects.
    strangers: int = 0
    hits: int = 0
    expected: float = 0.0
    variance: float = 0.0

    def run(self, batches: int, size: int) -> None:
        random = np.random.default_rng(self.seed)
        for number in range(batches):
            added = random.choice(self.universe, size)
            self.members.add(added)
            self.added += len(added)
            self.truth.update(added.tolist())
            self.look(random)
            held = np.fromiter(self.truth.elements(), np.uint64, self.truth.total())
            # It swells and shrinks: in turns more are added than removed, and the other way around.
            share = size // 2 if number % 20 < 12 else size * 3 // 2
            removed = random.choice(held, min(len(held), share), replace=False)
            self.members.remove(removed)
            self.removed += len(removed)
            self.truth.subtract(removed.tolist())
            for key in set(removed.tolist()):
                if not self.truth[key]:
                    del self.truth[key]
            self.look(random, strangers=size)

    def look(self, random: np.random.Generator, strangers: int = 0) -> None:
        present = np.fromiter(self.truth, np.uint64, len(self.truth))
        self.false_negatives += int(np.count_nonzero(~self.members.filter.may_contain(present)))
        absent = random.integers(0, 2**64, strangers, dtype=np.uint64)
        rate = self.members.filter.false_positive_rate
        self.strangers += strangers
        self.hits += int(np.count_nonzero(self.members.filter.may_contain(absent)))
        self.expected += strangers * rate
        self.variance += strangers * rate * (1 - rate)
