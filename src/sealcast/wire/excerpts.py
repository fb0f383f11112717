"""What one recipient gets of a piece, as a piece of its own: for carriers that hand deliveries on one by one.

An excerpt has the piece's format, and its events, keys and proofs open as they do in the whole one. It has nothing that
is for others: neither their deliveries, nor the keys that they were given. Of a frame's Merkle tree it keeps the nodes
on the paths of its events and zeros in place of the others, so an excerpt is small once it is compressed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from sealcast.errors import Misuse
from sealcast.primitives import merkle
from sealcast.primitives.aead import WRAPPED_BYTES
from sealcast.primitives.merkle import HASH_BYTES
from sealcast.wire import typed
from sealcast.wire.hops import HopPiece
from sealcast.wire.limits import TABLE_NAME_BYTES
from sealcast.wire.sealed import SealedPiece

Ints = npt.NDArray[np.int64]
_Frame = TypeVar("_Frame")


def of_sealed(piece: SealedPiece, slot: int, events: Sequence[int], uses: Sequence[int]) -> SealedPiece:
    """These events of a slot, each with the one use through which the slot opens it."""
    if not events:
        raise Misuse("an excerpt has at least one event")
    picked, through = np.asarray(events, np.int64), np.asarray(uses, np.int64)
    frames, frame_index = frames_left(piece.frames, np.asarray(piece.frame_index, np.int64)[picked])
    rows = np.asarray(piece.row, np.int64)[picked]
    proofs = tuple(
        replace(proof, nodes=merkle.pruned(proof.nodes, proof.count, rows[frame_index == number].tolist()))
        for number, proof in enumerate(frames)
    )
    wrapped = np.asarray(piece.wrapped)[picked]
    bodies, count = [piece.body(event) for event in events], len(events)
    return replace(
        piece,
        frames=proofs,
        frame_index=frame_index,
        row=rows,
        body_start=typed.starts(map(len, bodies)),
        bodies=b"".join(bodies),
        commitments=b"".join(map(piece.commitment, events)),
        wrapped=wrapped,
        use_start=np.arange(count + 1),
        wraps=b"".join(piece.wrap(int(use)) for use in through[wrapped != 0]),
        group_of=np.zeros(count, np.int64),
        member_start=np.array([0, 1]),
        member_bits=b"",
        members=np.array([slot]),
        via_start=np.zeros(2, np.int64),
        via=np.empty(0, np.int64),
        rejected=(),
        counts={},
        **_given(piece, slot),
        **_keys(piece, slot, np.asarray(piece.uses, np.int64)[through]),
    )


def of_hops(piece: HopPiece, recipient: str, rows: Sequence[int]) -> HopPiece:
    """These rows of a recipient."""
    if not rows:
        raise Misuse("an excerpt has at least one row")
    events = [piece.event_of(row) for row in rows]
    entries, count = [piece.entries_of(row) for row in rows], len(rows)
    return replace(
        piece,
        **hop_events(piece, events),
        recipients=(recipient,),
        recipient_start=np.array([0, count]),
        row_event=np.arange(count),
        entry_start=typed.starts(map(len, entries)),
        entries=b"".join(entries),
        rejected=(),
        counts={},
    )


def hop_events(piece: HopPiece, events: Sequence[int]) -> dict[str, Any]:
    """The fields of a hop piece that say what its events are, for these of them."""
    picked = np.asarray(events, np.int64)
    frames, frame_index = frames_left(piece.frames, np.asarray(piece.frame_index, np.int64)[picked])
    bodies, paths = [piece.body(event) for event in events], [piece.path(event) for event in events]
    return {
        "frames": frames,
        "frame_index": frame_index,
        "row": np.asarray(piece.row)[picked],
        "generation": np.asarray(piece.generation)[picked],
        "ids": b"".join(map(piece.event_id, events)),
        "body_start": typed.starts(map(len, bodies)),
        "bodies": b"".join(bodies),
        "path_start": typed.starts(len(path) // HASH_BYTES for path in paths),
        "paths": b"".join(paths),
    }


def frames_left(frames: Sequence[_Frame], index: Ints) -> tuple[tuple[_Frame, ...], Ints]:
    """The frames that are left, and which of them each event came in."""
    left, renumbered = np.unique(index, return_inverse=True)
    return tuple(frames[number] for number in left.tolist()), renumbered.astype(np.int64)


# --- inside -------------------------------------------------------------------------------------


def _given(piece: SealedPiece, slot: int) -> dict[str, Any]:
    """Parts of tables that the slot was given. All come with the excerpt's first event."""
    mine = np.flatnonzero(np.asarray(piece.table_slot) == slot).tolist()
    parts = [bytes(piece.table_parts[int(piece.table_start[at]) : int(piece.table_start[at + 1])]) for at in mine]
    given: dict[str, Any] = {
        "table_slot": np.full(len(mine), slot),
        "table_tile": np.asarray(piece.table_tile)[mine],
        "table_event": np.zeros(len(mine), np.int64),
        "table_names": b"".join(
            bytes(piece.table_names[TABLE_NAME_BYTES * at : TABLE_NAME_BYTES * (at + 1)]) for at in mine
        ),
        "table_start": typed.starts(map(len, parts)),
        "table_parts": b"".join(parts),
    }
    if not mine:
        # How tables lie is of use only to whoever has a part of one.
        none = np.empty(0, np.int64)
        given |= {"tile_size": none, "tile_run": none, "tile_join": none}
    return given


def _keys(piece: SealedPiece, slot: int, used: Ints) -> dict[str, Any]:
    """The keys that the events use, those that they are under, and those that the slot was given; renumbered."""
    mine = np.flatnonzero(np.asarray(piece.handout_slot) == slot)
    link_key, link_under = np.asarray(piece.link_key, np.int64), np.asarray(piece.link_under, np.int64)
    wanted = np.zeros(len(piece.key_kind), np.bool_)
    wanted[used] = True
    wanted[np.asarray(piece.handout_key, np.int64)[mine]] = True
    while True:
        links = np.flatnonzero(wanted[link_key])
        if wanted[link_under[links]].all():
            break
        wanted[link_under[links]] = True
    left = np.flatnonzero(wanted)
    number = np.cumsum(wanted) - 1
    grows = np.asarray(piece.link_grows)[links]
    hidden = (np.cumsum(np.asarray(piece.link_grows) == 0) - 1)[links[grows == 0]]
    return {
        "key_ids": b"".join(map(piece.key_id, left.tolist())),
        "key_kind": np.asarray(piece.key_kind)[left],
        "uses": number[used],
        "handout_slot": np.full(mine.size, slot),
        "handout_key": number[np.asarray(piece.handout_key, np.int64)[mine]],
        "handout_event": np.zeros(mine.size, np.int64),
        "handouts": _runs(piece.handouts, mine),
        "link_key": number[link_key[links]],
        "link_under": number[link_under[links]],
        "link_event": np.zeros(links.size, np.int64),
        "link_grows": grows,
        "links": _runs(piece.links, hidden),
    }


def _runs(joined: bytes | memoryview, at: Ints) -> bytes:
    return b"".join(bytes(joined[WRAPPED_BYTES * n : WRAPPED_BYTES * (n + 1)]) for n in at.tolist())
