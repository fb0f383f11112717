"""Rows of suite `end-to-end` that run Spark: both sides handle the same events, and say where their time goes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from sealcast.bench import end_to_end_latency, end_to_end_path, report
from sealcast.bench.end_to_end_publish import SCHEMA, events
from sealcast.bench.figure import draw
from sealcast.bench.report import BenchRow
from sealcast.bench.suites import SUITES
from sealcast.clients.intake import taken

FLAT = tuple(text for filters in end_to_end_path.filters_of_readers() for text in filters)
ROW = BenchRow("row", 3.0, 2.0, "another", 1.5, "us", {"publish": 1.0, "open": 2.0}, {"publish": 2.0})


def physical(count: int) -> pa.RecordBatch:
    ((_, batch, _),) = taken(SCHEMA, table := events(count))
    return batch.columns.append_column("payload", table["payload"].combine_chunks())


def test_a_delivery_is_a_row_of_the_plain_job() -> None:
    batch = physical(2_000)
    rows = end_to_end_path.deliver(FLAT, batch, seal=False)
    assert 1.5 < rows.num_rows / batch.num_rows < 2.5, "two readers an event, on average"
    symbols = batch.column("symbol").to_pylist()
    expected = {
        (symbol, volume, reader)
        for symbol, volume in zip(symbols, batch.column("volume").to_pylist(), strict=True)
        for reader, filters in enumerate(end_to_end_path.filters_of_readers())
        if volume >= 100 and any(text.startswith(f"symbol = '{symbol}' ") for text in filters)
    }
    found = zip(*(rows.column(name).to_pylist() for name in ("symbol", "volume", "reader")), strict=True)
    assert set(found) == expected


def test_sealed_rows_are_as_many_and_longer() -> None:
    batch = physical(500)
    plain, sealed = (end_to_end_path.deliver(FLAT, batch, seal=seal) for seal in (False, True))
    assert plain.drop_columns(["payload"]).equals(sealed.drop_columns(["payload"]))
    sizes = [np.array([len(each) for each in rows.column("payload").to_pylist()]) for rows in (plain, sealed)]
    assert (sizes[1] == sizes[0] + 16).all()


def test_time_is_counted_by_kind_of_process() -> None:
    before = report.tree_by_kind()
    assert set(before) == {"own", "JVM", "workers"}
    assert sum(report.tree_by_kind().values()) >= sum(before.values()) > 0


def test_parts_are_in_json_and_in_the_figure(tmp_path: Path) -> None:
    assert ROW.as_json()["parts"] == {"publish": 1.0, "open": 2.0}
    assert "parts" not in BenchRow("bare", 1.0, 1.0, "another", 1.0, "us").as_json()
    assert draw([ROW], tmp_path / "figure.png") and (tmp_path / "figure.png").stat().st_size > 1_000
    assert not draw([BenchRow("bare", 1.0, 1.0, "another", 1.0, "us")], tmp_path / "none.png")
    assert not (tmp_path / "none.png").exists()


@pytest.mark.soak
def test_both_sides_deliver_the_same_and_single_events_arrive() -> None:
    rows = {row.name: row for row in end_to_end_path.rows(4_000, 1_000)}
    assert list(rows) == ["end-to-end", "end-to-end-sealed-rows"]
    assert rows["end-to-end"].parts is not None and set(rows["end-to-end"].parts) == {
        "publish",
        "driver",
        "JVM",
        "workers",
        "open",
    }
    (latency,) = end_to_end_latency.rows(3, 1)
    assert latency.name == "latency" and latency.ratio > 0
    assert {"end_to_end_path", "end_to_end_latency"} <= set(SUITES["end-to-end"])
