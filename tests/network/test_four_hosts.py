"""A gateway, a publisher and two subscribers on four hosts: cables are cut, the gateway is killed, and nothing is lost,
nothing comes twice, and the order is kept. Judged by what the clients wrote down, by `check` and by `confirm`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.network.deployment import PUBLISHER, READERS, Deployment
from tests.network.hosts import Network


def ordeal(network: Callable[..., Network], directory: Path, seed: int, cuts: int, deaths: list[list[str]]) -> None:
    hosts = network("gate", "north", "south", "east")
    realm = Deployment(hosts, directory / "journals", "endpoint")
    realm.found("--partitions", "2")
    for host, name in zip(("north", "south", "east"), (PUBLISHER, *READERS), strict=True):
        realm.join(hosts[host], name)
    for name in READERS:
        realm.subscribe(name)
    realm.run("run", realm.gate, "run", "--master", "local[1]", "--every", "1 second", ready="running")
    realm.allow(0)
    for name in READERS:
        realm.client("subscriber", name)
    realm.client("publisher", PUBLISHER)
    verdict = realm.endure(seed, cuts, deaths)
    said = realm.checked(realm.gate)
    assert (said["events"], said["deliveries"]) == (verdict.events, verdict.deliveries)


@pytest.mark.timeout(900)
@pytest.mark.parametrize("cuts", [1, pytest.param(2, marks=pytest.mark.soak)])
def test_cuts_and_a_kill(network: Callable[..., Network], tmp_path: Path, cuts: int) -> None:
    ordeal(network, tmp_path, seed=1, cuts=cuts, deaths=[["gateway"]])


@pytest.mark.soak
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("seed", range(3))
def test_ten_cuts_and_the_death_of_all_that_serves(network: Callable[..., Network], tmp_path: Path, seed: int) -> None:
    ordeal(network, tmp_path, seed, cuts=10, deaths=[["gateway"], ["gateway", "serve"], ["gateway", "serve", "run"]])
