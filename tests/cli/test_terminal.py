"""What others wrote is shown to the operator and never obeyed by the terminal, whichever command shows it."""

from __future__ import annotations

import ast
import json
import sys
import unicodedata
from collections.abc import Iterator
from pathlib import Path

import pytest

from sealcast.cli import talk
from sealcast.lab.attacks import Insider
from sealcast.model import Event
from sealcast.trust.deployment import Realm
from sealcast.wire.records import RecordCodec
from tests.cli.shell import sealcast
from tests.clients.pump import pump

#: Sets the window's title, clears the screen, turns text red by the one-character form, and runs it backwards.
HOSTILE = "\x1b]0;owned\x07\x1b[2J\x9b31m\u202edetimda\u2066\x7f\r"
CLI = Path(talk.__file__).parent


def orders(text: str) -> set[str]:
    """The characters of a text that a terminal, or whoever reads it, may take for more than a character."""
    return {c for c in text if unicodedata.category(c) in ("Cc", "Cf", "Cs", "Zl", "Zp") and c not in "\n\t"}


def test_every_code_point_is_shown_or_spelt_out() -> None:
    everything = "".join(map(chr, range(sys.maxunicode + 1)))
    assert orders(everything)
    assert orders(talk.safe(everything)) == set()
    assert talk.safe("Zürich, 12 °C, naïve: 東京\tα\n") == "Zürich, 12 °C, naïve: 東京\tα\n"
    assert talk.safe(HOSTILE).startswith(r"\x1b]0;owned\x07\x1b[2J\x9b31m\u202e")
    # Of surrogates JSON reads two neighbours as one character: they are tried one by one.
    surrogates = [chr(code) for code in range(0xD800, 0xE000)]
    whole = everything.replace("".join(surrogates), "")
    document = {"all": whole, "alone": surrogates, HOSTILE: [HOSTILE]}
    for layout in ({}, {"indent": 2}):
        text = talk.as_json(document, **layout)
        assert orders(text) == set() and json.loads(text) == document


@pytest.fixture
def attacked(delivered: Path) -> Iterator[Path]:
    """Someone with access to the log put a frame there, in a name that is an attack, and a publisher sent such an
    event."""
    realm = Realm(delivered)
    about = realm.state().topic("quotes")
    by = Insider.without(realm, "nyse")
    hostile = Insider(HOSTILE, by.pair, by.signer, by.token)
    codec = RecordCodec(about.schema)
    data = hostile.sealer(about).seal_messages(codec.encode([about.schema.parse({})], [b"x"]), realm.clock())
    with realm.frames("quotes") as log:
        log.partition(0).append([data])
    event = {"attributes": {"symbol": "IBM", "price": 500}, "payload": HOSTILE, "content_type": "text/plain"}
    (delivered / "hostile.jsonl").write_text(json.dumps(event) + "\n")
    assert sealcast("pub", "quotes", "--as", "nyse", "--file", "hostile.jsonl").code == 0
    pump(realm, "quotes")
    yield delivered


COMMANDS = [
    ("rejected", "list"),
    ("why", "quotes/0/1/0", "alice"),
    ("why", "quotes/0/2/0", "alice"),
    ("status",),
    ("audit",),
    ("audit", "--received"),
    ("topic", "show", "quotes"),
    ("topic", "show", HOSTILE),
    ("entity", "list"),
    ("subscription", "list"),
    ("check",),
    ("inspect", "topics/quotes/frames/0"),
    ("inspect", HOSTILE),
    ("sub", "quotes", "--as", "alice", "--no-ack"),
]


def everything_shown() -> str:
    shown = []
    for command in COMMANDS:
        for more in ((), ("--json",)):
            result = sealcast(*command, *more)
            shown.append(result.out + result.err)
    return "".join(shown)


def test_no_command_hands_orders_to_the_terminal(attacked: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = everything_shown()
    assert "owned" in text, "it is shown"
    assert orders(text) == set()
    payloads = [
        json.loads(line).get("payload")
        for line in sealcast("sub", "quotes", "--as", "alice", "--no-ack").out.splitlines()
    ]
    assert HOSTILE in payloads, "and a program reads what was sent"
    # Without that one place, the operator's terminal obeys.
    monkeypatch.setattr(talk, "safe", lambda text: text)
    monkeypatch.setattr(talk, "as_json", lambda document, **layout: json.dumps(document, ensure_ascii=False, **layout))
    assert {"\x1b", "\x9b", "\u202e"} <= orders(everything_shown())


def test_commands_print_through_that_one_place_only() -> None:
    allowed = {
        ("main.py", "print"),  # the version
        ("authority.py", "sys.stdout.buffer.write"),  # certificates as bytes, never to a terminal
        ("filter.py", "sys.stdout.write"),  # JSON in ASCII
    }
    found = set()
    for path in CLI.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and path.name != "talk.py":
                called = ast.unparse(node.func)
                if called in ("print", "typer.echo", "typer.secho") or called.endswith(
                    (".buffer.write", "stdout.write", "stderr.write")
                ):
                    found.add((path.name, called))
    assert found <= allowed


def test_an_event_reads_back_as_it_was_sent() -> None:
    event = Event({"symbol": HOSTILE}, HOSTILE.encode())
    assert json.loads(talk.as_json({"attributes": dict(event.attributes)})) == {"attributes": {"symbol": HOSTILE}}
