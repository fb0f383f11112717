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
    PUBLISHER = "publisher"  # 4: nobody of that name is enrolled
    REVOKED = "revoked"  # 5: the publisher was revoked
    RIGHT = "right"  # 6: the publisher may not publish here
    SIGNATURE = "signature"  # 7: the header's signature is not the publisher's
    TIME = "time"  # 8: published too far in the future
    SCHEMA = "schema"  # 9: made for another schema
    SEAL = "seal"  # 10: the body does not open under the publisher's key
    ROOT = "root"  # 11: the events are not those that were signed
    EVENT = "event"  # 12: one event is off the schema; the rest of its frame goes on


@dataclass(frozen=True, slots=True)
class Rejection:
    """One refusal. `row` of the position is -1 when the whole frame was refused."""

    position: Position
    reason: Reason
    detail: str
    #: Events refused with it; 0 when the frame was too broken to tell.
    events: int
