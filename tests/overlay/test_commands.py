"""Several brokers as a user meets them."""

from __future__ import annotations

from pathlib import Path

import pytest

from sealcast.overlay.relay import Relay
from sealcast.trust.deployment import Realm
from tests.cli.shell import sealcast, write_lines
from tests.clients.pump import pump


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    root = tmp_path / "market"
    monkeypatch.delenv("SEALCAST_REALM", raising=False)
    assert sealcast("init", root).code == 0
    monkeypatch.chdir(root)
    write_lines(root / "schema.json", {"attributes": [{"name": "price", "type": "int"}]})
    assert sealcast("topic", "create", "quotes", "--schema", "schema.json", "--access", "members").code == 0
    assert sealcast("entity", "enrol", "nyse", "alice", "bob").code == 0
    return root


def turn(home: Path) -> None:
    """What `sealcast run --once` does, without Spark."""
    realm = Realm(home)
    relay = Relay(realm, realm.state().brokers())
    for _ in range(2):
        for broker in realm.state().serving("quotes"):
            pump(realm, "quotes", broker=broker)
        relay.once()
    relay.close()


def test_two_brokers_from_the_command_line(home: Path) -> None:
    added = sealcast("broker", "add", "paris", "--serve", "quotes", "--json").document
    assert (added["number"], added["serves"], added["learnt"]) == (1, ["quotes"], 0)
    assert (home / "secrets" / "brokers" / "paris.key").exists()
    for name, where in (("alice", ()), ("bob", ("--broker", "paris"))):
        filter = ("--as", name, "--filter", "price > 0")
        made = sealcast("subscription", "add", "quotes", *filter, *where, "--json").document
        assert made["subscriptions"][0]["broker"] == (where[1] if where else "broker")
    listed = sealcast("broker", "list", "--json").document["brokers"]
    assert [(b["name"], b["subscribers"], b["keys_here"]) for b in listed] == [("broker", 1, True), ("paris", 1, True)]

    event = write_lines(home / "events", {"attributes": {"price": 7}, "payload": "one"})
    assert sealcast("pub", "quotes", "--as", "nyse", "--file", event, "--broker", "paris").out == "1/0/0\n"
    turn(home)
    for name in ("alice", "bob"):
        assert [e["payload"] for e in sealcast("sub", "quotes", "--as", name).lines] == ["one"]

    moved = sealcast("subscription", "move", "quotes", "--as", "alice", "--to", "paris", "--json").document
    assert moved == {"topic": "quotes", "subscriber": "alice", "broker": "paris", "moving": True}
    assert sealcast("pub", "quotes", "--as", "nyse", "--file", event).out == "0/0/0\n"
    turn(home)
    shown = sealcast("broker", "show", "broker", "--json").document
    assert shown["links"] == [{"topic": "quotes", "to": "paris", "waiting": 0}]
    assert (shown["subscribers"], shown["moving"]) == (0, 0)
    assert [k["source"] for k in sealcast("broker", "show", "paris", "--json").document["knows"]] == ["served"]
    for name in ("alice", "bob"):
        assert len(sealcast("sub", "quotes", "--as", name).lines) == 1
    assert sealcast("check", "--json").document["ok"]


def test_refusals_say_what_to_do(home: Path) -> None:
    assert sealcast("broker", "add", "keyless").code == 0
    known = sealcast("broker", "show", "keyless", "--json").document["knows"]
    assert [(k["topic"], k["source"], k["by"]) for k in known] == [("quotes", "list", "broker")]
    event = write_lines(home / "events", {"attributes": {"price": 7}})
    refused = sealcast("pub", "quotes", "--as", "nyse", "--file", event, "--broker", "keyless")
    assert refused.code == 1 and "sealcast topic serve quotes keyless" in refused.err
    assert sealcast("subscription", "add", "quotes", "--as", "alice", "--filter", "price > 0").code == 0
    refused = sealcast("subscription", "move", "quotes", "--as", "alice", "--to", "keyless")
    assert refused.code == 1 and "sealcast topic serve" in refused.err
    assert sealcast("subscription", "move", "quotes", "--as", "alice").code == 2
    assert sealcast("broker", "show", "alice").code == 1
    assert "sealcast broker list" in sealcast("run", "--once", "--node", "alice").err
