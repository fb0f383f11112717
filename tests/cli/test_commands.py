"""Every command as a new user meets it: what it says, to which stream, with which exit code."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from sealcast.cli import talk
from sealcast.trust.deployment import Realm
from tests.cli.conftest import EVENTS
from tests.cli.shell import sealcast, write_lines
from tests.clients.pump import pump

# --- a realm and who is in it ----------------------------------------------------------------------------------


def test_init_says_what_next(tmp_path: Path) -> None:
    result = sealcast("init", tmp_path / "r", "--name", "trading")
    assert result.out == f"realm 'trading' made in {tmp_path / 'r'}\n"
    assert "sealcast topic create" in result.err
    document = sealcast("init", tmp_path / "s", "--json").document
    assert document["realm"] == str(tmp_path / "s") and len(document["id"]) == 32


def test_a_realm_is_found_by_option_variable_and_place(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir("/")
    assert sealcast("topic", "list").code == 1
    assert sealcast("topic", "list", "--realm", home).code == 0
    monkeypatch.setenv("SEALCAST_REALM", str(home))
    assert sealcast("topic", "list").code == 0
    monkeypatch.setenv("SEALCAST_REALM", "/nowhere")
    assert sealcast("--realm", home, "topic", "list").code == 0


def test_topics(home: Path) -> None:
    write_lines(home / "more.json", {"attributes": [{"name": "when", "type": "timestamp", "step": 1000}]})
    made = sealcast("topic", "create", "clock", "--schema", "more.json", "--partitions", 4, "--access", "granted")
    assert made.out == "topic 'clock' created (granted, 4 partitions)\n"
    listed = sealcast("topic", "list", "--json").document["topics"]
    assert [(t["topic"], t["access"], t["partitions"]) for t in listed] == [
        ("quotes", "members", 1),
        ("clock", "granted", 4),
    ]
    assert "quotes" in sealcast("topic", "list").out
    assert "when timestamp step 1000 ms" in sealcast("topic", "show", "clock").out
    assert "price decimal min 0.00 max 1000.00 step 0.01" in sealcast("topic", "show", "quotes").out
    shown = sealcast("topic", "show", "quotes", "--json").document
    assert shown["schema"]["attributes"][1]["step"] == "0.01"
    assert [t["topic"] for t in sealcast("topic", "find", "PRIC", "--json").document["topics"]] == ["quotes"]
    assert [t["topic"] for t in sealcast("topic", "find", "clo", "--json").document["topics"]] == ["clock"]
    nothing = sealcast("topic", "find", "zzz")
    assert (nothing.code, nothing.out) == (0, "") and "no topic has 'zzz'" in nothing.err


def test_entities_and_rights(home: Path) -> None:
    enrolled = sealcast("entity", "enrol", "carol", "--json").document["entities"][0]
    assert enrolled["keys"] == str(home / "entities" / "carol.key")
    assert enrolled["topics"] == {"quotes": ["publish", "subscribe"]}
    taken = sealcast("revoke", "quotes", "carol", "publish")
    assert re.fullmatch(r"'carol' may subscribe on 'quotes' \(version \d+\)\n", taken.out)
    assert sealcast("grant", "quotes", "carol", "publish", "--json").document["may"] == ["publish", "subscribe"]
    revoked = sealcast("entity", "revoke", "carol").out
    found = re.search(r"revoked at version (\d+)", revoked)
    assert found is not None
    at = int(found[1])
    assert f"revoked at version {at}" in sealcast("entity", "list").out
    standing = {e["entity"]: e["revoked_at_version"] for e in sealcast("entity", "list", "--json").document["entities"]}
    assert standing.items() >= {"nyse": None, "alice": None, "bob": None, "carol": at}.items()
    refused = sealcast("pub", "quotes", "--as", "carol", "--file", "/dev/null")
    assert refused.code == 1 and f"'carol' was revoked (at version {at}) and may not publish" in refused.err


# --- subscriptions ---------------------------------------------------------------------------------------------


def test_a_bad_filter_is_shown_with_its_place(home: Path) -> None:
    result = sealcast("subscription", "add", "quotes", "--as", "alice", "--filter", "price > 1 AND symbl = 'IBM'")
    assert result.code == 1
    assert "    price > 1 AND symbl = 'IBM'\n" + " " * 18 + "^\n" in result.err
    assert "did you mean symbol?" in result.err
    told = sealcast("subscription", "add", "quotes", "--as", "alice", "--filter", "price >", "--json").document
    assert (told["error"], told["kind"], told["at"]) == ("filter", "syntax", 7)


def test_long_and_broken_filters_are_marked_in_one_line() -> None:
    shown, caret = talk.marked("a = 1 AND\n" + "b = 2 AND " * 40 + "c = 3", 310).splitlines()
    assert len(shown) <= 120 and shown[len(caret) - 1] == ("b = 2 AND " * 40)[300]
    assert talk.marked("ab\ncd", 4) == "    cd\n     ^"
    assert talk.marked("", 0) == "    \n    ^"


def test_a_filter_that_nothing_matches_is_legal_and_remarked_on(home: Path) -> None:
    result = sealcast("subscription", "add", "quotes", "--as", "alice", "--filter", "price > 2000")
    assert result.code == 0
    assert result.err.startswith("warning: no event can match this filter")
    assert result.out == "subscription 'alice-1' added: 'alice' on 'quotes'\n"


def test_subscriptions_from_a_file_all_or_none(home: Path) -> None:
    good = [{"subscriber": "alice", "filter": f"price > {i}"} for i in range(30)]
    bad = write_lines(
        home / "bad.jsonl",
        good[0],
        "nonsense",
        {"subscriber": "bob", "filter": "prise < 1"},
        {"id": 7},
        {"subscriber": "bop", "filter": "price < 1"},
    )
    refused = sealcast("subscription", "add", "quotes", "--file", bad, "--json")
    assert refused.code == 1
    assert [line["line"] for line in refused.document["lines"]] == [2, 3, 4, 5]
    assert f"{bad}:2: not JSON" in refused.err
    assert f"{bad}:3: the schema has no attribute 'prise'" in refused.err
    assert f"{bad}:5: there is no entity 'bop' in this realm (did you mean 'bob'?)" in refused.err
    assert "4 of 5 lines" in refused.err and "nothing was added" in refused.err
    assert sealcast("subscription", "list", "--json").document == {"subscriptions": []}
    added = sealcast("subscription", "add", "quotes", "--file", write_lines(home / "good.jsonl", *good))
    assert added.code == 0 and added.out.count("added") == 20 and "... and 10 more" in added.out
    named = write_lines(home / "named.jsonl", {"filter": "price < 5", "id": "mine"})
    assert sealcast("subscription", "add", "quotes", "--file", named, "--as", "bob").code == 0
    assert sealcast("subscription", "remove", "mine", "alice-1").code == 0
    listed = sealcast("subscription", "list", "--topic", "quotes", "--as", "bob", "--json").document
    assert listed == {"subscriptions": []}
    assert len(sealcast("subscription", "list", "--json").document["subscriptions"]) == 29


# --- events ----------------------------------------------------------------------------------------------------


def test_pub_names_bad_lines_and_publishes_the_good_ones(home: Path) -> None:
    lines = write_lines(
        home / "events.jsonl",
        EVENTS[0],
        {"attributes": {"price": 1.005}},
        "",
        "{broken",
        {"attributes": {"price": 5000}, "payload": "x"},
        {"payload": "no attributes"},
        {"attributes": {}, "payload": "a", "payload_base64": "YQ=="},
        {"attributes": {}, "payload_base64": "%%%"},
        {"attributes": {}, "payload": 5},
        {"attributes": {}, "extra": 5},
        '{"attributes": {"price": NaN}}',
        EVENTS[3],
    )
    result = sealcast("pub", "quotes", "--as", "nyse", "--file", lines)
    assert result.code == 1
    assert result.out == "0/0/0\n0/0/1\n"
    told = [line for line in result.err.splitlines() if line.startswith("line ")]
    assert [line.split(":")[0] for line in told] == [f"line {n}" for n in (2, 4, 5, 6, 7, 8, 9, 10, 11)]
    assert told[0] == "line 2: attribute 'price': 1.005 is off the grid of step 0.01"
    assert "NaN is no number in JSON" in told[-1]
    assert result.err.endswith("2 published, 9 refused\n")
    document = sealcast("pub", "quotes", "--as", "nyse", "--file", lines, "--json").document
    assert document["published"] == 2 and document["refused"] == 9
    assert document["positions"] == ["0/1/0", "0/1/1"]
    assert document["errors"][0]["attribute"] == "price"


def test_sub_prints_acknowledges_and_starts_anywhere(delivered: Path) -> None:
    first = sealcast("sub", "quotes", "--as", "alice")
    assert first.code == 0
    one, three = first.lines
    assert one["attributes"] == {"symbol": "IBM", "price": "101.50", "volume": 5}
    assert (one["payload"], one["publisher"], one["position"], one["sequence"]) == ("one", "nyse", "0/0/0", 0)
    assert one["published_at"].endswith("Z") and one["content_type"] == "text/plain; charset=utf-8"
    assert "payload" not in three and three["payload_base64"] == "AP8="
    assert three["attributes"]["volume"] is None
    assert sealcast("sub", "quotes", "--as", "alice").out == "", "acknowledged"
    assert sealcast("sub", "quotes", "--as", "alice", "--from", "0").lines == first.lines
    assert sealcast("sub", "quotes", "--as", "alice", "--from", "0/0/2", "--json").document["events"] == [three]
    assert sealcast("sub", "quotes", "--as", "alice", "--from", "end").lines == []
    assert sealcast("sub", "quotes", "--as", "alice", "--from", "2020-01-01T00:00:00Z").lines == first.lines
    misplaced = sealcast("sub", "quotes", "--as", "alice", "--from", "noon")
    assert misplaced.code == 1 and "is not a valid start position" in misplaced.err


def test_sub_without_acknowledging(delivered: Path) -> None:
    for _ in range(2):
        got = sealcast("sub", "quotes", "--as", "bob", "--no-ack").lines
        assert [e["payload"] for e in got] == ["one", "two"]
    assert [e["payload"] for e in sealcast("sub", "quotes", "--as", "bob", "--max", 1).lines] == ["one"]
    assert [e["payload"] for e in sealcast("sub", "quotes", "--as", "bob", "--max", 9).lines] == ["two"]


def test_sub_with_a_filter_subscribes_once(delivered: Path) -> None:
    for expected in (["alice-2"], []):
        result = sealcast("sub", "quotes", "--as", "alice", "--filter", "volume IS NULL", "--no-ack")
        assert result.code == 0
        assert ("subscription 'alice-2' added" in result.err) == bool(expected)
    assert "1 other subscription here" in result.err
    assert sealcast("pub", "quotes", "--as", "nyse", "--file", delivered / "events.jsonl").code == 0
    pump(Realm(delivered), "quotes")
    got = sealcast("sub", "quotes", "--as", "alice", "--from", "2").lines
    assert [e["position"] for e in got] == ["0/1/0", "0/1/1", "0/1/2", "0/1/3"]


# --- what happened ---------------------------------------------------------------------------------------------


def test_status_counts_everything(delivered: Path) -> None:
    sealcast("sub", "quotes", "--as", "bob", "--max", 1)
    sealcast("pub", "quotes", "--as", "nyse", "--file", delivered / "events.jsonl")
    (topic,) = sealcast("status", "--json").document["topics"]
    assert (topic["frames"], topic["backlog"], topic["batches"]) == (2, 1, 1)
    assert topic["events"] == {"admitted": 4, "matched": 3, "deliveries": 4, "encryptions": 4}
    assert topic["lag"] == {"total": 3, "subscribers": {"alice": 2, "bob": 1}}
    assert topic["rejected"] == {}
    shown = sealcast("status", "--topic", "quotes").out
    assert "2 published, 1 waiting for the pipeline" in shown
    assert "4 admitted, 3 matched, 4 deliveries" in shown


def test_refusals_are_listed_with_their_reason(delivered: Path) -> None:
    sealcast("pub", "quotes", "--as", "nyse", "--file", delivered / "events.jsonl")
    sealcast("entity", "revoke", "nyse")
    pump(Realm(delivered), "quotes")
    (refused,) = sealcast("rejected", "list", "--json").document["rejected"]
    assert (refused["reason"], refused["offset"], refused["row"], refused["events"]) == ("revoked", 1, None, 4)
    assert sealcast("rejected", "list", "--reason", "signature", "--json").document == {"rejected": []}
    assert "the certificate of 'nyse' was revoked" in sealcast("rejected", "list", "--topic", "quotes").out
    assert sealcast("status", "--json").document["topics"][0]["rejected"] == {"revoked": 4}
    assert "revoked 4" in sealcast("status").out


def test_explain_says_who_learns_what(delivered: Path) -> None:
    document = sealcast("explain", "quotes", "--json").document
    assert document["protection"] == "endpoint"
    assert len(document["parties"]) == 5 and all(p["learns"] and p["cannot"] for p in document["parties"])
    text = sealcast("explain", "quotes").out
    assert "2 ever subscribed, 2 of them may read now" in text
    assert "whoever has secrets/broker.key and what unlocks it is the broker" in text


# --- inspect ---------------------------------------------------------------------------------------------------


def artefacts(home: Path) -> dict[str, str]:
    topic = home / "topics" / "quotes"
    (piece,) = (topic / "pieces").glob("*.piece")
    (segment,) = (topic / "frames" / "0").glob("*.seg")
    return {
        str(home): "a realm",
        str(home / "realm.json"): "a realm's mark",
        str(home / "registry.sqlite"): "a realm's registry",
        str(home / "secrets" / "broker.key"): "the trusted broker's secrets",
        str(home / "entities" / "alice.key"): "an entity's private keys",
        str(topic / "frames" / "0"): "a partition of a topic's frame log",
        str(segment): "a segment of a log",
        str(topic / "ledger"): "a topic's ledger",
        str(piece): "a sealed piece: what one task of the pipeline delivered",
        str(topic / "cursors" / "alice.cursor"): "a subscriber's durable cursor",
    }


def test_inspect_knows_everything_we_write_and_shows_no_secret(delivered: Path) -> None:
    from sealcast.errors import NotFound
    from sealcast.log.embedded import EmbeddedLog
    from sealcast.trust.vault import keyfile, unlock

    sealcast("sub", "quotes", "--as", "alice")
    with EmbeddedLog(delivered / "topics" / "quotes" / "frames" / "0", read_only=True) as log:
        (delivered / "one.frame").write_bytes(next(iter(log.read(0))).data)
    known = artefacts(delivered) | {
        str(delivered / "one.frame"): "a frame: one publisher's batch of events",
        str(unlock.key_path()): "an unlock key",
    }
    secrets = [
        value
        for name in ("secrets/broker.key", "entities/alice.key")
        for value in keyfile.read(delivered / name, keyfile.look(delivered / name).kind, NotFound(name)).values()
        if value not in ("alice", "broker")
    ]
    assert len(secrets) >= 6
    for path, what in known.items():
        result = sealcast("inspect", path)
        assert result.code == 0, result.err
        assert result.out.startswith(f"{path}: {what}\n")
        document = sealcast("inspect", path, "--json").document
        assert document["is"] == what and document["reveals"] and document["hides"]
        for output in (result.out, json.dumps(document)):
            assert not any(secret in output for secret in secrets)
            assert "IBM" not in output and "101.5" not in output


@pytest.mark.parametrize("which", ["pieces/*.piece", "frames/0/*.seg"])
def test_inspect_names_damage(delivered: Path, which: str) -> None:
    (path,) = (delivered / "topics" / "quotes").glob(which)
    data = bytearray(path.read_bytes())
    path.write_bytes(data[: len(data) - 3])
    result = sealcast("inspect", path)
    assert result.code == 1 and result.err.startswith("refused: ")


def test_inspect_refuses_what_is_not_ours(home: Path) -> None:
    (home / "note.txt").write_text("hello")
    for path in ("note.txt", "schema.json", "/dev/null", "topics"):
        result = sealcast("inspect", path)
        assert result.code == 1 and result.err.startswith("refused: "), path


# --- filter eval -----------------------------------------------------------------------------------------------


def test_filter_eval_answers_every_line(tmp_path: Path) -> None:
    cases = write_lines(
        tmp_path / "cases.jsonl",
        {"filter": "price > 10", "attributes": {"price": 11}},
        {"filter": "price > 10", "attributes": {"price": 9}},
        {"filter": "price > 10", "attributes": {}},
        {"filter": "price >", "attributes": {}},
        "nonsense",
    )
    with cases.open("ab") as file:
        file.write(b'{"filter": "a = \'\xff\'", "attributes": {}}\n')
    for flags in ((), ("--json",)):
        result = sealcast("filter", "eval", "--cases", cases, *flags)
        assert result.code == 0
        assert [line.get("result", "none") for line in result.lines] == [True, False, None, "none", "none", "none"]
        assert result.lines[3]["error"]["at"] == 7
