"""How far every broker of a hop query came: a pinned offset each, with a MAC of that broker's (log/offsets.py).

    {"nodes": {name: {partitions: [records of the ledger above], version: of its table, time, settled, tag}}}

Brokers do not depend on each other here. One that came since has no offset yet: it begins where its own ledger ends,
as every broker does under a new checkpoint. One that left is no longer looked at.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sealcast.errors import Corrupt
from sealcast.log.offsets import PinnedOffset
from sealcast.protections.layered.node import NodeName

Offsets = dict[NodeName, PinnedOffset]


def to_json(offsets: Offsets) -> dict[str, Any]:
    """For Spark's offset log."""
    return {"nodes": {name.node: offset.to_json(name.open().journal_key) for name, offset in sorted(offsets.items())}}


def from_json(body: object, names: tuple[NodeName, ...]) -> Offsets:
    """Back from it, of these brokers; Corrupt when it is not what was handed to Spark."""
    if not isinstance(body, Mapping) or not isinstance(body.get("nodes"), Mapping):
        raise Corrupt(
            "an offset in Spark's checkpoint was altered: it is not one of a hop query",
            hint="remove the checkpoint; a new one goes on where the ledgers end",
        )
    known = body["nodes"]
    return {
        name: PinnedOffset.from_json(known[name.node], name.open().journal_key)
        if name.node in known
        else name.open().committed()
        for name in names
    }
