"""Requests to key centers and brokers pass through a gateway on another machine, with nothing in common but PostgreSQL
and a carrier."""

from __future__ import annotations

from pathlib import Path

import pytest

from sealcast import Publisher, Subscriber
from sealcast.bench.carrier_servers import NatsServer
from sealcast.errors import Unavailable
from sealcast.trust.storage import control_tables
from tests.remote.two_machines import TwoMachines
from tests.remote.world import PATIENCE_S, TOPIC, events
from tests.trust.postgres import PASSWORD, Server

pytestmark = pytest.mark.timeout(600)


@pytest.fixture(autouse=True)
def _password(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PGPASSWORD", PASSWORD)


@pytest.fixture
def nats(tmp_path: Path) -> object:
    with NatsServer(tmp_path / "nats") as server:
        yield server.start()


@pytest.mark.parametrize("protection", ["payload", "searchable"])
def test_clients_of_the_other_gateway_are_given_keys(
    tmp_path: Path, postgres: Server, nats: NatsServer, protection: str
) -> None:
    """Under both protections a key center gives out the topic's keys, to whoever asks and may have them."""
    world = TwoMachines(tmp_path, postgres.url(postgres.schema(), password=None), nats.address, protection)
    try:
        with world.second_gateway() as second:
            ann, publisher = world.client("ann", second), world.client("p0", second)
            with world.first.side.interests(ann, TOPIC, "ann") as interests:
                interests.add("price < 200")
            with Subscriber(ann, TOPIC, "ann", peek=True) as early:
                early.poll()  # tells the broker what it wants, where brokers cannot read
            world.first.pump()
            with Publisher(publisher, TOPIC, "p0") as sends:
                sends.publish(events(7, 8))
            world.first.pump()
            with Subscriber(ann, TOPIC, "ann", from_=0) as reader:
                assert [event.payload for event in reader.poll(timeout=PATIENCE_S)] == [b"at 7", b"at 8"]
        assert not list((tmp_path / "two" / "control").rglob("*.seg")), "no request is in its directory"
    finally:
        world.first.close()


def test_without_the_tables_nobody_answers_there(tmp_path: Path, postgres: Server, nats: NatsServer) -> None:
    """What the database is needed for: requests in the other machine's directory are read by nobody."""
    place = postgres.schema()

    def drop() -> None:
        with postgres.connect(place) as connection:
            connection.execute(f"DROP TABLE {', '.join(control_tables.TABLES)}")  # type: ignore[arg-type]

    world = TwoMachines(tmp_path, postgres.url(place, password=None), nats.address, "payload", drop)
    try:
        with Publisher(world.client("p0"), TOPIC, "p0") as sends:
            assert len(sends.publish(events(7))) == 1, "services answer where they are"
        with world.second_gateway() as second, pytest.raises(Unavailable):
            Publisher(world.client("p1", second), TOPIC, "p1").publish(events(7))
    finally:
        world.first.close()
