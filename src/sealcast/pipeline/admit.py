"""admit: Received -> Ruled -> Admitted. Numbered checks, the first that fails is the reason (`model.rejection.Reason`).

In two halves, because whether a frame was here before is known elsewhere (pipeline/replay.py):

    authenticate   Received -> claims: the checks up to the publisher's signature and clock; or refusals
    replay         claims -> rulings: the publishers' windows and rates, in Spark's state
    admit          Ruled -> Admitted: the ruling, then schema, seal and tree, then every event

A frame stands or falls as a whole up to its seal; then every event stands for itself. What is refused is counted and
kept, and harms nothing else: the frames beside it go on. What nobody signed for never reaches the replay state.

The clock of these checks is the log's, not this process's: a batch that is run again must decide the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from sealcast.errors import Bug, CannotOpen, FrameRejected
from sealcast.model import Position, Reason, Rejection
from sealcast.model.stages import Admitted, FrameProof, Received, Ruled
from sealcast.primitives import merkle
from sealcast.primitives.aead import SealingKey
from sealcast.primitives.sign import VerifyKey
from sealcast.trust.quota import Quota
from sealcast.trust.realm import RealmState, Topic
from sealcast.trust.replay import CLAIM, Bounds, Claims, Verdict
from sealcast.wire import frame
from sealcast.wire.domain import check_domain
from sealcast.wire.frame import Frame, Header
from sealcast.wire.limits import MAX_DETAIL_BYTES
from sealcast.wire.records import RecordCodec

#: What was decided of a frame before the second half.
RULING: Final = np.dtype([("partition", "<i4"), ("offset", "<i8"), ("code", "u1")])
#: A code is a `Verdict` on replay and rate; or this and the number of the check that refused the frame before.
EARLIER: Final = 0x80
#: The number of each check.
CHECK: Final = {reason: number for number, reason in enumerate(Reason, 1)}
_REASON: Final = {number: reason for reason, number in CHECK.items()}
_SAID: Final = {
    Verdict.DUPLICATE: (Reason.REPLAY, "numbers of {0}'s that were here before"),
    Verdict.TOO_OLD: (Reason.REPLAY, "numbers of {0}'s that are behind its window"),
    Verdict.BOOTS: (Reason.REPLAY, "{0} was started too often to keep its numbers apart"),
    Verdict.EVENTS: (Reason.BUDGET, "{0} published more events than it may"),
    Verdict.BYTES: (Reason.BUDGET, "{0} published more bytes than it may"),
}
#: A frame that was refused as a whole has no row.
WHOLE_FRAME: Final = -1
#: Refused events of one frame that are kept each with its reason.
MAX_NAMED_PER_FRAME: Final = 100
#: Characters of a reason, at most four bytes each on the wire.
MAX_DETAIL: Final = MAX_DETAIL_BYTES // 4

_SECOND_US: Final = 1_000_000
_OFF_DOMAIN: Final = "attribute {!r} is outside its domain or off its grid"

Ints = NDArray[np.int64]
Rulings = NDArray[np.void]
Codes = NDArray[np.uint8]


@dataclass(frozen=True, slots=True)
class Gate:
    """What admission knows: the realm at the pinned version, and the broker's keys towards publishers."""

    state: RealmState
    topic: Topic
    codec: RecordCodec
    #: The key that opens what a publisher sealed in an epoch and in one of its boots.
    frame_key: Callable[[str, int, bytes], SealingKey]
    verify_key: Callable[[str], VerifyKey]
    bounds: Bounds
    #: How a boot of a publisher is called in claims (`replay.identify`), remembered.
    identify: Callable[[str, bytes], tuple[int, int, int]]


def bounds_of(topic: Topic) -> Bounds:
    """What the topic's parameters say of its publishers' clocks and rates."""
    given = topic.parameters
    quota = Quota(given.events_per_s, given.bytes_per_s, given.burst_s)
    return Bounds(given.max_skew_s * _SECOND_US, given.stale_after_s * _SECOND_US, quota)


# --- the first half ----------------------------------------------------------------------------------


def authenticate(received: Received, gate: Gate) -> tuple[Claims, Rulings]:
    """Frames that somebody has signed for, as claims on their sequence numbers; and the others, refused."""
    claims, rulings = list[tuple[int, ...]](), list[tuple[int, int, int]]()
    for offset, time_us, data in zip(received.offsets, received.times, received.frames, strict=True):
        try:
            header = _check_signed(data, time_us, gate).header
        except FrameRejected as refused:
            rulings.append((received.partition, offset, EARLIER | CHECK[Reason(refused.reason)]))
            continue
        who = gate.identify(header.publisher, header.boot)
        claims.append((received.partition, offset, time_us, *who, header.sequence, header.count, len(data)))
    return np.array(claims, CLAIM), np.array(rulings, RULING)


def _check_signed(data: bytes, time_us: int, gate: Gate) -> Frame:
    # (1), (2) a frame, of a version we know: nothing else of it has been looked at
    received = frame.parse(data)
    header = received.header
    _check_addressee(header, time_us, gate)
    _check_publisher(header.publisher, gate)
    _check_signature(received, gate)
    _check_time(header, time_us, gate)
    return received


def _check_signature(received: Frame, gate: Gate) -> None:
    # (8) from here on the header is the publisher's word
    if not gate.verify_key(received.header.publisher).verify(received.to_be_signed, received.signature):
        raise _not_signed(received.header)


def _not_signed(header: Header) -> FrameRejected:
    return FrameRejected(Reason.SIGNATURE, f"the signature is not {header.publisher}'s")


def _check_time(header: Header, time_us: int, gate: Gate) -> None:
    # (9) how far apart two copies of a frame can be in the log hangs on it (`replay.Bounds`)
    ahead = header.time - time_us
    if ahead > gate.bounds.max_skew_us:
        raise FrameRejected(Reason.TIME, f"{header.publisher}'s clock is {ahead / 1e6:.0f} s ahead of the log's")
    if -ahead > gate.bounds.stale_after_us:
        raise FrameRejected(Reason.TIME, f"published {-ahead / 1e6:.0f} s before the log took it in: stale")


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


# --- the second half: the frame ----------------------------------------------------------------------


def admit(ruled: Ruled, gate: Gate) -> Admitted:
    """The events of frames that passed, each checked."""
    received = ruled.received
    proofs: list[FrameProof] = []
    messages: list[bytes] = []
    rejections: list[Rejection] = []
    rows = zip(received.offsets, received.times, received.frames, ruled.codes.tolist(), strict=True)
    for offset, time_us, data, code in rows:
        try:
            checked = _check_frame(data, time_us, code, gate)
        except FrameRejected as refused:
            where = Position(received.partition, offset, WHOLE_FRAME)
            reason, detail = Reason(refused.reason), _shortened(refused.message)
            rejections.append(Rejection(where, reason, detail, _claimed_events(data)))
            continue
        proofs.append(FrameProof(offset, checked.signed, len(checked.messages), checked.nodes))
        messages += checked.messages
    return _check_events(received, gate, proofs, messages, rejections)


@dataclass(frozen=True, slots=True)
class _CheckedFrame:
    signed: bytes
    nodes: bytes
    messages: list[bytes]


def _check_frame(data: bytes, time_us: int, code: int, gate: Gate) -> _CheckedFrame:
    if code & EARLIER:
        raise _refused_earlier(data, time_us, _REASON[code & ~EARLIER], gate)
    received = frame.parse(data)
    header = received.header
    # (10), (11)
    if code != Verdict.FRESH:
        reason, text = _SAID[Verdict(code)]
        raise FrameRejected(reason, text.format(header.publisher))
    # (12)
    if header.schema != gate.topic.schema.digest:
        raise FrameRejected(Reason.SCHEMA, f"{header.publisher} used another schema than topic {gate.topic.name}'s")
    messages = _open_body(received, gate)
    # (14) the events are exactly those that were signed
    nodes = merkle.build(merkle.hash_messages(messages))
    if merkle.root(nodes, len(messages)) != header.root:
        raise FrameRejected(Reason.ROOT, f"the events are not those that {header.publisher} signed")
    return _CheckedFrame(received.signed, nodes, messages)


def _refused_earlier(data: bytes, time_us: int, reason: Reason, gate: Gate) -> FrameRejected:
    """The refusal in words. Nobody carries them along: the check that made it is done again, if it is cheap."""
    if reason is Reason.SIGNATURE:
        return _not_signed(frame.parse(data).header)
    try:
        _check_signed(data, time_us, gate)
    except FrameRejected as refused:
        if refused.reason == reason:
            return refused
    raise Bug(f"a frame was refused ({reason}), and looked at again it is not")


def _open_body(received: Frame, gate: Gate) -> list[bytes]:
    # (13)
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


# --- the second half: the events ---------------------------------------------------------------------------


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
