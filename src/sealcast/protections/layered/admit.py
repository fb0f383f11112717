"""admit, on a layered topic: Ruled -> a hop piece for the root itself. The root opens frames, and cannot read events.

Checks 1 to 19 are those of every topic: whose frame it is, that it was not here before, that it opens under the pair
key and holds what was signed. What is inside stays encrypted, so of check 20, the event, only its form is left: a core
and its entries (`wire.notifications`). A token that is for some events only would have to be compared with what nobody
here can read, so it is for none of them (8).

A frame of n events has 2n messages; everything that is counted here counts events.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

import pyarrow as pa

from sealcast.broker.admit import MAX_NAMED_PER_FRAME
from sealcast.broker.columns import COUNTS, PIECES, REJECTED
from sealcast.broker.context import gate as gate_of
from sealcast.broker.deliver import rejected_by_reason
from sealcast.broker.frames import frames_of, pinned_rulings
from sealcast.broker.gate import WHOLE_FRAME, Gate
from sealcast.broker.opening import Opening, refused, shortened
from sealcast.broker.topic import TopicName
from sealcast.errors import FrameRejected
from sealcast.model import Position, Reason, Rejection
from sealcast.model.stages import FrameProof, Ruled
from sealcast.primitives import merkle
from sealcast.protections.layered.piece import PieceBuilder
from sealcast.wire import frames, hops
from sealcast.wire.frames import Frames
from sealcast.wire.hops import FrameRef, HopPiece
from sealcast.wire.notifications import MESSAGES_PER_EVENT, parse_core, parse_entries

#: Frames handled at once, and in one micro-batch: a hop divides its input by records, so that a record is small.
MAX_BYTES_PER_PIECE: Final = 4 << 20
MAX_BYTES_PER_TRIGGER: Final = 8 << 20


def admit(ruled: Ruled, gate: Gate, root: str) -> HopPiece:
    """The events of frames that passed, addressed to the root broker that admits them."""
    received, parsed = ruled.received, frames.parse_many(ruled.received.frames)
    opened, built, rejections = Opening(gate, parsed), PieceBuilder(), list[Rejection]()
    rows = zip(received.offsets, received.times, received.frames, ruled.codes.tolist(), strict=True)
    for row, (offset, time_us, data, code) in enumerate(rows):
        try:
            if code:
                raise refused(data, time_us, code, gate)
            messages = _opened(opened, row, offset, data)
        except FrameRejected as error:
            where = Position(received.partition, offset, WHOLE_FRAME)
            events = _events(parsed, row)
            rejections.append(Rejection(where, Reason(error.reason), shortened(error.message), events))
            continue
        proof = opened.proofs[-1]
        rejections += _take(built, FrameRef(received.partition, offset, proof.signed), proof, messages, root)
    return built.piece(
        topic=gate.topic.id,
        node=root,
        version=gate.state.version,
        partition=received.partition,
        first=received.offsets[0],
        end=received.offsets[-1] + 1,
        rejected=sorted(rejections, key=lambda r: r.position),
        counts={"frames": len(received.offsets), "admitted": len(built), **rejected_by_reason(tuple(rejections))},
    )


def _opened(opened: Opening, row: int, offset: int, data: bytes) -> list[bytes]:
    """The messages of one frame; FrameRejected when it fails a check."""
    before = len(opened.messages)
    opened.frame(row, offset, data)
    messages = opened.messages[before:]
    del opened.messages[before:]  # taken here, event by event
    if not opened.templates[-1].every_event:
        raise FrameRejected(Reason.TEMPLATE, "its token is for some events only, which nobody here can tell")
    if len(messages) % MESSAGES_PER_EVENT:
        raise FrameRejected(Reason.EVENT, f"{len(messages)} messages: an event has {MESSAGES_PER_EVENT}")
    return messages


def _events(parsed: Frames, row: int) -> int:
    return int(parsed.count[row]) // MESSAGES_PER_EVENT if parsed.good[row] else 0


def _take(
    built: PieceBuilder, frame: FrameRef, proof: FrameProof, messages: list[bytes], root: str
) -> Iterator[Rejection]:
    """Events of one frame, each for itself; those that are none. Of a hostile frame only the first are named."""
    named, more, last = 0, 0, -1
    for row in range(len(messages) // MESSAGES_PER_EVENT):
        leaf = MESSAGES_PER_EVENT * row
        try:
            core = parse_core(messages[leaf])
            parse_entries(messages[leaf + 1])
        except FrameRejected as error:
            named, more, last = (named + 1, more, row) if named < MAX_NAMED_PER_FRAME else (named, more + 1, row)
            if not more:
                where = Position(frame.partition, frame.offset, row)
                yield Rejection(where, Reason.EVENT, shortened(error.message), 1)
            continue
        path = b"".join(merkle.path(proof.nodes, proof.count, leaf))
        event = built.event(frame, row, core.generation, core.event, core.body, path)
        built.send(root, event, messages[leaf + 1])
    if more:
        where = Position(frame.partition, frame.offset, last)
        yield Rejection(where, Reason.EVENT, f"this and {more - 1} more of the frame", more)


def process(name: TopicName) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """`admit` as `mapInArrow` wants it, on all rulings of a task. What is captured is names."""

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        found = pinned_rulings(batches)
        if found is None:
            return
        pinned, rulings = found
        gate = gate_of(name.realm, name.topic, pinned["version"], name.broker)
        for ruled in frames_of(rulings, name.open().frames, MAX_BYTES_PER_PIECE):
            piece = admit(ruled, gate, name.broker)
            row = {
                "partition": piece.partition,
                "first_offset": piece.first_offset,
                "end_offset": piece.end_offset,
                **pinned,
                **{count: piece.counts.get(count, 0) for count in (*COUNTS, *REJECTED.values())},
                "slots": b"",  # nobody's mailbox is here
                "piece": hops.encode(piece),
            }
            yield pa.RecordBatch.from_pylist([row], schema=PIECES)

    return run
