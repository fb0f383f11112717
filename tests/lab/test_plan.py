"""sealcast plan keys: what it counts is what happens, what it proposes fits, and what it cannot plan it says."""

from __future__ import annotations

import json
import pickle
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sealcast.errors import Misuse, Rejected
from sealcast.filters import bits
from sealcast.groupkeys.catalog import ALGORITHMS, Setting, entry_bytes
from sealcast.groupkeys.mosaic.planner import Mosaic
from sealcast.groupkeys.policies import POLICIES
from sealcast.lab import groups, match_input, plan
from sealcast.lab.plan import MAX_SIMILAR, Choice, PlanWorkload, choices, handed, parse_memory, tried, workload
from tests.cli.shell import sealcast, write_lines
from tests.groupkeys import plain

SUBSCRIBERS, EVENTS = 70, 700
SCHEMA = {
    "attributes": [
        {"name": "symbol", "type": "string"},
        {"name": "price", "type": "float", "min": 0},
        {"name": "size", "type": "float"},
    ]
}


def filters_of(wishes: groups.Wishes) -> Iterator[str]:
    """The lab's wishes as text, for attributes symbol (S0, S1, ...), price and size."""
    for watched, below, price, size in zip(wishes.watched, wishes.below, wishes.price, wishes.size, strict=True):
        names = ", ".join(f"'S{symbol}'" for symbol in np.flatnonzero(watched))
        least = f" AND size >= {float(size)!r}" if size else ""
        yield f"symbol IN ({names}) AND price {'<' if below else '>='} {float(price)!r}{least}"


class Market:
    """The content workload of the lab as files, and the groups that it has by its own account."""

    def __init__(self, directory: Path) -> None:
        rng = np.random.default_rng(5)
        wishes, quotes = groups.Wishes.draw(rng, SUBSCRIBERS), groups.Quotes.draw(rng, EVENTS)
        self.schema = directory / "schema.json"
        self.schema.write_text(json.dumps(SCHEMA))
        self.subscriptions = write_lines(
            directory / "subscriptions.jsonl", *({"id": i, "filter": f} for i, f in enumerate(filters_of(wishes)))
        )
        columns = zip(quotes.symbol.tolist(), quotes.price.tolist(), quotes.size.tolist(), strict=True)
        self.events = write_lines(
            directory / "events.jsonl",
            *(
                {"id": i, "attributes": {"symbol": f"S{s}", "price": p, "size": z}}
                for i, (s, p, z) in enumerate(columns)
            ),
        )
        expected = wishes.groups(quotes)
        self.groups = expected[expected.any(axis=1)]

    def options(self) -> tuple[object, ...]:
        return "--schema", self.schema, "--subscriptions", self.subscriptions, "--events", self.events

    def work(self) -> PlanWorkload:
        return workload(match_input.read(self.schema, self.subscriptions, self.events))


@pytest.fixture(scope="module")
def market(tmp_path_factory: pytest.TempPathFactory) -> Market:
    return Market(tmp_path_factory.mktemp("market"))


# --- the workload ---------------------------------------------------------------------------------------


def test_groups_are_those_that_the_filters_really_make(market: Market) -> None:
    work = market.work()
    assert np.array_equal(work.rows(slice(None)), market.groups)
    assert (work.events, work.refused, work.left_out) == (EVENTS, 0, 0)
    again = pickle.loads(pickle.dumps(work))
    assert np.array_equal(again.rows(slice(None)), market.groups) and again.subscribers == SUBSCRIBERS


def test_more_events_than_are_looked_at_are_left_aside(market: Market, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plan, "QUICK_EVENTS", 50)
    work = workload(match_input.read(market.schema, market.subscriptions, market.events), quick=True)
    assert (work.events, work.left_out) == (50, EVENTS - 50)
    monkeypatch.setattr(plan, "MAX_GROUP_BYTES", 10 * 16)
    assert market.work().events == 10


def test_events_off_the_schema_are_left_out_and_counted(market: Market, tmp_path: Path) -> None:
    good = {"symbol": "S0", "price": 0.0, "size": 1e9}
    bad = [{"symbol": "S0", "price": -1}, {"colour": "red"}]
    events = write_lines(tmp_path / "e", *({"id": i, "attributes": a} for i, a in enumerate([good, *bad])))
    work = workload(match_input.read(market.schema, market.subscriptions, events))
    assert (work.wanted, work.refused) == (1, 2)


@pytest.mark.parametrize(
    ("subscriptions", "words"),
    [([], "no subscriptions"), ([{"id": 1, "filter": "symbol = 'nobody'"}], "none of 700 events is wanted")],
)
def test_nothing_to_plan_is_said(market: Market, tmp_path: Path, subscriptions: list[object], words: str) -> None:
    asked = write_lines(tmp_path / "s", *subscriptions)
    with pytest.raises(Rejected, match=words):
        workload(match_input.read(market.schema, asked, market.events))


# --- memory ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "size"),
    [("0", 0), ("500000", 500_000), ("2MB", 2_000_000), ("2 mb", 2_000_000), ("1.5MiB", 3 << 19), ("3k", 3_000)],
)
def test_sizes(text: str, size: int) -> None:
    assert parse_memory(text) == size


@pytest.mark.parametrize("text", ["", "-1", "2 pounds", "1e6", "MB", "0x10", "nan"])
def test_what_is_no_size_is_refused(text: str) -> None:
    with pytest.raises(Misuse, match="is no size"):
        parse_memory(text)


@settings(max_examples=60)
@given(st.integers(1, 400), st.integers(0, 200_000), st.booleans())
def test_everything_that_is_tried_fits_and_nothing_is_wasted(subscribers: int, memory: int, quick: bool) -> None:
    found = choices(subscribers, memory, quick)
    assert {choice.algorithm for choice in found} | {"key-tree"} == set(ALGORITHMS)
    assert len(set(found)) == len(found)
    for choice in found:
        taken, entries, k = choice.broker_bytes, choice.setting.cache, choice.setting.clusters
        assert 0 <= taken <= memory
        if choice.algorithm == "clustered":
            part = entry_bytes(-(-subscribers // (k or 1)))
            assert taken == entries * part and memory - taken < part
        elif choice.algorithm == "clustered-popular":
            part = entry_bytes(-(-subscribers // (k or 1)))
            assert taken == entries // 2 * entry_bytes(subscribers) + (entries - entries // 2) * part
            assert memory - taken < entry_bytes(subscribers) + part
        elif choice.algorithm in ("simple", "build-up", "mosaic"):
            assert taken == entries * entry_bytes(subscribers) and memory - taken < entry_bytes(subscribers)


def test_all_policies_clusters_and_trees_are_tried() -> None:
    found = choices(1_000, 2_000_000)
    assert {c.setting.policy for c in found if c.algorithm == "simple"} == set(POLICIES)
    assert {c.setting.clustering for c in found if c.algorithm == "clustered"} == {"id", "similarity"}
    assert {c.setting.clustering for c in choices(MAX_SIMILAR + 1, 2_000_000)} == {"id"}, "it would take too long"
    assert len({c.setting.clusters for c in found if c.algorithm == "clustered"}) >= 8
    assert {(c.setting.arity, c.setting.trees) for c in found if c.algorithm == "key-tree"} >= {(2, 1), (4, 4)}
    assert not any(c.algorithm == "key-tree" for c in choices(1_000, 10_000))
    assert len(choices(1_000, 2_000_000, quick=True)) < len(found) / 2


# --- counting -------------------------------------------------------------------------------------------


def test_what_is_predicted_is_what_a_plain_implementation_counts(market: Market) -> None:
    work = market.work()
    rows = [frozenset(np.flatnonzero(row).tolist()) for row in _flags(market.groups)]
    for choice, costs in [
        (Choice("simple", Setting(SUBSCRIBERS, 30, policy="frequency"), 0), plain.simple(rows, 30, "frequency")),
        (Choice("clustered", Setting(SUBSCRIBERS, 30, 5), 0), plain.clustered(rows, SUBSCRIBERS, 30, 5, "lru")),
        (Choice("naive", Setting(SUBSCRIBERS, 0), 0), plain.naive(rows)),
    ]:
        counted = costs[work.warmup :]
        found = tried(choice, work)
        assert found.encryptions == sum(counted) / len(counted) and found.max == max(counted)


def test_who_is_similar_is_known_from_the_warm_up_alone(market: Market) -> None:
    """Every second subscriber gets the same events: together, half the clusters suffice."""
    work = market.work()
    flags = np.zeros((400, 64), np.uint8)
    rng = np.random.default_rng(3)
    for half in (0, 1):
        flags[:, half::2] = rng.integers(0, 2, (400, 1))
    rows = np.packbits(flags, axis=1, bitorder="little").view(np.uint64)
    groups, group_of = bits.unique_rows(rows)
    alike = replace(work, subscribers=64, groups=groups, group_of=group_of)
    by_id, similar = (
        tried(Choice("clustered", Setting(64, 4, 2, clustering=way), 0), alike).encryptions
        for way in ("id", "similarity")
    )
    assert similar < by_id and len(alike.past) == alike.warmup


def _flags(words: bits.Words) -> np.ndarray:
    return np.unpackbits(words.view(np.uint8), axis=1, count=SUBSCRIBERS, bitorder="little")


def test_nobody_is_handed_anything_by_naive() -> None:
    work = _work([0b11, 0b101, 0b11])
    assert handed(Choice("naive", Setting(3, 0), 0), work) == plan.HandoutCost(0.0, 0.0, 0)


def test_a_simple_cache_hands_a_key_to_every_member_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Six events in micro-batches of three: {0,1} twice, {0,1,2}; then {1,2}, {0,1} again, {2} alone."""
    monkeypatch.setattr(plan, "BATCH", 3)
    work = _work([0b011, 0b011, 0b111, 0b110, 0b011, 0b100])
    found = handed(Choice("simple", Setting(3, 10), 0), work)
    # The second half: only {1,2} is new. In all: 0 holds two keys, 1 three, 2 two.
    assert found == plan.HandoutCost(2 / 3, 7 / 3, 3)


def test_what_mosaic_leaves_with_subscribers_is_what_it_says_itself() -> None:
    rows = groups.random_groups(400, 64, seed=2)
    distinct, group_of = bits.unique_rows(rows)
    found = handed(Choice("mosaic", Setting(64, 200), 0), PlanWorkload(64, distinct, group_of, 400, 0, 0))
    itself = Mosaic(64, 200 * entry_bytes(64), seed=0)
    for start in range(0, 400, plan.BATCH):
        itself.plan(*bits.unique_rows(rows[start : start + plan.BATCH]))
    labels, keys = itself.keys_per_subscriber()
    assert labels > 0 and found.keys_mean == pytest.approx(labels + keys, rel=0.1)


def _work(members: list[int]) -> PlanWorkload:
    distinct, group_of = bits.unique_rows(np.array(members, np.uint64)[:, None])
    return PlanWorkload(3, distinct, group_of, len(members), 0, 0)


# --- the command ----------------------------------------------------------------------------------------


def test_the_command(spark: object, market: Market) -> None:
    result = sealcast("plan", "keys", *market.options(), "--memory", "20kB", "--quick", "--json")
    assert result.code == 0, result.err
    document = result.document
    assert set(document) == {
        *("subscribers", "events", "wanted", "groups", "memory", "quick", "choice", "rows", "notes"),
    }
    rows = document["rows"]
    assert [row["rank"] for row in rows] == list(range(1, len(rows) + 1))
    assert {row["algorithm"] for row in rows} == set(ALGORITHMS) and document["choice"] == rows[0]
    assert [row["encryptions"] for row in rows] == sorted(row["encryptions"] for row in rows)
    assert all(row["broker_bytes"] <= document["memory"] == 20_000 for row in rows)
    # On Spark or not, a setting costs what it costs.
    work = market.work()
    simple = next(row for row in rows if row["algorithm"] == "simple")
    chosen = Choice("simple", Setting(SUBSCRIBERS, **simple["parameters"]), 0)
    assert simple["encryptions"] == round(tried(chosen, work).encryptions, 3)
    assert simple["handouts"] == round(handed(chosen, work).per_event, 3)


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"--memory": "lots"}, "'lots' is no size"),
        ({"--events": "/nowhere"}, "/nowhere"),
        ({"--schema": "/dev/null"}, "not JSON"),
    ],
)
def test_what_cannot_be_planned_is_refused(market: Market, changed: dict[str, str], words: str) -> None:
    pairs = dict(zip(*[iter([*market.options(), "--memory", "1MB"])] * 2, strict=True)) | changed
    result = sealcast("plan", "keys", *(part for pair in pairs.items() for part in pair))
    assert result.code == 1 and words in result.err and result.out == ""


def test_help_shows_an_example() -> None:
    assert "Example: sealcast plan keys" in " ".join(sealcast("plan", "keys", "--help").out.split())
    assert sealcast("plan", "keys").code == 2
