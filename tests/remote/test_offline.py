"""A gateway that cannot be reached, comes back, or loses its answers: nothing is lost, nothing counts twice, and a
publisher's events keep their order."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sealcast import Publisher, Subscriber
from sealcast.errors import Busy, Queued, Unavailable
from sealcast.transports import frames, https
from sealcast.transports.offline import FrameQueue
from sealcast.trust.handles import EntityRealm
from tests.remote.lying import Liar, Request, the_truth
from tests.remote.world import TOPIC, Served, events, served


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Served, Liar]]:
    liar = Liar()
    with pytest.MonkeyPatch.context() as patch, liar.in_place():
        patch.setattr(https, "MOST_BACKOFF_S", 0.05)
        patch.setattr(frames.RemoteLaneLog.__init__, "__kwdefaults__", {"patience_s": 0.2})
        patch.setattr(https.Connection.__init__, "__kwdefaults__", {"deadline_s": 1.0})
        with served(tmp_path_factory.mktemp("offline"), "endpoint") as world:
            with world.side.interests(world.client("ann"), TOPIC, "ann") as interests:
                interests.add("price < 250")
            yield world, liar


@pytest.fixture
def world(stage: tuple[Served, Liar]) -> Iterator[Served]:
    yield stage[0]
    stage[1].lie = the_truth


def delivered(world: Served) -> list[bytes]:
    """What a reader gets that begins at the very beginning."""
    world.pump()
    with Subscriber(world.client("ann"), TOPIC, "ann", from_=0) as subscriber:
        return [event.payload for event in subscriber]


def test_events_wait_on_disk_in_order_and_are_sent_once(world: Served) -> None:
    home = world.client("nyse")
    with Publisher(home, TOPIC, "nyse") as publisher:
        assert len(publisher.publish(events(1, 2))) == 2
        world.stop_gateway()
        assert list(publisher.publish(events(3))) == []
        assert publisher.publish_admissible(events(4, 5)).queued == 2
        with pytest.raises(Queued):
            publisher.publish_one(events(6)[0])
        assert publisher.flush() == 3
    # Another process of the same home goes on where this one stopped.
    world.start_gateway()
    with Publisher(EntityRealm(home.paths.root), TOPIC, "nyse") as publisher:
        assert len(publisher.publish(events(7))) == 1
        assert publisher.flush() == 0
    assert delivered(world) == [f"at {price}".encode() for price in range(1, 8)]


def test_a_frame_whose_answer_was_lost_counts_once(world: Served, stage: tuple[Served, Liar]) -> None:
    before, lost = delivered(world), list[str]()

    async def loses_answers(request: Request) -> Any:
        if request.method == "POST" and request.last == "frames" and len(lost) < 2:
            await request.honest()
            lost.append(request.path)
            return 503
        return None

    stage[1].lie = loses_answers
    with Publisher(world.client("nyse"), TOPIC, "nyse") as publisher:
        (position,) = publisher.publish(events(8))
        assert len(lost) == 2
        (following,) = publisher.publish(events(9))
    assert following.offset == position.offset + 1
    assert delivered(world) == [*before, b"at 8", b"at 9"]


def test_a_frame_that_is_refused_takes_no_other_with_it(world: Served, stage: tuple[Served, Liar]) -> None:
    before, home = delivered(world), world.client("nyse")
    with Publisher(home, TOPIC, "nyse") as publisher:
        world.stop_gateway()
        for price in (10, 11, 12):
            publisher.publish(events(price))
        world.start_gateway()
        refused = list[bytes]()

        async def refuses_the_second(request: Request) -> Any:
            from sealcast.wire import cbor

            if request.method == "POST" and request.last == "frames":
                given = cbor.decode(request.body)["frames"]
                if not refused:
                    refused.append(given[1])
                return 422 if refused[0] in given else None
            return None

        stage[1].lie = refuses_the_second
        from sealcast.transports.problems import GatewayRefused

        with pytest.raises(GatewayRefused):
            publisher.flush()
        assert publisher.flush() == 0
    assert delivered(world) == [*before, b"at 10", b"at 12"]
    assert list((home.paths.topic(TOPIC).root / "lanes").rglob("refused"))


def test_the_queue_is_bounded_by_bytes_and_durable(tmp_path: Path) -> None:
    with FrameQueue(tmp_path, max_bytes=100) as queue:
        queue.put([b"a" * 40, b"b" * 40])
        with pytest.raises(Busy, match="nothing was published"):
            queue.put([b"c" * 40])
        assert len(queue) == 2
    with FrameQueue(tmp_path, max_bytes=100) as again:
        assert again.next(10, 1 << 20) == [b"a" * 40, b"b" * 40]
        again.arrived(1)
        again.put([b"d" * 40])
        assert again.next(10, 1 << 20) == [b"b" * 40, b"d" * 40]
        again.arrived(2)
        assert len(again) == 0
        again.put([b"e"])
        assert again.next(10, 1 << 20) == [b"e"]


def test_without_a_gateway_a_client_goes_by_what_it_has_verified(world: Served) -> None:
    home = world.home("ann")
    known = EntityRealm(home).state().version
    world.stop_gateway()
    try:
        assert EntityRealm(home).state().version == known
        with pytest.raises(Unavailable):
            EntityRealm(world.home("bob")).registry.state()
    finally:
        world.start_gateway()
