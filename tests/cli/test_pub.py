"""What `sealcast pub` reads: JSON Lines, CSV, Parquet and Arrow say the same, and bad lines and rows are named."""

from __future__ import annotations

import json
import os
import threading
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sealcast.cli import pub_lines
from sealcast.model.schema import Schema
from sealcast.trust.deployment import Realm
from tests.cli.conftest import SCHEMA
from tests.cli.shell import sealcast, write_lines
from tests.clients.pump import pump

TABLE = pa.table(
    {
        "symbol": pa.array(["IBM", None, "ÄÖ"]),
        "price": pa.array([Decimal("101.50"), Decimal("99.00"), None], pa.decimal128(9, 2)),
        "volume": pa.array([5, None, 7], pa.int32()),
        "payload": ["one", "two", "three, and\nmore"],
    }
)
CSV = 'symbol,price,volume,payload\nIBM,101.5,5,one\n,99,,two\nÄÖ,,7,"three, and\nmore"\n'


def written(home: Path, name: str) -> Path:
    """The same three events in a file of that kind."""
    path = home / name
    match name:
        case "events.csv":
            path.write_text("\ufeff" + CSV.replace("two\n", "two\r\n"), newline="")
        case "events.parquet":
            pq.write_table(TABLE, path)
        case "events.arrow":
            with pa.ipc.new_file(path, TABLE.schema) as file:
                file.write_table(TABLE, max_chunksize=2)
        case "stream.arrows":
            with pa.ipc.new_stream(path, TABLE.schema) as stream:
                stream.write_table(TABLE)
        case _:
            write_lines(path, *map(_document, TABLE.to_pylist()))
    return path


def _document(row: dict[str, Any]) -> dict[str, object]:
    price = None if row["price"] is None else str(row["price"])
    return {"attributes": {"symbol": row["symbol"], "price": price, "volume": row["volume"]}, "payload": row["payload"]}


def test_every_format_says_the_same(home: Path) -> None:
    sealcast("subscription", "add", "quotes", "--as", "alice", "--filter", "TRUE OR price IS NULL")
    names = ["events.jsonl", "events.csv", "events.parquet", "events.arrow", "stream.arrows"]
    for name in names:
        result = sealcast("pub", "quotes", "--as", "nyse", "--file", written(home, name), "--json")
        assert (result.code, result.document["published"]) == (0, 3), result.err
    pump(Realm(home), "quotes")
    got = [json.loads(line) for line in sealcast("sub", "quotes", "--as", "alice").out.splitlines()]
    said = [(event["attributes"], event["payload"], event["content_type"]) for event in got]
    assert len(said) == 15 and said == said[:3] * 5
    assert said[0] == ({"symbol": "IBM", "price": "101.50", "volume": 5}, "one", "text/plain; charset=utf-8")
    assert said[2][1] == "three, and\nmore"


def test_one_event_from_words(home: Path) -> None:
    """Values mean what the types of their attributes say; an empty one is NULL."""
    sealcast("subscription", "add", "quotes", "--as", "alice", "--filter", "price > 0")
    pub = ("pub", "quotes", "--as", "nyse")
    first = sealcast(*pub, "symbol=118", "price=118", "volume=", "--payload", "a=b")
    assert (first.code, first.out) == (0, "0/0/0\n"), first.err
    assert sealcast(*pub, "price=1.5", "symbol=a=b", "--json").document["published"] == 1
    assert sealcast(*pub, "--payload", "alone").code == 0
    pump(Realm(home), "quotes")
    got = sealcast("sub", "quotes", "--as", "alice").lines
    assert [e["attributes"] for e in got] == [
        {"symbol": "118", "price": "118.00", "volume": None},
        {"symbol": "a=b", "price": "1.50", "volume": None},
    ]
    assert [(e["payload"], e["content_type"][:4]) for e in got] == [("a=b", "text"), ("", "appl")]


@pytest.mark.parametrize(
    ("words", "code", "told"),
    [
        (["symbol"], 1, "'symbol' is not NAME=VALUE with the name of an attribute"),
        (["colour=red"], 1, "the attributes are symbol, price, volume; the payload is --payload TEXT"),
        (["price=1", "price=2"], 1, "attribute 'price' is given twice"),
        (["price=cheap"], 1, "event 1: attribute 'price': 'cheap' is not a number"),
        (["price=1", "--file", "events.jsonl"], 2, "give one of them"),
        (["--payload", "x", "--format", "csv"], 2, "give one of them"),
    ],
)
def test_words_that_are_no_event_are_refused(home: Path, words: list[str], code: int, told: str) -> None:
    result = sealcast("pub", "quotes", "--as", "nyse", *words)
    assert (result.code, result.out) == (code, "")
    assert told in " ".join(result.err.replace("│", " ").split())


def test_flat_lines_have_attributes_alone(home: Path) -> None:
    sealcast("subscription", "add", "quotes", "--as", "alice", "--filter", "price > 0")
    path = write_lines(
        home / "flat.jsonl",
        {"symbol": "IBM", "price": 118},
        {"attributes": {"price": 119}, "symbol": "IBM"},
        {"symbol": "IBM", "payload": "x"},
        {"symbol": "IBM", "colour": "red"},
        {},
        {"symbol": "IBM", "price": 1.005},
        {"price": "120.25"},
    )
    result = sealcast("pub", "quotes", "--as", "nyse", "--file", path)
    assert (result.code, result.out) == (1, "0/0/0\n0/0/1\n")
    told = {int(line.split(":")[0][5:]): line for line in result.err.splitlines() if line.startswith("line ")}
    assert sorted(told) == [2, 3, 4, 5, 6]
    for number in (3, 4, 5):
        assert '{"attributes": {...}' in told[number] and "or flat" in told[number] and "(symbol, price" in told[number]
    assert "'symbol' is no part of an event" in told[2] and "off the grid" in told[6]
    pump(Realm(home), "quotes")
    prices = [e["attributes"]["price"] for e in sealcast("sub", "quotes", "--as", "alice").lines]
    assert prices == ["118.00", "120.25"]


def test_the_format_may_be_said(home: Path) -> None:
    path = written(home, "events.csv").rename(home / "events.txt")
    assert sealcast("pub", "quotes", "--as", "nyse", "--file", path).code == 1, "lines that are no JSON"
    assert sealcast("pub", "quotes", "--as", "nyse", "--file", path, "--format", "csv").code == 0
    assert sealcast("pub", "quotes", "--as", "nyse", "--file", path, "--format", "xml").code == 2


def test_bad_lines_of_csv_are_named(home: Path) -> None:
    path = home / "bad.csv"
    path.write_bytes(
        b"symbol,price,volume,payload_base64\n"
        b"IBM,1.005,1,\n"  # 2
        b"\n"
        b'"A\nB",2,2,YQ==\n'  # 4
        b"IBM,1\n"  # 6
        b"\xff\xfe,3,3,\n"  # 7
        b"IBM,4,4,%%%\n"  # 8
        b'"IBM"x,5,5,\n'  # 9
        b"IBM,cheap,6,\n"  # 10
        b"IBM,1e3,7.0,\n"  # 11
        b"IBM,1,0x10,"  # 12, without an end
    )
    result = sealcast("pub", "quotes", "--as", "nyse", "--file", path)
    told = {int(line.split(":")[0][5:]): line for line in result.err.splitlines() if line.startswith("line ")}
    assert result.code == 1 and sorted(told) == [2, 6, 7, 8, 9, 10, 12]
    assert result.out == "0/0/0\n0/0/1\n", "lines 4 and 11"
    assert told[2] == "line 2: attribute 'price': 1.005 is off the grid of step 0.01"
    assert "2 fields, and the first line names 4" in told[6] and "not valid Unicode" in told[7]
    assert "not base64" in told[8] and "not CSV" in told[9] and "'cheap' is not a number" in told[10]
    assert "'0x10' is not of type int" in told[12]


@pytest.mark.parametrize(
    ("name", "data", "code", "words"),
    [
        ("a.csv", b"symbol,colour\n", 1, "the first line names column 'colour'"),
        ("b.csv", b"symbol,symbol\n", 1, "names column 'symbol' twice"),
        ("c.csv", b"symbol\n" + b"x" * (4 << 20) + b"yz\nIBM\n", 1, "line 2 has more than 4194304 bytes"),
        ("d.parquet", b"PAR1 and nothing else", 1, "not Parquet, or damaged"),
        ("e.arrow", b"ARROW1 and nothing else", 1, "not Arrow, or damaged"),
        ("f.arrow", b"\xff\xff\xff\xff\x10\0\0\0", 1, "not Arrow, or damaged"),
        ("g.csv", b"", 0, "0 published"),
    ],
)
def test_input_that_is_none(home: Path, name: str, data: bytes, code: int, words: str) -> None:
    (home / name).write_bytes(data)
    result = sealcast("pub", "quotes", "--as", "nyse", "--file", home / name)
    assert (result.code, words in result.err) == (code, True), result.err


def test_rows_of_tables_are_named(home: Path) -> None:
    bad = TABLE.set_column(1, "price", pa.array([1.0, 1.005, float("nan")]))
    pq.write_table(bad, home / "bad.parquet")
    result = sealcast("pub", "quotes", "--as", "nyse", "--file", home / "bad.parquet", "--json")
    assert (result.code, result.document["published"], result.document["refused"]) == (1, 1, 2)
    assert [error["row"] for error in result.document["errors"]] == [2, 3]
    assert result.document["errors"][0]["message"] == "attribute 'price': 1.005 is off the grid of step 0.01"
    other = sealcast("pub", "quotes", "--as", "nyse", "--format", "parquet")
    assert other.code == 1 and "cannot come through a pipe" in other.err


def test_a_stream_that_breaks_off_keeps_what_came(home: Path) -> None:
    path = home / "cut.arrow"
    with pa.ipc.new_stream(path, TABLE.schema) as stream:
        stream.write_table(TABLE, max_chunksize=1)
    path.write_bytes(path.read_bytes()[:-200])
    result = sealcast("pub", "quotes", "--as", "nyse", "--file", path)
    assert result.code == 1 and "published before this" in result.err and "damaged" in result.err
    assert result.out.splitlines()[0] == "0/0/0"


def test_a_quoted_field_may_be_in_two_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    """However the input comes in pieces: fields, lines and their numbers stay the same."""
    monkeypatch.setattr(pub_lines, "LINES_PER_BATCH", 1)
    schema, text = Schema.from_json(SCHEMA), CSV.encode()
    for cut in range(1, len(text), 7):
        source, sink = os.pipe()

        def write(sink: int = sink, cut: int = cut) -> None:
            for part in (text[:cut], text[cut:]):
                os.write(sink, part)
            os.close(sink)

        writer = threading.Thread(target=write)
        writer.start()
        batches = list(pub_lines.csv_lines(source, schema))
        writer.join(60)
        os.close(source)
        events = [event for batch in batches for event in batch.given]
        assert [event.payload for event in events] == [b"one", b"two", b"three, and\nmore"]
        assert [number for batch in batches for number in batch.numbers] == [2, 3, 4]
        assert not any(batch.refused for batch in batches)
