"""Two gateways on two machines serve one group, with nothing in common but PostgreSQL and a carrier."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from sealcast import Publisher, Realm, Subscriber
from sealcast.bench.carrier_servers import NatsServer
from sealcast.gateway.running import GatewayService
from sealcast.log import groups
from sealcast.log.groups import ShareLost
from sealcast.trust.handles import EntityRealm, GatewayRealm
from tests.clients.test_groups import PUBLISHERS, acknowledged, drained, identities
from tests.copies import copy_realm
from tests.remote.world import PATIENCE_S, SCHEMA, TOPIC, ServedRealm, events
from tests.trust.postgres import PASSWORD, Server

pytestmark = pytest.mark.timeout(600)


class TwoMachines:
    """A realm on one machine, and its copy on another, each with a gateway. A broker runs on the first."""

    def __init__(self, directory: Path, registry: str, carrier: str) -> None:
        realm = Realm.create(directory / "one", f"r{directory.name[-12:]}", registry=registry)
        realm.create_topic(TOPIC, SCHEMA, access="members")
        realm.enrol_many(["ann", *PUBLISHERS])
        realm.subscribe(TOPIC, "ann", "price < 200")
        realm.add_carrier("away", carrier)
        realm.move_topic(TOPIC, "away")
        for name in ("gate", "second"):
            realm.add_gateway(name, ["127.0.0.1"])
        self.other = copy_realm(directory / "one", directory / "two")
        self.first = ServedRealm(directory, realm)
        self.realm = realm

    @contextmanager
    def second_gateway(self) -> Iterator[str]:
        """The one of the other machine; its address."""
        gateway = GatewayService(GatewayRealm(self.other), "second", port=0)
        serving = threading.Thread(target=lambda: asyncio.run(gateway.run()), daemon=True)
        serving.start()
        assert gateway.started.wait(PATIENCE_S)
        try:
            yield f"sealcast://127.0.0.1:{gateway.port}"
        finally:
            gateway.stop()
            serving.join(PATIENCE_S)

    def publish(self, *prices: int) -> None:
        for name in PUBLISHERS:
            with Publisher(self.realm, TOPIC, name) as publisher:
                publisher.publish(events(*prices))
        self.first.pump()

    def member(self, at: str | None = None) -> Subscriber:
        """On a machine of its own, which knows one gateway."""
        return Subscriber(EntityRealm(self.first.home("ann", at=at)), TOPIC, "ann", group="workers")


@pytest.fixture
def world(tmp_path: Path, postgres: Server, monkeypatch: pytest.MonkeyPatch) -> Iterator[TwoMachines]:
    monkeypatch.setenv("PGPASSWORD", PASSWORD)
    with NatsServer(tmp_path / "nats") as nats:
        made = TwoMachines(tmp_path, postgres.url(postgres.schema(), password=None), nats.start().address)
        try:
            yield made
        finally:
            made.first.close()


def test_members_at_two_gateways_share_the_events_and_one_goes_on_without_the_other(
    world: TwoMachines, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(groups, "LEASE_US", 1_500_000)
    with world.second_gateway() as second, world.member() as one, world.member(second) as other:
        for each in (one, other, one, other):
            each.poll(0, timeout=0.3)
        world.publish(*range(6))
        got = drained([one, other])
        assert all(got), "each gateway's member has its part"
        done = [*got[0], *got[1]]
        assert len(done) == 6 * len(PUBLISHERS)
        for name in PUBLISHERS:
            assert [e.payload for e in done if e.publisher == name] == [f"at {n}".encode() for n in range(6)]
        # A machine is gone, with events that its member was handed: the lease ends, and the other member gets them.
        world.publish(7, 8)
        held = one.poll(timeout=5.0)
        assert held
        world.first.stop_gateway()
        left, deadline = list(other.poll(timeout=0.5)), time.monotonic() + PATIENCE_S
        while len(left) < 2 * len(PUBLISHERS) and time.monotonic() < deadline:
            left += other.poll(timeout=0.5)
        other.ack()
        assert sorted(e.payload for e in left) == [b"at 7"] * len(PUBLISHERS) + [b"at 8"] * len(PUBLISHERS)
        # It comes back, and is told that others have its work.
        world.first.start_gateway()
        with pytest.raises(ShareLost):
            one.ack()
    assert Counter(acknowledged(world.realm, reader="ann")) == identities([*done, *left]), "each event once"
    assert not [path for machine in ("one", "two") for path in (world.other.parent / machine).rglob("groups")]
