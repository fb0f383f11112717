"""Killed -9 at random moments, again and again: the MQTT broker, and the bridge.

The judge asks three things. Everything that was acknowledged at QoS 1 has arrived, where it was asked for, in each
publisher's order. Nothing arrived twice. Nothing that was sealed is in what the killed processes wrote or said.
"""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from random import Random

import pytest

from sealcast import Event, Realm
from sealcast.mqtt import Client
from sealcast.mqtt.link import PROTOCOLS
from tests.clients.pump import pump
from tests.mqtt.mosquitto import Mosquitto
from tests.mqtt.servers import until
from tests.mqtt.test_bridge import BRIDGE_PROCESS, VERSIONS, Collected, bridging, connected, due, in_log
from tests.mqtt.test_bridge import realm_with as realm_with_filters
from tests.mqtt.test_broker import Reader, publishing, random_filter, realm_with, serving
from tests.protections.world import FILTERS, TOPIC

pytestmark = [pytest.mark.soak, pytest.mark.timeout(1800)]

KILLS = 20
CANARY = b"CANARY-PAYLOAD-6f1d"
SYMBOLS = ["A", "B1", "B2", "C"]
READERS = 5


class Publishing:
    """Publishes at QoS 1 all the while, in bursts, whether there is a connection or not."""

    def __init__(self, client: Client, seed: int) -> None:
        self.client, self.published = client, list[Event]()
        self._dice, self._done = Random(seed), threading.Event()
        self._thread = threading.Thread(target=self._work)
        self._trouble = list[BaseException]()
        self._thread.start()

    def _work(self) -> None:
        try:
            while not self._done.wait(self._dice.uniform(0, 0.3)):
                for _ in range(self._dice.randint(1, 6)):
                    values = {"price": self._dice.randrange(256), "symbol": self._dice.choice(SYMBOLS)}
                    event = Event(values, b"%s %d" % (CANARY, len(self.published)))
                    self.client.publish(TOPIC, event.payload, qos=1, attributes=event.attributes)
                    self.published.append(event)
        except BaseException as error:
            self._trouble.append(error)
            raise

    def finish(self) -> list[Event]:
        """Stops, and waits until everything is acknowledged; what was published."""
        self._done.set()
        self._thread.join()
        assert not self._trouble
        assert self.client.flush(120), "everything is acknowledged in the end"
        return self.published


@contextmanager
def publishers(*clients: Client) -> Iterator[list[Publishing]]:
    made = [Publishing(client, seed) for seed, client in enumerate(clients)]
    try:
        yield made
    finally:
        for each in made:
            each._done.set()
            each._thread.join()


def leaked(said: str | bytes, *directories: Path) -> list[str]:
    """Where something is found in clear that was sealed."""
    files = [path for directory in directories for path in directory.rglob("*") if path.is_file()]
    assert files, "the search is worth what there was to be searched"
    found = [str(path) for path in files if CANARY in path.read_bytes()]
    raw = said.encode() if isinstance(said, str) else said
    return [*found, *(["what was said"] if CANARY in raw else [])]


def settled(what: Callable[[], int]) -> None:
    """Until nothing more comes."""
    last, since = what(), time.monotonic()
    while time.monotonic() - since < 2:
        time.sleep(0.1)
        if what() != last:
            last, since = what(), time.monotonic()


@pytest.mark.parametrize("seed", [1, 2])
def test_the_broker_killed_at_random_moments(tmp_path: Path, seed: int) -> None:
    dice = Random(seed)
    realm = realm_with(tmp_path / "realm", [f"s{n}" for n in range(READERS)])
    with ExitStack() as stack:
        served = stack.enter_context(serving(realm))
        readers = [Reader(realm, f"s{n}", served.port, random_filter(dice)) for n in range(READERS)]
        for reader in readers:
            stack.callback(reader.client.close)
        names = ("nyse", "xetra")
        clients = [stack.enter_context(publishing(realm, name, served.port)) for name in names]
        at_work = stack.enter_context(publishers(*clients))
        away: Reader | None = None
        for kill in range(KILLS):
            if away is not None:
                away.connect()
            away = dice.choice(readers) if dice.random() < 0.4 else None
            if away is not None:
                away.away()
            time.sleep(dice.uniform(0, 2))
            served.kill()
            if kill % 4 == 3:  # while it starts
                served.begin()
                time.sleep(dice.uniform(0, 2))
                served.kill()
            served.start()
        if away is not None:
            away.connect()
        published = {name: each.finish() for name, each in zip(names, at_work, strict=True)}
        for name, events in published.items():
            assert len(events) > 10 * KILLS
            for reader in readers:
                reader.has(events, name, 120)
        settled(lambda: sum(len(reader.got) for reader in readers))
        for name, events in published.items():
            for reader in readers:
                assert reader.payloads(name) == reader.due(events), f"{reader.name} of {name}"
        assert not any(reader.client.unopenable or reader.client.unwanted for reader in readers)
        counts = served.stop()
        assert counts["refused"] == 0
        assert leaked(served.said, realm.paths.broker("broker") / "mqtt") == []


class BridgeProcess:
    """The bridge in a process of its own, and what it said."""

    def __init__(self, realm: Realm, out: Path, port: int, version: str) -> None:
        arguments = [str(realm.paths.root), str(port), f"campaign{version}", version, *FILTERS]
        self._command, self._out = [sys.executable, "-c", BRIDGE_PROCESS, *arguments], out
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        with self._out.open("ab") as out:
            self._process = subprocess.Popen(self._command, stdout=out, stderr=out)

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait(20)


@pytest.mark.parametrize("version", VERSIONS)
def test_the_bridge_killed_at_random_moments(tmp_path: Path, version: str) -> None:
    dice, out = Random(f"bridge {version}"), tmp_path / "bridge.log"
    realm = realm_with_filters(tmp_path / "realm", "searchable")
    with ExitStack() as stack:
        server = stack.enter_context(Mosquitto(tmp_path / "mosquitto").start())
        own = {"through": "bridge"}
        readers = {name: Client(realm, name, protocol=PROTOCOLS[version], through="bridge") for name in FILTERS}
        got = {name: Collected(client) for name, client in readers.items()}
        for client in readers.values():
            client.connect("127.0.0.1", server.port)
            client.subscribe(TOPIC)
            client.loop_start()
            stack.callback(client.close)
            until(client.is_connected)
        with bridging(realm, server.port, version, client_id=f"campaign{version}"):
            pass  # mosquitto knows the bridge's session now, and keeps its frames
        bridge = BridgeProcess(realm, out, server.port, version)
        stack.callback(bridge.kill)
        nyse = stack.enter_context(connected(realm, "nyse", server.port, version, **own))
        (at_work,) = stack.enter_context(publishers(nyse))
        for kill in range(KILLS):
            before = in_log(realm)
            bridge.start()
            if kill % 4 == 3:  # while it starts
                time.sleep(dice.uniform(0, 2))
            else:  # while it works
                until(lambda before=before: in_log(realm) > before, 240)
                time.sleep(dice.uniform(0, 0.7))
            bridge.kill()
            if in_log(realm) and dice.random() < 0.5:
                pump(realm, TOPIC)
        bridge.start()
        published = at_work.finish()
        assert len(published) > 10 * KILLS
        until(lambda: in_log(realm) >= len(published), 120)
        pump(realm, TOPIC)
        for name in readers:
            until(lambda name=name: len(got[name].payloads) >= len(due(name, published)), 120)
        settled(lambda: in_log(realm) + sum(len(each.payloads) for each in got.values()))
        for name in readers:
            assert got[name].payloads == due(name, published), name
        assert in_log(realm) == len(published), "each is in the log, once"
        bridge.kill()
        server.stop()
        assert leaked(out.read_bytes(), server.directory, realm.paths.topic(TOPIC).root) == []
