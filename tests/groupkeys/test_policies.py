"""Policies on their own: the rules, and what a good policy is good for."""

from __future__ import annotations

from collections.abc import Hashable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sealcast.errors import Misuse
from sealcast.groupkeys.policies import ADMITTED, DECLINED, HIT, POLICIES, Sketch, policy

names = st.lists(st.integers(0, 12), max_size=80)


@pytest.mark.parametrize("kind", POLICIES)
@given(asked=names, capacity=st.integers(0, 6))
def test_outcomes_evictions_and_contents_tell_one_story(kind: str, asked: list[int], capacity: int) -> None:
    """A hit was held, what was admitted is held unless it was evicted at once, and room is never exceeded."""
    cache = policy(kind, capacity)
    held: set[Hashable] = set()
    for name in asked:
        (outcome,) = cache.look_up([name])
        assert (outcome == HIT) == (name in held)
        if outcome == ADMITTED:
            held.add(name)
        held -= set(cache.evicted)
        assert {n for n in range(13) if n in cache} == held
        assert len(cache) == len(held) <= capacity
        assert outcome in (DECLINED, ADMITTED, HIT) and (capacity or outcome == DECLINED)


@pytest.mark.parametrize("kind", POLICIES)
@given(asked=names, cut=st.integers(0, 80))
def test_runs_of_look_ups_may_be_cut_anywhere(kind: str, asked: list[int], cut: int) -> None:
    once, twice = policy(kind, 4), policy(kind, 4)
    assert once.look_up(asked) == twice.look_up(asked[:cut]) + twice.look_up(asked[cut:])


def test_least_recently_used() -> None:
    cache = policy("lru", 2)
    assert list(cache.look_up("abac")) == [ADMITTED, ADMITTED, HIT, ADMITTED]
    assert cache.evicted == ["b"] and "a" in cache and "c" in cache


def test_frequency_prefers_the_newcomer_among_equals_and_lets_the_first_entered_go() -> None:
    cache = policy("frequency", 2)
    assert list(cache.look_up("aabbc")) == [ADMITTED, HIT, ADMITTED, HIT, DECLINED]
    assert list(cache.look_up("c")) == [ADMITTED]
    assert cache.evicted == ["a"], "a and b were asked for twice each, and a entered first"
    assert list(cache.look_up("a")) == [ADMITTED] and cache.evicted == ["b"], "its count did not leave with it"


def test_a_name_that_comes_back_enters_anew() -> None:
    cache = policy("frequency", 2)
    cache.look_up("abca")  # c takes the place of a, and a, asked for twice by now, that of b
    assert list(cache.look_up("cb")) == [HIT, ADMITTED]
    assert cache.evicted == ["c"], "all were asked for twice, and a has been here for a shorter time than c"


def test_tinylfu_keeps_popular_names_through_a_flood_of_strange_ones() -> None:
    """One look-up in two is for one of 50 popular names, the other for a name never seen again."""
    rng = np.random.default_rng(3)
    asked = [int(rng.integers(50)) if rng.random() < 0.5 else 1_000 + i for i in range(20_000)]
    hits = {kind: list(policy(kind, 60).look_up(asked)[5_000:]).count(HIT) for kind in POLICIES}
    best = sum(name < 50 for name in asked[5_000:])
    assert hits["tinylfu"] > 0.9 * best
    assert hits["frequency"] > 0.95 * best
    assert hits["lru"] < 0.7 * best


def test_tinylfu_forgets_what_was_popular_once() -> None:
    cache = policy("tinylfu", 100)
    cache.look_up([i % 80 for i in range(8_000)])
    later = cache.look_up([1_000 + i % 80 for i in range(8_000)])
    assert list(later[4_000:]).count(HIT) > 3_500


@given(asked=st.lists(st.binary(max_size=3), max_size=100))
def test_a_sketch_never_counts_too_low_before_it_fades(asked: list[bytes]) -> None:
    sketch = Sketch(1_000)
    for name in asked:
        sketch.add(name)
    assert all(sketch.estimate(name) >= min(Sketch.MOST, asked.count(name)) for name in asked)


def test_unknown_policies_and_sizes_are_refused() -> None:
    with pytest.raises(Misuse, match="the policies are|no cache policy"):
        policy("random", 3)
    with pytest.raises(Misuse, match="0 or more"):
        policy("lru", -1)
