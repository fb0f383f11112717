"""Totals agree to the last integer with a plain implementation written from the rules alone."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sealcast.filters import bits
from sealcast.groupkeys import Algorithm
from sealcast.groupkeys.build_up import BuildUp
from sealcast.groupkeys.catalog import Setting as Chosen
from sealcast.groupkeys.catalog import make
from sealcast.groupkeys.clusters import by_rule
from sealcast.groupkeys.key_tree import KeyTree
from sealcast.groupkeys.naive import Naive
from sealcast.groupkeys.simple import Simple
from tests.effort import examples
from tests.groupkeys import plain
from tests.groupkeys.groups import packed, popular

Rows = list[frozenset[int]]
Setting = tuple[int, int, int | None, str]  # subscribers, cache, clusters, policy

#: Every algorithm beside its plain twin.
TWINS: dict[str, tuple[Callable[[Setting], Algorithm], Callable[[Rows, Setting], list[int]]]] = {
    "naive": (lambda s: Naive(), lambda g, s: plain.naive(g)),
    "simple": (lambda s: Simple(s[0], s[1], s[3]), lambda g, s: plain.simple(g, s[1], s[3])),
    "build-up": (lambda s: BuildUp(s[0], s[1]), lambda g, s: plain.build_up(g, s[1])),
    "clustered": (lambda s: make("clustered", Chosen(*s)), lambda g, s: plain.clustered(g, *s)),
    "clustered-popular": (
        lambda s: make("clustered-popular", Chosen(*s)),
        lambda g, s: plain.clustered_popular(g, *s),
    ),
    "key-tree": (lambda s: KeyTree(s[0]), lambda g, s: plain.key_tree(g, s[0])),
}


def in_batches(algorithm: Algorithm, rows: Rows, slots: int, step: int) -> list[int]:
    """As the pipeline would see them: a batch at a time, distinct groups, and the group of each event."""
    costs: list[int] = []
    for first in range(0, len(rows), step):
        groups, group_of = bits.unique_rows(packed(rows[first : first + step], slots))
        costs += algorithm.count(groups, group_of).tolist()
    return costs


@pytest.mark.parametrize("policy", ["lru", "frequency"])
@pytest.mark.parametrize("name", TWINS)
@pytest.mark.parametrize(
    ("n", "cache", "clusters", "events", "p", "size"),
    [
        (12, 40, None, 400, 0.0, 1),  # everything random, a rule that gives several clusters
        (12, 40, 5, 400, 0.8, 30),
        (40, 30, 7, 300, 0.9, 60),  # more popular groups than entries
        (5, 100, None, 200, 0.3, 4),  # everything fits: one cluster
        (100, 20, None, 150, 0.5, 8),  # no root: as many clusters as subscribers, most without an entry
        (130, 64, 1, 150, 0.7, 20),  # clusters wider than a word
        (200, 61, 3, 200, 0.9, 40),
        (30, 0, 4, 60, 0.5, 5),  # no cache at all
        (30, 1, 1, 60, 0.9, 2),
    ],
)
def test_totals_agree(
    name: str, policy: str, n: int, cache: int, clusters: int | None, events: int, p: float, size: int
) -> None:
    rows = popular(n, events, p, size, seed=n + cache)
    ours, twin = TWINS[name]
    setting = (n, cache, clusters, policy)
    expected = twin(rows, setting)
    assert in_batches(ours(setting), rows, n, events) == expected
    assert in_batches(ours(setting), rows, n, 37) == expected, "where a batch ends makes no difference"


@pytest.mark.parametrize("name", TWINS)
@given(data=st.data())
@settings(max_examples=60)
def test_totals_agree_on_anything(name: str, data: st.DataObject) -> None:
    n = data.draw(st.integers(1, 9))
    cache = data.draw(st.integers(0, 12))
    clusters = data.draw(st.none() | st.integers(1, n))
    policy = data.draw(st.sampled_from(["lru", "frequency"]))
    rows = data.draw(st.lists(st.frozensets(st.integers(0, n - 1)), max_size=60))
    ours, twin = TWINS[name]
    setting = (n, cache, clusters, policy)
    assert in_batches(ours(setting), rows, n, data.draw(st.integers(1, 60))) == twin(rows, setting)


@given(n=st.integers(1, 300), cache=st.integers(0, 5000))
@examples(60, soak=300)
def test_the_number_of_clusters_is_the_floor_of_the_first_root(n: int, cache: int) -> None:
    assert by_rule(n, cache) == plain.number_of_clusters(n, cache)


@pytest.mark.parametrize(
    ("n", "cache", "clusters"),
    [(8, 256, 1), (8, 257, 1), (16, 512, 2), (100, 10, 100), (1, 1, 1), (4, 4, 4), (1000, 10_000, 170)],
)
def test_numbers_of_clusters_worked_out_by_hand(n: int, cache: int, clusters: int) -> None:
    """2^8 = 256/1 and 2^(16/2) = 512/2 are roots exactly: the floor of a root that is an integer is that integer.

    For a thousand subscribers, 2^(1000/170) = 59.0 is above 10000/170 = 58.8, and 2^(1000/171) = 57.6 below 58.5.
    """
    assert by_rule(n, cache) == clusters


def test_members_that_came_later_are_served_alone() -> None:
    """Slots beyond those that an algorithm was made for cost one encryption each, and disturb nobody."""
    rows = [frozenset({0, 1, 2, 9, 70}), frozenset({0, 1, 2, 9, 70}), frozenset({8, 9}), frozenset()]
    for name, (ours, twin) in TWINS.items():
        setting = (4, 8, 2, "lru")
        later = [len([b for b in row if b > 3]) for row in rows]
        known = twin([frozenset(b for b in row if b < 4) for row in rows], setting)
        counted = ours(setting).count(packed(rows, 71))
        assert counted.tolist() == [a + b for a, b in zip(later, known, strict=True)], name
        assert counted.dtype == np.int64
