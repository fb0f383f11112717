"""The rows on starts: they measure what they say. Each round starts Spark three times."""

from __future__ import annotations

import pytest

from sealcast.bench import end_to_end_start as bench
from sealcast.bench.suites import SUITES


def test_the_suite_has_the_rows() -> None:
    assert "end_to_end_start" in SUITES["end-to-end"]
    assert list(bench.ROWS) == ["start", "start-spark", "start-tuned"]


@pytest.mark.soak
def test_both_sides_are_whole_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench, "ROUNDS", 1)
    rows = {row.name: row for row in bench.rows()}
    assert list(rows) == list(bench.ROWS)
    assert all(row.ratio == pytest.approx(row.ours / row.reference) for row in rows.values())
    plain, tuned = rows["start-spark"], rows["start-tuned"]
    assert plain.ours == tuned.ours and plain.reference > tuned.reference > 1.0, "Java alone takes seconds"
    assert rows["start"].ours < plain.ours / 2
