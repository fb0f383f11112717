"""admit: Received -> Admitted. Thirteen numbered checks, the first that fails is the reason (`model.rejection.Reason`).

A frame stands or falls as a whole up to its signature and seal, checks 1 to 12; then every event stands for itself,
check 13. What is refused is counted and kept, and harms nothing else: the frames beside it go on.

The clock of check 9 is the log's, not this process's: a batch that is run again must decide the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from sealcast.errors import CannotOpen, FrameRejected
from sealcast.model import Position, Reason, Rejection
from sealcast.model.stages import Admitted, FrameProof, Received
from sealcast.primitives import merkle
from sealcast.primitives.aead import SealingKey
from sealcast.primitives.sign import VerifyKey
from sealcast.trust.realm import RealmState, Topic
from sealcast.wire import frame
from sealcast.wire.domain import check_domain
from sealcast.wire.frame import Frame, Header
from sealcast.wire.limits import MAX_DETAIL_BYTES
from sealcast.wire.records import RecordCodec

#: How far a publisher's clock may be ahead of the log's.
MAX_CLOCK_SKEW_US: Final = 5 * 60 * 1_000_000
#: A frame that was refused as a whole has no row.
WHOLE_FRAME: Final = -1
#: Refused events of one frame that are kept each with its reason.
MAX_NAMED_PER_FRAME: Final = 100
#: Characters of a reason, at most four bytes each on the wire.
MAX_DETAIL: Final = MAX_DETAIL_BYTES // 4

_OFF_DOMAIN: Final = "attribute {!r} is outside its domain or off its grid"

Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Gate:
    """What admission knows: the realm at the pinned version, and the broker's keys towards publishers."""

    state: RealmState
    topic: Topic
    codec: RecordCodec
    #: The key that opens what a publisher sealed in an epoch and in one of its boots.
    frame_key: Callable[[str, int, bytes], SealingKey]
    verify_key: Callable[[str], VerifyKey]


def admit(received: Received, gate: Gate) -> Admitted:
    """Check every frame, then every event of the frames that passed."""
    proofs: list[FrameProof] = []
    messages: list[bytes] = []
    rejections: list[Rejection] = []
    for offset, time_us, data in zip(received.offsets, received.times, received.frames, strict=True):
        try:
            checked = _check_frame(data, time_us, gate)
        except FrameRejected as refused:
            where = Position(received.partition, offset, WHOLE_FRAME)
            reason, detail = Reason(refused.reason), _shortened(refused.message)
            rejections.append(Rejection(where, reason, detail, _claimed_events(data)))
            continue
        proofs.append(FrameProof(offset, checked.signed, len(checked.messages), checked.nodes))
        messages += checked.messages
    return _check_events(received, gate, proofs, messages, rejections)


# --- checks 1 to 12: the frame ----------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _CheckedFrame:
    signed: bytes
    nodes: bytes
    messages: list[bytes]


def _check_frame(data: bytes, time_us: int, gate: Gate) -> _CheckedFrame:
    # (1), (2) a frame, of a version we know: nothing else of it has been looked at
    received = frame.parse(data)
    header = received.header
    _check_addressee(header, time_us, gate)
    _check_publisher(header.publisher, gate)
    # (8) from here on the header is the publisher's word
    if not gate.verify_key(header.publisher).verify(received.to_be_signed, received.signature):
        raise FrameRejected(Reason.SIGNATURE, f"the signature is not {header.publisher}'s")
    # (9)
    ahead = header.time - time_us
    if ahead > MAX_CLOCK_SKEW_US:
        raise FrameRejected(Reason.TIME, f"{header.publisher}'s clock is {ahead / 1e6:.0f} s ahead of the log's")
    # (10)
    if header.schema != gate.topic.schema.digest:
        raise FrameRejected(Reason.SCHEMA, f"{header.publisher} used another schema than topic {gate.topic.name}'s")
    messages = _open_body(received, gate)
    # (12) the events are exactly those that were signed
    nodes = merkle.build(merkle.hash_messages(messages))
    if merkle.root(nodes, len(messages)) != header.root:
        raise FrameRejected(Reason.ROOT, f"the events are not those that {header.publisher} signed")
    return _CheckedFrame(received.signed, nodes, messages)


def _check_addressee(header: Header, time_us: int, gate: Gate) -> None:
    # (3)
    if header.topic != gate.topic.id:
        raise FrameRejected(Reason.TOPIC, f"{header.publisher} published this to another topic")
    # (4) the topic's, or one that ended no longer than the grace before the log took this
    if not gate.topic.epoch_admissible(header.epoch, time_us):
        raise FrameRejected(Reason.EPOCH, f"sealed for epoch {header.epoch}, the topic is in {gate.topic.epoch}")


def _check_publisher(name: str, gate: Gate) -> None:
    # (5)
    entity = gate.state.entities.get(name)
    if entity is None:
        raise FrameRejected(Reason.PUBLISHER, f"nobody named {name!r} is enrolled")
    # (6)
    if entity.revoked:
        raise FrameRejected(Reason.REVOKED, f"{name} was revoked at version {entity.revoked_at_version}")
    # (7)
    if not gate.state.may_publish(gate.topic.name, name):
        raise FrameRejected(Reason.RIGHT, f"{name} may not publish on topic {gate.topic.name}")


def _open_body(received: Frame, gate: Gate) -> list[bytes]:
    # (11)
    header = received.header
    try:
        key = gate.frame_key(header.publisher, header.epoch, header.boot)
        if received.key_bits != key.key_bits:
            raise CannotOpen(f"it says a key of {received.key_bits} bits, the topic's have {key.key_bits}")
        body = key.open(received.nonce, received.commitment, received.ciphertext, received.body_aad)
        return frame.decode_body(body, header.count)
    except (CannotOpen, FrameRejected) as error:
        raise FrameRejected(Reason.SEAL, f"the body does not open: {error.message}") from None


def _claimed_events(data: bytes) -> int:
    """How many events a refused frame says it has; 0 when it cannot even say that."""
    try:
        return frame.parse(data).header.count
    except FrameRejected:
        return 0


# --- check 13: the events ---------------------------------------------------------------------------


def _check_events(
    received: Received, gate: Gate, proofs: list[FrameProof], messages: list[bytes], rejections: list[Rejection]
) -> Admitted:
    counts = np.array([proof.count for proof in proofs], np.int64)
    frame_index = np.repeat(np.arange(len(proofs)), counts)
    row = np.arange(len(messages)) - np.repeat(np.cumsum(counts) - counts, counts)

    schema, decoded = gate.topic.schema, gate.codec.decode(messages)
    # By attribute and rule, never by value: reasons are kept in clear, for whoever may see that something was refused.
    off = {event: _OFF_DOMAIN.format(name) for event, (name, _) in check_domain(schema, decoded.columns).items()}
    refused = {**off, **decoded.bad}
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


def _refused_events(
    partition: int, proofs: list[FrameProof], frame_index: Ints, row: Ints, refused: dict[int, str]
) -> Iterator[Rejection]:
    """The first of each frame one by one, the rest of it as one number: a hostile frame must not flood the ledger."""
    by_frame: dict[int, list[int]] = {}
    for event in sorted(refused):
        by_frame.setdefault(int(frame_index[event]), []).append(event)
    for index, events in by_frame.items():
        named, rest = events[:MAX_NAMED_PER_FRAME], events[MAX_NAMED_PER_FRAME:]
        for event in named:
            where = Position(partition, proofs[index].offset, int(row[event]))
            yield Rejection(where, Reason.EVENT, _shortened(refused[event]), 1)
        if rest:
            where = Position(partition, proofs[index].offset, int(row[rest[0]]))
            yield Rejection(where, Reason.EVENT, f"this and {len(rest) - 1} more of the frame", len(rest))


def _shortened(detail: str) -> str:
    return detail if len(detail) <= MAX_DETAIL else detail[: MAX_DETAIL - 3] + "..."
