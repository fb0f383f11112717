"""What newcomers get wrong: every refusal says what is wrong and what to do, without a traceback."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from sealcast import Realm, Schema
from tests.cli.shell import sealcast

SCHEMA = Schema.from_json(
    {"attributes": [{"name": "symbol", "type": "string"}, {"name": "price", "type": "int", "min": 0, "max": 999}]}
)

#: The command, its exit code, what is wrong, and what to do.
MISTAKES = (
    # wrong names
    ("topic show qoutes", 1, "no topic 'qoutes'", "did you mean 'quotes'?"),
    ("topics", 2, "no command 'topics'", "Did you mean 'topic'?"),
    ("pub qoutes --as nyse price=5", 1, "no topic 'qoutes'", "did you mean 'quotes'?"),
    ("pub quotes --as nobody price=5", 1, "no entity 'nobody'", "sealcast entity list"),
    ("grant quotes alcie publish", 1, "no entity 'alcie'", "did you mean 'alice'?"),
    ("entity revoke nobody", 1, "no entity 'nobody'", "sealcast entity list"),
    ("compromise nobody", 1, "no entity 'nobody'", "sealcast entity list"),
    ("audit --entity nobody", 1, "no entity 'nobody'", "sealcast entity list"),
    ("subscription remove 99", 1, "no subscription '99'", "sealcast subscription list"),
    ("run --node paris --once", 1, "no broker 'paris'", "sealcast broker add"),
    ("lab run nothing/table1", 1, "no experiment 'nothing/table1'", "sealcast lab list"),
    ("bench nothing", 1, "no suite 'nothing'", "the suites are"),
    ("context use nowhere", 1, "no context 'nowhere'", "sealcast context"),
    ("group show quotes w --as alice", 1, "no group 'w'", "--group w"),
    ("topic create bad/name --schema good.json", 1, "'bad/name' is no topic name", "A-Z a-z 0-9"),
    ("entity enrol ice!", 1, "'ice!' is no entity name", "A-Z a-z 0-9"),
    # names that are taken
    ("topic create quotes --schema good.json", 1, "exists already", "sealcast topic show quotes"),
    ("entity enrol alice", 1, "is enrolled already", "choose another name"),
    ("broker add broker", 1, "is enrolled already", "choose another name"),
    # missing files, and files that are something else
    ("topic create t2 --schema nowhere.json", 1, "nowhere.json: No such file", "looked for in"),
    ("topic create t2 --schema bad.json", 1, "bad.json is not JSON", '{"attributes": ['),
    ("topic create t2 --schema list.json", 1, "a schema is", '{"attributes": ['),
    ("pub quotes --as nyse --file nowhere.jsonl", 1, "No such file", "looked for in"),
    ("pub quotes --as nyse --file x.parquet", 1, "is not Parquet", "--format"),
    ("pub quotes --as nyse --file x.csv", 1, "column 'cost'", "rename or remove the column"),
    ("subscription add quotes --as alice --file bad.json", 1, "1 of 1 lines", '{"subscriber": "alice"'),
    ("backup nowhere/x", 1, "No such file", "there is no directory"),
    ("restore nothing.backup there", 1, "No such file", "looked for in"),
    ("relock nothing.key --by passphrase", 1, "nothing.key does not exist", "entities/NAME.key"),
    ("inspect nowhere", 1, "nowhere does not exist", "a key file"),
    ("inspect good.json", 1, "is JSON, but not a file that Sealcast writes", "name one of them"),
    ("filter eval --cases nowhere", 1, "No such file", "looked for in"),
    ("pub quotes --as nyse price=5 --key-file nowhere", 1, "nowhere does not exist", "sealcast relock"),
    # wrong types and values
    ("topic create t2 --schema odd.json", 1, "not 'money'", "type is one of int, float"),
    ("topic create t2 --schema good.json --protection secret", 1, "not 'secret'", "protection is one of endpoint"),
    ("topic create t2 --schema good.json --keep-frames forever", 1, "not 'forever'", "write 90s"),
    ("topic alter quotes --access everyone", 1, "not 'everyone'", "access is one of members"),
    ("pub quotes --as nyse price=abc", 1, "'abc' is not of type int", "attribute 'price'"),
    ("pub quotes --as nyse price=5000", 1, "above the maximum 999", "attribute 'price'"),
    ("pub quotes --as nyse cost=5", 1, "'cost=5' is not NAME=VALUE", "the attributes are symbol, price"),
    ("grant quotes alice read", 2, "'read'", "'publish', 'subscribe'"),
    ("sub quotes --as alice --filter 'cost > 5'", 1, "no attribute 'cost'", "there are symbol, price"),
    ("sub quotes --as alice --filter \"price > 'x'\"", 1, "does not compare", "numbers are written without quotes"),
    ("carrier add kafka nonsense://x", 1, "not the address of a carrier", "kafka://"),
    ("console --listen 1.2.3.4:80", 1, "not this machine alone", "sealcast gateway --console"),
    ("gateway --listen here", 2, "'here' is no address", "write HOST:PORT"),
    ("registry compare xyz", 1, "no head of a registry", "sealcast registry head"),
    ("join sealcast://localhost:1 --code abc", 1, "no invitation's code", "sealcast entity invite"),
    # wrong order, wrong place
    ("sub quotes --as alice", 1, "no subscription on topic", "sealcast subscription add quotes"),
    ("pub closed --as nyse price=5", 1, "may not publish", "sealcast grant closed nyse publish"),
    ("why quotes/0/99/0 alice", 1, "has no event 0/99/0", "partition/offset/row"),
    ("why 0/0 alice", 1, "the realm has 2 topics", "say which"),
    ("gateway", 1, "no gateway whose keys are here", "--role gateway --host"),
    ("gateway --console-admin alice", 2, "about the console", "give --console"),
    ("overlay add quotes paris --under x", 1, "has no overlay", "--protection layered"),
    ("topic delete quotes", 1, "cannot be undone", "--yes"),
    ("init realm", 1, "is a realm already", "--realm"),
    ("status --realm nowhere", 1, "nowhere", "sealcast init"),
)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("mistakes")
    realm = Realm.create(made / "realm")
    realm.create_topic("quotes", SCHEMA, access="members")
    realm.create_topic("closed", SCHEMA)
    realm.enrol_many(["nyse", "alice"])
    for name, text in {
        "bad.json": "{not json\n",
        "odd.json": '{"attributes": [{"name": "price", "type": "money"}]}',
        "list.json": "[]",
        "good.json": '{"attributes": [{"name": "price", "type": "int"}]}',
        "x.csv": "symbol,cost\nIBM,5\n",
        "x.parquet": "no",
    }.items():
        (made / name).write_text(text)
    return made


@pytest.mark.parametrize(("command", "code", "what", "todo"), MISTAKES, ids=[each[0] for each in MISTAKES])
def test_a_mistake_is_named_with_its_remedy(
    place: Path, command: str, code: int, what: str, todo: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(place)
    monkeypatch.setenv("SEALCAST_REALM", str(place / "realm"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(place / "config"))
    found = sealcast(*shlex.split(command))
    assert found.code == code
    assert what in found.err and todo in found.err, found.err
    assert "Traceback" not in found.err
