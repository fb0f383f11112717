"""match: Admitted -> Matched. Every event of the batch against every subscription of the pinned table, at once."""

from __future__ import annotations

from sealcast.broker.tables import SubscriptionTable
from sealcast.model.stages import Admitted, Matched


def match(admitted: Admitted, table: SubscriptionTable) -> Matched:
    """Which subscriptions each event satisfies, as the table's index finds them."""
    return Matched(admitted, table.index.match(admitted))
