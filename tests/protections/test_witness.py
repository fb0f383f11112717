"""What witnesses say of brokers that did what they should: after late events, over several brokers, roots and moves."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from sealcast.broker.gate import Gate
from sealcast.model.stages import Ruled
from sealcast.protections.layered.admit import admit
from sealcast.trust.deployment import Realm
from sealcast.wire.hops import HopPiece
from tests.cli.shell import sealcast
from tests.clients import layered_pump
from tests.copies import copy_realm
from tests.overlay.world import World
from tests.pipeline import layered_world
from tests.pipeline.layered_world import LayeredWorld

ROOT, LEFT, RIGHT = (f"{layered_world.TOPIC}-node-{n}" for n in (1, 2, 3))


def why(root: Path, event: str, who: str, *more: str) -> dict[str, Any]:
    result = sealcast("why", event, who, *more, "--realm", root, "--json")
    assert result.code == 0, result.err
    return dict(result.document)


# --- late events --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("what", ["move", "rotation"])
def test_check_does_not_accuse_brokers_of_refusing_late_events(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    """Events of a generation or epoch that has ended are refused and counted; doing it again refuses them again."""
    world = LayeredWorld(tmp_path / "realm", {"ann": ["price < 80"], "eve": ["price >= 64"]})
    world.publish("p0", 10)
    if what == "move":
        world.realm.add_broker("deep")
        world.realm.place_node(layered_world.TOPIC, "deep", under=LEFT)
        world.realm.place_node(layered_world.TOPIC, RIGHT, under=LEFT)
    else:
        world.realm.rotate(layered_world.TOPIC)
    limits, now = world.realm.state().topic(layered_world.TOPIC).parameters, time.time_ns
    ended = limits.grace_s + limits.stale_after_s + 60
    monkeypatch.setattr(time, "time_ns", lambda: now() + ended * 1_000_000_000)
    world.admit()
    world.drain()
    last = world.names[0].open().ledger.last()
    assert last is not None and last.entry.counts["rejected_epoch"] == 10
    found = sealcast("check", "--realm", world.realm.paths.root, "--json").document
    assert found["ok"], found["problems"]
    assert found["topics"][layered_world.TOPIC]["brokers_routed_again"] == len(world.names)


# --- several brokers ----------------------------------------------------------------------------------------------


def test_why_follows_an_event_to_the_broker_that_serves_its_subscriber(tmp_path: Path) -> None:
    world = World(tmp_path / "realm")
    world.subscribe("alice", 0)
    world.subscribe("bob", 10, broker="b1")
    world.publish("p0", "broker", [5, 15])
    world.publish("p1", "b1", [20, 3])
    world.rest()
    world.judge()
    root = world.realm.paths.root
    asked = {
        (event, who): why(root, f"quotes/{event}", who)["verdict"]
        for event in ("0/0/0", "0/0/1", "1/0/0", "1/0/1")
        for who in ("alice", "bob")
    }
    assert asked == {
        ("0/0/0", "alice"): "delivered",
        ("0/0/1", "alice"): "delivered",
        ("1/0/0", "alice"): "delivered",
        ("1/0/1", "alice"): "delivered",
        ("0/0/0", "bob"): "not-matched",
        ("0/0/1", "bob"): "delivered",
        ("1/0/0", "bob"): "delivered",
        ("1/0/1", "bob"): "not-matched",
    }
    world.close()


def test_why_says_what_keeps_an_event_from_the_broker_of_its_subscriber(tmp_path: Path) -> None:
    world = World(tmp_path / "realm")
    root = world.realm.paths.root
    world.subscribe("alice", 0)
    world.publish("p0", "broker", [5])
    world.run("broker")
    world.forward("broker")
    world.subscribe("bob", 0, broker="b1")
    early = why(root, "quotes/0/0/0", "bob")
    assert (early["verdict"], early["batch"]["broker"]) == ("not-subscribed", "broker")
    assert "had no subscriber when broker took the event" in early["because"]
    world.publish("p0", "broker", [7])
    assert why(root, "quotes/0/1/0", "bob")["verdict"] == "waiting"
    world.run("broker")
    waits = why(root, "quotes/0/1/0", "bob")
    assert (waits["verdict"], waits["because"]) == ("waiting", "broker broker has not forwarded it to b1 yet")
    world.forward("broker")
    assert why(root, "quotes/0/1/0", "bob")["because"] == "it is in the log, and no batch has taken it yet"
    world.run("b1")
    got = why(root, "quotes/0/1/0", "bob")
    assert (got["verdict"], got["admitted_at"], got["batch"]["broker"]) == ("delivered", "broker", "b1")
    assert [(hop["broker"], hop["handed_on_to"]) for hop in got["hops"]] == [("broker", "b1"), ("b1", "bob")]
    told = sealcast("why", "quotes/0/1/0", "bob", "--realm", root).out
    assert "handed it on to b1" in told and "handed it on to bob" in told
    # In the log of b1 it is the first of its partition: `sub` prints that place.
    (note,) = why(root, "quotes/0/0/0", "bob")["notes"]
    assert "published as 0/1/0" in note and not got["notes"]
    world.close()


def test_why_knows_where_a_subscriber_was_before_it_moved(tmp_path: Path) -> None:
    world = World(tmp_path / "realm")
    world.subscribe("alice", 0)
    world.publish("p0", "broker", [5])
    world.rest()
    world.move("alice", "b1")
    world.rest()
    world.publish("p0", "broker", [7])
    world.rest()
    world.judge()
    root = world.realm.paths.root
    before, after = (why(root, f"quotes/0/{offset}/0", "alice") for offset in (0, 1))
    assert [(a["verdict"], a["batch"]["broker"]) for a in (before, after)] == [("delivered", n) for n in world.brokers]
    world.close()


def test_check_reports_on_all_brokers_of_a_topic_together(tmp_path: Path) -> None:
    world = World(tmp_path / "realm")
    world.subscribe("alice", 0)
    world.subscribe("bob", 10, broker="b1")
    world.publish("p0", "broker", [5, 15])
    world.rest()
    root = world.realm.paths.root
    found = sealcast("check", "--realm", root, "--json").document
    assert (found["ok"], found["deliveries"], found["topics"]["quotes"]["not_judged"]) == (True, 3, [])
    (piece, *_) = world.realm.paths.topic("quotes", "b1").pieces.glob("*.piece")
    piece.unlink()
    assert all("'b1'" in p["message"] for p in sealcast("check", "--realm", root, "--json").document["problems"])
    world.realm.paths.broker_key_of("b1").rename(tmp_path / "b1.key")
    less = sealcast("check", "--realm", root, "--json").document
    assert (less["ok"], less["deliveries"]) == (True, 2)
    assert "the keys of broker 'b1' are not here" in less["topics"]["quotes"]["not_judged"][0]
    world.close()


# --- brokers that cannot read -------------------------------------------------------------------------------------


def test_a_root_that_admits_a_replayed_frame_is_found_by_admitting_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = LayeredWorld(tmp_path / "realm", {"ann": ["price >= 0"]})
    root, topic = world.realm.paths.root, layered_world.TOPIC
    world.publish("p0", 3)
    with world.realm.frames(topic, ROOT) as log:
        frames = log.partition(log.own[0])
        frames.append([record.data for record in frames.read(0)])
    honest = tmp_path / "honest"
    copy_realm(root, honest)
    assert layered_pump.pump(Realm(honest), topic)["admitted"] == 3
    assert sealcast("check", "--realm", honest).code == 0

    def forgetful(ruled: Ruled, gate: Gate, name: str) -> HopPiece:
        return admit(replace(ruled, codes=ruled.codes * 0), gate, name)

    monkeypatch.setattr(layered_pump, "admit", forgetful)
    assert layered_pump.pump(world.realm, topic)["admitted"] == 6
    found = sealcast("check", "--realm", root, "--json").document
    assert any("admitted again" in p["message"] and ROOT in p["message"] for p in found["problems"])
    assert found["duplicated"] == 3, "the subscriber has them twice, whoever let them in"
    world.realm.paths.broker_key_of(ROOT).rename(tmp_path / "root.key")
    less = sealcast("check", "--realm", root, "--json").document
    assert {p["kind"] for p in less["problems"]} == {"duplicated"} and less["topics"][topic][
        "brokers_routed_again"
    ] == 2


def test_why_of_a_tree_with_two_roots_and_of_one_that_moved(tmp_path: Path) -> None:
    world = LayeredWorld(tmp_path / "realm", {})
    realm, topic = world.realm, layered_world.TOPIC
    for name, under in (("r2", None), ("n2", "r2")):
        realm.add_broker(name)
        realm.place_node(topic, name, under=under)
    realm.enrol("ann")
    realm.place_subscriber(topic, "ann", "n2")
    world.subscribe("ann", "price >= 0")
    world.publish("p0", 1)
    world.admit()
    world.drain()
    named = realm.state().brokers().index(ROOT)
    first = why(realm.paths.root, f"{topic}/{named}/0/0", "ann")
    assert (first["verdict"], first["admitted_at"]) == ("delivered", ROOT), first
    assert [hop["broker"] for hop in first["hops"]] == ["r2", "n2"] and first["subscriptions"][0]["result"] is True
    realm.place_subscriber(topic, "ann", LEFT)
    assert why(realm.paths.root, f"{topic}/{named}/0/0", "ann")["hops"] == first["hops"], "it came to the old place"
    (got,) = sealcast("audit", "--received", "--realm", realm.paths.root, "--json").document["received"]
    assert (got["entity"], got["broker"], got["deliveries"]) == ("ann", "n2", 1)
