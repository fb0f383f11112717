"""One suite for every protection of the table: what each promises, or declares that it lacks, and then refuses."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from sealcast import Event, Publisher, Realm, Right, Subscriber
from sealcast.errors import Misuse, SealcastError
from sealcast.model.protection import PROTECTIONS
from sealcast.protections.attribute.carry import carry
from sealcast.protections.port import broker_side, client_side, witness_side
from tests.protections.conformance import ClientHalf
from tests.protections.world import SCHEMA, TOPIC, World, names
from tests.telemetry.recorder import Recorder

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="module", params=names())
def made(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> World:
    return World(tmp_path_factory.mktemp(request.param) / "realm", request.param)


@pytest.fixture(scope="module")
def delivered(made: World, tmp_path_factory: pytest.TempPathFactory, spark: SparkSession) -> World:
    world = made.copy(tmp_path_factory.mktemp("delivered") / "realm")
    world.deliver(spark)
    return world


@pytest.fixture
def world(delivered: World, tmp_path: Path) -> World:
    """A copy that a case may change."""
    return delivered.copy(tmp_path / "realm")


# --- the table ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", names())
def test_every_protection_has_a_room_with_the_same_files(name: str) -> None:
    room = Path(__file__).parents[2] / "src" / "sealcast" / "protections" / name
    for file in (
        "README.md",
        "__init__.py",
        "client.py",
        "broker.py",
        "witness.py",
        "keys.py",
        "open.py",
        "publish.py",
    ):
        assert (room / file).is_file(), file
    said = (room / "README.md").read_text()
    for heading in ("Paper", "Section map", "Assumption", "Deviations"):
        assert heading in said, heading


@pytest.mark.parametrize("name", names())
def test_every_protection_has_three_sides(name: str) -> None:
    protection = PROTECTIONS[name]()
    assert client_side(protection) and broker_side(protection) and witness_side(protection)


def test_what_each_protection_lacks_is_listed() -> None:
    """Whoever lacks something new says so here, too."""
    assert {name: sorted(kind.lacks) for name, kind in PROTECTIONS.items()} == {
        "endpoint": [],
        "payload": ["readers"],
        "searchable": ["readers", "templates", "wider domains"],
        "layered": ["readers", "replay", "spark-write", "templates", "wider domains"],
        "attribute": ["brokers", "readers", "replay", "wider domains"],
    }


class TestClientsBesideTheRealm(ClientHalf):
    """What its clients do where the realm is."""


# --- replay, crash --------------------------------------------------------------------------------------


def test_what_comes_again_is_refused_and_counted(delivered: World) -> None:
    assert delivered.totals["rejected_replay"] == 60, "both publishers' first frames, of 30 events each"
    assert delivered.totals["rejected_frame"] >= 1


def test_a_lost_checkpoint_loses_nothing(world: World) -> None:
    world.drop_checkpoints()
    world.publish("xetra", 10)
    world.append_again()
    totals = world.run()
    assert totals["admitted"] == 10 and totals["rejected_replay"] == 60
    world.check()
    world.judge()


# --- check and status -----------------------------------------------------------------------------------


def test_check_has_nothing_to_say_of_an_honest_broker(delivered: World) -> None:
    found = delivered.command("check", TOPIC, "--json").document
    assert found["ok"] and not found["problems"]
    assert found["deliveries"] == sum(map(len, delivered.due.values()))


def test_check_finds_a_piece_that_was_exchanged(world: World) -> None:
    pieces = [
        path for path in world.realm.paths.root.rglob("pieces/*") if path.is_file() and path.stat().st_size > 2000
    ]
    piece = max(pieces, key=lambda path: path.stat().st_size)
    data = bytearray(piece.read_bytes())
    data[len(data) // 2] ^= 1
    piece.chmod(0o600)
    piece.write_bytes(data)
    found = world.command("check", TOPIC, "--json", code=1).document
    assert not found["ok"] and found["problems"]


def test_status_has_the_numbers(delivered: World) -> None:
    found = [t for t in delivered.command("status", "--json").document["topics"] if t["topic"] == TOPIC]
    assert sum(each.get("events", {}).get("admitted", 0) for each in found) == 60


def test_brokers_add_to_a_trace_what_they_did(world: World) -> None:
    """Those that read say all four stages; those that pass on say that they took it in. Peers say nothing."""
    at_publisher, at_broker = Recorder(), Recorder()
    world.publisher("nyse", traces=at_publisher).publish([Event({"price": 5, "symbol": "A"}, b"traced")])
    (root,) = at_publisher.spans
    world.run(traces=at_broker)
    assert root.context is not None
    assert all(span.context is not None and span.context.trace_id == root.context.trace_id for span in at_broker.spans)
    names = sorted({span.name.removeprefix("sealcast ") for span in at_broker.spans})
    every = ["admit", "deliver", "match", "seal"]
    assert names == ([] if world.protection.peers else every[:2] if world.protection.overlay else every)


# --- what only some have --------------------------------------------------------------------------------


def test_a_token_for_some_events_is_judged_or_refused(world: World) -> None:
    """Whoever cannot read cannot tell which events a token is for."""
    if "templates" in world.protection.lacks:
        with pytest.raises(SealcastError):
            world.realm.grant(TOPIC, "nyse", [Right.PUBLISH], template="symbol=A")
    else:
        world.realm.grant(TOPIC, "nyse", [Right.PUBLISH], template="symbol=A")


def test_a_realm_may_have_topics_of_every_protection(tmp_path: Path, spark: SparkSession) -> None:
    realm = Realm.create(tmp_path / "realm")
    realm.enrol_many(["nyse", "ann"])
    from sealcast import run

    for name in names():
        realm.create_topic(name, SCHEMA, protection=name, access="members")
        realm.subscribe(name, "ann", "price < 10")
        with Publisher(realm, name, as_="nyse") as publisher:
            publisher.publish([Event({"price": p, "symbol": "A"}, name.encode()) for p in (5, 50)])
    run(realm, once=True, spark=spark)
    carry(realm)
    for name in names():
        with Subscriber(realm, name, as_="ann") as reader:
            assert [event.payload for event in reader] == [name.encode()]
    with pytest.raises(Misuse, match="protection is one of"):
        realm.create_topic("other", SCHEMA, protection="rot13", access="members")
