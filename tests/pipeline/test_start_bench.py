"""The rows `start` and `start-tuned`: they measure what they say. Each round starts Spark three times."""

from __future__ import annotations

import pytest

from sealcast.bench import end_to_end_start as bench
from sealcast.bench.suites import SUITES


def test_the_suite_has_the_rows() -> None:
    assert "end_to_end_start" in SUITES["end-to-end"]
    assert list(bench.REFERENCES) == ["start", "start-tuned"]


@pytest.mark.soak
def test_both_sides_are_whole_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench, "ROUNDS", 1)
    plain, tuned = bench.rows()
    assert (plain.name, tuned.name) == ("start", "start-tuned") and plain.ours == tuned.ours
    assert plain.ratio == pytest.approx(plain.ours / plain.reference)
    assert plain.reference > tuned.reference > 1.0, "Java alone takes seconds"
