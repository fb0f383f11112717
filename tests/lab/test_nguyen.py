"""Paper 002's experiments: what is printed, what is computed from it, and that the judge can say both yes and no."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sealcast.errors import Bug
from sealcast.lab.experiments import find
from sealcast.lab.nguyen import table1
from sealcast.lab.nguyen.table1 import BATCHES, BLOOM, FILTERS, ITEMS, PRINTED, SHAPES, MeasuredFilter
from sealcast.lab.report import Report
from sealcast.prefilters import Answers, Keys, Prefilter, keys_of
from sealcast.prefilters.cuckoo import CuckooFilter


def silent(done: int, total: int) -> None:
    assert 0 <= done <= total


def cells(report: Report) -> dict[tuple[str, str], Any]:
    return {(str(row["filter"]), str(row["cell"])): row for row in report.rows}


def as_printed(name: str) -> MeasuredFilter:
    """What would have been measured if the paper's numbers were ours."""
    printed = PRINTED.get(name, PRINTED[BLOOM])
    return MeasuredFilter(
        dict.fromkeys(BATCHES, printed.insertion / ITEMS),
        dict.fromkeys(BATCHES, printed.searching / ITEMS),
        round(printed.memory * 2**20),
        0.0,
        0.0,
    )


def test_table_1_says_what_was_printed_beside_what_was_measured(tmp_path: Path) -> None:
    report = find("nguyen/table1").run(quick=True, told=silent)
    found = cells(report)
    assert found[BLOOM, "memory"]["printed"] == 0.47 and found[BLOOM, "memory"]["computed"] == 0.229
    assert found["Bloom 0.01", "memory"]["measured"] == pytest.approx(0.457, abs=0.002)
    for name in SHAPES:
        assert found[name, "memory"]["measured"] == found[name, "memory"]["computed"] == 0.763
        assert found[name, "searching, Bloom / cuckoo"]["agrees"] is True
    for name in FILTERS:
        rates = found[name, "false positives"]
        assert abs(rates["measured"] - rates["computed"]) <= 3 * np.sqrt(rates["computed"] / table1.STRANGERS) + 1e-6
    assert found[BLOOM, "memory"]["agrees"] is False and not report.agrees
    assert found["cuckoo", "memory, buckets of 4 / of 16"]["measured"] == 1.0
    assert any("276 to 280 bytes for each bucket" in note for note in report.notes)
    assert [path.suffix for path in report.write(tmp_path)] == [".parquet", ".png"]


def test_the_judge_agrees_with_the_paper_where_the_numbers_are_the_papers() -> None:
    same = {name: as_printed(name) for name in FILTERS}
    found = cells(table1.report(same, 0.0))
    relations = {key: row["agrees"] for key, row in found.items() if row["unit"] == "times"}
    assert len(relations) == 7 and all(relations.values())
    assert all(row["printed"] == row["measured"] for key, row in found.items() if key in relations)
    slow = dict.fromkeys(BATCHES, 1.0)
    for name in SHAPES:
        worse = same | {name: replace(same[name], insertion=slow, searching=slow)}
        judged = cells(table1.report(worse, 0.0))
        assert {key[1].split(",")[0] for key in relations if not judged[key]["agrees"]} == {"insertion", "searching"}


def test_a_filter_that_denies_a_member_is_not_measured() -> None:
    class Denying(CuckooFilter):
        def may_contain(self, keys: Keys) -> Answers:
            return super().may_contain(keys) & (keys % np.uint64(1_000) != 0)

    def empty() -> Prefilter:
        return Denying(10_000, 4, 16, seed=1)

    with pytest.raises(Bug, match="denies a member"):
        table1.measure(empty, np.concatenate([keys_of([b"a"]), np.array([1_000], np.uint64)]), rounds=1)
