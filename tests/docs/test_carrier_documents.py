"""What the pages about carriers and clusters say to type works when it is typed, over a real Kafka, a real PostgreSQL
and a real Spark cluster."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from sealcast.bench.carrier_servers import KafkaServer
from tests.docs.pages import CARRIERS, CLUSTER
from tests.docs.paste import paste
from tests.trust.postgres import PASSWORD, Server, postgres

__all__ = ["postgres"]
pytestmark = [pytest.mark.timeout(900), pytest.mark.soak]


@pytest.fixture
def servers(postgres: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with KafkaServer(tmp_path / "kafka") as kafka:
        monkeypatch.setenv("KAFKA_ADDRESS", kafka.start().address)
        monkeypatch.setenv("POSTGRES_URL", postgres.url(postgres.schema(), password=None))
        monkeypatch.setenv("PGPASSWORD", PASSWORD)
        yield


@pytest.mark.usefixtures("servers")
def test_every_block_about_carriers_works_when_it_is_pasted() -> None:
    pasted = paste(CARRIERS)
    assert pasted.code == 0, pasted.err
    for words in ("over Kafka", "before the move", "after the move", "after the return"):
        assert pasted.out.count(f'"payload": "{words}"') == 1
    assert not [*pasted.place.glob("market/topics/*/frames/*/*.seg")] or all(
        path.stat().st_size < 1_000 for path in pasted.place.glob("market/topics/quotes/frames/*/*.seg")
    )


@pytest.mark.usefixtures("servers")
def test_every_block_about_clusters_works_when_it_is_pasted() -> None:
    pasted = paste(CLUSTER)
    assert pasted.code == 0, pasted.out[-2_000:] + pasted.err
    assert pasted.out.count('"payload": "by the cluster"') == 1
    said = "900 events for alice, the dearest at 999"
    assert said in pasted.out and said in CLUSTER.read_text()
    assert all([*pasted.place.glob(f"work-{number}/*/*/stderr")] for number in (1, 2)), "workers had executors"
