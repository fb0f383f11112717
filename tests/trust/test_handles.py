"""Handles by role: what a broker's process holds of a realm can reach neither the authority nor a key center."""

from __future__ import annotations

import inspect
import json
import subprocess
import sys
import typing
from pathlib import Path

import pytest

from sealcast.model.event import Event
from sealcast.trust import handles
from sealcast.trust.certificates.authority import Authority
from sealcast.trust.deployment import Realm
from sealcast.trust.handles import BrokerRealm, EntityRealm, OpenRealm
from tests.trust.center_world import SCHEMA

#: What can make keys, tokens or certificates: no process of a broker ever has one of these in memory.
FORBIDDEN = (
    "sealcast.trust.admin",
    "sealcast.trust.deployment",
    "sealcast.trust.certificates.authority",
    "sealcast.trust.keys.centers",
    "sealcast.trust.keys.issuing",
    "sealcast.trust.keys.minting",
    "sealcast.control.center",
    "sealcast.control.at_hand",
)
TOPIC = "quotes"

#: A broker's process: every broker-side module, a topic opened, a gate made, its desk asked for nothing. It tells which
#: modules it has.
BROKER = """
import importlib, json, pkgutil, sys
import sealcast.broker, sealcast.overlay, sealcast.pipeline, sealcast.protections.layered.filters

realm, extra = sys.argv[1], sys.argv[2:]
for name in extra:
    importlib.import_module(name)
for room in (sealcast.broker, sealcast.overlay, sealcast.pipeline, sealcast.protections.layered.filters):
    for found in pkgutil.walk_packages(room.__path__, room.__name__ + "."):
        if not found.name.startswith("sealcast.pipeline.public"):
            importlib.import_module(found.name)
for name in ("endpoint.broker", "endpoint.key_answers", "endpoint.audit", "layered.broker"):
    importlib.import_module("sealcast.protections." + name)

from sealcast.overlay.brokers import Node
from sealcast.protections.frame_steps import FramesStep
from sealcast.protections.steps import StepName
from sealcast.trust.handles import BrokerRealm

topic = FramesStep.of(StepName(realm, "quotes"))
topic.prepare()
version = topic.realm.state().version
gate = topic.gate(version)
with Node(topic.realm, "broker") as node:
    node.more()
print(json.dumps({"modules": sorted(sys.modules), "handle": type(topic.realm).__name__, "publishers": gate.topic.name}))
"""


def loaded(realm: Realm, *extra: str) -> tuple[list[str], str]:
    """The forbidden modules in a broker's process, and the kind of handle that its topic has."""
    child = subprocess.run(
        [sys.executable, "-c", BROKER, str(realm.paths.root), *extra], capture_output=True, text=True, timeout=300
    )
    assert child.returncode == 0, child.stderr
    told = json.loads(child.stdout)
    return [m for m in told["modules"] if m.startswith(FORBIDDEN)], told["handle"]


@pytest.fixture(scope="module")
def realm(tmp_path_factory: pytest.TempPathFactory) -> Realm:
    made = Realm.create(tmp_path_factory.mktemp("handles") / "market")
    made.create_topic(TOPIC, SCHEMA, access="members")
    made.enrol("alice")
    return made


def test_a_brokers_process_has_no_code_that_makes_keys_or_certificates(realm: Realm) -> None:
    assert loaded(realm) == ([], "BrokerRealm")


@pytest.mark.parametrize(
    "weakened", ["sealcast.trust.deployment", "sealcast.control.at_hand", "sealcast.clients.publisher"]
)
def test_one_that_imports_such_code_is_found_out(realm: Realm, weakened: str) -> None:
    assert loaded(realm, weakened)[0], f"{weakened} loads what makes keys"


#: `sealcast run` as it is called, Spark and all, for one broker.
RUN = """
import json, sys
from sealcast.cli.main import app

try:
    app(["run", "--realm", sys.argv[1], "--node", "broker", "--once", "--master", "local[1]", "--json"])
except SystemExit as end:
    assert not end.code, end.code
print(json.dumps(sorted(sys.modules)))
"""


def test_the_command_that_runs_one_broker_has_none_either(realm: Realm) -> None:
    child = subprocess.run(
        [sys.executable, "-c", RUN, str(realm.paths.root)], capture_output=True, text=True, timeout=240
    )
    assert child.returncode == 0, child.stderr
    assert [m for m in json.loads(child.stdout.splitlines()[-1]) if m.startswith(FORBIDDEN)] == []


def reaches(handle: type[OpenRealm]) -> set[str]:
    """The modules of everything that a handle's methods return."""
    found = set[str]()
    names = {**vars(sys.modules[handle.__module__]), **vars(handles)}
    for _, method in inspect.getmembers(handle, inspect.isfunction):
        hints = typing.get_type_hints(method, names)
        found |= {each.__module__ for each in [hints.get("return"), *typing.get_args(hints.get("return"))] if each}
    return found


def test_a_brokers_handle_reaches_its_own_secrets_and_no_others() -> None:
    administrators = set(dir(Realm)) - set(dir(OpenRealm))
    assert set(dir(BrokerRealm)) & administrators == {"broker", "next_receiving_keys", "revocations", "state_at"}
    assert set(dir(EntityRealm)) & administrators == {
        "identity",
        "discovery_node",
        "place_subscriber",
        "place_subscribers",
    }
    assert not [module for module in reaches(BrokerRealm) | reaches(EntityRealm) if module.startswith(FORBIDDEN)]


def test_a_handle_that_loads_an_authority_would_be_noticed() -> None:
    class Weakened(BrokerRealm):
        def helper(self) -> Authority:
            return Authority.load(self.paths.authority)

    Weakened.helper.__annotations__["return"] = Authority
    assert [module for module in reaches(Weakened) if module.startswith(FORBIDDEN)]


def test_the_administrators_handle_serves_wherever_a_narrower_one_does(realm: Realm) -> None:
    from sealcast.clients.publisher import Publisher

    assert isinstance(realm, BrokerRealm) and isinstance(realm, EntityRealm)
    event = Event({"price": 1})
    for handle in (realm, EntityRealm(realm.paths.root), str(realm.paths.root), Path(realm.paths.root)):
        with Publisher(handle, TOPIC, "alice") as publisher:
            publisher.publish([event])


def test_narrow_handles_see_the_same_realm(realm: Realm) -> None:
    narrow = [kind(realm.paths.root) for kind in (OpenRealm, BrokerRealm, EntityRealm)]
    assert {(handle.id, handle.name, handle.state().version) for handle in narrow} == {
        (realm.id, realm.name, realm.state().version)
    }
    assert all(handle.trust().realm_id == realm.id for handle in narrow)
