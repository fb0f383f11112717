"""Two gateways on two machines serve one group, with nothing in common but PostgreSQL and a carrier."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from sealcast import Subscriber
from sealcast.bench.carrier_servers import NatsServer
from sealcast.log import groups
from sealcast.log.groups import ShareLost
from tests.clients.test_groups import PUBLISHERS, acknowledged, drained, identities
from tests.remote.two_machines import TwoMachines
from tests.remote.world import PATIENCE_S, TOPIC
from tests.trust.postgres import PASSWORD, Server

pytestmark = pytest.mark.timeout(600)


def member(world: TwoMachines, at: str | None = None) -> Subscriber:
    return Subscriber(world.client("ann", at), TOPIC, "ann", group="workers")


@pytest.fixture
def world(tmp_path: Path, postgres: Server, monkeypatch: pytest.MonkeyPatch) -> Iterator[TwoMachines]:
    monkeypatch.setenv("PGPASSWORD", PASSWORD)
    with NatsServer(tmp_path / "nats") as nats:
        made = TwoMachines(tmp_path, postgres.url(postgres.schema(), password=None), nats.start().address)
        made.realm.subscribe(TOPIC, "ann", "price < 200")
        try:
            yield made
        finally:
            made.first.close()


def test_members_at_two_gateways_share_the_events_and_one_goes_on_without_the_other(
    world: TwoMachines, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(groups, "LEASE_US", 1_500_000)
    with world.second_gateway() as second, member(world) as one, member(world, second) as other:
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
