"""Tables fit a terminal of 80 columns, whatever stands in them, and break no word: one can read and copy it."""

from __future__ import annotations

import ast
import io
import re
import sys
from collections.abc import Iterator
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

import pytest

from sealcast import Event, Publisher, Realm, Schema
from sealcast.cli import talk
from sealcast.cli.main import main
from sealcast.trust.realm.changes import Right
from tests.clients.pump import pump

WIDTH = 80
#: As long as people make names.
LONG = "market-data-of-the-north-america-desk"
READER = "risk-officer-for-north-america"
SCHEMA = Schema.from_json(
    {"attributes": [{"name": "symbol", "type": "string"}, {"name": "price", "type": "int", "min": 0, "max": 9999}]}
)
#: Every command that shows a table of a realm, and those of this machine.
COMMANDS = (
    ("status",),
    ("status", "--topic", LONG),
    ("check",),
    ("topic", "list"),
    ("topic", "show", LONG),
    ("topic", "find", "price"),
    ("entity", "list"),
    ("entity", "invitations"),
    ("subscription", "list"),
    ("subscription", "list", "--topic", LONG),
    ("rejected", "list"),
    ("audit",),
    ("audit", "--topic", LONG),
    ("broker", "list"),
    ("broker", "show", "broker"),
    ("carrier", "list"),
    ("group", "list", LONG),
    ("dead-letters", "list", LONG, "--as", READER),
    ("context", "list"),
    ("authority", "show"),
    ("registry", "show"),
    ("explain", LONG),
    ("lab", "list"),
    ("serve", "--once"),
)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture(scope="module")
def realm(tmp_path_factory: pytest.TempPathFactory) -> Realm:
    made = Realm.create(tmp_path_factory.mktemp("widths") / "realm", "north-america")
    made.create_topic(LONG, SCHEMA, access="members")
    made.enrol_many([READER, "exchange-feed-handler-new-york", "bob"])
    made.grant(LONG, READER, [Right.SUBSCRIBE])
    made.subscribe(LONG, READER, "symbol = 'IBM' AND price BETWEEN 100 AND 2000 OR symbol LIKE 'GOOG%'")
    with Publisher(made, LONG, as_="exchange-feed-handler-new-york") as publisher:
        publisher.publish([Event({"symbol": "IBM", "price": 1234}, b"x") for _ in range(3)])
    with made.frames(LONG) as log:
        log.partition(0).append([b"nothing that was ever a frame"])
    pump(made, LONG)
    return made


@pytest.fixture
def narrow(realm: Realm, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    monkeypatch.setenv("SEALCAST_REALM", str(realm.paths.root))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.setenv("COLUMNS", str(WIDTH))
    monkeypatch.setenv("NO_COLOR", "1")
    yield


def on_terminal(*arguments: str) -> str:
    out, err = Terminal(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        try:
            main(arguments)
        except SystemExit as end:
            assert end.code in (0, None), err.getvalue()
    return re.sub(r"\x1b\[[0-9;]*m", "", out.getvalue())


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_a_table_fits_and_breaks_no_word(
    narrow: None, command: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    show = talk.table

    def seen(columns: list[str], rows: list[list[object]], empty: str) -> None:
        begin = sys.stdout.tell()
        show(columns, rows, empty)
        sys.stdout.seek(begin)
        printed = re.sub(r"\x1b\[[0-9;]*m", "", sys.stdout.read())
        if not rows:
            return
        for word in {word for row in [columns, *rows] for cell in row for word in talk._cell(cell).split()}:
            assert word in printed, f"{word!r} was broken"
        # A line of a block is one value, and is not cut, however long it is. A table fits.
        if any("─" in line for line in printed.splitlines()):
            assert max(map(len, printed.splitlines())) <= WIDTH

    monkeypatch.setattr(talk, "table", seen)
    on_terminal(*command)


def test_every_command_with_a_table_is_tried_here() -> None:
    """Or it needs Spark, peers or a theft, and has tests of its own."""
    elsewhere = {"bench", "compromise", "demo", "offers", "peer_trees", "plan", "talk"}
    tried = {name.replace("-", "_") for name, *_ in COMMANDS} | elsewhere
    for file in Path(talk.__file__).parent.glob("*.py"):
        shows = {
            node.func.attr
            for node in ast.walk(ast.parse(file.read_text()))
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)
        }
        if shows & {"table", "answer_table"}:
            assert file.stem in tried, file.stem


def test_what_is_too_wide_for_a_table_is_shown_value_by_value(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    out = Terminal()
    with redirect_stdout(out):
        talk.table(["name", "verify key"], [("alice", "ab" * 32), ("bob", "")], "nobody")
    assert out.getvalue().splitlines() == ["name        alice", f"verify key  {'ab' * 32}", "", "name        bob"]
