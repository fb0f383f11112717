"""admit: Ruled -> Admitted. The rest of the numbered checks, and the events of the frames that pass them all.

Admission is in two halves, because whether a frame was here before is known elsewhere (pipeline/replay.py):

    authenticate   Received -> claims: checks 1 to 14, up to the publisher's signature and clock; or refusals
    replay         claims -> rulings: 15 and 16, the publishers' windows and rates, in Spark's state
    admit          Ruled -> Admitted: the ruling, then schema, seal and tree, 17 to 19, then every event, 8 and 20

A frame stands or falls as a whole up to its tree; then every event stands for itself: it must be one of its publisher's
template, and of the schema. What is refused is counted and kept, and harms nothing else: the frames beside it go on.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import Final

import numpy as np
from numpy.typing import NDArray

from sealcast.errors import Bug, CannotOpen, FrameRejected
from sealcast.model import Position, Reason, Rejection
from sealcast.model.stages import Admitted, FrameProof, Received, Ruled
from sealcast.pipeline.authenticate import check_one, not_signed
from sealcast.pipeline.gate import EARLIER, REASON, WHOLE_FRAME, Gate
from sealcast.primitives import merkle
from sealcast.primitives.aead import COMMITMENT_BYTES, NONCE_BYTES, SealingKey
from sealcast.primitives.merkle import HASH_BYTES
from sealcast.trust.replay import Verdict
from sealcast.trust.templates import Template
from sealcast.wire import cose, frame, frames
from sealcast.wire.domain import check_domain
from sealcast.wire.frame import BOOT_BYTES, DIGEST_BYTES
from sealcast.wire.frames import Frames
from sealcast.wire.limits import MAX_DETAIL_BYTES
from sealcast.wire.records import Decoded

#: Refused events of one frame that are kept each with its reason.
MAX_NAMED_PER_FRAME: Final = 100
#: Characters of a reason, at most four bytes each on the wire.
MAX_DETAIL: Final = MAX_DETAIL_BYTES // 4
_SAID: Final = {
    Verdict.DUPLICATE: (Reason.REPLAY, "numbers of {0}'s that were here before"),
    Verdict.TOO_OLD: (Reason.REPLAY, "numbers of {0}'s that are behind its window"),
    Verdict.BOOTS: (Reason.REPLAY, "{0} was started too often to keep its numbers apart"),
    Verdict.EVENTS: (Reason.BUDGET, "{0} published more events than it may"),
    Verdict.BYTES: (Reason.BUDGET, "{0} published more bytes than it may"),
}
#: Before the commitment in a body's protected header: a map, the algorithm, the label.
_PROTECTED_BYTES: Final = len(cose.encrypt0_protected(bytes(COMMITMENT_BYTES))) - COMMITMENT_BYTES
_BITS: Final = {number: bits for bits, number in cose.AES_GCM.items()}
_OFF_DOMAIN: Final = "attribute {!r} is outside its domain or off its grid"
_OFF_TEMPLATE: Final = "not one of the events that its publisher's token is for"

Ints = NDArray[np.int64]


def admit(ruled: Ruled, gate: Gate) -> Admitted:
    """The events of frames that passed, each checked."""
    received, parsed = ruled.received, frames.parse_many(ruled.received.frames)
    opened, rejections = _Opening(gate, parsed), list[Rejection]()
    rows = zip(received.offsets, received.times, received.frames, ruled.codes.tolist(), strict=True)
    for row, (offset, time_us, data, code) in enumerate(rows):
        try:
            if code:
                raise _refused(data, time_us, code, gate)
            opened.frame(row, offset, data)
        except FrameRejected as refused:
            where = Position(received.partition, offset, WHOLE_FRAME)
            detail, events = _shortened(refused.message), int(parsed.count[row] if parsed.good[row] else 0)
            rejections.append(Rejection(where, Reason(refused.reason), detail, events))
    return _check_events(received, gate, opened, rejections)


# --- the frame ------------------------------------------------------------------------------------------


def _refused(data: bytes, time_us: int, code: int, gate: Gate) -> FrameRejected:
    """What was ruled, in words. Nobody carries them along: the check that failed is done again, if it is cheap."""
    if not code & EARLIER:
        reason, text = _SAID[Verdict(code)]  # (15), (16)
        return FrameRejected(reason, text.format(frame.parse(data).header.publisher))
    reason = REASON[code & ~EARLIER]
    if reason is Reason.SIGNATURE:
        return not_signed(frame.parse(data).header)
    try:
        check_one(data, time_us, gate)
    except FrameRejected as refused:
        if refused.reason == reason:
            return refused
    raise Bug(f"a frame was refused ({reason}), and looked at again it is not")


class _Boot:
    """What the frames of one start of a publisher in one epoch have in common."""

    __slots__ = ("epoch", "key", "publisher", "template", "token")

    def __init__(self, publisher: str, epoch: int, key: SealingKey) -> None:
        self.publisher = publisher
        self.epoch = epoch
        self.key = key
        #: The token of its last frame, and what that is for.
        self.token: bytes | None = None
        self.template: Template


class _Opening:
    """Checks 17 to 19 for the frames of a batch, that they open and hold what was signed; and what they held."""

    def __init__(self, gate: Gate, parsed: Frames) -> None:
        self.proofs: list[FrameProof] = []
        #: What the events of each frame must be.
        self.templates: list[Template] = []
        self.messages: list[bytes] = []
        #: The same messages in as few pieces as there are, and how long they are: a number a frame of one.
        self._joined: list[bytes] = []
        self._lengths: list[int | Ints] = []
        self._gate = gate
        self._schema = gate.topic.schema.digest
        self._boots: dict[bytes, _Boot] = {}
        columns = (
            parsed.header[0],
            parsed.sender_end,
            parsed.epoch,
            parsed.schema,
            parsed.count,
            parsed.root,
            parsed.commitment,
            parsed.nonce,
            parsed.ciphertext,
            parsed.algorithm,
        )
        self._fields = _by_row(*columns)
        self._spans = _by_row(*parsed.signed, *parsed.token)

    def frame(self, row: int, offset: int, data: bytes) -> None:
        """One more; FrameRejected, and nothing was taken, when it fails a check."""
        start, sender_end, epoch, schema, count, root, commitment, nonce, ciphertext, algorithm = self._fields[row]
        signed_start, signed_end, token_start, token_end = self._spans[row]
        boot = self._boot(data[start:sender_end], epoch)
        # (17)
        if data[schema : schema + DIGEST_BYTES] != self._schema:
            topic = self._gate.topic.name
            raise FrameRejected(Reason.SCHEMA, f"{boot.publisher} used another schema than topic {topic}'s")
        signed = data[signed_start:signed_end]
        # (18)
        try:
            if _BITS[algorithm] != boot.key.key_bits:
                raise CannotOpen(f"it says a key of {_BITS[algorithm]} bits, the topic's have {boot.key.key_bits}")
            committed = commitment + COMMITMENT_BYTES
            body = boot.key.open(
                data[nonce : nonce + NONCE_BYTES],
                data[commitment:committed],
                data[ciphertext:],
                frames.body_aad(data[commitment - _PROTECTED_BYTES : committed], signed),
            )
            messages, joined, lengths = _messages(body, count)
        except (CannotOpen, FrameRejected) as error:
            raise FrameRejected(Reason.SEAL, f"the body does not open: {error.message}") from None
        # (19) the events are exactly those that were signed
        nodes = _tree(messages)
        if nodes[-HASH_BYTES:] != data[root : root + HASH_BYTES]:
            raise FrameRejected(Reason.ROOT, f"the events are not those that {boot.publisher} signed")
        token = data[token_start:token_end]
        if token != boot.token:
            boot.token, boot.template = token, self._gate.template(token)
        self.proofs.append(FrameProof(offset, signed, count, nodes))
        self.templates.append(boot.template)
        self.messages += messages
        self._joined.append(joined)
        self._lengths.append(lengths)

    def decoded(self) -> Decoded:
        """The events of all frames, as columns."""
        if len(self.messages) == len(self.proofs):
            lengths = np.array(self._lengths, np.int64)
        else:
            lengths = np.concatenate([np.atleast_1d(part) for part in self._lengths])
        return self._gate.codec.decode_joined(b"".join(self._joined), lengths)

    def _boot(self, sender: bytes, epoch: int) -> _Boot:
        found = self._boots.get(sender)
        if found is None or found.epoch != epoch:
            publisher = frames.publisher_of(sender)
            key = self._gate.frame_key(publisher, epoch, sender[-BOOT_BYTES:])
            found = self._boots[sender] = _Boot(publisher, epoch, key)
        return found


def _messages(body: bytes, count: int) -> tuple[list[bytes], bytes, int | Ints]:
    """The messages of an opened body, one by one and in one piece, and how long they are."""
    if count == 1:
        message = frame.only_message(body)
        return [message], message, len(message)
    split = frame.split_body(body, count)
    return split.messages(), split.joined, split.lengths


def _by_row(*columns: Ints) -> list[tuple[int, ...]]:
    return list(zip(*(column.tolist() for column in columns), strict=True))


def _tree(messages: list[bytes]) -> bytes:
    if len(messages) == 1:
        return hashlib.sha256(messages[0]).digest()  # a tree of one leaf is that leaf
    return merkle.build(merkle.hash_messages(messages))


# --- the events ---------------------------------------------------------------------------


def _check_events(received: Received, gate: Gate, opened: _Opening, rejections: list[Rejection]) -> Admitted:
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
            yield Rejection(Position(partition, proofs[index].offset, int(row[event])), reason, _shortened(text), 1)
        for reason in (Reason.TEMPLATE, Reason.EVENT):
            more = [event for event in rest if refused[event][0] is reason]
            if more:
                where = Position(partition, proofs[index].offset, int(row[more[0]]))
                yield Rejection(where, reason, f"this and {len(more) - 1} more of the frame", len(more))


def _shortened(detail: str) -> str:
    return detail if len(detail) <= MAX_DETAIL else detail[: MAX_DETAIL - 3] + "..."
