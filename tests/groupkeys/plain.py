"""The paper's algorithms once more, written from the rules alone: one event at a time, sets and dictionaries.

Nothing here shares a line with the package. Totals must agree to the last integer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from fractions import Fraction
from math import log

Group = frozenset[int]


class PlainLru:
    """A list, the most recent in front."""

    def __init__(self, room: int) -> None:
        self.room, self.entries = room, list[Group]()

    def hit(self, group: Group) -> bool:
        if group in self.entries:
            self.entries.remove(group)
            self.entries.insert(0, group)
            return True
        if self.room:
            if len(self.entries) == self.room:
                self.entries.pop()
            self.entries.insert(0, group)
        return False


class PlainFrequency:
    """A dictionary of all counts, and the entries in the order in which they entered."""

    def __init__(self, room: int) -> None:
        self.room, self.entries, self.counts = room, list[Group](), dict[Group, int]()

    def hit(self, group: Group) -> bool:
        self.counts[group] = self.counts.get(group, 0) + 1
        if group in self.entries:
            return True
        if len(self.entries) < self.room:
            self.entries.append(group)
        elif self.room:
            least = min(self.counts[e] for e in self.entries)
            if self.counts[group] >= least:
                victim = next(e for e in self.entries if self.counts[e] == least)
                self.entries.remove(victim)
                self.entries.append(group)
        return False


POLICIES: dict[str, Callable[[int], PlainLru | PlainFrequency]] = {"lru": PlainLru, "frequency": PlainFrequency}


def parts(total: int, number: int) -> list[int]:
    shares = [total // number] * number
    for i in range(total - sum(shares)):
        shares[i] += 1
    return shares


def number_of_clusters(n: int, c: int) -> int:
    """The floor of the first root of 2^(n/k) = c/k, by looking at every integer."""
    if 2**n < c:
        return 1
    below = [k for k in range(1, n + 1) if k <= n * log(2)]
    signs = [Fraction(2**n) >= Fraction(c, k) ** k for k in below]
    # The function falls up to n ln 2: the root is where the sign changes, if it does before the lowest point.
    if c == 0 or 1 - log(c) + log(n * log(2)) > 0:
        return n
    return max([k for k, over in zip(below, signs, strict=True) if over], default=1)


def naive(groups: Iterable[Group]) -> list[int]:
    return [len(group) for group in groups]


def simple(groups: Iterable[Group], c: int, policy: str) -> list[int]:
    cache = POLICIES[policy](c)
    return [(1 if cache.hit(group) else len(group)) if group else 0 for group in groups]


def clustered(groups: Iterable[Group], n: int, c: int, k: int | None, policy: str) -> list[int]:
    return PlainClusters(n, c, k, policy).run(groups)


class PlainClusters:
    def __init__(self, n: int, c: int, k: int | None, policy: str) -> None:
        k = number_of_clusters(n, c) if k is None else k
        self.caches = [POLICIES[policy](room) for room in parts(c, k)]
        ids = list(range(n))
        self.members = []
        for size in parts(n, k):
            self.members.append(frozenset(ids[:size]))
            ids = ids[size:]

    def cost(self, group: Group) -> int:
        total = 0
        for members, cache in zip(self.members, self.caches, strict=True):
            part = group & members
            if part:
                total += 1 if cache.hit(part) else len(part)
        return total

    def run(self, groups: Iterable[Group]) -> list[int]:
        return [self.cost(group) for group in groups]


def clustered_popular(groups: Iterable[Group], n: int, c: int, k: int | None, policy: str) -> list[int]:
    front = POLICIES[policy](c // 2)
    behind = PlainClusters(n, c - c // 2, k, "lru")
    costs = []
    for group in groups:
        if not group:
            costs.append(0)
        elif front.hit(group):
            costs.append(1)
        else:
            costs.append(behind.cost(group))
    return costs


def build_up(groups: Iterable[Group], c: int) -> list[int]:
    places: list[Group] = []
    recent: list[Group] = []  # the most recent last
    costs = []
    for group in groups:
        if not group:
            costs.append(0)
            continue
        if group in places:
            recent.remove(group)
            recent.append(group)
            costs.append(1)
            continue
        left, used = set(group), 0
        for entry in sorted(places, key=lambda e: (-len(e), places.index(e))):
            if len(entry) > 1 and entry <= left:
                left -= entry
                used += 1
                recent.remove(entry)
                recent.append(entry)
        costs.append(used + len(left))
        if c and len(places) < c:
            places.append(group)
            recent.append(group)
        elif c:
            places[places.index(recent.pop(0))] = group
            recent.append(group)
    return costs


def key_tree(groups: Iterable[Group], n: int) -> list[int]:
    def cover(first: int, size: int, group: Group) -> int:
        inside = len(group & frozenset(range(first, first + size)))
        if inside in (0, size):
            return int(inside > 0)
        left = 2 ** ((size - 1).bit_length() - 1)
        return cover(first, left, group) + cover(first + left, size - left, group)

    return [cover(0, n, group) for group in groups]
