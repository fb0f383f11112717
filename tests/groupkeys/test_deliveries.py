"""Plans that wait for their deliveries: none relies on what another has handed out before that is committed."""

from __future__ import annotations

from collections import defaultdict

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sealcast.errors import Misuse
from sealcast.filters import bits
from sealcast.groupkeys import KeyPlan, KeyRef
from sealcast.groupkeys.catalog import ALGORITHMS, Setting, make
from sealcast.groupkeys.handed import Handed
from sealcast.groupkeys.interface import Outline, PairKey, holders_of
from sealcast.groupkeys.mosaic import layout as layouts
from sealcast.groupkeys.mosaic import planner as planners
from sealcast.groupkeys.mosaic.memory import Memory
from sealcast.groupkeys.mosaic.naming import key_of, parts_of
from sealcast.groupkeys.mosaic.planner import Mosaic
from sealcast.lab import groups as workloads
from tests.groupkeys.groups import packed, popular
from tests.groupkeys.security import check
from tests.groupkeys.test_plans import hand_out, holds

SLOTS = 60


def opens(plan: KeyPlan, held: dict[int, set[KeyRef]]) -> bool:
    """Does every member hold the key that it opens through?"""
    for g in range(plan.use_start.size - 1):
        uses = plan.uses[plan.use_start[g] : plan.use_start[g + 1]].tolist()
        here = slice(plan.member_start[g], plan.member_start[g + 1])
        for slot, use in zip(plan.members[here].tolist(), plan.via[here].tolist(), strict=True):
            if not holds(held, slot, plan.keys[uses[use]]):
                return False
    return True


@pytest.mark.parametrize("name", ALGORITHMS)
@pytest.mark.parametrize("seed", range(3))
def test_whatever_is_delivered_opens_with_what_was_delivered_before(name: str, seed: int) -> None:
    """Batches of up to three plans each, made one after the other; each batch is delivered, in another order than it
    was planned, or is lost, or only its last plan is (as when a task ran again elsewhere)."""
    rng = np.random.default_rng(seed)
    planner = make(name, Setting(SLOTS - 5, 30, 6, policy="frequency"))
    held: dict[int, set[KeyRef]] = defaultdict(set)
    rows = popular(SLOTS, 900, p=0.8, size=10, seed=seed, density=0.3)
    at, tag, relied = 0, 0, 0
    while at < len(rows):
        waiting: list[tuple[int, KeyPlan]] = []
        for _ in range(int(rng.integers(1, 4))):
            batch = [row for row in rows[at : at + 20] if row]
            at += 20
            words, group_of = bits.unique_rows(packed(batch or [frozenset({1})], SLOTS))
            tag = tag % 254 + 1
            waiting.append((tag, planner.plan(words, group_of, tag)))
            assert check(waiting[-1][1], words) is None
        fate = rng.choice(["delivered", "lost", "last"], p=[0.7, 0.2, 0.1])
        delivered = {"delivered": waiting[::-1], "lost": [], "last": waiting[-1:]}[fate]
        for _, plan in delivered:
            hand_out(plan, held)
            assert opens(plan, held)
            sent = {*plan.handout_key.tolist(), *plan.link_key.tolist()}
            relied += sum(k not in sent and not isinstance(plan.keys[k], PairKey) for k in plan.uses.tolist())
        for number, _ in waiting:
            planner.settle(number, number in {n for n, _ in delivered})
    assert name == "naive" or relied, "and something was relied on"


def test_what_is_waiting_is_its_own_plans_alone() -> None:
    handed = Handed()
    handed.add(["a"], 1)
    assert handed.holds("a", 1) and not handed.holds("a", 2) and not handed.holds("a", 0)
    handed.add(["a"], 2)
    handed.settle(1, True)
    assert not handed.holds("a", 3), "the later plan handed it out, too, and that one waits still"
    handed.settle(2, True)
    assert handed.holds("a", 3)
    handed.add(["b"], 4)
    handed.settle(4, False)
    assert not handed.holds("b", 4)


def test_memory_does_not_rely_on_what_was_never_delivered() -> None:
    memory = Memory(10_000)
    one, other = np.array([1], np.uint64), np.array([2], np.uint64)
    worth = np.array([5])
    memory.tell(one, one, worth, 7)
    assert (
        memory.ask(one, one, 7)[0].all() and not memory.ask(one, one, 8)[0].any() and not memory.ask(one, one)[0].any()
    )
    memory.tell(one, one, worth, 8)
    assert len(memory) == 1 and memory.ask(one, one, 8)[0].all()
    memory.settle(7, True)
    assert not memory.ask(one, one)[0].any()
    memory.settle(8, True)
    assert memory.ask(one, one)[0].all()
    memory.tell(other, other, worth, 9)
    memory.settle(9, False)
    assert not memory.ask(other, other, 9)[0].any() and len(memory) == 1


def test_plans_that_wait_side_by_side_learn_as_one() -> None:
    """None of them relies on another, so that in the first batch nothing is saved: no reason to stop making keys."""
    events = workloads.popular_groups(9_000, 240, 1, popular=300)
    planner, cost = Mosaic(240, 200_000, seed=1), list[float]()
    for start in range(0, len(events), 3_000):
        for tag in range(1, 7):
            first = start + 500 * (tag - 1)
            rows, of_event = bits.unique_rows(events[first : first + 500])
            plan = planner.plan(rows, of_event, tag)
            cost.append(float(plan.encryptions[of_event].mean() + (~plan.link_grows).sum() / 500))
        for tag in range(1, 7):
            planner.settle(tag, True)
    assert min(cost[:6]) > 10 and max(cost[-6:]) < 4


# --- outlines: with one, and who holds a key, the key is named again ----------------------------------------


@pytest.mark.parametrize("workload", ["random_groups", "popular_groups", "content_groups"])
def test_keys_are_named_again_from_their_members_and_the_outline(workload: str) -> None:
    events = getattr(workloads, workload)(800, 90, 2)
    planner = Mosaic(70, 60_000, tile=7, seed=1)
    named = 0
    for start in range(0, len(events), 80):
        rows, of_event = bits.unique_rows(events[start : start + 80])
        plan = planner.plan(rows, of_event)
        layout = layouts.from_outline(plan.outline)
        for key in set(plan.uses.tolist()):
            ref = plan.keys[key]
            if not isinstance(ref, PairKey):
                assert key_of(layout, sorted(holders_of(ref))) == ref
                named += 1
        for key, group in zip(plan.link_key.tolist(), plan.link_group.tolist(), strict=True):
            members = plan.members[plan.member_start[group] : plan.member_start[group + 1]]
            placed = members[members < layout.place_of.size]
            assert plan.keys[key] in parts_of(layout, placed[layout.place_of[placed] >= 0].tolist())
    assert named > 50


@given(st.integers(0, 100), st.integers(1, 16), st.integers(0, 3))
@settings(max_examples=40, deadline=None)
def test_a_layout_comes_back_from_its_outline(subscribers: int, tile: int, more: int) -> None:
    layout = layouts.by_id(subscribers, tile)
    for i in range(more):
        layout = layout.extended(list(range(200 + 3 * i, 203 + 3 * i)))
    for one in (layout, layout.rebalanced()):
        again = layouts.from_outline(one.outline)
        assert again.tiles == one.tiles and again.shapes == one.shapes


def outline(sizes: list[int], runs: list[int], joins: list[int]) -> Outline:
    return Outline(*(np.array(a, np.int64) for a in (sizes, runs, joins)))


@pytest.mark.parametrize(
    "wrong",
    [
        outline([2, 2], [0, 3], [1]),
        outline([2, 2], [0, 4], []),
        outline([2, 2], [0, 4], [2]),
        outline([2, 2], [0, 4], [0]),
        outline([2, 2], [0, 2, 1, 2], [1]),
        outline([2, 2], [0, 4, 7], [1]),
        outline([17], [0, 17], []),
        outline([0, 2], [0, 2], [1]),
        outline([2, 2], [-1, 4], [1]),
        outline([1, 1, 1], [0, 3], [1, 1]),
    ],
)
def test_outlines_of_no_layout_are_refused(wrong: Outline) -> None:
    with pytest.raises(Misuse):
        layouts.from_outline(wrong)


def test_parts_have_members_in_tiles() -> None:
    layout = layouts.by_id(10, 4)
    for members in ([], [3, 10], [-1, 2]):
        with pytest.raises(Misuse):
            parts_of(layout, members)


# --- many at once, and many who come later ----------------------------------------------------------------


def test_a_wide_batch_is_planned_in_chunks_that_rely_on_each_other(monkeypatch: pytest.MonkeyPatch) -> None:
    events = workloads.popular_groups(300, 80, 3, popular=30)
    rows, of_event = bits.unique_rows(events)
    whole = Mosaic(80, 60_000, tile=8, seed=1).plan(rows, of_event, 1)
    monkeypatch.setattr(planners, "CELLS_AT_ONCE", 70)
    planner = Mosaic(80, 60_000, tile=8, seed=1)
    plan = planner.plan(rows, of_event, 1)
    assert check(plan, rows) is None
    held: dict[int, set[KeyRef]] = defaultdict(set)
    hand_out(plan, held)
    assert opens(plan, held)
    assert plan.members.tolist() == whole.members.tolist()
    assert plan.encryptions.sum() <= 1.2 * whole.encryptions.sum()
    assert len(set(plan.keys)) == len(plan.keys)


def test_a_tree_over_many_newcomers_stays_flat() -> None:
    planner = Mosaic(16, 60_000, tile=4, seed=1, learn=False)
    for width in range(16, 400, 4):
        rows = packed([frozenset(range(width)), frozenset(range(0, width, 2))], 400)
        assert check(planner.plan(rows), rows) is None
    assert planner.clusters == 99
    assert int(planner._layout.depth.max()) < 40
