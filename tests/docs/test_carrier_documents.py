"""What the page about carriers says to type works when it is typed, over a real Kafka and a real PostgreSQL."""

from __future__ import annotations

from pathlib import Path

import pytest

from sealcast.bench.carrier_servers import KafkaServer
from tests.docs.pages import CARRIERS
from tests.docs.paste import paste
from tests.trust.postgres import PASSWORD, Server, postgres

__all__ = ["postgres"]
pytestmark = [pytest.mark.timeout(900), pytest.mark.soak]


def test_every_block_works_when_it_is_pasted(postgres: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with KafkaServer(tmp_path / "kafka") as kafka:
        monkeypatch.setenv("KAFKA_ADDRESS", kafka.start().address)
        monkeypatch.setenv("POSTGRES_URL", postgres.url(postgres.schema(), password=None))
        monkeypatch.setenv("PGPASSWORD", PASSWORD)
        pasted = paste(CARRIERS)
    assert pasted.code == 0, pasted.err
    for words in ("over Kafka", "before the move", "after the move", "after the return"):
        assert pasted.out.count(f'"payload": "{words}"') == 1
    assert not [*pasted.place.glob("market/topics/*/frames/*/*.seg")] or all(
        path.stat().st_size < 1_000 for path in pasted.place.glob("market/topics/quotes/frames/*/*.seg")
    )
