"""Brokers on machines of their own: their disk, their keys, and everybody else through gateways."""

from __future__ import annotations

from pathlib import Path

import pytest

from sealcast import Publisher
from sealcast.gateway import access
from sealcast.model.protection import protection_of
from sealcast.overlay import moves
from sealcast.overlay.filter_keys import FilterKeyHandover
from sealcast.overlay.routing import Forwarder
from sealcast.transports.address import GatewayAddress
from sealcast.transports.problems import GatewayRefused, MirrorBehind
from sealcast.trust.gateway_site import Around, GatewaySite
from sealcast.trust.layout import read_mark
from sealcast.trust.realm.changes import AnnounceGateway
from tests.cli.shell import sealcast
from tests.clients.pump import pump
from tests.remote.machines import Tree, machines, payloads
from tests.remote.world import TOPIC, events, served


def test_endpoint_frames_travel_between_brokers_on_two_machines(tmp_path: Path) -> None:
    with served(tmp_path, "endpoint") as world, machines(world, "paris") as (paris,):
        world.realm.serve(TOPIC, "paris")
        world.realm.subscribe(TOPIC, "ann", "price < 100", broker="paris")
        world.realm.subscribe(TOPIC, "bob", "price < 100")
        ann, bob, nyse, xetra = (world.client(name) for name in ("ann", "bob", "nyse", "xetra"))
        with Publisher(nyse, TOPIC, "nyse") as here, Publisher(xetra, TOPIC, "xetra", broker="paris") as there:
            assert len(here.publish(events(1, 200, 2))) == 3
            assert len(there.publish(events(3, 4))) == 2
        pump(world.realm, TOPIC)
        pump(paris.realm, TOPIC, broker="paris")
        for realm, broker in ((world.realm, "broker"), (paris.realm, "paris")):
            with Forwarder(realm, broker) as forwarder:
                assert sum(forwarder.once().values()) == 1 and not forwarder.failures
                assert sum(forwarder.once().values()) == 0
        pump(world.realm, TOPIC)
        pump(paris.realm, TOPIC, broker="paris")
        assert sorted(payloads(ann, "ann", world)) == [b"at 1", b"at 2", b"at 3", b"at 4"]
        assert sorted(payloads(bob, "bob", world)) == [b"at 1", b"at 2", b"at 3", b"at 4"]


def test_a_layered_tree_on_three_machines(tmp_path: Path) -> None:
    layered = protection_of("layered")
    with served(tmp_path, layered, nodes=1) as world, machines(world, "lyon", "metz") as below:
        tree = Tree(world, below)
        tree.settle()  # brokers announce their keys
        ann, bob, nyse = (world.client(name) for name in ("ann", "bob", "nyse"))
        for home, name, at in ((ann, "ann", "lyon"), (bob, "bob", "metz")):
            world.realm.place_subscriber(TOPIC, name, at)
            with world.side.interests(home, TOPIC, name) as interests:
                interests.add("price < 100")
        with Publisher(nyse, TOPIC, "nyse") as publisher:
            tree.hear({"ann": ann, "bob": bob})
            assert len(publisher.publish(events(5, 200, 7))) == 3
            tree.settle()
            below[1].stop_gateway()
            assert len(publisher.publish(events(8))) == 1
            tree.settle()
            below[1].start_gateway()
        for home, name in ((ann, "ann"), (bob, "bob")):
            assert payloads(home, name, world) == [b"at 5", b"at 7", b"at 8"]
            assert payloads(home, name, world, timeout=0.0) == []
        for machine in below:
            said = sealcast("check", "--realm", machine.home, "--json")
            assert said.code == 0 and said.document["deliveries"] == 3, said.err
            assert said.document["topics"][TOPIC]["brokers_routed_again"] == 1


def test_a_brokers_machine_has_its_own_secrets_and_its_own_disk(tmp_path: Path) -> None:
    """No key of anybody else is in its files, in whatever form; and nothing of it is where the realm is."""
    with served(tmp_path, "endpoint") as world, machines(world, "paris") as (paris,):
        world.realm.serve(TOPIC, "paris")
        world.realm.subscribe(TOPIC, "ann", "price < 100", broker="paris")
        with Publisher(world.client("nyse"), TOPIC, "nyse", broker="paris") as publisher:
            publisher.publish(events(1, 2))
        pump(paris.realm, TOPIC, broker="paris")
        keys = {path.relative_to(paris.home) for path in paris.home.rglob("*.key")}
        assert keys == {Path("secrets/brokers/paris.key"), Path("secrets/gateways/paris-door.key")}
        theirs = [path.read_bytes() for path in world.realm.paths.root.rglob("*.key")]
        secrets = {line.strip() for each in theirs for line in each.split(b'"') if len(line.strip()) >= 43}
        assert len(secrets) > 10
        for path in filter(Path.is_file, paris.home.rglob("*")):
            data = path.read_bytes()
            assert not [each for each in secrets if each in data], path
        here = world.realm.paths.topic(TOPIC, "paris").root
        assert not [path for path in here.rglob("*") if path.is_file()], "its logs are on its machine alone"
        assert list(paris.realm.paths.topic(TOPIC, "paris").ledger.iterdir())


def test_what_goes_to_the_wrong_machine_is_not_taken_in(tmp_path: Path) -> None:
    """A gateway that took frames of a broker elsewhere would lose them: a weakened one does."""
    with served(tmp_path, "endpoint") as world, machines(world, "paris") as (paris,):
        world.realm.serve(TOPIC, "paris")
        home, state = world.client("nyse"), world.realm.state()
        wrong = home.site.base.of("nyse").frames(state, TOPIC, "paris", 0)
        with Publisher(home, TOPIC, "nyse", broker="paris") as publisher:
            publisher.publish(events(1))
        with paris.realm.frames(TOPIC, "paris") as log:
            frames = [record.data for record in log.partition(log.own[0]).read(0)]
        with pytest.raises(MirrorBehind, match="not on this machine"):
            wrong.append(frames)
        direct = GatewaySite(
            Around(home.paths, read_mark(home.paths), home.clock, lambda: home.registry.known, home.member),
            GatewayAddress("127.0.0.1", paris.port),
            "nyse",
            gateway=paris.door,
        )
        with pytest.raises(MirrorBehind, match="not on this machine"):
            direct.frames(state, TOPIC, "broker", 0).append(frames)
        for method, path in (("PUT", f"/v1/control/{'0' * 32}?reply=1"), ("DELETE", f"/v1/control/{'0' * 32}")):
            with pytest.raises(MirrorBehind, match="things of a broker"):
                direct.connection.send(method, path)
        with pytest.raises(MirrorBehind, match="things of a broker"):
            direct.connection.send("POST", "/v1/join", {"request": b"x"})
        with pytest.MonkeyPatch.context() as weak:
            weak.setattr(access, "be_here", lambda *given, **more: None)
            wrong.append(frames)
            with world.realm.frames(TOPIC, "paris") as lost:
                assert len(list(lost.partition(lost.own[0]).read(0))) == 1, "where no pipeline ever looks"
        assert direct.connection.get("/v1/realm")["gateway"] == paris.door


def test_another_gateway_does_not_pass_for_a_brokers(tmp_path: Path) -> None:
    """Any gateway of the realm has a certificate for its host; a broker's things are taken from its own alone."""
    with served(tmp_path, "endpoint") as world, machines(world, "paris", "lyon") as (paris, lyon):
        world.realm.serve(TOPIC, "paris")
        paris.realm.registry.apply(AnnounceGateway("paris", paris.door, "127.0.0.1", lyon.port))
        with pytest.raises(GatewayRefused, match="is no gateway of the realm"):
            Publisher(world.client("nyse"), TOPIC, "nyse", broker="paris").publish(events(1))
        paris.realm.registry.apply(AnnounceGateway("paris", paris.door, "127.0.0.1", paris.port))
        with Publisher(world.client("nyse"), TOPIC, "nyse", broker="paris") as publisher:
            assert len(publisher.publish(events(1))) == 1


def test_a_subscriber_moves_between_machines_and_loses_nothing(tmp_path: Path) -> None:
    with served(tmp_path, "endpoint") as world, machines(world, "paris") as (paris,):
        world.realm.serve(TOPIC, "paris")
        world.realm.subscribe(TOPIC, "ann", "price < 100")
        ann, nyse = world.client("ann"), world.client("nyse")

        def run() -> None:
            for realm, broker in ((world.realm, "broker"), (paris.realm, "paris")) * 2:
                pump(realm, TOPIC, broker=broker)  # type: ignore[arg-type]
                with Forwarder(realm, broker) as forwarder:
                    forwarder.once()
                    assert not forwarder.failures

        with Publisher(nyse, TOPIC, "nyse") as publisher:
            publisher.publish(events(1, 2))
            run()
            world.realm.registry.version()
            moves.move(world.realm, TOPIC, "ann", "paris")
            publisher.publish(events(3, 4))
            run()
            FilterKeyHandover(world.realm, ["broker"]).once()
            run()
            assert moves.settle(paris.realm, paris.realm.broker("paris").identity.author) == [(TOPIC, "ann")]
            publisher.publish(events(5))
            run()
        assert payloads(ann, "ann", world) == [b"at 1", b"at 2", b"at 3", b"at 4", b"at 5"]
