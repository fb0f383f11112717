"""A piece without its events, or some of them: what takes the place of one whose events were removed.

It says which frames it accounts for, what was refused in them, and how many were admitted. What was removed has left no
event, no key and nobody's name but those in refusals. Where every event is sealed by itself (hop pieces), the others
stay as they are, byte by byte.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from typing import Final

import numpy as np

from sealcast.wire import typed
from sealcast.wire.excerpts import hop_events
from sealcast.wire.hops import HopPiece
from sealcast.wire.notifications import parse_entries
from sealcast.wire.sealed import SealedPiece

_NONE: Final = np.empty(0, np.int64)
_FROM_ZERO: Final = np.zeros(1, np.int64)
_OF_EVENTS: Final = ("matched", "deliveries", "encryptions")


def emptied(piece: SealedPiece, version: int) -> SealedPiece:
    """The piece that is left of one when all of its events go, decided under a version of the registry."""
    return SealedPiece(
        topic=piece.topic,
        epoch=piece.epoch,
        version=version,
        partition=piece.partition,
        first_offset=piece.first_offset,
        end_offset=piece.end_offset,
        frames=(),
        frame_index=_NONE,
        row=_NONE,
        body_start=_FROM_ZERO,
        bodies=b"",
        commitments=b"",
        wrapped=_NONE,
        key_ids=b"",
        key_kind=_NONE,
        use_start=_FROM_ZERO,
        uses=_NONE,
        wraps=b"",
        group_of=_NONE,
        member_start=_FROM_ZERO,
        member_bits=b"",
        members=_NONE,
        via_start=_FROM_ZERO,
        via=_NONE,
        rejected=piece.rejected,
        counts={**piece.counts, **dict.fromkeys(_OF_EVENTS, 0)},
    )


def without(piece: HopPiece, gone: Collection[int], version: int) -> HopPiece:
    """The piece that is left of one when these of its events go, decided under a version of the registry."""
    left = [event for event in range(len(piece)) if event not in gone]
    number = {event: at for at, event in enumerate(left)}
    spans = {name: [row for row in piece.rows_for(name) if piece.event_of(row) in number] for name in piece.recipients}
    recipients = tuple(name for name in piece.recipients if spans[name])
    rows = [row for name in recipients for row in spans[name]]
    entries = [piece.entries_of(row) for row in rows]
    return replace(
        piece,
        version=version,
        **hop_events(piece, left),
        recipients=recipients,
        recipient_start=typed.starts(len(spans[name]) for name in recipients),
        row_event=np.asarray([number[piece.event_of(row)] for row in rows], np.int64),
        entry_start=typed.starts(map(len, entries)),
        entries=b"".join(entries),
        counts={**piece.counts, **_delivered(piece, len(left), entries)},
    )


def _delivered(piece: HopPiece, events: int, entries: Collection[bytes]) -> dict[str, int]:
    """What is counted of deliveries, again, where it was: a root counts none of what it takes in for itself."""
    if not piece.counts.keys() & set(_OF_EVENTS):
        return {}
    parsed = [entry for row in entries for entry in parse_entries(row)]
    final = sum(entry.final for entry in parsed)
    return dict(zip(_OF_EVENTS, (events, final, len(parsed)), strict=True))
