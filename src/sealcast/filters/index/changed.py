"""A changed table without building everything again: the index of an earlier version, and a small one of what is new.

Every subscription of the new table is one of the old table, in whatever place it now has, or new. Building costs what
is new; matching costs a little more than a fresh index, the more the tables differ. `stale` says when to build afresh.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa

from sealcast.errors import Misuse
from sealcast.filters.bits import Words, bit_of, words_for
from sealcast.filters.index.boxes import Ids
from sealcast.filters.index.core import NO_LIMIT, Index
from sealcast.filters.tree import Condition
from sealcast.filters.vector.axes import Bools
from sealcast.filters.work import Measure
from sealcast.model.schema import Schema

#: A subscription of the new table that the old one does not have.
NEW: Final = -1
#: Shares of a table that may be new, or gone, before building afresh pays.
_MAX_NEW: Final = 0.1
_MAX_GONE: Final = 0.25


@dataclass(frozen=True, slots=True)
class ChangedIndex:
    base: Index
    fresh: Index
    #: The place in the new table of each subscription of the base (-1: gone) and of each new one.
    base_places: Ids
    fresh_places: Ids
    count: int

    @classmethod
    def build(cls, base: Index, origin: Ids, added: Sequence[Condition]) -> ChangedIndex:
        """`origin[i]`: which of the base's subscriptions is the new table's i-th, or NEW; `added`: the new filters."""
        fresh_places = np.flatnonzero(origin == NEW)
        old = np.flatnonzero(origin != NEW)
        known = origin[old]
        if fresh_places.size != len(added):
            raise Misuse(f"{fresh_places.size} subscriptions are new, and {len(added)} filters are given for them")
        if known.size and (known.min() < 0 or known.max() >= base.count or np.unique(known).size != known.size):
            raise Misuse("every old subscription is one of the base's, and none is taken twice")
        base_places = np.full(base.count, -1, np.int64)
        base_places[known] = old
        return cls(base, Index.build(added, base.schema), base_places, fresh_places, origin.size)

    @property
    def schema(self) -> Schema:
        return self.base.schema

    @property
    def words(self) -> int:
        return words_for(self.count)

    @property
    def reads_payloads(self) -> bool:
        return self.base.reads_payloads or self.fresh.reads_payloads

    @property
    def stale(self) -> bool:
        gone = int((self.base_places < 0).sum())
        return self.fresh.count > _MAX_NEW * self.count or gone > _MAX_GONE * self.base.count

    @property
    def residuals(self) -> Sequence[Condition]:
        return [*self.base.residuals, *self.fresh.residuals]

    def most_work(self, measure: Measure, events: int) -> Ids:
        """As `Index.most_work`, in the places of the new table."""
        return self._placed(self.base.most_work(measure, events), self.fresh.most_work(measure, events))

    def work(self, columns: pa.RecordBatch, measure: Measure) -> Ids:
        """As `Index.work`, in the places of the new table."""
        return self._placed(self.base.work(columns, measure), self.fresh.work(columns, measure))

    def _placed(self, base: Ids, fresh: Ids) -> Ids:
        out, kept = np.zeros(self.count, np.int64), self.base_places >= 0
        out[self.base_places[kept]] = base[kept]
        out[self.fresh_places] = fresh
        return out

    def match(
        self, columns: pa.RecordBatch, payloads: Sequence[bytes] | None = None, unasked: Bools | None = None
    ) -> Words:
        """As `Index.match`, in the places of the new table."""
        out = np.zeros((columns.num_rows, self.words), np.uint64)
        events, subscriptions = self.pairs(columns, payloads, unasked)
        np.add.at(out.reshape(-1), events * self.words + (subscriptions >> 6), bit_of(subscriptions))
        return out

    def pairs(
        self, columns: pa.RecordBatch, payloads: Sequence[bytes] | None = None, unasked: Bools | None = None
    ) -> tuple[Ids, Ids]:
        """As `Index.pairs`, in the places of the new table."""
        found = self.few_pairs(columns, payloads, unasked, NO_LIMIT)
        assert found is not None
        return found

    def few_pairs(
        self, columns: pa.RecordBatch, payloads: Sequence[bytes] | None, unasked: Bools | None, most: int
    ) -> tuple[Ids, Ids] | None:
        """As `Index.few_pairs`, in the places of the new table."""
        gone = self.base_places < 0
        some = unasked if unasked is not None else np.zeros(self.count, np.bool_)
        # Who is gone is not asked either.
        old_unasked = np.where(gone, True, some.take(self.base_places, mode="clip")) if self.count else gone
        before = self.base.few_pairs(columns, payloads, old_unasked if old_unasked.any() else None, most)
        added = None if before is None else self.fresh.few_pairs(columns, payloads, some[self.fresh_places], most)
        if before is None or added is None:
            return None
        (events, old), (fresh_events, new) = before, added
        subscriptions = self.base_places.take(old)
        kept = subscriptions >= 0
        keys = np.concatenate(
            [
                events[kept] * self.count + subscriptions[kept],
                fresh_events * self.count + self.fresh_places.take(new),
            ]
        )
        keys.sort()
        events = keys // max(1, self.count)
        return events, keys - events * self.count
