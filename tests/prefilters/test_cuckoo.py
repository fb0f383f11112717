"""The cuckoo filter: lanes against plain lists, buckets of any number, full tables, and rates against theory."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sealcast.errors import Misuse
from sealcast.prefilters import Full, Keys
from sealcast.prefilters.cuckoo import MAX_BITS, MIN_BITS, CuckooFilter
from sealcast.prefilters.lanes import Lanes
from tests.prefilters.oracle import keys

NOT_A_POWER_OF_TWO = 1_013
QUERIES = 1_000_000


# --- lanes ----------------------------------------------------------------------------------------------


@st.composite
def packed(draw: st.DrawFn) -> tuple[Lanes, list[int]]:
    lanes = Lanes(draw(st.integers(MIN_BITS, MAX_BITS)))
    few = st.sampled_from([0, 1, lanes.mask, 1 << lanes.bits - 1]) | st.integers(0, lanes.mask)
    return lanes, draw(st.lists(few, min_size=lanes.number, max_size=lanes.number))


@given(packed())
def test_lanes_agree_with_a_list_of_numbers(case: tuple[Lanes, list[int]]) -> None:
    lanes, numbers = case
    word = np.array([sum(number << lanes.bits * at for at, number in enumerate(numbers))], np.uint64)
    marks = lanes.zeros(word.copy())
    assert bool(marks[0]) == lanes.has_zero(int(word[0])) == (0 in numbers)
    if 0 in numbers:
        assert lanes.lowest(marks)[0] == numbers.index(0) * lanes.bits
    assert lanes.count(word) == sum(number != 0 for number in numbers)


# --- buckets --------------------------------------------------------------------------------------------


@given(st.integers(1, 2**24), st.integers(MIN_BITS, MAX_BITS), st.integers(0, 2**64 - 1))
def test_each_bucket_leads_to_the_other_and_back(buckets: int, bits: int, seed: int) -> None:
    table = CuckooFilter(1, Lanes(bits).number, bits, seed)
    table.buckets = buckets  # only computed with here: no table of this size is made
    fingerprints, first, second = table._places(keys(200, seed))
    assert fingerprints.min() >= 1 and fingerprints.max() <= (1 << bits) - 1
    assert max(first.max(), second.max()) < buckets
    assert np.array_equal(table._other(fingerprints, second), first)


@pytest.mark.parametrize("buckets", [1, 2, 3, 100, 1_000, NOT_A_POWER_OF_TWO, 1_024])
def test_a_table_is_the_set_of_its_members_classes(buckets: int) -> None:
    table = CuckooFilter(buckets, 4, 16, seed=buckets)
    members = keys(max(1, buckets * 7 // 2), seed=1) if buckets > 3 else keys(3, seed=1)
    table.insert(members)
    table.insert(members)  # again: a fingerprint is stored once
    classes = set(table.classes(members).tolist())
    assert table.entries == len(classes) == table._lanes.count(table._table)
    asked = keys(20_000, seed=2)
    assert table.may_contain(members).all()
    assert [table.may_contain_one(key) for key in asked[:500].tolist()] == table.may_contain(asked[:500]).tolist()
    assert table.may_contain(asked).tolist() == [of in classes for of in table.classes(asked).tolist()]
    table.delete(members)
    assert table.entries == 0 and not table._table.any()


@pytest.mark.parametrize(("buckets", "size"), [(25_000, 16), (50_000, 8), (100_000, 4)])
def test_the_shapes_of_the_report_take_19_of_20_entries(buckets: int, size: int) -> None:
    table = CuckooFilter(buckets, size, 16, seed=1)
    members = keys(int(0.945 * buckets * size), seed=2)
    for batch in np.array_split(members, 10):
        table.insert(batch)
    assert table.memory == 800_000 and table.load > 0.94
    assert all(map(table.may_contain_one, members[:1_000].tolist()))
    assert table.may_contain(members).all()


@pytest.mark.parametrize("rate", [0.2, 0.05, 0.01, 0.001, 1e-4, 1e-5, 1e-7, 1e-9])
@pytest.mark.parametrize("items", [1_000, 100_003])
def test_a_filter_takes_as_many_keys_as_it_is_sized_for(items: int, rate: float) -> None:
    table = CuckooFilter.sized(items, rate, seed=3)
    members = keys(items, seed=4)
    table.insert(members)
    assert table.may_contain(members).all() and table.false_positive_rate <= rate


# --- rates ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("share", [0.25, 0.6, 1.0])
@pytest.mark.parametrize("rate", [0.1, 0.02, 0.005, 0.001])
def test_the_rate_is_at_most_the_target_and_is_that_of_theory(rate: float, share: float) -> None:
    table = CuckooFilter.sized(50_021, rate, seed=5)
    table.insert(keys(int(share * 50_021), seed=6))
    measured = table.may_contain(keys(QUERIES, seed=7)).mean()
    theory = table.false_positive_rate
    error = 3 * np.sqrt(theory * (1 - theory) / QUERIES)
    assert measured <= rate
    assert abs(measured - theory) <= error
    bits = table._lanes.bits
    classical = 1 - (1 - 2**-bits) ** (2 * table.bucket_size * table.load)
    # The classical formula takes the fingerprints of a pair of buckets for independent. Ours never repeat, so that
    # more of them are different: the difference is of second order, and too small to see for 11 bits and more.
    assert classical <= theory <= classical * (1 + 2.0 ** (5 - bits))
    if bits >= 11:
        assert abs(measured - classical) <= error


# --- what is refused ------------------------------------------------------------------------------------


def test_a_full_filter_refuses_the_batch_and_is_as_it_was() -> None:
    table = CuckooFilter(NOT_A_POWER_OF_TWO, 4, 16, seed=8)
    members, refused = keys(int(4 * NOT_A_POWER_OF_TWO * 0.95), seed=9), keys(4 * NOT_A_POWER_OF_TWO, seed=10)
    table.insert(members)
    before = table.to_bytes()
    for batch in (refused[:180], refused):  # one fails after many kicks, the other at once
        with pytest.raises(Full, match="no room"):
            table.insert(batch)
        assert table.to_bytes() == before
    assert table.may_contain(members).all()


def test_deleting_what_was_never_inserted_is_refused_and_harms_nobody() -> None:
    table = CuckooFilter.sized(1_000, 1e-6, seed=11)
    members = keys(1_000, seed=12)
    table.insert(members)
    before = table.to_bytes()
    with pytest.raises(Misuse, match="1 of these keys were never inserted; nothing was deleted"):
        table.delete(np.concatenate([members[:5], keys(1, seed=13)]))
    assert table.to_bytes() == before


@pytest.mark.parametrize(
    ("shape", "told"),
    [
        ((0, 4, 16), "0 buckets"),
        ((2**40, 4, 16), "more than"),
        ((10, 3, 16), "multiple of 4"),
        ((10, 0, 16), "multiple of 4"),
        ((10, 68, 16), "multiple of 4"),
        ((10, 16, 3), "4 to 32 bits"),
        ((10, 1, 33), "4 to 32 bits"),
    ],
)
def test_shapes_that_cannot_be_are_refused(shape: tuple[int, int, int], told: str) -> None:
    with pytest.raises(Misuse, match=told):
        CuckooFilter(*shape, seed=0)


@pytest.mark.parametrize("given", [[1, 2], np.array([1, 2]), np.zeros((2, 2), np.uint64), np.array([1.0])])
def test_what_is_not_a_batch_of_keys_is_refused(given: Keys) -> None:
    table = CuckooFilter(10, 4, 16, seed=0)
    for call in (table.insert, table.may_contain, table.delete):
        with pytest.raises(Misuse, match="uint64"):
            call(given)


def test_an_empty_batch_is_no_trouble() -> None:
    table, none = CuckooFilter(10, 4, 16, seed=0), keys(0, seed=0)
    table.insert(none)
    table.delete(none)
    assert table.may_contain(none).tolist() == [] and table.entries == 0
