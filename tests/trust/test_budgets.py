"""Budgets against a plain oracle: how many pass, how long who makes noise waits, and how much is remembered."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sealcast.control.budgets import SECOND_US, Allowance, Budgets
from sealcast.errors import Misuse
from tests.effort import examples

SMALL = Allowance(per_second=10, burst=5, base_delay_us=1_000, max_delay_us=64_000, forgive_us=SECOND_US)


class Bucket:
    """The textbook's token bucket, in whole micro-tokens."""

    def __init__(self, allowance: Allowance, now_us: int) -> None:
        self.per_us, self.most = allowance.per_second, allowance.burst * SECOND_US
        self.tokens, self.at = self.most, now_us

    def take(self, now_us: int) -> bool:
        self.tokens = min(self.most, self.tokens + (now_us - self.at) * self.per_us)
        self.at = now_us
        if self.tokens < SECOND_US:
            return False
        self.tokens -= SECOND_US
        return True


@given(st.lists(st.integers(0, 400_000), max_size=80))
@examples(25, soak=100)
def test_a_budget_is_the_textbooks_token_bucket(gaps: list[int]) -> None:
    budgets, bucket, now = Budgets(SMALL), Bucket(SMALL, 0), 0
    for gap in gaps:
        now += gap
        assert budgets.spend("key", now).admitted == bucket.take(now)


@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 300_000), st.booleans()), max_size=60))
@settings(max_examples=50)
def test_keys_do_not_touch_each_other(calls: list[tuple[str, int, bool]]) -> None:
    together, now, told = Budgets(SMALL), 0, []
    alone = {key: Budgets(SMALL) for key in "abc"}
    for key, gap, noise in calls:
        now += gap
        if noise:
            assert together.bogus(key, now) == alone[key].bogus(key, now)
        told.append((together.spend(key, now), alone[key].spend(key, now)))
    assert all(one == other for one, other in told)


def test_retry_is_when_it_says_and_not_before() -> None:
    budgets = Budgets(SMALL)
    while (verdict := budgets.spend("key", 0)).admitted:
        pass
    assert verdict.retry_at_us == 100_000
    assert not budgets.spend("key", verdict.retry_at_us - 1).admitted
    assert budgets.spend("key", verdict.retry_at_us).admitted


def test_only_the_first_refusal_is_worth_an_answer() -> None:
    budgets = Budgets(SMALL)
    verdicts = [budgets.spend("key", 0) for _ in range(9)]
    assert [v.first for v in verdicts] == [False] * 5 + [True] + [False] * 3
    assert budgets.spend("key", 100_000).admitted
    assert budgets.spend("key", 100_000).first, "and the first after the next one that passed"


def test_delays_double_up_to_a_cap_and_fade() -> None:
    budgets, now, delays = Budgets(SMALL), 10 * SECOND_US, []
    for _ in range(9):
        until = budgets.bogus("key", now)
        delays.append(until - now)
        assert not budgets.spend("key", until - 1).admitted
        now = until
    assert delays == [1_000, 2_000, 4_000, 8_000, 16_000, 32_000, 64_000, 64_000, 64_000]
    assert budgets.strikes("key", now) == 9
    assert budgets.strikes("key", now + 3 * SECOND_US) == 6, "one for every quiet spell"
    assert budgets.strikes("key", now + 60 * SECOND_US) == 0
    assert budgets.bogus("key", now + 60 * SECOND_US) == now + 60 * SECOND_US + 1_000, "and it begins again"


def test_a_clock_set_back_forgives_nothing() -> None:
    budgets = Budgets(SMALL)
    until = budgets.bogus("key", 10 * SECOND_US)
    assert not budgets.spend("key", 5 * SECOND_US).admitted
    assert budgets.strikes("key", 5 * SECOND_US) == 1
    assert budgets.spend("key", until).admitted


def test_a_million_names_are_one_crowd_and_known_ones_keep_theirs() -> None:
    budgets = Budgets(SMALL, max_keys=16)
    for _ in range(9):
        budgets.bogus("known noise", 0)
    assert budgets.spend("known friend", 0).admitted
    budgets.good("known friend")
    admitted = sum(budgets.spend(f"invented {i}", i).admitted for i in range(20_000))
    assert len(budgets) == 16, "no more is remembered"
    # 14 of them get an account while there is room; the others share one budget, however many names they have.
    assert admitted <= 14 * 5 + 5 + 20_000 * 10 // SECOND_US + 1
    assert budgets.strikes("known noise", 20_000) == 9, "and no strike was forgotten to make room"
    for later in range(1, 50):
        now = later * SECOND_US
        assert budgets.spend("known friend", now).admitted, "and who is known is not of the crowd, however quiet it was"
        for i in range(200):
            budgets.spend(f"invented {later} {i}", now)
            budgets.bogus(f"invented {later} {i}", now)
    assert len(budgets) == 16


def test_the_known_are_let_go_for_the_known_only() -> None:
    budgets = Budgets(SMALL, max_keys=8)
    for i in range(100):
        assert budgets.spend(f"friend {i}", i * SECOND_US).admitted
        budgets.good(f"friend {i}")
        assert len(budgets) <= 8
    budgets.bogus("friend 99", 100 * SECOND_US)
    assert budgets.strikes("friend 99", 100 * SECOND_US) == 1


def test_who_owes_nothing_makes_room() -> None:
    budgets = Budgets(SMALL, max_keys=4)
    for key in "abcd":
        assert budgets.spend(key, 0).admitted
    later = 10 * SECOND_US
    for key in "efgh":
        assert budgets.spend(key, later).admitted
    assert len(budgets) == 4


@pytest.mark.parametrize(
    "bad",
    [
        {"per_second": 0},
        {"per_second": 2_000_000},
        {"burst": 0},
        {"base_delay_us": 0},
        {"base_delay_us": 2, "max_delay_us": 1},
        {"forgive_us": 0},
    ],
    ids=str,
)
def test_a_budget_that_means_nothing_is_refused(bad: dict[str, int]) -> None:
    with pytest.raises(Misuse):
        Allowance(**bad)
    with pytest.raises(Misuse):
        Budgets(max_keys=0)
