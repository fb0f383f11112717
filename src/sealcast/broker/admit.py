"""admit: Ruled -> Admitted. The rest of the numbered checks, and the events of the frames that pass them all.

Admission is in two halves, because whether a frame was here before is known elsewhere (pipeline/replay.py):

    authenticate   Received -> claims: checks 1 to 14, up to the publisher's signature and clock; or refusals
    replay         claims -> rulings: 15 and 16, the publishers' windows and rates, in Spark's state
    admit          Ruled -> Admitted: the ruling, then schema, seal and tree, 17 to 19, then every event, 8 and 20

A frame stands or falls as a whole up to its tree; then every event stands for itself: it must be one of its publisher's
template, and of the schema. What is refused is counted and kept, and harms nothing else: the frames beside it go on.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np
from numpy.typing import NDArray

from sealcast.broker.gate import WHOLE_FRAME, Gate
from sealcast.broker.opening import Opening, shortened
from sealcast.broker.opening import refused as refused_frame
from sealcast.errors import FrameRejected
from sealcast.model import Position, Reason, Rejection
from sealcast.model.stages import Admitted, FrameProof, Received, Ruled
from sealcast.trust.realm.templates import Template
from sealcast.wire import frames
from sealcast.wire.domain import check_domain
from sealcast.wire.records import Decoded

#: Refused events of one frame that are kept each with its reason.
MAX_NAMED_PER_FRAME: Final = 100
_OFF_DOMAIN: Final = "attribute {!r} is outside its domain or off its grid"
_OFF_TEMPLATE: Final = "not one of the events that its publisher's token is for"

Ints = NDArray[np.int64]


def admit(ruled: Ruled, gate: Gate) -> Admitted:
    """The events of frames that passed, each checked."""
    received, parsed = ruled.received, frames.parse_many(ruled.received.frames)
    opened, rejections = Opening(gate, parsed), list[Rejection]()
    rows = zip(received.offsets, received.times, received.frames, ruled.codes.tolist(), strict=True)
    for row, (offset, time_us, data, code) in enumerate(rows):
        try:
            if code:
                raise refused_frame(data, time_us, code, gate)
            opened.frame(row, offset, data)
        except FrameRejected as refused:
            where = Position(received.partition, offset, WHOLE_FRAME)
            detail, events = shortened(refused.message), int(parsed.count[row] if parsed.good[row] else 0)
            rejections.append(Rejection(where, Reason(refused.reason), detail, events))
    return _check_events(received, gate, opened, rejections)


# --- the events ---------------------------------------------------------------------------


def _check_events(received: Received, gate: Gate, opened: Opening, rejections: list[Rejection]) -> Admitted:
    proofs, messages = opened.proofs, opened.messages
    counts = np.array([proof.count for proof in proofs], np.int64)
    frame_index = np.repeat(np.arange(len(proofs)), counts)
    row = np.arange(len(messages)) - np.repeat(np.cumsum(counts) - counts, counts)

    schema, decoded = gate.topic.schema, opened.decoded()
    # By attribute and rule, never by value: reasons are kept in clear, for whoever may see that something was refused.
    off = {event: _OFF_DOMAIN.format(name) for event, (name, _) in check_domain(schema, decoded.columns).items()}
    refused = {event: (Reason.EVENT, text) for event, text in {**off, **decoded.bad}.items()}  # (20)
    outside = _off_template(opened.templates, frame_index, decoded, gate)
    refused |= dict.fromkeys((e for e in outside if e not in decoded.bad), (Reason.TEMPLATE, _OFF_TEMPLATE))  # (8)
    rejections += _refused_events(received.partition, proofs, frame_index, row, refused)

    columns, payload_start = decoded.columns, decoded.payload_start
    if refused:
        good = np.setdiff1d(np.arange(len(messages)), np.fromiter(refused, np.int64, len(refused)))
        frame_index, row, payload_start = frame_index[good], row[good], payload_start[good]
        columns = columns.take(good)
        messages = [messages[i] for i in good.tolist()]
    return Admitted(
        partition=received.partition,
        first_offset=received.offsets[0],
        end_offset=received.offsets[-1] + 1,
        frames=tuple(proofs),
        frame_index=frame_index,
        offset=np.array([proof.offset for proof in proofs], np.int64)[frame_index],
        row=row,
        messages=messages,
        columns=columns,
        payload_start=payload_start,
        rejections=tuple(sorted(rejections, key=lambda r: r.position)),
    )


def _off_template(templates: list[Template], frame_index: Ints, decoded: Decoded, gate: Gate) -> list[int]:
    """Events whose publisher may publish others only: one vectorised question a distinct template."""
    found = list[int]()
    for template in {t for t in set(templates) if not t.every_event}:
        frames_of = np.array([t == template for t in templates])
        rows = np.flatnonzero(frames_of[frame_index])
        fits = template.admits_rows(decoded.columns.take(rows), gate.topic.schema)
        found += rows[~fits].tolist()
    return found


def _refused_events(
    partition: int,
    proofs: list[FrameProof],
    frame_index: Ints,
    row: Ints,
    refused: dict[int, tuple[Reason, str]],
) -> Iterator[Rejection]:
    """The first of each frame one by one, the rest of it as one number a reason: a hostile frame must not flood the
    ledger."""
    by_frame: dict[int, list[int]] = {}
    for event in sorted(refused):
        by_frame.setdefault(int(frame_index[event]), []).append(event)
    for index, events in by_frame.items():
        named, rest = events[:MAX_NAMED_PER_FRAME], events[MAX_NAMED_PER_FRAME:]
        for event in named:
            reason, text = refused[event]
            yield Rejection(Position(partition, proofs[index].offset, int(row[event])), reason, shortened(text), 1)
        for reason in (Reason.TEMPLATE, Reason.EVENT):
            more = [event for event in rest if refused[event][0] is reason]
            if more:
                where = Position(partition, proofs[index].offset, int(row[more[0]]))
                yield Rejection(where, reason, f"this and {len(more) - 1} more of the frame", len(more))
