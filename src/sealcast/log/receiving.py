"""Where requests to join are handed over: from a gateway, which cannot enrol, to the reception, which can.

REALM/control/reception       the id of the control topic that the reception listens on; served to nobody
post                          [the topic to answer on, the request]
answer                        [the sealed answer], or [a reason in a word, the reason in words]
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from sealcast.errors import FrameRejected
from sealcast.log import files, queue_mark
from sealcast.log.control_topics import ID_BYTES, ControlPlane, Posted
from sealcast.wire import cbor

MAX_JOIN_BYTES: Final = 2_048
MAX_JOINED_BYTES: Final = 1 << 17
_FILE: Final = "reception"


@dataclass(frozen=True, slots=True)
class JoinPost:
    """A request to join, and where its answer is waited for."""

    reply_topic: bytes
    request: bytes

    def to_bytes(self) -> bytes:
        return cbor.encode([self.reply_topic, self.request])

    @classmethod
    def parse(cls, raw: bytes) -> JoinPost | None:
        """None when it is no such post."""
        try:
            match cbor.decode(raw, max_bytes=MAX_JOIN_BYTES, max_depth=1, max_items=4):
                case [bytes(topic), bytes(request)] if len(topic) == ID_BYTES:
                    return cls(topic, request)
        except FrameRejected:
            pass
        return None


def refusal(reason: str, words: str) -> bytes:
    return cbor.encode([reason, words])


def read_answer(raw: bytes) -> bytes | tuple[str, str] | None:
    """The answer, or why not; None when it is neither."""
    try:
        match cbor.decode(raw, max_bytes=MAX_JOINED_BYTES, max_depth=1, max_items=4):
            case [bytes(answer)]:
                return answer
            case [str(reason), str(words)]:
                return reason, words
    except FrameRejected:
        pass
    return None


def found(plane: ControlPlane) -> bytes | None:
    """The topic that the reception listens on, if there ever was one."""
    try:
        topic = bytes.fromhex((plane.root / _FILE).read_text("ascii")[: 2 * ID_BYTES])
    except (FileNotFoundError, NotADirectoryError, ValueError):
        return None
    return topic if len(topic) == ID_BYTES and plane.exists(topic) else None


def settled(plane: ControlPlane) -> ReceptionPlace:
    """The reception's place: where it listened before, else a new topic."""
    topic = found(plane)
    if topic is None:
        topic = plane.create()
        files.replace_file(plane.root / _FILE, topic.hex().encode())
    return ReceptionPlace(plane, topic)


@dataclass(slots=True)
class ReceptionPlace:
    """The queue of requests, as the reception reads it."""

    plane: ControlPlane
    topic: bytes

    @property
    def _directory(self) -> Path:
        return self.plane.root / self.topic.hex()

    def read(self, records: int) -> list[Posted]:
        """NotFound when somebody removed it."""
        return self.plane.read(self.topic, queue_mark.read(self._directory), records=records)

    def take(self, offset: int) -> None:
        """Nothing before `offset` is needed any more. What was answered and not noted is answered again."""
        self.plane.take(self.topic, offset)
