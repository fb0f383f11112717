"""Filters with their tables of members, against a counter: nobody who is there is ever denied."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sealcast.errors import Misuse
from sealcast.prefilters import FILTERS, Full, Members, keys_of, sized
from sealcast.prefilters.cuckoo import CuckooFilter
from tests.prefilters.oracle import Churn, keys

Step = tuple[bool, list[int]]
#: Few numbers, so that batches repeat keys and remove what is there; and the ends of the range.
number = st.integers(0, 12) | st.sampled_from([2**63, 2**64 - 1])
steps = st.lists(st.tuples(st.booleans(), st.lists(number, max_size=20)), max_size=12)


@pytest.mark.parametrize("kind", FILTERS)
@given(steps=steps, seed=st.integers(0, 2**64 - 1))
def test_members_agree_with_a_counter(kind: str, steps: list[Step], seed: int) -> None:
    members, truth = Members(kind, 2, 0.3, seed), Counter[int]()
    for adds, batch in steps:
        change, array = Counter(batch), np.array(batch, np.uint64)
        if adds:
            members.add(array)
            truth += change
        elif change <= truth:
            members.remove(array)
            truth -= change
        else:
            with pytest.raises(Misuse, match="nothing was removed"):
                members.remove(array)
        assert len(members) == len(truth)
        assert all(members.count(key) == count for key, count in truth.items())
        present = np.array(list(truth), np.uint64)
        assert members.filter.may_contain(present).all()
        if isinstance(members.filter, CuckooFilter):  # nothing but them is in it
            assert members.filter.entries == len(set(members.filter.classes(present).tolist()))


@pytest.mark.parametrize(
    ("items", "rate", "batches"),
    [(60_007, 0.02, 30), (500, 0.005, 30), pytest.param(60_007, 0.001, 110, marks=pytest.mark.soak)],
)
def test_many_inserts_look_ups_and_deletes(items: int, rate: float, batches: int) -> None:
    """Growth included, where the filter is sized for fewer keys than come. In the soak, it is more than a million."""
    size = 4_000
    churn = Churn(Members("cuckoo", items, rate, seed=1), keys(80_000, seed=2), seed=3)
    churn.run(batches, size)
    assert churn.false_negatives == 0
    assert churn.added == churn.strangers == batches * size and churn.removed > 0.75 * churn.added
    assert churn.hits / churn.strangers <= rate
    assert abs(churn.hits - churn.expected) <= 3 * np.sqrt(churn.variance)


@pytest.mark.parametrize("kind", FILTERS)
def test_growth_loses_nobody_and_keeps_the_rate(kind: str) -> None:
    members, everyone = Members(kind, 10, 0.01, seed=4), keys(30_000, seed=5)
    for batch in np.array_split(everyone, 60):
        members.add(batch)
    assert members.filter.may_contain(everyone).all() and len(members) == 30_000
    if kind != "none":
        measured = members.filter.may_contain(keys(200_000, seed=6)).mean()
        assert measured <= 0.01 + 3 * np.sqrt(0.01 * 0.99 / 200_000)


def test_keys_that_the_filter_cannot_tell_apart_do_not_delete_each_other() -> None:
    members = Members("cuckoo", 2_000, 0.1, seed=7)
    everyone = keys(2_000, seed=8)
    members.add(everyone)
    classes = Counter(members.filter.classes(everyone).tolist())
    twins = [key for key in everyone if classes[int(members.filter.classes(np.array([key]))[0])] > 1]
    assert len(twins) > 20
    for key in twins[:-1]:
        members.remove(np.array([key]))
        assert members.filter.may_contain(np.array(twins)[np.array([members.count(int(k)) > 0 for k in twins])]).all()


def test_a_bloom_filter_forgets_those_who_left_when_it_is_built_again() -> None:
    members, everyone = Members("bloom", 10_000, 0.001, seed=9), keys(10_000, seed=10)
    members.add(everyone)
    members.remove(everyone[:4_000])
    assert members.filter.may_contain(everyone).all()  # those who left are false positives until then
    members.remove(everyone[4_000:9_000])
    assert members.filter.may_contain(everyone[9_000:]).all()
    assert members.filter.may_contain(everyone[:9_000]).mean() < 0.01


def test_a_refused_batch_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    members, everyone = Members("cuckoo", 100, 0.01, seed=11), keys(100, seed=12)
    members.add(everyone)
    before = members.filter.to_bytes()
    with pytest.raises(Misuse, match="1 of these keys"):
        members.remove(np.concatenate([everyone, everyone[:1]]))
    monkeypatch.setattr("sealcast.prefilters.cuckoo.MAX_ROUNDS", 0)  # no table takes anything
    with pytest.raises(Full, match="no filter of kind cuckoo takes these 200 keys"):
        members.add(keys(100, seed=13))
    assert members.filter.to_bytes() == before and len(members) == 100
    monkeypatch.undo()
    members.remove(everyone)
    assert len(members) == 0 and not members.filter.may_contain(everyone).any()


def test_growth_draws_another_seed() -> None:
    """Keys that were prepared to crowd two buckets are spread by the next table."""
    crowd_of = CuckooFilter.sized(1_000, 0.01, seed=14)
    many = keys(2_000_000, seed=15)
    _, first, second = crowd_of._places(many)
    crowd = many[(np.minimum(first, second) == 5) & (np.maximum(first, second) < 100)][: 4 * crowd_of.bucket_size]
    with pytest.raises(Full):
        crowd_of.insert(many[(first == 5) | (second == 5)])
    members = Members("cuckoo", 1_000, 0.01, seed=14)
    members.add(many[(first == 5) | (second == 5)])
    members.add(crowd)
    assert members.filter.may_contain(crowd).all()


def test_tags_become_keys() -> None:
    tags = [b"", b"a", b"b", bytes(32)]
    assert len(set(keys_of(tags).tolist())) == 4
    assert keys_of(tags).tolist() == keys_of(iter(tags)).tolist() != keys_of(tags, key=b"secret").tolist()
    members = sized("cuckoo", 10, 0.001)
    members.insert(keys_of(tags))
    assert members.may_contain(keys_of(tags)).all() and not members.may_contain(keys_of(tags, key=b"other")).all()
