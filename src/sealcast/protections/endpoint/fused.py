"""The broker's part of the path as one function on Arrow batches (decision 3): admit, match, group, seal, deliver.

    rulings, frames --> Ruled --> Admitted --> Matched --> Grouped --> GroupSealed --> a sealed piece a row

Nothing between replay and delivery forces a shuffle, so nothing between them leaves the worker. Frames are read from
the log again, where the source has just read them; what was found out about them comes as rulings.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

import pyarrow as pa

from sealcast.broker.admit import admit
from sealcast.broker.columns import COUNTS, PIECES, REJECTED
from sealcast.broker.deliver import deliver
from sealcast.broker.frames import frames_of, pinned_rulings
from sealcast.broker.group import group
from sealcast.broker.match import match
from sealcast.broker.tables import SubscriptionTable
from sealcast.broker.topic import TopicName
from sealcast.filters import bits
from sealcast.log.entry import slot_bits
from sealcast.model.stages import Grouped, Received, Ruled
from sealcast.protections.endpoint.context import TopicContext, context
from sealcast.protections.endpoint.seal import seal
from sealcast.wire import sealed as wire
from sealcast.wire.sealed import SealedPiece

#: Frames handled at once: enough to amortise, little enough to bound a worker's memory.
MAX_BYTES_PER_PIECE: Final = 16 << 20
#: Bit vectors at once, a bit an event and subscriber: what bounds it when subscribers are many.
MAX_BITS_PER_PIECE: Final = 1 << 31
#: What an event takes in a frame, at the least.
SMALLEST_EVENT_BYTES: Final = 64
#: Deliveries in one piece, 60 bytes each with naive group keys. More, and the frames are handled in two halves; one
#: frame alone is never divided.
MAX_DELIVERIES_PER_PIECE: Final = 4_000_000


def handle(ruled: Ruled, at: TopicContext) -> SealedPiece:
    """One batch of one partition, from frames to a sealed piece."""
    return _finish(_begin(ruled, at), at)


def handle_bounded(ruled: Ruled, at: TopicContext) -> Iterator[SealedPiece]:
    """`handle`, in as many pieces as it takes to keep each of them small."""
    grouped = _begin(ruled, at)
    deliveries = int(bits.count(grouped.groups)[grouped.group_of].sum())
    if deliveries > MAX_DELIVERIES_PER_PIECE and ruled.codes.size > 1:
        # Admitted twice, which costs little beside what sealing so many deliveries does.
        for half in _halves(ruled):
            yield from handle_bounded(half, at)
    else:
        yield _finish(grouped, at)


def _begin(ruled: Ruled, at: TopicContext) -> Grouped:
    return group(match(admit(ruled, at.gate), at.table), at.table)


def _finish(grouped: Grouped, at: TopicContext) -> SealedPiece:
    sealed = seal(grouped, at.planner, at.sealer)
    return deliver(sealed, at.topic.id, at.topic.epoch, at.version)


def _halves(ruled: Ruled) -> tuple[Ruled, Ruled]:
    received, middle = ruled.received, ruled.codes.size // 2
    first, second = (
        Ruled(
            Received(received.partition, received.offsets[part], received.times[part], received.frames[part]),
            ruled.codes[part],
        )
        for part in (slice(middle), slice(middle, None))
    )
    return first, second


def process(name: TopicName) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """`handle_bounded` as `mapInArrow` wants it, on all rulings of a task. What is captured is names."""

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        found = pinned_rulings(batches)
        if found is None:
            return
        pinned, rulings = found
        at = context(name.realm, name.topic, pinned["version"], name.broker, pinned["time"])
        for ruled in frames_of(rulings, name.open().frames, _room(at.table)):
            for piece in handle_bounded(ruled, at):
                data = wire.encode(piece)
                at.planner.made(piece, data)
                yield _as_row(piece, data, pinned)

    return run


def _room(table: SubscriptionTable) -> int:
    """Bytes of frames whose events' bit vectors fit, however small the events are."""
    events = MAX_BITS_PER_PIECE // max(1, len(table.ids), table.n_slots)
    return min(MAX_BYTES_PER_PIECE, events * SMALLEST_EVENT_BYTES)


def _as_row(piece: SealedPiece, data: bytes, pinned: dict[str, int]) -> pa.RecordBatch:
    row = {
        "partition": piece.partition,
        "first_offset": piece.first_offset,
        "end_offset": piece.end_offset,
        **pinned,
        **{name: piece.counts.get(name, 0) for name in (*COUNTS, *REJECTED.values())},
        # A key that is handed out concerns its receiver as much as an event does.
        "slots": slot_bits([*piece.slots.tolist(), *piece.handout_slot.tolist()]),
        "piece": data,
    }
    return pa.RecordBatch.from_pylist([row], schema=PIECES)
