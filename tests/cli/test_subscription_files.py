"""`sealcast subscription add --file`: JSON Lines and CSV; every line of a file is added, or none."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from sealcast import Realm, Schema
from sealcast.model.protection import PROTECTIONS
from tests.cli.shell import sealcast

SCHEMA = Schema.from_json({"attributes": [{"name": "price", "type": "int", "min": 0, "max": 255}]})
TOPIC = "quotes"
JSON = """{"subscriber": "alice", "filter": "price > 100", "id": "a-1"}

{"filter": "price <= 7", "subscriber": "bob"}
"""
CSV = "\ufefffilter,subscriber,id\r\nprice > 100,alice,a-1\r\n\r\nprice <= 7,bob,\r\n"


def named(id: str) -> str:
    return f'{{"filter": "price > 1", "subscriber": "bob", "id": "{id}"}}\n'


@pytest.fixture
def realm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Realm:
    made = Realm.create(tmp_path / "realm")
    made.create_topic(TOPIC, SCHEMA, access="members")
    made.enrol_many(["alice", "bob"])
    monkeypatch.setenv("SEALCAST_REALM", str(made.paths.root))
    return made


def written(realm: Realm, name: str, text: str) -> Path:
    path = realm.paths.root.parent / name
    path.write_bytes(text.encode())
    return path


@pytest.mark.parametrize(("name", "text"), [("asked.jsonl", JSON), ("asked.CSV", CSV)])
def test_a_file_is_one_transaction(realm: Realm, name: str, text: str) -> None:
    before = realm.registry.version()
    done = sealcast("subscription", "add", TOPIC, "--file", written(realm, name, text), "--json")
    assert done.code == 0, done.err
    added = [(each["id"], each["subscriber"], each["filter"]) for each in done.document["subscriptions"]]
    assert added == [("a-1", "alice", "price > 100"), ("bob-1", "bob", "price <= 7")]
    with closing(sqlite3.connect(realm.paths.registry)) as connection:
        signed = connection.execute("SELECT count(*) FROM changes WHERE signed != '' AND version > ?", (before,))
        assert signed.fetchone() == (1,), "whoever is killed has added all of them, or none"


def test_lines_without_a_subscriber_are_theirs_who_was_named(realm: Realm) -> None:
    path = written(realm, "own.csv", 'filter\n"price IN (1, 2)"\nprice > 9\n')
    assert sealcast("subscription", "add", TOPIC, "--as", "bob", "--file", path).code == 0
    assert [each.subscriber for each in realm.state().subscriptions_of(TOPIC)] == ["bob", "bob"]


@pytest.mark.parametrize(
    ("name", "text", "line", "said"),
    [
        ("bad.jsonl", JSON + "nonsense\n", 4, "not JSON"),
        ("bad.jsonl", JSON + '{"filter": "prise > 1", "subscriber": "bob"}\n', 4, "prise"),
        ("bad.jsonl", JSON + '{"filter": "price > 1"}\n', 4, "subscriber and filter are texts"),
        ("bad.jsonl", JSON + '{"filter": "price > 1", "subscriber": "eve"}\n', 4, "no entity 'eve'"),
        ("bad.jsonl", JSON + named("a-1"), 4, "is that of line 1, too"),
        ("bad.jsonl", JSON + named("taken"), 4, "was given before"),
        ("bad.jsonl", JSON + named("../x"), 4, "'../x'"),
        ("bad.csv", CSV + "price > 1,bob\r\n", 5, "it has 2 cells, and the header has 3"),
        ("bad.csv", CSV + 'price > 1,"bob\r\n', 5, "not CSV"),
    ],
)
def test_a_line_that_is_refused_is_named_and_nothing_is_added(
    realm: Realm, name: str, text: str, line: int, said: str
) -> None:
    realm.subscribe(TOPIC, "bob", "price > 0", "taken")
    before = realm.registry.version()
    refused = sealcast("subscription", "add", TOPIC, "--file", written(realm, name, text), "--json")
    assert refused.code == 1 and f"{name}:{line}: " in refused.err and said in refused.err, refused.err
    assert [each["line"] for each in refused.document["lines"]] == [line]
    assert "nothing was added" in refused.document["message"] and realm.registry.version() == before


@pytest.mark.parametrize("text", ["", "price,volume\n1,2\n", "filter,filter\na,b\n"])
def test_a_csv_without_its_header_is_refused(realm: Realm, text: str) -> None:
    refused = sealcast("subscription", "add", TOPIC, "--file", written(realm, "x.csv", text))
    assert refused.code == 1 and "columns are filter, subscriber and id" in refused.err


@pytest.mark.parametrize("name", PROTECTIONS)
def test_every_protection_takes_many_at_once(realm: Realm, name: str) -> None:
    realm.create_topic("many", SCHEMA, access="members", protection=name)
    if realm.state().topic("many").protection.overlay:
        realm.place_node("many", "broker")
    made = sealcast("subscription", "add", "many", "--file", written(realm, "asked.jsonl", JSON), "--json")
    assert made.code == 0, made.err
    assert [each["filter"] for each in made.document["subscriptions"]] == ["price > 100", "price <= 7"]
    before = realm.registry.version()
    bad = written(realm, "bad.jsonl", JSON.replace("a-1", "a-2") + '{"filter": "prise = 1", "subscriber": "bob"}\n')
    refused = sealcast("subscription", "add", "many", "--file", bad)
    assert refused.code == 1 and "bad.jsonl:4: " in refused.err and realm.registry.version() == before
