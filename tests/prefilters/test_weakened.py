"""Variants that leave one rule out, and the false negatives that the same oracle then sees."""

from __future__ import annotations

import numpy as np
import pytest

from sealcast.prefilters import Full, Keys, Members
from sealcast.prefilters.cuckoo import CuckooFilter
from tests.prefilters.oracle import Churn, keys


class Xor(CuckooFilter):
    """The report's form of the other bucket, cut to the table: it is no involution where m is not a power of two."""

    def _other(self, fingerprints: Keys, buckets: Keys) -> Keys:
        offset = super()._other(fingerprints, np.zeros_like(buckets))
        return (buckets ^ offset) % np.uint64(self.buckets)


class Zero(CuckooFilter):
    """Fingerprints may be 0, which also means an empty entry."""

    def _places(self, keys: Keys) -> tuple[Keys, Keys, Keys]:
        fingerprints, first, _ = super()._places(keys)
        fingerprints -= 1
        return fingerprints, first, self._other(fingerprints, first)


class Uncounted(Members):
    """A key that leaves takes its fingerprint along, whoever else has the same one."""

    def _expel(self, gone: Keys) -> None:
        self._filter.delete(gone[self._filter.may_contain(gone)])


class Forgetful(Members):
    """Grows into a table of the new keys only."""

    def _keys(self) -> Keys:
        return keys(0, seed=0)


def false_negatives(members: Members) -> int:
    churn = Churn(members, keys(3_000, seed=2), seed=3)
    churn.run(batches=40, size=500)
    return churn.false_negatives


#: 5 bits a fingerprint, so that what rarely goes wrong does; buckets that are not a power of two.
SMALL = ("cuckoo", 1_500, 0.5, 1)


def test_the_xor_form_loses_members_unless_buckets_are_a_power_of_two() -> None:
    def lost(form: type[CuckooFilter], buckets: int) -> int:
        table, members = form(buckets, 4, 16, seed=1), keys(int(3.7 * buckets), seed=2)
        table.insert(members)
        return int(np.count_nonzero(~table.may_contain(members)))

    assert lost(Xor, 1_024) == 0
    assert lost(CuckooFilter, 1_000) == 0
    assert lost(Xor, 1_000) > 20


def test_a_fingerprint_of_0_is_lost_once_its_buckets_fill() -> None:
    def lost(form: type[CuckooFilter]) -> int:
        table, members = form(1_000, 8, 8, seed=1), keys(7_800, seed=2)
        for batch in np.array_split(members, 50):
            table.insert(batch)
        return int(np.count_nonzero(~table.may_contain(members)))

    assert lost(CuckooFilter) == 0
    assert lost(Zero) > 0


def test_without_counts_outside_one_member_deletes_another() -> None:
    assert false_negatives(Members(*SMALL)) == 0
    assert false_negatives(Uncounted(*SMALL)) > 0


def test_growth_without_the_table_of_keys_loses_members() -> None:
    def lost(table: type[Members]) -> int:
        members, everyone = table(*SMALL), keys(3_000, seed=2)
        for batch in np.array_split(everyone, 10):
            members.add(batch)
        return int(np.count_nonzero(~members.filter.may_contain(everyone)))

    assert lost(Members) == 0
    assert lost(Forgetful) > 100


def test_a_full_table_that_drops_its_victim_loses_a_member(monkeypatch: pytest.MonkeyPatch) -> None:
    def lost() -> int:
        table, members = CuckooFilter(1_000, 4, 16, seed=1), keys(3_750, seed=2)
        table.insert(members)
        with pytest.raises(Full):
            table.insert(keys(250, seed=3))
        return int(np.count_nonzero(~table.may_contain(members)))

    assert lost() == 0
    monkeypatch.setattr(CuckooFilter, "_undo", lambda self, before: None)
    assert lost() > 0
