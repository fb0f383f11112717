"""Paper 001's tables, and that a wrong rule would not reproduce them."""

from __future__ import annotations

import pytest

from sealcast.errors import Bug
from sealcast.lab.experiments import find
from sealcast.lab.shikfa.net import Net
from sealcast.protections.layered.route import RoutingNode
from sealcast.protections.layered.tree import Path


@pytest.mark.parametrize(("name", "cells"), [("shikfa/table2", 10), ("shikfa/table3", 9)])
def test_symbol_by_symbol(name: str, cells: int) -> None:
    report = find(name).run(True, lambda done, total: None)
    assert report.agrees and len(report.rows) == cells
    assert all(row["printed"] == row["computed"] for row in report.rows)


def test_a_wrong_rule_is_another_table(monkeypatch: pytest.MonkeyPatch) -> None:
    class Nearest(RoutingNode):
        def relay_key(self, path: Path) -> str:
            return path[0]

    monkeypatch.setattr(Net, "routing", Nearest)
    try:
        report = find("shikfa/table3").run(True, lambda done, total: None)
    except (Bug, KeyError):
        return  # events do not even arrive where the table has them
    assert not report.agrees
