"""A realm that commands can work on, and events that went through it."""

from __future__ import annotations

from pathlib import Path

import pytest

from sealcast.trust.deployment import Realm
from tests.cli.shell import sealcast, write_lines
from tests.clients.pump import pump

SCHEMA = {
    "attributes": [
        {"name": "symbol", "type": "string", "max_length": 8},
        {"name": "price", "type": "decimal", "min": 0, "max": 1000, "step": 0.01},
        {"name": "volume", "type": "int", "min": 0},
    ]
}
EVENTS = [
    {"attributes": {"symbol": "IBM", "price": 101.5, "volume": 5}, "payload": "one"},
    {"attributes": {"symbol": "IBM", "price": 99}, "payload": "two"},
    {"attributes": {"symbol": "AAPL", "price": "150.25"}, "payload_base64": "AP8="},
    {"attributes": {}, "payload": "three"},
]


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory is a new realm with a topic, a publisher and two subscribers."""
    root = tmp_path / "market"
    assert sealcast("init", root).code == 0
    monkeypatch.chdir(root)
    monkeypatch.delenv("SEALCAST_REALM", raising=False)
    write_lines(root / "schema.json", SCHEMA)
    assert sealcast("topic", "create", "quotes", "--schema", "schema.json", "--access", "members").code == 0
    assert sealcast("entity", "enrol", "nyse", "alice", "bob").code == 0
    return root


@pytest.fixture
def delivered(home: Path) -> Path:
    """Four events were published, and delivered by the pipeline's own kernels."""
    add = ("subscription", "add", "quotes", "--as")
    assert sealcast(*add, "alice", "--filter", "price > 100").code == 0
    assert sealcast(*add, "bob", "--filter", "symbol = 'IBM'").code == 0
    assert sealcast("pub", "quotes", "--as", "nyse", "--file", write_lines(home / "events.jsonl", *EVENTS)).code == 0
    pump(Realm(home), "quotes")
    return home
