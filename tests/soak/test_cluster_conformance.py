"""The conformance suite of every protection on a cluster: Kafka or NATS, PostgreSQL, and Spark standalone with two
workers, each on a machine of its own, with no directory that they share (tests/soak/cluster/machines.py)."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final
from xml.etree import ElementTree

import pytest

from tests.log.carried_world import CARRIED
from tests.network.hosts import missing
from tests.pipeline.drivers import ROOT
from tests.soak.cluster import conformance_cases
from tests.soak.cluster.conformance import VARIABLE, Cluster
from tests.soak.cluster.machines import CARRIERS, OWN, WORKERS, Machines

pytestmark = [pytest.mark.soak, pytest.mark.timeout(3_600)]

#: They change nothing of a test but where it runs.
SUITE: Final = ("-m", "pytest", "tests/soak/cluster/conformance_cases.py", "-m", "", "-p", "no:cacheprovider")
CASES: Final = sorted(name for name in dir(conformance_cases.TestOnACluster) if name.startswith("test_"))
#: What workers may have of a realm: what homes bring, and what executors make of it for themselves.
HOME: Final = ("realm.json", "secrets", "brokers", "snapshots", "topics")
KEYS: Final = ("broker", "brokers", "carriers")


@pytest.fixture(scope="module", params=CARRIERS)
def machines(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machines]:
    if (reason := missing()) is not None:
        pytest.skip(reason)
    with Machines(tmp_path_factory.mktemp(request.param) / "machines", request.param) as made:
        yield made


@pytest.mark.parametrize("protection", CARRIED)
def test_every_case_holds_where_machines_share_nothing(machines: Machines, protection: str) -> None:
    before = executors(machines)
    found = suite(machines, protection)
    assert sorted(found) == CASES
    assert {name: how for name, how in found.items() if how != "passed"} == {}
    for worker, logs in executors(machines).items():
        said = [log.read_text(errors="replace") for log in logs - before[worker]]
        assert any("Running task" in each for each in said), f"{worker} had no part in it"
        assert foreign(machines.root / worker / OWN / protection) == []


def suite(machines: Machines, protection: str) -> dict[str, str]:
    """How each case ended on the driver's machine."""
    disk, own = machines.root / "driver" / OWN, machines.own
    Cluster(
        protection=protection,
        carrier=machines.carrier.address,
        host=machines.postgres.address,
        port=machines.postgres.port,
        master=machines.cluster.url,
        settings=machines.settings(),
        own=str(own),
        workers=[str(machines.root / worker / OWN) for worker in WORKERS],
        state=machines.state.as_uri(),
    ).write(disk / "cluster.json")
    told = ["--basetemp", own / protection, "--junit-xml", own / f"{protection}.xml"]
    log = machines.root / "driver" / f"{protection}.log"
    with log.open("wb") as out:
        # It ends by itself: each case has a limit of its own.
        subprocess.run(
            [*machines.within("driver", WORKERS), sys.executable, *SUITE, *map(str, told)],
            env={**os.environ, **machines.environment, VARIABLE: str(own / "cluster.json")},
            cwd=ROOT,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=out,
            check=False,
        )
    print(log.read_text()[-20_000:])
    cases = ElementTree.parse(disk / f"{protection}.xml").iter("testcase")
    return {case.attrib["name"]: "passed" if (end := case.find("*")) is None else end.tag for case in cases}


def executors(machines: Machines) -> dict[str, set[Path]]:
    """What executors have said on each worker."""
    works = zip(WORKERS, machines.cluster.work, strict=True)
    return {name: set(work.glob("*/*/stderr")) for name, work in works}


def foreign(disk: Path) -> list[str]:
    """What a worker has of the suite's realms and should not have: of the registry, the authority, key centers, clients
    and discovery nodes."""
    found = list[str]()
    marks = list(disk.rglob("realm.json"))
    assert marks, "there are homes of the realms"
    for root in (mark.parent for mark in marks):
        found += [str(path) for path in root.iterdir() if path.name not in HOME]
        found += [str(path) for path in (root / "secrets").iterdir() if path.stem not in KEYS]
    return found
