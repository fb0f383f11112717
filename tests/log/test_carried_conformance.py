"""The conformance suite of protections with the topic on a carrier: frames, ledger, notes and pieces."""

from __future__ import annotations

from pathlib import Path
from secrets import token_hex
from typing import TYPE_CHECKING, Any, Self

import pytest

from sealcast.bench.carrier_servers import CarrierServer
from sealcast.log.carriers import Placement
from sealcast.model.protection import PROTECTIONS
from sealcast.trust.realm.changes import CarryJournal, CarryTopic
from tests.log.test_carried_journal import files_of
from tests.protections.conformance import ClientHalf
from tests.protections.world import TOPIC, World

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.soak

#: Those whose whole topic can be on a carrier.
CARRIED = [name for name, kind in PROTECTIONS.items() if not kind.peers]
#: What a broker has there; those of an overlay have the rest, too.
LOGS = ("ledger", "reseals", "replays", "pieces", "places")
OVERLAY = (*(f"hops.{log}" for log in LOGS), "posts", "taken", "table", "notes")


class CarriedWorld(World):
    """One topic under one protection, on a carrier."""

    def __init__(self, directory: Path, protection: str, server: CarrierServer, **settings: Any) -> None:
        super().__init__(directory, protection, **settings)
        self.realm.add_carrier("away", server.address)
        self.realm.move_topic(TOPIC, "away", name=token_hex(6))

    def copy(self, directory: Path) -> Self:
        """The directory, and what is on the carrier under other names."""
        other = super().copy(directory)
        state = other.realm.state()
        there = other.realm.carriers.carrier(state, "away")
        for (_, broker), at in state.carried.items():
            name, more = token_hex(6), OVERLAY if state.topic(TOPIC).protection.overlay else ()
            for suffix in ("", *(f".{log}" for log in (*LOGS, *more))):
                there.create(f"{name}{suffix}", Placement(1))
                source, target = (there.partition(f"{each}{suffix}", 0) for each in (at.name, name))
                stored = [(each.head, each.data) for each in source.fetch(*source.bounds())]
                for begin in range(0, len(stored), 64):
                    target.append(stored[begin : begin + 64])
            other.realm.registry.apply(CarryTopic(TOPIC, broker, "away", name, (0,), (0,)))
            other.realm.registry.apply(CarryJournal(TOPIC, broker, "away", name))
        return other


@pytest.fixture(scope="module", params=[f"{name}-{over}" for over in ("nats", "kafka") for name in CARRIED])
def made(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> CarriedWorld:
    protection, over = request.param.rsplit("-", 1)
    directory = tmp_path_factory.mktemp(protection) / "realm"
    return CarriedWorld(directory, protection, request.getfixturevalue(over))


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
