"""Events reach subscribers at every broker, once."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.overlay.world import TOPIC, World


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    made = World(tmp_path / "realm")
    yield made
    made.close()


def test_whoever_publishes_anywhere_reaches_everyone(world: World) -> None:
    world.subscribe("alice", 0)
    world.subscribe("bob", 10, broker="b1")
    world.publish("p0", "broker", [5, 15])
    world.publish("p1", "b1", [20, 3])
    world.rest()
    world.judge()
    assert world.got["alice"] != [] and len(world.got["bob"]) == 2


def test_a_subscriber_moves_there_and_back(world: World) -> None:
    world.subscribe("alice", 0)
    world.publish("p0", "broker", [1, 2])
    world.rest()
    world.move("alice", "b1")
    world.publish("p0", "broker", [3])
    world.publish("p1", "b1", [4])
    world.rest()
    assert world.realm.state().stays_of(TOPIC, "alice")[0].until is not None
    world.judge()
    world.move("alice", "broker")
    world.publish("p0", "broker", [5])
    world.rest()
    world.publish("p1", "b1", [6])
    world.rest()
    world.judge()
