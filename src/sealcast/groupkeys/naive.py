"""No group keys at all: every member is served under its own pair key (paper 000, section 4, "no caching").

The cost is the size of the group, N/2 on average for random groups: what every other algorithm is measured against.
Nothing is handed out and nothing is remembered.
"""

from __future__ import annotations

import numpy as np

from sealcast.filters.bits import Indices, Words, count, pairs, starts
from sealcast.groupkeys.handed import DELIVERED
from sealcast.groupkeys.interface import KeyPlan, PairKey, events_of


class Naive:
    """One encryption a member."""

    name = "naive"
    clusters = None

    def count(self, groups: Words, group_of: Indices | None = None) -> Indices:
        return count(groups)[events_of(groups, group_of)]

    def plan(self, groups: Words, group_of: Indices | None = None, tag: int = DELIVERED) -> KeyPlan:
        group, slot = pairs(groups)
        start = starts(group, groups.shape[0])
        slots, use = np.unique(slot, return_inverse=True)
        none = np.empty(0, np.int64)
        return KeyPlan(
            keys=tuple(map(PairKey, slots.tolist())),
            use_start=start,
            uses=use.astype(np.int64, copy=False),
            member_start=start,
            members=slot,
            # Group g uses its members' keys in the members' order, so that member j opens through use j.
            via=np.arange(slot.size, dtype=np.int64) - start[group],
            handout_slot=none,
            handout_key=none,
            handout_group=none,
        )

    def settle(self, tag: int, delivered: bool) -> None:
        """Nothing was handed out."""
