"""What every group key algorithm must satisfy, and the check that says so."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sealcast.filters import bits
from sealcast.groupkeys import GroupKey, KeyPlan, Naive, PairKey, Planner, check

PLANNERS: list[Planner] = [Naive()]
SLOTS = 130

groups = st.lists(st.frozensets(st.integers(0, SLOTS - 1), min_size=1, max_size=20), max_size=12, unique=True)


def packed(rows: list[frozenset[int]]) -> bits.Words:
    pairs = [(r, b) for r, row in enumerate(rows) for b in sorted(row)]
    row, bit = np.array(pairs, np.int64).reshape(-1, 2).T
    return bits.pack(row, bit, len(rows), SLOTS)


@pytest.mark.parametrize("planner", PLANNERS, ids=lambda p: p.name)
@given(rows=groups)
@settings(deadline=None)
def test_every_member_and_nobody_else_is_served(planner: Planner, rows: list[frozenset[int]]) -> None:
    words = packed(rows)
    plan = planner.plan(words)
    assert check(plan, words) is None


@given(rows=groups)
@settings(deadline=None)
def test_naive_costs_the_size_of_the_group(rows: list[frozenset[int]]) -> None:
    plan = Naive().plan(packed(rows))
    assert plan.encryptions.tolist() == [len(row) for row in rows]
    assert plan.handout_slot.size == 0


def some_plan() -> tuple[KeyPlan, bits.Words]:
    words = packed([frozenset({1, 2, 3}), frozenset({2, 100})])
    return Naive().plan(words), words


def test_check_finds_a_key_that_an_outsider_holds() -> None:
    plan, words = some_plan()
    leaky = dataclasses.replace(plan, keys=(GroupKey((1, 7)), *plan.keys[1:]))
    assert "slot 7, which is no member" in str(check(leaky, words))


def test_check_finds_a_member_left_out() -> None:
    plan, words = some_plan()
    short = dataclasses.replace(plan, member_start=np.array([0, 2, 4]), members=plan.members[1:], via=plan.via[1:])
    assert check(short, words) is not None


def test_check_finds_a_member_with_the_wrong_key() -> None:
    plan, words = some_plan()
    swapped = dataclasses.replace(plan, keys=(PairKey(2), PairKey(1), *plan.keys[2:]))
    assert "cannot open" in str(check(swapped, words))
