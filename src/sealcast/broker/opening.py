"""Opening frames: what was ruled of them, in words; and checks 17 to 19, that they open and hold what was signed.

This is the part of admission that every protection shares (`open_frames`), together with how refused events are named
(`refused_events`). What the messages of a frame are, and whether they are events, is the protection's to say.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from sealcast.broker.authenticate import check_one, not_signed
from sealcast.broker.gate import EARLIER, REASON, WHOLE_FRAME, Gate
from sealcast.broker.replay import ReplayVerdict
from sealcast.errors import Bug, CannotOpen, FilterRejected, FrameRejected
from sealcast.filters.readers import predicate
from sealcast.model import Position, Reason, Rejection
from sealcast.model.stages import FrameProof, Ruled
from sealcast.primitives import merkle
from sealcast.primitives.aead import COMMITMENT_BYTES, NONCE_BYTES, SealingKey
from sealcast.primitives.merkle import HASH_BYTES
from sealcast.trust.realm.templates import Template
from sealcast.wire import cose, frame, frames
from sealcast.wire.frame import BOOT_BYTES, DIGEST_BYTES
from sealcast.wire.frames import Frames
from sealcast.wire.lifting import Lift
from sealcast.wire.limits import MAX_DETAIL_BYTES
from sealcast.wire.records import Decoded

#: Refused events of one frame that are kept each with its reason.
MAX_NAMED_PER_FRAME: Final = 100
#: Characters of a reason, at most four bytes each on the wire.
MAX_DETAIL: Final = MAX_DETAIL_BYTES // 4
_SAID: Final = {
    ReplayVerdict.DUPLICATE: (Reason.REPLAY, "numbers of {0}'s that were here before"),
    ReplayVerdict.TOO_OLD: (Reason.REPLAY, "numbers of {0}'s that are behind its window"),
    ReplayVerdict.BOOTS: (Reason.REPLAY, "{0} was started too often to keep its numbers apart"),
    ReplayVerdict.EVENTS: (Reason.BUDGET, "{0} published more events than it may"),
    ReplayVerdict.BYTES: (Reason.BUDGET, "{0} published more bytes than it may"),
}
#: Before the commitment in a body's protected header: a map, the algorithm, the label.
_PROTECTED_BYTES: Final = len(cose.encrypt0_protected(bytes(COMMITMENT_BYTES))) - COMMITMENT_BYTES
_BITS: Final = {number: bits for bits, number in cose.AES_GCM.items()}

Ints = NDArray[np.int64]
#: Raises FrameRejected for a frame that opens, and that a protection still does not take: its token's template, and how
#: many messages it has.
Check = Callable[[Template, int], None]


def open_frames(ruled: Ruled, gate: Gate, check: Check | None = None) -> Opening:
    """Every frame that passed the first checks, opened; every other one refused, with the reason."""
    received, parsed = ruled.received, frames.parse_many(ruled.received.frames)
    opened, per_event = Opening(gate, parsed, check), gate.topic.protection.messages_per_event
    rows = zip(received.offsets, received.times, received.frames, ruled.codes.tolist(), strict=True)
    for row, (offset, time_us, data, code) in enumerate(rows):
        try:
            if code:
                raise refused(data, time_us, code, gate)
            opened.frame(row, offset, data)
        except FrameRejected as error:
            where = Position(received.partition, offset, WHOLE_FRAME)
            events = int(parsed.fields.count[row]) // per_event if parsed.good[row] else 0
            opened.rejections.append(Rejection(where, Reason(error.reason), shortened(error.message), events))
    return opened


def refused(data: bytes, time_us: int, code: int, gate: Gate) -> FrameRejected:
    """What was ruled, in words. Nobody carries them along: the check that failed is done again, if it is cheap."""
    if not code & EARLIER:
        reason, text = _SAID[ReplayVerdict(code)]  # (15), (16)
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


class Opening:
    """Checks 17 to 19 for the frames of a batch, that they open and hold what was signed; and what they held."""

    def __init__(self, gate: Gate, parsed: Frames, check: Check | None = None) -> None:
        #: Frames that were refused as a whole.
        self.rejections: list[Rejection] = []
        self.proofs: list[FrameProof] = []
        #: What the events of each frame must be.
        self.templates: list[Template] = []
        #: By number of the frame: who may open its events, where its publisher narrowed that.
        self.readers: dict[int, str] = {}
        #: Contexts of the traces that publishers want these frames to be in.
        self.traces: list[bytes] = []
        self.messages: list[bytes] = []
        #: The same messages in as few pieces as there are, and how long they are: a number a frame of one.
        self._joined: list[bytes | memoryview] = []
        self._lengths: list[int | Ints] = []
        self._gate = gate
        self._check = check
        self._lifts = gate.lifts
        #: Where messages are of an earlier version of the schema: by frame, how they are read.
        self._lifted: dict[int, Lift] = {}
        self._boots: dict[bytes, _Boot] = {}
        columns = (
            parsed.header[0],
            parsed.fields.sender_end,
            parsed.fields.epoch,
            parsed.fields.schema,
            parsed.fields.count,
            parsed.fields.root,
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
        lift = self._lifts.get(data[schema : schema + DIGEST_BYTES])
        if lift is None:
            topic = self._gate.topic.name
            raise FrameRejected(Reason.SCHEMA, f"{boot.publisher} used another schema than topic {topic}'s")
        signed = data[signed_start:signed_end]
        # (18)
        try:
            if _BITS[algorithm] != boot.key.key_bits:
                raise CannotOpen(f"it says a key of {_BITS[algorithm]} bits, the topic's have {boot.key.key_bits}")
            committed = commitment + COMMITMENT_BYTES
            # A long body is not copied to be opened; a short one is copied in less time than a view of it takes.
            sealed = data[ciphertext:] if count == 1 else memoryview(data)[ciphertext:]
            body = boot.key.open(
                data[nonce : nonce + NONCE_BYTES],
                data[commitment:committed],
                sealed,
                frames.body_aad(data[commitment - _PROTECTED_BYTES : committed], signed),
            )
            readers, trace = "", b""
            if body[:1] in frame.WITH_MORE:
                body, readers, trace = frame.bare_body(body)
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
        if self._check is not None:
            self._check(boot.template, count)
        if readers:
            self.readers[len(self.proofs)] = self._narrowing(readers)
        if trace:
            self.traces.append(trace)
        if lift.added:
            self._lifted[len(self.proofs)] = lift
        self.proofs.append(FrameProof(offset, signed, count, nodes))
        self.templates.append(boot.template)
        self.messages += messages
        self._joined.append(joined)
        self._lengths.append(lengths)

    def _narrowing(self, readers: str) -> str:
        """A predicate that brokers of the topic can go by; what they cannot is refused, not left out."""
        protection = self._gate.topic.protection
        if "readers" in protection.lacks:
            raise FrameRejected(Reason.EVENT, f"it narrows who may open its events: {protection.lacks['readers']}")
        try:
            predicate(readers)
        except FilterRejected as error:
            raise FrameRejected(Reason.EVENT, f"its predicate over readers is none: {error.message}") from None
        return readers

    def decoded(self) -> Decoded:
        """The events of all frames, as columns."""
        if not self._lifted:
            return self._gate.codec.decode_joined(b"".join(self._joined), self.lengths())
        messages, added = list(self.messages), np.zeros(len(self.messages), np.int64)
        frame_index, _ = self.placed()
        for number, lift in self._lifted.items():
            for event in np.flatnonzero(frame_index == number).tolist():
                messages[event], added[event] = lift(messages[event]), lift.added
        found = self._gate.codec.decode(messages)
        # Of the messages as they are: payloads are at their end. What is none has none.
        return replace(found, payload_start=np.maximum(found.payload_start - added, 0))

    def lengths(self) -> Ints:
        """The length of each message."""
        if len(self.messages) == len(self.proofs):
            return np.array(self._lengths, np.int64)
        return np.concatenate([np.atleast_1d(part) for part in self._lengths])

    def placed(self, per_event: int = 1) -> tuple[Ints, Ints]:
        """Says of each event in which frame it is, and which event of that frame it is."""
        counts = np.array([proof.count // per_event for proof in self.proofs], np.int64)
        frame_index = np.repeat(np.arange(len(self.proofs)), counts)
        return frame_index, np.arange(frame_index.size) - np.repeat(np.cumsum(counts) - counts, counts)

    def _boot(self, sender: bytes, epoch: int) -> _Boot:
        found = self._boots.get(sender)
        if found is None or found.epoch != epoch:
            publisher = frames.publisher_of(sender)
            key = self._gate.frame_key(publisher, epoch, sender[-BOOT_BYTES:])
            found = self._boots[sender] = _Boot(publisher, epoch, key)
        return found


def _messages(body: bytes, count: int) -> tuple[list[bytes], bytes | memoryview, int | Ints]:
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


def shortened(detail: str) -> str:
    return detail if len(detail) <= MAX_DETAIL else detail[: MAX_DETAIL - 3] + "..."


def refused_events(
    partition: int,
    proofs: list[FrameProof],
    frame_index: Ints,
    row: Ints,
    refused: Mapping[int, tuple[Reason, str]],
) -> Iterator[Rejection]:
    """Of each frame the first events one by one, the rest as one number for each reason: a hostile frame must not flood
    the ledger."""
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
