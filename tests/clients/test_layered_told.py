"""What a subscriber's broker is told: whatever happens, in the end it knows what is wanted, and each thing once."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sealcast.errors import Corrupt, FilterRejected, Misuse
from sealcast.protections.layered.own_filters import ToldFilters
from sealcast.protections.layered.told import AFRESH_US, Due, Told, from_json, to_json
from sealcast.protections.layered.tree import TreeId
from tests.effort import examples

TREES = [TreeId(name, epoch, 0) for name in ("nyse", "nasdaq") for epoch in (1, 2)]


class FakeBroker:
    """A broker's keeper by its contract: of a sender and tree it takes each number once, and none below it."""

    def __init__(self) -> None:
        self.heads: dict[TreeId, int] = {}
        self.rows: dict[TreeId, Counter[int]] = {}

    def take(self, due: Due) -> None:
        if due.number <= self.heads.get(due.tree, 0):
            return
        self.heads[due.tree] = due.number
        rows = self.rows.setdefault(due.tree, Counter())
        if due.fresh:
            rows.clear()
        rows.subtract(due.remove)
        rows.update(due.add)

    def withdraw(self) -> None:
        """The sender's token ended: what came from it is gone, and it does not hear of that."""
        for rows in self.rows.values():
            rows.clear()


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("add"), st.integers(1, 9)),
        st.tuples(st.just("end"), st.integers(1, 9)),
        st.tuples(st.just("epoch"), st.integers(0, 1)),
        st.tuples(st.just("move"), st.sampled_from(["b1", "b2"])),
        st.tuples(st.just("token"), st.integers(0, 3)),
        st.tuples(st.just("crash"), st.sampled_from(["before", "after"])),
        st.tuples(st.just("refresh"), st.none()),
    ),
    max_size=25,
)


@given(STEPS)
@examples(37, soak=150)
def test_in_the_end_every_tree_knows_just_what_is_wanted(steps: list[tuple[str, object]]) -> None:
    told, brokers, filters = Told(), {"b1": FakeBroker(), "b2": FakeBroker()}, set[int]()
    home, trees, token, now, last = "b1", [TREES[0], TREES[2]], b"t0", 1_000, 0

    def refresh(crash: str | None = None) -> None:
        nonlocal told, now
        told = told.at(home, trees)
        pending = [told.pending] if told.pending is not None else []
        after = told.after(told.pending, 1) if told.pending is not None else told
        for due in (*pending, *after.due(filters, trees, token, now)):
            now += 1
            due = told.numbered(due, now) if due.number == 0 else due
            told = _kept(replace(told, pending=due))
            if crash == "before":
                return
            brokers[home].take(due)
            if crash == "after":
                return
            told = _kept(told.after(due, 1))
        filters.difference_update(told.ended)
        told = replace(told, ending=told.ending - told.ended)

    for what, value in steps:
        now += 1
        match what, value:
            case "add", int():
                last += 1
                filters.add(last)
            case "end", int(number) if number in filters:
                told = replace(told, ending=told.ending | {number})
            case "epoch", int(which):
                trees = [TREES[which], TREES[2 + which]]
            case "move", str(where) if where != home:
                # A move begins new trees; those at the other broker are told nothing more.
                home, brokers[where] = where, FakeBroker()
            case "token", int(which):
                token = f"t{which}".encode()
                brokers[home].withdraw()
                told = replace(told, trees={t: replace(k, token=b"old") for t, k in told.trees.items()})
            case "crash", str(where):
                refresh(where)
            case "refresh", None:
                refresh()
    refresh()
    for tree in trees:
        assert +brokers[home].rows.get(tree, Counter()) == Counter(filters)
        assert set(told.trees[tree].filters if tree in told.trees else ()) == filters
    # And then there is nothing more to say, until it is time to say it again.
    assert not list(told.due(filters, trees, token, now))
    later = replace(told, renew_us=now + 2 * AFRESH_US)
    assert not later.is_due(filters, home, trees, now) or not all(tree in told.trees for tree in trees)
    if filters:
        assert later.is_due(filters, home, trees, now + AFRESH_US)
        assert all(due.fresh for due in told.due(filters, trees, token, now + AFRESH_US))


def _kept(told: Told) -> Told:
    """As it comes back from its file."""
    assert from_json(to_json(told)) == told
    return from_json(to_json(told))


def test_filters_are_kept_sealed_and_the_file_of_numbers_says_when_it_was_altered(tmp_path: Path) -> None:
    own = ToldFilters(tmp_path, "alice", bytes(16))
    with own.locked():
        own.keep(1, "alice-1", "symbol = 'SECRETIVE'")
        own.save(Told(filters=1))
    again = ToldFilters(tmp_path, "alice", bytes(16))
    assert [(f.id, f.text) for f in again.all().values()] == [("alice-1", "symbol = 'SECRETIVE'")]
    assert not any(b"SECRETIVE" in path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())
    (told,) = tmp_path.rglob("told")
    told.write_bytes(told.read_bytes().replace(b'"filters": 1', b'"filters": 0'))
    with pytest.raises(Corrupt, match="not as it was written"):
        again.told()
    told.unlink()
    assert again.told().filters == 1  # a number is not given twice, whatever is lost
    with pytest.raises(FilterRejected, match="at most"):
        again.check("alice-2", "x" * 30_000)


def test_a_filter_of_another_is_not_taken_for_ones_own(tmp_path: Path) -> None:
    own, other = ToldFilters(tmp_path, "alice", bytes(16)), ToldFilters(tmp_path, "mallory", bytes(16))
    for each in (own, other):
        with each.locked():
            each.keep(1, "one", "price > 1")
    (mine,), (theirs,) = (list((tmp_path / name).rglob("1.key")) for name in ("alice", "mallory"))
    mine.write_bytes(theirs.read_bytes())
    with pytest.raises(Misuse, match="mallory"):
        ToldFilters(tmp_path, "alice", bytes(16)).all()
