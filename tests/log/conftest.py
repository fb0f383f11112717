"""The carriers that tests of logs run over: real servers on loopback, each started when a test first asks for it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from sealcast.bench.carrier_servers import KafkaServer, NatsServer
from sealcast.log import carried_pieces
from sealcast.log.carried_pieces import CarriedPieces
from tests.log.keepers import CarrierKeeper, EmbeddedKeeper, Keeper


@pytest.fixture(scope="session")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaServer]:
    with KafkaServer(tmp_path_factory.mktemp("kafka")) as server:
        yield server.start()


@pytest.fixture(scope="session")
def nats(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NatsServer]:
    with NatsServer(tmp_path_factory.mktemp("nats")) as server:
        yield server.start()


@pytest.fixture(params=["embedded", "kafka", "nats"])
def keeper(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Keeper]:
    made: Keeper
    if request.param == "embedded":
        made = EmbeddedKeeper(tmp_path / "log")
    else:
        made = CarrierKeeper(request.getfixturevalue(request.param))
    yield made
    made.close()


@pytest.fixture
def in_parts(monkeypatch: pytest.MonkeyPatch) -> Callable[[CarriedPieces], None]:
    """Stages every piece of a journal anew, in parts of its own on the carrier, with a place that leads there."""

    def staged(pieces: CarriedPieces) -> None:
        found = {name: pieces.bytes_of(name) for name in pieces.names()}
        before = pieces._places.end()
        monkeypatch.setattr(carried_pieces, "SMALL_BYTES", 0)
        for name, data in found.items():
            pieces._put(name, 0, data)
        pieces._places.drop(before)

    return staged
