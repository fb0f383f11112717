"""A layered tree of three brokers on three hosts, each with its own disk, its own gateway and its own Spark: cables are
cut, brokers are killed, and nothing is lost, nothing comes twice, and the order is kept."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.network.deployment import ARRIVAL_S, PUBLISHER, READERS, Deployment
from tests.network.hosts import Network

ROOT, BELOW = "paris", ("lyon", "metz")
BROKERS = (ROOT, *BELOW)


def planted(network: Callable[..., Network], directory: Path) -> Deployment:
    """A publisher's events go to the root. Each subscriber is below a broker of its own."""
    hosts = network("gate", *BROKERS, "field")
    realm = Deployment(hosts, directory / "journals", "layered")
    realm.found("--nodes", "0", "--layers", "2")
    for broker in BROKERS:
        realm.broker(hosts[broker], broker)
    realm.gate.step("overlay", "add", realm.topic, ROOT)
    for broker in BELOW:
        realm.gate.step("overlay", "add", realm.topic, broker, "--under", ROOT)
    for name in (PUBLISHER, *READERS):
        realm.join(hosts["field"], name)
    for broker, name in zip(BELOW, READERS, strict=True):
        realm.gate.step("overlay", "place", realm.topic, name, "--at", broker)
        realm.subscribe(name)
    for broker in BROKERS:
        run = ("run", "--node", broker, "--master", "local[1]", "--every", "1 second")
        realm.run(broker, hosts[broker], *run, ready="running")
    # It says what became of the publisher's frames.
    realm.run("desk", hosts[ROOT], "serve", ready="serving")
    return realm


def hear(realm: Deployment) -> None:
    """Until the root knows what both want of the new publisher: before that, its events are for nobody."""
    until = time.monotonic() + ARRIVAL_S
    while True:
        (about,) = json.loads(realm.network[ROOT].step("status", "--json"))["topics"]
        if about["filters"]["rows"] >= len(READERS):
            return
        assert time.monotonic() < until, realm.told()
        time.sleep(1.0)


@pytest.mark.soak
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("seed", range(2))
def test_cuts_and_deaths_in_a_tree(network: Callable[..., Network], tmp_path: Path, seed: int) -> None:
    realm = planted(network, tmp_path)
    realm.allow(0)
    realm.client("publisher", PUBLISHER)
    for name in READERS:
        realm.client("subscriber", name)
    hear(realm)
    realm.endure(seed, cuts=10, deaths=[["lyon"], ["paris-door"], ["metz", "metz-door"], ["paris"]])
    for broker in BROKERS:
        realm.checked(realm.network[broker])
