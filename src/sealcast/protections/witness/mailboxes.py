"""All mailboxes at one broker, counted together in one pass over its pieces. Nothing is opened."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sealcast.log.cursor import Cursor, CursorFile
from sealcast.log.piece_reader import PieceReader
from sealcast.model.dataclass import dataclass
from sealcast.trust.layout import TopicPaths
from sealcast.wire.sealed import SealedPiece

Ints = NDArray[np.int64]

#: Of a piece and of how many of its deliveries each subscriber leaves out: who finds something in it, and how much.
#: Subscribers are numbers.
Found = Callable[[Any, Ints], tuple[Ints, Ints]]


@dataclass(slots=True)
class ReceivedDelivery:
    """What lies in one subscriber's mailbox."""

    deliveries: int = 0
    #: When the first and the last of it were committed.
    first_us: int | None = None
    last_us: int | None = None
    #: Of the deliveries, those that were sealed again since.
    again: int = 0
    #: Beside the deliveries: those that lay there once, and do not since others were sealed in their place.
    withdrawn: int = 0


def by_slot(piece: SealedPiece, skip: Ints) -> tuple[Ints, Ints]:
    """What subscribers find in a sealed piece; they are numbered by their slots."""
    here = np.asarray(piece.slots, np.int64)
    known = here < skip.size
    counts = np.diff(np.asarray(piece.mailbox_start, np.int64))[known]
    return here[known], np.maximum(0, counts - skip[here[known]])


def cursors(paths: TopicPaths, slots: Mapping[str, int]) -> dict[str, Cursor]:
    """Where each subscriber stands; the beginning for one that never acknowledged anything."""
    return {name: CursorFile(paths.cursors, name, slot).load().cursor for name, slot in slots.items()}


def lags(reader: PieceReader[Any], at: Mapping[str, Cursor], found: Found = by_slot) -> dict[str, int]:
    """Deliveries after each subscriber's cursor. Subscribers are 0, 1, 2, ... in the order of the mapping."""
    if not at:
        return {}
    entry, piece, rank = (
        np.array([getattr(cursor, field) for cursor in at.values()], np.int64) for field in ("entry", "piece", "rank")
    )
    waiting, everything = np.zeros(len(at), np.int64), np.iinfo(np.int64).max
    for index in range(int(entry.min()), reader.ledger.end()):
        for number, ref in enumerate(reader.record(index).entry.pieces):
            if not ref.deliveries:
                continue
            before = (entry < index) | ((entry == index) & (piece < number))
            skip = np.where(before, 0, np.where((entry == index) & (piece == number), rank, everything))
            here, counts = found(reader.piece_of(index, number), skip)
            waiting[here] += counts
    return dict(zip(at, waiting.tolist(), strict=True))


def received(reader: PieceReader[Any], names: Sequence[str], found: Found = by_slot) -> dict[str, ReceivedDelivery]:
    """What each of these was sent, of those who were sent anything."""
    got, nothing = dict[int, ReceivedDelivery](), np.zeros(len(names), np.int64)
    for index in range(reader.ledger.end()):
        committed = reader.record(index)
        for who, count in committed.resealed.withdrawn if committed.resealed is not None else ():
            got.setdefault(who, ReceivedDelivery()).withdrawn += count
        for number, ref in enumerate(committed.entry.pieces):
            if not ref.deliveries:
                continue
            again = committed.resealed is not None and ref not in committed.committed_pieces
            here, counts = found(reader.piece_of(index, number), nothing)
            for who, count in zip(here.tolist(), counts.tolist(), strict=True):
                if count:
                    mine = got.setdefault(who, ReceivedDelivery())
                    mine.deliveries += count
                    mine.again += count if again else 0
                    mine.first_us = committed.time_us if mine.first_us is None else mine.first_us
                    mine.last_us = committed.time_us
    return {names[who]: each for who, each in sorted(got.items())}
