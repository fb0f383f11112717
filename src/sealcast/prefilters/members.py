"""Who is in a pre-filter, and how often: what makes deletion safe and growth possible.

A filter forgets its keys, and does not count. Its owner keeps this table beside it. Whoever only looks keys up needs
the filter alone, which can be sent as bytes.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from sealcast.errors import Misuse
from sealcast.prefilters.catalog import SEED_BITS, sized
from sealcast.prefilters.port import Full, Keys, Prefilter, checked, scrambled

#: How often a filter that does not take its keys is built again with a fresh seed and twice the room.
_MAX_ATTEMPTS: Final = 8


class Members:
    """Keys with reference counts, and a filter that always answers yes for each of them.

    The filter grows when it is full. Where it cannot delete, keys that left stay in it as false positives until as many
    left as stayed; then it is built again.
    """

    def __init__(self, kind: str, items: int, rate: float, seed: int | None = None) -> None:
        self._kind, self._items, self._rate = kind, items, rate
        self._filter = sized(kind, items, rate, seed)
        self._seed = seed
        self._counts: dict[int, int] = {}
        #: Of a class with several members: how many there are beside the first. Few classes have any.
        self._shared: dict[int, int] = {}
        self._left = 0

    @property
    def filter(self) -> Prefilter:
        """The filter as it is now. Growth replaces it, so ask again after a change."""
        return self._filter

    def __len__(self) -> int:
        """The number of different keys."""
        return len(self._counts)

    def count(self, key: int) -> int:
        return self._counts.get(key, 0)

    def add(self, keys: Keys) -> None:
        """Counts each key once more, and inserts those that are new."""
        distinct, times = np.unique(checked(keys), return_counts=True)
        known = np.fromiter(map(self._counts.__contains__, distinct.tolist()), np.bool_, len(distinct))
        new = distinct[~known]
        try:
            self._admit(self._filter, new)
        except Full:
            self._rebuild(np.concatenate([self._keys(), new]))
        for key, more in zip(distinct.tolist(), times.tolist(), strict=True):
            self._counts[key] = self._counts.get(key, 0) + more

    def remove(self, keys: Keys) -> None:
        """Counts each key once less, and deletes those whose count is 0.

        Refuses the batch, and removes nothing, if it removes a key more often than it was added.
        """
        distinct, times = np.unique(checked(keys), return_counts=True)
        left = {key: self.count(key) - less for key, less in zip(distinct.tolist(), times.tolist(), strict=True)}
        absent = sum(count < 0 for count in left.values())
        if absent:
            raise Misuse(f"{absent:,} of these keys were not added as often as they are removed; nothing was removed")
        gone = np.array([key for key, count in left.items() if count == 0], np.uint64)
        self._counts.update(left)
        for key in gone.tolist():
            del self._counts[key]
        if self._filter.deletes:
            self._expel(gone)
            return
        self._left += len(gone)
        if self._left > len(self._counts):
            self._rebuild(self._keys())

    def _admit(self, into: Prefilter, new: Keys) -> None:
        """Inserts keys that are not members yet, and notes whose class has a member already."""
        if not len(new):
            return
        held = into.may_contain(new) if into.deletes else None
        into.insert(new)
        if held is None:
            return
        classes, at, number = np.unique(into.classes(new), return_index=True, return_counts=True)
        beside = number - 1 + held[at]
        for of in np.flatnonzero(beside):
            self._shared[int(classes[of])] = self._shared.get(int(classes[of]), 0) + int(beside[of])

    def _expel(self, gone: Keys) -> None:
        """Deletes each class that has no member left."""
        classes, at, number = np.unique(self._filter.classes(gone), return_index=True, return_counts=True)
        empty = []
        for of, less, first in zip(classes.tolist(), number.tolist(), at.tolist(), strict=True):
            beside = self._shared.pop(of, 0) - less
            if beside < 0:
                empty.append(first)
            elif beside:
                self._shared[of] = beside
        self._filter.delete(gone[empty])

    def _rebuild(self, keys: Keys) -> None:
        """Builds the filter again, for twice the keys if need be. If that fails, everything is as it was."""
        items, before = self._items, self._shared
        while items < len(keys):
            items *= 2
        for _ in range(_MAX_ATTEMPTS):
            self._seed = None if self._seed is None else _next(self._seed)
            larger, self._shared = sized(self._kind, items, self._rate, self._seed), {}
            try:
                self._admit(larger, keys)
            except Full:
                items *= 2
                continue
            self._filter, self._items, self._left = larger, items, 0
            return
        self._shared = before
        raise Full(f"no filter of kind {self._kind} takes these {len(keys):,} keys")

    def _keys(self) -> Keys:
        return np.fromiter(self._counts, np.uint64, len(self._counts))


def _next(seed: int) -> int:
    """A seed that follows a given one, so that a given seed makes growth repeatable."""
    return int(scrambled(np.array([seed], np.uint64), (1 << SEED_BITS) - 1)[0])
