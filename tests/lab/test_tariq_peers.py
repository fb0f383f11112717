"""Simulated peers of paper 003: the simulation itself, the figures' points, and what curious peers conclude."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace

import pytest

from sealcast.errors import Bug, Rejected
from sealcast.lab.experiments import EXPERIMENTS
from sealcast.lab.tariq import curious, fig6ab, scale
from sealcast.lab.tariq.coalitions import pooled_trees
from sealcast.lab.tariq.costs import NO_SECURITY, CryptoCosts, measured_costs, timed
from sealcast.lab.tariq.curious import Narrowed, SeenLinks, answer_times, consistent, merged
from sealcast.lab.tariq.fig6c import SpreadPoint, measure_spread
from sealcast.lab.tariq.ideal import DEPTH, IdealCredentials, ideal_event
from sealcast.lab.tariq.joining import JoinPoint, averaged, build, degree_of, measure_joins
from sealcast.lab.tariq.scale import TrafficPoint, count_keys, measure_traffic, range_labels
from sealcast.lab.tariq.simulate import Simulation
from sealcast.lab.tariq.workloads import HOT_SHARE, Workload
from sealcast.overlay.peers.port import Dissemination
from sealcast.wire.peers import PeerMessage

COSTS = CryptoCosts(0.001, 0.0001, 0.00001, 0.003, 0.003, 0.001, 0.001)


# --- the simulation -------------------------------------------------------------------------------------


def test_the_same_seed_gives_the_same_run() -> None:
    point = JoinPoint(40, 5, hot_spots=3, costs=COSTS)
    assert measure_joins(point) == measure_joins(point)
    assert measure_joins(point) != measure_joins(replace(point, seed=2))


def test_a_link_has_one_delay_and_keeps_its_order() -> None:
    net = Simulation(1)
    assert net.delay("a", "b") == net.delay("b", "a")
    assert 0.024 <= net.delay("a", "c") <= 0.134
    times: dict[tuple[str, str], float] = {}
    net = build(JoinPoint(30, 4, costs=COSTS))

    def watch(at: float, sender: str, to: str, message: PeerMessage) -> None:
        arrives = at + net.delay(sender, to)
        assert arrives >= times.get((sender, to), 0.0)
        times[sender, to] = arrives

    net.watch = watch
    net.run(net.now + 120)
    assert times


def test_a_busy_peer_answers_later() -> None:
    plain, secure = (measure_joins(JoinPoint(20, 20, costs=costs)) for costs in (NO_SECURITY, COSTS))
    slow = measure_joins(JoinPoint(20, 20, costs=replace(COSTS, open_request=0.5)))
    assert plain.mean <= secure.mean < slow.mean
    # With room for all, a place takes one opened request at the root, and some wait behind another's.
    assert slow.mean - plain.mean >= 500


def test_what_does_not_end_is_a_bug() -> None:
    net = Simulation(1)

    def again() -> None:
        net.at(net.now, again)

    again()
    with pytest.raises(Bug, match="does not end"):
        net.run(1.0, most=1_000)


def test_a_parent_that_does_not_cover_its_child_is_found() -> None:
    net = build(JoinPoint(12, 3))
    parents = [name for name, peer in net.peers.items() if any(view.children for view in peer.node.seats())]
    name = next(name for name in parents if name != "root")
    places = net.peers[name].credentials.places
    places[0] = replace(places[0], label="0" * DEPTH if not places[0].label.startswith("0") else "1" * DEPTH)
    with pytest.raises(Bug, match="does not cover"):
        net.check_forest()


# --- workloads ------------------------------------------------------------------------------------------


def test_uniform_values_are_everywhere_and_skewed_ones_are_not() -> None:
    uniform, skewed = Workload(random.Random(1)), Workload(random.Random(1), hot_spots=4)
    flat = [uniform.value() for _ in range(20_000)]
    assert len(set(flat)) == 1 << DEPTH
    counts = Counter(skewed.value() for _ in range(20_000))
    fifth = (1 << DEPTH) // 5
    hot = sum(count for _, count in counts.most_common(fifth))
    assert hot / 20_000 >= HOT_SHARE, "four of five are among a fifth of the values"


def test_labels_cover_values() -> None:
    work = Workload(random.Random(1))
    assert {len(work.label()) for _ in range(500)} == set(range(1, DEPTH + 1))
    assert {len(work.label(longest=2)) for _ in range(100)} == {1, 2}


# --- figures --------------------------------------------------------------------------------------------


def test_points_of_the_figures() -> None:
    assert [degree_of(number) for number in (64, 1_024, 2_048)] == [6, 10, 11]
    result = measure_joins(JoinPoint(60, 6, costs=COSTS))
    assert 0 < result.first <= result.mean
    assert 0.5 < result.first_share <= 1
    assert 1 <= result.depth <= result.deepest
    assert averaged([result, result]) == result


def test_a_greater_out_degree_makes_flatter_trees() -> None:
    narrow, wide = (measure_joins(JoinPoint(100, degree)) for degree in (3, 24))
    assert wide.depth < narrow.depth
    assert wide.first < narrow.first


@pytest.mark.parametrize("dissemination", Dissemination)
def test_every_wanted_event_of_figure_6c_arrives(dissemination: Dissemination) -> None:
    point = SpreadPoint(JoinPoint(50, 5, costs=COSTS), publishers=4, events=5, dissemination=dissemination)
    secure = measure_spread(point)
    assert secure.missed == 0
    assert secure.deliveries > 20
    plain = measure_spread(replace(point, joined=replace(point.joined, costs=NO_SECURITY)))
    assert plain.deliveries == secure.deliveries
    least = 1000 * (COSTS.sealing(1) + COSTS.opening(1))
    assert least <= secure.mean - plain.mean < 3 * least


def test_costs_are_measured_with_the_real_scheme() -> None:
    costs = measured_costs(3)
    assert 0 < costs.tag_test < costs.check_event < costs.open_request
    assert costs.opening(4) > costs.opening(1) > costs.open_request
    assert costs.sealing(4) > costs.sealing(1)
    assert costs.issue_request > costs.open_request, "a pairing for each slot, against one"
    with pytest.raises(Bug):
        timed(lambda: None, 0)


# --- curious peers --------------------------------------------------------------------------------------


def test_labels_that_remain() -> None:
    candidates = list(curious.below("0"))
    assert len(candidates) == 2**DEPTH - 1
    left = consistent(candidates, {"01000000", "01111111"}, {"00000000"})
    assert left == ["01"]
    assert consistent(candidates, set(), set()) == candidates


@pytest.mark.parametrize(
    ("labels", "together"),
    [({"00", "01"}, {"0"}), ({"000", "001", "01"}, {"0"}), ({"00", "10"}, {"00", "10"}), (set(), set())],
)
def test_halves_make_a_whole(labels: set[str], together: set[str]) -> None:
    assert merged(labels) == together


def seen(dissemination: Dissemination, split: int = 1) -> SeenLinks:
    return curious.watched(40, 200, dissemination, split)


def test_flooding_tells_a_parent_nothing_and_a_parent_with_a_grandchild_everything() -> None:
    links = seen(Dissemination.FLOODING)
    for child, parent in links.parents.items():
        assert links.carried.get((parent, child), set()) == links.known_to(parent), "everything is sent to everybody"
    between = [each for each in curious.parent_and_grandchild(links) if each.before > 1]
    assert sum(each.found for each in between) / len(between) > 0.8
    assert all(each.truth in each.left for each in between), "the truth is never excluded"


def test_routing_tells_a_parent_the_label_of_the_link_and_pooling_parents_the_subscription() -> None:
    links = seen(Dissemination.ROUTING, split=2)
    alone = curious.lone_parent(links, Dissemination.ROUTING)
    assert all(each.truth in each.left for each in alone)
    assert sum(each.found for each in alone) / len(alone) > 0.5
    one, total = curious.pooled(links, 1, 2)
    both, _ = curious.pooled(links, 2, 2)
    assert one == 0, "no parent alone determines a subscription that was split"
    assert 0 < both <= total


def test_answers_tell_what_was_wanted_unless_it_is_opened_beside() -> None:
    wanted, unwanted = answer_times(COSTS, inline=True, events=8)
    assert len(wanted) == len(unwanted) == 4
    assert min(wanted) > max(unwanted)
    wanted, unwanted = answer_times(COSTS, inline=False, events=8)
    assert max(wanted) == pytest.approx(max(unwanted), abs=1e-6)


def test_an_offer_under_its_own_slots_key_names_the_acceptor() -> None:
    assert curious.offer_suspects(one_key=False) == 1
    assert curious.offer_suspects(one_key=True) == DEPTH + 1


def test_a_label_is_found_when_it_alone_remains() -> None:
    assert Narrowed(4, ["01"], "01").found
    assert not Narrowed(4, ["01", "010"], "01").found
    assert not Narrowed(4, ["00"], "01").found


# --- scale ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("depth", [1, 3, 5])
def test_ranges_are_covered_exactly_by_the_fewest_labels(depth: int) -> None:
    size = 1 << depth
    for low in range(size):
        for high in range(low, size):
            labels = range_labels(low, high, depth)
            hits = [sum(format(v, f"0{depth}b").startswith(label) for label in labels) for v in range(size)]
            assert hits == [int(low <= v <= high) for v in range(size)]
            assert len(labels) <= max(1, 2 * depth - 2)


def test_keys_of_a_subscriber_do_not_depend_on_how_many_there_are() -> None:
    few, many = count_keys(500), count_keys(5_000)
    assert few.mean == pytest.approx(many.mean, rel=0.05)
    assert many.most > scale.ATTRIBUTES * DEPTH, "a range takes more labels than the paper's bound"


def test_routing_sends_less_and_nothing_in_vain() -> None:
    flooding = measure_traffic(TrafficPoint(60, Dissemination.FLOODING, 1, 20))
    routing = measure_traffic(TrafficPoint(60, Dissemination.ROUTING, 2, 20))
    assert flooding.missed == routing.missed == 0
    assert flooding.deliveries == routing.deliveries
    assert routing.false_positives == 0 < flooding.false_positives
    assert routing.messages < flooding.messages
    assert routing.links > flooding.links


# --- the reports ----------------------------------------------------------------------------------------


def test_what_is_registered_is_there() -> None:
    names = [name for name in EXPERIMENTS if name.startswith("tariq/")]
    assert {"tariq/fig6a", "tariq/fig6b", "tariq/fig6c", "tariq/attacks", "tariq/scale"} <= set(names)
    for name in names:
        module, function = EXPERIMENTS[name].at.split(":")
        assert hasattr(__import__(f"sealcast.lab.{module}", fromlist=[function]), function)


def test_rows_stand_beside_what_is_printed(spark: object, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fig6ab, "DEGREES", (3, 6))
    monkeypatch.setattr(fig6ab, "measured_costs", lambda repeats: COSTS)
    report = fig6ab.fig6b(True, lambda done, of: None)
    cells = [row["cell"] for row in report.rows]
    assert len(cells) == len({(row["cell"], row["workload"]) for row in report.rows})
    assert report.rows[-1]["cell"] == "delay falls with the out-degree"
    assert any("230 to 300" in str(row["printed"]) for row in report.rows)
    assert all(row.keys() == report.rows[0].keys() for row in report.rows)


@pytest.mark.parametrize("split", [1, 2])
def test_of_two_attributes_fewer_than_all_parents_determine_nothing(split: int) -> None:
    found = pooled_trees(60, 150, split)
    assert [each.parents for each in found] == list(range(1, 2 * split + 1))
    assert all(each.determined == 0 for each in found[:-1]) and found[-1].subscriptions > 0
    if split == 1:
        assert found[-1].determined > 0


SLOW = ("tariq/fig6a", "tariq/fig6c", "tariq/scale", "tariq/primitives")


@pytest.mark.parametrize("name", ["tariq/attacks", *(pytest.param(each, marks=pytest.mark.soak) for each in SLOW)])
def test_a_quick_run_of_each_experiment(spark: object, name: str) -> None:
    """As the command runs it: every row has the same columns, and what must hold anywhere holds."""
    report = EXPERIMENTS[name].run(True, lambda done, of: None)
    assert report.experiment == name and report.rows
    assert all(row.keys() == report.rows[0].keys() for row in report.rows)
    if name == "tariq/attacks":
        found = {row["attack"]: row for row in report.rows}
        # What the paper's text does not allow, and what happens: it is not hidden
        assert not found["history: a parent and a grandchild"]["agrees"] and not report.agrees
        assert all(row["agrees"] for row in report.rows if str(row["attack"]).startswith("collusion"))
    if name == "tariq/fig6c":
        assert sum(int(row["missed"] or 0) for row in report.rows) == 0


def test_ideal_events_are_refused_when_they_are_altered() -> None:
    credentials = IdealCredentials("x")
    event = ideal_event("p", 1, {"a": "01"})
    credentials.check_event(event)
    with pytest.raises(Rejected):
        credentials.check_event(event[:-1] + b"\x00")
