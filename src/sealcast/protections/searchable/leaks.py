"""What tags of B bits reveal, measured by the attack that they allow.

A broker learns which events and which subscriptions share a label as soon as the label is published: that is matching.
Tags add what it can say of labels that were *never* published. Two subscriptions to one label have one tag, so a broker
guesses that subscriptions with equal tags ask for the same. The attack makes that guess for every pair of
subscriptions, against real tags of a made-up population, and counts:

    precision   of the pairs with equal tags, the share that really have equal labels
    baseline    the same for pairs drawn blindly: what the broker knows without tags
    anonymity   how many different labels in use a subscription's tag may stand for, on average over subscriptions

Of events tags add nothing: their tokens, which a broker computes anyway, are equal when their labels are.

All pairs with equal labels have equal tags, so the guess never misses one. Without tags (B = 0) precision is the
baseline, and the broker looks at every label for every new token; with 32 bits equality of subscriptions shows.
"""

from __future__ import annotations

import hmac
from dataclasses import dataclass
from functools import cache
from typing import Final

import numpy as np
from numpy.typing import NDArray

from sealcast.errors import Misuse
from sealcast.wire.searching import MAX_TAG_BITS

#: The population that `explain` quotes: subscriptions to labels as popular as Zipf's law with exponent 1 has it.
LABELS: Final = 10_000
SUBSCRIPTIONS: Final = 100_000
#: Fixed, so that the same numbers are quoted everywhere. Any other key gives numbers of the same size.
_KEY: Final = bytes(32)

Counts = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class TagLeak:
    """What the attack finds at one length of tags."""

    bits: int
    labels: int
    subscriptions: int
    precision: float
    baseline: float
    anonymity: float

    @property
    def summary(self) -> str:
        """For people, in one sentence each."""
        population = f"of {self.subscriptions:,} subscriptions to {self.labels:,} labels"
        if not self.bits:
            return (
                f"No tags: brokers learn nothing of labels that were never published. A guess that two subscriptions "
                f"{population} ask for the same is right in {self.baseline:.1%} of cases."
            )
        return (
            f"Tags of {self.bits} bits: {population}, two with equal tags ask for the same in {self.precision:.2%} of "
            f"cases (a blind guess: {self.baseline:.1%}), even if nobody ever published that. A tag stands for "
            f"{self.anonymity:.1f} of the labels in use."
        )


@cache
def tag_leak(bits: int, labels: int = LABELS, subscriptions: int = SUBSCRIPTIONS, seed: int = 1) -> TagLeak:
    """Mounts the attack on a population of that size."""
    if not 0 <= bits <= MAX_TAG_BITS:
        raise Misuse(f"a tag has 0 to {MAX_TAG_BITS} bits, not {bits}")
    weights = 1.0 / np.arange(1, labels + 1)
    wanted = np.random.default_rng(seed).choice(labels, subscriptions, p=weights / weights.sum())
    # Truncated HMACs, as `UserKeys.tag` makes them; what the labels are does not matter.
    whole = np.array(
        [int.from_bytes(hmac.digest(_KEY, label.to_bytes(8, "big"), "sha256")[:4], "big") for label in range(labels)],
        np.int64,
    )
    tags = whole >> (MAX_TAG_BITS - bits)
    by_label, by_tag = np.bincount(wanted, minlength=labels), np.unique(tags[wanted], return_counts=True)[1]
    used = np.flatnonzero(by_label)
    _, tag_of_used, sharing = np.unique(tags[used], return_inverse=True, return_counts=True)
    anonymity = float((by_label[used] * sharing[tag_of_used]).sum() / subscriptions)
    equal = _pairs(by_label)
    return TagLeak(
        bits,
        labels,
        subscriptions,
        equal / _pairs(by_tag),
        equal / _pairs(np.array([subscriptions])),
        anonymity,
    )


def _pairs(counts: Counts) -> float:
    return float((counts * (counts - 1) // 2).sum())
