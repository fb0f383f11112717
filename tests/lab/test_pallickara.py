"""Paper 004's experiments: what they measure is really done, clocks are read right, and they judge as they say."""

from __future__ import annotations

import json
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sealcast.errors import Bug, Misuse
from sealcast.lab import scratch
from sealcast.lab.experiments import EXPERIMENTS, find
from sealcast.lab.pallickara import center, discovery, end_to_end, registration, spacing, token
from sealcast.lab.pallickara.end_to_end import BITS, MEASURED, PARTIES, PLAIN, SEALED, Cipher
from sealcast.lab.pallickara.parts import REST, MeasuredRun, Parts, watched
from sealcast.lab.pallickara.plain import PlainPath
from sealcast.lab.pallickara.samples import Sample, sample, within, without_outliers
from sealcast.lab.report import Report
from sealcast.model.event import Event
from sealcast.protections.frame_steps import MatchingStep
from sealcast.protections.steps import StepName
from tests.cli.shell import sealcast

MARK = b"a payload that can be found wherever it lies in the clear"


def silent(done: int, total: int) -> None:
    assert 0 <= done <= total


def judged(report: Report) -> dict[str, Any]:
    return {str(row["cell"]): row for row in report.rows if row["agrees"] is not None}


# --- runs that count ------------------------------------------------------------------------------------


@given(st.lists(st.floats(0, 1e6, allow_nan=False), min_size=4, max_size=40))
def test_outliers_are_those_outside_of_tukeys_fences(values: list[float]) -> None:
    low, high = np.percentile(values, [25, 75])
    reach = 1.5 * (high - low)
    expected = [v for v in values if low - reach - 1e-6 <= v <= high + reach + 1e-6]
    assert set(within(values)) <= set(expected)
    assert {v for v in values if low - reach + 1e-6 <= v <= high + reach - 1e-6} <= set(within(values))
    found = without_outliers(values)
    assert found.kept + found.outliers == len(values) and found.kept >= len(values) // 2


def test_a_sample_says_what_the_paper_prints() -> None:
    runs = [1.0, 2.0, 3.0, 4.0]
    found = sample(runs)
    assert (found.mean, found.kept, found.outliers) == (2.5, 4, 0)
    assert found.deviation == pytest.approx(np.std(runs, ddof=1))
    assert found.error == pytest.approx(np.std(runs, ddof=1) / 2)
    assert found.times(1e3).mean == 2_500 and found.times(1e3).error == pytest.approx(1e3 * found.error)
    assert without_outliers([1.0] * 9 + [50.0]).outliers == 1
    assert sample([7.0]).deviation == 0 and within([1.0, 90.0]) == [1.0, 90.0]


# --- where the time goes --------------------------------------------------------------------------------


class Worked:
    """Something with a clock of its own to be measured by."""

    def __init__(self, clock: list[float]) -> None:
        self.clock = clock

    def outer(self) -> str:
        self.clock[0] += 1
        self.inner()
        self.clock[0] += 2
        return "done"

    def inner(self) -> None:
        self.clock[0] += 10

    def failing(self) -> None:
        self.clock[0] += 5
        raise Misuse("no")


def test_a_part_within_a_part_counts_once_and_all_of_them_add_up(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [0.0]
    monkeypatch.setattr("sealcast.lab.pallickara.parts.time.process_time", lambda: clock[0])
    worked = Worked(clock)
    original = Worked.outer

    def whole() -> None:
        clock[0] += 0.5
        worked.outer()
        worked.inner()
        with pytest.raises(Misuse):
            worked.failing()

    here = f"{__name__}:Worked"
    with watched({f"{here}.outer": "out", f"{here}.inner": "in", f"{here}.failing": "fail"}) as measured:
        found = measured.measured(whole)
        assert worked.outer() == "done"
        # What happened between two measurements is in neither.
        assert measured.measured(worked.outer).parts == {"out": 3, "in": 10, REST: 0}
    assert found.seconds == 28.5
    assert found.parts == {"out": 3, "in": 20, "fail": 5, REST: 0.5}
    assert Worked.outer is original, "and nothing stays behind"


def test_a_function_that_is_gone_is_noticed_and_nothing_stays_behind() -> None:
    original = Worked.inner
    with pytest.raises(KeyError), watched({f"{__name__}:Worked.inner": "a", f"{__name__}:Worked.gone": "b"}):
        pass
    assert Worked.inner is original


def test_every_part_of_a_request_is_still_where_it_is_looked_for() -> None:
    with watched(center.PARTS) as measured:
        assert isinstance(measured, Parts)


# --- the key center -------------------------------------------------------------------------------------


def test_registration_is_measured_for_every_size_of_key(tmp_path: Path) -> None:
    report = registration.report(registration.measure(3, silent))
    cells = {(row["cell"], row["part"]) for row in report.rows}
    for bits in BITS:
        assert (f"figure 2: AES-{bits}", "all of it") in cells
        mine = {str(r["part"]): r for r in report.rows if r["cell"] == f"figure 3: AES-{bits}"}
        assert {"sealing the request", "validating the request", "generating keys", "registry commit"} <= set(mine)
        assert {"sealing the reply", "opening the reply", "queues and journal"} <= set(mine)
        assert "signing the token" not in mine, "nobody asked for one"
        assert sum(float(str(row["share"])) for row in mine.values()) == pytest.approx(1, abs=0.01)
    assert [path.suffix for path in report.write(tmp_path)] == [".parquet", ".png"]


def runs(*seconds: float) -> list[MeasuredRun]:
    return [MeasuredRun(s, s, {"deciding": s / 2, REST: s / 2}) for s in seconds]


def test_initial_runs_are_compared_with_later_ones() -> None:
    assert registration.report({128: runs(9, 1, 1, 2), 256: runs(3, 1, 2, 1)}).agrees
    assert not registration.report({128: runs(9, 1, 1, 2), 256: runs(1, 2, 2, 2)}).agrees


def test_a_token_and_its_key_are_really_given(tmp_path: Path) -> None:
    report = token.report(token.measure(4))
    parts_of = {str(row["cell"]): row for row in report.rows}
    assert {"signing the token", "validating the request", "sealing the reply"} <= set(parts_of)
    assert "registry commit" not in parts_of, "who was authorised before changes nothing by asking"
    assert [path.suffix for path in report.write(tmp_path)] == [".parquet", ".png"]


def test_the_spread_of_token_requests_is_compared_and_milliseconds_are_not() -> None:
    def spread(deviation: float) -> Report:
        return token.report(runs(*(1e-3 * (10 + deviation * side) for side in (-1, 1) * 50)))

    alike, wide = spread(0.7), spread(3)
    assert list(judged(alike)) == ["standard deviation, in means"]
    assert alike.agrees and not wide.agrees and not spread(0.1).agrees
    rows = {str(row["cell"]): row for row in alike.rows}
    assert (rows["mean"]["printed"], rows["mean"]["measured"]) == (102.27, 10.0)
    assert rows["standard error"]["printed"] == 0.7194
    assert float(str(rows["standard error"]["measured"])) == pytest.approx(0.07, rel=0.02)


# --- end to end -----------------------------------------------------------------------------------------


def contents(directory: Path) -> bytes:
    return b"".join(path.read_bytes() for path in sorted(directory.rglob("*")) if path.is_file())


def test_one_path_is_secured_and_the_other_is_the_same_in_the_clear() -> None:
    """A comparison of something with itself would agree with everybody."""
    with scratch.realm(64 << 20) as realm, ExitStack() as open_:
        for send in end_to_end.ways(realm, open_).values():
            spent = send(Event({"number": 1}, MARK))
            assert len(spent) == len(PARTIES) and all(seconds > 0 for seconds in spent)
        root = realm.paths.root
        assert contents(root / "plain").count(MARK) == 2, "in the log and in a piece"
        assert MARK not in contents(root / "topics")
        for bits in BITS:
            assert realm.state().topic(f"aes-{bits}").parameters.key_bits == bits


def test_the_plain_path_delivers_to_those_who_asked_and_to_nobody_else(tmp_path: Path) -> None:
    with scratch.realm(64 << 20) as realm:
        realm.enrol_many(["a", "b"])
        realm.create_topic("t", end_to_end.SCHEMA, access="members")
        realm.subscribe_many("t", [("a", "number >= 5", None), ("b", "number < 7", None)])
        table = MatchingStep.of(StepName(str(realm.paths.root), "t")).at(realm.registry.version()).table
        with PlainPath(tmp_path / "plain", end_to_end.SCHEMA, table) as path:
            for number, deliveries, got in ((6, 2, [b"six"]), (9, 1, [b"six"]), (3, 1, [])):
                path.publish(Event({"number": number}, b"six"))
                assert path.turn() == deliveries
                assert path.read() == got


def test_end_to_end(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(end_to_end, "QUICK_PAYLOADS", (1, 4_096))
    monkeypatch.setattr(end_to_end, "RUNS", 4)
    monkeypatch.setattr(end_to_end, "WARM", 1)
    monkeypatch.setattr(end_to_end, "CIPHER_SECONDS", 0.0)
    report = find("pallickara/end-to-end").run(True, silent)
    cases = [row for row in report.rows if str(row["cell"]).startswith(("figure", SEALED))]
    assert len(cases) == len(MEASURED) * 2
    for row in cases:
        whole = sum(float(str(row[party])) for party in PARTIES)
        assert whole == pytest.approx(float(str(row["measured"])), rel=1e-3, abs=1e-3)
        assert (row["broker_overhead"] is None) == (row["cell"] == f"figure 4: {PLAIN}")
    assert [panel.title.split(":")[0] for panel in report.panels] == [
        "figure 4", "figures 4, 5, 7 and 9 together", *(f"figure {n}" for n in range(5, 11))
    ]  # fmt: skip
    assert [path.suffix for path in report.write(tmp_path)] == [".parquet", ".png"]


def told(**milliseconds: list[float]) -> Report:
    """A report on runs that took so long, at every party a third of it."""
    names = {"plain": PLAIN, "small": "AES-128", "middle": "AES-192", "large": "AES-256"}
    found = {(names[kind], 1): [(ms / 3e3,) * 3 for ms in each] for kind, each in milliseconds.items()}
    return end_to_end.report(found, [Cipher(bits, 1, 1e-6) for bits in BITS])


def test_what_the_text_says_of_the_figures_is_judged() -> None:
    plain, noisy = [1.0, 1.1, 0.9, 1.0], [5.0, 5.5, 4.5, 5.0]
    assert told(plain=plain, small=noisy, middle=noisy, large=noisy).agrees
    dear = told(plain=plain, small=noisy, middle=[ms + 5 for ms in noisy], large=[ms + 10 for ms in noisy])
    assert [row["agrees"] for row in judged(dear).values()] == [True, False]
    free = told(plain=noisy, small=plain, middle=plain, large=plain)
    assert [row["agrees"] for row in judged(free).values()] == [False, True]


def test_a_difference_is_one_beyond_chance() -> None:
    assert end_to_end.dearer(Sample(2.0, 0.1, 16), Sample(1.0, 0.1, 16))
    assert not end_to_end.dearer(Sample(1.01, 0.4, 16), Sample(1.0, 0.4, 16))
    assert not end_to_end.dearer(Sample(1.0, 0.1, 16), Sample(2.0, 0.1, 16))


def test_an_outlier_is_left_out_with_all_of_its_parties() -> None:
    usual = [(1.0, 2.0, 3.0), (1.1, 2.0, 3.0), (0.9, 2.0, 3.0), (1.0, 2.1, 3.0), (1.0, 1.9, 3.0)]
    found = end_to_end.delay([*usual, (1.0, 2.0, 90.0)])
    assert found.whole.outliers == 1 and found.party["subscriber"].mean == 3.0
    assert sum(each.mean for each in found.party.values()) == pytest.approx(found.whole.mean)


# --- discovery ------------------------------------------------------------------------------------------


def test_discovery_finds_what_matches_at_both_nodes(tmp_path: Path) -> None:
    report = discovery.report(discovery.measure((1, 3), (3, 6), 2, silent))
    assert len(report.rows) == 1 + 4 and list(judged(report)) == [report.rows[0]["cell"]]
    assert [path.suffix for path in report.write(tmp_path)] == [".parquet", ".png"]


def test_a_discovery_that_finds_less_is_no_measurement() -> None:
    with scratch.realm(64 << 20) as realm:
        world = discovery.DiscoveryWorld(realm, (2, 4))
        world.advertise(3)
        with world.seeker() as seeker:
            assert discovery.find(seeker, 2) > 0
            with pytest.raises(Bug):
                discovery.find(seeker, 4)


@settings(max_examples=25)
@given(st.floats(1e-3, 0.1), st.floats(1e-6, 1e-2), st.floats(1e-7, 1e-2))
def test_what_a_topic_adds_is_found_where_there_is_a_law(always: float, match: float, other: float) -> None:
    cases = [(s, m) for s in (16, 64, 256) for m in (1, 4, 16, 64) if m <= s]
    found = {(s, m): [always + match * m + other * (s - m)] * 5 for s, m in cases}
    assert discovery.plane({c: sample(r) for c, r in found.items()}) == pytest.approx((always, match, other), rel=1e-4)
    assert discovery.report(found).agrees is (match > other) or match == pytest.approx(other)


# --- spacing --------------------------------------------------------------------------------------------


def test_the_error_of_a_gap_is_how_much_it_changed() -> None:
    heard = spacing.Heard()
    for published, received in ((0, 100), (10, 111), (30, 129), (60, 159)):
        heard.hear(published, received)
    assert heard.errors() == [1, 2, 0]


def test_batches_take_the_spacing_and_the_buffer_gives_it_back(tmp_path: Path) -> None:
    found = {(100, 20): spacing.stream((100, 20), 30)}
    direct, buffered = found[100, 20]["direct"], found[100, 20]["jitter buffer"]
    assert len(direct.received) == len(buffered.received) == 30
    assert sorted(direct.received) == direct.received and direct.published == buffered.published
    assert all(
        after > before
        for heard in (direct, buffered)
        for before, after in zip(heard.published, heard.received, strict=True)
    )
    assert max(direct.errors()) > 20 and max(buffered.errors()) < 0.01
    report = spacing.report(found)
    assert [row["agrees"] for row in report.rows] == [False, True] and not report.agrees
    assert [path.suffix for path in report.write(tmp_path)] == [".parquet", ".png"]


def test_every_message_as_it_comes_waits_for_the_one_before() -> None:
    heard = spacing.stream((0, 50), 21)["direct"]
    assert len(heard.received) == 21
    assert all(after > before for before, after in zip(heard.published, heard.received, strict=True))
    assert sorted(heard.received) == heard.received


def test_spacing_is_preserved_up_to_a_tenth_of_the_mean_gap() -> None:
    heard = {}
    for name, off in (("direct", 1.5), ("jitter buffer", 0.4)):
        heard[name] = spacing.Heard()
        for at in range(40):
            heard[name].hear(10.0 * at, 10.0 * at + 5 + off * (at % 2))
    assert [row["agrees"] for row in spacing.report({(0, 10): heard}).rows] == [False, True]


# --- all of them ----------------------------------------------------------------------------------------


def test_all_are_listed_and_their_rows_have_the_columns_of_the_first() -> None:
    listed = [name.removeprefix("pallickara/") for name in EXPERIMENTS if name.startswith("pallickara/")]
    assert listed == ["registration", "token", "end-to-end", "hosts", "discovery", "spacing", "revocation"]
    secured = [2.0] * 4
    reports = (
        token.report(runs(1, 2, 3)),
        registration.report({128: runs(1, 2, 3)}),
        told(plain=[1.0] * 4, small=secured, middle=secured, large=secured),
    )
    for report in reports:
        assert {tuple(row) for row in report.rows} == {tuple(report.rows[0])}
        assert {"cell", "printed", "measured", "agrees"} <= set(report.rows[0])


def test_from_the_command_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(token, "QUICK_RUNS", 3)
    shown = sealcast("lab", "run", "pallickara/token", "--quick", "--out", str(tmp_path))
    assert shown.code == 0 and "102.27" in shown.out and (tmp_path / "pallickara-token.png").stat().st_size > 0
    document = sealcast("lab", "run", "pallickara/token", "--quick", "--json").document
    assert json.dumps(document) and document["rows"][0]["printed"] == 102.27
