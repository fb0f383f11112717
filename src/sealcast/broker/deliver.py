"""deliver: GroupSealed -> a sealed piece. The last thing a worker does: one immutable piece, ready to be committed.

An event is in it once, whoever gets it; who gets what is an index by group and member (decision 6). Events that nobody
wanted leave no trace but their count.
"""

from __future__ import annotations

import numpy as np

from sealcast.broker.columns import SUSPENDED
from sealcast.model.rejection import Rejection
from sealcast.model.stages import GroupSealed
from sealcast.wire import mailboxes, typed
from sealcast.wire.sealed import SealedPiece


def deliver(sealed: GroupSealed, topic_id: bytes, epoch: int, version: int) -> SealedPiece:
    """The piece that accounts for every frame of the batch."""
    admitted, events = sealed.grouped.admitted, sealed.grouped.events
    # Frames none of whose events anybody wanted are not carried along.
    kept, frame_index = np.unique(admitted.frame_index[events], return_inverse=True)
    return SealedPiece(
        topic=topic_id,
        epoch=epoch,
        version=version,
        partition=admitted.partition,
        first_offset=admitted.first_offset,
        end_offset=admitted.end_offset,
        frames=tuple(admitted.frames[f] for f in kept.tolist()),
        frame_index=frame_index,
        row=admitted.row[events],
        body_start=typed.starts(map(len, sealed.bodies)),
        bodies=b"".join(sealed.bodies),
        **sealed.keys,
        **mailboxes.of_groups(
            sealed.grouped.groups,
            sealed.grouped.group_of,
            sealed.member_start,
            sealed.members,
            sealed.via,
            sealed.group_uses,
        ),
        rejected=admitted.rejections,
        counts=counts(sealed),
    )


def counts(sealed: GroupSealed) -> dict[str, int]:
    """What metrics, `status` and the ledger say of the batch."""
    admitted = sealed.grouped.admitted
    return {
        "frames": admitted.end_offset - admitted.first_offset,
        "admitted": len(admitted.messages),
        "matched": int(sealed.grouped.events.size),
        "deliveries": int(np.diff(sealed.member_start)[sealed.grouped.group_of].sum()),
        "encryptions": sealed.encryptions,
        **({SUSPENDED: len(sealed.grouped.suspended)} if sealed.grouped.suspended else {}),
        **rejected_by_reason(admitted.rejections),
    }


def rejected_by_reason(rejections: tuple[Rejection, ...]) -> dict[str, int]:
    """Events refused, by reason; a frame too broken to tell its events counts as one."""
    totals: dict[str, int] = {}
    for rejection in rejections:
        name = f"rejected_{rejection.reason}"
        totals[name] = totals.get(name, 0) + max(1, rejection.events)
    return totals
