"""Paper 004 on four hosts: the parties of its Figure 1, each in a network namespace of its own."""

from __future__ import annotations

from pathlib import Path

import pytest

from sealcast.lab.pallickara import hosts
from sealcast.lab.pallickara.end_to_end import KINDS, PLAIN
from sealcast.lab.pallickara.hosts import MeasuredTransits
from tests.cli.shell import sealcast


def test_without_hosts_it_says_so_and_stops(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hosts, "missing", lambda: "nobody is root here")
    refused = sealcast("lab", "run", "pallickara/hosts", "--quick")
    assert refused.code == 1 and "nobody is root here" in refused.err and "pallickara/end-to-end" in refused.err


def test_a_run_that_costs_nothing_more_disagrees(tmp_path: Path) -> None:
    """What the text says is judged, and can be found wrong."""

    def measured(secured: float) -> MeasuredTransits:
        found = MeasuredTransits([0.3, 0.4], [0.1, 0.11])
        for kind in KINDS:
            for payload in (1, 1024):
                for _ in range(5):
                    found.add(kind, payload, 0.001, 0.010 if kind == PLAIN else secured)
        return found

    assert hosts.report(measured(0.020), 1.0).agrees
    same = hosts.report(measured(0.005), 1.0)
    assert not same.agrees
    printed = {row["cell"]: row["printed"] for row in same.rows if row["printed"] is not None}
    assert printed == {
        "discovery of the key center's topic": "250 to 500",
        "a topic's key and a token, mean": "102.27",
    }
    assert [path.suffix for path in same.write(tmp_path)] == [".parquet", ".png"]


@pytest.mark.soak
@pytest.mark.timeout(1200)
def test_four_hosts_deliver_every_message() -> None:
    if (reason := hosts.missing()) is not None:
        pytest.skip(reason)
    found = hosts.measure((1, 4096), 2, 3, lambda done, of: None)
    assert {case: len(runs) for case, runs in found.transits.items()} == {(k, p): 2 for k in KINDS for p in (1, 4096)}
    assert len(found.tokens) == 3 and len(found.discoveries) == 2
