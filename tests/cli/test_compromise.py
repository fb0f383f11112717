"""sealcast compromise, audit and replay, as they are typed."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from sealcast.trust.deployment import Realm
from tests.cli.shell import sealcast, write_lines
from tests.clients.pump import pump

PAST = "2020-01-01"


@pytest.fixture
def begun(delivered: Path) -> Path:
    """mallory subscribes, too, and gets what comes after."""
    assert sealcast("entity", "enrol", "mallory").code == 0
    assert sealcast("subscription", "add", "quotes", "--as", "mallory", "--filter", "price > 0").code == 0
    more = write_lines(delivered / "more.jsonl", {"attributes": {"symbol": "IBM", "price": 500}, "payload": "late"})
    assert sealcast("pub", "quotes", "--as", "nyse", "--file", more).code == 0
    pump(Realm(delivered), "quotes")
    return delivered


def matrix(document: Any, entity: str) -> dict[str, dict[str, object]]:
    (row,) = (row for row in document["matrix"] if row["entity"] == entity)
    return {when: row[when] for when in ("before", "after")}


def test_before_and_after_everybody_tries(begun: Path) -> None:
    result = sealcast("compromise", "mallory", "--yes", "--json")
    assert result.code == 0, result.err
    done = result.document
    assert done["over"] and done["unharmed"] and done["tried"]
    mallory, alice = matrix(done, "mallory"), matrix(done, "alice")
    assert mallory["before"] == {"opened": 1, "tried": 1, "publishes": "admitted"}
    assert mallory["after"] == {"opened": 0, "tried": 0, "publishes": "revoked"}
    assert alice["before"] == alice["after"] == {"opened": 3, "tried": 3, "publishes": "admitted"}
    assert [topic["epoch"] for topic in done["topics"]] == [2]
    assert done["resealed"][0]["removed"] == 2 and not done["unserved"]
    assert len(sealcast("sub", "quotes", "--as", "alice", "--json").document["events"]) == 3
    assert sealcast("check", "quotes").code == 0
    assert sealcast("sub", "quotes", "--as", "mallory").code == 1


def test_again_it_does_nothing_and_says_the_same(begun: Path) -> None:
    first = sealcast("compromise", "mallory", "--yes", "--json").document
    again = sealcast("compromise", "mallory", "--yes", "--json").document
    assert again["done_before"] and again["version"] == first["version"] and not again["resealed"]
    assert matrix(again, "alice") == matrix(first, "alice")
    assert matrix(again, "mallory")["before"] == matrix(first, "mallory")["before"] and again["over"]
    assert "none of its keys is valid" in sealcast("compromise", "mallory", "--yes").out


def test_cut_short_after_the_transaction_it_is_finished_by_the_next_run(
    begun: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from sealcast.pipeline import reseal

    def killed(*arguments: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(reseal, "run", killed)
        assert sealcast("compromise", "mallory", "--yes").code == 130
    assert Realm(begun).state().entity("mallory").revoked
    done = sealcast("compromise", "mallory", "--yes", "--json").document
    assert done["continued"] and done["done_before"] and done["over"] and done["unharmed"]
    assert matrix(done, "mallory")["before"]["opened"] == 1


def test_a_key_center_and_whoever_is_not_here(begun: Path) -> None:
    done = sealcast("compromise", "center", "--yes", "--json").document
    assert matrix(done, "center")["before"]["opened"] == 4 and matrix(done, "center")["after"]["opened"] == 0
    assert done["topics"][0]["center"] == "center-2" and done["over"] and done["unharmed"]
    (begun / "entities" / "bob.key").unlink()
    result = sealcast("compromise", "bob", "--yes")
    assert result.code == 0 and "nobody tried them" in result.err, "nothing is left that names it"
    again = sealcast("compromise", "bob", "--yes", "--json").document
    assert again["over"] and not again["tried"] and matrix(again, "bob")["after"]["publishes"] == "revoked"
    assert sealcast("compromise", "nobody-of-that-name", "--yes").code == 1


def test_a_broker_that_is_the_only_one(begun: Path) -> None:
    result = sealcast("compromise", "broker", "--yes", "--json")
    done = result.document
    assert result.code == 1 and done["unserved"] == ["quotes"] and not done["unharmed"], "nobody takes frames now"
    assert matrix(done, "broker")["before"]["opened"] == 4 and done["over"]
    assert matrix(done, "alice")["after"] == {"opened": 3, "tried": 3, "publishes": "no"}, "what lay there is readable"
    assert sealcast("entity", "enrol", "east", "--role", "broker").code == 0
    assert sealcast("topic", "serve", "quotes", "east").code == 0
    assert sealcast("compromise", "broker", "--yes").code == 0
    assert len(sealcast("sub", "quotes", "--as", "alice", "--json").document["events"]) == 3


def test_whom_a_broker_served_others_serve(begun: Path) -> None:
    """It never ran: it has sealed nothing, and there is nothing to be removed. alice misses nothing."""
    assert sealcast("broker", "add", "east").code == 0
    assert sealcast("topic", "serve", "quotes", "east").code == 0
    assert sealcast("subscription", "move", "quotes", "--as", "alice", "--to", "east").code == 0
    assert sealcast("pub", "quotes", "--as", "nyse", "--file", begun / "more.jsonl").code == 0
    result = sealcast("compromise", "east", "--yes", "--json")
    assert result.code == 1 and result.document["over"] is False, "its keys open a frame that waits to be sealed"
    assert result.document["forgotten"][0]["left"] == 6 and result.document["unharmed"]
    assert result.document["moved"] == [{"topic": "quotes", "subscriber": "alice", "broker": "broker"}]
    assert sealcast("pub", "quotes", "--as", "nyse", "--file", begun / "more.jsonl").code == 0
    pump(Realm(begun), "quotes")
    events = sealcast("sub", "quotes", "--as", "alice", "--json").document["events"]
    assert [event["position"] for event in events] == ["0/0/0", "0/0/2", "0/1/0", "0/2/0", "0/3/0"]
    again = sealcast("compromise", "east", "--yes", "--json")
    assert again.code == 0 and again.document["over"] and again.document["forgotten"][0]["left"] == 0
    assert again.document["moved"] == [], "once"


def test_audit_says_who_could_when_and_why(begun: Path) -> None:
    before = Realm(begun).registry.version()
    assert sealcast("compromise", "mallory", "--yes").code == 0
    table = sealcast("audit", "--entity", "mallory")
    assert table.code == 0 and "revoke-entity" in table.out and "access=members" in table.out
    then = sealcast("audit", "--at", before, "--topic", "quotes", "--json").document
    assert {r["entity"] for r in then["rights"] if r["right"] == "subscribe"} >= {"alice", "mallory"}
    now = sealcast("audit", "--at", "2099-01-01", "--json").document
    assert "mallory" not in {r["entity"] for r in now["rights"]}
    since = sealcast("audit", "--since", Realm(begun).registry.version(), "--json").document
    assert "mallory" not in {r["entity"] for r in since["rights"]}
    got = {row["entity"]: row for row in sealcast("audit", "--received", "--json").document["received"]}
    assert got["mallory"]["withdrawn"] == 1 and not got["mallory"]["deliveries"]
    assert got["alice"]["deliveries"] == 3 and got["alice"]["sealed_again"] == 3
    assert sealcast("audit", "--at", "0").code == 1 and sealcast("audit", "--entity", "nobody").code == 1
    assert "mallory" in sealcast("audit", "--received").out


def test_a_replay_is_by_the_rights_of_now(begun: Path) -> None:
    ask = ("replay", "quotes", "--as", "mallory", "--from", PAST, "--json", "--filter")
    done = sealcast(*ask, "price > 100").document
    assert [event["payload"] for event in done["events"] if "payload" in event] == ["one", "late"]
    assert len(done["events"]) == 3, "also what came before it was here"
    assert sealcast("grant", "quotes", "mallory", "subscribe", "--template", "symbol=AAPL", "--narrow").code == 0
    assert [e["attributes"]["symbol"] for e in sealcast(*ask, "price > 100").document["events"]] == ["AAPL"]
    assert sealcast("revoke", "quotes", "mallory", "subscribe").code == 0
    refused = sealcast(*ask, "price > 100")
    assert refused.code == 1 and "may not subscribe" in refused.err
    got = {row["entity"]: row for row in sealcast("audit", "--received", "--json").document["received"]}
    assert got["mallory"]["replayed"] == 4
    assert sealcast(*ask, "prise > 100").code == 1


def test_a_replay_needs_no_subscription_and_leaves_the_mailbox_alone(begun: Path) -> None:
    assert sealcast("entity", "enrol", "newcomer").code == 0
    lines = sealcast("replay", "quotes", "--as", "newcomer", "--from", PAST, "--filter", "symbol = 'IBM'")
    assert [line["payload"] for line in lines.lines] == ["one", "two", "late"]
    assert "3 events replayed" in lines.err
    nothing = sealcast("replay", "quotes", "--as", "alice", "--from", PAST, "--to", "2020-01-02", "--filter", "TRUE")
    assert nothing.code == 0 and not nothing.out
    assert len(sealcast("sub", "quotes", "--as", "alice", "--json").document["events"]) == 3
    assert sealcast("check", "quotes").code == 0
    (begun / "secrets" / "broker.key").unlink()
    assert sealcast("replay", "quotes", "--as", "alice", "--from", PAST, "--filter", "price > 1").code == 1


def test_a_span_of_what_was_delivered_to_oneself(begun: Path) -> None:
    time.sleep(0.002)
    sub = ("sub", "quotes", "--as", "alice", "--json", "--from", PAST, "--to")
    assert sealcast(*sub, "2020-01-02").document["events"] == []
    assert len(sealcast(*sub, "2099-01-01").document["events"]) == 3
    assert len(sealcast("sub", "quotes", "--as", "alice", "--json").document["events"]) == 3, "the cursor stayed"
    assert sealcast("sub", "quotes", "--as", "alice", "--to", "2099-01-01", "--follow").code == 2


def test_replays_obey_after_a_compromise(begun: Path) -> None:
    assert sealcast("replay", "quotes", "--as", "mallory", "--from", PAST, "--filter", "price > 100").code == 0
    done = sealcast("compromise", "mallory", "--yes", "--json").document
    assert matrix(done, "mallory")["before"]["opened"] == 1 + 3, "what lay there for it, and what was replayed"
    assert matrix(done, "mallory")["after"]["opened"] == 0
    assert sealcast("replay", "quotes", "--as", "mallory", "--from", PAST, "--filter", "price > 0").code == 1
    lines = sealcast("replay", "quotes", "--as", "bob", "--from", PAST, "--filter", "price > 400")
    assert [line["payload"] for line in lines.lines] == ["late"]
