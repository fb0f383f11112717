"""The equations against the paper's table, and against what is simulated."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest

from sealcast.errors import Misuse
from sealcast.filters import bits
from sealcast.groupkeys import Algorithm, closed_forms
from sealcast.groupkeys.clustered import Clustered
from sealcast.groupkeys.clustered_popular import ClusteredPopular
from sealcast.groupkeys.clusters import by_id, by_table_rule, root, split
from sealcast.groupkeys.key_tree import KeyTree
from sealcast.groupkeys.naive import Naive
from sealcast.groupkeys.simple import Simple

SMALL = {"n": 100, "c": 10_000, "s": 10_000, "p": 0.9}
LARGE = {"n": 1_000, "c": 100_000, "s": 100_000, "p": 0.8}

# --- Table 1 ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("n", "c", "k"), [(100, 10_000, 10), (100, 5_000, 11), (1_000, 100_000, 100), (1_000, 50_000, 114)]
)
def test_the_numbers_of_clusters_behind_table_1(n: int, c: int, k: int) -> None:
    assert by_table_rule(n, c) == k
    real = root(n, c)
    assert real is not None and 2 ** (n / real) == pytest.approx(c / real)


@pytest.mark.parametrize(
    ("of", "k", "k_popular", "expected"),
    [
        (SMALL, 10, 11, (50, 50.00, 5.90, 10.94, 17.49, 10.07)),
        (LARGE, 100, 114, (500, 500.00, 100.80, 109.38, 112.71, 68.02)),
    ],
)
def test_table_1(of: dict[str, float], k: int, k_popular: int, expected: tuple[float, ...]) -> None:
    n, c, s, p = of["n"], of["c"], of["s"], of["p"]
    computed = (
        closed_forms.naive(n),
        closed_forms.simple_random(n, c),
        closed_forms.simple_popular(n, c, s, p),
        closed_forms.clustered(n, c, k),
        closed_forms.clustered_popular_random(n, c, k_popular),
        closed_forms.clustered_popular_popular(n, c, k_popular, s, p),
    )
    assert computed == pytest.approx(expected, abs=0.006)


def test_the_cell_that_only_the_unrounded_number_of_clusters_explains() -> None:
    """The paper prints 6.7 where eleven clusters give 10.07."""
    k = root(100, 5_000)
    assert k is not None
    assert closed_forms.clustered_popular_popular(100, 10_000, k, 10_000, 0.9) == pytest.approx(6.72, abs=0.005)


def test_equations_are_refused_outside_of_their_conditions() -> None:
    with pytest.raises(Misuse, match="at most as many entries"):
        closed_forms.simple_popular(100, 11, 10, 0.9)


# --- beyond floating point, and by hand ------------------------------------------------------------------------


def test_thousands_of_subscribers_do_not_overflow() -> None:
    assert closed_forms.simple_random(5_000, 10_000) == 2_500
    assert closed_forms.clustered_popular_random(5_000, 10_000, 800) == closed_forms.clustered(5_000, 5_000, 800)


def test_exact_mean_by_enumeration() -> None:
    """Every sub-group of a cluster equally likely, a share of them held: worked out group by group."""
    n, c = 4, 6
    groups = [g for size in range(n + 1) for g in combinations(range(n), size)]
    held = c / (len(groups) - 1)
    by_hand = sum(held + (1 - held) * len(g) for g in groups if g) / len(groups)
    assert closed_forms.exact_mean([n, n], [c, c]) == pytest.approx(2 * by_hand)
    assert closed_forms.exact_mean([3], [100]) == pytest.approx(7 / 8)


@pytest.mark.parametrize("n", [1, 2, 3, 5, 8, 11, 13])
@pytest.mark.parametrize("q", [0.5, 0.9])
def test_the_key_tree_by_enumeration(n: int, q: float) -> None:
    rows = np.arange(1 << n, dtype=np.uint64)[:, None]
    size = bits.count(rows)
    chance = q**size * (1 - q) ** (n - size)
    assert closed_forms.key_tree(n, q) == pytest.approx(float(chance @ KeyTree(n).count(rows)))
    assert sum(closed_forms.inner_nodes(n).values()) == n - 1 == KeyTree(n).keys


def test_the_key_tree_of_a_thousand() -> None:
    assert closed_forms.key_tree(1_000) / 1_000 == pytest.approx(0.3589, abs=0.00005)


def test_lower_bounds() -> None:
    assert closed_forms.least_mean(1_000, 11_000) == pytest.approx(128, abs=0.05)
    assert closed_forms.least_mean(100, 10_100) == pytest.approx(9.0, abs=0.005)
    # Two subscribers, two keys: nothing, one, the other, both.
    assert closed_forms.least_mean(2, 2) == pytest.approx((0 + 1 + 1 + 2) / 4)
    assert closed_forms.least_mean(2, 3) == pytest.approx((0 + 1 + 1 + 1) / 4)
    with pytest.raises(Misuse, match="too few"):
        closed_forms.least_mean(3, 1)


def test_che_is_exact_where_nothing_is_evicted() -> None:
    assert closed_forms.che(10, 10, 1.0) == (float("inf"), 1.0)
    time, hit = closed_forms.che(100, 1_000, 0.0)
    assert (time, hit) == (pytest.approx(100), 0.0)


# --- simulation ------------------------------------------------------------------------------------------------


def uniform(rng: np.random.Generator, n: int, events: int) -> bits.Words:
    width = bits.words_for(n)
    words = rng.integers(0, 1 << 64, (events, width), np.uint64, endpoint=False)
    words[:, -1] &= np.uint64((1 << (n - 64 * (width - 1))) - 1)
    return words


def popular(rng: np.random.Generator, n: int, events: int, size: int, p: float) -> bits.Words:
    fixed = uniform(rng, n, size)
    return np.where((rng.random(events) < p)[:, None], fixed[rng.integers(0, size, events)], uniform(rng, n, events))


def agrees(algorithm: Algorithm, words: bits.Words, warmup: int, expected: float) -> bool:
    """Within three standard errors. Events depend on one another through the cache, hence means of blocks."""
    cost = algorithm.count(*bits.unique_rows(words))[warmup:]
    means = cost[: cost.size // 40 * 40].reshape(40, -1).mean(axis=1)
    error = means.std(ddof=1) / np.sqrt(means.size)
    assert means.mean() == pytest.approx(expected, abs=3 * max(error, 1e-9))
    return True


@pytest.mark.parametrize("policy", ["lru", "frequency"])
@pytest.mark.parametrize(("n", "c", "k"), [(60, 600, 10), (61, 800, 9), (40, 4_000, 5), (50, 100, 30)])
def test_clustered_caches_cost_their_exact_mean(n: int, c: int, k: int, policy: str) -> None:
    words = uniform(np.random.default_rng(n), n, 12_000)
    expected = closed_forms.exact_mean(split(n, k), split(c, k))
    assert agrees(Clustered(by_id(n, k), c, policy), words, 4_000, expected)


def test_naive_and_key_tree_cost_their_mean() -> None:
    words = uniform(np.random.default_rng(9), 200, 8_000)
    assert agrees(Naive(), words, 0, closed_forms.naive(200))
    assert agrees(KeyTree(200), words, 0, closed_forms.key_tree(200))


def test_the_simple_cache_on_a_popular_set_costs_what_che_says() -> None:
    words = popular(np.random.default_rng(2), 100, 16_000, 400, 0.8)
    assert agrees(Simple(100, 300), words, 4_000, closed_forms.simple_popular_lru(100, 300, 400, 0.8))


def test_the_clustered_popular_cache_on_a_popular_set_costs_what_che_says() -> None:
    words = popular(np.random.default_rng(4), 60, 16_000, 300, 0.8)
    expected = closed_forms.clustered_popular_popular_lru(60, 400, split(60, 12), 300, 0.8)
    assert agrees(ClusteredPopular(by_id(60, 12), 400), words, 4_000, expected)
