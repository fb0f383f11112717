"""Posts for a generation or an epoch that is over: what counts in it still, whose, and who has no part in it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from sealcast.log.post_log import PostLog
from sealcast.protections.layered.filters.checks import PostReason
from sealcast.trust.keys.layer_keys import overlay_of
from sealcast.trust.realm.overlays import Overlay
from tests.overlay.filters_world import EVENTS, SHAPE, Realms, World, check, quick_realms, refused, wants
from tests.overlay.test_keeper_posts import Bent, later, slipped_in


@pytest.fixture(scope="module")
def realms(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Realms]:
    with quick_realms(tmp_path_factory.mktemp("past")) as made:
        yield made


@pytest.fixture
def world(realms: Realms) -> Iterator[World]:
    made = realms.world(2, **SHAPE)
    yield made
    made.close()


def test_a_broker_that_left_the_overlay_is_not_heard_in_what_is_over(world: World) -> None:
    """Not even where it stood: it was taken out, perhaps because it is somebody else's now."""
    bent = Bent(world)
    world.subscribe("s0", wants([[1]]))
    world.settle()
    before = world.rows("b1", bent.id)
    world.realm.remove_node(world.topic, "b3")
    assert world.overlay.generation > bent.id.generation
    slipped_in(world, "b1", bent.made(**bent.passed_on("b3", "s0")))
    world.keepers["b1"].turn()
    assert refused(world.keepers["b1"]) == {str(PostReason.SENDER): 1}
    assert world.rows("b1", bent.id) == before


def test_a_way_that_is_new_is_none_in_what_is_over(world: World) -> None:
    """In a generation everyone stands where they stood in it, and nowhere else."""
    bent = Bent(world)
    world.realm.place_subscriber(world.topic, "s1", "b3")  # from b1
    for reader, taken in (("s1", False), ("s0", True)):
        slipped_in(world, "b1", bent.made(**bent.passed_on("b3", reader)))
        world.keepers["b1"].turn()
        assert bool(world.rows("b1", bent.id)) is taken
    assert refused(world.keepers["b1"]) == {str(PostReason.PATH): 1}


def test_nobody_waits_for_a_key_that_cannot_come_any_more(realms: Realms) -> None:
    """The layer of b0 goes on next, who announced none in that epoch: whoever comes after is not kept waiting."""
    world = realms.world(2, [None, 0, 1], [2], silent=["b0"])
    try:
        world.subscribe("s0", wants([[0]]))
        world.keepers["b2"].turn()
        assert not world.rows("b2"), "it may come yet"
        world.realm.rotate(world.topic)
        world.announce()
        world.say("s0", [(wants([[0]]), False)])
        world.settle()
        check(world, EVENTS[:2])
    finally:
        world.close()


def test_an_old_generation_is_looked_up_once_and_only_while_it_is_kept(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever can write into the log names any generation, signed by nobody."""
    old = Bent(world)
    world.realm.place_subscriber(world.topic, "s2", "b3")
    asked: list[int] = []

    def counted(realm: object, state: object, topic: str, generation: int) -> Overlay:
        asked.append(generation)
        return overlay_of(world.realm, world.realm.state(), topic, generation)

    monkeypatch.setattr("sealcast.protections.layered.filters.keeper.overlay_of", counted)
    for generation in (0, 0, 7, 1 << 31, 0):
        slipped_in(world, "b3", old.made(sender=old.impostor("s0"), tree=old.id._replace(generation=generation)))
        world.keepers["b3"].turn()
    assert asked == [0]
    later(world, monkeypatch, seconds=90_000)
    slipped_in(world, "b3", old.made(sender=old.impostor("s0")))
    world.keepers["b3"].turn()
    assert asked == [0]
    assert refused(world.keepers["b3"]) == {str(PostReason.SIGNATURE): 6}


def test_nothing_is_posted_to_a_broker_that_left(world: World) -> None:
    """Nobody takes it there: it would fill up, and stop those who post to it."""
    world.subscribe("s0", wants([[0]]))
    old = world.trees()[0]
    world.realm.remove_node(world.topic, "b1")  # above b3
    world.keepers["b3"].turn()
    assert world.rows("b3", old)
    with PostLog(world.realm.paths.topic(world.topic, "b1").filter_posts) as log:
        assert log.end() == 0
