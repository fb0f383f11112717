"""The conformance suite on the driver's machine of a cluster. tests/soak/test_cluster_conformance.py makes the
machines, and runs this there."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from sealcast.errors import SealcastError
from sealcast.pipeline import register
from sealcast.pipeline.session import session
from tests.log.test_carried_journal import files_of
from tests.protections.conformance import ClientHalf
from tests.protections.world import TOPIC
from tests.soak.cluster.conformance import Cluster, ClusterWorld

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="session")
def cluster() -> Cluster:
    return Cluster.here()


@pytest.fixture(scope="session")
def spark(cluster: Cluster) -> SparkSession:
    """As `sealcast run --master` makes it, and with the data source of users' own jobs."""
    made = session(cluster.master, "conformance", cluster.settings, short_lived=True, clients=False)
    register(made)
    return made


@pytest.fixture(scope="module")
def made(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClusterWorld]:
    with ClusterWorld(tmp_path_factory.mktemp("made") / "realm", cluster) as world:
        yield world


@pytest.fixture(scope="module")
def delivered(
    made: ClusterWorld, tmp_path_factory: pytest.TempPathFactory, spark: SparkSession
) -> Iterator[ClusterWorld]:
    with made.copy(tmp_path_factory.mktemp("delivered") / "realm") as world:
        world.deliver(spark)
        assert files_of(world.realm) == []
        yield world


@pytest.fixture
def world(delivered: ClusterWorld, tmp_path: Path) -> Iterator[ClusterWorld]:
    """A copy that a case may change."""
    with delivered.copy(tmp_path / "realm") as copy:
        yield copy
        assert files_of(copy.realm) == []


class TestOnACluster(ClientHalf):
    """What clients do, with brokers on workers that have none of the realm's files."""

    def test_spark_reads_a_subscribers_events(  # type: ignore[override]
        self, delivered: ClusterWorld, spark: SparkSession
    ) -> None:
        with delivered.job_of("eve"):
            super().test_spark_reads_a_subscribers_events(delivered, spark)

    def test_spark_publishes_or_says_that_it_cannot(  # type: ignore[override]
        self, world: ClusterWorld, spark: SparkSession
    ) -> None:
        with world.job_of("nyse"):
            super().test_spark_publishes_or_says_that_it_cannot(world, spark)

    def test_workers_with_homes_from_before_an_epoch_lose_nothing(
        self, world: ClusterWorld, spark: SparkSession
    ) -> None:
        """Of brokers that have new keys in each epoch they lack one, and fail. Others have all that they need."""
        world.realm.rotate(TOPIC)
        world.publish("nyse", 20)
        if world.protection.overlay:
            with pytest.raises(SealcastError, match="agreement key of .* is not here"):
                world.run()
            world.renew_homes()
        world.run()
        world.check()
        world.judge()
