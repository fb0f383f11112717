"""The conformance suite of protections with the topic on a carrier: frames, ledger, notes and pieces."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.log.carried_world import CARRIED, CarriedWorld
from tests.log.test_carried_journal import files_of
from tests.protections.conformance import ClientHalf

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.soak


@pytest.fixture(scope="module", params=[f"{name}-{over}" for over in ("nats", "kafka") for name in CARRIED])
def made(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> CarriedWorld:
    protection, over = request.param.rsplit("-", 1)
    directory = tmp_path_factory.mktemp(protection) / "realm"
    return CarriedWorld(directory, protection, request.getfixturevalue(over).address)


@pytest.fixture(scope="module")
def delivered(made: CarriedWorld, tmp_path_factory: pytest.TempPathFactory, spark: SparkSession) -> CarriedWorld:
    world = made.copy(tmp_path_factory.mktemp("delivered") / "realm")
    world.deliver(spark)
    assert files_of(world.realm) == []
    return world


@pytest.fixture
def world(delivered: CarriedWorld, tmp_path: Path) -> CarriedWorld:
    """A copy that a case may change."""
    return delivered.copy(tmp_path / "realm")


class TestOnACarrier(ClientHalf):
    """What clients do, wherever the topic is."""
