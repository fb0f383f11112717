"""The broker's part of the path as one function on Arrow batches (decision 3): admit, match, group, seal, deliver.

    frames --> Received --> Admitted --> Matched --> Grouped --> GroupSealed --> a sealed piece a row

Nothing between admission and delivery forces a shuffle, so nothing between them leaves the worker.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

import pyarrow as pa

from sealcast.log.entry import slot_bits
from sealcast.model.stages import Received
from sealcast.pipeline.admit import admit
from sealcast.pipeline.columns import COUNTS, PIECES, REJECTED
from sealcast.pipeline.context import TopicContext, context
from sealcast.pipeline.deliver import deliver
from sealcast.pipeline.group import group
from sealcast.pipeline.match import match
from sealcast.pipeline.seal import seal
from sealcast.wire import sealed as wire
from sealcast.wire.sealed import SealedPiece

#: Frames handled at once: enough to amortise, little enough to bound a worker's memory.
MAX_BYTES_PER_PIECE: Final = 16 << 20


def handle(received: Received, at: TopicContext) -> SealedPiece:
    """One batch of one partition, from frames to a sealed piece."""
    admitted = admit(received, at.gate)
    matched = match(admitted, at.table)
    grouped = group(matched, at.table)
    sealed = seal(grouped, at.planner, at.sealer)
    return deliver(sealed, at.topic.id, at.topic.epoch, at.version)


def process(realm: str, topic: str) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """`handle` as `mapInArrow` wants it. What is captured is two names."""

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for received, version in _received(batches):
            piece = handle(received, context(realm, topic, version))
            yield _as_row(piece)

    return run


def _received(batches: Iterator[pa.RecordBatch]) -> Iterator[tuple[Received, int]]:
    """Frames of one partition and version, gathered across Arrow batches up to a bound."""
    held: list[tuple[int, int, bytes]] = []
    held_for, held_bytes = (0, 0), 0
    for batch in batches:
        columns = (batch.column(name).to_pylist() for name in ("partition", "version", "offset", "time", "frame"))
        for partition, version, offset, time_us, frame in zip(*columns, strict=True):
            full = held_bytes + len(frame) > MAX_BYTES_PER_PIECE
            if held and (full or held_for != (partition, version)):
                yield _gathered(held, held_for)
                held, held_bytes = [], 0
            held_for = (partition, version)
            held.append((offset, time_us, frame))
            held_bytes += len(frame)
    if held:
        yield _gathered(held, held_for)


def _gathered(held: list[tuple[int, int, bytes]], held_for: tuple[int, int]) -> tuple[Received, int]:
    partition, version = held_for
    offsets, times, frames = zip(*held, strict=True)
    return Received(partition, offsets, times, frames), version


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
