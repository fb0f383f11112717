"""Why something was refused at admission: one word a reason, counted and kept, never silently dropped."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from sealcast.model.event import Position


class Reason(StrEnum):
    """The numbered checks of `admit`, in order; the first that fails is the reason."""

    FRAME = "frame"  # 1: not a frame, or over a limit
    VERSION = "version"  # 2: a frame of a format this release does not know
    TOPIC = "topic"  # 3: a frame for another topic
    EPOCH = "epoch"  # 4: sealed for an epoch that is not the topic's
    PUBLISHER = "publisher"  # 5: nobody of that name is enrolled
    REVOKED = "revoked"  # 6: the publisher was revoked
    RIGHT = "right"  # 7: the publisher may not publish here
    SIGNATURE = "signature"  # 8: the header's signature is not the publisher's
    TIME = "time"  # 9: published too far in the future, or too long ago
    REPLAY = "replay"  # 10: it was here before, or is too far behind to tell
    BUDGET = "budget"  # 11: its publisher published more than it may
    SCHEMA = "schema"  # 12: made for another schema
    SEAL = "seal"  # 13: the body does not open under the publisher's key
    ROOT = "root"  # 14: the events are not those that were signed
    EVENT = "event"  # 15: one event is off the schema; the rest of its frame goes on


@dataclass(frozen=True, slots=True)
class Rejection:
    """One refusal. `row` of the position is -1 when the whole frame was refused."""

    position: Position
    reason: Reason
    detail: str
    #: Events refused with it; 0 when the frame was too broken to tell.
    events: int
