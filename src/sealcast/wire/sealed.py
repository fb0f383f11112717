"""The sealed piece: what one task of the pipeline delivers. Immutable; the ledger names it by its digest.

A sealed event is in a piece once, whoever gets it (decision 6). Everything else is arrays beside the bodies:

    frames      what proves the events: signed header and Merkle tree of each frame that an event came in
    events      frame_index, row, body_start and bodies, commitments, wrapped
    keys        key_ids and key_kind: of a pair, of a group, of a tile's table, grown over tiles, or the topic's own,
                which its key center hands out and no broker has
    uses        event i uses the keys uses[use_start[i] : use_start[i + 1]], indices into key_ids
    wraps       48 bytes for each use of a wrapped event, in the order of the uses: its content key under that key
    mailboxes   who gets which event, through which of its uses: group_of, member_start, member_bits or members,
                via_start and via (wire/mailboxes.py)
    handouts    keys given to a slot with this piece: handout_slot, handout_key, handout_event, 48 bytes each
    links       grown keys under other keys: link_key, link_under, link_event; 48 bytes each, none where link_grows
    tables      parts of tables given to a slot: table_slot, table_tile, table_event, table_names, table_start and parts
    tiles       how tables lie under grown keys: tile_size, tile_run, tile_join (groupkeys/mosaic/layout.py)
    rejected    what was refused in the frames covered, and why

Encoded as deterministic CBOR whose arrays are little-endian typed arrays (RFC 8746). `parse` checks every array against
every other and copies none of them: over a memory map, reading one's mailbox touches the index and one's own bodies.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import field
from functools import cached_property
from typing import Annotated, Final

import numpy as np
import numpy.typing as npt

from sealcast.errors import Bug
from sealcast.model.dataclass import dataclass
from sealcast.model.event import Position
from sealcast.model.rejection import Rejection
from sealcast.model.stages import FrameProof
from sealcast.primitives.aead import COMMITMENT_BYTES, MAX_OFFSET, MAX_PARTITION, WRAPPED_BYTES, each_nonce
from sealcast.wire import cbor, limits, typed
from sealcast.wire.consistency import check
from sealcast.wire.mailboxes import FIELDS, Mailboxes
from sealcast.wire.place_columns import PlaceColumns
from sealcast.wire.typed import UINT8, UINT32, UINT64, Array, array_at, listed, own_at, raw, raw_at, whole, whole_at

__all__ = ["Array", "FrameProof", "SealedPiece", "encode", "parse"]

MAGIC: Final = "sealcast-piece"
VERSION: Final = 2

#: What a key is (`key_kind`): its holders, and how it comes to them, differ.
PAIR, GROUP, TABLE, GROWN, TOPIC = range(5)

Ints = npt.NDArray[np.int64]
Raw = bytes | memoryview


def _none() -> Array:
    return np.empty(0, np.int64)


@dataclass(frozen=True, eq=False)
class SealedPiece:
    """One piece. Arrays may be of any integer type when made; parsed ones are views of the bytes they came in."""

    topic: Annotated[bytes, raw_at(1)]
    epoch: Annotated[int, whole_at(2, limits.MAX_EPOCH)]
    #: The registry version that the batch was pinned to.
    version: Annotated[int, whole_at(3, 2**63 - 1)]
    partition: Annotated[int, whole_at(4, MAX_PARTITION)]
    #: Frames [first_offset, end_offset) of the partition are accounted for here.
    first_offset: Annotated[int, whole_at(5, MAX_OFFSET)]
    end_offset: Annotated[int, whole_at(6, MAX_OFFSET + 1)]
    frames: Annotated[tuple[FrameProof, ...], own_at(7)]
    frame_index: Annotated[Array, array_at(8, UINT32)]
    row: Annotated[Array, array_at(9, UINT32)]
    body_start: Annotated[Array, array_at(10, UINT64)]
    bodies: Annotated[Raw, raw_at(11)]
    commitments: Annotated[Raw, raw_at(12)]
    #: 0: sealed under the one key used; 1: sealed under a content key, which is wrapped under each key used.
    wrapped: Annotated[Array, array_at(13, UINT8)]
    key_ids: Annotated[Raw, raw_at(14)]
    key_kind: Annotated[Array, array_at(28, UINT8)]
    use_start: Annotated[Array, array_at(15, UINT32)]
    uses: Annotated[Array, array_at(16, UINT32)]
    wraps: Annotated[Raw, raw_at(17)]
    group_of: Annotated[Array, array_at(18, UINT32)]
    member_start: Annotated[Array, array_at(19, UINT32)]
    member_bits: Annotated[Raw, raw_at(43)]
    members: Annotated[Array, array_at(20, UINT32)]
    via_start: Annotated[Array, array_at(44, UINT32)]
    via: Annotated[Array, array_at(21, UINT32)]
    rejected: Annotated[tuple[Rejection, ...], own_at(26)]
    counts: Annotated[Mapping[str, int], own_at(27)]
    handout_slot: Annotated[Array, array_at(22, UINT32)] = field(default_factory=_none)
    handout_key: Annotated[Array, array_at(23, UINT32)] = field(default_factory=_none)
    handout_event: Annotated[Array, array_at(24, UINT32)] = field(default_factory=_none)
    handouts: Annotated[Raw, raw_at(25)] = b""
    link_key: Annotated[Array, array_at(29, UINT32)] = field(default_factory=_none)
    link_under: Annotated[Array, array_at(30, UINT32)] = field(default_factory=_none)
    link_event: Annotated[Array, array_at(31, UINT32)] = field(default_factory=_none)
    #: 1: the key grows out of the other, which says it all; 0: it is among `links`.
    link_grows: Annotated[Array, array_at(32, UINT8)] = field(default_factory=_none)
    links: Annotated[Raw, raw_at(33)] = b""
    table_slot: Annotated[Array, array_at(34, UINT32)] = field(default_factory=_none)
    table_tile: Annotated[Array, array_at(35, UINT32)] = field(default_factory=_none)
    table_event: Annotated[Array, array_at(36, UINT32)] = field(default_factory=_none)
    table_names: Annotated[Raw, raw_at(37)] = b""
    table_start: Annotated[Array, array_at(38, UINT64)] = field(default_factory=lambda: np.zeros(1, np.int64))
    table_parts: Annotated[Raw, raw_at(39)] = b""
    tile_size: Annotated[Array, array_at(40, UINT8)] = field(default_factory=_none)
    tile_run: Annotated[Array, array_at(41, UINT32)] = field(default_factory=_none)
    tile_join: Annotated[Array, array_at(42, UINT32)] = field(default_factory=_none)

    def __len__(self) -> int:
        return len(self.frame_index)

    def nonces(self) -> list[bytes]:
        """The nonce that each event's body is sealed with."""
        offsets = np.array([proof.offset for proof in self.frames], np.int64)
        return each_nonce(self.partition, offsets[self.frame_index], self.row)

    @cached_property
    def mailboxes(self) -> Mailboxes:
        return Mailboxes(**{name: getattr(self, name) for name in FIELDS}, use_start=self.use_start)

    @property
    def slots(self) -> Ints:
        """The subscribers that get something, ascending."""
        return self.mailboxes.slots

    @property
    def deliveries(self) -> int:
        return self.mailboxes.deliveries

    @property
    def mailbox_start(self) -> Ints:
        """All deliveries one by one, ordered by slot and then by event: where those of each slot begin, and the end.
        `mailbox_event` and `mailbox_use` are the event and the use of each."""
        return self.mailboxes.listed[0]

    @property
    def mailbox_event(self) -> Ints:
        return self.mailboxes.listed[1]

    @property
    def mailbox_use(self) -> Ints:
        return self.mailboxes.listed[2]

    def rows_for(self, slot: int) -> tuple[Ints, Ints]:
        """A subscriber's mailbox: which events, each through which use, in order."""
        return self.mailboxes.rows_for(slot)

    def handouts_for(self, slot: int) -> Iterator[tuple[int, bytes]]:
        """Keys given to a subscriber: index of the key, and the key sealed for it."""
        for at in np.flatnonzero(self.handout_slot == slot).tolist():
            yield int(self.handout_key[at]), bytes(self.handouts[WRAPPED_BYTES * at : WRAPPED_BYTES * (at + 1)])

    def links_to(self, key: int) -> Iterator[tuple[int, bytes | None]]:
        """Under which keys a key is to be had: index of the other, and the key hidden under it; None where it grows."""
        for row in self._links_by_key.get(key, ()):
            at = int(self._link_at[row])
            masked = None if self.link_grows[row] else bytes(self.links[WRAPPED_BYTES * at : WRAPPED_BYTES * (at + 1)])
            yield int(self.link_under[row]), masked

    def tables_for(self, slot: int) -> Iterator[tuple[bytes, int, bytes]]:
        """Parts of tables given to a subscriber: the table's name, its tile, and the part sealed for the subscriber."""
        for at in np.flatnonzero(self.table_slot == slot).tolist():
            name = bytes(self.table_names[limits.TABLE_NAME_BYTES * at : limits.TABLE_NAME_BYTES * (at + 1)])
            part = bytes(self.table_parts[int(self.table_start[at]) : int(self.table_start[at + 1])])
            yield name, int(self.table_tile[at]), part

    def tile(self, tile: int) -> list[int]:
        """The slots of a tile, in the order of their places."""
        start, end = self._tile_start[tile : tile + 2].tolist()
        slots: list[int] = self._tile_slots[start:end].tolist()
        return slots

    def readers(self, use: int) -> list[int]:
        """The slots that open an event through one of its uses, ascending: the holders of the key used."""
        return self.mailboxes.readers(use)

    def frame(self, event: int) -> FrameProof:
        """What proves an event."""
        return self.frames[int(self.frame_index[event])]

    def position(self, event: int) -> Position:
        """Where an event stands in its topic: its nonce and its id."""
        return Position(self.partition, self.frame(event).offset, int(self.row[event]))

    def places(self, events: Ints) -> PlaceColumns:
        """`position` of many."""
        offsets = np.array([proof.offset for proof in self.frames], np.int64)
        frames, rows = self.frame_index[events], self.row[events].astype(np.int64)
        return PlaceColumns(np.full(len(events), self.partition, np.int64), offsets[frames], rows)

    def body(self, event: int) -> bytes:
        """An event's sealed message."""
        return bytes(self.bodies[int(self.body_start[event]) : int(self.body_start[event + 1])])

    def bodies_of(self, events: Ints) -> list[bytes]:
        """`body` of many."""
        starts, ends = self.body_start[events].tolist(), self.body_start[events + 1].tolist()
        bodies = self.bodies
        return [bytes(bodies[start:end]) for start, end in zip(starts, ends, strict=True)]

    def commitment(self, event: int) -> bytes:
        """Which key, and no other, opens an event's body."""
        return bytes(self.commitments[COMMITMENT_BYTES * event : COMMITMENT_BYTES * (event + 1)])

    def commitments_of(self, events: Ints) -> list[bytes]:
        """`commitment` of many."""
        # `V` is raw bytes, where `S` would drop trailing zeros.
        picked: list[bytes] = np.frombuffer(self.commitments, f"V{COMMITMENT_BYTES}")[events].tolist()
        return picked

    def key_id(self, key: int) -> bytes:
        return bytes(self.key_ids[limits.KEY_ID_BYTES * key : limits.KEY_ID_BYTES * (key + 1)])

    def wrap(self, use: int) -> bytes:
        """The content key of a wrapped event, under the key of that use."""
        at = int(self._wrap_at[use])
        if at < 0:
            raise Bug(f"use {use} is of an event that is sealed directly: there is no wrapped key")
        return bytes(self.wraps[WRAPPED_BYTES * at : WRAPPED_BYTES * (at + 1)])

    def wraps_of(self, uses: Array) -> list[bytes]:
        """`wrap` for many uses, each of an event that is wrapped."""
        at = self._wrap_at[uses]
        if at.size and int(at.min()) < 0:
            raise Bug("uses of events that are sealed directly: there is no wrapped key")
        picked: list[bytes] = np.frombuffer(self.wraps, f"V{WRAPPED_BYTES}")[at].tolist()
        return picked

    @cached_property
    def _links_by_key(self) -> dict[int, list[int]]:
        found: dict[int, list[int]] = {}
        for row, key in enumerate(self.link_key.tolist()):
            found.setdefault(key, []).append(row)
        return found

    @cached_property
    def _link_at(self) -> npt.NDArray[np.int64]:
        return np.cumsum(self.link_grows == 0) - 1

    @cached_property
    def _tile_start(self) -> npt.NDArray[np.int64]:
        return np.concatenate(([0], np.cumsum(self.tile_size, dtype=np.int64)))

    @cached_property
    def _tile_slots(self) -> npt.NDArray[np.int64]:
        return run_slots(self.tile_run)

    @cached_property
    def _wrap_at(self) -> npt.NDArray[np.int64]:
        """The place of each use's wrap; -1 where the event is sealed directly."""
        starts = self.use_start.astype(np.int64)
        per_use = np.repeat(self.wrapped != 0, starts[1:] - starts[:-1])
        return np.where(per_use, np.cumsum(per_use) - 1, -1)


def run_slots(runs: Array) -> npt.NDArray[np.int64]:
    """The slots that pairs of a first one and how many follow in a row stand for."""
    first, count = runs.astype(np.int64).reshape(-1, 2).T
    before = np.cumsum(count) - count
    return np.repeat(first - before, count) + np.arange(count.sum())


# --- on the wire --------------------------------------------------------------------------------

_FORMAT: Final = typed.PieceFormat(
    make=SealedPiece,
    check=check,
    what="a sealed piece",
    magic=MAGIC,
    version=VERSION,
    max_items=128 + 5 * limits.MAX_PIECE_FRAMES + 6 * limits.MAX_PIECE_REJECTIONS + 2 * limits.MAX_COUNTS,
)


def encode(piece: SealedPiece) -> bytes:
    """The bytes of a piece: a pure function of it. A piece that contradicts itself is a bug and is never written."""
    return _FORMAT.encode(
        piece,
        frames=[[f.offset, f.count, f.signed, f.nodes] for f in piece.frames],
        rejected=list(map(typed.rejected, piece.rejected)),
        counts=dict(piece.counts),
    )


def parse(data: Raw) -> SealedPiece:
    """Read a piece without copying its arrays or bodies; FrameRejected when it is none or contradicts itself."""
    fields = _FORMAT.parse(data)
    fields["topic"] = bytes(fields["topic"])
    fields["frames"] = tuple(map(_frame, listed(fields["frames"], "frames", limits.MAX_PIECE_FRAMES)))
    rejections = listed(fields["rejected"], "rejected", limits.MAX_PIECE_REJECTIONS)
    fields["rejected"] = tuple(_rejection(r, fields["partition"]) for r in rejections)
    fields["counts"] = typed.counts(fields["counts"])
    return _FORMAT.made(fields)


# --- the parts ----------------------------------------------------------------------------------


def _frame(value: object) -> FrameProof:
    if not isinstance(value, list) or len(value) != 4:
        raise cbor.refused("a frame's proof is offset, count, signed header and nodes")
    offset, count = whole(value[0], "offset", MAX_OFFSET), whole(value[1], "count", limits.MAX_EVENTS_PER_FRAME)
    return FrameProof(offset, bytes(raw(value[2], "signed")), count, bytes(raw(value[3], "nodes")))


def _rejection(value: object, partition: int) -> Rejection:
    if not isinstance(value, list) or len(value) != 5:
        raise cbor.refused("a rejection is offset, row, reason, detail and events")
    return typed.rejection(value, partition)
