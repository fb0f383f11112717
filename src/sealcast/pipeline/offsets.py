"""How far every broker of a query came: a pinned offset each, with a MAC of that broker's (log/offsets.py).

    {"nodes": {broker: {"partitions": [...], "version": ..., "time": ..., "settled": ..., "tag": ...}}}

A query that reads frames has one broker, and its offset stands there alone, without a name. Brokers do not depend on
each other here. One that came since has no offset yet: it begins where its own ledger ends, as every broker does under
a new checkpoint. One that left is no longer looked at.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sealcast.errors import Corrupt
from sealcast.log.offsets import PinnedOffset
from sealcast.protections.steps import StepName

Offsets = dict[StepName, PinnedOffset]


def to_json(offsets: Offsets) -> dict[str, Any]:
    """For Spark's offset log."""
    parts = {name.broker: offset.to_json(name.open().journal_key) for name, offset in sorted(offsets.items())}
    (first, *_) = offsets
    return parts[first.broker] if first.reads_frames else {"nodes": parts}


def from_json(body: object, names: tuple[StepName, ...]) -> Offsets:
    """Back from it, of these brokers; Corrupt when it is not what was handed to Spark."""
    if names[0].reads_frames:
        return {name: PinnedOffset.from_json(body, name.open().journal_key) for name in names}
    if not isinstance(body, Mapping) or not isinstance(body.get("nodes"), Mapping):
        raise Corrupt(
            "an offset in Spark's checkpoint was altered: it does not say how far each broker came",
            hint="remove the checkpoint; a new one goes on where the ledgers end",
        )
    known = body["nodes"]
    return {
        name: PinnedOffset.from_json(known[name.broker], name.open().journal_key)
        if name.broker in known
        else name.open().committed()
        for name in names
    }
