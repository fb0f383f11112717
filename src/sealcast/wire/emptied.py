"""A piece without its events: what takes the place of one whose events were removed, by retention or for good.

It says which frames it accounts for, what was refused in them, and how many were admitted. It has no event, no key and
nobody's name but those in refusals.
"""

from __future__ import annotations

from typing import Final

import numpy as np

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
