"""The broker's part of the path as one function on Arrow batches (decision 3): admit, match, group, seal, deliver.

    frames --> Received --> Admitted --> Matched --> Grouped --> GroupSealed --> a sealed piece a row

Nothing between admission and delivery forces a shuffle, so nothing between them leaves the worker.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

import pyarrow as pa

from sealcast.filters import bits
from sealcast.log.entry import slot_bits
from sealcast.model.stages import Grouped, Received
from sealcast.pipeline.admit import MAX_NAMED_PER_FRAME, admit
from sealcast.pipeline.columns import COUNTS, PIECES, REJECTED
from sealcast.pipeline.context import TopicContext, context
from sealcast.pipeline.deliver import deliver
from sealcast.pipeline.group import group
from sealcast.pipeline.match import match
from sealcast.pipeline.seal import seal
from sealcast.pipeline.tables import SubscriptionTable
from sealcast.wire import sealed as wire
from sealcast.wire.limits import MAX_PIECE_REJECTIONS
from sealcast.wire.sealed import SealedPiece

#: Frames handled at once: enough to amortise, little enough to bound a worker's memory.
MAX_BYTES_PER_PIECE: Final = 16 << 20
#: Bit vectors at once, a bit an event and subscriber: what bounds it when subscribers are many.
MAX_BITS_PER_PIECE: Final = 1 << 31
#: What an event takes in a frame, at the least.
SMALLEST_EVENT_BYTES: Final = 64
#: So that every refusal can be named, should all of them be hostile; one line more counts those that are not named.
MAX_FRAMES_PER_PIECE: Final = MAX_PIECE_REJECTIONS // (MAX_NAMED_PER_FRAME + 1)
#: Deliveries in one piece, 60 bytes each with naive group keys. More, and the frames are handled in two halves; one
#: frame alone is never divided.
MAX_DELIVERIES_PER_PIECE: Final = 4_000_000


def handle(received: Received, at: TopicContext) -> SealedPiece:
    """One batch of one partition, from frames to a sealed piece."""
    return _finish(_begin(received, at), at)


def handle_bounded(received: Received, at: TopicContext) -> Iterator[SealedPiece]:
    """`handle`, in as many pieces as it takes to keep each of them small."""
    grouped = _begin(received, at)
    deliveries = int(bits.count(grouped.groups)[grouped.group_of].sum())
    if deliveries > MAX_DELIVERIES_PER_PIECE and len(received.frames) > 1:
        # Admitted twice, which costs little beside what sealing so many deliveries does.
        for half in _halves(received):
            yield from handle_bounded(half, at)
    else:
        yield _finish(grouped, at)


def _begin(received: Received, at: TopicContext) -> Grouped:
    return group(match(admit(received, at.gate), at.table), at.table)


def _finish(grouped: Grouped, at: TopicContext) -> SealedPiece:
    sealed = seal(grouped, at.planner, at.sealer)
    return deliver(sealed, at.topic.id, at.topic.epoch, at.version)


def _halves(received: Received) -> tuple[Received, Received]:
    middle = len(received.frames) // 2
    first, second = (
        Received(received.partition, received.offsets[part], received.times[part], received.frames[part])
        for part in (slice(middle), slice(middle, None))
    )
    return first, second


def process(realm: str, topic: str) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """`handle_bounded` as `mapInArrow` wants it. What is captured is two names."""

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for received, at in _received(batches, lambda version: context(realm, topic, version)):
            for piece in handle_bounded(received, at):
                yield _as_row(piece)

    return run


def _received(
    batches: Iterator[pa.RecordBatch], context_of: Callable[[int], TopicContext]
) -> Iterator[tuple[Received, TopicContext]]:
    """Frames of one partition and version, gathered across Arrow batches up to a bound."""
    held: list[tuple[int, int, bytes]] = []
    held_for, held_bytes, room = (0, 0), 0, 0
    for batch in batches:
        columns = (batch.column(name).to_pylist() for name in ("partition", "version", "offset", "time", "frame"))
        for partition, version, offset, time_us, frame in zip(*columns, strict=True):
            full = held_bytes + len(frame) > room or len(held) == MAX_FRAMES_PER_PIECE
            if held and (full or held_for != (partition, version)):
                yield _gathered(held, held_for[0]), context_of(held_for[1])
                held, held_bytes = [], 0
            if not held:
                held_for, room = (partition, version), _room(context_of(version).table)
            held.append((offset, time_us, frame))
            held_bytes += len(frame)
    if held:
        yield _gathered(held, held_for[0]), context_of(held_for[1])


def _room(table: SubscriptionTable) -> int:
    """Bytes of frames whose events' bit vectors fit, however small the events are."""
    events = MAX_BITS_PER_PIECE // max(1, len(table.ids), table.n_slots)
    return min(MAX_BYTES_PER_PIECE, events * SMALLEST_EVENT_BYTES)


def _gathered(held: list[tuple[int, int, bytes]], partition: int) -> Received:
    offsets, times, frames = zip(*held, strict=True)
    return Received(partition, offsets, times, frames)


def _as_row(piece: SealedPiece) -> pa.RecordBatch:
    row = {
        "partition": piece.partition,
        "first_offset": piece.first_offset,
        "end_offset": piece.end_offset,
        "version": piece.version,
        **{name: piece.counts.get(name, 0) for name in (*COUNTS, *REJECTED.values())},
        # A key that is handed out concerns its receiver as much as an event does.
        "slots": slot_bits([*piece.slots.tolist(), *piece.handout_slot.tolist()]),
        "piece": wire.encode(piece),
    }
    return pa.RecordBatch.from_pylist([row], schema=PIECES)
