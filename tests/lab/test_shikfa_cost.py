"""The cost experiment: closed forms against nodes that count, on random trees; and that a wrong form would be seen."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sealcast.errors import Bug
from sealcast.lab.experiments import find
from sealcast.lab.report import Report, Told
from sealcast.lab.shikfa import cost, forms, trees
from sealcast.lab.shikfa.cost import FIGURE1, CostPoint
from sealcast.lab.shikfa.trees import POPULAR, PUBLISHER, UNWANTED, RunningTree, Shape, Spent
from sealcast.primitives.curve import CURVE
from sealcast.primitives.groups import Element
from sealcast.protections.layered.open import Opener


def counted(shape: Shape, labels: list[str]) -> Spent:
    return replace(RunningTree(shape, CURVE).spend(labels), seconds=0)


def bushy(seed: int, layers: int) -> Shape:
    """Any tree: subscribers anywhere below a broker, brokers without anybody, several children of the publisher."""
    rng = random.Random(seed)
    parents: dict[str, str] = {}
    for i in range(rng.randint(1, 8)):
        parents[f"B{i}"] = rng.choice([PUBLISHER, *parents])
    brokers = list(parents)
    wanted = {f"S{i}": rng.choice("fgh") for i in range(rng.randint(1, 6))}
    return Shape(layers, parents | {name: rng.choice(brokers) for name in wanted}, wanted)


@settings(max_examples=60)
@given(seed=st.integers(0, 2**32), layers=st.integers(2, 5))
def test_the_closed_forms_hold_on_any_tree(seed: int, layers: int) -> None:
    shape = bushy(seed, layers)
    labels = ["f", "g", UNWANTED]
    assert counted(shape, labels) == forms.expected(shape, labels)


def test_figure_1_in_powers() -> None:
    assert counted(FIGURE1, ["f"]).events == forms.expected(FIGURE1, ["f"]).events == 33
    assert counted(FIGURE1, [UNWANTED]).events == 3
    assert cost._naive() == forms.naive(FIGURE1, "f") == 54


@pytest.mark.parametrize("layers", [2, 3, 4])
def test_equal_filters_share_rows_only_where_their_ways_are_equal(layers: int) -> None:
    """All equal, r = 2: a row for each child. Without equal ones: a row for each subscriber at each of its brokers."""
    apart, alike = (trees.regular(layers, 4, 2, 16, equal) for equal in (0.0, 1.0))
    assert counted(apart, [UNWANTED]).rows == 16 * 4
    assert counted(alike, [UNWANTED]).rows == forms.expected(alike, [UNWANTED]).rows < 16 * 4
    if layers == 2:
        assert counted(alike, [UNWANTED]).rows == 16 + 8 + 4 + 2  # at the lowest, each subscriber's key is its own


def here(points: list[CostPoint], run: object, told: Told, work: object) -> list[Spent]:
    """Without Spark: what a task does."""
    return [cost.measure(point) for point in points]


@pytest.fixture
def report(monkeypatch: pytest.MonkeyPatch) -> Report:
    few = [point for point in cost.points(True) if point.group == CURVE.name and point.layers < 4]
    monkeypatch.setattr(cost, "points", lambda quick: few)
    monkeypatch.setattr(cost, "run_all", here)
    return find("shikfa/cost").run(True, lambda done, total: None)


def test_the_report_agrees_and_draws(report: Report) -> None:
    assert report.agrees and len(report.rows) > 25
    assert {"cell", "printed", "computed", "measured", "agrees"} <= set(report.rows[0])
    assert len(report.panels) == 6 and all(line.x for panel in report.panels[2:] for line in panel.lines[:4])


def test_points_vary_one_thing_at_a_time_over_all_layers() -> None:
    for quick in (True, False):
        found = cost.points(quick)
        assert len(set(found)) == len(found) and {p.layers for p in found} == {2, 3, 4, 5}
        assert {p.group for p in found} == set(cost.GROUPS[: 2 if quick else 3])
        for point in found:
            base = CostPoint(point.layers, subscribers=point.subscribers)
            differs = sum(getattr(point, n) != getattr(base, n) for n in ("depth", "fan_out", "equal", "group"))
            assert differs <= 1


def test_a_node_that_computes_more_than_it_must_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    class Twice(Opener):
        def _peeled(self, key: bytes) -> Element:
            super()._peeled(key)
            return super()._peeled(key)

    monkeypatch.setattr(RunningTree, "opening", Twice)
    assert counted(FIGURE1, ["f"]).events == 33 + 4


def test_an_event_that_goes_astray_is_no_measurement() -> None:
    running = RunningTree(trees.regular(2, 3, 2, 4, 1.0), CURVE)
    running.shape.wanted["S0"] = "something else"
    with pytest.raises(Bug):
        running.spend([POPULAR])
