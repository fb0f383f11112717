"""The two tables that our kernels make for Spark: pieces, and pieces that are staged.

    frame log --read, authenticate, rule, the rest of the path--> PIECES -> STAGED
    ledgers above --read, route---------------------------------> PIECES -> STAGED

A row is a whole piece, never an event and never a frame: crossing between the JVM and Python costs a microsecond a row.
Frames do not cross at all, and neither do pieces: the task that makes one stages it, and hands on what the ledger will
call it. Nothing is shuffled, and Spark keeps no state.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np
import pyarrow as pa

from sealcast.log.entry import REMOVED_ABOVE
from sealcast.model.rejection import Reason
from sealcast.wire.hops import HopPiece
from sealcast.wire.sealed import SealedPiece

#: What a batch is pinned to (log/offsets.py), in every row: a task knows nothing else of its batch.
_PINNED: Final = (
    # Of the registry: everything this batch may know of the realm.
    pa.field("version", pa.int64(), nullable=False),
    pa.field("time", pa.int64(), nullable=False),
    pa.field("settled", pa.int64(), nullable=False),
    pa.field("since", pa.int64(), nullable=False),
)
PINNED: Final = tuple(field.name for field in _PINNED)
#: What is counted of a piece: the names of `observe()` and, with `sealcast_` before and `_total` behind, the metrics.
COUNTS: Final = ("frames", "admitted", "matched", "deliveries", "encryptions", "suspended", REMOVED_ABOVE)
#: Of these: subscriptions that got nothing of a piece, because their filters ask for too much work (budgets.py).
SUSPENDED: Final = "suspended"
#: Of these: what the ledger says of each piece (log/entry.py, `PieceRef`), in its order.
REFERRED: Final = ("matched", "deliveries", "encryptions")
#: Events refused, by reason; a frame too broken to tell its events counts as one.
REJECTED: Final = {reason: f"rejected_{reason}" for reason in Reason}

#: The column that has them, as JSON: in a column each, Spark would plan two dozen sums anew for every micro-batch.
COUNTED: Final = "counted"
TRACED: Final = "traced"
TAKEN: Final = "taken"

#: What a step makes: one piece a row, the broker that made it, and the input it accounts for.
PIECES: Final = pa.schema(
    [
        pa.field("node", pa.string(), nullable=False),
        pa.field("partition", pa.int32(), nullable=False),
        pa.field("first_offset", pa.int64(), nullable=False),
        pa.field("end_offset", pa.int64(), nullable=False),
        *_PINNED,
        pa.field(COUNTED, pa.string(), nullable=False),
        # 1: of frames that an earlier batch took, for filters that came since. Most steps never make one.
        pa.field("late", pa.int32()),
        # Who finds something in it (log/entry.py, `slot_bits`); NULL where recipients have names instead of slots.
        pa.field("slots", pa.binary()),
        # Which subscriptions were suspended: their places in the table of the pinned version, as little-endian int32.
        pa.field("suspensions", pa.binary()),
        # In a row of each task that reads frames: what replay took of them (broker/rulings.py, `pack_taken`).
        pa.field(TAKEN, pa.binary()),
        pa.field("piece", pa.binary(), nullable=False),
        # Traced frames and their times (broker/traced.py); NULL where nobody traces. It goes nowhere but to the driver.
        pa.field(TRACED, pa.string()),
    ]
)

#: What the sink takes: the same of a piece that is durable, and by its name instead of its bytes (`StagedPiece`).
STAGED: Final = pa.schema(
    [
        *(field for field in PIECES if field.name != "piece"),
        pa.field("name", pa.string(), nullable=False),
        pa.field("digest", pa.binary(), nullable=False),
        pa.field("size", pa.int64(), nullable=False),
    ]
)

PLACES: Final = np.dtype("<i4")
_COUNTED: Final = (*COUNTS, *REJECTED.values())

_SPARK_TYPES: Final = {pa.string(): "STRING", pa.int32(): "INT", pa.int64(): "BIGINT", pa.binary(): "BINARY"}


def ddl(schema: pa.Schema) -> str:
    """A schema as Spark spells it."""
    return ", ".join(f"`{f.name}` {_SPARK_TYPES[f.type]}{'' if f.nullable else ' NOT NULL'}" for f in schema)


def counted(counts: Mapping[str, int]) -> str:
    """What was counted of a piece, as it stands in its row."""
    return json.dumps({name: count for name, count in counts.items() if count}, separators=(",", ":"))


def counts_in(text: str) -> Counter[str]:
    """The other way: all that is counted, also what did not occur."""
    found = json.loads(text)
    return Counter({name: int(found.get(name, 0)) for name in _COUNTED})


def piece_row(
    node: str,
    piece: SealedPiece | HopPiece,
    data: bytes,
    pinned: Mapping[str, int],
    slots: bytes | None = None,
    *,
    late: bool = False,
    suspended: Sequence[int] = (),
    traced: str | None = None,
) -> pa.RecordBatch:
    """A piece and its encoding as a row of PIECES."""
    row = {
        "node": node,
        "partition": piece.partition,
        "first_offset": piece.first_offset,
        "end_offset": piece.end_offset,
        **pinned,
        COUNTED: counted({name: piece.counts.get(name, 0) for name in _COUNTED}),
        "late": int(late),
        "slots": slots,
        "suspensions": np.array(suspended, PLACES).tobytes(),
        TAKEN: None,
        "piece": data,
        TRACED: traced,
    }
    return pa.RecordBatch.from_pylist([row], schema=PIECES)
