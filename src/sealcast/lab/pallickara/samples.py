"""Means of repeated runs, and which runs are left out.

Paper 004 runs a case 15 times and has "removed outliers (if any)" without a rule. Ours is Tukey's: what lies more than
one and a half times the distance of the quartiles outside of them is left out, and how many were is said.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

FENCE: Final = 1.5
RULE: Final = f"left out is what lies more than {FENCE} times the distance of the quartiles outside of them (Tukey)"


@dataclass(frozen=True, slots=True)
class Sample:
    """Of the runs that count: mean, standard deviation (of a sample), standard error of the mean."""

    mean: float
    deviation: float
    kept: int
    outliers: int = 0

    @property
    def error(self) -> float:
        return self.deviation / math.sqrt(self.kept)

    def times(self, factor: float) -> Sample:
        """Converts the sample to another unit."""
        return Sample(self.mean * factor, self.deviation * factor, self.kept, self.outliers)


def sample(values: Sequence[float]) -> Sample:
    """The mean and deviation of all values."""
    return Sample(statistics.fmean(values), statistics.stdev(values) if len(values) > 1 else 0.0, len(values))


def without_outliers(values: Sequence[float]) -> Sample:
    """The mean and deviation of the values that are no outliers, and how many were."""
    kept = within(values)
    found = sample(kept)
    return Sample(found.mean, found.deviation, found.kept, len(values) - len(kept))


def within(values: Sequence[float]) -> list[float]:
    if len(values) < 4:
        return list(values)
    low, _, high = statistics.quantiles(values, n=4, method="inclusive")
    reach = FENCE * (high - low)
    return [value for value in values if low - reach <= value <= high + reach]
