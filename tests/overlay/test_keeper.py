"""Filters on their way up, through keepers that die at every step, against the plaintext truth; and those who do not
keep up."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sealcast.errors import Busy
from sealcast.log.post_log import PostLog
from sealcast.protections.layered.filters.checks import PostReason
from sealcast.protections.layered.filters.keeper import TableKeeper
from tests.overlay.filters_world import (
    EVENTS,
    SHAPE,
    PowerLost,
    Realms,
    World,
    check,
    post,
    power_lost,
    quick_realms,
    told_by,
    wants,
)


@pytest.fixture(scope="module")
def realms(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Realms]:
    with quick_realms(tmp_path_factory.mktemp("keepers")) as made:
        yield made


@pytest.fixture
def world(realms: Realms) -> Iterator[World]:
    made = realms.world(2, **SHAPE)
    yield made
    made.close()


# --- random histories ---------------------------------------------------------------------------------

slots = st.lists(st.integers(0, 3), min_size=1, max_size=2)
filters = st.lists(st.lists(slots, min_size=1, max_size=2), min_size=1, max_size=2).map(lambda c: wants(*c))


@st.composite
def shapes(draw: st.DrawFn) -> dict[str, Any]:
    """Two to five brokers, the first a root; two to four readers, anywhere but right below a publisher."""
    parents: list[int | None] = [None]
    for i in range(1, draw(st.integers(2, 5))):
        parents.append(draw(st.one_of(st.none(), st.integers(0, i - 1), st.integers(max(0, i - 2), i - 1))))
    homes = draw(st.lists(st.integers(0, len(parents) - 1), min_size=2, max_size=4))
    return {"layers": draw(st.integers(2, 4)), "parents": parents, "homes": homes}


histories = given(shapes(), st.lists(filters, min_size=2, max_size=4), st.integers(1, 2), st.integers(0, 1 << 32))
slow = settings(suppress_health_check=[HealthCheck.too_slow])


@settings(slow, max_examples=10)
@histories
def test_any_history_with_any_crash_ends_in_the_truth(
    realms: Realms, shape: dict[str, Any], known: list[Any], publishers: int, seed: int
) -> None:
    history(realms.world(**shape, publishers=publishers), known, Random(seed))


@pytest.mark.soak
@settings(slow, max_examples=300)
@histories
def test_many_histories(realms: Realms, shape: dict[str, Any], known: list[Any], publishers: int, seed: int) -> None:
    history(realms.world(**shape, publishers=publishers), known, Random(seed))


def history(world: World, known: list[Any], random: Random) -> None:
    try:
        for _ in range(random.randint(4, 12)):
            happen(world, known, random)
        world.settle()
        check(world, random.sample(EVENTS, 5))
        assert not world.refused()
        for name in world.brokers:
            world.restart(name)
        world.settle()
        check(world, random.sample(EVENTS, 2))
    finally:
        world.close()


def happen(world: World, known: list[Any], random: Random) -> None:
    """Somebody wants something, or nothing any more; a keeper turns, and dies on the way, or not."""
    name, wanted = random.choice(world.readers), random.choice(known)
    mine = list(world.wanted[name].elements())
    what = random.random()
    if what < 0.4 or not mine:
        world.subscribe(name, wanted)
    elif what < 0.7:
        world.unsubscribe(name, random.choice(mine))
    elif what < 0.8:
        world.start_over(name, random.sample(mine, random.randint(0, len(mine))))
    for broker in random.sample(world.brokers, random.randint(0, len(world.brokers))):
        try:
            with power_lost(random.randint(0, 5), before_write=random.random() < 0.5):
                world.keepers[broker].turn()
        except PowerLost:
            if random.random() < 0.5:
                world.restart(broker)


def test_a_keeper_may_die_at_each_of_its_steps(realms: Realms) -> None:
    """The same history again and again, cut before the first durable step, after it, before the second, and so on."""
    for step in range(40):
        if not sum(cut_history(realms, step, before_write) for before_write in (True, False)):
            assert step >= 4
            return
    raise AssertionError("there is no end of steps")


def cut_history(realms: Realms, step: int, before_write: bool) -> int:
    world = realms.world(2, [None, 0], [1, 1])
    try:
        world.subscribe("s0", wants([[0]], [[1, 2]]))
        world.subscribe("s1", wants([[0]]))
        died = turned_but(world, step, before_write)
        world.unsubscribe("s0", wants([[0]], [[1, 2]]))
        world.subscribe("s1", wants([[0], [3]]))
        died += turned_but(world, step, before_write)
        world.settle()
        check(world, EVENTS[:6])
        assert not world.refused()
        return died
    finally:
        world.close()


def turned_but(world: World, step: int, before_write: bool) -> int:
    upwards = list(reversed(world.overlay.downwards()))
    try:
        with power_lost(step, before_write=before_write):
            for name in upwards:
                world.keepers[name].turn()
    except PowerLost:
        for name in upwards:
            world.restart(name)
        return 1
    return 0


def test_a_fresh_start_ends_what_was_before_and_says_nothing_twice(world: World) -> None:
    both = wants([[0]]), wants([[1]])
    world.subscribe("s0", both[0])
    world.subscribe("s0", both[1])
    world.settle()
    versions = {name: world.keepers[name].version() for name in world.brokers}
    world.start_over("s0", both)
    world.settle()
    check(world, EVENTS[:3])
    moved = [name for name in world.brokers if world.keepers[name].version() != versions[name]]
    assert moved == ["b3"], "nothing has changed, and nobody above heard of it"
    world.start_over("s0", [both[1]])
    world.settle()
    check(world, EVENTS[:3])
    world.start_over("s0", [])
    world.settle()
    assert not any(world.rows(name) for name in world.brokers)


def test_the_marker_may_be_lost(world: World) -> None:
    world.subscribe("s0", wants([[0]]))
    world.settle()
    world.subscribe("s0", wants([[1]]))
    world.settle()
    before = {name: world.rows(name) for name in world.brokers}
    for name in world.brokers:
        (world.realm.paths.topic(world.topic, name).filters / "pushed").unlink(missing_ok=True)
        world.restart(name)
    world.settle()
    assert {name: world.rows(name) for name in world.brokers} == before
    assert sum(told_by(keeper)[0][PostReason.SEEN] for keeper in world.keepers.values()) == 4
    assert not world.refused()


def test_two_processes_take_turns(world: World) -> None:
    with TableKeeper(world.realm, world.topic, "b3") as other:
        for i, keeper in enumerate((world.keepers["b3"], other, world.keepers["b3"], other)):
            world.subscribe("s0", wants([[i]]))
            keeper.turn()
        world.settle()
        assert other.version() == 4
    check(world, EVENTS[:8])
    assert not world.refused()


# --- one that does not keep up ------------------------------------------------------------------------


def test_too_many_waiting_posts_are_busy(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    directory = world.realm.paths.topic(world.topic, "b3").filter_posts
    with PostLog(directory, max_waiting=2) as log:
        data = b"it only has to wait"
        log.append([data])
        log.append([data])
        with pytest.raises(Busy):
            log.append([data])
        world.keepers["b3"].turn()
        log.append([data])


def test_a_parent_that_does_not_keep_up_slows_its_children(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sealcast.protections.layered.filters.keeper.MAX_BEHIND", 2)
    monkeypatch.setattr(PostLog.__init__, "__kwdefaults__", {**PostLog.__init__.__kwdefaults__, "max_waiting": 3})
    for i in range(6):
        world.subscribe("s1", wants([[i]]))
        world.keepers["b1"].turn()
    assert world.keepers["b1"].version() == 5, "it stops taking posts in"
    monkeypatch.undo()
    world.settle()
    check(world)
    assert not world.refused()


def test_filters_wait_for_an_ancestors_key(realms: Realms) -> None:
    """s0 needs keys of b2 and b1 only; b2 puts on the layer of b0, who comes later."""
    world = realms.world(2, [None, 0, 1], [2], silent=["b0"])
    try:
        world.subscribe("s0", wants([[0]]))
        for name in ("b2", "b1"):
            world.keepers[name].turn()
        assert not world.rows("b2")
        assert not world.refused()
        world.settle()
        check(world, EVENTS[:2])
    finally:
        world.close()


def test_post_names_the_last_number(world: World) -> None:
    many = world.encrypted("s0", wants([[0]]), world.trees()[0]) * 2_000
    sender, token = world.identity("s0"), world.token("s0")
    assert post(world.realm, world.topic, sender, "b3", world.trees()[0], many, token, number=7) == 8
    world.settle()
    assert [list(paths.values()) for paths in world.rows("b3").values()] == [[2_000]]
    assert [list(paths.values()) for paths in world.rows("b0").values()] == [[1]]
