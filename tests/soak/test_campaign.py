"""The crash campaign of `make soak`: eight slices, a thousand kills and faults, a million events."""

from __future__ import annotations

from pathlib import Path

import pytest

from sealcast.model.protection import PROTECTIONS
from tests.soak.campaign import add, run_slice, summed

SEEDS = range(1, 9)
FAULTS, EVENTS = 140, 140_000


@pytest.mark.soak
@pytest.mark.timeout(28_800)
def test_of_a_million_events_none_is_lost_doubled_or_leaked(tmp_path: Path) -> None:
    results = tmp_path / "campaign.json"
    for seed in SEEDS:
        database = ("sqlite", "postgres")[seed % 2]
        found = run_slice(tmp_path / str(seed), seed, FAULTS, EVENTS, tuple(PROTECTIONS), 7_200.0, database)
        add(results, found)
        assert not found["findings"], f"seed {seed}: {found['findings']}"
    total = summed(results)
    print(total)
    assert total["faults"] >= 1_000 and total["events"] >= 1_000_000
    assert min(total["events_by_topic"].values()) >= 10_000
    assert (total["lost"], total["doubled"], total["out_of_order"], total["leaks"]) == (0, 0, 0, 0)
