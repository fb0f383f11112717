"""What all tests share: what runs when, and one Spark session, started only when a test asks for it.

    make check    neither `heavy` nor `soak`: seconds a file, no Spark, no server. Before every commit.
    make test     all but `soak`. Every claim has a case here, as small as it can be and still fail. Before every merge.
    make soak     `soak`: many kills, many events, whole matrices, pages that start Spark again and again. Overnight.

`HEAVY` below names what is heavy. What is `soak` says so at the test, or is named with its reason in `tests/long.py`:
no test is in neither run, and whatever is long has something short beside it. Tests that run in both, with few
examples or with many, have their numbers from `tests/effort.py`.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings

from tests import effort
from tests.effort import tries_more
from tests.long import is_long, unfit
from tests.trust.places import place as place
from tests.trust.postgres import postgres as postgres

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Machines differ: a slow example is no failure. The examples are the same on every run, so that a failure repeats.
settings.register_profile("sealcast", deadline=None, derandomize=True)
settings.load_profile("sealcast")

gc.disable()  # until the tests are collected: `pytest_collection_finish`

#: Files of few tests and many minutes. Some processes share the tests, a file at a time: what is long begins first.
#: Before them, MQTT: Paho waits with select(), which knows 1,024 files, and a process that has run everything else has
#: more than that open.
LONGEST_FIRST = (
    "mqtt/",
    "pipeline/test_crash.py",
    "network/",
    "docs/test_protection_documents.py",
    "docs/test_trust_documents.py",
    "docs/test_documents.py",
    "docs/test_first_steps.py",
    "examples/",
    "overlay/peers/test_churn.py",
    "trust/test_model.py",
    "pipeline/test_faults.py",
    "pipeline/",
    "lab/",
    "cli/",
)

#: What `make check` leaves out, by path: files that take some seconds of processor time, most of them because
#: they start Spark, many processes or many realms. `pytest --durations=50 -m "not heavy"` shows what belongs here.
HEAVY = (
    "cli/",
    "clients/test_credentials.py",
    "clients/test_group_soak.py",
    "clients/test_groups.py",
    "clients/test_layered_clients.py",
    "clients/test_layered_together.py",
    "clients/test_publisher.py",
    "console/",
    "docs/test_documents.py",
    "docs/test_first_steps.py",
    "docs/test_protection_documents.py",
    "docs/test_site.py",
    "docs/test_trust_documents.py",
    "examples/",
    "filters/test_index.py",
    "filters/test_index_snapshot.py",
    "fuzz/",
    "gateway/test_access.py",
    "gateway/test_fuzzed.py",
    "gateway/test_lifecycle.py",
    "groupkeys/test_deliveries.py",
    "groupkeys/test_mosaic.py",
    "groupkeys/test_plans.py",
    "lab/",
    "lifecycle/",
    "log/test_carried_conformance.py",
    "log/test_carried_journal.py",
    "log/test_carried_layered.py",
    "log/test_carried_pieces.py",
    "log/test_carried_run.py",
    "log/test_carried_served.py",
    "log/test_carried_topics.py",
    "log/test_carried_turns.py",
    "log/test_carrier_access.py",
    "log/test_carrier_forks.py",
    "log/test_carrier_lies.py",
    "log/test_conformance.py",
    "log/test_damage.py",
    "log/test_kafka_away.py",
    "mqtt/",
    "network/",
    "overlay/peers/test_campaign.py",
    "overlay/peers/test_churn.py",
    "overlay/peers/test_findings.py",
    "overlay/peers/test_real.py",
    "overlay/test_compromised_broker.py",
    "overlay/test_forwarding.py",
    "overlay/test_keeper.py",
    "overlay/test_keeper_posts.py",
    "overlay/test_layered_costs.py",
    "overlay/test_peer_links.py",
    "overlay/test_peer_strangers.py",
    "overlay/test_plain_logs.py",
    "overlay/test_scenarios.py",
    "pipeline/",
    "prefilters/test_members.py",
    "protections/attribute/test_agreement.py",
    "protections/attribute/test_arrivals.py",
    "protections/attribute/test_attacks.py",
    "protections/attribute/test_bench.py",
    "protections/attribute/test_by_the_book.py",
    "protections/attribute/test_exposure.py",
    "protections/attribute/test_findings.py",
    "protections/attribute/test_joint_topic.py",
    "protections/attribute/test_key_server.py",
    "protections/attribute/test_missed.py",
    "protections/attribute/test_peer_crash.py",
    "protections/attribute/test_peer_processes.py",
    "protections/attribute/test_peer_show.py",
    "protections/attribute/test_peer_soak.py",
    "protections/attribute/test_peering.py",
    "protections/attribute/test_relay.py",
    "protections/attribute/test_room.py",
    "protections/attribute/test_scheme.py",
    "protections/attribute/test_split.py",
    "protections/attribute/test_spoilt.py",
    "protections/attribute/test_templates.py",
    "protections/searchable/test_retained.py",
    "protections/searchable/test_truth.py",
    "protections/test_columns.py",
    "protections/test_opening.py",
    "protections/test_payload.py",
    "protections/test_readers.py",
    "protections/test_replays.py",
    "protections/test_searchable.py",
    "protections/test_witness.py",
    "remote/test_broker_machines.py",
    "remote/test_brokers_come_and_go.py",
    "remote/test_clients.py",
    "remote/test_commands.py",
    "remote/test_conformance.py",
    "remote/test_following.py",
    "remote/test_groups.py",
    "remote/test_lies.py",
    "remote/test_offline.py",
    "remote/test_peers.py",
    "remote/test_service_machines.py",
    "remote/test_two_machines.py",
    "schemes/layered/test_collusion.py",
    "schemes/layered/test_curious.py",
    "schemes/layered/test_indistinguishable.py",
    "schemes/test_layered.py",
    "schemes/test_tables.py",
    "soak/test_every_byte.py",
    "telemetry/test_logs.py",
    "trust/test_administration.py",
    "trust/test_center_crash.py",
    "trust/test_compromise.py",
    "trust/test_flood.py",
    "trust/test_handles.py",
    "trust/test_hybrid_entities.py",
    "trust/test_key_center.py",
    "trust/test_key_services.py",
    "trust/test_kills.py",
    "trust/test_model.py",
    "trust/test_replay.py",
    "trust/test_revocation.py",
    "upgrade/",
    "wire/test_excerpts.py",
)
#: Names of tests go from process to process, several times for each test: one had ten million characters.
LONGEST_NAME = 2_000
#: Fixtures that start a server, wherever they are used.
STARTS = {"spark", "postgres", "place"}


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("markexpr") == "soak":
        effort.soak()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: _rank(item.path))  # stable: within a file, the order stays
    if not any("::" in argument for argument in config.args) and (stale := unfit([item.nodeid for item in items])):
        raise pytest.UsageError(f"tests/long.py names what is not there: {stale}")
    if endless := [item.nodeid[:200] for item in items if len(item.nodeid) > LONGEST_NAME]:
        raise pytest.UsageError(f"give parameters an id, instead of their contents: {endless}")
    for item in items:
        if is_long(item.nodeid) or tries_more(item):
            item.add_marker(pytest.mark.soak)
        if _is_heavy(item.path) or not STARTS.isdisjoint(_fixtures(item)):
            item.add_marker(pytest.mark.heavy)


@cache
def _rank(path: Path) -> int:
    """When a file's turn comes."""
    name = path.as_posix()
    return next((n for n, part in enumerate(LONGEST_FIRST) if f"tests/{part}" in name), len(LONGEST_FIRST))


@cache
def _is_heavy(path: Path) -> bool:
    return any(f"tests/{part}" in path.as_posix() for part in HEAVY)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """What did not run for want of rights is said at the end, with its number."""
    from tests.network.hosts import NOT_HERE

    skipped = [each for each in terminalreporter.stats.get("skipped", []) if NOT_HERE in str(each.longrepr)]
    if skipped:
        terminalreporter.write_line(f"NOT RUN: {len(skipped)} tests, because {NOT_HERE}", yellow=True)


def _fixtures(item: pytest.Item) -> Sequence[str]:
    return getattr(item, "fixturenames", ())


def pytest_collection_finish() -> None:
    """What was imported and collected stays until the end, so the garbage collector need not look at it again: that
    takes a fifth of a second each time, and `closed_steps` alone collects after every file. For the same reason it is
    off until here: looking again and again at tests that stay took a third of the time that collecting them takes."""
    gc.collect()
    gc.freeze()
    gc.enable()


@pytest.fixture(scope="session", autouse=True)
def unlock_key(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Private keys are sealed under an unlock key of the tests' own, also in the processes that they start."""
    path = tmp_path_factory.mktemp("unlock") / "unlock.key"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SEALCAST_UNLOCK_KEY", str(path))
        for name in ("SEALCAST_PASSPHRASE", "SEALCAST_PASSPHRASE_FILE", "SEALCAST_REGISTRY_URL"):
            patch.delenv(name, raising=False)
        yield path


@pytest.fixture(scope="module", autouse=True)
def closed_steps() -> Iterator[None]:
    """A process keeps the steps that it opened, files and all: a worker of the tests has seen hundreds of realms, and
    some clients (Paho's) cannot wait for a file beyond the 1,024th."""
    yield
    steps = sys.modules.get("sealcast.protections.steps")
    if steps is not None:
        steps._open.cache_clear()
        steps.realm_of.cache_clear()
    gc.collect()


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """The one Spark session. It ends with the process."""
    from sealcast.pipeline.session import session

    yield session("local[2]", app_name="sealcast tests", driver_memory="1g", short_lived=True)
