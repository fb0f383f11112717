"""Groups whose members are on different machines: the gateway keeps their state, and can invent nothing."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from sealcast import Publisher, Subscriber
from sealcast.errors import Misuse
from sealcast.log import groups
from sealcast.log.group_file import GroupFiles
from sealcast.log.groups import ShareLost
from sealcast.model.protection import PROTECTIONS
from sealcast.transports.problems import GatewayRefused
from sealcast.trust.handles import EntityRealm
from tests.clients.test_groups import drained
from tests.remote.world import TOPIC, Served, events, served

#: By realm and entity, its first home. On layered topics it alone has the entity's agreement keys and filters.
HOMES: dict[tuple[int, str], Path] = {}
WITH_BROKERS = [name for name, kind in PROTECTIONS.items() if not kind().peers]


@pytest.fixture(scope="module", params=WITH_BROKERS)
def world(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with served(tmp_path_factory.mktemp("remote"), request.param) as made:
        for name in ("nyse", "xetra"):
            Publisher(home(made, name), TOPIC, name).close()  # has a place in the tree now, where brokers are one
        with made.side.interests(home(made, "ann"), TOPIC, "ann") as interests:
            interests.add("price < 200")
        with Subscriber(home(made, "ann"), TOPIC, "ann", peek=True) as early:
            early.poll()  # tells the broker what it wants, where brokers cannot read
        made.pump()
        yield made


def home(world: Served, name: str) -> EntityRealm:
    key = (world.port, name)
    if key not in HOMES:
        HOMES[key] = world.home(name)
    return EntityRealm(HOMES[key])


def publish(world: Served, *prices: int) -> None:
    for name in ("nyse", "xetra"):
        with Publisher(home(world, name), TOPIC, name) as publisher:
            publisher.publish(events(*prices))
    world.pump()


def member(world: Served, group: str) -> Subscriber:
    """On a machine of its own, or in the one home that has the filters and their keys."""
    at = home(world, "ann") if world.protection.overlay else world.client("ann")
    return Subscriber(at, TOPIC, "ann", group=group)


def acknowledged(world: Served, group: str) -> list[bytes]:
    with GroupFiles(world.realm.paths.topic(TOPIC).groups).of("ann", group) as kept:
        return [record.events for record in kept.acks() if record.events != b"[]"]


def test_members_on_two_machines_share_the_events(world: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(groups, "LEASE_US", 1_500_000)
    with member(world, "workers") as one:
        one.poll(timeout=0.2)
        with member(world, "workers") as other:
            for each in (one, other, one, other):
                each.poll(timeout=0.3)
            publish(world, *range(6))
            got = drained([one, other])
            assert sum(map(len, got)) == 12
            assert [e.payload for e in (*got[0], *got[1]) if e.publisher == "nyse"] == [
                f"at {n}".encode() for n in range(6)
            ]
            # One machine is gone, with events that it was handed: its lease ends, and the other gets them.
            publish(world, 7, 8)
            held = one.poll(timeout=1.0)
            deadline = time.monotonic() + 30
            left = list(other.poll(timeout=0.5))
            while len(left) < 4 and time.monotonic() < deadline:
                left += other.poll(timeout=0.5)
            assert len(left) == 4
            other.ack()
            if held:
                with pytest.raises(ShareLost):
                    one.ack()
    assert acknowledged(world, "workers")


def test_nobody_takes_part_in_anothers_group(world: Served) -> None:
    with member(world, "own") as one:
        one.poll()
    home = world.client("bob")
    with pytest.raises((GatewayRefused, Misuse)):
        group = home.site.of("bob").group(TOPIC, "bob", "own")
        first = next(iter(GroupFiles(world.realm.paths.topic(TOPIC).groups).of("ann", "own").acks()))
        group.begin(
            groups.SignedAck(first.statement, first.signature, first.events, dict.fromkeys(range(64), b"[]"), {})
        )
