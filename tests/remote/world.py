"""A realm on one "machine", its gateway and services, and clients that have nothing but homes of their own."""

from __future__ import annotations

import asyncio
import shutil
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sealcast import Event, Realm, Schema
from sealcast.control.running import Running
from sealcast.gateway.running import GatewayService
from sealcast.model.protection import PROTECTIONS, Protection
from sealcast.overlay.brokers import requests_of
from sealcast.protections.port import ClientSide, broker_side, center_rules, client_side
from sealcast.trust import deployment, homes
from sealcast.trust.handles import EntityRealm, GatewayRealm
from sealcast.trust.layout import RealmMark, read_mark
from tests.clients.layered_pump import pump as pump_layered
from tests.clients.pump import pump as pump_slots

TOPIC = "quotes"
SCHEMA = Schema.from_json({"attributes": [{"name": "price", "type": "int", "min": 0, "max": 255}]})
ENTITIES = ("nyse", "xetra", "ann", "bob")
PATIENCE_S = 120.0


def events(*prices: int) -> list[Event]:
    return [Event({"price": price}, f"at {price}".encode()) for price in prices]


class ServedRealm:
    """A realm that has a gateway `gate`, its gateway and its services. What tests do as its clients goes through homes;
    `realm` is the administrator's."""

    def __init__(self, directory: Path, realm: Realm) -> None:
        """`directory` is for homes."""
        self.directory, self.realm = directory, realm
        self._stop, ready = threading.Event(), threading.Event()
        self.port = 0
        self.start_gateway()
        self._answering = self._start(lambda: self._answer(ready))
        assert ready.wait(PATIENCE_S)

    @property
    def address(self) -> str:
        return f"sealcast://127.0.0.1:{self.port}"

    @property
    def protection(self) -> Protection:
        return self.realm.state().topic(TOPIC).protection

    @property
    def side(self) -> ClientSide:
        return client_side(self.protection)

    def home(self, *names: str, at: str | None = None) -> Path:
        """A new home with the keys of these entities, as `sealcast join` leaves it."""
        directory = self.directory / f"home-{'-'.join(names)}-{time.monotonic_ns()}"
        mark, state = read_mark(self.realm.paths), self.realm.state()
        paths = homes.make(directory, RealmMark(mark.name, mark.id, mark.root, gateway=at or self.address))
        trust = self.realm.trust(state)
        for name in names:
            certificate = state.entity(name).certificate
            homes.write_chain(paths, name, [certificate, trust.issuer_of(certificate), trust.root.der])
            shutil.copy(self.realm.paths.entity_key(name), paths.entity_key(name))
        return directory

    def client(self, *names: str) -> EntityRealm:
        return EntityRealm(self.home(*names))

    def pump(self) -> Mapping[str, int]:
        """The brokers' part, without Spark; what they counted."""
        here = deployment.Realm(self.realm.paths.root)
        return pump_layered(here, TOPIC) if self.protection.overlay else pump_slots(here, TOPIC)

    def start_gateway(self) -> None:
        """On the port that it had before, if it had one."""
        self._gateway = GatewayService(GatewayRealm(self.realm.paths.root), "gate", port=self.port)
        self.port = self._gateway.port
        self._serving = self._start(lambda: asyncio.run(self._gateway.run()))
        assert self._gateway.started.wait(PATIENCE_S)

    def stop_gateway(self) -> None:
        self._gateway.stop()
        self._ended(self._serving)

    def close(self) -> None:
        self._stop.set()
        self.stop_gateway()
        self._ended(self._answering)

    def _ended(self, thread: threading.Thread) -> None:
        thread.join(PATIENCE_S)
        assert not thread.is_alive()

    def _start(self, work: Callable[[], None]) -> threading.Thread:
        thread = threading.Thread(target=work, daemon=True)
        thread.start()
        return thread

    def _answer(self, ready: threading.Event) -> None:
        """What `sealcast serve` does."""
        here = deployment.Realm(self.realm.paths.root)
        asked = [requests_of, *(broker_side(kind()).requests for kind in PROTECTIONS.values())]

        def more(name: str):  # type: ignore[no-untyped-def]
            return {kind: answer for requests in asked for kind, answer in requests(here, name).items()}

        with Running(here, more=more, center_more=center_rules) as running:
            running.start()
            ready.set()
            while not self._stop.is_set():
                if not running.turn():
                    time.sleep(0.01)


class Served(ServedRealm):
    """A realm with one topic, made for one test module."""

    def __init__(self, directory: Path, protection: str, **more: Any) -> None:
        """`more` is for the topic."""
        realm = Realm.create(directory / "realm", "market")
        realm.enrol_many(ENTITIES)
        realm.create_topic(TOPIC, SCHEMA, protection=protection, access="members", **more)
        realm.add_gateway("gate", ["127.0.0.1"])
        super().__init__(directory, realm)


@contextmanager
def served(directory: Path, protection: str, **more: Any) -> Iterator[Served]:
    made = Served(directory, protection, **more)
    try:
        yield made
    finally:
        made.close()
