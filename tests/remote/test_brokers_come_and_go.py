"""Brokers on other machines come and go while others run: they are routed to without a restart, and what is on its way
to one that leaves reaches its successor."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from sealcast import Publisher
from sealcast.log import failing
from sealcast.model.protection import protection_of
from sealcast.overlay import moves
from sealcast.overlay.filter_keys import FilterKeyHandover
from sealcast.overlay.routing import Forwarder
from sealcast.pipeline.run import start
from sealcast.protections import stays
from sealcast.trust.handles import BrokerRealm
from tests.cli.shell import sealcast
from tests.clients.pump import pump
from tests.remote.machines import BrokerMachine, Tree, machines, payloads
from tests.remote.world import PATIENCE_S, TOPIC, Served, events, served

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.timeout(900)


def wait_until(happened: Callable[[], bool]) -> None:
    until = time.monotonic() + PATIENCE_S
    while not happened():
        assert time.monotonic() < until
        time.sleep(0.1)


def test_a_standing_run_routes_to_a_broker_that_joins(tmp_path: Path, spark: SparkSession) -> None:
    """There was one broker when it started. Another machine that is away for a while does not end it."""
    with served(tmp_path, "endpoint") as world:
        realm = BrokerRealm(world.realm.paths.root)
        nyse, ann = world.client("nyse"), world.client("ann")
        with start(realm, [TOPIC], spark=spark) as pipeline, Publisher(nyse, TOPIC, "nyse") as publisher:
            with machines(world, "paris") as (paris,):
                world.realm.serve(TOPIC, "paris")
                world.realm.subscribe(TOPIC, "ann", "price < 100", broker="paris")
                publisher.publish(events(1, 200, 2))
                wait_until(lambda: came(paris) == 1)
                paris.stop_gateway()
                publisher.publish(events(3))
                notes = world.realm.paths.topic(TOPIC).root
                wait_until(lambda: [note.step for note in failing.notes(notes)] == ["to-paris"])
                assert pipeline.running and came(paris) == 1
                paris.start_gateway()
                wait_until(lambda: came(paris) == 2)
                wait_until(lambda: not list(failing.notes(notes)))
                pump(paris.realm, TOPIC, broker="paris")
                assert payloads(ann, "ann", world) == [b"at 1", b"at 2", b"at 3"]
            assert pipeline.running


def came(machine: BrokerMachine) -> int:
    """Frames of the first broker that are at another one."""
    with machine.realm.frames(TOPIC, machine.name) as log:
        return log.partition(0).end()


def turn(world: Served, *others: BrokerMachine) -> None:
    """Each broker once: what waits is sealed, what was admitted is forwarded, keys are handed over, moves end."""
    for realm, broker in ((world.realm, "broker"), *((machine.realm, machine.name) for machine in others)):
        pump(realm, TOPIC, broker=broker)  # type: ignore[arg-type]
        with Forwarder(realm, broker) as forwarder:
            forwarder.once()
            assert not forwarder.failures
        FilterKeyHandover(realm, [broker]).once()  # type: ignore[arg-type]
        moves.settle(realm, realm.broker(broker).identity.author)


def test_what_is_on_its_way_to_a_broker_that_leaves_reaches_its_successor(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stays, "LEFT_PATIENCE_S", 1.0)
    with served(tmp_path, "endpoint") as world, machines(world, "paris", "lyon") as (paris, lyon):
        for machine in (paris, lyon):
            world.realm.serve(TOPIC, machine.name)
        world.realm.subscribe(TOPIC, "ann", "price < 100", broker="paris")
        turn(world, paris, lyon)
        nyse, ann = world.client("nyse"), world.client("ann")
        with Publisher(nyse, TOPIC, "nyse") as publisher:
            publisher.publish(events(1))
            turn(world, paris)  # at the one that leaves, sealed
            publisher.publish(events(2))
            turn(world)  # there, and not sealed
            publisher.publish(events(3))
            pump(world.realm, TOPIC)  # admitted, and on its way there
            publisher.publish(events(4))  # not even admitted
            said = sealcast("broker", "leave", "paris", "--realm", world.realm.paths.root, "--json").document
            (moved,) = said["moved"]
            assert (moved["subscriber"], said["moving"], said["stays"]) == ("ann", 1, [])
            publisher.publish(events(5))
            for _ in range(4):
                turn(world, lyon, paris)
            again = sealcast("broker", "leave", "paris", "--realm", world.realm.paths.root, "--json").document
            assert (again["moved"], again["moving"], again["stays"]) == ([], 0, [])
            publisher.publish(events(6))
            for _ in range(2):
                turn(world, lyon)
            before = came(paris)
            assert payloads(ann, "ann", world) == [f"at {price}".encode() for price in range(1, 7)]
            assert came(paris) == before, "nothing more goes there"
            paris.stop_gateway()
            publisher.publish(events(7))
            for _ in range(2):
                turn(world, lyon)
            assert payloads(ann, "ann", world) == [b"at 7"], "nobody needs it any more"
            assert payloads(ann, "ann", world, timeout=0.0) == []
            paris.start_gateway()


def test_a_subscriber_goes_on_elsewhere_when_its_brokers_machine_is_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stays, "LEFT_PATIENCE_S", 1.0)
    monkeypatch.setattr(moves, "GONE_S", 1.0)
    with served(tmp_path, "endpoint") as world, machines(world, "paris", "lyon") as (paris, lyon):
        for machine in (paris, lyon):
            world.realm.serve(TOPIC, machine.name)
        world.realm.subscribe(TOPIC, "ann", "price < 100", broker="paris")
        turn(world, paris, lyon)
        nyse, ann = world.client("nyse"), world.client("ann")
        with Publisher(nyse, TOPIC, "nyse") as publisher:
            publisher.publish(events(1))
            turn(world, paris)
            assert payloads(ann, "ann", world) == [b"at 1"]
            publisher.publish(events(2))
            turn(world, paris)
            paris.stop_gateway()
            home = ("--as", "ann", "--realm", world.realm.paths.root, "--json")
            said = sealcast("subscription", "move", TOPIC, "--to", "lyon", "--abandon", *home)
            assert said.code == 0 and not said.document["moving"], said.err
            publisher.publish(events(3))
            for _ in range(2):
                turn(world, lyon)
            # What waited on the machine that is gone went with it.
            assert payloads(ann, "ann", world) == [b"at 3"]
            assert payloads(ann, "ann", world, timeout=0.0) == []
        paris.start_gateway()


def test_nobody_is_left_with_a_broker_that_nobody_can_follow(tmp_path: Path) -> None:
    with served(tmp_path, "endpoint") as world:
        world.realm.subscribe(TOPIC, "ann", "price < 100")
        told = sealcast("broker", "leave", "broker", "--realm", world.realm.paths.root, "--json")
        assert told.code == 1 and told.document["stays"] == [{"topic": TOPIC, "subscriber": "ann"}]
        assert "no other broker serves" in told.err


def test_a_layered_broker_leaves_and_what_was_on_its_way_arrives(tmp_path: Path) -> None:
    """The root, then lyon, then metz with a reader. Lyon leaves with events in its hands; later ones go past it."""
    layered = protection_of("layered")
    with served(tmp_path, layered, nodes=1) as world, machines(world, "lyon", "metz") as below:
        tree = Tree(world, below, chain=True)
        tree.settle()
        ann, nyse = world.client("ann"), world.client("nyse")
        world.realm.place_subscriber(TOPIC, "ann", "metz")
        with world.side.interests(ann, TOPIC, "ann") as interests:
            interests.add("price < 100")
        with Publisher(nyse, TOPIC, "nyse") as publisher:
            tree.hear({"ann": ann})
            publisher.publish(events(1))
            tree.settle()
            publisher.publish(events(2))
            tree.turn(tree.root)  # handed on to lyon, which has not looked yet
            said = sealcast("broker", "leave", "lyon", "--realm", world.realm.paths.root, "--json").document
            assert said["left_overlays"] == [TOPIC]
            assert world.realm.state().overlay(TOPIC).parents["metz"] == tree.root
            got = list[bytes]()
            # The reader says again what it wants, past lyon.
            until = time.monotonic() + PATIENCE_S
            while "metz" not in tree.senders():
                assert time.monotonic() < until
                got += payloads(ann, "ann", world, timeout=0.0)
                tree.settle()
            publisher.publish(events(3))
            tree.settle()
            assert got + payloads(ann, "ann", world) == [b"at 1", b"at 2", b"at 3"]
