"""A reader whose right has ended, and a broker that keeps quiet about it: those above do not wait for its word."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from sealcast.protections.layered.filters.checks import Doorkeeper, PostReason
from sealcast.protections.layered.filters.keeper import TableKeeper
from sealcast.protections.layered.tree import TreeId
from sealcast.trust.realm.changes import Right
from tests.overlay.filters_world import EVENTS, Realms, World, check, post, quick_realms, wants


@pytest.fixture(scope="module")
def realms(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Realms]:
    with quick_realms(tmp_path_factory.mktemp("leaving")) as made:
        yield made


@pytest.fixture
def world(realms: Realms) -> Iterator[World]:
    """A root, a broker below it, and two readers there."""
    made = realms.world(2, [None, 0], [1, 1])
    made.subscribe("s0", wants([[0]]))
    made.subscribe("s1", wants([[1]]))
    made.settle()
    yield made
    made.realm.grant(made.topic, "s0", [Right.SUBSCRIBE])
    made.close()


def revoked_quietly(world: World, monkeypatch: pytest.MonkeyPatch) -> TreeId:
    """Takes the right away; the reader's own broker withdraws nothing. The tree in which it has rows."""
    inner, (tree,) = TableKeeper._withdraw, world.trees()

    def quiet(self: TableKeeper, *given: object) -> int:
        return 0 if self.node == "b1" else inner(self, *given)  # type: ignore[arg-type]

    monkeypatch.setattr(TableKeeper, "_withdraw", quiet)
    world.realm.revoke(world.topic, "s0", [Right.SUBSCRIBE])
    world.settle()
    return tree


def ends_at_root(world: World, tree: TreeId) -> set[str]:
    return {path[-1] for paths in world.rows("b0", tree).values() for path in paths}  # type: ignore[index]


def test_a_quiet_broker_receives_nothing_more_for_who_was_revoked(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    tree = revoked_quietly(world, monkeypatch)
    assert "s0" not in world.overlay.places and world.trees() == [tree], "nobody has to say anything again"
    assert ends_at_root(world, tree) == {"s1"}, "its rows are gone at the root, and nobody else's"
    (stolen,) = world.encrypted("s1", wants([[2]]), tree)
    asked = type(stolen)(stolen.slots, ("b1", "s0"))
    post(world.realm, world.topic, world.identity("b1"), "b0", tree, [asked])
    world.settle()
    assert world.refused() == {str(PostReason.PATH): 1} and ends_at_root(world, tree) == {"s1"}


def test_where_the_place_stays_the_quiet_broker_goes_on_receiving(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sealcast.trust.admin.topics.unplaced", lambda *given: [])
    tree = revoked_quietly(world, monkeypatch)
    assert world.trees() == [tree] and ends_at_root(world, tree) == {"s0", "s1"}
    del world.wanted["s0"]
    assert any("s0" in world.delivered(tree, labels) for labels in EVENTS)


@pytest.mark.parametrize("told", [True, False])
def test_a_right_that_comes_back_counts_again_though_its_broker_never_noticed(
    world: World, told: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its own broker did not run meanwhile, and still has the rows. The root has ended them."""
    tree = revoked_quietly(world, monkeypatch)
    monkeypatch.undo()
    world.realm.grant(world.topic, "s0", [Right.SUBSCRIBE])
    world.realm.place_subscriber(world.topic, "s0")
    assert world.trees() == [tree] and world.overlay.places["s0"] == "b1", "nobody else has to say anything again"
    if not told:
        monkeypatch.setattr(Doorkeeper, "back_us", lambda self, name: None)
    world.start_over("s0", list(world.wanted["s0"]))
    world.settle()
    assert ends_at_root(world, tree) == ({"s0", "s1"} if told else {"s1"})
    if told:
        check(world)
        assert not world.refused()


def test_a_right_that_ends_by_its_term_costs_the_place_when_the_realm_is_maintained(world: World) -> None:
    now = world.realm.clock()
    world.realm.grant(world.topic, "s0", [Right.SUBSCRIBE], until_us=now + 1)
    assert "s0" in world.overlay.places
    mended = world.realm.maintain().mended
    assert mended[world.topic] == ("s0",) and "s0" not in world.overlay.places
