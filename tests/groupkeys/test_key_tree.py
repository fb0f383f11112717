"""The key tree's covers are exact and minimal, by trying everything."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest

from sealcast.errors import Misuse
from sealcast.filters import bits
from sealcast.groupkeys.interface import GroupKey
from sealcast.groupkeys.key_tree import KeyTree


def nodes(first: int, size: int, arity: int) -> list[frozenset[int]]:
    """All nodes of a packed tree, from its definition: children of the largest power below, the last one the rest."""
    own = [frozenset(range(first, first + size))]
    if size == 1:
        return own
    child = 1
    while child * arity < size:
        child *= arity
    for start in range(first, first + size, child):
        own += nodes(start, min(child, first + size - start), arity)
    return own


def fewest(group: frozenset[int], tree: list[frozenset[int]]) -> int:
    inside = [node for node in tree if node <= group]
    for number in range(len(group) + 1):
        for chosen in combinations(inside, number):
            if frozenset().union(*chosen) == group:
                return number
    raise AssertionError("leaves alone cover every group")


@pytest.mark.parametrize(("n", "arity"), [(1, 2), (2, 2), (5, 2), (7, 2), (8, 2), (7, 3), (9, 3), (8, 4), (6, 9)])
def test_no_cover_is_smaller(n: int, arity: int) -> None:
    rows = np.arange(1 << n, dtype=np.uint64)[:, None]
    tree = nodes(0, n, arity)
    counted = KeyTree(n, arity).count(rows).tolist()
    for number, cost in enumerate(counted):
        assert cost == fewest(frozenset(i for i in range(n) if number >> i & 1), tree), bin(number)
    assert KeyTree(n, arity).keys == len({node for node in tree if len(node) > 1})


@pytest.mark.parametrize(("n", "arity"), [(11, 2), (13, 3)])
def test_plans_use_nodes_and_as_many_as_counted(n: int, arity: int) -> None:
    rows = np.arange(1 << n, dtype=np.uint64)[:, None]
    planner = KeyTree(n, arity)
    plan = planner.plan(rows)
    assert plan.encryptions.tolist() == planner.count(rows).tolist()
    tree = set(nodes(0, n, arity))
    used = {frozenset(key.members) for key in plan.keys if isinstance(key, GroupKey)}
    assert used == {node for node in tree if len(node) > 1}
    assert plan.handout_slot.size == sum(map(len, used))
    assert planner.plan(rows).handout_slot.size == 0, "everybody has the keys above it by now"


def test_the_best_of_several_trees() -> None:
    rows = np.random.default_rng(0).integers(0, 1 << 20, (500, 1), np.uint64)
    one, four = KeyTree(20), KeyTree(20, trees=4)
    assert (four.count(rows) <= one.count(rows)).all() and four.count(rows).sum() < one.count(rows).sum()
    assert four.plan(rows).encryptions.tolist() == four.count(rows).tolist()
    assert four.keys == 4 * one.keys


def test_groups_are_handled_in_portions_without_a_seam() -> None:
    rows = np.random.default_rng(1).integers(0, 1 << 16, (2_500, 1), np.uint64)
    whole = KeyTree(16)
    assert whole.count(rows).tolist() == [int(whole.count(row[None, :])[0]) for row in rows]
    assert whole.plan(rows).encryptions.tolist() == whole.count(rows).tolist()
    assert whole.count(bits.pack(np.empty(0, np.int64), np.empty(0, np.int64), 0, 16)).size == 0


def test_trees_that_are_none_are_refused() -> None:
    with pytest.raises(Misuse):
        KeyTree(4, arity=1)
    with pytest.raises(Misuse):
        KeyTree(4, trees=0)
