"""Readers that wait follow a stream: what comes needs no question, and a stream that lies or ends harms nobody."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sealcast import Publisher, Subscriber
from sealcast.errors import Corrupt, FrameRejected, SealcastError
from sealcast.log.pieces import Pieces
from sealcast.transports import following
from sealcast.transports.following import ItemBuffer
from sealcast.transports.https import Connection
from sealcast.wire import cbor
from tests.remote.lying import Liar
from tests.remote.world import TOPIC, Served, events, served

PATIENCE_S = 120.0


@pytest.fixture
def world(tmp_path: Path) -> Iterator[Served]:
    with served(tmp_path, "endpoint") as made:
        yield made


def reader(world: Served) -> Subscriber:
    client = world.client("ann")
    with world.side.interests(client, TOPIC, "ann") as interests:
        interests.add("price < 100")
    return Subscriber(client, TOPIC, "ann")


def deliver(world: Served, *prices: int) -> None:
    with Publisher(world.realm, TOPIC, "nyse") as publisher:
        publisher.publish(events(*prices))
    world.pump()


def polled(subscriber: Subscriber) -> list[bytes]:
    """The next events, whenever they come."""
    for _ in range(int(PATIENCE_S)):
        if found := subscriber.poll(timeout=2.0):
            return [event.payload for event in found]
    raise AssertionError("nothing came")


def test_what_comes_by_the_stream_is_not_asked_for(world: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    with reader(world) as subscriber:
        deliver(world, 1)
        assert polled(subscriber) == [b"at 1"]
        assert subscriber.poll(timeout=1.0) == [], "it waits now, and follows"
        asked: list[str] = []
        ask, get = Connection.get_bytes, Connection.get
        monkeypatch.setattr(
            Connection, "get_bytes", lambda self, path, most: asked.append(path) or ask(self, path, most)
        )

        def counted(self: Connection, path: str, *rest: Any, **more: Any) -> Any:
            asked.append(path)
            return get(self, path, *rest, **more)

        monkeypatch.setattr(Connection, "get", counted)
        for price in (2, 3, 4):
            deliver(world, price)
            assert polled(subscriber) == [f"at {price}".encode()]
        assert not [path for path in asked if "/pieces/" in path or "/ledger" in path or "/reseals" in path]
        subscriber.ack()
    ended = [thread for thread in threading.enumerate() if thread.name == "sealcast follower"]
    for thread in ended:
        thread.join(PATIENCE_S)
        assert not thread.is_alive(), "closing a subscriber ends its stream"


def test_a_gateway_that_restarts_is_followed_again(world: Served) -> None:
    with reader(world) as subscriber:
        deliver(world, 1)
        assert polled(subscriber) == [b"at 1"]
        assert subscriber.poll(timeout=1.0) == []
        world.stop_gateway()
        deliver(world, 2)
        world.start_gateway()
        assert polled(subscriber) == [b"at 2"]
        deliver(world, 3)
        assert polled(subscriber) == [b"at 3"]


def test_streams_that_lie(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sealcast.transports.journals._QUESTIONS", 1)
    liar = Liar()
    with liar.in_place(), served(tmp_path, "endpoint") as world, reader(world) as subscriber:
        deliver(world, 1)
        assert polled(subscriber) == [b"at 1"]
        # Another number, something that is no item, and nothing at all: it is given up, and asked instead.
        for price, strange in ((2, [["record", 7, 0, b""]]), (3, [["what", 1]]), (4, [])):
            liar.stream = [cbor.encode(item) for item in strange]
            assert subscriber.poll(timeout=1.0) == []
            deliver(world, price)
            assert polled(subscriber) == [f"at {price}".encode()]
        # An earlier record in the place of the next: it does not follow the last one.
        record = next(iter(_records(world)))
        end = len(list(_records(world)))
        liar.stream, liar.holds = [cbor.encode(["record", end, record.time_us, record.data])], True
        with pytest.raises(SealcastError):
            for _ in range(10):
                subscriber.poll(timeout=1.0)


def _records(world: Served) -> Iterator[Any]:
    from sealcast.log.embedded import EmbeddedLog

    with EmbeddedLog(world.realm.paths.topic(TOPIC).ledger, read_only=True) as log:
        yield from log.read(0)


def test_an_altered_piece_is_found_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # The first poll may have waited, and found that there are no streams yet: the next wait follows all the same.
    monkeypatch.setattr("sealcast.transports.journals._QUESTIONS", 0)
    liar = Liar()
    with liar.in_place(), served(tmp_path, "endpoint") as world, reader(world) as subscriber:
        deliver(world, 1)
        assert polled(subscriber) == [b"at 1"]
        deliver(world, 2)
        last = list(_records(world))[-1]
        (name,) = {path.name for path in world.realm.paths.topic(TOPIC).pieces.iterdir()} - {
            ref.name for record in list(_records(world))[:-1] for ref in _refs(record.data)
        }
        altered = bytearray(Pieces(world.realm.paths.topic(TOPIC).pieces).bytes_of(name))
        altered[-1] ^= 1
        liar.holds = True
        liar.stream = [
            cbor.encode(["piece", name, bytes(altered)]) + cbor.encode(["record", last.offset, last.time_us, last.data])
        ]
        with pytest.raises(Corrupt):
            _wait_then_poll(subscriber)


def _wait_then_poll(subscriber: Subscriber) -> None:
    """Waits where the stream speaks first, before anything is asked."""
    mail = subscriber._inbox.mail
    mail.wait(5.0)
    for _ in range(10):
        if subscriber.poll(timeout=1.0):
            return


def _refs(data: bytes) -> Any:
    from sealcast.gateway.streams import _refs as refs

    return refs(data)


@pytest.mark.parametrize("size", [1, 3, 1_000])
def test_items_are_found_wherever_they_are_cut(size: int) -> None:
    items = [["piece", "a" * 30, bytes(range(256)) * 3], ["record", 70_000, 1, b""], ["beat", 5]]
    data = b"".join(map(cbor.encode, items))
    held, found = ItemBuffer(), []
    for at in range(0, len(data), size):
        found += held.feed(data[at : at + size])
    assert found == items


@pytest.mark.parametrize(
    "data", [b"\x01", b"\x99\x00\x01", b"\x81\x81\x01", b"\x81\xf6", b"\x81\x5b" + b"\xff" * 8, b"\x81\x18\x01"]
)
def test_what_is_no_item_is_refused(data: bytes) -> None:
    with pytest.raises(FrameRejected):
        ItemBuffer().feed(data)
    assert following.SILENCE_S > 15
