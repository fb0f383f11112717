"""authenticate: Received -> claims. Checks 1 to 14 of admission: is it a frame, for us, from somebody who may, now?

`authenticate` does it for a batch, `check_one` for one frame, in words; the tests hold them together. What nobody has
signed for goes no further: only claims reach the replay state, and a claim costs its sender a signature.

The clock of these checks is the log's, not this process's: a batch that is run again must decide the same.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from sealcast.errors import Bug, FrameRejected
from sealcast.model.rejection import Reason
from sealcast.model.stages import Received
from sealcast.pipeline.gate import CHECK, EARLIER, MAX_REMEMBERED, RULING, Gate, Rulings
from sealcast.primitives.sign import SIGNATURE_BYTES, VerifyKey
from sealcast.trust.replay import CLAIM, Claims
from sealcast.wire import frame, frames
from sealcast.wire.frame import BOOT_BYTES, DIGEST_BYTES, Frame, Header
from sealcast.wire.frames import Frames

Ints = NDArray[np.int64]
Numbers = NDArray[np.uint8]


def authenticate(received: Received, gate: Gate) -> tuple[Claims, Rulings]:
    """Frames that somebody has signed for, as claims on their sequence numbers; and the others, refused."""
    parsed = frames.parse_many(received.frames)
    times = np.array(received.times, np.int64)
    refused = np.zeros(len(received.frames), np.uint8)
    for row in np.flatnonzero(~parsed.good).tolist():
        refused[row] = CHECK[_unreadable(received.frames[row])]
    who = _check_senders(received, parsed, times, gate, refused)
    late = _untimely(parsed.time, times, gate) & (refused == 0)
    refused[late] = CHECK[Reason.TIME]
    return _claims(received, parsed, times, who, refused), _rulings(received, refused)


def check_one(data: bytes, time_us: int, gate: Gate) -> Frame:
    """The same for one frame; FrameRejected with the first check that fails, in words."""
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
    # (12) sealed in the topic's epoch, or one that ended no longer than the grace before the log took this
    if not gate.topic.epoch_admissible(header.epoch, time_us):
        raise FrameRejected(Reason.EPOCH, f"sealed for epoch {header.epoch}, the topic is in {gate.topic.epoch}")
    if refusal is not None:
        raise FrameRejected(*refusal)
    # (13) from here on the header is the publisher's word
    if not gate.verify_key(header.publisher).verify(received.to_be_signed, received.signature):
        raise not_signed(header)
    # (14) how far apart two copies of a frame can be in the log hangs on it (`replay.Bounds`)
    _check_time(header, time_us, gate)
    return received


def not_signed(header: Header) -> FrameRejected:
    return FrameRejected(Reason.SIGNATURE, f"the signature is not {header.publisher}'s")


def _check_time(header: Header, time_us: int, gate: Gate) -> None:
    ahead = header.time - time_us
    if ahead > gate.bounds.max_skew_us:
        raise FrameRejected(Reason.TIME, f"{header.publisher}'s clock is {ahead / 1e6:.0f} s ahead of the log's")
    if -ahead > gate.bounds.stale_after_us:
        raise FrameRejected(Reason.TIME, f"published {-ahead / 1e6:.0f} s before the log took it in: stale")


# --- a batch ------------------------------------------------------------------------------------------


class _Sender(NamedTuple):
    """Topic, publisher and boot: what the frames of one start of a publisher have in common."""

    ours: bool
    publisher: str
    key: VerifyKey | None
    who: tuple[int, int, int]


def _unreadable(data: bytes) -> Reason:
    try:
        frame.parse(data)
    except FrameRejected as refused:
        return Reason(refused.reason)
    raise Bug("a frame is read one by one and not in a batch: the two readers disagree")


def _check_senders(
    received: Received, parsed: Frames, times: Ints, gate: Gate, refused: Numbers
) -> list[tuple[int, int, int]]:
    """Checks 3 to 13, a frame at a time; what senders and tokens have in common is looked at once. Who each is."""
    who, senders = [(0, 0, 0)] * len(received.frames), dict[bytes, _Sender]()
    current = gate.topic.epoch
    for row, header, sender_end, end, token, token_end, digest, signature, epoch in _rows(parsed):
        data, time_us = received.frames[row], received.times[row]
        name = data[header:sender_end]
        sender = senders.get(name)
        if sender is None:
            if len(senders) >= MAX_REMEMBERED:
                senders.clear()
            sender = senders[name] = _sender(name, gate)
        who[row] = sender.who
        if not sender.ours:
            refused[row] = CHECK[Reason.TOPIC]
            continue
        named = data[digest : digest + DIGEST_BYTES]
        refusal = gate.refuses_publisher(sender.publisher, data[token:token_end], named, time_us)
        if refusal is not None:
            refused[row] = CHECK[refusal.reason]
        elif epoch != current and not gate.topic.epoch_admissible(epoch, time_us):
            refused[row] = CHECK[Reason.EPOCH]
        else:
            signed = frames.to_be_signed(data[header:end])
            if sender.key is None or not sender.key.verify(signed, data[signature : signature + SIGNATURE_BYTES]):
                refused[row] = CHECK[Reason.SIGNATURE]
    return who


def _rows(parsed: Frames) -> zip[tuple[int, ...]]:
    good = np.flatnonzero(parsed.good)
    columns = (
        good,
        parsed.header[0][good],
        parsed.sender_end[good],
        parsed.header[1][good],
        *(bound[good] for bound in parsed.token),
        parsed.token_digest[good],
        parsed.signature[good],
        parsed.epoch[good],
    )
    return zip(*(column.tolist() for column in columns), strict=True)


def _sender(name: bytes, gate: Gate) -> _Sender:
    publisher = frames.publisher_of(name)
    key = gate.verify_key(publisher) if publisher in gate.state.entities else None
    ours = frames.topic_of(name) == gate.topic.id
    return _Sender(ours, publisher, key, gate.identify(publisher, name[-BOOT_BYTES:]))


def _untimely(claimed: Ints, times: Ints, gate: Gate) -> NDArray[np.bool_]:
    ahead = claimed - times
    late: NDArray[np.bool_] = (ahead > gate.bounds.max_skew_us) | (-ahead > gate.bounds.stale_after_us)
    return late


def _claims(
    received: Received, parsed: Frames, times: Ints, who: list[tuple[int, int, int]], refused: Numbers
) -> Claims:
    kept = np.flatnonzero(refused == 0)
    claims = np.zeros(kept.size, CLAIM)
    claims["partition"] = received.partition
    claims["offset"] = np.array(received.offsets, np.int64)[kept]
    claims["time"] = times[kept]
    if kept.size:
        claims["hi"], claims["lo"], claims["publisher"] = np.array(who, np.uint64)[kept].T
    claims["sequence"], claims["count"] = parsed.sequence[kept], parsed.count[kept]
    claims["size"] = np.fromiter(map(len, received.frames), np.int64, len(received.frames))[kept]
    return claims


def _rulings(received: Received, refused: Numbers) -> Rulings:
    rows = np.flatnonzero(refused)
    rulings = np.zeros(rows.size, RULING)
    rulings["partition"] = received.partition
    rulings["offset"] = np.array(received.offsets, np.int64)[rows]
    rulings["code"] = EARLIER | refused[rows]
    return rulings
