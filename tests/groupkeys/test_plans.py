"""What every group key algorithm must satisfy, and the check that says so."""

from __future__ import annotations

import dataclasses
import random
from collections import defaultdict

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sealcast.filters import bits
from sealcast.groupkeys import GroupKey, KeyPlan, KeyRef, Naive, PairKey
from sealcast.groupkeys.catalog import ALGORITHMS, Setting, make
from sealcast.groupkeys.interface import TableKey, holders_of
from tests.effort import examples
from tests.groupkeys import groups as of_tests
from tests.groupkeys.groups import popular
from tests.groupkeys.security import check

SLOTS = 130
#: Small enough that caches overflow and clusters are of every kind; the last slots came later than the planner.
KNOWN = 120
#: In a reader's hands: its part of a table, from which it derives the keys of all patterns with its own place.
ALL_OF_MINE = 0
SETTINGS = {
    "plain": Setting(KNOWN, 24, 30),
    "one word": Setting(KNOWN, 40, 3, policy="frequency", arity=3),
    "tiny": Setting(KNOWN, 1, 1, arity=5, trees=3),
    "none": Setting(KNOWN, 0, 7, policy="frequency"),
    "lfu": Setting(KNOWN, 16, 4, policy="tinylfu", trees=2),
}
EVERY = pytest.mark.parametrize(
    ("name", "setting"),
    [(name, setting) for name in ALGORITHMS for setting in SETTINGS.values()],
    ids=[f"{name}, {setting}" for name in ALGORITHMS for setting in SETTINGS],
)

groups = st.lists(st.frozensets(st.integers(0, SLOTS - 1), min_size=1, max_size=20), max_size=12, unique=True)


def packed(rows: list[frozenset[int]]) -> bits.Words:
    return of_tests.packed(rows, SLOTS)


@EVERY
@examples(5, soak=15)
@given(rows=groups, order=st.randoms(use_true_random=False))
def test_every_member_and_nobody_else_is_served(
    name: str, setting: Setting, rows: list[frozenset[int]], order: random.Random
) -> None:
    planner = make(name, setting)
    words = packed(rows)
    for _ in range(3):
        events = np.array([g for g in range(len(rows)) for _ in range(order.randint(1, 3))], np.int64)
        plan = planner.plan(words, events)
        assert check(plan, words) is None
        assert plan.members.size == sum(map(len, rows))


@pytest.mark.parametrize("batches", [5, pytest.param(25, marks=pytest.mark.soak)])
@EVERY
def test_whoever_pools_all_keys_ever_handed_out_opens_nothing_that_was_not_for_one_of_them(
    name: str, setting: Setting, batches: int
) -> None:
    """Batches over a long time: members come and go, keys are handed out, evicted and handed out again.

    Holdings only grow here: whoever was ever handed a key keeps it. Every member must hold what it opens through, and
    of the keys that a group uses, all others together, past and future members included, must hold none.
    """
    planner = make(name, setting)
    held: dict[int, set[KeyRef]] = defaultdict(set)
    used: list[tuple[frozenset[int], set[KeyRef]]] = []
    rows = popular(SLOTS, 40 * batches, p=0.7, size=12, seed=5, density=0.2)
    for first in range(0, len(rows), 40):
        batch = [row for row in rows[first : first + 40] if row]
        words, group_of = bits.unique_rows(packed(batch))
        plan = planner.plan(words, group_of)
        assert check(plan, words) is None
        hand_out(plan, held)
        for g in range(words.shape[0]):
            members = frozenset(bits.pairs(words[g : g + 1])[1].tolist())
            uses = [plan.keys[k] for k in plan.uses[plan.use_start[g] : plan.use_start[g + 1]].tolist()]
            used.append((members, set(uses)))
            via = plan.via[plan.member_start[g] : plan.member_start[g + 1]].tolist()
            for slot, use in zip(sorted(members), via, strict=True):
                assert holds(held, slot, uses[use])
    for members, keys in used:
        for slot in range(SLOTS):
            if slot not in members:
                assert not any(holds(held, slot, key) for key in keys)


def holds(held: dict[int, set[KeyRef]], slot: int, ref: KeyRef) -> bool:
    if isinstance(ref, TableKey) and TableKey(ref.slots, ALL_OF_MINE) in held[slot]:
        return bool(ref.pattern >> ref.slots.index(slot) & 1)
    return ref in held[slot] or ref == PairKey(slot)


def hand_out(plan: KeyPlan, held: dict[int, set[KeyRef]]) -> None:
    """What a batch puts into its readers' hands: whole tables, keys under pair keys, keys under other keys, and keys
    that grow out of those that a reader has."""
    for slot, table in zip(plan.table_slot.tolist(), plan.table_of.tolist(), strict=True):
        held[slot].add(TableKey(plan.tables[table], ALL_OF_MINE))
    handed = zip(plan.handout_slot.tolist(), plan.handout_key.tolist(), plan.handout_group.tolist(), strict=True)
    for slot, key, group in handed:
        ref = plan.keys[key]
        assert isinstance(ref, GroupKey | TableKey) and slot in ref.members and len(ref.members) > 1
        users = np.searchsorted(plan.use_start, np.flatnonzero(plan.uses == key), side="right") - 1
        linked = plan.link_group[plan.link_under == key]
        assert group == min([*users, *linked]), "a key comes with the first event that needs it"
        held[slot].add(ref)
    links = [
        (plan.keys[k], plan.keys[u]) for k, u in zip(plan.link_key.tolist(), plan.link_under.tolist(), strict=True)
    ]
    for _ in range(len(links)):
        before = sum(map(len, held.values()))
        for ref, under in links:
            for slot in holders_of(under):
                if holds(held, slot, under):
                    held[slot].add(ref)
        if sum(map(len, held.values())) == before:
            break


@pytest.mark.parametrize("name", ["simple", "clustered"])
def test_a_plan_costs_what_is_counted_and_one_more_a_miss(name: str) -> None:
    """Event by event, the paper's message for a miss is the event under the group's key, and that key for every member:
    |G| + 1, of which it counts |G|. A group of one needs neither."""
    setting = Setting(40, 12, 6)
    planner, counter = make(name, setting), make(name, setting)
    for row in popular(40, 200, p=0.8, size=9, seed=3, density=0.3):
        words = of_tests.packed([row], 40)
        plan, counted = planner.plan(words), int(counter.count(words).sum())
        keys_handed_out = len(set(plan.handout_key.tolist()))
        assert plan.uses.size + plan.handout_slot.size == counted + keys_handed_out


@pytest.mark.parametrize("name", ALGORITHMS)
def test_planning_costs_at_most_what_is_counted(name: str) -> None:
    """A group uses one plan for all of its events in a batch, and it is never worse than deciding event by event."""
    setting = Setting(60, 40, 8, policy="frequency")
    planner, counter = make(name, setting), make(name, setting)
    rows = popular(60, 300, p=0.8, size=20, seed=8)
    for first in range(0, len(rows), 50):
        words, group_of = bits.unique_rows(of_tests.packed(rows[first : first + 50], 60))
        assert (planner.plan(words, group_of).encryptions[group_of] <= counter.count(words, group_of)).all()


@given(rows=groups)
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
