"""admit: Ruled -> Admitted. The rest of the numbered checks, and the events of the frames that pass them all.

Admission is in two halves, because whether a frame was here before hangs on all frames of the batch:

    authenticate   Received -> claims: checks 1 to 14, up to the publisher's signature and clock; or refusals
    replay         claims -> rulings: 15 and 16, the publishers' windows and rates (rulings.py)
    admit          Ruled -> Admitted: the ruling, then schema, seal and tree, 17 to 19, then every event, 8 and 20

A frame stands or falls as a whole up to its tree; then every event stands for itself: it must be one of its publisher's
template, and of the schema. What is refused is counted and kept, and harms nothing else: the frames beside it go on.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np
from numpy.typing import NDArray

from sealcast.broker.gate import Gate
from sealcast.broker.opening import open_frames, refused_events
from sealcast.model import Reason
from sealcast.model.protection import Protection
from sealcast.model.schema import Schema
from sealcast.model.stages import Admitted, Ruled
from sealcast.trust.realm.templates import Template
from sealcast.wire.domain import check_domain
from sealcast.wire.layout import plain
from sealcast.wire.records import Decoded

_OFF_DOMAIN: Final = "attribute {!r} is outside its domain or off its grid"
_SHOWN: Final = "attribute {!r} is sealed on this topic, and this event shows it to brokers"
_NO_ENVELOPE: Final = "no sealed event stands in its payload's place"
_OFF_TEMPLATE: Final = "not one of the events that its publisher's token is for"

Ints = NDArray[np.int64]


def admit(ruled: Ruled, gate: Gate) -> Admitted:
    """The events of frames that passed, each checked."""
    received, opened = ruled.received, open_frames(ruled, gate)
    proofs, messages, (frame_index, row) = opened.proofs, opened.messages, opened.placed()
    schema, decoded = gate.topic.schema, opened.decoded()
    # By attribute and rule, never by value: reasons are kept in clear, for whoever may see that something was refused.
    off = {event: _OFF_DOMAIN.format(name) for event, (name, _) in check_domain(schema, decoded.columns).items()}
    unsealed = dict(_unsealed(decoded, opened.lengths, gate.topic.protection, schema))
    if gate.unfit is not None:
        starts = decoded.payload_start.tolist()
        payloads = [message[start:] for message, start in zip(messages, starts, strict=True)]
        unsealed = dict(gate.unfit(gate.topic, payloads)) | unsealed
    refused = {event: (Reason.EVENT, text) for event, text in {**unsealed, **off, **decoded.bad}.items()}  # (20)
    outside = _off_template(opened.templates, frame_index, decoded, gate)
    refused |= dict.fromkeys((e for e in outside if e not in decoded.bad), (Reason.TEMPLATE, _OFF_TEMPLATE))  # (8)
    rejections = [*opened.rejections, *refused_events(received.partition, proofs, frame_index, row, refused)]

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
        offset=opened.offsets[frame_index],
        row=row,
        messages=messages,
        columns=columns,
        payload_start=payload_start,
        readers=opened.readers,
        traces=tuple(opened.traces),
        rejections=tuple(sorted(rejections, key=lambda r: r.position)),
    )


def _unsealed(decoded: Decoded, lengths: Ints, protection: Protection, schema: Schema) -> Iterator[tuple[int, str]]:
    """Events that show brokers what publishers of the topic seal; none where they seal nothing."""
    for name in sorted(protection.hidden_of(schema)):
        yield from ((e, _SHOWN.format(name)) for e in np.flatnonzero(plain(decoded.columns[name].is_valid())).tolist())
    if protection.least_payload:
        short = lengths - decoded.payload_start < protection.least_payload
        yield from ((event, _NO_ENVELOPE) for event in np.flatnonzero(short).tolist())


def _off_template(templates: list[Template], frame_index: Ints, decoded: Decoded, gate: Gate) -> list[int]:
    """Events whose publisher may publish others only: one vectorised question a distinct template."""
    found = list[int]()
    # Frames of one token share the object, and comparing objects costs less than hashing what they say.
    distinct = {id(template): template for template in templates}
    for template in {t for t in distinct.values() if not t.every_event}:
        frames_of = np.array([t == template for t in templates])
        rows = np.flatnonzero(frames_of[frame_index])
        fits = template.admits_rows(decoded.columns.take(rows), gate.topic.schema)
        found += rows[~fits].tolist()
    return found
