"""Clients behind a gateway notice nothing of a carrier: same bytes, same streams, and a topic that moves under them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from sealcast import Publisher, Subscriber
from sealcast.bench.carrier_servers import NatsServer
from sealcast.errors import Unavailable
from tests.remote.test_following import deliver, polled, reader
from tests.remote.world import TOPIC, Served, events, served


@pytest.fixture
def world(tmp_path: Path) -> Iterator[Served]:
    with served(tmp_path, "endpoint") as made:
        yield made


@pytest.fixture
def own_nats(tmp_path: Path) -> Iterator[NatsServer]:
    with NatsServer(tmp_path / "nats") as server:
        yield server.start()


def test_a_reader_follows_a_topic_that_moves_to_a_carrier(world: Served, own_nats: NatsServer) -> None:
    with reader(world) as subscriber:
        deliver(world, 1)
        assert polled(subscriber) == [b"at 1"]
        assert subscriber.poll(timeout=0.5) == [], "it waits now, and follows"
        world.realm.add_carrier("away", own_nats.address)
        world.realm.move_topic(TOPIC, "away")
        deliver(world, 2)
        assert polled(subscriber) == [b"at 2"]
        assert subscriber.poll(timeout=0.5) == []
        # The client publishes through the gateway, too.
        with Publisher(world.client("nyse"), TOPIC, "nyse") as publisher:
            publisher.publish(events(3))
        world.pump()
        assert polled(subscriber) == [b"at 3"]
        subscriber.ack()
    with Subscriber(world.client("ann"), TOPIC, "ann", from_=0) as again:
        assert [event.payload for event in again] == [b"at 1", b"at 2", b"at 3"]


def test_a_reader_and_a_publisher_follow_a_topic_that_comes_back(world: Served, own_nats: NatsServer) -> None:
    world.realm.add_carrier("away", own_nats.address)
    world.realm.move_topic(TOPIC, "away")
    with reader(world) as subscriber, Publisher(world.client("nyse"), TOPIC, "nyse") as publisher:
        publisher.publish(events(1))
        world.pump()
        assert polled(subscriber) == [b"at 1"]
        assert subscriber.poll(timeout=0.5) == [], "it waits now, and follows"
        world.realm.move_topic(TOPIC, "embedded")
        publisher.publish(events(2))
        world.pump()
        assert polled(subscriber) == [b"at 2"]
        subscriber.ack()
    with Subscriber(world.client("ann"), TOPIC, "ann", from_=0) as again:
        assert [event.payload for event in again] == [b"at 1", b"at 2"]


@pytest.mark.soak
def test_a_gateway_serves_on_while_a_carrier_is_away(world: Served, own_nats: NatsServer) -> None:
    world.realm.add_carrier("away", own_nats.address)
    world.realm.move_topic(TOPIC, "away")
    with reader(world) as subscriber:
        deliver(world, 1)
        assert polled(subscriber) == [b"at 1"]
        own_nats.kill()
        state = world.client("ann").state()
        assert state.topic(TOPIC).name == TOPIC, "whatever is elsewhere is served as before"
        with suppress(Unavailable):
            assert subscriber.poll(timeout=0.2) == []
        own_nats.start()
        deliver(world, 2)
        assert polled(subscriber) == [b"at 2"]
