"""The peer piece: what one peer of a topic without brokers took in. Immutable; the peer's own ledger names it.

    frames      what proves the events: which log a frame stands in, where, and its signed header
    events      frame_index and row; body_start and bodies; path_start and paths (32 bytes a hash)
    rejected    what was refused, and why

A subscriber's peer keeps events that it opened as they came: still sealed, each with the path that proves it. The piece
of a publisher's peer has no events, since these lie in its own log: it says which frames went out, and what was refused
of them. First and end number what the peer took in: arrivals of a subscriber's, frames of a publisher's.

Encoded as deterministic CBOR with little-endian typed arrays (RFC 8746), as hop pieces are.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Annotated, Any, Final

import numpy as np

from sealcast.model.dataclass import dataclass
from sealcast.model.event import Position
from sealcast.model.rejection import Rejection
from sealcast.primitives.aead import MAX_OFFSET, MAX_PARTITION
from sealcast.primitives.merkle import HASH_BYTES
from sealcast.wire import limits, typed
from sealcast.wire.carried import CarriedEvent
from sealcast.wire.cbor import require
from sealcast.wire.frame import TOPIC_BYTES
from sealcast.wire.hops import MAX_PATH, FrameRef, below, frame_ref, name_in, placed_rejection, places_in, spans
from sealcast.wire.place_columns import Ints, PlaceColumns
from sealcast.wire.typed import UINT32, UINT64, Array, array_at, own_at, raw_at, whole_at

MAGIC: Final = "sealcast-peer-piece"
VERSION: Final = 1

Raw = bytes | memoryview


@dataclass(frozen=True, eq=False)
class PeerPiece:
    """One piece. Arrays may be of any integer type when made; parsed ones are views of the bytes they came in."""

    topic: Annotated[bytes, raw_at(1)]
    #: Whose: the peer that made it.
    peer: Annotated[str, own_at(2)]
    #: Of the registry, when it was made.
    version: Annotated[int, whole_at(3, 2**63 - 1)]
    partition: Annotated[int, whole_at(4, MAX_PARTITION)]
    #: Arrivals, or frames of its own log, [first_offset, end_offset) are accounted for here.
    first_offset: Annotated[int, whole_at(5, MAX_OFFSET)]
    end_offset: Annotated[int, whole_at(6, MAX_OFFSET + 1)]
    frames: Annotated[tuple[FrameRef, ...], own_at(7)]
    frame_index: Annotated[Array, array_at(8, UINT32)]
    row: Annotated[Array, array_at(9, UINT32)]
    body_start: Annotated[Array, array_at(10, UINT64)]
    bodies: Annotated[Raw, raw_at(11)]
    path_start: Annotated[Array, array_at(12, UINT32)]
    paths: Annotated[Raw, raw_at(13)]
    rejected: Annotated[tuple[Rejection, ...], own_at(14)]
    counts: Annotated[Mapping[str, int], own_at(15)]

    def __len__(self) -> int:
        return len(self.frame_index)

    def body(self, event: int) -> bytes:
        """An event as its publisher sealed it."""
        return bytes(self.bodies[int(self.body_start[event]) : int(self.body_start[event + 1])])

    def path(self, event: int) -> list[bytes]:
        """The hashes that lead from an event to the root that its publisher signed."""
        start, end = int(self.path_start[event]), int(self.path_start[event + 1])
        return [bytes(self.paths[HASH_BYTES * at : HASH_BYTES * (at + 1)]) for at in range(start, end)]

    def frame(self, event: int) -> FrameRef:
        return self.frames[int(self.frame_index[event])]

    def position(self, event: int) -> Position:
        """Where an event stands in its topic: in its publisher's log."""
        at = self.frame(event)
        return Position(at.partition, at.offset, int(self.row[event]))

    def places(self, events: Ints) -> PlaceColumns:
        """`position` of many."""
        return places_in(self.frames, self.frame_index[events], self.row[events])

    def carried(self, event: int) -> CarriedEvent:
        """An event as it came, but for the token of its publisher, which was looked at then."""
        return CarriedEvent(
            b"", self.frame(event).signed, self.position(event), tuple(self.path(event)), self.body(event)
        )

    def excerpt(self, events: Sequence[int]) -> PeerPiece:
        """Some of its events, as a piece of their own."""
        return replace(self, **_columns([self.carried(event) for event in events]), rejected=(), counts={})

    def emptied(self, version: int) -> PeerPiece:
        """What is left of it when its events are removed: what was refused, and how many arrivals it accounts for."""
        return replace(self, version=version, **_columns([]), counts={**self.counts, "deliveries": 0})


def made(
    topic: bytes,
    peer: str,
    version: int,
    span: range,
    events: Sequence[CarriedEvent],
    rejected: Sequence[Rejection],
    counts: Mapping[str, int],
) -> PeerPiece:
    """The piece of a peer that took in the arrivals, or frames, of `span`: these events are its own from now on."""
    return PeerPiece(
        topic=topic,
        peer=peer,
        version=version,
        partition=0,
        first_offset=span.start,
        end_offset=span.stop,
        **_columns(events),
        rejected=tuple(rejected),
        counts=counts,
    )


def _columns(events: Sequence[CarriedEvent]) -> dict[str, Any]:
    frames = dict[FrameRef, int]()
    for each in events:
        frames.setdefault(_frame_of(each), len(frames))
    return {
        "frames": tuple(frames),
        "frame_index": np.array([frames[_frame_of(each)] for each in events], np.int64),
        "row": np.array([each.position.row for each in events], np.int64),
        "body_start": typed.starts(len(each.message) for each in events),
        "bodies": b"".join(each.message for each in events),
        "path_start": typed.starts(len(each.path) for each in events),
        "paths": b"".join(part for each in events for part in each.path),
    }


def _frame_of(event: CarriedEvent) -> FrameRef:
    return FrameRef(event.position.partition, event.position.offset, event.signed)


def check(piece: PeerPiece) -> None:
    """Every array against every other; FrameRejected names the first that does not fit."""
    events = len(piece.frame_index)
    require(len(piece.topic) == TOPIC_BYTES, f"a topic id has {TOPIC_BYTES} bytes")
    require(0 <= piece.first_offset <= piece.end_offset, "first_offset is after end_offset")
    require(events <= limits.MAX_PIECE_EVENTS, "too many events")
    require(len(piece.frames) <= limits.MAX_PIECE_FRAMES, f"over {limits.MAX_PIECE_FRAMES} frames")
    require(all(0 < len(f.signed) <= limits.MAX_SIGNED_BYTES for f in piece.frames), "a frame without a signed header")
    require(len(piece.row) == events, "row has a number an event")
    require(below(piece.frame_index, len(piece.frames)), "an event of a frame that is not there")
    require(below(piece.row, limits.MAX_EVENTS_PER_FRAME), "a row beyond any frame's")
    spans(piece.body_start, events, len(piece.bodies), limits.MAX_MESSAGE_BYTES, "bodies", least=1)
    spans(piece.path_start, events, len(piece.paths) // HASH_BYTES, MAX_PATH, "paths")
    require(not len(piece.paths) % HASH_BYTES, f"a hash has {HASH_BYTES} bytes")
    require(len(piece.rejected) <= limits.MAX_PIECE_REJECTIONS, f"over {limits.MAX_PIECE_REJECTIONS} rejections")
    details = all(len(r.detail.encode()) <= limits.MAX_DETAIL_BYTES for r in piece.rejected)
    require(details, f"a rejection's detail has at most {limits.MAX_DETAIL_BYTES} bytes")


_FORMAT: Final = typed.PieceFormat(
    make=PeerPiece,
    check=check,
    what="a peer piece",
    magic=MAGIC,
    version=VERSION,
    max_items=64 + 4 * limits.MAX_PIECE_FRAMES + 7 * limits.MAX_PIECE_REJECTIONS + 2 * limits.MAX_COUNTS,
)


def encode(piece: PeerPiece) -> bytes:
    """The bytes of a piece: a pure function of it. A piece that contradicts itself is a bug and is never written."""
    return _FORMAT.encode(
        piece,
        frames=[list(frame) for frame in piece.frames],
        rejected=[[r.position.partition, *typed.rejected(r)] for r in piece.rejected],
        counts=dict(piece.counts),
    )


def parse(data: Raw) -> PeerPiece:
    """Read a piece without copying its arrays or bodies; FrameRejected when it is none or contradicts itself."""
    fields = _FORMAT.parse(data)
    fields["topic"] = bytes(fields["topic"])
    fields["peer"] = name_in(fields["peer"])
    fields["frames"] = tuple(map(frame_ref, typed.listed(fields["frames"], "frames", limits.MAX_PIECE_FRAMES)))
    rejections = typed.listed(fields["rejected"], "rejected", limits.MAX_PIECE_REJECTIONS)
    fields["rejected"] = tuple(map(placed_rejection, rejections))
    fields["counts"] = typed.counts(fields["counts"])
    return _FORMAT.made(fields)
