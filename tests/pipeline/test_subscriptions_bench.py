"""The rows `subscriptions`: they measure what they say, at sizes that a test can pay for."""

from __future__ import annotations

import pytest

from sealcast.bench import end_to_end_subscriptions as bench
from sealcast.bench.suites import QUICK, SUITES
from sealcast.errors import Bug

NAMES = ["subscriptions", "subscriptions-match", "subscriptions-add", "subscriptions-memory"]


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"QUICK": (200, 400), "SUBSCRIBERS": 5, "EVENTS": 64, "ROUNDS": 1}.items():
        monkeypatch.setattr(bench, name, value)


def test_every_row_is_measured_at_both_sizes() -> None:
    rows = {row.name: row for row in bench.rows(quick=True)}
    assert list(rows) == NAMES
    assert rows["subscriptions"].reference_name == "200 subscriptions"
    for name in NAMES[:3]:
        assert rows[name].ratio == pytest.approx(rows[name].ours / rows[name].reference) and rows[name].ours > 0
    assert "end_to_end_subscriptions" in SUITES["end-to-end"] and "end_to_end_subscriptions" in QUICK


def test_an_event_that_matches_nothing_is_not_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench, "filter_of", lambda number, count: f"symbol = 'nobody' AND volume > {number}")
    with pytest.raises(Bug, match="matched nothing"):
        list(bench.rows(quick=True))
