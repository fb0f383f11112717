"""authenticate: Received -> claims. Checks 1 to 14 of admission: is it a frame, for us, from somebody who may, now?

`authenticate` does it for a batch, `check_one` for one frame, in words; the tests hold them together. What nobody has
signed for goes no further: only claims reach the replay windows, and a claim costs its sender a signature.

A frame is judged at the time when it came. That lies between two looks of the broker's, which are pinned: no stranger's
clock decides, and a batch that is run again decides the same.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import numpy as np
from numpy.typing import NDArray

from sealcast.broker.gate import CHECK, EARLIER, RULING, Gate, Rulings
from sealcast.broker.replay import CLAIM, Claims
from sealcast.errors import Bug, FrameRejected
from sealcast.model.rejection import Reason
from sealcast.model.stages import Received
from sealcast.primitives.sign import SIGNATURE_BYTES, VerifyKey, signed_each
from sealcast.wire import frame, frames
from sealcast.wire.frame import BOOT_BYTES, DIGEST_BYTES, Frame, Header
from sealcast.wire.frames import Frames

_SECOND_US: Final = 1_000_000
_FOR_EVER: Final = 1 << 62

Ints = NDArray[np.int64]
Numbers = NDArray[np.uint8]
#: `hi`, `lo` and `publisher` of each frame's claim.
Who = NDArray[np.uint64]


def authenticate(received: Received, gate: Gate) -> tuple[Claims, Rulings]:
    """Frames that somebody has signed for, as claims on their sequence numbers; and the others, refused."""
    parsed = frames.parse_many(received.frames)
    times = np.array(received.times, np.int64)
    refused = np.zeros(len(received.frames), np.uint8)
    for row in np.flatnonzero(~parsed.good).tolist():
        refused[row] = CHECK[_unreadable(received.frames[row])]
    who = _check_senders(received, parsed, gate, refused)
    late = _untimely(parsed.fields.time, times, gate) & (refused == 0)
    refused[late] = CHECK[Reason.TIME]
    return _claims(received, parsed, times, who, refused == 0, gate), _rulings(received, refused)


def assume(received: Received, gate: Gate) -> Claims:
    """What frames of this topic would claim if their publishers have signed them: nothing of that is checked."""
    parsed = frames.parse_many(received.frames)
    senders, number_of, ours = dict[bytes, _Sender](), [0] * len(received.frames), np.zeros(len(parsed.good), np.bool_)
    for row, begin, end in _by_row(np.flatnonzero(parsed.good), parsed.header[0], parsed.fields.sender_end):
        sender = _sender(received.frames[row][begin:end], senders, gate)
        number_of[row], ours[row] = sender.number, sender.ours
    return _claims(received, parsed, np.array(received.times, np.int64), _who(senders)[number_of], ours, gate)


def check_one(data: bytes, time_us: int, gate: Gate) -> Frame:
    """Authenticates one frame; raises FrameRejected with the first check that fails, in words."""
    # (1), (2) a frame, of a version we know: nothing else of it has been looked at
    received = frame.parse(data)
    header = received.header
    # (3)
    if header.topic != gate.topic.id:
        raise FrameRejected(Reason.TOPIC, f"{header.publisher} published this to another topic")
    # (4) to (11)
    refusal = gate.refuses_publisher(header.publisher, received.token, header.token, time_us)
    if refusal is not None and refusal.reason is not Reason.EPOCH:
        raise FrameRejected(*refusal)
    # (12)
    refusal = gate.refuses_epoch(header.epoch, time_us) or refusal
    if refusal is not None:
        raise FrameRejected(*refusal)
    # (13) from here on the header is the publisher's word
    if not gate.verify_key(header.publisher).verify(received.to_be_signed, received.signature):
        raise not_signed(header)
    # (14) how far apart two copies of a frame can come hangs on it (`ReplayBounds`)
    _check_time(header, time_us, gate)
    return received


def not_signed(header: Header) -> FrameRejected:
    return FrameRejected(Reason.SIGNATURE, f"the signature is not {header.publisher}'s")


def _check_time(header: Header, time_us: int, gate: Gate) -> None:
    ahead = header.time - time_us
    if ahead > gate.bounds.max_skew_us:
        raise FrameRejected(Reason.TIME, f"{header.publisher}'s clock is {ahead / 1e6:.0f} s ahead of the broker's")
    if -ahead > gate.bounds.stale_after_us:
        raise FrameRejected(Reason.TIME, f"published {-ahead / 1e6:.0f} s before it came: stale")


# --- a batch ------------------------------------------------------------------------------------------


class _Sender:
    """Topic, publisher and boot: what the frames of one start of a publisher have in common."""

    __slots__ = ("from_us", "key", "named", "number", "ours", "publisher", "second", "token", "until_us", "who")

    def __init__(self, name: bytes, number: int, gate: Gate) -> None:
        self.publisher = frames.publisher_of(name)
        self.ours = frames.topic_of(name) == gate.topic.id
        known = self.publisher in gate.state.entities
        self.key: VerifyKey | None = gate.verify_key(self.publisher) if known else None
        #: Its place among the senders of the batch, and how claims call it.
        self.number = number
        self.who = gate.identify(self.publisher, name[-BOOT_BYTES:])
        #: When it may publish, by the realm's word.
        term = gate.term(self.publisher)
        self.from_us, self.until_us = (0, 0) if term is None else (term.not_before_us, term.until_us or _FOR_EVER)
        #: The token that passed last: how the header named it, in which second, and what came along.
        self.named = self.token = b""
        self.second = -1


def _unreadable(data: bytes) -> Reason:
    try:
        frame.parse(data)
    except FrameRejected as refused:
        return Reason(refused.reason)
    raise Bug("a frame is read one by one and not in a batch: the two readers disagree")


def _check_senders(received: Received, parsed: Frames, gate: Gate, refused: Numbers) -> Who:
    """Checks 3 to 13; what the frames of a sender have in common is looked at once. Who each is."""
    senders = dict[bytes, _Sender]()
    number_of = [0] * len(received.frames)
    current, given, when = gate.topic.epoch, received.frames, received.times
    rows, keys, signed = list[int](), list[VerifyKey](), list[bytes]()
    for row, string, header, sender_end, end, token, token_end, digest, signature, epoch in _rows(parsed):
        data, time_us = given[row], when[row]
        sender = _sender(data[header:sender_end], senders, gate)
        number_of[row] = sender.number
        named, came, second = data[digest : digest + DIGEST_BYTES], data[token:token_end], time_us // _SECOND_US
        usual = named == sender.named and came == sender.token and second == sender.second and epoch == current
        if not usual or not sender.from_us <= time_us < sender.until_us:
            # The first of its kind, or something is wrong with it.
            refused[row] = _number(sender, came, named, time_us, epoch, gate)
            if refused[row]:
                continue
            sender.named, sender.token, sender.second = named, came, second
        if sender.key is None:
            refused[row] = CHECK[Reason.SIGNATURE]
            continue
        rows.append(row)
        keys.append(sender.key)
        signed.append(data[signature : signature + SIGNATURE_BYTES] + frames.BEFORE_HEADER + data[string:end])
    # (13) from here on the header is the publisher's word
    for row, good in zip(rows, signed_each(keys, signed), strict=True):
        if not good:
            refused[row] = CHECK[Reason.SIGNATURE]
    return _who(senders)[number_of]


def _sender(name: bytes, senders: dict[bytes, _Sender], gate: Gate) -> _Sender:
    found = senders.get(name)
    if found is None:
        found = senders[name] = _Sender(name, len(senders), gate)
    return found


def _who(senders: Mapping[bytes, _Sender]) -> Who:
    return np.array([sender.who for sender in senders.values()] or [(0, 0, 0)], np.uint64)


def _number(sender: _Sender, token: bytes, named: bytes, time_us: int, epoch: int, gate: Gate) -> int:
    """The number of the first check, 3 to 12, that a frame fails; 0 when it fails none of them."""
    if not sender.ours:
        return CHECK[Reason.TOPIC]
    refusal = gate.refuses_publisher(sender.publisher, token, named, time_us) or gate.refuses_epoch(epoch, time_us)
    return 0 if refusal is None else CHECK[refusal.reason]


def _rows(parsed: Frames) -> zip[tuple[int, ...]]:
    return _by_row(
        np.flatnonzero(parsed.good),
        parsed.header_string,
        parsed.header[0],
        parsed.fields.sender_end,
        parsed.header[1],
        *parsed.token,
        parsed.fields.token_digest,
        parsed.signature,
        parsed.fields.epoch,
    )


def _by_row(rows: Ints, *columns: Ints) -> zip[tuple[int, ...]]:
    """Of each of these rows: its number, and what stands there."""
    return zip(rows.tolist(), *(column[rows].tolist() for column in columns), strict=True)


def _untimely(claimed: Ints, times: Ints, gate: Gate) -> NDArray[np.bool_]:
    ahead = claimed - times
    late: NDArray[np.bool_] = (ahead > gate.bounds.max_skew_us) | (-ahead > gate.bounds.stale_after_us)
    return late


def _claims(
    received: Received, parsed: Frames, times: Ints, who: Who, claimed: NDArray[np.bool_], gate: Gate
) -> Claims:
    kept = np.flatnonzero(claimed)
    claims = np.zeros(kept.size, CLAIM)
    claims["partition"] = received.partition
    claims["offset"] = np.array(received.offsets, np.int64)[kept]
    claims["time"] = times[kept]
    claims["hi"], claims["lo"], claims["publisher"] = who[kept].T
    each = gate.topic.partitions
    claims["elsewhere"] = claims["publisher"] % np.uint64(each) != received.partition % each
    claims["sequence"], claims["count"] = parsed.fields.sequence[kept], parsed.fields.count[kept]
    claims["size"] = parsed.size[kept]
    return claims


def _rulings(received: Received, refused: Numbers) -> Rulings:
    rows = np.flatnonzero(refused)
    rulings = np.zeros(rows.size, RULING)
    rulings["partition"] = received.partition
    rulings["offset"] = np.array(received.offsets, np.int64)[rows]
    rulings["code"] = EARLIER | refused[rows]
    return rulings
