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
    ("subscription add quotes --as alice 'price > 5'", 2, "stands alone", "--as alice --filter 'price > 5'"),
    ("subscription add quotes price '>' 5", 2, "stands alone", "add quotes --as ENTITY --filter 'price > 5'"),
    ("status qotes", 1, "no topic 'qotes'", "did you mean 'quotes'"),
    ("check --topic qotes", 1, "no topic 'qotes'", "did you mean 'quotes'"),
    ("rejected list qotes", 1, "no topic 'qotes'", "did you mean 'quotes'"),
    ("audit quotes --topic closed", 2, "of one topic", "'closed'"),
    ("pub closed --as nyse price=5", 1, "may not publish", "sealcast grant closed nyse publish"),
    ("why quotes/0/99/0 alice", 1, "has no event 0/99/0", "partition/offset/row"),
    ("why 0/0 alice", 1, "the realm has 2 topics", "say which"),
    ("gateway", 1, "no gateway whose keys are here", "--role gateway --host"),
    ("gateway --console-admin alice", 2, "about the console", "give --console"),
    ("overlay add quotes paris --under x", 1, "has no overlay", "--protection layered"),
    ("topic delete quotes", 1, "cannot be undone", "--yes"),
    ("init realm", 1, "is a realm already", "--realm"),
    # what other tools have
    ("help", 2, "no command 'help'", "'--help'"),
    ("publish quotes price=5", 2, "no command 'publish'", "'pub'"),
    ("subscribe quotes", 2, "no command 'subscribe'", "'sub'"),
    ("completion bash", 2, "no command 'completion'", "'--install-completion'"),
    ("token check x", 2, "no command 'check' here", "There are"),
    ("topic describe quotes", 2, "no command 'describe' here", "create, alter"),
    ("sub quotes --as alice --filter \"symbol == 'IBM'\"", 1, "not '='", "write one ="),
    ("sub quotes --as alice --filter 'price > 3 && price < 5'", 1, "'&' begins nothing", "write AND"),
    ("sub quotes --as alice --filter ''", 1, "the filter is empty", "TRUE matches every event"),
    ("sub quotes --as alice --format '{pubisher}'", 1, "no field of an event", "{publisher}"),
    ("sub quotes --as alice --format '{attributes[prize]}'", 1, "no field of an event", "one of symbol, price"),
    ("sub quotes --as alice --format '{'", 1, "braces", "{{ for a brace"),
    ("sub quotes --as alice --format '{payload}' --cloudevents", 2, "--cloudevents prints JSON", "one of them"),
    ("sub quotes --as alice --to yesterday", 1, "not 'yesterday'", "write 2026-08-01"),
    ("sub quotes --as alice --spacing 1s", 2, "for a stream", "--follow"),
    ("sub quotes --as alice --group w --no-ack", 2, "--group is for work that is done once", "--no-ack away"),
    ("sub quotes", 2, "Missing option '--as'", "SEALCAST_AS"),
    ("sub quotes --as alice --count 0", 2, "--count", "greater than or equal to 1"),
    ("pub quotes --as nyse price=5 --file good.json", 2, "are one event", "give one of them"),
    ("pub quotes --as nyse --file good.json --format xml", 2, "'xml' is not one of", "'jsonl', 'csv'"),
    ("topic create t2 --schema empty.json", 1, "is not JSON", '{"attributes": ['),
    ("topic create t2 --schema dup.json", 1, "declared twice", "'price'"),
    ("topic create t2 --schema upside.json", 1, "min 9 is above max 1", "'price'"),
    ("topic create t2 --schema dir", 1, "Is a directory", "name a file"),
    ("topic create t2 --schema good.json --layers 2", 1, "is for layered topics", "--protection layered"),
    ("topic create t2 --schema good.json --protection layered --layers 99", 1, "not 99", "2 to 16 layers"),
    ("topic create t2 --schema good.json --group-keys fancy", 1, "not 'fancy'", "one of mosaic"),
    ("topic create t2 --schema good.json --keep-pieces 10XB", 1, "not '10XB'", "7d,10GB"),
    ("topic alter quotes", 2, "say what changes", "--schema"),
    ("topic alter quotes --schema good.json", 1, "'symbol' is not in the new schema", "keep it"),
    ("grant quotes alice subscribe --until yesterday", 1, "not 'yesterday'", "write 2026-08-01"),
    ("audit --at yesterday", 1, "not 'yesterday'", "write 2026-08-01"),
    ("restore good.json there", 1, "is no backup", "sealcast backup"),
    ("run --once --master nonsense", 1, "no place where Spark runs", "local[2]"),
    ("run --once --master sc://localhost:15002", 1, "cannot run through Spark Connect", "--master spark://"),
    ("overlay show quotes", 1, "has no overlay", "--protection layered"),
    ("inspect dir", 1, "not a realm, a log or a ledger", "name a file in it"),
    ("backup", 2, "name the file of the backup", "--new-key"),
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
        "empty.json": "",
        "dup.json": '{"attributes": [{"name": "price", "type": "int"}, {"name": "price", "type": "int"}]}',
        "upside.json": '{"attributes": [{"name": "price", "type": "int", "min": 9, "max": 1}]}',
        "x.csv": "symbol,cost\nIBM,5\n",
        "x.parquet": "no",
    }.items():
        (made / name).write_text(text)
    (made / "dir").mkdir()
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


@pytest.mark.parametrize("command", ["status", "rejected list", "check", "subscription list", "audit"])
def test_topics_are_named_in_the_same_way_everywhere(
    place: Path, command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SEALCAST_REALM", str(place / "realm"))
    ways = ["quotes", "--topic quotes", "quotes --topic quotes", "", "quotes closed", "--topic quotes --topic closed"]
    found = [sealcast(*command.split(), *way.split(), "--json") for way in ways]
    one, also, both, every, two, twice = ((each.code, each.out) for each in found)
    assert one == also == both and one[0] == every[0] == 0
    if command != "audit":  # of one topic, or of all
        assert every == two == twice
