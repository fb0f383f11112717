"""Mosaic: what it costs, what it remembers, and that only members ever come by a key."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sealcast.filters import bits
from sealcast.groupkeys import KeyPlan
from sealcast.groupkeys.build_up import BuildUp
from sealcast.groupkeys.clustered import Clustered
from sealcast.groupkeys.clusters import by_id
from sealcast.groupkeys.interface import GrownKey, TableKey
from sealcast.groupkeys.mosaic import layout as layouts
from sealcast.groupkeys.mosaic.memory import ENTRY_BYTES, WAYS, Memory
from sealcast.groupkeys.mosaic.planner import BATCH, LEARN_FROM, TILE_SIZE, Mosaic
from sealcast.groupkeys.simple import Simple
from sealcast.lab import groups as workloads
from tests.groupkeys.groups import packed
from tests.groupkeys.security import check

SLOTS = 70
some_groups = st.lists(st.frozensets(st.integers(0, SLOTS - 1), min_size=1, max_size=30), min_size=1, max_size=30)


# --- what it costs --------------------------------------------------------------------------------------


@given(rows=some_groups, tile=st.integers(1, 16), memory=st.sampled_from([0, 2_000, 50_000]))
@settings(max_examples=60, deadline=None)
def test_no_event_ever_costs_more_than_its_group_has_members(
    rows: list[frozenset[int]], tile: int, memory: int
) -> None:
    planner = Mosaic(SLOTS - 5, memory, tile=tile, seed=1)
    words = packed(rows, SLOTS)
    for _ in range(3):
        assert (planner.count(words) <= bits.count(words)).all()


@pytest.mark.parametrize("workload", ["random_groups", "popular_groups", "content_groups"])
def test_what_is_counted_is_what_a_plan_makes(workload: str) -> None:
    """Two of one seed: one counts, the other plans; the plan's ciphertexts are counted one by one."""
    events = getattr(workloads, workload)(1_000, 200, 3)
    counter, planner = Mosaic(200, 40_000, seed=7), Mosaic(200, 40_000, seed=7)
    for start in range(0, len(events), BATCH):
        batch = events[start : start + BATCH]
        rows, of_event = bits.unique_rows(batch)
        counted = counter.count(batch)
        plan = planner.plan(rows, of_event)
        assert check(plan, rows) is None
        _, first = np.unique(of_event, return_index=True)
        assert [ciphertexts(plan, group) for group in range(len(rows))] == counted[first].tolist()
        later = np.delete(np.arange(len(batch)), first)
        assert plan.encryptions[of_event[later]].tolist() == counted[later].tolist()


def ciphertexts(plan: KeyPlan, group: int) -> int:
    """By the paper's rule: all that carry a key, and the event itself if somebody opens it without one of them."""
    uses = plan.uses[plan.use_start[group] : plan.use_start[group + 1]].tolist()
    mine = np.flatnonzero(plan.link_group == group)
    links = [(int(plan.link_key[i]), int(plan.link_under[i])) for i in mine]
    free = {(k, u) for k, u in links if isinstance(ref := plan.keys[k], GrownKey) and ref.stem == plan.keys[u]}
    rented = plan.handout_key[plan.handout_group == group].tolist()
    carried = len(links) - len(free) + len(rented)
    if len(uses) != 1:
        return carried + len(uses)

    def held_before(key: int) -> bool:
        made = key in {k for k, _ in links} or key in rented
        return not made or any(held_before(under) for k, under in free if k == key)

    return carried + held_before(uses[0])


def test_random_groups_cost_one_encryption_a_tile_and_close_every_gate() -> None:
    events = workloads.random_groups(3_000, 320, 1)
    planner = Mosaic(320, 100_000, seed=1)
    assert planner.count(events)[-500:].max() <= -(-320 // TILE_SIZE)
    plan = planner.plan(events[:50])
    assert plan.link_key.size == 0 and plan.handout_slot.size == 0


def test_popular_groups_cost_one_encryption_once_seen() -> None:
    events = workloads.popular_groups(6_000, 320, 1, popular=500, share=1.0)
    assert Mosaic(320, 100_000, seed=1).count(events)[-1_000:].mean() < 1.02


def test_it_beats_the_papers_algorithms_at_the_same_bytes_on_groups_made_by_content() -> None:
    events, cache = workloads.content_groups(6_000, 400, 1), 300
    ours = Mosaic(400, cache * (400 // 8 + 32), seed=1)
    cost = ours.count(events)[3_000:].mean()
    rivals = [Simple(400, cache, "frequency"), BuildUp(400, cache), Clustered(by_id(400, 8), cache)]
    assert all(cost < 0.8 * rival.count(events)[3_000:].mean() for rival in rivals)
    assert ours.nbytes <= cache * (400 // 8 + 32)


# --- what it remembers ----------------------------------------------------------------------------------


@pytest.mark.parametrize("budget", [5_000, 50_000, 500_000])
def test_memory_stays_within_its_bytes(budget: int) -> None:
    planner = Mosaic(300, budget, seed=1)
    planner.count(workloads.content_groups(4_000, 300, 1))
    assert planner.nbytes <= budget


def test_losing_all_memory_costs_encryptions_and_nothing_else() -> None:
    events = workloads.content_groups(1_500, 150, 1)
    planner = Mosaic(150, 50_000, seed=1)
    planner.count(events)
    rows, _ = bits.unique_rows(events[:200])
    known, forgotten = planner.plan(rows), Mosaic(150, 50_000, seed=2).plan(rows)
    assert check(known, rows) is None and check(forgotten, rows) is None
    assert known.link_key.size + known.handout_slot.size < forgotten.link_key.size + forgotten.handout_slot.size


def test_what_saves_most_stays() -> None:
    memory = Memory(WAYS * ENTRY_BYTES)
    rng = np.random.default_rng(1)
    prints = rng.integers(0, 2**64, (2, 400), np.uint64, endpoint=False)
    memory.tell(prints[0, :4], prints[1, :4], np.full(4, 60))
    for i in range(4, 100):
        memory.tell(prints[0, i : i + 1], prints[1, i : i + 1], np.array([1]))
    held, savings = memory.ask(prints[0], prints[1])
    assert held[:4].all() and (savings[:4] == 60).all()
    assert held.sum() <= WAYS and len(memory) == WAYS


def test_memory_tells_apart_what_shares_half_a_fingerprint() -> None:
    memory = Memory(10_000)
    one, other = np.array([1], np.uint64), np.array([2], np.uint64)
    memory.tell(one, one, np.array([5]))
    assert memory.ask(one, one)[0].all()
    assert not memory.ask(one, other)[0].any() and not memory.ask(other, one)[0].any()


# --- layouts --------------------------------------------------------------------------------------------


def test_those_who_are_wanted_together_share_tiles() -> None:
    rng = np.random.default_rng(1)
    camp = rng.permutation(160) % 10
    rows = [frozenset(np.flatnonzero((camp == c) & (rng.random(160) < 0.9)).tolist()) for c in rng.integers(0, 10, 300)]
    layout = layouts.by_similarity(np.arange(160), 16, packed(rows, 160))
    assert sorted(slot for tile in layout.tiles for slot in tile) == list(range(160))
    assert all(len({int(camp[slot]) for slot in tile}) == 1 for tile in layout.tiles)


@given(sizes=st.integers(1, 120), tile=st.integers(1, 16))
@settings(max_examples=40, deadline=None)
def test_every_two_tiles_meet_in_one_node(sizes: int, tile: int) -> None:
    layout = layouts.by_id(sizes, tile)
    for a in range(len(layout.tiles)):
        for b in range(a + 1, len(layout.tiles)):
            node = layout.meet[a, b]
            assert layout.low[node] <= a < layout.middle[node] <= b < layout.high[node]


def test_patterns_say_who_is_in_which_tile() -> None:
    rng = np.random.default_rng(1)
    rows = [frozenset(np.flatnonzero(rng.random(100) < 0.3).tolist()) for _ in range(20)]
    layout = layouts.by_similarity(np.arange(100), 13, packed(rows, 100))
    for row, patterns in zip(rows, layout.patterns(packed(rows, 100)), strict=True):
        for tile, pattern in zip(layout.tiles, patterns.tolist(), strict=True):
            assert {slot for place, slot in enumerate(tile) if pattern >> place & 1} == row & set(tile)


def test_newcomers_get_a_tile_of_their_own_and_nobody_elses_keys_change() -> None:
    old = layouts.by_id(64, 16)
    new = old.extended(list(range(64, 80)))
    assert new.tiles[:4] == old.tiles and set(old.shapes) < set(new.shapes)
    planner = Mosaic(64, 50_000, tile=16, seed=1, learn=False)
    rng = np.random.default_rng(1)
    before = packed([frozenset(np.flatnonzero(rng.random(64) < 0.5).tolist()) for _ in range(40)], 80)
    joined = packed([frozenset(range(60, 60 + n)) for n in range(5, 21)], 80)
    for _ in range(3):
        planner.plan(before)
    used = {planner.plan(before).keys[k] for k in planner.plan(before).uses.tolist()}
    plan = planner.plan(joined)
    assert check(plan, joined) is None and planner.clusters == 5
    again = planner.plan(before)
    assert {again.keys[k] for k in again.uses.tolist()} == used
    assert (again.encryptions == 1).all() and again.link_key.size == 0


def test_a_layout_is_learnt_once_there_is_something_to_learn() -> None:
    """Camps of ten, scattered over the slots; any half of a camp may be wanted, so that hardly anything repeats."""
    rng = np.random.default_rng(1)
    camp = rng.permutation(320) // 10
    wanted = (camp == rng.integers(0, 32, 12 * LEARN_FROM)[:, None]) & (rng.random((12 * LEARN_FROM, 320)) < 0.5)
    events = bits.pack(*np.nonzero(wanted), len(wanted), 320)
    learnt = Mosaic(320, 1_000_000, tile=10, seed=1)
    by_id = Mosaic(320, 1_000_000, tile=10, seed=1, learn=False)
    assert learnt.count(events)[-BATCH:].mean() < 0.5 * by_id.count(events)[-BATCH:].mean()


def test_nothing_is_forgotten_for_a_layout_where_groups_repeat_anyway() -> None:
    events = workloads.popular_groups(3_000, 200, 1, popular=20, share=1.0)
    planner = Mosaic(200, 1_000_000, seed=1)
    assert planner.count(events)[500:].max() == 1


def test_table_keys_are_made_into_objects_only_when_asked_for() -> None:
    events = workloads.random_groups(1_500, 100, 1)
    planner = Mosaic(100, 50_000, seed=1)
    planner.count(events)
    keys = planner.plan(events[:20]).keys
    assert list(keys) == [keys[i] for i in range(len(keys))] == list(keys[:])
    assert sum(isinstance(key, TableKey) for key in keys) > 100
