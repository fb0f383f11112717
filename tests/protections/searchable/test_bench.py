"""The measurements of suite `searchable`, in small: what they compare agrees, and every row is there."""

from __future__ import annotations

from sealcast.bench.searchable_match import growth_row, match_rows
from sealcast.bench.suites import SUITES


def test_rows_of_matching() -> None:
    rows = list(match_rows(events=30, events_of_a0=3, rounds=1))
    assert [row.name for row in rows] == ["match", "match-reused", "dismiss"]
    assert all(row.ours > 0 and row.ratio == row.reference / row.ours for row in rows)


def test_growth() -> None:
    row = growth_row(small=1_000, large=3_000, events=300, rounds=1)
    assert row.name == "growth" and row.ratio == row.ours / row.reference


def test_the_suite_has_them() -> None:
    assert "searchable_match" in SUITES["searchable"]
