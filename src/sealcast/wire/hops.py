"""The hop piece: what one broker of a layered topic hands on. Immutable; the ledger names it by its digest.

    frames      what proves the events: the partition and offset of a frame at its root broker, and its signed header
    events      frame_index, row, generation and ids; body_start and bodies; path_start and paths (32 bytes a hash)
    rows        recipient by recipient, the events in order: recipient_start, row_event, entry_start and entries
    rejected    what was refused, and why

A body is in a piece once, whoever gets it. The entries of an event differ by recipient, and are bytes here
(`wire.notifications`): a reader takes apart its own and no others. Admission at a root writes the same pieces, with the
root as the only recipient; first and end are then offsets of frames, and else numbers of the upstream ledger's records.

Encoded as deterministic CBOR with little-endian typed arrays (RFC 8746), as sealed pieces are.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from functools import cached_property
from itertools import pairwise
from typing import Annotated, Final, NamedTuple

import numpy as np

from sealcast.model.dataclass import dataclass
from sealcast.model.event import Position
from sealcast.model.rejection import Rejection
from sealcast.primitives.aead import MAX_OFFSET, MAX_PARTITION
from sealcast.primitives.merkle import HASH_BYTES
from sealcast.wire import cbor, limits, typed
from sealcast.wire.cbor import require
from sealcast.wire.frame import TOPIC_BYTES
from sealcast.wire.headers import is_name
from sealcast.wire.notifications import EVENT_BYTES, MESSAGES_PER_EVENT
from sealcast.wire.place_columns import Ints, PlaceColumns
from sealcast.wire.typed import UINT32, UINT64, Array, array_at, own_at, raw_at, whole_at

MAGIC: Final = "sealcast-hop"
VERSION: Final = 1
#: Of a tree of MAX_EVENTS_PER_FRAME leaves.
MAX_PATH: Final = (limits.MAX_EVENTS_PER_FRAME - 1).bit_length()

Raw = bytes | memoryview


class FrameRef(NamedTuple):
    """A frame at its root broker: where it stands in that broker's log, and what its publisher signed."""

    partition: int
    offset: int
    signed: bytes


def _plain(array: str) -> cached_property[list[int]]:
    """An array's numbers as a list: indexing the array for one of them costs more than everything else here."""
    return cached_property(lambda piece: getattr(piece, array).tolist())


@dataclass(frozen=True, eq=False)
class HopPiece:
    """One piece. Arrays may be of any integer type when made; parsed ones are views of the bytes they came in."""

    topic: Annotated[bytes, raw_at(1)]
    #: Whose: the broker that made it.
    node: Annotated[str, own_at(2)]
    #: What the batch was pinned to: of the registry at admission, of the node's table at a hop.
    version: Annotated[int, whole_at(3, 2**63 - 1)]
    partition: Annotated[int, whole_at(4, MAX_PARTITION)]
    #: Frames, or records upstream, [first_offset, end_offset) are accounted for here.
    first_offset: Annotated[int, whole_at(5, MAX_OFFSET)]
    end_offset: Annotated[int, whole_at(6, MAX_OFFSET + 1)]
    frames: Annotated[tuple[FrameRef, ...], own_at(7)]
    frame_index: Annotated[Array, array_at(8, UINT32)]
    #: Which event of its frame: its core is message 2 row, and leaf 2 row is what its path proves.
    row: Annotated[Array, array_at(9, UINT32)]
    generation: Annotated[Array, array_at(10, UINT32)]
    ids: Annotated[Raw, raw_at(11)]
    body_start: Annotated[Array, array_at(12, UINT64)]
    bodies: Annotated[Raw, raw_at(13)]
    path_start: Annotated[Array, array_at(14, UINT32)]
    paths: Annotated[Raw, raw_at(15)]
    #: Ascending.
    recipients: Annotated[tuple[str, ...], own_at(16)]
    recipient_start: Annotated[Array, array_at(17, UINT32)]
    row_event: Annotated[Array, array_at(18, UINT32)]
    entry_start: Annotated[Array, array_at(19, UINT64)]
    entries: Annotated[Raw, raw_at(20)]
    rejected: Annotated[tuple[Rejection, ...], own_at(21)]
    counts: Annotated[Mapping[str, int], own_at(22)]

    def __len__(self) -> int:
        return len(self.frame_index)

    def rows_for(self, recipient: str) -> range:
        """The rows of a recipient; none when there is nothing for it."""
        at = bisect_left(self.recipients, recipient)
        if at == len(self.recipients) or self.recipients[at] != recipient:
            return range(0)
        return range(int(self.recipient_start[at]), int(self.recipient_start[at + 1]))

    def event_of(self, row: int) -> int:
        """Which event a row is about."""
        return self._row_event[row]

    def entries_of(self, row: int) -> bytes:
        """A row's entries, as they stand (`notifications.parse_entries`)."""
        start, end = self._entry_start[row : row + 2]
        return bytes(self.entries[start:end])

    def event_id(self, event: int) -> bytes:
        return bytes(self.ids[EVENT_BYTES * event : EVENT_BYTES * (event + 1)])

    def body(self, event: int) -> bytes:
        start, end = self._body_start[event : event + 2]
        return bytes(self.bodies[start:end])

    def path(self, event: int) -> bytes:
        """The hashes that lead from the leaf of an event's core to the root that its publisher signed, joined."""
        start, end = self._path_start[event : event + 2]
        return bytes(self.paths[HASH_BYTES * start : HASH_BYTES * end])

    def frame(self, event: int) -> FrameRef:
        return self.frames[self._frame_index[event]]

    def place(self, event: int) -> tuple[int, int, int]:
        """Which frame, which event of it, and of which generation."""
        return self._frame_index[event], self._row[event], self._generation[event]

    def position(self, event: int) -> Position:
        """Where an event stands in its topic: at its root broker."""
        at = self.frame(event)
        return Position(at.partition, at.offset, self._row[event])

    def places(self, events: Ints) -> PlaceColumns:
        """`position` of many."""
        return places_in(self.frames, self.frame_index[events], self.row[events])

    _row_event = _plain("row_event")
    _frame_index = _plain("frame_index")
    _row = _plain("row")
    _generation = _plain("generation")
    _entry_start = _plain("entry_start")
    _body_start = _plain("body_start")
    _path_start = _plain("path_start")


def places_in(frames: Sequence[FrameRef], frame_index: Array, row: Array) -> PlaceColumns:
    """Where events stand, each in one of the frames."""
    at = np.array([(frame.partition, frame.offset) for frame in frames], np.int64).reshape(-1, 2)[frame_index]
    return PlaceColumns(at[:, 0], at[:, 1], row.astype(np.int64))


# --- whether it agrees with itself --------------------------------------------------------------


def check(piece: HopPiece) -> None:
    """Every array against every other; FrameRejected names the first that does not fit."""
    events, rows = len(piece.frame_index), len(piece.row_event)
    require(len(piece.topic) == TOPIC_BYTES, f"a topic id has {TOPIC_BYTES} bytes")
    require(0 <= piece.first_offset <= piece.end_offset, "first_offset is after end_offset")
    require(events <= limits.MAX_PIECE_EVENTS and rows <= limits.MAX_HOP_ROWS, "too many events or rows")
    require(len(piece.frames) <= limits.MAX_PIECE_FRAMES, f"over {limits.MAX_PIECE_FRAMES} frames")
    require(all(0 < len(f.signed) <= limits.MAX_SIGNED_BYTES for f in piece.frames), "a frame without a signed header")
    require(len(piece.row) == len(piece.generation) == events, "row and generation have a number an event")
    require(below(piece.frame_index, len(piece.frames)), "an event of a frame that is not there")
    require(below(piece.row, limits.MAX_EVENTS_PER_FRAME // MESSAGES_PER_EVENT), "a row beyond any frame's")
    require(len(piece.ids) == EVENT_BYTES * events, f"ids have {EVENT_BYTES} bytes an event")
    spans(piece.body_start, events, len(piece.bodies), limits.MAX_MESSAGE_BYTES, "bodies")
    spans(piece.path_start, events, len(piece.paths) // HASH_BYTES, MAX_PATH, "paths")
    require(not len(piece.paths) % HASH_BYTES, f"a hash has {HASH_BYTES} bytes")
    names = piece.recipients
    require(len(names) <= limits.MAX_HOP_RECIPIENTS, f"over {limits.MAX_HOP_RECIPIENTS} recipients")
    require(all(a < b for a, b in pairwise(names)), "recipients are out of order, or twice")
    spans(piece.recipient_start, len(names), rows, limits.MAX_HOP_ROWS, "rows", least=1)
    require(below(piece.row_event, events), "a row of an event that is not there")
    require(_ascending(piece.row_event, piece.recipient_start), "a recipient's events are out of order, or twice")
    spans(piece.entry_start, rows, len(piece.entries), limits.MAX_ENTRIES_BYTES, "entries", least=1)
    require(len(piece.rejected) <= limits.MAX_PIECE_REJECTIONS, f"over {limits.MAX_PIECE_REJECTIONS} rejections")
    details = all(len(r.detail.encode()) <= limits.MAX_DETAIL_BYTES for r in piece.rejected)
    require(details, f"a rejection's detail has at most {limits.MAX_DETAIL_BYTES} bytes")


def spans(starts: Array, count: int, end: int, limit: int, name: str, least: int = 0) -> None:
    """`starts` divides [0, end) into `count` parts of `least` to `limit`."""
    require(len(starts) == count + 1, f"{name} have a start each, and an end")
    lengths = np.diff(starts.astype(np.int64))
    require(not starts[0] and int(starts[-1]) == end, f"{name} start at 0 and end where they end")
    require(not count or least <= int(lengths.min()) <= int(lengths.max()) <= limit, f"{name} have {least} to {limit}")


def below(values: Array, limit: int) -> bool:
    return not len(values) or 0 <= int(values.min()) <= int(values.max()) < limit


def _ascending(events: Array, starts: Array) -> bool:
    """Within each recipient's rows."""
    rising = np.diff(events.astype(np.int64)) > 0
    rising[starts[1:-1].astype(np.int64) - 1] = True
    return bool(rising.all())


# --- on the wire --------------------------------------------------------------------------------

_FORMAT: Final = typed.PieceFormat(
    make=HopPiece,
    check=check,
    what="a hop piece",
    magic=MAGIC,
    version=VERSION,
    max_items=64
    + 4 * limits.MAX_PIECE_FRAMES
    + 7 * limits.MAX_PIECE_REJECTIONS
    + limits.MAX_HOP_RECIPIENTS
    + 2 * limits.MAX_COUNTS,
)


def encode(piece: HopPiece) -> bytes:
    """The bytes of a piece: a pure function of it. A piece that contradicts itself is a bug and is never written."""
    return _FORMAT.encode(
        piece,
        frames=[list(frame) for frame in piece.frames],
        recipients=list(piece.recipients),
        rejected=[[r.position.partition, *typed.rejected(r)] for r in piece.rejected],
        counts=dict(piece.counts),
    )


def parse(data: Raw) -> HopPiece:
    """Read a piece without copying its arrays or bodies; FrameRejected when it is none or contradicts itself."""
    fields = _FORMAT.parse(data)
    fields["topic"] = bytes(fields["topic"])
    fields["node"] = name_in(fields["node"])
    fields["frames"] = tuple(map(frame_ref, typed.listed(fields["frames"], "frames", limits.MAX_PIECE_FRAMES)))
    fields["recipients"] = tuple(
        map(name_in, typed.listed(fields["recipients"], "recipients", limits.MAX_HOP_RECIPIENTS))
    )
    fields["rejected"] = tuple(
        map(placed_rejection, typed.listed(fields["rejected"], "rejected", limits.MAX_PIECE_REJECTIONS))
    )
    fields["counts"] = typed.counts(fields["counts"])
    return _FORMAT.made(fields)


def name_in(value: object) -> str:
    if not is_name(value):
        raise cbor.refused(f"a name is text of 1 to {limits.MAX_PUBLISHER_BYTES} bytes")
    return str(value)


def frame_ref(value: object) -> FrameRef:
    if not isinstance(value, list) or len(value) != 3:
        raise cbor.refused("a frame is partition, offset and signed header")
    partition, offset = typed.whole(value[0], "partition", MAX_PARTITION), typed.whole(value[1], "offset", MAX_OFFSET)
    return FrameRef(partition, offset, bytes(typed.raw(value[2], "signed")))


def placed_rejection(value: object) -> Rejection:
    if not isinstance(value, list) or len(value) != 6:
        raise cbor.refused("a rejection is partition, offset, row, reason, detail and events")
    return typed.rejection(value[1:], typed.whole(value[0], "partition", MAX_PARTITION))
