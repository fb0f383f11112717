"""match: Admitted -> Matched. Every event of the batch against every subscription of the pinned table, at once.

Filters whose subscriber asks for more work than it may are not asked (budgets.py): they match nothing here, and which
they were goes along.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from sealcast.broker.tables import Bools, MeteredIndex, SparseIndex, SubscriptionTable
from sealcast.filters import bits
from sealcast.model.stages import Admitted, Matched, MatchedPairs

#: From so many subscriptions on, words cost more to clear and to search than pairs cost to sort.
WIDE: Final = 1 << 14
#: Pairs that are held at once, 8 bytes each. An answer with more of them is held in words.
MAX_PAIRS: Final = 1 << 24


def match(admitted: Admitted, table: SubscriptionTable) -> Matched:
    """Which subscriptions each event satisfies, as the table's index finds them."""
    index = table.index
    over = index.over_budget(admitted, table.slots) if isinstance(index, MeteredIndex) else None
    suspended = () if over is None else tuple(np.flatnonzero(over).tolist())
    return Matched(admitted, _pairs(admitted, table, over) or _words(admitted, table, over), suspended)


def _pairs(admitted: Admitted, table: SubscriptionTable, over: Bools | None) -> MatchedPairs | None:
    """None where words serve better: in a narrow table, where a match is the group already, and for many matches."""
    if len(table.ids) < WIDE or table.one_each or not isinstance(table.index, SparseIndex):
        return None
    return table.index.few_pairs(admitted, over, MAX_PAIRS)


def _words(admitted: Admitted, table: SubscriptionTable, over: Bools | None) -> bits.Words:
    if over is None or not isinstance(table.index, MeteredIndex):
        return table.index.match(admitted)
    return table.index.match(admitted, over)
