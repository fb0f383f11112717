"""The cached keys of one set of subscribers: which of its sub-groups hold a key, and who has been handed it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sealcast.filters import bits
from sealcast.filters.bits import Indices, Words
from sealcast.groupkeys.handed import Handed
from sealcast.groupkeys.interface import GroupKey
from sealcast.groupkeys.plans import OWN
from sealcast.groupkeys.policies import HIT, Policy


@dataclass(frozen=True, slots=True)
class KeyedSubgroups:
    """Which sub-groups of a batch have keys. Of each group: the position of its key in `refs`, or OWN."""

    key: Indices
    refs: list[GroupKey]
    new: list[bool]


class SubgroupCache:
    """One cache of the paper: entries are sub-groups of `slots`; bit i of a packed row is `slots[i]`."""

    def __init__(self, slots: Indices, policy: Policy) -> None:
        self._slots = slots
        self._policy = policy
        self.handed = Handed()

    def ask(self, subgroups: Words, group_of: Indices) -> NDArray[np.uint8]:
        """What the look-up of each event came to, in the order of events; NOBODY's for empty sub-groups."""
        found = np.zeros(group_of.size, np.uint8)
        asked = np.flatnonzero(bits.count(subgroups)[group_of])
        found[asked] = np.frombuffer(self._policy.look_up(_names(subgroups, group_of[asked])), np.uint8)
        # What left this cache has left its members' caches, too: it is handed out again if it comes back.
        self.handed.forget(self._policy.evicted)
        return found

    def count(self, subgroups: Words, group_of: Indices) -> Indices:
        """Encryptions of each event: one for a hit, the members otherwise."""
        found = self.ask(subgroups, group_of)
        return np.where(found == HIT, 1, bits.count(subgroups)[group_of])

    def serve(self, subgroups: Words, wanted: NDArray[np.bool_], tag: int) -> KeyedSubgroups:
        """Keys for the wanted sub-groups (one row may repeat another), after `ask`. One member needs no key.

        `wanted` must not name a sub-group that the policy declined.
        """
        rows = np.flatnonzero(wanted & (bits.count(subgroups) > 1))
        distinct, of_row = bits.unique_rows(subgroups[rows])
        key = np.full(subgroups.shape[0], OWN, np.int64)
        key[rows] = of_row
        names = _names(distinct, np.arange(distinct.shape[0]))
        new = [not self.handed.holds(name, tag) for name in names]
        self.handed.add((name for name in names if name in self._policy), tag)
        return KeyedSubgroups(key, self._refs(distinct), new)

    def _refs(self, distinct: Words) -> list[GroupKey]:
        row, bit = bits.pairs(distinct)
        slots = self._slots[bit]
        if np.any(np.diff(self._slots) < 0):
            slots = slots[np.lexsort((slots, row))]
        ends = np.cumsum(np.bincount(row, minlength=distinct.shape[0])).tolist()
        members = slots.tolist()
        return [GroupKey(tuple(members[a:b])) for a, b in zip([0, *ends], ends, strict=False)]


def _names(subgroups: Words, rows: Indices) -> list[int] | list[bytes]:
    """What the policy knows sub-groups by: the number that their bits make; of several words, their bytes."""
    if subgroups.shape[1] == 1:
        numbers: list[int] = subgroups[rows, 0].tolist()
        return numbers
    named = bits.row_bytes(subgroups)
    return [named[row] for row in rows.tolist()]
