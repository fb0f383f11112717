"""Forwarding, link by link: what goes, from where on, once, through kills; and what the destination refuses."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from sealcast.clients.subscriber import Subscriber
from sealcast.errors import Corrupt, Misuse, NotFound, Rejected
from sealcast.log.embedded import EmbeddedLog
from sealcast.log.forwarded import BrokerTopic, ForwardedLog
from sealcast.overlay import moves
from sealcast.overlay.routing import Forwarder, Link, links
from sealcast.trust.realm.changes import AttachSubscriber, SettleSubscriber
from sealcast.trust.realm.topics import Stay
from tests.overlay.world import TOPIC, World


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    made = World(tmp_path / "realm")
    yield made
    made.close()


# --- the log of what was forwarded --------------------------------------------------------------------


def test_a_forwarded_log_takes_each_frame_once(tmp_path: Path) -> None:
    with ForwardedLog(tmp_path / "0") as log:
        assert log.next_origin() == 0
        assert log.take([(3, b"three"), (7, b"seven")]) == 2
        assert log.take([(3, b"three"), (7, b"seven"), (9, b"nine")]) == 1
        assert [(r.offset, r.data) for r in log.read(0)] == [(0, b"three"), (1, b"seven"), (2, b"nine")]
        assert log.sizes(0, 3) == [5, 5, 4]
        assert [log.origin_of(i) for i in range(3)] == [3, 7, 9] and log.next_origin() == 10
        assert [log.index_of(origin) for origin in (0, 3, 4, 8, 10)] == [0, 0, 1, 2, 3]
        with pytest.raises(Misuse, match="order"):
            log.take([(12, b""), (11, b"")])
        with pytest.raises(Misuse, match="another broker"):
            log.append([b"published here"])
    with EmbeddedLog(tmp_path / "0") as bare:
        bare.append([b"somebody else's"])
    with ForwardedLog(tmp_path / "0", read_only=True) as log, pytest.raises(Corrupt, match="where it came from"):
        list(log.read(3))


def test_partitions_mean_the_same_at_every_broker(tmp_path: Path) -> None:
    with BrokerTopic(tmp_path / "a", 2, 0, 2) as first, BrokerTopic(tmp_path / "b", 2, 1, 2) as second:
        assert (list(first.own), list(second.own), first.partitions) == ([0, 1], [2, 3], 4)
        first.partition(1).append([b"published"])
        second.forwarded(1).take([(0, b"published")])
        assert [r.data for r in second.partition(1).read(0)] == [b"published"]
        with pytest.raises(Misuse):
            first.forwarded(0)
    with BrokerTopic(tmp_path / "a", 2, 0, 3) as grown, BrokerTopic(tmp_path / "a", 2, 0, 1, read_only=True) as late:
        assert grown.partitions == late.partitions == 6


# --- links --------------------------------------------------------------------------------------------


def test_frames_go_where_there_are_subscribers_and_the_topic_is_served(world: World) -> None:
    state = world.realm.state()
    assert links(state, "broker") == links(state, "b1") == {}
    world.subscribe("alice", 0)
    assert list(links(world.realm.state(), "b1")) == [Link(TOPIC, "b1", "broker")]
    world.subscribe("bob", 0, broker="b1")
    world.realm.add_broker("elsewhere")
    assert list(links(world.realm.state(), "broker")) == [Link(TOPIC, "broker", "b1")]
    world.realm.revoke_entity("b1")
    assert links(world.realm.state(), "broker") == links(world.realm.state(), "b1") == {}
    with pytest.raises(Misuse):
        links(world.realm.state(), "alice")


def test_what_was_refused_is_not_forwarded(world: World) -> None:
    world.subscribe("bob", 0, broker="b1")
    world.publish("p0", "broker", [1])
    with world.realm.frames(TOPIC) as log:
        log.partition(0).append([b"noise", b"more noise"])
    world.publish("p0", "broker", [2])
    assert world.run("broker")["rejected_frame"] == 2
    assert world.forward("broker") == 2
    with world.realm.frames(TOPIC, "b1") as log:
        assert [log.forwarded(0).origin_of(i) for i in range(2)] == [0, 3]
    assert "rejected_frame" not in world.run("b1")
    world.rest()
    world.judge()


def test_a_link_begins_with_its_first_subscriber(world: World) -> None:
    world.subscribe("alice", 0)
    world.publish("p0", "broker", [1, 2])
    world.rest()
    world.subscribe("bob", 0, broker="b1")
    world.publish("p0", "broker", [3])
    world.rest()
    with world.realm.frames(TOPIC, "b1") as log:
        assert (log.forwarded(0).end(), log.forwarded(0).origin_of(0)) == (1, 1)
    world.judge()


def test_what_was_published_while_nobody_was_there_is_not_sent_later(world: World) -> None:
    world.subscribe("alice", 0)
    world.subscribe("bob", 0, broker="b1")
    world.publish("p0", "broker", [1])
    world.rest()
    world.realm.unsubscribe("bob-1")
    world.publish("p0", "broker", [2])
    world.due["bob"].discard(1)
    world.rest()
    world.subscribe("carol", 0, broker="b1")
    world.realm.subscribe(TOPIC, "bob", "price > 0")
    world.publish("p0", "broker", [3])
    world.rest()
    world.judge()
    with world.realm.frames(TOPIC, "b1") as log:
        assert [log.forwarded(0).origin_of(i) for i in range(2)] == [0, 2]


def test_a_frame_that_reaches_two_brokers_is_delivered_once_by_each(world: World) -> None:
    world.subscribe("alice", 0)
    world.subscribe("bob", 0, broker="b1")
    world.publish("p0", "broker", [1, 2, 3])
    world.inject("broker", "b1")
    world.rest()
    world.judge()


def test_two_forwarders_do_no_harm(world: World) -> None:
    world.subscribe("bob", 0, broker="b1")
    with Forwarder(world.realm, "broker") as one, Forwarder(world.realm, "broker") as other:
        for price in range(5):
            world.publish("p0", "broker", [price + 1])
            world.run("broker")
            assert sum(one.once().values()) + sum(other.once().values()) == 1
    world.rest()
    world.judge()


def test_a_broker_without_the_key_serves_nobody(world: World) -> None:
    world.realm.add_broker("keyless")
    world.realm.enrol("carol")
    with pytest.raises(Rejected, match="does not serve"):
        world.realm.subscribe(TOPIC, "carol", "price > 0", broker="keyless")
    with pytest.raises(NotFound, match="does not serve"):
        world.publish("p0", "keyless", [1])


FORWARD = """
import sys
from sealcast.overlay import routing
from sealcast.trust.deployment import Realm
routing.FRAMES_PER_TAKE = 1
with routing.Forwarder(Realm(sys.argv[1]), "broker") as forwarder:
    print("ready", flush=True)
    forwarder.once()
"""


def test_a_killed_forwarder_goes_on_where_the_destination_ends(world: World) -> None:
    world.subscribe("bob", 0, broker="b1")
    for price in range(150):
        world.publish("p0", "broker", [price + 1])
    world.run("broker")
    chance, kills = random.Random(7), 0
    for _ in range(4):
        child = subprocess.Popen(
            [sys.executable, "-c", FORWARD, str(world.realm.paths.root)], stdout=subprocess.PIPE, text=True
        )
        assert child.stdout is not None and child.stdout.readline() == "ready\n"
        time.sleep(chance.uniform(0, 0.05))
        child.send_signal(signal.SIGKILL)
        kills += child.wait() == -signal.SIGKILL
        child.stdout.close()
    assert kills
    world.forward("broker")
    with world.realm.frames(TOPIC, "b1") as log:
        assert [log.forwarded(0).origin_of(i) for i in range(log.forwarded(0).end())] == list(range(150))
    world.rest()
    world.judge()


# --- moves --------------------------------------------------------------------------------------------


def test_a_move_ends_when_the_broker_that_is_left_has_caught_up(world: World) -> None:
    world.subscribe("alice", 0)
    world.subscribe("bob", 0, broker="b1")
    world.publish("p1", "b1", [1])
    world.run("b1")  # b1 has taken in what alice's own broker has not seen
    world.move("alice", "b1")
    world.publish("p1", "b1", [2])
    world.run("b1")
    assert world.settle() == [], "event 1 is due from the broker that she leaves"
    world.forward("b1")
    assert world.settle() == []
    world.run("broker")
    assert world.settle() == ["alice"]
    stays = world.realm.state().stays_of(TOPIC, "alice")
    assert stays[0].until == 1 and stays[1].overlaps == (0,)
    world.rest()
    world.judge()


def test_the_rules_of_moving(world: World) -> None:
    world.subscribe("alice", 0)
    with pytest.raises(Misuse, match="no subscription"):
        world.move("p0", "b1")
    with pytest.raises(Misuse, match="already"):
        world.move("alice", "broker")
    world.move("alice", "b1")
    with pytest.raises(Misuse, match="on its way"):
        world.move("alice", "broker")
    registry, apply = world.realm.registry, world.realm.registry.apply_many
    for bad in ((-1, (0,)), (0, ()), (0, (1,)), (0, (0, 0))):
        with pytest.raises(Misuse):
            apply([SettleSubscriber(TOPIC, "alice", *bad)])
    apply([SettleSubscriber(TOPIC, "alice", 0, (0,))])
    with pytest.raises(Misuse, match="not moving"):
        apply([SettleSubscriber(TOPIC, "alice", 0, (0,))])
    with pytest.raises(Misuse):
        apply([AttachSubscriber(TOPIC, "alice", "p0")])
    home = registry.state().stays_of(TOPIC, "alice")[-1]
    assert isinstance(home, Stay) and (home.broker, home.overlaps) == ("b1", (0,))


def test_a_broker_that_is_gone_for_good_can_be_left(world: World) -> None:
    world.subscribe("alice", 0)
    world.publish("p0", "broker", [1])
    world.rest()
    world.publish("p0", "broker", [2])  # never handled: its broker is gone
    world.move("alice", "b1")
    world.publish("p1", "b1", [3])
    world.run("b1")
    moves.settle(world.realm, abandon=[(TOPIC, "alice")])
    world.read("alice")
    assert world.got["alice"] == [0, 2]


def test_a_mailbox_of_two_brokers_has_one_order_and_one_count(world: World) -> None:
    world.subscribe("alice", 0)
    world.publish("p0", "broker", [1, 2])
    world.rest()
    world.restart("alice")
    Subscriber(world.realm, TOPIC, "alice", broker="b1").close()
    world.publish("p0", "broker", [3])
    world.rest()
    world.publish("p0", "broker", [4])
    world.rest()
    world.judge()
    with Subscriber(world.realm, TOPIC, "alice", from_=0) as all_again:
        assert [int(e.payload) for e in all_again] == [0, 1, 2, 3]
    with Subscriber(world.realm, TOPIC, "alice", from_=3) as last:
        assert [int(e.payload) for e in last] == [3] and last.lag() == 0
