"""The rows `mqtt`: both servers deliver the same, and nothing is measured where one does not."""

from __future__ import annotations

from pathlib import Path

import pytest

from sealcast.bench import searchable_mqtt as bench
from sealcast.bench.suites import SUITES
from sealcast.errors import Unavailable
from tests.mqtt.plugged import plugin as plugin


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch, plugin: Path) -> None:
    monkeypatch.setattr(bench, "PLUGIN", plugin)
    monkeypatch.setattr(bench, "SUBSCRIPTIONS", 200)


def test_the_plug_in_is_measured_beside_plain_mosquitto(small: None) -> None:
    rows = {row.name: row for row in bench.rows(events=500, fresh=50, rounds=1)}
    assert list(rows) == ["mqtt", "mqtt-fresh", "mqtt-qos1"]
    assert all(row.ratio == pytest.approx(row.ours / row.reference) for row in rows.values())
    assert rows["mqtt-fresh"].ratio < rows["mqtt"].ratio
    assert "searchable_mqtt" in SUITES["searchable"]


def test_a_server_that_delivers_too_much_is_not_measured(small: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench.Fleet, "plain_topics", lambda fleet: dict.fromkeys(fleet.wanted, ("#",)))
    with pytest.raises(Unavailable, match="more than it should"):
        list(bench.rows(events=500, fresh=50, rounds=1))


def test_without_a_plug_in_it_says_how_to_build_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench, "PLUGIN", Path("/nowhere"))
    with pytest.raises(Unavailable) as refused:
        next(bench.rows(events=1))
    assert refused.value.hint == "make mqtt-plugin"
