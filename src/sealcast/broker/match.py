"""match: Admitted -> Matched. Every event of the batch against every subscription of the pinned table, at once."""

from __future__ import annotations

from sealcast.broker.tables import SubscriptionTable
from sealcast.model.stages import Admitted, Matched


def match(admitted: Admitted, table: SubscriptionTable) -> Matched:
    """Which subscriptions each event satisfies; unknown (NULL) is not a match."""
    # Cut out only when some filter (XPath) reads them: most tables never do.
    payloads = admitted.payloads() if table.index.reads_payloads else None
    return Matched(admitted, table.index.match(admitted.columns, payloads))
