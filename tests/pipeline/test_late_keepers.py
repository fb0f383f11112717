"""Brokers that first run after the overlay has moved, or the topic's key was replaced: whoever had subscribed when an
event was published gets it, however late the keepers are; and what is too late for the keys is counted."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from sealcast.protections.layered.filters.checks import PostReason
from sealcast.protections.layered.node import HopStep
from sealcast.protections.layered.tree import TreeId
from sealcast.trust.keys.minting import token_for
from sealcast.trust.realm.changes import Right
from tests.overlay.filters_world import post, refused
from tests.pipeline.layered_world import TOPIC, LayeredWorld

ROOT, LEFT, RIGHT = (f"{TOPIC}-node-{n}" for n in (1, 2, 3))


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> LayeredWorld:
    """A root, two brokers below it, `deep` below the first of them; nobody's keeper has turned yet."""
    world = LayeredWorld(tmp_path_factory.mktemp("made") / "realm", {})
    for name in ("deep", "new"):
        world.realm.add_broker(name)
    world.realm.place_node(TOPIC, "deep", under=LEFT)
    world.realm.enrol_many(["ann", "zoe", "eve"])
    for name, at, text in (("ann", LEFT, "price < 80"), ("zoe", "deep", "price < 100"), ("eve", RIGHT, "price >= 64")):
        world.realm.place_subscriber(TOPIC, name, at)
        world.subscribe(name, text)
    return world


@pytest.fixture
def world(made: LayeredWorld, tmp_path: Path) -> LayeredWorld:
    return made.copy(tmp_path / "realm")


def later(monkeypatch: pytest.MonkeyPatch, seconds: int) -> None:
    before = time.time_ns
    monkeypatch.setattr(time, "time_ns", lambda: before() + seconds * 1_000_000_000)


def grace(world: LayeredWorld) -> tuple[int, int]:
    """After so many seconds its grace is over; and after so many, its keys are spent."""
    limits = world.realm.state().topic(TOPIC).parameters
    return limits.grace_s, limits.grace_s + limits.stale_after_s


def run(world: LayeredWorld) -> None:
    world.admit()
    world.drain()


MOVES = {
    "a broker moves up": [("deep", ROOT)],
    "a broker moves aside, and its parent too": [("deep", RIGHT), (LEFT, RIGHT)],
    "a broker and the one above it change places": [("deep", ROOT), (LEFT, "deep")],
    "a new root above all": [(ROOT, "new")],
}


@pytest.mark.parametrize("moves", MOVES.values(), ids=MOVES)
def test_brokers_that_first_run_after_a_move(world: LayeredWorld, moves: list[tuple[str, str]]) -> None:
    world.publish("p0", 40)
    if any(under == "new" for _, under in moves):
        world.realm.place_node(TOPIC, "new")
    for name, under in moves:
        world.realm.place_node(TOPIC, name, under=under)
    world.admit(ROOT, *world.realm.state().overlay(TOPIC).roots)
    world.drain()
    world.check()
    assert all(world.due[name] for name in ("ann", "zoe", "eve"))


def test_a_subscriber_that_moves_before_brokers_run(world: LayeredWorld) -> None:
    world.publish("p0", 40)
    world.realm.place_subscriber(TOPIC, "zoe", RIGHT)
    run(world)
    world.check()
    assert world.due["zoe"]


@pytest.mark.parametrize("late", [0, 1])
def test_brokers_that_first_run_after_a_rotation(
    world: LayeredWorld, monkeypatch: pytest.MonkeyPatch, late: int
) -> None:
    world.publish("p0", 40)
    world.realm.rotate(TOPIC)
    later(monkeypatch, late * (grace(world)[0] + 60))
    run(world)
    world.check()
    assert all(world.due.values())


@pytest.mark.parametrize("what", ["move", "rotation"])
def test_late_keepers_of_the_upper_brokers(world: LayeredWorld, monkeypatch: pytest.MonkeyPatch, what: str) -> None:
    """The leaves ran in time, those above them come when the grace is over: what they are told is said after it."""
    HopStep.turn([name for name in world.names if name.broker == "deep"])
    world.publish("p0", 40)
    if what == "move":
        world.realm.place_node(TOPIC, LEFT, under=RIGHT)
    else:
        world.realm.rotate(TOPIC)
    later(monkeypatch, grace(world)[0] + 60)
    run(world)
    world.check()
    assert all(world.due.values())


@pytest.mark.parametrize("what", ["move", "rotation"])
def test_what_comes_too_late_is_counted(world: LayeredWorld, monkeypatch: pytest.MonkeyPatch, what: str) -> None:
    """Filters and keys are gone by the time that brokers first run: events go nowhere, and it can be seen."""
    world.publish("p0", 40)
    if what == "move":
        world.realm.place_node(TOPIC, "deep", under=ROOT)
    else:
        world.realm.rotate(TOPIC)
    later(monkeypatch, grace(world)[1] + 60)
    run(world)
    assert not any(world.got(name) for name in world.due)
    root = world.names[0].open()
    last = root.ledger.last()
    assert last is not None and last.entry.counts["rejected_epoch"] == 40
    refusals = [refused(name.open().keeper) for name in world.names]
    reason = str(PostReason.GENERATION if what == "move" else PostReason.EPOCH)
    assert [set(each) for each in refusals if each] == [{reason}] * 3, "posts of three subscribers, each counted"


def test_a_subscriber_has_its_grace_and_no_more(world: LayeredWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    """A post for a generation that is over counts if it came within the grace; brokers pass it on later, too."""
    limits, state = grace(world), world.realm.state()
    world.realm.place_node(TOPIC, "deep", under=ROOT)
    tree, zoe = TreeId("p0", 1, 0), world.realm.identity("zoe")
    deep = next(name for name in world.names if name.broker == "deep").open()
    token = token_for(world.realm.center(), state, TOPIC, "zoe", Right.SUBSCRIBE, world.realm.clock())
    for seconds, expected in ((0, {}), (limits[0] - 60, {}), (120, {str(PostReason.GENERATION): 1})):
        later(monkeypatch, seconds)
        post(world.realm, TOPIC, zoe, "deep", tree, [], token)
        deep.keeper.turn()
        assert refused(deep.keeper) == expected
