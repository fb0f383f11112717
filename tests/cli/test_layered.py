"""Layered topics by command: what a new user types, what is shown, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from sealcast.trust.deployment import Realm
from tests.cli.conftest import EVENTS, SCHEMA
from tests.cli.shell import Result, sealcast, write_lines
from tests.clients.layered_pump import pump
from tests.copies import copy_realm

FILTER = "symbol = 'IBM' AND price > 100"


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Made once, by command; tests work on copies."""
    root = tmp_path_factory.mktemp("made") / "market"
    assert sealcast("init", root).code == 0
    schema = write_lines(root / "schema.json", SCHEMA)
    create = ("topic", "create", "quotes", "--schema", schema, "--protection", "layered", "--access", "members")
    assert sealcast(*create, "--realm", root).code == 0
    assert sealcast("entity", "enrol", "nyse", "alice", "bob", "--realm", root).code == 0
    write_lines(root / "events.jsonl", *EVENTS)
    return root


@pytest.fixture(scope="module")
def routed(made: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("routed") / "market"
    copy_realm(made, root)
    assert add("alice", FILTER, "--realm", root).code == 0
    assert add("bob", "price < 120", "--realm", root).code == 0
    assert sealcast("pub", "quotes", "--as", "nyse", "--file", root / "events.jsonl", "--realm", root).code == 0
    assert pump(Realm(root), "quotes")["deliveries"] == 3
    return root


@pytest.fixture
def home(made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    return _copied(made, tmp_path, monkeypatch)


@pytest.fixture
def delivered(routed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    return _copied(routed, tmp_path, monkeypatch)


def _copied(root: Path, to: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    copy_realm(root, to / "market")
    monkeypatch.chdir(to / "market")
    monkeypatch.delenv("SEALCAST_REALM", raising=False)
    return to / "market"


def add(name: str, text: str, *more: object) -> Result:
    return sealcast("subscription", "add", "quotes", "--as", name, "--filter", text, *more)


def test_subscriptions_are_their_subscribers_own(home: Path) -> None:
    added = add("alice", FILTER, "--json").document["subscriptions"]
    assert [(s["id"], s["filter"], s["broker"]) for s in added] == [("alice-1", FILTER, "quotes-node-2")]
    assert added[0]["labels"] > 1 and added[0]["conjunctions"] == 1
    told = add("bob", "price < 120")
    assert "subscription 'bob-1' added: 'bob' on 'quotes', at broker 'quotes-node-3'" in told.out
    assert "labels" in told.out and "nobody has published" in told.err
    assert "alice" not in add("nyse", "price < 1", "--broker", "quotes-node-1").err
    assert "is at broker 'quotes-node-1'" in add("nyse", "price < 1", "--broker", "quotes-node-2").err
    for text, hint in (("symbol LIKE '%B%'", "LIKE with one %"), ("volume IS NULL", "IS NOT NULL")):
        refused = add("alice", text)
        assert refused.code == 1 and hint in refused.err and "^" in refused.err
    everyone = sealcast("subscription", "list")
    assert FILTER not in everyone.out and "a subscriber lists its own with --as" in everyone.err
    assert sealcast("subscription", "list", "--json").document["subscriptions"][0]["filter"] is None
    mine = sealcast("subscription", "list", "--topic", "quotes", "--as", "alice")
    assert FILTER in mine.out and "bob" not in mine.out
    (home / "entities" / "bob.key").rename(home / "bob.key")
    elsewhere = sealcast("subscription", "list", "--topic", "quotes", "--as", "bob")
    assert elsewhere.code == 1 and "keys of 'bob' are not here" in elsewhere.err
    assert "keys of 'bob' are not here" in add("bob", "price < 1").err
    unknown = sealcast("subscription", "remove", "alice-1", "nobody-1")
    assert unknown.code == 1 and "nobody-1" in unknown.err
    assert sealcast("subscription", "remove", "alice-1").out == "subscription 'alice-1' removed\n"
    assert sealcast("subscription", "list", "--topic", "quotes", "--as", "alice", "--json").document == {
        "subscriptions": []
    }


def test_many_subscriptions_come_from_a_file_or_none(home: Path) -> None:
    lines = [{"subscriber": name, "filter": f"price < {n}"} for n in (10, 20) for name in ("alice", "bob")]
    bad = write_lines(home / "bad.jsonl", *lines, {"subscriber": "alice", "filter": "symbol LIKE '%x%'"})
    refused = sealcast("subscription", "add", "quotes", "--file", bad)
    assert refused.code == 1 and f"{bad}:5" in refused.err and "nothing was added" in refused.err
    assert not Realm(home).state().overlay("quotes").places
    added = sealcast("subscription", "add", "quotes", "--file", write_lines(home / "good.jsonl", *lines), "--json")
    assert [s["id"] for s in added.document["subscriptions"]] == ["alice-1", "alice-2", "bob-1", "bob-2"]


def test_events_are_read_as_on_any_topic(delivered: Path) -> None:
    (event,) = sealcast("sub", "quotes", "--as", "alice", "--no-ack").lines
    assert event["attributes"] == {"symbol": "IBM", "price": "101.50", "volume": 5}
    assert (event["payload"], event["publisher"], event["sequence"]) == ("one", "nyse", 0)
    assert sealcast("sub", "quotes", "--as", "alice", "--json").document["events"] == [event]
    assert sealcast("sub", "quotes", "--as", "alice").out == ""
    assert sealcast("sub", "quotes", "--as", "alice", "--from", event["position"]).lines == [event]
    assert sealcast("sub", "quotes", "--as", "alice", "--from", "0", "--to", "2000-01-01").out == ""
    assert "is not a valid start position" in sealcast("sub", "quotes", "--as", "alice", "--from", "then").err
    again = sealcast("sub", "quotes", "--as", "bob", "--filter", "volume = 5")
    assert "subscription 'bob-2' added" in again.err and [e["payload"] for e in again.lines] == ["one", "two"]
    assert "added" not in sealcast("sub", "quotes", "--as", "bob", "--filter", "volume = 5").err


def test_status_and_refusals_of_every_broker(delivered: Path) -> None:
    one, two, three = sealcast("status", "--json").document["topics"]
    assert (one["broker"], one["parent"], two["parent"]) == ("quotes-node-1", None, "quotes-node-1")
    assert (one["frames"], one["backlog"], one["events"]["admitted"]) == (1, 0, 4)
    assert [t["lag"]["subscribers"] for t in (one, two, three)] == [{}, {"alice": 1}, {"bob": 2}]
    assert [t["filters"]["rows"] for t in (one, two, three)] == [2, 1, 1]
    assert [t["hops"]["waiting_records"] for t in (one, two, three)] == [0, 0, 0]
    shown = sealcast("status")
    assert "quotes (layered) at 'quotes-node-2', below 'quotes-node-1'" in shown.out
    assert "2 rows" in shown.out and "IBM" not in shown.out
    assert sealcast("rejected", "list").err == "nothing was refused\n"
    realm = Realm(delivered)
    with realm.frames("quotes", "quotes-node-1") as log:
        log.partition(log.own[0]).append([b"no frame"])
    pump(realm, "quotes")
    (refused,) = sealcast("rejected", "list", "--json").document["rejected"]
    assert (refused["reason"], refused["broker"]) == ("frame", "quotes-node-1")
    assert "frame" in sealcast("rejected", "list", "--topic", "quotes", "--reason", "frame").out
    assert "frame 1" in sealcast("status").out


def test_check_routes_again_and_says_what_it_cannot_judge(delivered: Path) -> None:
    good = sealcast("check")
    assert good.code == 0 and "ok" in good.out and "only they know their filters" in good.err
    document = sealcast("check", "quotes", "--json").document
    assert document["ok"] and document["topics"]["quotes"]["brokers_routed_again"] == 3
    assert document["topics"]["quotes"]["subscribers_opened"] == 2 and document["topics"]["quotes"]["lost"] is None
    (delivered / "entities" / "alice.key").rename(delivered / "alice.key")
    (delivered / "secrets" / "brokers" / "quotes-node-3.key").rename(delivered / "node-3.key")
    less = sealcast("check", "--json").document["topics"]["quotes"]
    assert (less["ok"], less["brokers_routed_again"], less["subscribers_opened"]) == (True, 2, 1)
    assert len(less["not_judged"]) == 3
    (piece,) = (delivered / "brokers" / "quotes-node-2" / "topics" / "quotes" / "hops" / "pieces").glob("*.piece")
    raw = bytearray(piece.read_bytes())
    raw[len(raw) // 2] ^= 1
    piece.write_bytes(raw)
    bad = sealcast("check")
    assert bad.code == 1 and "NOT OK" in bad.out and piece.name in bad.out


def test_a_broker_that_routes_otherwise_is_found_by_routing_again(home: Path) -> None:
    from dataclasses import replace

    from sealcast.wire.hops import HopPiece

    add("alice", "price > 0")
    add("bob", "price > 0")
    sealcast("pub", "quotes", "--as", "nyse", "--file", "events.jsonl")

    def withholds(piece: HopPiece) -> HopPiece:
        return replace(piece, recipients=("quotes-node-2", "zzz")) if piece.node == "quotes-node-1" else piece

    pump(Realm(home), "quotes", withholds)
    assert sealcast("sub", "quotes", "--as", "bob").out == ""
    found = sealcast("check", "--json").document
    assert not found["ok"] and "quotes-node-1" in found["problems"][0]["message"]


def test_why_says_how_far_an_event_came(delivered: Path) -> None:
    (event,) = sealcast("sub", "quotes", "--as", "alice", "--no-ack").lines
    position = f"quotes/{event['position']}"
    got = sealcast("why", position, "alice")
    assert got.code == 0 and "delivered" in got.out and f"true: {FILTER}" in got.out and "quotes-node-2" in got.out
    other = json.loads(sealcast("why", position.rsplit("/", 1)[0] + "/2", "alice", "--json").out)
    assert other["verdict"] == "not-handed-on" and other["publisher"] == "nyse"
    assert "cannot say why" in sealcast("why", position.rsplit("/", 1)[0] + "/2", "alice").err
    assert sealcast("why", "quotes/0/99/0", "alice", "--json").document["verdict"] == "waiting"
    assert "stands nowhere" in sealcast("why", position, "nyse").err


def test_moving_a_subscriber_moves_its_mailbox(delivered: Path) -> None:
    moved = sealcast("subscription", "move", "quotes", "--as", "bob", "--to", "quotes-node-2")
    assert moved.code == 0 and "'bob' is at broker 'quotes-node-2'" in moved.out
    sealcast("pub", "quotes", "--as", "nyse", "--file", "events.jsonl")
    pump(Realm(delivered), "quotes")
    assert [e["payload"] for e in sealcast("sub", "quotes", "--as", "bob").lines] == ["one", "two", "one", "two"]
    assert sealcast("check").code == 0
