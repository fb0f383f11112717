"""Tables as workers keep them: whatever way one came about, it matches what a plain evaluation says."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from sealcast.broker import match as matching
from sealcast.broker import snapshots, tables
from sealcast.broker.filter_conditions import OpenedFilters
from sealcast.broker.group import group
from sealcast.broker.snapshots import SealedSnapshots
from sealcast.broker.tables import AttributeIndex, FilterIndexes, SubscriptionTable, TableCache
from sealcast.filters import bits
from sealcast.filters.check import fit
from sealcast.filters.index import ChangedIndex, Index
from sealcast.filters.parse import parse
from sealcast.filters.vector.evaluator import Evaluator
from sealcast.lab import market
from sealcast.model.stages import Admitted, Grouped, MatchedPairs
from sealcast.trust.deployment import Realm
from sealcast.trust.keys.filter_texts import BrokerFilters

EVENTS = market.ticks(300, seed=1, n_symbols=20).columns


@pytest.fixture
def realm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Realm:
    monkeypatch.setattr(tables, "MIN_SNAPSHOT", 1)
    made = Realm.create(tmp_path / "realm")
    made.create_topic("ticks", market.SCHEMA, access="members")
    made.enrol_many([f"s{i}" for i in range(60)])
    filters = market.filters(60, seed=2, n_symbols=20)
    made.subscribe_many("ticks", [(f"s{i}", text, f"id-{i}") for i, text in enumerate(filters)])
    return made


def cache(realm: Realm) -> TableCache:
    broker = realm.broker()
    kept = SealedSnapshots(realm.paths.tables("ticks"), broker.tables_key(realm.state().topic("ticks").id))
    return TableCache(FilterIndexes(OpenedFilters(BrokerFilters(broker)), kept))


def table(of: TableCache, realm: Realm) -> SubscriptionTable:
    state = realm.state()
    return of.at(state, state.topic("ticks"))


def compiled(made: SubscriptionTable) -> Index | ChangedIndex:
    assert isinstance(made.index, AttributeIndex)
    return made.index.compiled


def assert_right(made: SubscriptionTable, realm: Realm) -> None:
    oracle = Evaluator(EVENTS, market.SCHEMA)
    found = compiled(made).match(EVENTS)
    subscriptions = list(realm.state().subscriptions_of("ticks"))
    assert made.ids == tuple(s.id for s in subscriptions)
    filters = BrokerFilters(realm.broker())
    for i, subscription in enumerate(subscriptions):
        said = (found[:, i // 64] >> np.uint64(i % 64) & np.uint64(1)).astype(bool)
        text = filters.text(realm.state(), subscription)
        assert np.array_equal(said, oracle.true(fit(parse(text), market.SCHEMA))), text


def test_a_changed_table_is_the_last_one_with_a_little_on_top(realm: Realm) -> None:
    kept, rng = cache(realm), random.Random(3)
    assert isinstance(compiled(table(kept, realm)), Index)
    overlaid = 0
    for round_ in range(8):
        live = list(realm.state().subscriptions_of("ticks"))
        realm.unsubscribe(rng.choice(live).id)
        realm.subscribe("ticks", f"s{round_}", market.filters(1, seed=round_ + 50, n_symbols=20)[0])
        made = table(kept, realm)
        overlaid += isinstance(compiled(made), ChangedIndex)
        assert_right(made, realm)
    assert overlaid > 0


def test_a_table_that_changed_much_is_compiled_anew(realm: Realm) -> None:
    kept = cache(realm)
    table(kept, realm)
    realm.subscribe_many("ticks", [("s1", text, None) for text in market.filters(40, seed=9, n_symbols=20)])
    made = table(kept, realm)
    assert isinstance(compiled(made), Index)
    assert_right(made, realm)
    assert not made.one_each


def test_the_next_worker_reads_what_the_last_one_compiled(realm: Realm, monkeypatch: pytest.MonkeyPatch) -> None:
    table(cache(realm), realm)
    monkeypatch.setattr(Index, "build", None)  # nothing may be compiled from here on
    assert_right(table(cache(realm), realm), realm)


def test_a_damaged_snapshot_is_compiled_again(realm: Realm) -> None:
    table(cache(realm), realm)
    (file,) = realm.paths.tables("ticks").glob("*.table")
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 1
    file.write_bytes(data)
    assert_right(table(cache(realm), realm), realm)
    assert file.read_bytes() != bytes(data), "and put right"


def test_old_snapshots_go(realm: Realm) -> None:
    for seed in range(8):
        realm.subscribe_many("ticks", [("s2", text, None) for text in market.filters(60, seed=seed, n_symbols=20)])
        table(cache(realm), realm)
    assert len(list(realm.paths.tables("ticks").glob("*.table"))) == snapshots.MAX_SNAPSHOTS


def test_who_lost_the_right_is_masked(realm: Realm) -> None:
    realm.revoke("ticks", "s5")
    made = table(cache(realm), realm)
    _, allowed = bits.pairs(made.authorised[None, :])
    assert allowed.tolist() == [slot for slot in range(60) if slot != 5]


# --- wide tables --------------------------------------------------------------------------------------


def admitted() -> Admitted:
    none = np.zeros(EVENTS.num_rows, np.int64)
    rows = np.arange(EVENTS.num_rows)
    return Admitted(0, 0, 1, (), none, none, rows, [b""] * EVENTS.num_rows, EVENTS, none, ())


def grouped(made: SubscriptionTable, realm: Realm) -> Grouped:
    return group(matching.match(admitted(), made), made, realm.state().slots_of("ticks"))


@pytest.mark.parametrize("most", [1 << 20, 3], ids=["pairs", "too many pairs"])
def test_a_wide_table_is_matched_in_pairs_with_the_same_groups(
    realm: Realm, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = cache(realm)
    table(kept, realm)
    # A subscriber with two, and one whose table is the last one with something on top; some whose tokens have ended.
    realm.subscribe("ticks", "s1", "price > 0", "another")
    made = table(kept, realm)
    assert isinstance(compiled(made), ChangedIndex) and not made.one_each
    until = made.until_us.copy()
    until[::3] = 0
    made = replace(made, until_us=until).at(realm.clock())
    in_words = grouped(made, realm)
    monkeypatch.setattr(matching, "WIDE", 1)
    monkeypatch.setattr(matching, "MAX_PAIRS", most)
    found = matching.match(admitted(), made).subscriptions
    assert isinstance(found, MatchedPairs) is (most > 3)
    in_pairs = grouped(made, realm)
    assert in_words.events.size and np.array_equal(in_pairs.events, in_words.events)
    assert np.array_equal(in_pairs.groups[in_pairs.group_of], in_words.groups[in_words.group_of])


def test_who_is_suspended_matches_nothing_in_pairs_either(realm: Realm, monkeypatch: pytest.MonkeyPatch) -> None:
    realm.subscribe("ticks", "s1", "price > 0", "another")
    made = table(cache(realm), realm)
    over = np.zeros(len(made.ids), np.bool_)
    over[::2] = True
    monkeypatch.setattr(matching, "WIDE", 1)
    monkeypatch.setattr(AttributeIndex, "over_budget", lambda *_: over)
    found = matching.match(admitted(), made)
    assert isinstance(found.subscriptions, MatchedPairs) and found.suspended == tuple(np.flatnonzero(over).tolist())
    assert found.subscriptions.events.size and not over[found.subscriptions.subscriptions].any()
