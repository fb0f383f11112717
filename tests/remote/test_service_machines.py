"""A key center and a discovery node on a machine of their own: found by random topics, asked by sealed envelopes."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from sealcast import Publisher, Subscriber
from sealcast.control.discovery import embedded
from sealcast.control.discovery.advertisements import What
from sealcast.control.discovery.client import Discovery
from sealcast.control.discovery.embedded import RealmDiscovery
from sealcast.control.running import Running
from sealcast.protections.port import center_rules
from sealcast.transports.problems import GatewayRefused
from sealcast.trust import deployment
from sealcast.trust.certificates.roles import Role
from sealcast.trust.handles import EntityRealm
from tests.clients.pump import pump
from tests.remote.machines import join
from tests.remote.world import PATIENCE_S, SCHEMA, Served, events, served

GOLD = "gold"


@contextmanager
def serving(home: Path) -> Iterator[Running]:
    """What `sealcast serve --realm HOME` does."""
    stop, ready, made = threading.Event(), threading.Event(), list[Running]()

    def work() -> None:
        with Running(deployment.Realm(home), center_more=center_rules) as running:
            running.start()
            made.append(running)
            ready.set()
            while not stop.is_set():
                if not running.turn():
                    stop.wait(0.02)

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    try:
        assert ready.wait(PATIENCE_S)
        yield made[0]
    finally:
        stop.set()
        thread.join(PATIENCE_S)


def test_a_key_center_and_a_discovery_node_elsewhere(tmp_path: Path) -> None:
    with served(tmp_path, "endpoint") as world:
        home = tmp_path / "vault"
        join(world, home, "vault", Role.KEY_CENTER)
        join(world, home, "scout", Role.DISCOVERY)
        with serving(home) as running:
            # A center makes the keys of its topics where it is.
            deployment.Realm(home).create_topic(GOLD, SCHEMA, center="vault", access="members")
            nyse, ann = world.client("nyse"), world.client("ann")
            _found_by_scout(world)
            with world.side.interests(ann, GOLD, "ann") as interests:
                interests.add("price < 100")
            with Publisher(nyse, GOLD, "nyse") as publisher:
                assert len(publisher.publish(events(5, 200))) == 2
            pump(world.realm, GOLD)
            with world.side.key_asker(ann, GOLD, "ann") as ask, Subscriber(ann, GOLD, "ann", ask=ask) as sub:
                assert [event.payload for event in sub.poll(timeout=60)] == [b"at 5"]
            # Whoever comes later gets its keys of the topic from the center, which alone has them.
            join(world, tmp_path / "late", "late")
            with Publisher(EntityRealm(tmp_path / "late"), GOLD, "late") as publisher:
                assert len(publisher.publish(events(6))) == 1
            pump(world.realm, GOLD)
            with Subscriber(ann, GOLD, "ann", from_=0) as sub:
                assert [event.payload for event in sub.poll(timeout=60)] == [b"at 5", b"at 6"]
            answered = {served.name: served.counts["answered"] for served in running.services}
            assert answered["vault"] > 0 and answered["scout"] > 0, answered
        keys = {path.relative_to(home) for path in home.rglob("*.key")}
        assert keys == {Path("secrets/centers/vault.key"), Path("secrets/discovery/scout.key")}
        assert not list(world.realm.paths.root.rglob("vault.key")) + list(world.realm.paths.root.rglob("scout.key"))


def _found_by_scout(world: Served) -> None:
    """The new node alone says where the new center listens: on a topic, and not on which machine."""
    client = world.client("bob")
    (scout,) = [node for node in embedded.nodes(client) if node.name == "scout"]
    until, found = time.monotonic() + PATIENCE_S, list[str]()
    discovery = RealmDiscovery(client, client.identity("bob"))
    try:
        alone = Discovery(discovery.asker, lambda: (scout,), lambda name: None)
        while "vault" not in found:
            assert time.monotonic() < until, found
            found = [each.owner for each in alone.find("*", What.KEY_CENTER)]
    finally:
        discovery.close()


def test_where_a_node_listens_is_its_own_word(tmp_path: Path) -> None:
    with served(tmp_path, "endpoint") as world:
        home = tmp_path / "vault"
        join(world, home, "scout", Role.DISCOVERY)
        join(world, home, "vault", Role.KEY_CENTER)
        realm, ann = deployment.Realm(home), world.client("ann")
        topic = realm.site.of("vault").control().create()
        for site, name in (
            (ann.site.of("ann"), "scout"),
            (ann.site.of("ann"), "ann"),
            (realm.site.of("vault"), "vault"),
        ):
            with pytest.raises(GatewayRefused):
                site.base.connection.send("PUT", f"/v1/discovery/{name}", {"topic": topic})  # type: ignore[attr-defined]
        with pytest.raises(GatewayRefused, match="who made a control topic"):
            realm.site.listens("scout", topic)
        mine = realm.site.of("scout").control().create()
        assert realm.site.listens("scout", mine)
        assert [node.topic for node in embedded.nodes(world.client("bob")) if node.name == "scout"] == [mine]
