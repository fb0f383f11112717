"""The frames that a task's rulings are about, read from the log again, as many at a time as are handled at once."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

import numpy as np
import pyarrow as pa

from sealcast.broker.columns import PINNED
from sealcast.broker.gate import RULING, Rulings
from sealcast.broker.opening import MAX_NAMED_PER_FRAME
from sealcast.broker.rulings import received_of
from sealcast.errors import Bug
from sealcast.log.embedded import EmbeddedTopic
from sealcast.log.offsets import Arrival
from sealcast.model.bounded import bounded
from sealcast.model.stages import Ruled
from sealcast.wire.limits import MAX_PIECE_REJECTIONS

#: So that every refusal can be named, should all of them be hostile; one line more counts those that are not named.
MAX_FRAMES_PER_PIECE: Final = MAX_PIECE_REJECTIONS // (MAX_NAMED_PER_FRAME + 1)


def pinned_rulings(batches: Iterator[pa.RecordBatch]) -> tuple[dict[str, int], Rulings] | None:
    """All rulings of a task, and what its batch is pinned to; None when it has none."""
    rows = [row for batch in batches for row in batch.to_pylist()]
    if not rows:
        return None
    pinned = {name: rows[0][name] for name in PINNED}
    if any(row[name] != value for row in rows for name, value in pinned.items()):
        raise Bug("rulings of several batches came to one task")
    return pinned, np.concatenate([np.frombuffer(row["rulings"], RULING) for row in rows])


def frames_of(rulings: Rulings, log: EmbeddedTopic, pinned: Mapping[str, int], room: int) -> Iterator[Ruled]:
    """The frames that rulings are about, from the log: of one partition and without a gap, as many as are handled at
    once."""
    arrival = Arrival(pinned["since"], pinned["time"])
    rulings = rulings[np.lexsort((rulings["offset"], rulings["partition"]))]
    jumps = (np.diff(rulings["partition"]) != 0) | (np.diff(rulings["offset"]) != 1)
    for span in np.split(rulings, np.flatnonzero(jumps) + 1):
        partition, first, end = int(span["partition"][0]), int(span["offset"][0]), int(span["offset"][-1]) + 1
        records = log.partition(partition).read(first, end)
        for held in bounded(records, lambda record: len(record.data), room, MAX_FRAMES_PER_PIECE):
            codes = span["code"][held[0].offset - first : held[-1].offset + 1 - first]
            yield Ruled(received_of(partition, held, arrival), codes)
