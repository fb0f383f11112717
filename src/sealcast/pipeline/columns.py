"""The two tables that cross between Spark and our kernels: frames on their way in, sealed pieces on their way out.

A row is a frame or a whole piece, never an event: crossing between the JVM and Python costs a microsecond a row.
"""

from __future__ import annotations

from typing import Final

import pyarrow as pa

from sealcast.model.rejection import Reason

#: What the source yields and the fused kernel takes: frames as they stand in the log, and the version that is pinned.
FRAMES: Final = pa.schema(
    [
        pa.field("partition", pa.int32(), nullable=False),
        pa.field("offset", pa.int64(), nullable=False),
        # When the log took it in, microseconds since 1970.
        pa.field("time", pa.int64(), nullable=False),
        # Of the registry: everything this batch may know of the realm.
        pa.field("version", pa.int64(), nullable=False),
        pa.field("frame", pa.binary(), nullable=False),
    ]
)

#: What is counted of a piece: the names of `observe()` and, with `sealcast_` before and `_total` behind, the metrics.
COUNTS: Final = ("frames", "admitted", "matched", "deliveries", "encryptions")
#: Events refused, by reason; a frame too broken to tell its events counts as one.
REJECTED: Final = {reason: f"rejected_{reason}" for reason in Reason}

#: What the fused kernel yields and the sink takes: one sealed piece a row, and the frames it accounts for.
PIECES: Final = pa.schema(
    [
        pa.field("partition", pa.int32(), nullable=False),
        pa.field("first_offset", pa.int64(), nullable=False),
        pa.field("end_offset", pa.int64(), nullable=False),
        pa.field("version", pa.int64(), nullable=False),
        *(pa.field(name, pa.int64(), nullable=False) for name in (*COUNTS, *REJECTED.values())),
        # Who finds something in it (log/entry.py, `slot_bits`).
        pa.field("slots", pa.binary(), nullable=False),
        pa.field("piece", pa.binary(), nullable=False),
    ]
)

_SPARK_TYPES: Final = {pa.int32(): "INT", pa.int64(): "BIGINT", pa.binary(): "BINARY"}


def ddl(schema: pa.Schema) -> str:
    """A schema as Spark spells it."""
    return ", ".join(f"`{field.name}` {_SPARK_TYPES[field.type]} NOT NULL" for field in schema)
