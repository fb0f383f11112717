"""The table of commands, and what a user hears who gets one wrong: which stream, which words, which exit code."""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import pytest
import typer

from sealcast.cli.main import COMMANDS
from sealcast.trust.deployment import Realm
from tests.cli.shell import sealcast


def leaves() -> Iterator[tuple[str, ...]]:
    """Every command there is, groups unfolded."""
    for section in COMMANDS.values():
        for name, command in section.items():
            module, attribute = command.at.split(":")
            if find_spec(f"sealcast.cli.{module}") is None:
                continue  # `test_the_table_names_commands_that_exist` says so
            loaded = typer.main.get_command(getattr(import_module(f"sealcast.cli.{module}"), attribute))
            inner = getattr(loaded, "commands", None)
            yield from ((name, sub) for sub in inner) if inner else ((name,),)


# --- the table -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("leaf", list(leaves()), ids=" ".join)
def test_every_command_has_help_with_an_example_and_json(leaf: tuple[str, ...]) -> None:
    for flag in ("--help", "-h"):
        result = sealcast(*leaf, flag)
        assert result.code == 0
        assert f"Example: sealcast {' '.join(leaf)}" in result.out or "| sealcast pub" in result.out
        assert "--json" in result.out
        assert result.err == ""


def test_the_options_of_one_command_are_not_the_next_ones(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SEALCAST_REALM", raising=False)
    monkeypatch.chdir(tmp_path)
    Realm.create(tmp_path / "market")
    assert sealcast("topic", "list", "--realm", tmp_path / "market", "--json").document == {"topics": []}
    again = sealcast("topic", "list")
    assert again.code == 1 and "no realm here" in again.err and again.out == ""


def test_the_table_names_commands_that_exist() -> None:
    for section in COMMANDS.values():
        for name, command in section.items():
            module = command.at.split(":")[0]
            assert find_spec(f"sealcast.cli.{module}") is not None, name
            assert command.summary and len(command.summary) <= 66


def test_help_lists_every_command() -> None:
    result = sealcast("--help")
    assert result.code == 0
    for section, commands in COMMANDS.items():
        assert section in result.out
        assert all(f"\n  {name} " in result.out for name in commands)
    assert sealcast().err == result.out, "asking nothing is asking for help"


def test_version() -> None:
    assert sealcast("--version").out.startswith("sealcast 0.")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("topics",), "no command 'topics'. Did you mean 'topic'?"),
        (("topic", "crate"), "crate"),
        (("pub", "quotes"), "--as"),
        (("sub", "quotes", "--as", "alice", "--max", "0"), "--max"),
        (("sub", "quotes", "--as", "alice", "--json", "--follow"), "one document cannot follow"),
        (("subscription", "add", "quotes", "--as", "alice"), "give --as ENTITY and --filter TEXT, or --file FILE"),
        (("grant", "quotes", "alice", "read"), "'read' is not one of 'publish', 'subscribe'"),
        (("grant", "quotes", "alice"), "RIGHT"),
        (("topic", "list", "--nonsense"), "--nonsense"),
    ],
)
def test_a_command_line_that_makes_no_sense_is_2(home: Path, arguments: tuple[str, ...], words: str) -> None:
    result = sealcast(*arguments)
    assert (result.code, result.out) == (2, "")
    assert words in result.err


#: A command, the code of its refusal, and what it says.
REFUSED = [
    ("topic show quots", "not-found", "there is no topic 'quots' in this realm", "hint: did you mean 'quotes'?"),
    ("entity revoke alise", "not-found", "there is no entity 'alise'", "hint: did you mean 'alice'?"),
    ("entity enrol alice", "misuse", "entity 'alice' is enrolled already"),
    ("entity enrol ../x", "misuse", "'../x' is no entity name", "hint: 1 to 64 of A-Z a-z 0-9 . _ - and"),
    ("init .", "misuse", "is a realm already", "hint: use it: --realm"),
    ("init schema.json", "misuse", "exists and is not empty", "hint: name a new directory"),
    ("topic create t --schema none.json", "unavailable", "none.json: No such file or directory"),
    ("topic create t --schema bad.json", "schema", "bad.json is not JSON"),
    ("topic create t --schema schema.json --access all", "misuse", "access is one of members, granted, not 'all'"),
    (
        "topic create t --schema schema.json --protection x",
        "misuse",
        "protection is one of endpoint, payload, searchable, layered, attribute, not 'x'",
    ),
    ("topic create t --schema schema.json --partitions 0", "misuse", "a topic has 1 to 1024 partitions, not 0"),
    ("subscription remove alice-9", "not-found", "there is no subscription 'alice-9'", "subscription list"),
    ("sub quotes --as alice", "not-found", "'alice' has no subscription on topic 'quotes'", "hint: add one: sealcast"),
    ("pub quotes --as alcie --file schema.json", "not-found", "no entity 'alcie'", "hint: did you mean 'alice'?"),
    ("pub quotes --as nyse --file none.jsonl", "unavailable", "none.jsonl: No such file or directory"),
    ("run --topic qoutes", "not-found", "there is no topic 'qoutes'", "hint: did you mean 'quotes'?"),
    ("explain x", "not-found", "there is no topic 'x'", "hint: make it with `sealcast topic create`"),
    ("inspect nothing", "not-found", "nothing does not exist"),
    ("topic list --realm /", "not-found", "/ is no realm", "hint: make one: sealcast init /"),
]


@pytest.mark.parametrize("case", REFUSED, ids=lambda case: case[0])
def test_a_refusal_is_1_with_the_reason(home: Path, case: tuple[str, ...]) -> None:
    command, code, *words = case
    (home / "bad.json").write_text("{nope")
    before = Realm(home).registry.version()
    plain = sealcast(*command.split())
    assert (plain.code, plain.out) == (1, ""), "stdout is data"
    assert plain.err.startswith("refused: ")
    assert all(w in plain.err for w in words), plain.err
    told = sealcast(*command.split(), "--json")
    assert told.code == 1
    assert told.document["error"] == code
    assert told.document["message"] in plain.err
    assert Realm(home).registry.version() == before, "a refusal changes nothing"


# --- the words of the command line -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("command", "message", "hint"),
    [
        (
            "topic create t --past-keys maybe",
            "--past-keys is one of kept, forgotten, not maybe",
            "--past-keys forgotten",
        ),
        (
            "topic alter quotes --past-keys maybe",
            "--past-keys is one of kept, forgotten",
            "write --past-keys forgotten",
        ),
        ("topic create t --key-size 100", "--key-size is one of 128, 192, 256, not 100", "write --key-size 256"),
        ("topic create t --grace 2h --key-lifetime 1h", "is not below --key-lifetime of 3600 s", "shorten --grace"),
        ("run --once --node paris", "there is no broker 'paris'", "sealcast entity invite paris --role broker"),
    ],
)
def test_refusals_name_options_as_they_are_typed(home: Path, command: str, message: str, hint: str) -> None:
    typed = command.split() + (["--schema", "schema.json"] if command.startswith("topic create") else [])
    refused = sealcast(*typed)
    assert refused.code == 1 and message in refused.err and hint in refused.err.partition("hint: ")[2]
