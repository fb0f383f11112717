"""What became of frames that a gateway acknowledged: asked of the broker itself, and answered under its signature.

    desk/frames    [topic, partition, [[offset, SHA-256 of the frame], ...]]     -> desk/standing
                                                        [time, [[standing, record, tag], ...], signature]

A gateway that says "durable" and drops the frame cannot answer this: the request is sealed to the broker, and the
answer is the broker's. For each frame it says whether that very frame stands in its log, and which record of its signed
ledger accounts for it, by number and tag: whoever reads or checks the ledger finds the same record there.

    committed    it stands there, and the record accounts for it
    waiting      it stands there, and no batch has taken it yet
    other        another frame stands there
    missing      the log ends before that place
    removed      the record accounts for that place, and the frame is not kept any more: nobody can compare it

The signature makes the answer evidence. Beside a gateway's receipt for the same frame, `other` and `missing` convict
the gateway, before anybody who knows both certificates.
"""

from __future__ import annotations

import hashlib
from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, Final, NamedTuple

from sealcast.control.bodies import Body, Name, binary, natural, rows, word
from sealcast.control.envelopes import ProvenMessage
from sealcast.control.service import Answer
from sealcast.errors import Corrupt, FrameRejected, Rejected, Unavailable
from sealcast.log.ledger import LedgerReader
from sealcast.log.port import PartitionLog
from sealcast.primitives.aead import MAX_OFFSET, MAX_PARTITION
from sealcast.primitives.secrets import Unpicklable
from sealcast.primitives.sign import SIGNATURE_BYTES, VerifyKey
from sealcast.trust.handles import OpenRealm
from sealcast.trust.keys.broker import BrokerSecrets
from sealcast.wire import cbor
from sealcast.wire.limits import MAX_TIME_MICROS

#: Frames in one request: each is read and hashed.
MAX_ASKED: Final = 128
MAX_TAG_BYTES: Final = 64
_LABEL: Final = b"sealcast/1 frame standing\0"


class Standing(StrEnum):
    """Where a frame stands, as its broker says."""

    COMMITTED = "committed"
    WAITING = "waiting"
    OTHER = "other"
    MISSING = "missing"
    REMOVED = "removed"

    @property
    def lost(self) -> bool:
        """Whether whoever acknowledged it lost it, or never had it."""
        return self in (Standing.OTHER, Standing.MISSING)


class FrameStanding(NamedTuple):
    """Of one frame; with the number and tag of the record that accounts for it, if one does."""

    standing: Standing
    record: int = 0
    tag: bytes = b""


FramesAsked = Annotated[tuple[tuple[int, bytes], ...], rows(MAX_ASKED, natural(MAX_OFFSET), binary(32, 32))]
FramesTold = Annotated[
    tuple[tuple[Standing, int, bytes], ...],
    rows(MAX_ASKED, word(Standing), natural(MAX_OFFSET), binary(0, MAX_TAG_BYTES)),
]


@dataclass(frozen=True, slots=True)
class AskFrames(Body):
    """Frames of the asker, by place and digest."""

    KIND = "desk/frames"
    MAX_ITEMS = 8 + 3 * MAX_ASKED
    MAX_DEPTH = 3
    topic: Name
    partition: Annotated[int, natural(MAX_PARTITION)]
    frames: FramesAsked


@dataclass(frozen=True, slots=True)
class ToldFrames(Body):
    """Where they stand, in the order of the request, signed by the broker."""

    KIND = "desk/standing"
    MAX_ITEMS = 8 + 4 * MAX_ASKED
    MAX_DEPTH = 3
    time_us: Annotated[int, natural(MAX_TIME_MICROS)]
    told: FramesTold
    signature: Annotated[bytes, binary(SIGNATURE_BYTES, SIGNATURE_BYTES)]


class StandingStatement(NamedTuple):
    """What a broker signs: where, when, and of which frames."""

    realm: bytes
    topic: bytes
    broker: str
    asked: AskFrames
    time_us: int
    told: tuple[FrameStanding, ...]

    def to_sign(self) -> bytes:
        said = [[*a, str(t.standing), t.record, t.tag] for a, t in zip(self.asked.frames, self.told, strict=True)]
        place = [self.realm, self.topic, self.broker, self.asked.partition]
        return _LABEL + cbor.encode([*place, self.time_us, said])


# --- at the broker ------------------------------------------------------------------------------------


class FrameStandings(Unpicklable):
    """Answers for one broker's desk."""

    def __init__(self, realm: OpenRealm, broker: BrokerSecrets) -> None:
        self._realm, self._broker = realm, broker

    def answer(self, request: ProvenMessage, now_us: int) -> Answer:
        """Whoever knows a frame's digest may ask for it: it made the frame, or has it."""
        asked, state, name = AskFrames.from_bytes(request.message.body), self._realm.state(), self._broker.name
        if asked.topic not in state.topics or name not in state.serving(asked.topic):
            raise Rejected(f"broker {name!r} has no frames of {request.sender.name!r} on topic {asked.topic!r}")
        topic = state.topic(asked.topic)
        told = self._told(asked, LedgerReader(
            self._realm.journal(asked.topic, name), self._broker.journal_key(topic.id)
        ))  # fmt: skip
        said = StandingStatement(self._realm.id, topic.id, name, asked, now_us, told)
        signature = self._broker.identity.signer.sign(said.to_sign())
        return Answer(ToldFrames.KIND, ToldFrames(now_us, told, signature).to_bytes())

    def _told(self, asked: AskFrames, ledger: LedgerReader) -> tuple[FrameStanding, ...]:
        paths = self._realm.paths.topic(asked.topic, self._broker.name)
        if not paths.frames_root.is_dir():
            return tuple(FrameStanding(Standing.MISSING) for _ in asked.frames)
        with ledger, self._realm.frames(asked.topic, self._broker.name, read_only=True) as log:
            if asked.partition >= log.partitions:
                return tuple(FrameStanding(Standing.MISSING) for _ in asked.frames)
            partition, number = log.partition(asked.partition), log.numbered(asked.partition)
            return tuple(_stands(partition, ledger, number, *each) for each in asked.frames)


def _stands(log: PartitionLog, ledger: LedgerReader, number: int, offset: int, digest: bytes) -> FrameStanding:
    if offset >= log.end():
        return FrameStanding(Standing.MISSING)
    index = _accounting(ledger, number, offset)
    if offset < log.start():
        standing = Standing.REMOVED
    elif hashlib.sha256(next(iter(log.read(offset, offset + 1))).data).digest() != digest:
        return FrameStanding(Standing.OTHER)
    else:
        standing = Standing.COMMITTED
    if index is None:
        # Frames are removed when a record accounts for them: there is none without.
        return FrameStanding(Standing.WAITING if standing is Standing.COMMITTED else Standing.MISSING)
    return FrameStanding(standing, index, ledger.at(index).tag)


def _accounting(ledger: LedgerReader, number: int, offset: int) -> int | None:
    """The record whose batch took that place; None if none did yet. A few records are read, whatever the length."""

    def reached(index: int) -> int:
        partitions = ledger.at(index).entry.end.partitions
        return partitions[number] if number < len(partitions) else 0

    end = ledger.end()
    index = bisect_right(range(end), offset, key=reached)
    return index if index < end else None


# --- whoever asks -------------------------------------------------------------------------------------


class StatedFrames(NamedTuple):
    """An answer that was verified, and kept as evidence."""

    told: tuple[FrameStanding, ...]
    evidence: bytes


def ask_standing(
    ask: Callable[[str, bytes], ProvenMessage],
    place: tuple[bytes, bytes, str],
    topic: str,
    partition: int,
    frames: Sequence[tuple[int, bytes]],
    key: VerifyKey,
) -> StatedFrames:
    """Where frames stand, by the word of their broker: of that realm, topic and name (`place`), under its key."""
    asked = AskFrames(topic, partition, tuple(frames))
    reply = ask(AskFrames.KIND, asked.to_bytes())
    try:
        found = ToldFrames.from_bytes(reply.message.body)
    except FrameRejected:
        raise Unavailable(f"{reply.sender.name!r} answers in a way that this release does not know") from None
    told = tuple(FrameStanding(*each) for each in found.told)
    if len(told) != len(asked.frames) or reply.sender.name != place[2]:
        raise Unavailable(f"{reply.sender.name!r} answers for other frames than were asked for")
    said = StandingStatement(*place, asked, found.time_us, told)
    if not key.verify(said.to_sign(), found.signature):
        raise Corrupt(f"broker {place[2]!r} does not sign for what it says of frames")
    return StatedFrames(told, said.to_sign() + found.signature)
