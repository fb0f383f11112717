"""Table 2 of paper 002: every cell is there, and the judge can say both yes and no."""

from __future__ import annotations

from typing import Any

from sealcast.lab.experiments import find
from sealcast.lab.nguyen import table2
from sealcast.lab.nguyen.table2 import OURS, PRINTED, SUBSCRIPTIONS
from sealcast.lab.report import Report


def silent(done: int, total: int) -> None:
    assert 0 <= done <= total


def judged(report: Report) -> dict[str, Any]:
    return {str(row["cell"]): row for row in report.rows if row["agrees"] is not None}


def test_the_table_is_made_again() -> None:
    report = find("nguyen/table2").run(True, silent)
    cells = {(row["subscriptions"], row["cell"]): row for row in report.rows if row["unit"] == "ms"}
    for count in (*SUBSCRIPTIONS, *table2.QUICK_MORE):
        for cell in (*PRINTED, *OURS):
            assert cells[count, cell]["measured"] > 0
    assert cells[20, "no pre-filter"]["printed"] == 57.497 and cells[1, "cuckoo, match"]["printed"] == 2.058
    found = judged(report)
    assert found["no pre-filter / Bloom, no match"]["agrees"] and found["no pre-filter / A4, match"]["agrees"]
    assert found["no pre-filter / A4, match"]["measured"] > 20


def test_the_papers_own_numbers_agree_with_its_conclusions() -> None:
    times = {
        (count, cell): ms for cell, column in PRINTED.items() for count, ms in zip(SUBSCRIPTIONS, column, strict=True)
    }
    ours = {(count, cell): 0.01 for count in SUBSCRIPTIONS for cell in OURS}
    report = table2.report(times | ours, SUBSCRIPTIONS)
    assert report.agrees and all(row["agrees"] for row in judged(report).values())


def test_the_judge_can_say_no() -> None:
    times = {(count, cell): 1.0 for count in SUBSCRIPTIONS for cell in (*PRINTED, *OURS)}
    report = table2.report(times, SUBSCRIPTIONS)
    assert not report.agrees
    assert not judged(report)["no pre-filter / Bloom, no match"]["agrees"]
    assert not judged(report)["20 subscriptions / 1, no pre-filter"]["agrees"]
