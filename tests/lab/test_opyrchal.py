"""Paper 000's table and figures again: on Spark, beside the printed numbers."""

from __future__ import annotations

import operator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow.parquet
import pytest

from sealcast.errors import Bug, CannotOpen
from sealcast.groupkeys.catalog import Setting
from sealcast.lab.experiments import EXPERIMENTS, find
from sealcast.lab.opyrchal import auth, fig9, figures, table1
from sealcast.lab.opyrchal.claims import CLAIMS, ORDERS, claims, orders
from sealcast.lab.points import Point, run_all, simulate, simulate_all
from sealcast.lab.report import Curve, Look, Panel, Report
from sealcast.primitives.secrets import Secret
from sealcast.primitives.sign import SigningKey
from tests.cli.shell import sealcast


def silent(done: int, total: int) -> None:
    assert 0 <= done <= total


def tiny(points: list[Point], told: Any) -> list[Any]:
    """The same points with few events, in this process."""
    return [simulate(Point(p.algorithm, p.setting, p.distribution, 100, 50, p.seed, 20, p.share)) for p in points]


def test_points_are_spark_tasks_and_give_what_they_give_anywhere(spark: object) -> None:
    points = [
        Point(algorithm, Setting(40, 60), distribution, 200, 100, 3, 30, 0.8)
        for algorithm in ("simple", "clustered", "key-tree")
        for distribution in ("random", "popular")
    ]
    heard: list[tuple[int, int]] = []
    assert simulate_all(points, lambda done, total: heard.append((done, total))) == [simulate(p) for p in points]
    assert heard[-1] == (6, 6)


def test_every_cell_of_table_1_but_one_is_what_the_equations_give() -> None:
    wrong = [cell.name for cell in table1.cells() if not table1.agrees(cell.printed, cell.computed())]
    assert wrong == ["small, clustered-popular, popular"]
    assert len(table1.cells()) == 16


@pytest.mark.parametrize(
    ("printed", "computed", "agree"),
    [("112", 112.7, True), ("~11", 10.94, True), ("6.7", 6.72, True), ("6.7", 6.81, False), ("50", 51.0, False)],
)
def test_a_cell_agrees_to_its_last_digit(printed: str, computed: float, agree: bool) -> None:
    assert table1.agrees(printed, computed) is agree


def test_clusters_are_whole_also_where_the_equation_divides_subscribers() -> None:
    """114 clusters of 8.77 cost 112.7 by the equation; 88 of nine and 26 of eight cost 157.3, and really do."""
    cell = table1.Cell("clustered-popular", "random", table1.LARGE)
    found = simulate(replace(cell.point(), events=1_500, warmup=8_000)).mean
    assert table1.departs(cell, found)
    assert "88 clusters of 9 and 26 of 8, which cost 157.3" in table1._departure(cell, found)
    assert found == pytest.approx(157.3, rel=0.02)


def test_table_1_as_a_command(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(table1, "simulate_all", tiny)
    result = sealcast("lab", "run", "opyrchal/table1", "--quick", "--out", tmp_path, "--json")
    assert result.code == 0
    document = result.document
    assert set(document) == {"experiment", "rows", "agrees", "notes"}
    assert document["agrees"] is False and "11.39, gives 6.72" in document["notes"][0]
    assert all({"cell", "printed", "computed", "simulated", "agrees"} <= set(row) for row in document["rows"])
    assert pyarrow.parquet.read_table(tmp_path / "opyrchal-table1.parquet").num_rows == 16
    assert (tmp_path / "opyrchal-table1.png").stat().st_size > 10_000
    assert "disagrees in places" in sealcast("lab", "run", "opyrchal/table1", "--quick").out


@pytest.mark.parametrize("name", ["fig6", "fig7", "fig8"])
def test_figures(name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(figures, "simulate_all", tiny)
    plot = figures.QUICK[f"opyrchal/{name}"]
    monkeypatch.setitem(figures.QUICK, f"opyrchal/{name}", figures.Plot(plot.algorithms, (70, 100), (300,)))
    report = find(f"opyrchal/{name}").run(True, silent)
    assert len(report.rows) == 2 * 2 * len(plot.algorithms)
    assert {row["distribution"] for row in report.rows} == {"random", "popular"}
    assert len(report.panels) == 2 and all(panel.lines for panel in report.panels)
    looks = {line.look for panel in report.panels for line in panel.lines}
    assert looks == {Look.MEASURED, Look.COMPUTED, Look.EXACT, Look.BOUND}
    files = [path.suffix for path in report.write(tmp_path)]
    assert files == [".parquet", ".png"]


def test_a_simulated_point_stands_beside_its_closed_form() -> None:
    """Not by a tolerance: by three standard errors of what was simulated."""
    for algorithm in ("clustered", "clustered-popular", "key-tree"):
        point = Point(algorithm, Setting(100, 400), "random", 6_000, 3_000, 1)
        row = figures._row(point, simulate(point))
        assert row["agrees"] is True and row["exact"] is not None


def test_a_point_outside_is_simulated_again_and_that_decides(monkeypatch: pytest.MonkeyPatch) -> None:
    """By chance once, or wrong for good: other groups, and more of them, tell."""
    plot = figures.Plot(("key-tree", "clustered"), (70,), (30,))
    runs: list[list[Point]] = []

    def simulated(wrong: set[int]) -> Any:
        def run(points: list[Point], told: Any) -> list[Any]:
            runs.append(points)
            found = tiny(points, told)
            return [replace(t, encryptions=9_999) if len(runs) in wrong else t for t in found]

        return run

    for wrong, agree in (({1}, True), ({1, 2}, False)):
        runs.clear()
        monkeypatch.setattr(figures, "simulate_all", simulated(wrong))
        monkeypatch.setattr(figures, "EVENTS", 100)
        rows = figures._rows(plot, False, silent)
        first, again = runs
        assert {p.distribution for p in again} == {"random"} and len(again) == 2 and len(first) == 4
        assert all(p.events == 400 and p.seed not in {q.seed for q in first} for p in again)
        assert all(row["again"] is not None for row in rows if row["agrees"] is not None)
        assert figures._report("x", rows, [], []).agrees is agree


def test_no_simulated_mean_is_below_the_bound_and_che_is_close() -> None:
    for algorithm in ("simple", "clustered-popular"):
        point = Point(algorithm, Setting(60, 100), "popular", 4_000, 2_000, 1, popular=150)
        row = figures._row(point, simulate(point))
        assert row["predicted"] == pytest.approx(row["simulated"], rel=0.05) and row["exact"] is None
    row = figures._row(point := Point("clustered", Setting(100, 400), "random", 500, 900, 1), simulate(point))
    assert float(str(row["bound"])) < float(str(row["simulated"]))


def test_points_outside_are_counted_and_named() -> None:
    point = Point("key-tree", Setting(100, 10), "random", 1_000, 0, 1)
    good, bad = figures._row(point, simulate(point)), dict(figures._row(point, simulate(point)))
    bad |= {"simulated": 40.0, "exact": 30.0, "error": 2.0, "agrees": False, "again": 41.0}
    (told,) = figures._outside([good, bad, {"agrees": None}])
    assert told.startswith("2 points have an exact closed form; 1 lay outside") and "1 lie outside again" in told
    assert "key-tree at N = 100, C = 10: exact 30.0, simulated 40.0, then 41.0" in told
    assert figures._report("x", [good, bad], [], []).agrees is False


def test_claims_are_judged_for_every_number_of_subscribers() -> None:
    cost = {"clustered-popular": 10.0, "key-tree": 20.0, "clustered": 15.0}
    rows = [
        {"algorithm": a, "distribution": d, "cache": 100, "subscribers": n, "simulated": c * n}
        for a, c in cost.items()
        for d in ("random", "popular")
        for n in (5, 7)
    ]
    told = claims(rows)
    assert len(told) == len(CLAIMS)
    assert "about 100 % over the key tree: holds at N = 5, 7 (times the throughput: 5: 2.00, 7: 2.00)" in told[0]
    assert "holds nowhere" in told[1]


def test_what_the_text_says_of_an_order_is_judged_where_it_can_be() -> None:
    cost = {"simple": 50.0, "build-up": 49.0, "clustered-popular": 10.0, "key-tree": 20.0, "clustered": 11.0}
    rows = [
        {"algorithm": a, "distribution": d, "cache": c, "subscribers": 9, "simulated": paid if c == 5 else 60 - paid}
        for a, paid in cost.items()
        for d in ("random", "popular")
        for c in (5, 7)
    ]
    told = orders(rows)
    assert len(told) == len(ORDERS)
    assert "random groups: both clustered caches need fewer than the key tree: holds at C = 5" in told
    assert "popular groups: the key tree needs most: holds nowhere" in told
    few = [{**row, "subscribers": n} for row in rows for n in (9, 10) if row["algorithm"] in ("clustered", "key-tree")]
    assert orders(few) == []
    assert "random groups, C = 5: clustered and clustered-popular are similar: holds at N = 9, 10" in orders(
        [{**row, "subscribers": n} for row in rows for n in (9, 10)]
    )


# --- figure 9 and what it costs to authenticate ---------------------------------------------------------


def test_a_law_of_throughput_is_found_where_there_is_one() -> None:
    law = fig9.Law.fitted([1, 10, 100], [3e-6 + e * 2e-6 for e in (1, 10, 100)])
    assert law.fixed == pytest.approx(3e-6) and law.each == pytest.approx(2e-6)


def laid_out(points: list[Any], run: Any, told: Any, work: Any) -> list[float]:
    """Every kind of point really measured, if briefly, in this process."""
    assert all(work(point) >= 0 for point in points)
    return [run(replace(point, seconds=0.0)) for point in points]


def test_figure_9(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(fig9, "run_all", laid_out)
    monkeypatch.setattr(fig9, "QUICK", (1, 3, 10))
    report = find("opyrchal/fig9").run(True, silent)
    assert len(report.rows) == 3 * 3 * 3
    assert {row["cipher"] for row in report.rows} == {"3des", "aes-256", "sealcast"}
    assert all((row["set_up_microseconds"] is None) == (row["keys"] != "new") for row in report.rows)
    assert any("DES itself is measured nowhere" in note for note in report.notes)
    assert [path.suffix for path in report.write(tmp_path)] == [".parquet", ".png"]


def test_figure_9_says_whether_throughput_follows_the_law() -> None:
    times = {(c, k, e): 1e-6 * (1 + 2 * e) for c in fig9.ALL for k in fig9.KEYS for e in (1, 10, 100, 500)}
    assert fig9.report(times, True).agrees
    steep = {(c, k, e): 1e-6 * e**2 for c, k, e in times}
    assert not fig9.report(steep, True).agrees


def test_what_authentication_costs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(auth, "run_all", laid_out)
    monkeypatch.setattr(auth, "QUICK_FRAME", 20)
    monkeypatch.setattr(auth, "ENCRYPTIONS", (1, 2, 2, 3))
    report = find("opyrchal/auth").run(True, silent)
    assert {row["step"] for row in report.rows} == set(auth.STEPS)
    assert {row["party"] for row in report.rows} == set(auth.PARTIES)
    assert all(row["of_integrity"] == 1 for row in report.rows if row["step"] == "integrity")
    assert len(report.panels) == 4 and len(report.notes) == 7
    assert [path.suffix for path in report.write(tmp_path)] == [".parquet", ".png"]


@pytest.mark.parametrize("step", auth.STEPS)
def test_a_subscriber_of_the_lab_opens_what_the_broker_of_the_lab_sealed(step: str) -> None:
    """A measurement of something that does not work measures nothing."""
    message, nonce = b"\0hello", bytes(12)
    sealed, commitment = auth._seal_each(step, [b"k" * 32], [nonce], [message])
    assert auth._open(step, b"k" * 32, nonce, sealed[0], commitment) == message
    pair = Secret.random()
    (wrapped,) = auth._wrapper(step, [pair])(nonce, b"k" * 32)
    assert auth._opener(step, pair)(nonce, wrapped) == b"k" * 32
    signer = SigningKey.generate()
    signatures = auth._sign(step, signer, [message, b"\0other"])
    auth._verify_frame(step, signer, [message, b"\0other"], signatures)
    if step.endswith("signature"):
        with pytest.raises(Bug):
            auth._verify_frame(step, signer, [message, b"\0forged"], signatures)
    if step != "confidentiality":
        with pytest.raises(CannotOpen):
            auth._open(step, b"k" * 32, nonce, bytes([sealed[0][0] ^ 1]) + sealed[0][1:], commitment)


def test_spark_runs_any_points(spark: object) -> None:
    heard: list[tuple[int, int]] = []
    found = run_all([1, 2, 3], operator.neg, lambda done, total: heard.append((done, total)))
    assert found == [-1, -2, -3] and heard[-1] == (3, 3)


def test_experiments_are_listed_and_found() -> None:
    listed = sealcast("lab", "list", "--json").document["experiments"]
    assert [each["experiment"] for each in listed] == list(EXPERIMENTS)
    assert "opyrchal/table1" in sealcast("lab", "list").out
    missing = sealcast("lab", "run", "opyrchal/tabel1")
    assert missing.code == 1 and "did you mean 'opyrchal/table1'?" in missing.err


def test_a_report_without_rows_or_figure_is_a_report(tmp_path: Path) -> None:
    report = Report("a/b", [], True, ["nothing"], [Panel("t", "x", "y", [Curve("l", [1], [2])])])
    assert report.write(tmp_path)[0] == tmp_path / "a-b.parquet"
    assert report.as_json() == {"experiment": "a/b", "rows": [], "agrees": True, "notes": ["nothing"]}
