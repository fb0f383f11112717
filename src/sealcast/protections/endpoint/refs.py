"""The keys of a sealed piece, described again from the piece alone: who holds a key is who opens through it.

A piece names its keys by ids that say nothing. Who opens an event through a key is in its mailboxes, and how tables lie
under grown keys in its tiles; with both the broker describes the key, derives its id anew, and compares. So a piece can
not make it take one key for another, whoever wrote the piece.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import numpy as np

from sealcast.errors import Misuse
from sealcast.groupkeys.interface import GroupKey, KeyRef, Outline, PairKey
from sealcast.groupkeys.mosaic.layout import TileLayout, from_outline
from sealcast.groupkeys.mosaic.naming import key_of, parts_of
from sealcast.protections.endpoint.sealer import EndpointSealer
from sealcast.wire.sealed import GROUP, PAIR, SealedPiece


class PieceKeys:
    """What the keys of one piece are."""

    def __init__(self, piece: SealedPiece, sealer: EndpointSealer) -> None:
        self._piece, self._sealer = piece, sealer

    @cached_property
    def layout(self) -> TileLayout:
        arrays = (self._piece.tile_size, self._piece.tile_run, self._piece.tile_join)
        return from_outline(Outline(*(np.asarray(a, np.int64) for a in arrays)))

    def held_by(self, key: int, members: Sequence[int]) -> KeyRef | None:
        """The description of a key, if these and no others hold it; None if its id is not that of such a key."""
        ref = self._described(int(self._piece.key_kind[key]), sorted(members))
        return ref if ref is not None and self._sealer.key_id(ref) == self._piece.key_id(key) else None

    def _described(self, kind: int, members: list[int]) -> KeyRef | None:
        if kind == PAIR:
            return PairKey(members[0]) if len(members) == 1 else None
        if kind == GROUP:
            return GroupKey(tuple(members))
        try:
            return key_of(self.layout, members)
        except Misuse:
            return None  # not all of them have tiles, or there are none

    def parts(self, members: Sequence[int]) -> dict[bytes, KeyRef]:
        """All keys that some of a group of subscribers may have together, over their tiles, or alone; by id."""
        places = self.layout.place_of
        placed = [slot for slot in members if slot < places.size and places[slot] >= 0]
        refs = [*map(PairKey, members), *(parts_of(self.layout, placed) if placed else ())]
        return {self._sealer.key_id(ref): ref for ref in refs}
