"""Peers of an `attribute` topic on machines of their own: registry, keys and addresses come through the gateway, events
go from peer to peer."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from sealcast import Publisher, Subscriber
from sealcast.protections.attribute.peering.host import PeerHost
from sealcast.protections.attribute.peering.hosting import with_heartbeat
from sealcast.trust.handles import EntityRealm
from tests.remote.world import PATIENCE_S, TOPIC, Served, events, served


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with served(tmp_path_factory.mktemp("peers"), "attribute") as made:
        yield made


@contextmanager
def hosting(home: Path) -> Iterator[None]:
    """What `sealcast peer run` does, for a home."""
    stop, (limits, settings) = threading.Event(), with_heartbeat(0.5)
    host = PeerHost(EntityRealm(home), limits=limits, settings=settings)
    thread = threading.Thread(target=lambda: asyncio.run(_run(host, stop)), daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join(PATIENCE_S)
        assert not thread.is_alive()


async def _run(host: PeerHost, stop: threading.Event) -> None:
    await host.run(stop.is_set)


def test_peers_that_joined_through_a_gateway_talk_to_each_other(world: Served) -> None:
    publishing, reading = world.home("nyse"), world.home("ann")
    with world.side.interests(EntityRealm(reading), TOPIC, "ann") as interests:
        interests.add("price < 100")
    with hosting(reading), hosting(publishing):
        with Publisher(EntityRealm(publishing), TOPIC, "nyse") as publisher:
            publisher.publish(events(5, 200, 7))
        got, until = list[bytes](), time.monotonic() + PATIENCE_S
        with Subscriber(EntityRealm(reading), TOPIC, "ann") as subscriber:
            while len(got) < 2 and time.monotonic() < until:
                got += [event.payload for event in subscriber.poll(timeout=1.0)]
            subscriber.ack()
    assert got == [b"at 5", b"at 7"]
    # The events never were where the gateway is.
    assert not list(world.realm.paths.root.rglob("frames"))
