"""Completion that knows the realm: as a shell asks for it, and for every parameter that takes a name."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import typer

from sealcast import Realm, Schema
from sealcast.cli import completing, talk
from sealcast.cli.main import app
from tests.cli.shell import SEALCAST, sealcast

SCHEMA = Schema.from_json({"attributes": [{"name": "price", "type": "int"}]})


@pytest.fixture(scope="module")
def realm(tmp_path_factory: pytest.TempPathFactory) -> Realm:
    made = Realm.create(tmp_path_factory.mktemp("completing") / "realm")
    made.create_topic("quotes", SCHEMA, access="members")
    made.create_topic("prices", SCHEMA, protection="searchable")
    made.enrol_many(["alice", "bob", "mallory"])
    made.subscribe("quotes", "alice", "price > 5")
    made.revoke_entity("mallory")
    return made


def completed(line: str, tmp_path: Path, **environment: str) -> list[str]:
    """What bash is told for a command line whose last word is being typed."""
    words = line.split(" ")
    asked = {"_SEALCAST_COMPLETE": "complete_bash", "COMP_WORDS": line, "COMP_CWORD": str(len(words) - 1)}
    clean = {name: value for name, value in os.environ.items() if name != "SEALCAST_REALM"}
    found = subprocess.run(
        [*SEALCAST[:-1], f"import sys; sys.argv[0] = 'sealcast'; {SEALCAST[-1]}"],
        env=clean | {"XDG_CONFIG_HOME": str(tmp_path)} | asked | environment,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert found.stderr == ""
    return found.stdout.split()


def test_a_shell_is_told_the_names_of_the_realm(realm: Realm, tmp_path: Path) -> None:
    at = {"SEALCAST_REALM": str(realm.paths.root)}
    assert completed("sealcast topic show ", tmp_path, **at) == ["prices", "quotes"]
    assert completed("sealcast pub quotes --as a", tmp_path, **at) == ["alice"]
    # Named on the line, or by the context in use; and where there is no realm, nothing is said.
    assert completed(f"sealcast explain --realm {realm.paths.root} q", tmp_path) == ["quotes"]
    assert completed("sealcast explain q", tmp_path) == []


def context(realm: Path) -> typer.Context:
    """Of a command line that names the realm."""
    made = typer.Context(typer.main.get_command(app), resilient_parsing=True)
    made.params = {"realm": str(realm)}
    return made


def test_each_kind_of_name(realm: Realm, tmp_path: Path) -> None:
    here = context(realm.paths.root)
    assert completing.topics(here, "") == [("prices", "searchable"), ("quotes", "endpoint")]
    assert [name for name, _ in completing.entities(here, "")] == ["alice", "bob"]  # mallory was revoked
    assert ("broker", "broker") in completing.brokers(here, "b")
    assert {"alice", "broker", "center"} <= {name for name, _ in completing.everybody(here, "")}
    ((id, about),) = completing.subscriptions(here, "")
    assert id == next(iter(realm.state().subscriptions_of("quotes"))).id and about == "alice on quotes"
    assert completing.topics(context(tmp_path / "nowhere"), "") == []


def commands(group: Any, path: str = "sealcast") -> Any:
    from typer.main import get_command

    found = group if not isinstance(group, typer.Typer) else get_command(group)
    if not hasattr(found, "list_commands"):
        yield path, found
        return
    with typer.Context(found) as ctx:
        for name in found.list_commands(ctx):
            yield from commands(found.get_command(ctx, name), f"{path} {name}")


def test_whatever_takes_a_name_completes_it() -> None:
    missing = [
        f"{path} {parameter.name}"
        for path, command in commands(app)
        for parameter in command.params
        if (parameter.metavar or "").strip("[].") in completing.BY_METAVAR and parameter._custom_shell_complete is None
    ]
    assert not missing


def test_contexts_are_completed_too(realm: Realm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    assert completing.contexts_known("") == []
    assert sealcast("context", "add", "work", "--realm", realm.paths.root).code == 0
    assert completing.contexts_known("w") == [("work", str(realm.paths.root))]


# --- a key file of one's own ----------------------------------------------------------------------------


def test_events_are_published_and_read_with_key_files_from_elsewhere(realm: Realm, tmp_path: Path) -> None:
    keys = tmp_path / "bob.key"
    own = realm.paths.entity_key("bob")
    keys.write_bytes(own.read_bytes())
    keys.chmod(0o600)
    own.unlink()
    at = ("--realm", realm.paths.root)
    try:
        assert "no keys of entity 'bob'" in sealcast("pub", "quotes", "--as", "bob", "price=7", *at).err
        assert sealcast("pub", "quotes", "--as", "bob", "price=7", "--key-file", keys, *at).code == 0
        reading = sealcast("sub", "quotes", "--as", "bob", "--filter", "price > 1", "--key-file", keys, *at)
        assert reading.code == 0, reading.err
        wrong = sealcast("pub", "quotes", "--as", "alice", "price=7", "--key-file", keys, *at)
        assert wrong.code == 1 and "holds the keys of 'bob', not of 'alice'" in wrong.err
        gone = sealcast("pub", "quotes", "--as", "bob", "price=7", "--key-file", tmp_path / "nothing", *at)
        assert gone.code == 1 and "does not exist" in gone.err and "hint:" in gone.err
    finally:
        keys.rename(own)


# --- what a daemon writes -------------------------------------------------------------------------------


def test_lines_of_a_log_have_time_topic_and_broker(monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    from sealcast.cli.run import _Shown
    from sealcast.pipeline.metrics import FinishedBatch

    batch = FinishedBatch("q", 3, {"admitted": 5, "deliveries": 7}, 0.25, 0, 9, "quotes", {"north": {}})
    _Shown().batch(batch)
    plain = capsys.readouterr().err
    assert plain == "topic 'quotes' at north: batch 3: 5 events, 7 deliveries, 0.25 s, backlog 0 frames\n"
    monkeypatch.setattr(talk.given, "daemon", True)
    talk.note("serving")
    time, words = capsys.readouterr().err.split(" ", 1)
    assert time.endswith("+00:00") and time[10] == "T" and words == "serving\n"
    assert sys.stderr.isatty() is False
