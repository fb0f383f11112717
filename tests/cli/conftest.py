"""A realm that commands can work on, and events that went through it."""

from __future__ import annotations

from pathlib import Path

import pytest

from sealcast.trust.deployment import Realm
from tests.cli.shell import sealcast, write_lines
from tests.clients.pump import pump
from tests.copies import copy_realm

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


@pytest.fixture(scope="session")
def made_home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A realm with a topic, a publisher and two subscribers. Copying it takes a tenth of what making it takes."""
    root = tmp_path_factory.mktemp("made") / "market"
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("SEALCAST_REALM", raising=False)
        patch.chdir(root.parent)
        assert sealcast("init", root).code == 0
        patch.chdir(root)
        write_lines(root / "schema.json", SCHEMA)
        assert sealcast("topic", "create", "quotes", "--schema", "schema.json", "--access", "members").code == 0
        assert sealcast("entity", "enrol", "nyse", "alice", "bob").code == 0
    return root


@pytest.fixture(scope="session")
def made_delivered(made_home: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = copy_realm(made_home, tmp_path_factory.mktemp("delivered") / "market")
    add = ("--realm", root, "subscription", "add", "quotes", "--as")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(root)
        assert sealcast(*add, "alice", "--filter", "price > 100").code == 0
        assert sealcast(*add, "bob", "--filter", "symbol = 'IBM'").code == 0
        events = write_lines(root / "events.jsonl", *EVENTS)
        assert sealcast("--realm", root, "pub", "quotes", "--as", "nyse", "--file", events).code == 0
    pump(Realm(root), "quotes")
    return root


def _here(made: Path, to: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    root = copy_realm(made, to)
    monkeypatch.chdir(root)
    monkeypatch.delenv("SEALCAST_REALM", raising=False)
    return root


@pytest.fixture
def home(made_home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory is a new realm with a topic, a publisher and two subscribers."""
    return _here(made_home, tmp_path / "market", monkeypatch)


@pytest.fixture
def delivered(made_delivered: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Four events were published, and delivered by the pipeline's own kernels."""
    return _here(made_delivered, tmp_path / "market", monkeypatch)
