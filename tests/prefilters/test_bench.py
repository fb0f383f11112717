"""The row `prefilter`: both sides are asked for the same keys, and nothing is measured that denies a member."""

from __future__ import annotations

import numpy as np
import pytest

from sealcast.bench import searchable_prefilter as bench
from sealcast.bench.suites import SUITES
from sealcast.errors import Bug
from sealcast.prefilters import Answers, Keys
from sealcast.prefilters.cuckoo import CuckooFilter


def test_each_filter_is_measured_beside_the_library_that_it_names(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench, "ASKED_OF_THEM", 1_000)
    rows = {row.name: row for row in bench.rows(items=2_000, asked=50_000)}
    assert list(rows) == ["prefilter", "prefilter-pyprobables", "prefilter-bloom"]
    assert rows["prefilter"].reference < rows["prefilter-pyprobables"].reference
    for row in rows.values():
        assert row.ratio == pytest.approx(row.reference / row.ours) and row.ratio > 1
    assert "searchable_prefilter" in SUITES["searchable"]


def test_a_filter_that_denies_a_member_is_not_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    def deny(self: CuckooFilter, keys: Keys) -> Answers:
        return np.zeros(len(keys), np.bool_)

    monkeypatch.setattr(CuckooFilter, "may_contain", deny)
    with pytest.raises(Bug, match="the cuckoo filter denies a member"):
        list(bench.rows(items=2_000, asked=2_000))
