"""A realm on one machine, and what another machine has of it: nothing in common but PostgreSQL and a carrier."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from sealcast import Publisher, Realm
from sealcast.gateway.running import GatewayService
from sealcast.trust.handles import EntityRealm, GatewayRealm
from tests.clients.test_groups import PUBLISHERS
from tests.copies import copy_realm
from tests.remote.world import PATIENCE_S, SCHEMA, TOPIC, ServedRealm, events

SECOND = "second"


class TwoMachines:
    """The first machine has the realm, its services, a broker and a gateway. The other one has a gateway, with no key
    but its own."""

    def __init__(
        self,
        directory: Path,
        registry: str,
        carrier: str,
        protection: str = "endpoint",
        before: Callable[[], object] = lambda: None,
    ) -> None:
        """`before` is done before anything runs."""
        realm = Realm.create(directory / "one", f"r{directory.name[-12:]}", registry=registry)
        realm.create_topic(TOPIC, SCHEMA, access="members", protection=protection)
        realm.enrol_many(["ann", *PUBLISHERS])
        realm.add_carrier("away", carrier)
        realm.move_topic(TOPIC, "away")
        for name in ("gate", SECOND):
            realm.add_gateway(name, ["127.0.0.1"])
        self.other = copy_realm(directory / "one", directory / "two")
        for path in [*(self.other / "secrets").rglob("*"), *(self.other / "entities").rglob("*")]:
            if path.is_file() and SECOND not in path.name:
                path.unlink()
        before()
        self.first = ServedRealm(directory, realm)
        self.realm = realm

    @contextmanager
    def second_gateway(self) -> Iterator[str]:
        """The one of the other machine; its address."""
        gateway = GatewayService(GatewayRealm(self.other), SECOND, port=0)
        serving = threading.Thread(target=lambda: asyncio.run(gateway.run()), daemon=True)
        serving.start()
        assert gateway.started.wait(PATIENCE_S)
        try:
            yield f"sealcast://127.0.0.1:{gateway.port}"
        finally:
            gateway.stop()
            serving.join(PATIENCE_S)

    def client(self, name: str, at: str | None = None) -> EntityRealm:
        """On a machine of its own, which knows one gateway: the first, if none is named."""
        return EntityRealm(self.first.home(name, at=at))

    def publish(self, *prices: int) -> None:
        for name in PUBLISHERS:
            with Publisher(self.realm, TOPIC, name) as publisher:
                publisher.publish(events(*prices))
        self.first.pump()
