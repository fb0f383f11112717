"""Who goes together, and into how many clusters."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sealcast.errors import Misuse
from sealcast.filters import bits
from sealcast.groupkeys.clustered import Clustered
from sealcast.groupkeys.clustered_popular import ClusteredPopular
from sealcast.groupkeys.clusters import (
    Clustering,
    around,
    at_random,
    by_full_tables,
    by_id,
    by_similarity,
    by_trial,
    split,
)
from tests.groupkeys.groups import packed, popular
from tests.groupkeys.security import check


def test_parts_differ_by_at_most_one_and_the_first_are_larger() -> None:
    assert split(11, 4) == [3, 3, 3, 2] and split(2, 3) == [1, 1, 0] and split(0, 2) == [0, 0]


def similar(n: int) -> tuple[Clustering, list[frozenset[int]]]:
    """Subscribers of the same remainder mod 3 are interested in the same events, give or take one."""
    rng = np.random.default_rng(1)
    rows = []
    for _ in range(90):
        kind = int(rng.integers(3))
        rows.append(frozenset(i for i in range(n) if i % 3 == kind) ^ frozenset({int(rng.integers(n))}))
    return by_similarity(n, 3, packed(rows, n)), rows


@given(
    n=st.integers(1, 200),
    data=st.data(),
    rows=st.lists(st.frozensets(st.integers(0, 199), max_size=30), min_size=1, max_size=5),
)
def test_parts_of_a_group_make_up_the_group(n: int, data: st.DataObject, rows: list[frozenset[int]]) -> None:
    k = data.draw(st.integers(1, n))
    clustering = data.draw(st.sampled_from([by_id(n, k), at_random(n, k, 7)]))
    assert sorted(clustering.order.tolist()) == list(range(n))
    assert list(clustering.sizes) == split(n, k)
    found: list[set[int]] = [set() for _ in rows]
    for slots, part in zip(clustering.slots(), clustering.restrict(packed(rows, 200)), strict=True):
        assert part.shape == (len(rows), bits.words_for(slots.size))
        for row, bit in zip(*(a.tolist() for a in bits.pairs(part)), strict=True):
            slot = int(slots[bit])
            assert slot not in found[row]
            found[row].add(slot)
    assert found == [{slot for slot in row if slot < n} for row in rows]


def test_similar_subscribers_share_a_cluster_and_that_pays() -> None:
    clustering, rows = similar(30)
    assert {frozenset((slots % 3).tolist()) for slots in clustering.slots()} == {
        frozenset({0}),
        frozenset({1}),
        frozenset({2}),
    }
    words = packed(rows, 30)
    alike, by_number = (Clustered(c, 30).count(words).sum() for c in (clustering, by_id(30, 3)))
    assert alike < 0.8 * by_number


@pytest.mark.parametrize("algorithm", [Clustered, ClusteredPopular])
def test_any_clustering_makes_good_plans(algorithm: type[Clustered] | type[ClusteredPopular]) -> None:
    rows = popular(30, 200, p=0.7, size=10, seed=2, density=0.4)
    for clustering in (similar(30)[0], at_random(30, 7, 3), by_id(25, 4)):
        planner = algorithm(clustering, 40)
        for first in range(0, 200, 50):
            words, group_of = bits.unique_rows(packed(rows[first : first + 50], 30))
            assert check(planner.plan(words, group_of), words) is None


@pytest.mark.parametrize(
    ("n", "cache", "clusters"), [(1_000, 10_000, 200), (100, 10_000, 12), (8, 255, 1), (8, 254, 2)]
)
def test_full_tables_never_miss_once_warm(n: int, cache: int, clusters: int) -> None:
    assert by_full_tables(n, cache) == clusters
    assert max((1 << s) - 1 - c for s, c in zip(split(n, clusters), split(cache, clusters), strict=True)) <= 0
    if n > 8:
        return
    rows = [frozenset(i for i in range(n) if number >> i & 1) for number in range(1 << n)]
    algorithm = Clustered(by_id(n, clusters), cache)
    algorithm.count(packed(rows, n))
    assert algorithm.count(packed(rows, n)).max() == clusters


def test_tuning_takes_the_cheapest_on_the_workload() -> None:
    words = packed(popular(40, 600, p=0.0, size=1, seed=6), 40)

    def cost(clusters: int) -> float:
        return float(Clustered(by_id(40, clusters), 300).count(words)[200:].mean())

    tried = around(8, 40)
    best = by_trial(tried, cost)
    assert best in tried and all(cost(best) <= cost(k) for k in tried)
    with pytest.raises(Misuse):
        by_trial([], cost)


@pytest.mark.parametrize("clusters", [0, 6, -1])
def test_impossible_numbers_of_clusters_are_refused(clusters: int) -> None:
    with pytest.raises(Misuse, match="1 to 5 clusters"):
        by_id(5, clusters)
