"""How far behind every subscriber of a topic is, in one pass over the pieces for all of them together."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from sealcast.log.cursor import Cursor, CursorFile
from sealcast.log.piece_reader import PieceReader
from sealcast.trust.layout import TopicPaths
from sealcast.wire.sealed import SealedPiece


def cursors(paths: TopicPaths, slots: Mapping[str, int]) -> dict[str, Cursor]:
    """Where each subscriber stands; the beginning for one that never acknowledged anything."""
    return {name: CursorFile(paths.cursors, name, slot).load().cursor for name, slot in slots.items()}


def lags(reader: PieceReader[SealedPiece], slots: Mapping[str, int], at: Mapping[str, Cursor]) -> dict[str, int]:
    """Deliveries after each subscriber's cursor. Slots are 0, 1, 2, ... in the order of the mapping."""
    if not slots:
        return {}
    entry, piece, rank = (
        np.array([getattr(at[name], field) for name in slots], np.int64) for field in ("entry", "piece", "rank")
    )
    waiting = np.zeros(len(slots), np.int64)
    for index in range(int(entry.min()), reader.ledger.end()):
        for number, ref in enumerate(reader.record(index).entry.pieces):
            if not ref.deliveries:
                continue
            found = reader.piece(ref)
            here = np.asarray(found.slots, np.int64)
            counts = np.diff(np.asarray(found.mailbox_start, np.int64))
            same = (entry[here] == index) & (piece[here] == number)
            later = (entry[here] < index) | ((entry[here] == index) & (piece[here] < number))
            waiting[here] += np.where(later, counts, np.where(same, np.maximum(0, counts - rank[here]), 0))
    return dict(zip(slots, waiting.tolist(), strict=True))
