"""No group keys at all: every member is served under its own pair key (paper 000, section 4, "no caching").

The cost is the size of the group, N/2 on average for random groups: what every other algorithm is measured against.
Nothing is handed out and nothing is remembered.
"""

from __future__ import annotations

import numpy as np

from sealcast.filters.bits import Indices, Words, count, pairs
from sealcast.groupkeys.handed import DELIVERED
from sealcast.groupkeys.interface import KeyPlan, events_of
from sealcast.groupkeys.plans import OWN, assign


class Naive:
    """One encryption a member."""

    name = "naive"
    clusters = None

    def count(self, groups: Words, group_of: Indices | None = None) -> Indices:
        return count(groups)[events_of(groups, group_of)]

    def plan(self, groups: Words, group_of: Indices | None = None, tag: int = DELIVERED) -> KeyPlan:
        group, slot = pairs(groups)
        return assign(groups.shape[0], group, slot, np.full(slot.size, OWN), [], np.empty(0, np.bool_))

    def settle(self, tag: int, delivered: bool) -> None:
        """Nothing was handed out."""
