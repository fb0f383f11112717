"""Paper 003, section 4.1: how many credentials it takes, and that the judge can say both yes and no."""

from __future__ import annotations

from dataclasses import replace

from sealcast.lab.experiments import find
from sealcast.lab.tariq.credentials import BITS, DIMENSIONS, CountedBoxes, count, report


def test_credentials_apart_and_together() -> None:
    found = find("tariq/credentials").run(quick=True, told=lambda done, total: None)
    cells = {(row["attributes"], row["cell"]): row for row in found.rows}
    assert len(cells) == 4 * len(DIMENSIONS)
    for d in DIMENSIONS:
        apart, together = cells[d, "credentials, attributes apart"], cells[d, "credentials, attributes together"]
        assert apart["printed"] == d * BITS and together["printed"] is None
        event = cells[d, "subspaces of an event, attributes apart"]
        # The paper leaves out the whole, which an event lies in, too.
        assert event["measured"] == d * (BITS + 1) and event["agrees"] is False
        assert cells[d, "subspaces of an event, attributes together"]["measured"] == d * BITS + 1
    means = {cell[:2]: row["measured"] for cell, row in cells.items()}
    one, three = ([means[d, f"credentials, attributes {form}"] for form in ("apart", "together")] for d in (1, 3))
    assert one[0] <= one[1] < 2 * one[0]  # nearly the same: together, the absent have a place
    assert three[1] > 5 * three[0]
    assert not found.agrees and found.panels


def test_the_judge_says_yes_and_no() -> None:
    few = CountedBoxes(2, [3, 4], [9, None], event_apart=2 * BITS, event_together=2 * BITS + 1)
    assert report([few]).agrees
    assert any("1 boxes take more" in note for note in report([few]).notes)
    assert not report([replace(few, apart=[3, 2 * BITS + 1])]).agrees
    assert not report([replace(few, together=[3, 3])]).agrees


def test_counting_is_the_same_every_time() -> None:
    assert count(2, 5) == count(2, 5)
