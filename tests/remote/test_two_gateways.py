"""Two gateways behind one address: one of them goes, and clients go on with the other one."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path

import pytest

from sealcast import Publisher, Subscriber
from sealcast.gateway.running import GatewayService
from sealcast.trust.handles import EntityRealm, GatewayRealm
from tests.remote.world import PATIENCE_S, TOPIC, Served, events, served

#: How long a client may be without an answer: its next attempt finds the other gateway.
TAKEOVER_S = 5.0


class Balancer:
    """Forwards TCP to the first of several ports that answers, and reads nothing of it."""

    def __init__(self, *ports: int) -> None:
        self._ports, self.port, self._ready = ports, 0, threading.Event()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()
        assert self._ready.wait(PATIENCE_S)

    def _run(self) -> None:
        server = self._loop.run_until_complete(asyncio.start_server(self._serve, "127.0.0.1", 0))
        self.port = server.sockets[0].getsockname()[1]
        self._ready.set()
        self._loop.run_forever()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for port in self._ports:
            with suppress(OSError):
                onward, back = await asyncio.open_connection("127.0.0.1", port)
                await asyncio.gather(_pass(reader, back), _pass(onward, writer))
                return
        writer.close()

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(PATIENCE_S)


async def _pass(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        while data := await reader.read(1 << 16):
            writer.write(data)
            await writer.drain()
    writer.close()


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with served(tmp_path_factory.mktemp("two"), "endpoint") as made:
        made.realm.add_gateway("second", ["127.0.0.1"])
        yield made


def test_clients_go_on_with_the_other_gateway_when_one_goes(world: Served, tmp_path: Path) -> None:
    second = GatewayService(GatewayRealm(world.realm.paths.root), "second", port=0)
    serving = threading.Thread(target=lambda: asyncio.run(second.run()), daemon=True)
    serving.start()
    assert second.started.wait(PATIENCE_S)
    with closing(Balancer(world.port, second.port)) as balancer:
        address = f"sealcast://127.0.0.1:{balancer.port}"
        ann, nyse = EntityRealm(world.home("ann", at=address)), EntityRealm(world.home("nyse", at=address))
        with world.side.interests(ann, TOPIC, "ann") as interests:
            interests.add("price < 250")
        with Publisher(nyse, TOPIC, "nyse") as publisher, Subscriber(ann, TOPIC, "ann", from_=0) as reader:
            publisher.publish(events(1, 2))
            world.pump()
            assert [event.payload for event in reader.poll(2, timeout=PATIENCE_S)] == [b"at 1", b"at 2"]
            world.stop_gateway()
            began = time.monotonic()
            assert len(publisher.publish(events(3, 4))) == 2 or publisher.flush() == 0
            assert time.monotonic() - began < TAKEOVER_S
            world.pump()
            assert [event.payload for event in reader] == [b"at 3", b"at 4"], "each once, and in order"
    second.stop()
    serving.join(PATIENCE_S)
    world.start_gateway()
