"""The conformance suite of every protection, with clients that reach the realm through a gateway and nothing else.

The brokers' kernels run without Spark here; the soak test runs the same cases with brokers on Spark.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.protections.conformance import ClientHalf
from tests.protections.world import PUBLISHERS, names
from tests.remote.far import NOT_FROM_AFAR, FarWorld

#: A protection, and whether its brokers run on Spark.
WORLDS = [
    *(pytest.param((name, False), id=name) for name in names()),
    *(pytest.param((name, True), id=f"{name}-on-spark", marks=pytest.mark.soak) for name in names()),
]


@pytest.fixture(scope="module", params=WORLDS)
def made(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[FarWorld]:
    protection, on_spark = request.param
    with FarWorld(tmp_path_factory.mktemp(protection) / "realm", protection) as world:
        world.spark = request.getfixturevalue("spark") if on_spark else None
        yield world


@pytest.fixture(scope="module")
def delivered(made: FarWorld, tmp_path_factory: pytest.TempPathFactory) -> Iterator[FarWorld]:
    with published(made.copy(tmp_path_factory.mktemp("delivered") / "realm")) as world:
        yield world


@pytest.fixture
def world(delivered: FarWorld, tmp_path: Path) -> Iterator[FarWorld]:
    """A copy that a case may change, with a gateway of its own."""
    with delivered.copy(tmp_path / "realm") as copy:
        yield copy


def published(world: FarWorld) -> FarWorld:
    """Published by two, and run to the end."""
    for publisher in PUBLISHERS:
        world.publish(publisher, 30)
    world.totals = world.run()
    return world


class TestClientsElsewhere(ClientHalf):
    """What its clients do with a gateway's address and their own keys."""


def test_what_needs_brokers_files_is_refused_by_name(made: FarWorld) -> None:
    """Whoever is elsewhere and asks for something new that only the realm's own machine has: it is listed here, too."""
    assert NOT_FROM_AFAR == ("audit", "check", "rejected list", "replay", "why")
    assert made.refuses("ann", "audit") and made.refuses("ann", "check")


def test_a_home_has_no_file_of_a_broker(delivered: FarWorld) -> None:
    for name in ("ann", "nyse"):
        root = delivered.member(name).paths.root
        assert not (root / "secrets").exists(), name
        if not delivered.protection.peers:
            shared = (path for part in ("pieces", "ledger", "frames/0") for path in root.rglob(part))
            assert not list(shared), name
