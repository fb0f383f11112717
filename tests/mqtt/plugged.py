"""A mosquitto with the plug-in, its table, and who talks to it."""

from __future__ import annotations

import signal
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from sealcast.model.schema import Value
from sealcast.mqtt import channels
from sealcast.mqtt.table import Compiler, write_table
from tests.mqtt.clients import Listener
from tests.mqtt.mosquitto import Mosquitto, build
from tests.mqtt.sealed_world import TOPIC, World, number_in, users

EVENTS = channels.events(TOPIC)
CLIENTS = users(20)
PUBLISHER = "sensor"
STRANGER = "stranger"
#: An ordinary topic that everybody listens to: what comes there last says that all before it has come.
END = "plain/end"


class Plugged:
    """Starts and stops the server, and replaces its table."""

    def __init__(self, directory: Path, plugin: Path, users: Sequence[str] = (*CLIENTS, PUBLISHER, STRANGER)) -> None:
        self.directory = directory
        self._users = users
        self.table = directory / "table"
        self._plugin = plugin
        self._server: Mosquitto | None = None

    def start(self, world: World | None = None, *more: str) -> Mosquitto:
        """Again with the same files, if it was started before."""
        if world is not None:
            self.put(world)
        if self._server is None:
            options = (f"plugin {self._plugin}", f"plugin_opt_table {self.table}", *more)
            self._server = Mosquitto(self.directory, *options, users=self._users, persistent=False)
        return self._server.start()

    def stop(self, how: signal.Signals = signal.SIGTERM) -> None:
        if self._server is not None:
            self._server.stop(how)

    def put(self, world: World, version: int = 1, without: Sequence[str] = ()) -> None:
        write_table(self.table, Compiler().compile(version, [world.topic([PUBLISHER], without)]))

    def replace(self, world: World, version: int, without: Sequence[str] = ()) -> None:
        """A new table, and until the running server uses it."""
        assert self._server is not None
        self.put(world, version, without)
        self._server.wait_for(f"table version {version} ")


@pytest.fixture(scope="session")
def plugin(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The plug-in, built from this tree."""
    return build(tmp_path_factory.mktemp("plugin"))


@pytest.fixture
def plugged(tmp_path: Path, plugin: Path) -> Iterator[Plugged]:
    """A mosquitto with the plug-in, which a test starts when its table is there."""
    found = Plugged(tmp_path, plugin)
    yield found
    found.stop()


def world_of(clients: Sequence[str], filters: int = 2, tag_bits: int = 16, seed: int = 1) -> World:
    world = World(seed, tag_bits)
    for user in clients:
        for _ in range(filters):
            world.subscribe(user, world.any_filter())
    return world


def numbers(listener: Listener) -> list[int]:
    """The events that a client got, in the order in which they came."""
    return [number_in(payload) for topic, payload in listener.got if topic == EVENTS]


def truth(world: World, user: str | None, events: Sequence[dict[str, Value]], epoch: int = 1) -> list[int]:
    """The events that it should get."""
    return [number for number, values in enumerate(events) if user and world.wants(user, values, epoch)]


def made(world: World, count: int, epoch: int = 1) -> tuple[list[dict[str, Value]], list[bytes]]:
    """Events as they are, and as they are published."""
    events, payloads = zip(*world.events(PUBLISHER, count, epoch), strict=True)
    return list(events), list(payloads)
