"""The growth that docs/scale.md counts on, at sizes that take seconds: bounds that a quadratic step would break."""

from __future__ import annotations

import pytest

from sealcast.bench import scale


@pytest.mark.soak
def test_work_grows_with_events_and_matches_and_not_with_subscriptions() -> None:
    rows = {row.name: row for row in scale.rows(quick=True)}
    assert list(rows) == ["events", "subscriptions", "deliveries", "stored-bytes", "read-bytes"]
    assert rows["events"].ratio < 1.5, "four times the events at once, and none is dearer for it"
    assert rows["subscriptions"].ratio < 2.0, "ten times the subscriptions"
    assert rows["deliveries"].ratio < 3.5, "four times the deliveries"
    assert rows["stored-bytes"].ratio < 2.0, "an event is stored once"
    assert rows["read-bytes"].ratio > 100, "what passes a shuffle is a few bytes of each frame"
