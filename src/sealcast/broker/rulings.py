"""Claims on sequence numbers become rulings on frames: the rows that cross Spark for it, and the decision itself.

Spark's state is in pipeline/replay.py; nothing here needs Spark, so tests, benchmarks and the ledger checker decide by
the same functions.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

import numpy as np

from sealcast.broker.authenticate import authenticate
from sealcast.broker.columns import REFUSED
from sealcast.broker.gate import RULING, Codes, Gate, Rulings
from sealcast.broker.replay import BUCKETS, CLAIM, Claims, Windows, bucket_of
from sealcast.log.embedded import EmbeddedTopic
from sealcast.log.offsets import AS_STAMPED, Arrival
from sealcast.log.port import Record
from sealcast.model.bounded import bounded
from sealcast.model.stages import Received, Ruled

#: Frames that are held in memory at a time while they are authenticated.
BYTES_AT_A_TIME: Final = 8 << 20
FRAMES_AT_A_TIME: Final = 16_384

#: (partition, first offset, end offset)
Span = tuple[int, int, int]


def rule(windows: Windows, claims: Claims, settled_us: int) -> Rulings:
    """Rulings on claims of one batch, in their order; the windows are then those after the batch."""
    rulings = np.empty(claims.size, RULING)
    rulings["partition"], rulings["offset"] = claims["partition"], claims["offset"]
    rulings["code"] = windows.decide(claims)
    windows.forget(settled_us)
    return rulings


def rule_frames(
    windows: Windows, log: EmbeddedTopic, spans: Iterable[Span], gate: Gate, arrival: Arrival, settled_us: int
) -> dict[int, Codes]:
    """Every frame of a batch, from the log, authenticated and decided: of each partition the codes from the first frame
    on. One span a partition."""
    asked, refused, codes = [np.empty(0, CLAIM)], [np.empty(0, RULING)], dict[int, Codes]()
    first_of = {}
    for partition, first, end in spans:
        first_of[partition], codes[partition] = first, np.zeros(end - first, np.uint8)
        for received in gathered(partition, log.partition(partition).read(first, end), arrival):
            for parts, found in zip((asked, refused), authenticate(received, gate), strict=True):
                parts.append(found)
    for ruling in np.concatenate([*refused, rule(windows, np.concatenate(asked), settled_us)]).tolist():
        partition, offset, code = ruling
        codes[partition][offset - first_of[partition]] = code
    return codes


def claim_rows(
    claims: Claims, refused: Rulings, pinned: dict[str, int], turned: bool = False
) -> Iterator[dict[str, object]]:
    """Makes rows of CLAIMS from a task's frames, one for each bucket that has any. When a generation has passed, every
    bucket gets a row, so that all of them drop that generation."""
    belongs = bucket_of(claims["publisher"])
    for bucket in range(BUCKETS):
        mine = claims[belongs == bucket]
        if mine.size or turned:
            yield {"bucket": bucket, **pinned, "claims": mine.tobytes()}
    if refused.size:
        yield {"bucket": REFUSED, **pinned, "claims": refused.tobytes()}


def gathered(
    partition: int, records: Iterable[Record], arrival: Arrival, most: int = FRAMES_AT_A_TIME
) -> Iterator[Received]:
    """Records of one partition, as many at a time as memory should hold, and at most so many."""
    batches = bounded(records, lambda record: len(record.data), BYTES_AT_A_TIME, most)
    return (received_of(partition, held, arrival) for held in batches)


def received_of(partition: int, records: Sequence[Record], arrival: Arrival) -> Received:
    """Records of one partition, to be judged at a time within the batch's arrival."""
    offsets, times, frames = zip(*records, strict=True) if records else ((), (), ())
    return Received(partition, offsets, [arrival.at(time_us) for time_us in times], frames)


def admitted_before(partition: int, records: Sequence[Record]) -> Ruled:
    """Frames that an earlier batch admitted, to be admitted again as they were."""
    return Ruled(received_of(partition, records, AS_STAMPED), np.zeros(len(records), np.uint8))
