"""match: Admitted -> Matched. Every event of the batch against every subscription of the pinned table, at once.

Filters whose subscriber asks for more work than it may are not asked (budgets.py): they match nothing here, and which
they were goes along.
"""

from __future__ import annotations

import numpy as np

from sealcast.broker.tables import MeteredIndex, SubscriptionTable
from sealcast.model.stages import Admitted, Matched


def match(admitted: Admitted, table: SubscriptionTable) -> Matched:
    """Which subscriptions each event satisfies, as the table's index finds them."""
    index = table.index
    over = index.over_budget(admitted, table.slots) if isinstance(index, MeteredIndex) else None
    if over is None or not isinstance(index, MeteredIndex):
        return Matched(admitted, index.match(admitted))
    return Matched(admitted, index.match(admitted, over), tuple(np.flatnonzero(over).tolist()))
