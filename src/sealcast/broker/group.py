"""group: Matched -> Grouped. From subscriptions to subscribers, and only those who may read at the pinned version and
time.

This is where access control is dynamic (paper 000): being interested was decided by the filter, being authorised is
decided here, for this batch, whatever was true when the subscription was made. A subscription whose token has ended is
as good as none.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from sealcast.broker.tables import SubscriptionTable
from sealcast.filters import bits
from sealcast.filters.readers import may_open
from sealcast.model.stages import Grouped, Matched, MatchedPairs


def group(matched: Matched, table: SubscriptionTable, slots: Mapping[str, int]) -> Grouped:
    """The distinct groups of the batch, and the group of every event that has one; `slots` are those of
    subscribers, by name."""
    members = _members(matched, table) & table.authorised
    for index, readers in matched.admitted.readers.items():
        let_in = np.array([slot for name, slot in slots.items() if may_open(readers, name)], np.int64)
        members[matched.admitted.frame_index == index] &= bits.pack(np.zeros_like(let_in), let_in, 1, table.n_slots)
    events = np.flatnonzero(members.any(axis=1))
    groups, group_of = bits.unique_rows(members[events])
    return Grouped(matched.admitted, groups, events, group_of, matched.suspended)


def _members(matched: Matched, table: SubscriptionTable) -> bits.Words:
    """Whoever has a subscription that matches and is served."""
    found = matched.subscriptions
    if isinstance(found, MatchedPairs):
        event, subscription = found
        if table.served is not None:
            holds = (table.served[subscription >> 6] & bits.bit_of(subscription)) != 0
            event, subscription = event[holds], subscription[holds]
    else:
        served = found if table.served is None else found & table.served
        if table.one_each:
            return served
        event, subscription = bits.pairs(served)
    return bits.pack(event, table.slots[subscription], matched.admitted.row.size, table.n_slots)
