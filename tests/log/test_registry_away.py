"""A registry that goes while somebody publishes on a carrier: when the carrier has the frames already, and nobody says
whether the log was moved meanwhile."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from secrets import token_hex

import pytest

from sealcast.bench.carrier_servers import NatsServer
from sealcast.clients.publisher import Publisher
from sealcast.clients.unfinished import Unfinished
from sealcast.errors import Unavailable
from sealcast.log.carriers import CarrierAway, CarrierPartition
from sealcast.model import Event
from sealcast.trust.deployment import Realm
from tests.clients.test_unfinished import SCHEMA, frames_of, let_through
from tests.trust.postgres import PASSWORD, Server

EVENTS = [Event({"price": n}, b"%d" % n) for n in range(10)]


@pytest.fixture
def server() -> Iterator[Server]:
    """One that no other test uses."""
    made = Server()
    made.start()
    yield made
    made.close()


@pytest.mark.parametrize("weakened", [False, True])
def test_events_go_once_though_the_registry_went_after_the_append(
    tmp_path: Path, server: Server, nats: NatsServer, monkeypatch: pytest.MonkeyPatch, weakened: bool
) -> None:
    """Weakened: events are sealed anew."""
    monkeypatch.setenv("PGPASSWORD", PASSWORD)
    realm = Realm.create(tmp_path / "realm", registry=server.url(server.schema(), password=None))
    realm.create_topic("quotes", SCHEMA, access="members")
    realm.enrol_many(["nyse"])
    realm.add_carrier("away", nats.address)
    realm.move_topic("quotes", "away", name=token_hex(6))
    if weakened:
        monkeypatch.setattr(Unfinished, "is_repeated", lambda self, *about: False)
    with Publisher(realm, "quotes", "nyse") as writing:
        stored = _stop_after_append(server, writing, monkeypatch)
        with pytest.raises(Unavailable) as caught:
            writing.publish(EVENTS)
        assert stored and not isinstance(caught.value, CarrierAway), "the carrier has them, and the registry is away"
        server.start()
        writing.publish(EVENTS)
        assert sum(let_through(frames_of(writing))) == len(EVENTS) * (1 + weakened)


def _stop_after_append(server: Server, writing: Publisher, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The server stops when the carrier has acknowledged the first frames; where these are."""
    log = writing.log
    partition: CarrierPartition = log._log._partition  # type: ignore[attr-defined]
    append, stored = partition.append, list[int]()

    def appended(records: Sequence[tuple[bytes, bytes]]) -> list[int]:
        positions = append(records)
        if not stored:
            stored.extend(positions)
            server.stop()
        return positions

    monkeypatch.setattr(partition, "append", appended)
    return stored
