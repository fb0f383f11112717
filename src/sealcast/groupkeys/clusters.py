"""Dividing subscribers into clusters: who goes together, and into how many.

Who: by id (consecutive slots), at random, or by similarity (subscribers that match the same events side by side).
How many: the paper's rule, the least number for which full tables fit, or whatever is best on a sample of the workload.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import accumulate, pairwise
from typing import Final

import numpy as np

from sealcast.errors import Misuse
from sealcast.filters import bits
from sealcast.filters.bits import Indices, Words
from sealcast.model.dataclass import dataclass


def split(total: int, parts: int) -> list[int]:
    """Sizes that differ by at most one; the first `total mod parts` get one more."""
    return [total // parts + (i < total % parts) for i in range(parts)]


# --- who goes together --------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, eq=False)
class Clustering:
    """Slots in an order, cut into consecutive clusters. Slots that came later belong to none of them."""

    #: The slot at each place.
    order: Indices
    sizes: tuple[int, ...]
    #: Of each slot: its cluster.
    cluster_of: Indices
    in_slot_order: bool

    def __len__(self) -> int:
        return len(self.sizes)

    @property
    def subscribers(self) -> int:
        return int(self.order.size)

    def bounds(self) -> Iterator[tuple[int, int]]:
        return pairwise(accumulate(self.sizes, initial=0))

    def slots(self) -> list[Indices]:
        """The slots of each cluster, in the order of its bits in `restrict`."""
        return [self.order[a:b] for a, b in self.bounds()]

    def restrict(self, groups: Words) -> Iterator[Words]:
        """Returns for each cluster every group's members in it, packed."""
        placed = fit(groups, self.subscribers)
        if not self.in_slot_order:
            placed = permute(placed, self.order)
        return (extract(placed, a, b) for a, b in self.bounds())


def arrange(order: Indices, clusters: int) -> Clustering:
    """Cut an order of all slots into that many clusters of almost equal size."""
    subscribers = int(order.size)
    if not 1 <= clusters <= max(1, subscribers):
        raise Misuse(
            f"{subscribers} subscribers can be divided into 1 to {max(1, subscribers)} clusters, not {clusters}"
        )
    sizes = split(subscribers, clusters)
    cluster_of = np.empty(subscribers, np.int64)
    cluster_of[order] = np.repeat(np.arange(clusters), sizes)
    return Clustering(order, tuple(sizes), cluster_of, bool(np.array_equal(order, np.arange(subscribers))))


def by_id(subscribers: int, clusters: int) -> Clustering:
    """Consecutive slots: the convention wherever results are compared."""
    return arrange(np.arange(subscribers, dtype=np.int64), clusters)


def at_random(subscribers: int, clusters: int, seed: int) -> Clustering:
    return arrange(np.random.default_rng(seed).permutation(subscribers), clusters)


def by_similarity(subscribers: int, clusters: int, sample: Words) -> Clustering:
    """Subscribers that match the same events, next to each other."""
    return arrange(similarity_order(subscribers, sample), clusters)


#: Ways to divide subscribers into clusters: as they came, by lot, or those together who get the same events.
CLUSTERINGS: Final = ("id", "random", "similarity")
#: So that the lab counts the same twice.
RANDOM_SEED: Final = 0


def arranged(how: str, subscribers: int, clusters: int, past: Words | None = None) -> Clustering:
    """One of `CLUSTERINGS`, by its name; similarity needs groups of the past."""
    match how:
        case "id":
            return by_id(subscribers, clusters)
        case "random":
            return at_random(subscribers, clusters, RANDOM_SEED)
        case "similarity" if past is not None and len(past):
            return by_similarity(subscribers, clusters, past)
        case "similarity":
            raise Misuse(
                "who is similar is known from events of the past, and there are none",
                hint="--warmup 1000: they are looked at and not counted",
            )
        case _:
            raise Misuse(f"subscribers are put together by one of {', '.join(CLUSTERINGS)}, not by {how!r}")


def similarity_order(subscribers: int, sample: Words) -> Indices:
    """A walk over the subscribers from each to the one, of those left, that shares most of its events (Jaccard).

    It starts at the one with the most events. Time is quadratic in the subscribers: this is for when clusters are
    made, not for when events are planned.
    """
    events = _columns(fit(sample, subscribers), subscribers)
    size = bits.count(events)
    left = np.ones(subscribers, np.bool_)
    order = np.empty(subscribers, np.int64)
    at = int(np.argmax(size)) if subscribers else 0
    for place in range(subscribers):
        order[place] = at
        left[at] = False
        shared = np.bitwise_count(events & events[at]).sum(axis=1, dtype=np.int64)
        together = size + size[at] - shared
        # Those without events are alike: they follow one another, at the end.
        likeness = np.where(left, shared / np.maximum(together, 1), -1.0)
        at = int(np.argmax(likeness))
    return order


def _columns(packed: Words, n_bits: int) -> Words:
    """Rows become bits and bits become rows."""
    row, bit = bits.pairs(packed)
    return bits.pack(bit, row, n_bits, packed.shape[0])


# --- packed rows, by place ----------------------------------------------------------------------------


def fit(groups: Words, n_bits: int) -> Words:
    """The first `n_bits` of every row, in exactly the words that they need."""
    width = bits.words_for(n_bits)
    fitted = np.zeros((groups.shape[0], width), np.uint64)
    shared = min(width, groups.shape[1])
    fitted[:, :shared] = groups[:, :shared]
    if n_bits < 64 * width:
        fitted[:, -1] &= np.uint64((1 << (n_bits - 64 * (width - 1))) - 1)
    return fitted


def beyond(groups: Words, n_bits: int) -> Indices:
    """How many bits of each row `fit` leaves out."""
    return bits.count(groups) - bits.count(fit(groups, n_bits))


def extract(packed: Words, start: int, end: int) -> Words:
    """Bits [start, end) of every row, shifted to the front."""
    width = bits.words_for(end - start)
    first, shift = divmod(start, 64)
    low = np.zeros((packed.shape[0], width + 1), np.uint64)
    taken = packed[:, first : first + width + 1]
    low[:, : taken.shape[1]] = taken
    if shift:
        low[:, :-1] = low[:, :-1] >> np.uint64(shift) | low[:, 1:] << np.uint64(64 - shift)
    return fit(low[:, :-1], end - start)


def permute(packed: Words, order: Indices) -> Words:
    """Bit i of a new row is bit order[i] of the old one."""
    flags = np.unpackbits(packed.astype("<u8", copy=False).view(np.uint8), axis=1, bitorder="little")
    return bits.mask(flags[:, order].view(np.bool_))


# --- how many -----------------------------------------------------------------------------------------


def root(subscribers: int, cache: int) -> float | None:
    """The first real root of 2^(N/K) = C/K: where a cluster's cache holds just about all of its sub-groups.

    The difference of the logarithms falls until K = N ln 2 and rises afterwards, so that the first root, if there is
    one, is before that.
    """
    if subscribers < 1 or cache < 1:
        return None
    lowest = subscribers * math.log(2)

    def over(k: float) -> float:
        return lowest / k + math.log(k) - math.log(cache)

    if over(lowest) > 0:
        return None
    low, high = lowest, lowest
    while over(low) <= 0:
        low /= 2
    for _ in range(200):
        middle = (low + high) / 2
        low, high = (middle, high) if over(middle) > 0 else (low, middle)
    return high


def by_rule(subscribers: int, cache: int) -> int:
    """The paper's number: the floor of the first root; 1 if all groups fit in one cache, N if there is no root.

    The floor is decided on integers (2^N K^K against C^K): a root may be an integer, and rounding must not decide.
    """
    if (1 << subscribers) < cache:
        return 1
    real = root(subscribers, cache)
    if real is None:
        return max(1, subscribers)
    near = math.floor(real)
    fits = [k for k in (near - 1, near, near + 1) if k >= 1 and (1 << subscribers) * k**k >= cache**k]
    return max(1, max((k for k in fits if k <= subscribers * math.log(2)), default=1))


def by_table_rule(subscribers: int, cache: int) -> int:
    """The number behind the paper's Table 1: the root, rounded."""
    real = root(subscribers, cache)
    return subscribers if real is None else max(1, round(real))


def by_full_tables(subscribers: int, cache: int) -> int:
    """The smallest number for which every sub-group of every cluster fits in its cache: never a miss once warm.

    N where even clusters of one do not fit.
    """

    def fits(k: int) -> bool:
        sizes, room = split(subscribers, k), split(cache, k)
        return all((1 << n) - 1 <= c for n, c in {*zip(sizes, room, strict=True)})

    return next((k for k in range(1, subscribers + 1) if subscribers // k < 64 and fits(k)), max(1, subscribers))


def by_trial(candidates: Iterable[int], cost: Callable[[int], float]) -> int:
    """The cheapest of several numbers on a workload; the smallest of equals."""
    tried = sorted(set(candidates))
    if not tried:
        raise Misuse("there is no number of clusters to try")
    return min(tried, key=cost)


def around(
    number: int, subscribers: int, factors: Sequence[float] = (0.25, 0.5, 0.7, 0.85, 1, 1.2, 1.5, 2)
) -> list[int]:
    """Numbers of clusters worth trying around one."""
    return sorted({min(max(1, subscribers), max(1, round(number * factor))) for factor in factors})
