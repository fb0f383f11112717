"""Contexts: which realm a command works on when several could be meant, and what becomes of a bad list of them."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from sealcast.cli import contexts
from sealcast.cli.contexts import Contexts, RealmContext
from sealcast.errors import Corrupt, Misuse, NotFound
from tests.cli.shell import Result, sealcast

Run = Callable[..., Result]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Runs a command as a process of its own would: what it does to its environment ends with it.

    There are realms `work` and `home`, a context for each, and the working directory is in neither.
    """
    for name in ("SEALCAST_REALM", "SEALCAST_CONTEXT", "SEALCAST_AS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))

    def run(*arguments: object, **environment: str) -> Result:
        before = dict(os.environ)
        os.environ.update(environment)
        try:
            return sealcast(*arguments)
        finally:
            os.environ.clear()
            os.environ.update(before)

    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    for name in ("work", "home"):
        assert run("init", tmp_path / name).code == 0
        assert run("context", "add", name, "--realm", f"../{name}").code == 0
    return run


def realm_of(result: Result) -> str:
    assert result.code == 0, result.err
    return str(result.document["realm"])


def test_what_is_nearer_goes_first(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    nothing = run("status", "--json")
    assert nothing.code == 1 and "no realm here" in nothing.err
    assert run("context", "use", "work").code == 0
    assert realm_of(run("status", "--json")) == "work"
    assert realm_of(run("--context", "home", "status", "--json")) == "home"
    assert realm_of(run("status", "--json", SEALCAST_CONTEXT="home")) == "home"
    assert realm_of(run("status", "--json", SEALCAST_REALM=str(tmp_path / "home"))) == "home"
    assert realm_of(run("status", "--json", "--realm", tmp_path / "home")) == "home"
    assert realm_of(run("--realm", tmp_path / "home", "status", "--json")) == "home"
    monkeypatch.chdir(tmp_path / "home")
    assert realm_of(run("status", "--json")) == "home", "one stands in it"
    assert realm_of(run("--context", "work", "status", "--json")) == "work", "it was asked for by name"


def test_a_context_says_as_whom(run: Run, tmp_path: Path) -> None:
    realm = ("--realm", tmp_path / "work")
    assert run("entity", "enrol", "alice", "bob", *realm).code == 0
    assert run("context", "add", "work", *realm, "--as", "alice", "--use").code == 0
    assert "no topic 'quotes'" in run("sub", "quotes").err, "--as was not missed"
    assert run("sub", "quotes", *realm).code == 2, "another realm, by its own name: nobody says as whom"
    listed = run("context", "list", "--json").document
    assert [(one["context"], one["as"], one["in_use"]) for one in listed] == [
        ("home", None, False),
        ("work", "alice", True),
    ]


def test_contexts_come_and_go(run: Run, tmp_path: Path) -> None:
    assert run("context", "use", "home").code == 0
    assert run("context", "remove", "home").code == 0
    assert contexts.read() == Contexts({"work": RealmContext(str(tmp_path / "work"))})
    refused = run("context", "use", "home")
    assert refused.code == 1 and "there is no context 'home'" in refused.err and "work" in refused.err
    assert run("context", "use", "work").code == 0
    assert run("context", "use", "--none").code == 0
    assert contexts.read().current is None
    assert run("context", "use").code == 2
    assert run("context", "use", "work", "--none").code == 2
    assert run("--context", "work", "status", "--realm", tmp_path / "work").code == 1
    missing = run("context", "add", "x", "--realm", tmp_path / "nowhere")
    assert missing.code == 1 and "is no realm" in missing.err
    assert "x" not in contexts.read().named


@pytest.mark.parametrize(
    "body",
    [
        "",
        "[]",
        "{",
        "{}",
        '{"contexts": []}',
        '{"contexts": {"a": {}}}',
        '{"contexts": {"a": {"realm": 5}}}',
        '{"contexts": {"a": {"realm": "r", "as": 5}}}',
        '{"contexts": {}, "current": "a"}',
        "[" * 100_000,
        " " * (1 << 20) + '{"contexts": {}}',
    ],
)
def test_a_list_that_is_none_is_named_and_not_believed(body: str, tmp_path: Path) -> None:
    environment = {"XDG_CONFIG_HOME": str(tmp_path)}
    contexts.file(environment).parent.mkdir()
    contexts.file(environment).write_text(body)
    with pytest.raises(Corrupt, match=r"contexts\.json"):
        contexts.read(environment)


@pytest.mark.parametrize("name", ["", " ", "a\x1b[2J", "x" * 65])
def test_a_name_can_be_printed(name: str) -> None:
    with pytest.raises(Misuse):
        Contexts({}).with_context(name, RealmContext("r"))


def test_an_unknown_context_is_not_found() -> None:
    with pytest.raises(NotFound, match="none yet|no context"):
        Contexts({}).find("a")
