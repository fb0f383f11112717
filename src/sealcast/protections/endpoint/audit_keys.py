"""The keys of sealed pieces, checked: each is held by exactly those who open through it, and has reached them.

    what a key is        named again from who opens through it, and its id derived anew (`protections.endpoint.refs`)
    who is given it      members only, under what members hold only, and the very bytes that the broker would make
    whom it reached      followed from piece to piece: every reader has been given what it opens through, or derives it

Keys that a piece does not use, but hands out on the way to one that it does, are parts of the group of that event.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache, reduce

import numpy as np
from numpy.typing import NDArray

from sealcast.errors import Bug
from sealcast.groupkeys.interface import GrownKey, KeyRef, PairKey, TableKey, holders_of
from sealcast.primitives import labels
from sealcast.primitives.aead import WRAPPED_BYTES
from sealcast.protections.endpoint.refs import PieceKeys
from sealcast.protections.endpoint.sealer import EndpointSealer
from sealcast.protections.endpoint.tables import LINK
from sealcast.protections.witness.places import Delivered
from sealcast.wire.limits import TABLE_NAME_BYTES
from sealcast.wire.sealed import PAIR, SealedPiece

Ints = NDArray[np.int64]
#: Of an event: the slots that should get it.
Groups = Callable[[int], list[int]]


class KeyAudit:
    """One topic and epoch, from its first piece on. Sets of slots are numbers: bit i is slot i."""

    def __init__(self, sealer: EndpointSealer) -> None:
        self.sealer = sealer
        #: A piece is missing: nothing can be said of whom keys have reached.
        self.blind = False
        self._reached: dict[bytes, int] = {}
        self._parts: dict[bytes, int] = {}

    def take(self, piece: SealedPiece, groups: Groups) -> tuple[dict[int, KeyRef], list[str]]:
        """The next piece: what its keys are, by position, as far as they are what they should be; and what is wrong.

        `groups` says who should get an event: where somebody was left out, a key is not that of its readers.
        """
        here = _Piece(piece, self.sealer, groups)
        problems = [*here.problems, *self._handouts(here), *self._tables(here), *self._links(here)]
        self._follow(here)
        if not self.blind:
            problems += self._unreached(here)
        return here.refs, problems

    # --- who is given what --------------------------------------------------------------------------

    def _handouts(self, here: _Piece) -> Iterator[str]:
        piece = here.piece
        rows = zip(piece.handout_slot.tolist(), piece.handout_key.tolist(), piece.handout_event.tolist(), strict=True)
        for row, (slot, key, event) in enumerate(rows):
            ref = here.ref(key, event)
            if ref is None or slot not in holders_of(ref):
                yield f"key {key} is handed to slot {slot}, which is none of its holders"
            elif self.sealer.hand_out(PairKey(slot), ref) != _row(piece.handouts, row, WRAPPED_BYTES):
                yield f"what is handed to slot {slot} is not key {key}"
            else:
                self._reach(piece.key_id(key), 1 << slot)

    def _tables(self, here: _Piece) -> Iterator[str]:
        piece = here.piece
        tiles = np.asarray(piece.table_tile, np.int64)
        for tile in np.unique(tiles).tolist():
            rows, slots = np.flatnonzero(tiles == tile).tolist(), tuple(piece.tile(tile))
            name, wanted = self.sealer.table_name(slots), [int(piece.table_slot[row]) for row in rows]
            try:
                parts = self.sealer.hand_out_table(slots, wanted)
            except Bug:
                yield f"a part of the table of tile {tile} is given to somebody without a place in it"
                continue
            for row, slot, part in zip(rows, wanted, parts, strict=True):
                given = bytes(piece.table_parts[int(piece.table_start[row]) : int(piece.table_start[row + 1])])
                if _row(piece.table_names, row, TABLE_NAME_BYTES) != name or given != part:
                    yield f"what is given to slot {slot} is not its part of the table of tile {tile}"
                else:
                    self._parts[name] = self._parts.get(name, 0) | 1 << slot

    def _links(self, here: _Piece) -> Iterator[str]:
        piece, hidden = here.piece, 0
        rows = zip(piece.link_key.tolist(), piece.link_under.tolist(), piece.link_event.tolist(), strict=True)
        for row, (key, under, event) in enumerate(rows):
            ref, other, grows = here.ref(key, event), here.ref(under, event), bool(piece.link_grows[row])
            masked, hidden = _row(piece.links, hidden, WRAPPED_BYTES), hidden + (not grows)
            if not isinstance(ref, GrownKey) or other is None:
                yield f"a link of key {key} under key {under}, one of which is not of the group of its event"
            elif not holders_of(other) < holders_of(ref):
                yield f"key {key} is to be had under key {under}, which somebody else holds"
            elif grows and ref.stem != other:
                yield f"key {key} is said to grow out of key {under}, and does not"
            elif not grows and masked != self._hidden(ref, other):
                yield f"what is hidden under key {under} is not key {key}"

    def _hidden(self, ref: GrownKey, under: KeyRef) -> bytes:
        key_id, secret = self.sealer.key_id(ref), self.sealer.secret(ref)
        return labels.mask_many([self.sealer.secret(under)], [key_id], LINK, labels.checked([secret]))[0]

    # --- whom it reaches ----------------------------------------------------------------------------

    def _follow(self, here: _Piece) -> None:
        """Along the links, from keys to those that they lead to, until nobody comes by another."""
        piece, moved = here.piece, True
        pairs = list(zip(piece.link_key.tolist(), piece.link_under.tolist(), piece.link_event.tolist(), strict=True))
        while moved:
            moved = False
            for key, under, event in pairs:
                moved |= self._reach(piece.key_id(key), self._holders(piece.key_id(under), here.ref(under, event)))

    def _reach(self, key_id: bytes, slots: int) -> bool:
        before = self._reached.get(key_id, 0)
        self._reached[key_id] = before | slots
        return self._reached[key_id] != before

    def _holders(self, key_id: bytes, ref: KeyRef | None) -> int:
        """Who has come by a key so far."""
        if ref is None:
            return 0
        if isinstance(ref, PairKey):
            return 1 << ref.slot
        derived = self._parts.get(key_id[:TABLE_NAME_BYTES], 0) if isinstance(ref, TableKey) else 0
        return self._reached.get(key_id, 0) | derived & _bits(holders_of(ref))

    def _unreached(self, here: _Piece) -> Iterator[str]:
        for key, ref in here.refs.items():
            missing = _bits(holders_of(ref)) & ~self._holders(here.piece.key_id(key), ref)
            if missing:
                yield f"key {key} has not reached slot {(missing & -missing).bit_length() - 1}, which opens through it"


class _Piece:
    """A piece with its keys named: those in use by their readers, others by the event on whose way they are."""

    def __init__(self, piece: SealedPiece, sealer: EndpointSealer, groups: Groups) -> None:
        self.piece, self._sealer, self._groups = piece, sealer, groups
        self._keys = PieceKeys(piece, sealer)
        self._on_the_way = cache(lambda event: self._keys.parts(groups(event)))
        self.refs: dict[int, KeyRef] = {}
        self.problems: list[str] = []
        delivered = Delivered.of(piece)
        slot, use = delivered.slot, delivered.use
        key = np.asarray(piece.uses, np.int64)[use]
        pairs = np.asarray(piece.key_kind)[key] == PAIR
        self._name_pairs(np.unique(key[pairs]).tolist())
        self._name_others(key[~pairs], use[~pairs], slot[~pairs])

    def _name_pairs(self, keys: list[int]) -> None:
        for key in keys:
            ref = PairKey(int.from_bytes(self.piece.key_id(key)[4:], "big"))
            if self._sealer.key_id(ref) == self.piece.key_id(key):
                self.refs[key] = ref

    def _name_others(self, key: Ints, use: Ints, slot: Ints) -> None:
        order = np.argsort(use, kind="stable")
        key, use, slot = key[order], use[order], slot[order]
        starts = np.flatnonzero(np.diff(use, prepend=-1))
        event = np.searchsorted(np.asarray(self.piece.use_start, np.int64), use[starts], side="right") - 1
        for readers, of, at in zip(np.split(slot, starts[1:]), key[starts].tolist(), event.tolist(), strict=False):
            if of not in self.refs:
                ref = self._keys.held_by(of, readers.tolist()) or self.ref(of, at)
                if ref is None:
                    self.problems.append(f"key {of} is not the key of those who are to open through it")
                    continue
                self.refs[of] = ref
            outside = holders_of(self.refs[of]) - set(self._groups(at))
            if outside:
                where = self.piece.position(at)
                self.problems.append(f"event {where} is sealed under a key that slot {min(outside)} holds, too")

    def ref(self, key: int, event: int) -> KeyRef | None:
        """A key in use, or one that an event's readers may have over their tiles."""
        if key in self.refs:
            return self.refs[key]
        return self._on_the_way(event).get(self.piece.key_id(key))


def _bits(slots: frozenset[int]) -> int:
    return reduce(lambda found, slot: found | 1 << slot, slots, 0)


def _row(joined: bytes | memoryview, row: int, size: int) -> bytes:
    return bytes(joined[size * row : size * (row + 1)])
