"""sealcast sub: where to start in words of time, when to stop, lines by a template, and the name of an event."""

from __future__ import annotations

from pathlib import Path

import pytest

from sealcast.trust.deployment import Realm
from tests.cli.shell import sealcast, write_lines
from tests.clients.pump import pump

SUB = ("sub", "quotes", "--as", "bob", "--no-ack")


@pytest.mark.parametrize("place", ["1h", "90s", "4w", "999999999999y", "2020-03-01", "2020-03-01T12:00Z", "start", "0"])
def test_reading_starts_so_long_ago_or_on_a_date(delivered: Path, place: str) -> None:
    sealcast("sub", "quotes", "--as", "bob")
    assert sealcast(*SUB).lines == [], "the cursor is at the end"
    assert [e["payload"] for e in sealcast(*SUB, "--from", place).lines] == ["one", "two"]


@pytest.mark.parametrize("place", ["0s", "2999-01-01", "end"])
def test_reading_starts_after_what_is_there(delivered: Path, place: str) -> None:
    result = sealcast(*SUB, "--from", place)
    assert (result.code, result.out) == (0, "")


@pytest.mark.parametrize("place", ["noon", "1 hour", "-1h", "1x", "2026-13-01"])
def test_a_bad_start_says_what_to_write(delivered: Path, place: str) -> None:
    result = sealcast(*SUB, "--from", place)
    assert result.code == 1
    assert f"{place!r} is not a valid start position. Use " in result.err and "2026-03-01" in result.err


def test_count_ends_after_so_many(delivered: Path) -> None:
    assert [e["payload"] for e in sealcast(*SUB, "--count", 1).lines] == ["one"]
    assert [e["payload"] for e in sealcast(*SUB, "--count", 2, "--follow").lines] == ["one", "two"], (
        "and ends by itself"
    )
    assert sealcast(*SUB, "--count", 0).code == 2


def test_lines_by_a_template(delivered: Path) -> None:
    shown = sealcast(*SUB, "--format", "{publisher} {attributes[symbol]} {attributes[volume]}: {payload} {{}}")
    assert (shown.code, shown.out) == (0, "nyse IBM 5: one {}\nnyse IBM : two {}\n")
    event = sealcast(*SUB, "--count", 1).lines[0]
    names = sealcast(*SUB, "--count", 1, "--format", "{boot}/{sequence} {position} {published_at} {content_type}")
    assert names.out.startswith(
        f"{event['boot']}/{event['sequence']} {event['position']} {event['published_at']} text/"
    )
    everything = "{payload} {payload_base64} {attributes}"
    binary = sealcast("sub", "quotes", "--as", "alice", "--no-ack", "--format", everything)
    assert binary.out.splitlines()[1] == 'AP8= AP8= {"symbol": "AAPL", "price": "150.25", "volume": null}'


@pytest.mark.parametrize(
    "template",
    [
        "{nothing}", "{payload.__class__}", "{attributes[symbol].__class__}", "{attributes[__class__]}",
        "{attributes.x}", "{0}", "{}", "{payload!r}", "{sequence:>99999999}", "{payload:{sequence}}", "{payload", "}",
    ],
)  # fmt: skip
def test_a_template_reaches_fields_and_nothing_else(delivered: Path, template: str) -> None:
    result = sealcast(*SUB, "--format", template)
    assert (result.code, result.out) == (1, "")
    assert "{publisher}" in result.err and "{attributes[NAME]}" in result.err and "symbol, price, volume" in result.err


def test_a_publisher_cannot_forge_a_line(delivered: Path) -> None:
    forged = {"attributes": {"symbol": "IBM", "price": 1}, "payload": "x\nnyse IBM 999\x1b[2K\ttab"}
    sealcast("sub", "quotes", "--as", "bob")
    sealcast("pub", "quotes", "--as", "nyse", "--file", write_lines(delivered / "forged.jsonl", forged))
    pump(Realm(delivered), "quotes")
    assert sealcast(*SUB, "--format", "{payload}").out == "x\\nnyse IBM 999\\x1b[2K\\ttab\n"


def test_json_and_a_template_exclude_each_other(delivered: Path) -> None:
    assert sealcast(*SUB, "--json", "--format", "{payload}").code == 2


def test_publisher_boot_and_sequence_name_one_event(delivered: Path) -> None:
    """Every `pub` is a new start of its publisher, and counts from 0 again."""
    sealcast("pub", "quotes", "--as", "nyse", "--file", delivered / "events.jsonl")
    pump(Realm(delivered), "quotes")
    events = sealcast(*SUB).lines
    assert [e["sequence"] for e in events] == [0, 1, 0, 1], "which names nothing by itself"
    assert len({(e["publisher"], e["boot"], e["sequence"]) for e in events}) == 4
    assert all(len(bytes.fromhex(e["boot"])) == 16 for e in events)
