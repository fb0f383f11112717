"""Opening frames: what was ruled of them, in words; and checks 17 to 19, that they open and hold what was signed.

This is the part of admission that every protection shares (`open_frames`), together with how refused events are named
(`refused_events`). What the messages of a frame are, and whether they are events, is the protection's to say.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from hashlib import sha256
from typing import Final, NamedTuple

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
from sealcast.wire.frame import BOOT_BYTES, DIGEST_BYTES, JoinedMessages
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
    ReplayVerdict.ELSEWHERE: (Reason.REPLAY, "a copy: frames of {0}'s come in another partition"),
}
_BITS: Final = {number: bits for bits, number in cose.AES_GCM.items()}

Ints = NDArray[np.int64]
#: Raises FrameRejected for a frame that opens, and that a protection still does not take: its token's template, and how
#: many messages it has.
Check = Callable[[Template, int], None]


def open_frames(ruled: Ruled, gate: Gate, check: Check | None = None) -> Opening:
    """Every frame that passed the first checks, opened; every other one refused, with the reason."""
    received, parsed = ruled.received, frames.parse_many(ruled.received.frames)
    opened, per_event = Opening(gate, check), gate.topic.protection.messages_per_event
    passed = np.ones(len(received.frames), np.bool_)
    rows = zip(received.frames, ruled.codes.tolist(), *_places(parsed), strict=True)
    for row, (data, code, head, body) in enumerate(rows):
        try:
            if code:
                raise refused(data, received.times[row], code, gate)
            opened.frame(data, head, body)
        except FrameRejected as error:
            passed[row] = False
            where = Position(received.partition, received.offsets[row], WHOLE_FRAME)
            events = int(parsed.fields.count[row]) // per_event if parsed.good[row] else 0
            opened.rejections.append(Rejection(where, Reason(error.reason), shortened(error.message), events))
    opened.prove(np.array(received.offsets, np.int64)[passed], parsed.fields.count[passed])
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

    __slots__ = ("algorithm", "before_signed", "epoch", "key", "lift", "publisher", "schema", "template", "token")

    def __init__(self, publisher: str, epoch: int, key: SealingKey) -> None:
        self.publisher = publisher
        self.epoch = epoch
        self.key = key
        self.algorithm = cose.AES_GCM[key.key_bits]
        self.before_signed = frames.before_signed(key.commitment, key.key_bits)
        #: The token of its last frame, and what that is for; and the schema, and how that is read.
        self.token: bytes | None = None
        self.template: Template
        self.schema: bytes | None = None
        self.lift: Lift


class Opening:
    """Checks 17 to 19 for the frames of a batch, that they open and hold what was signed; and what they held."""

    def __init__(self, gate: Gate, check: Check | None = None) -> None:
        #: Frames that were refused as a whole.
        self.rejections: list[Rejection] = []
        self.proofs: list[FrameProof] = []
        #: What the events of each frame must be.
        self.templates: list[Template] = []
        #: By number of the frame: who may open its events, where its publisher narrowed that.
        self.readers: dict[int, str] = {}
        #: Contexts of the traces that publishers want these frames to be in.
        self.traces: list[bytes] = []
        #: Of each frame: where it is in the log.
        self.offsets: Ints
        #: And how many messages it has, what proves it, and all its messages in one piece.
        self._counts: Ints
        self._signed: list[bytes] = []
        self._nodes: list[bytes] = []
        self._pieces: list[bytes | memoryview] = []
        #: By number of the frame, where it has several messages: how long they are.
        self._lengths: dict[int, Ints] = {}
        self._gate = gate
        self._check = check
        #: Where messages are of an earlier version of the schema: by frame, how they are read.
        self._lifted: dict[int, Lift] = {}
        self._boots: dict[bytes, _Boot] = {}

    def frame(self, data: bytes, head: tuple[int, ...], body: tuple[int, ...]) -> None:
        """One more, with where its parts stand (`_places`); FrameRejected, and nothing was taken, when it fails a
        check."""
        token, token_end, signed, signed_end, begin, sender_end, epoch, schema, root, count = head
        algorithm, commitment, nonce, ciphertext = body
        sender = data[begin:sender_end]
        boot = self._boots.get(sender)
        if boot is None or boot.epoch != epoch:
            boot = self._boot(sender, epoch)
        # (17)
        if data[schema : schema + DIGEST_BYTES] != boot.schema:
            self._read_as(boot, data[schema : schema + DIGEST_BYTES])
        # (18)
        try:
            if algorithm != boot.algorithm:
                raise CannotOpen(f"it says a key of {_BITS[algorithm]} bits, the topic's have {boot.key.key_bits}")
            opened = boot.key.open(
                data[nonce : nonce + NONCE_BYTES],
                data[commitment : commitment + COMMITMENT_BYTES],
                # A long body is not copied to be opened; a short one is copied in less time than a view of it takes.
                data[ciphertext:] if count == 1 else memoryview(data)[ciphertext:],
                boot.before_signed + data[token_end:signed_end],
            )
            message = frame.sole_message(opened) if count == 1 else b""
            content = None if message else _content(opened, count)
        except (CannotOpen, FrameRejected) as error:
            raise FrameRejected(Reason.SEAL, f"the body does not open: {error.message}") from None
        # (19) the events are exactly those that were signed
        nodes = sha256(message).digest() if content is None else content.nodes
        if nodes[-HASH_BYTES:] != data[root : root + HASH_BYTES]:
            raise FrameRejected(Reason.ROOT, f"the events are not those that {boot.publisher} signed")
        if data[token:token_end] != boot.token:
            boot.token = data[token:token_end]
            boot.template = self._gate.template(boot.token)
        if self._check is not None:
            self._check(boot.template, count)
        if content is None:
            self._pieces.append(message)
        else:
            self._take(content)
        if boot.lift.added:
            self._lifted[len(self._nodes)] = boot.lift
        self.templates.append(boot.template)
        self._signed.append(data[signed:signed_end])
        self._nodes.append(nodes)

    def prove(self, offsets: Ints, counts: Ints) -> None:
        """Makes the proofs of the frames that were taken: where they are in the log, and how many messages they
        have."""
        self.offsets, self._counts = offsets, counts
        self.proofs = list(map(FrameProof, offsets.tolist(), self._signed, counts.tolist(), self._nodes))

    def _boot(self, sender: bytes, epoch: int) -> _Boot:
        publisher = frames.publisher_of(sender)
        key = self._gate.frame_key(publisher, epoch, sender[-BOOT_BYTES:])
        made = self._boots[sender] = _Boot(publisher, epoch, key)
        return made

    def _read_as(self, boot: _Boot, schema: bytes) -> None:
        """Remembers how the boot's messages are read from here on."""
        lift = self._gate.lifts.get(schema)
        if lift is None:
            topic = self._gate.topic.name
            raise FrameRejected(Reason.SCHEMA, f"{boot.publisher} used another schema than topic {topic}'s")
        boot.schema, boot.lift = schema, lift

    def _take(self, content: _Content) -> None:
        """Takes in what a body held that has several messages, or more than messages."""
        if content.readers:
            self.readers[len(self._nodes)] = self._narrowing(content.readers)
        if content.trace:
            self.traces.append(content.trace)
        self._lengths[len(self._nodes)] = content.lengths
        self._pieces.append(content.joined)

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

    @cached_property
    def joined(self) -> bytes:
        """The messages of all frames in one piece."""
        return b"".join(self._pieces)

    @cached_property
    def lengths(self) -> Ints:
        """The length of each message."""
        if not self._lengths:
            return np.fromiter(map(len, self._pieces), np.int64, len(self._pieces))
        each = enumerate(self._pieces)
        return np.concatenate([self._lengths.get(number, np.array([len(piece)])) for number, piece in each])

    @cached_property
    def messages(self) -> Sequence[bytes]:
        """The messages of all frames, one by one."""
        return JoinedMessages(self.joined, self.lengths) if self._lengths else list(map(bytes, self._pieces))

    def decoded(self) -> Decoded:
        """The events of all frames, as columns."""
        if not self._lifted:
            return self._gate.codec.decode_joined(self.joined, self.lengths)
        messages, added = list(self.messages), np.zeros(len(self.messages), np.int64)
        frame_index, _ = self.placed()
        for number, lift in self._lifted.items():
            for event in np.flatnonzero(frame_index == number).tolist():
                messages[event], added[event] = lift(messages[event]), lift.added
        found = self._gate.codec.decode(messages)
        # Of the messages as they are: payloads are at their end. What is none has none.
        return replace(found, payload_start=np.maximum(found.payload_start - added, 0))

    def placed(self, per_event: int = 1) -> tuple[Ints, Ints]:
        """Says of each event in which frame it is, and which event of that frame it is."""
        counts = self._counts // per_event
        frame_index = np.repeat(np.arange(counts.size), counts)
        return frame_index, np.arange(frame_index.size) - np.repeat(np.cumsum(counts) - counts, counts)


class _Content(NamedTuple):
    """What a body held: its messages in one piece, how long they are, the tree over them, and what else there was."""

    joined: memoryview
    lengths: Ints
    nodes: bytes
    readers: str
    trace: bytes


def _content(body: bytes, count: int) -> _Content:
    body, readers, trace = frame.bare_body(body)
    split = frame.split_body(body, count)
    nodes = merkle.build(merkle.hash_messages(split.messages()))
    return _Content(split.joined, split.lengths, nodes, readers, trace)


def _places(parsed: Frames) -> tuple[zip[tuple[int, ...]], zip[tuple[int, ...]]]:
    """Where the parts of each frame stand, and its numbers: those of its head, and those of its body."""
    fields = parsed.fields
    sender = (parsed.header[0], fields.sender_end, fields.epoch, fields.schema, fields.root, fields.count)
    return (
        _by_row(*parsed.token, *parsed.signed, *sender),
        _by_row(parsed.algorithm, parsed.commitment, parsed.nonce, parsed.ciphertext),
    )


def _by_row(*columns: Ints) -> zip[tuple[int, ...]]:
    return zip(*(column.tolist() for column in columns), strict=True)


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
