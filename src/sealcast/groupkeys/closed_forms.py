"""What the algorithms cost on average, without running them: the equations of paper 000, repaired, and more.

    (1) naive   (2) simple_random   (3) simple_popular   (4) clustered
    (5) clustered_popular_random    (6) clustered_popular_popular

N subscribers, C cache entries, K clusters (not necessarily whole: the paper's Table 1 has a cell that only an
unrounded K explains), S popular groups, p the probability that an event's group is one of them. Random groups are
uniform: every subscriber is a member with probability 1/2.

The equations charge an empty cluster as if it had members, and read C_K/2^N_K as a probability also where it exceeds
one; `exact_mean` does neither, and is what simulation must agree with.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from sealcast.errors import Misuse

# --- the paper's equations ----------------------------------------------------------------------------


def naive(n: float) -> float:
    """Equation 1."""
    return n / 2


def simple_random(n: float, c: float) -> float:
    """Equation 2. Nothing is clipped: beyond C = 2^N the equation itself makes no sense."""
    held = _share(c, n)
    return held + (1 - held) * n / 2


def simple_popular(n: float, c: float, s: float, p: float) -> float:
    """Equation 3, for a cache that holds popular groups only."""
    return (1 - p) * naive(n) + p * _mixed(c, s, naive(n))


def clustered(n: float, c: float, k: float) -> float:
    """Equation 4: K clusters, each a simple cache of C/K entries over N/K subscribers."""
    return k * simple_random(n / k, c / k)


def clustered_popular_random(n: float, c: float, k: float) -> float:
    """Equation 5. C is the whole cache, of which either half has C/2."""
    held = _share(c / 2, n)
    return held + (1 - held) * clustered(n, c / 2, k)


def clustered_popular_popular(n: float, c: float, k: float, s: float, p: float) -> float:
    """Equation 6. C is the whole cache, of which either half has C/2."""
    behind = clustered(n, c / 2, k)
    return (1 - p) * behind + p * _mixed(c / 2, s, behind)


def _share(c: float, n: float) -> float:
    """C/2^N, also where 2^N is beyond floating point."""
    return c * math.exp2(-n) if n < 1_000 else math.ldexp(c, -int(n)) * math.exp2(int(n) - n)


def _mixed(c: float, s: float, missed: float) -> float:
    if c > s:
        raise Misuse(
            f"the equation is for a cache of at most as many entries as there are popular groups: {c:g} > {s:g}"
        )
    return c / s + (s - c) / s * missed


# --- what is simulated, exactly -----------------------------------------------------------------------


def exact_mean(sizes: Sequence[int], caps: Sequence[int]) -> float:
    """Mean cost of clustered caches on uniform groups, warm: clusters of those sizes, caches of that many entries.

    Every sub-group but the empty one is as likely as any other, so that whatever the policy holds is a hit with
    h = min(1, c / (2^n - 1)); an empty cluster costs nothing, hence the 1 - 2^-n.
    """
    total = 0.0
    for n, c in zip(sizes, caps, strict=True):
        # Of those that are not empty, a share h is held; a miss costs the members, n/2 on average over all sub-groups.
        held = min(1.0, c / ((1 << n) - 1))
        total += (1 - 2.0**-n) * held + (1 - held) * n / 2
    return total


def che(c: float, s: float, p: float) -> tuple[float, float]:
    """Che's approximation of a least-recently-used cache on the popular set: its characteristic time, and its hits.

    An entry stays for about T events. With the cache as large as what is ever asked for, T is infinite.
    """
    if p >= 1 and c >= s:
        return math.inf, 1.0

    def held(t: float) -> float:
        return s * -math.expm1(-p * t / s) + (1 - p) * t

    low, high = 0.0, 1.0
    while held(high) < c:
        low, high = high, 2 * high
    for _ in range(200):
        middle = (low + high) / 2
        low, high = (middle, high) if held(middle) < c else (low, middle)
    return high, p * -math.expm1(-p * high / s)


def simple_popular_lru(n: float, c: float, s: float, p: float) -> float:
    """A real simple cache on the popular set, by Che's approximation: the paper's is "smart", this one only recent."""
    hit = che(c, s, p)[1]
    return hit + (1 - hit) * naive(n)


def clustered_popular_popular_lru(n: int, c: int, sizes: Sequence[int], s: float, p: float) -> float:
    """The same in front of clusters. What comes through to them is as random as what was asked for."""
    hit = che(c // 2, s, p)[1]
    behind = c - c // 2
    share, more = divmod(behind, len(sizes))
    return hit + (1 - hit) * exact_mean(sizes, [share + (i < more) for i in range(len(sizes))])


# --- the key tree -------------------------------------------------------------------------------------


def key_tree(n: int, q: float = 0.5) -> float:
    """Mean cover of the packed binary tree: qN - sum over inner nodes v of q^size(v).

    Every full inner node saves one: its two children become one key.
    """
    return q * n - sum(q**size * number for size, number in inner_nodes(n).items())


def inner_nodes(n: int) -> dict[int, int]:
    """Sizes of the inner nodes of the packed binary tree over n leaves, and how many there are of each."""
    sizes: dict[int, int] = {}
    while n > 1:
        sizes[n] = sizes.get(n, 0) + 1
        left = 1 << ((n - 1).bit_length() - 1)
        # The left child is a complete tree; the right one is looked at in the next round.
        for height in range(1, left.bit_length()):
            sizes[1 << height] = sizes.get(1 << height, 0) + (left >> height)
        n -= left
    return sizes


# --- what no scheme can beat --------------------------------------------------------------------------


def least_mean(n: int, keys: int) -> float:
    """The least mean cost of uniform groups with S keys, whatever the keys are.

    At most C(S, i) groups can be served by exactly i keys.
    """
    left, total, e, binomial = 1 << n, 0.0, 0, 1
    while left > 0:
        served = min(left, binomial)
        total += e * (served / (1 << n))
        left -= served
        if left and e >= keys:
            raise Misuse(f"{keys} keys are too few to tell the groups of {n} subscribers apart")
        binomial = binomial * (keys - e) // (e + 1)
        e += 1
    return total


def by_equation(algorithm: str, distribution: str, n: int, c: int, k: float, s: int, p: float) -> float:
    """The paper's own equation for an algorithm on `random` or `popular` groups, with k clusters.

    Where a cache holds the whole popular set, this is the equation's limit.
    """
    match algorithm, distribution:
        case "naive", _:
            return naive(n)
        case "simple", "random":
            return simple_random(n, c)
        case "simple", _:
            return simple_popular(n, min(c, s), s, p)
        case "clustered", _:
            return clustered(n, c, k)
        case "clustered-popular", "random":
            return clustered_popular_random(n, c, k)
        case "clustered-popular", _:
            return clustered_popular_popular(n, c, k, s, p) if c / 2 <= s else p + (1 - p) * clustered(n, c / 2, k)
        case "key-tree", _:
            return key_tree(n)
    raise Misuse(f"the paper has no equation for {algorithm!r}")
