"""Whether a sealed piece agrees with itself: after this no index in it leads out of it. Vectorised, read and written.

The writer runs it too: a piece that contradicts itself is caught where it was made, not by a thousand subscribers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from sealcast.primitives import merkle
from sealcast.primitives.aead import COMMITMENT_BYTES, TAG_BYTES, WRAPPED_BYTES
from sealcast.wire import limits
from sealcast.wire.cbor import require
from sealcast.wire.frame import TOPIC_BYTES

if TYPE_CHECKING:
    from sealcast.wire.sealed import SealedPiece

Ints = npt.NDArray[np.int64]


def check(piece: SealedPiece) -> None:
    """Every array against every other; FrameRejected names the first that does not fit."""
    require(len(piece.topic) == TOPIC_BYTES, f"a topic id has {TOPIC_BYTES} bytes")
    require(0 <= piece.first_offset <= piece.end_offset, "first_offset is after end_offset")
    _check_frames(piece)
    _check_events(piece)
    _check_uses(piece)
    _check_mailboxes(piece)
    _check_handouts(piece)
    _check_links(piece)
    _check_tiles(piece)
    _check_tables(piece)
    _check_rejections(piece)


def _check_frames(piece: SealedPiece) -> None:
    require(len(piece.frames) <= limits.MAX_PIECE_FRAMES, f"over {limits.MAX_PIECE_FRAMES} frames")
    last = piece.first_offset - 1
    for proof in piece.frames:
        require(last < proof.offset < piece.end_offset, "frames are out of order or not covered")
        require(0 < proof.count <= limits.MAX_EVENTS_PER_FRAME, "a frame without events")
        require(
            0 < len(proof.signed) <= limits.MAX_SIGNED_BYTES,
            f"a signed header has at most {limits.MAX_SIGNED_BYTES} bytes",
        )
        require(len(proof.nodes) == merkle.size(proof.count), "a frame's nodes are not those of its count")
        last = proof.offset


def _check_events(piece: SealedPiece) -> None:
    events = len(piece)
    require(events <= limits.MAX_PIECE_EVENTS, f"over {limits.MAX_PIECE_EVENTS} events")
    require(len(piece.row) == len(piece.wrapped) == events, "frame_index, row and wrapped differ in length")
    require(len(piece.commitments) == COMMITMENT_BYTES * events, "a commitment for each event")
    _within("frame_index", piece.frame_index, len(piece.frames))
    _within("wrapped", piece.wrapped, 2)
    where, rows = _wide(piece.frame_index), _wide(piece.row)
    counts = np.array([proof.count for proof in piece.frames], dtype=np.int64)
    require(_all(rows >= 0) and _all(rows < counts[where]), "a row beyond its frame")
    require(_all(np.diff(where * limits.MAX_EVENTS_PER_FRAME + rows) > 0), "events are out of order or twice")
    _runs("body_start", piece.body_start, events, len(piece.bodies))
    sizes = np.diff(_wide(piece.body_start)) - TAG_BYTES
    require(_all(sizes > 0) and _all(sizes <= limits.MAX_MESSAGE_BYTES), "a body of an impossible size")


def _check_uses(piece: SealedPiece) -> None:
    require(
        len(piece.key_ids) == limits.KEY_ID_BYTES * len(piece.key_kind),
        f"a key has a kind and {limits.KEY_ID_BYTES} bytes of id",
    )
    _within("key_kind", piece.key_kind, 5)
    _runs("use_start", piece.use_start, len(piece), len(piece.uses))
    _within("uses", piece.uses, len(piece.key_kind))
    uses, wrapped = np.diff(_wide(piece.use_start)), _wide(piece.wrapped) != 0
    require(_all(uses > 0), "an event that no key opens")
    require(_all(uses[~wrapped] == 1), "an event that is sealed directly under more than one key")
    wraps = int(uses[wrapped].sum())
    require(
        len(piece.wraps) == WRAPPED_BYTES * wraps, "a wrapped key for each use of a wrapped event, no more, no less"
    )


def _check_mailboxes(piece: SealedPiece) -> None:
    groups, start, group_of = len(piece.member_start) - 1, _wide(piece.member_start), _wide(piece.group_of)
    require(groups >= 0 and len(group_of) == len(piece), "an event without a group")
    _runs("member_start", start, groups, int(start[-1]))
    _within("group_of", group_of, groups)
    require(_all(np.bincount(group_of, minlength=groups) > 0), "a group without an event")
    sizes = np.diff(start)
    _check_members(piece, start, sizes)
    require(int(sizes[group_of].sum()) <= limits.MAX_PIECE_DELIVERIES, f"over {limits.MAX_PIECE_DELIVERIES} deliveries")
    per_event, uses = np.diff(_wide(piece.use_start)), np.zeros(groups, np.int64)
    uses[group_of] = per_event
    require(_all(uses[group_of] == per_event), "events of one group with different numbers of uses")
    _runs("via_start", piece.via_start, groups, len(piece.via))
    said = np.diff(_wide(piece.via_start))
    plain = (uses == 1) | (uses == sizes)
    require(_all((said == sizes) | ((said == 0) & plain)), "members of whom it is not said how they open")
    require(_all((_wide(piece.via) >= 0) & (_wide(piece.via) < np.repeat(uses, said))), "a way to open that is none")


def _check_members(piece: SealedPiece, start: Ints, sizes: Ints) -> None:
    if not len(piece.member_bits):
        members = _wide(piece.members)
        require(len(members) == int(start[-1]), "other members than are counted")
        _within("members", members, 2**32)
        rises = np.diff(members) > 0
        rises[start[1:-1][(start[1:-1] > 0) & (start[1:-1] < len(members))] - 1] = True
        require(_all(rises), "members are out of order or twice")
        return
    bits = np.frombuffer(piece.member_bits, np.uint8)
    require(not len(piece.members), "members twice, as bits and one by one")
    require(len(sizes) > 0 and bits.size % max(1, len(sizes)) == 0, "as many bytes of members for each group")
    rows = bits.reshape(len(sizes), -1)
    require(rows.shape[1] <= 2**29 and bool(rows[:, -1].any()), "bytes of members that nobody needs")
    require(_all(np.bitwise_count(rows).sum(axis=1, dtype=np.int64) == sizes), "other members than are counted")


def _check_handouts(piece: SealedPiece) -> None:
    handouts = len(piece.handout_slot)
    require(len(piece.handout_key) == len(piece.handout_event) == handouts, "handout arrays differ in length")
    require(len(piece.handouts) == WRAPPED_BYTES * handouts, f"a handout has {WRAPPED_BYTES} bytes")
    _within("handout_key", piece.handout_key, len(piece.key_kind))
    require(_all(_wide(piece.key_kind)[_wide(piece.handout_key)] != 0), "a pair key is handed out")
    _comes_with_an_event("handout", piece, piece.handout_slot, piece.handout_event)


def _check_links(piece: SealedPiece) -> None:
    links = len(piece.link_key)
    same = len(piece.link_under) == len(piece.link_event) == len(piece.link_grows) == links
    require(same, "link arrays differ in length")
    _within("link_key", piece.link_key, len(piece.key_kind))
    _within("link_under", piece.link_under, len(piece.key_kind))
    _within("link_event", piece.link_event, len(piece))
    _within("link_grows", piece.link_grows, 2)
    kind, key, under = _wide(piece.key_kind), _wide(piece.link_key), _wide(piece.link_under)
    require(_all(kind[key] == 3) and _all(kind[under] != 1), "only grown keys are under keys that are no group's")
    hidden = int((_wide(piece.link_grows) == 0).sum())
    require(len(piece.links) == WRAPPED_BYTES * hidden, f"a link has {WRAPPED_BYTES} bytes, or none where it grows")


def _check_tiles(piece: SealedPiece) -> None:
    tiles, sizes, runs = len(piece.tile_size), _wide(piece.tile_size), _wide(piece.tile_run)
    require(tiles <= limits.MAX_PIECE_TILES, f"over {limits.MAX_PIECE_TILES} tiles")
    require(_all(sizes > 0) and _all(sizes <= limits.MAX_TILE_SLOTS), f"a tile has 1 to {limits.MAX_TILE_SLOTS} slots")
    require(len(runs) % 2 == 0, "a run of slots has a first and a length")
    first, length = runs.reshape(-1, 2).T
    require(_all(first >= 0) and _all(length > 0) and _all(first + length <= 2**32), "a run of impossible slots")
    require(int(length.sum()) == int(sizes.sum()), "other slots than the tiles have places")
    order = np.argsort(first, kind="stable")
    require(_all((first + length)[order][:-1] <= first[order][1:]), "a slot has two places")
    require(len(piece.tile_join) == max(0, tiles - 1), "a node less than there are tiles")
    waiting = [(0, tiles)] if tiles > 1 else []
    for middle in _wide(piece.tile_join).tolist():
        low, high = waiting.pop()
        require(low < middle < high, "a node outside of its own tiles")
        waiting += [side for side in ((middle, high), (low, middle)) if side[1] - side[0] > 1]


def _check_tables(piece: SealedPiece) -> None:
    tables = len(piece.table_slot)
    require(len(piece.table_tile) == len(piece.table_event) == tables, "table arrays differ in length")
    require(
        len(piece.table_names) == limits.TABLE_NAME_BYTES * tables,
        f"a table's name has {limits.TABLE_NAME_BYTES} bytes",
    )
    _within("table_tile", piece.table_tile, len(piece.tile_size))
    _runs("table_start", piece.table_start, tables, len(piece.table_parts))
    sizes = np.diff(_wide(piece.table_start))
    fits = (sizes > TAG_BYTES) & (sizes <= limits.MAX_TABLE_PART_BYTES) & (sizes % 32 == TAG_BYTES)
    require(_all(fits), "a part of a table of an impossible size")
    _comes_with_an_event("a part of a table", piece, piece.table_slot, piece.table_event)


def _comes_with_an_event(name: str, piece: SealedPiece, slot: npt.NDArray[Any], event: npt.NDArray[Any]) -> None:
    """What a slot is given comes with an event of its own: whoever looks for its events finds it."""
    if not len(slot):
        return
    _within(f"{name}'s slot", slot, 2**32)
    _within(f"{name}'s event", event, len(piece))
    fine = piece.mailboxes.has(_wide(slot), _wide(event))
    require(_all(fine), f"{name} comes with an event that is not its receiver's")


def _check_rejections(piece: SealedPiece) -> None:
    require(len(piece.rejected) <= limits.MAX_PIECE_REJECTIONS, f"over {limits.MAX_PIECE_REJECTIONS} rejections")
    for rejection in piece.rejected:
        covered = piece.first_offset <= rejection.position.offset < piece.end_offset
        require(covered, "a rejection of a frame that the piece does not cover")
        require(
            len(rejection.detail.encode()) <= limits.MAX_DETAIL_BYTES,
            f"a detail of over {limits.MAX_DETAIL_BYTES} bytes",
        )


# --- inside -------------------------------------------------------------------------------------


def _all(holds: npt.NDArray[np.bool_]) -> bool:
    return bool(holds.all())


def _wide(array: npt.NDArray[Any]) -> Ints:
    """As signed 64-bit numbers: nothing wraps, and what does not fit comes out negative, which no check lets pass."""
    return np.asarray(array).astype(np.int64, copy=False)


def _within(name: str, array: npt.NDArray[Any], end: int) -> None:
    wide = _wide(array)
    require(_all(wide >= 0) and _all(wide < end), f"{name} leads out of the piece")


def _runs(name: str, starts: npt.NDArray[Any], count: int, end: int) -> None:
    """`starts` cuts [0, end) into `count` runs."""
    wide = _wide(starts)
    fits = len(wide) == count + 1 and wide[0] == 0 and wide[-1] == end and _all(np.diff(wide) >= 0)
    require(bool(fits), f"{name} does not cut what it should into {count} runs")
