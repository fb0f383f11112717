"""Groups for tests: as sets, as packed words, and workloads of both kinds of the paper."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from sealcast.filters import bits


def packed(rows: Sequence[frozenset[int]], slots: int) -> bits.Words:
    pairs = [(r, b) for r, row in enumerate(rows) for b in sorted(row)]
    row, bit = np.array(pairs, np.int64).reshape(-1, 2).T
    return bits.pack(row, bit, len(rows), slots)


def popular(n: int, events: int, p: float, size: int, seed: int, density: float = 0.5) -> list[frozenset[int]]:
    """Of a fixed set with probability p, else any group; the empty one is among them now and then."""
    rng = np.random.default_rng(seed)

    def some() -> frozenset[int]:
        return frozenset(np.flatnonzero(rng.random(n) < density).tolist())

    fixed = [some() for _ in range(size)]
    drawn = [fixed[rng.integers(size)] if rng.random() < p else some() for _ in range(events)]
    return [frozenset() if rng.random() < 0.02 else group for group in drawn]
