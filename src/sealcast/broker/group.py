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
from sealcast.model.stages import Grouped, Matched


def group(matched: Matched, table: SubscriptionTable, slots: Mapping[str, int]) -> Grouped:
    """The distinct groups of the batch, and the group of every event that has one; `slots` are those of
    subscribers, by name."""
    served = matched.subscriptions if table.served is None else matched.subscriptions & table.served
    members = _members(served, table) & table.authorised
    for index, readers in matched.admitted.readers.items():
        let_in = np.array([slot for name, slot in slots.items() if may_open(readers, name)], np.int64)
        members[matched.admitted.frame_index == index] &= bits.pack(np.zeros_like(let_in), let_in, 1, table.n_slots)
    events = np.flatnonzero(members.any(axis=1))
    groups, group_of = bits.unique_rows(members[events])
    return Grouped(matched.admitted, groups, events, group_of, matched.suspended)


def _members(subscriptions: bits.Words, table: SubscriptionTable) -> bits.Words:
    if table.one_each:
        return subscriptions
    event, subscription = bits.pairs(subscriptions)
    return bits.pack(event, table.slots[subscription], subscriptions.shape[0], table.n_slots)
