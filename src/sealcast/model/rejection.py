"""Why something was refused at admission: one word a reason, counted and kept, never silently dropped."""

from __future__ import annotations

from enum import StrEnum

from sealcast.model.dataclass import dataclass
from sealcast.model.event import Position


class Reason(StrEnum):
    """The numbered checks of `admit`, in order; the first that fails is the reason."""

    FRAME = "frame"  # 1: not a frame, or over a limit
    VERSION = "version"  # 2: a frame of a format this release does not know
    TOPIC = "topic"  # 3: a frame for another topic
    TOKEN = "token"  # 4: no token, none that can be read, or one for something else
    CENTER = "center"  # 5: signed by no key center that counts here and now
    TOKEN_SIGNATURE = "token-signature"  # 6: or not signed by it
    TOKEN_TIME = "token-time"  # 7: the token is not valid yet, or not any more
    TEMPLATE = "template"  # 8: for other topics; or, of a single event, for other events
    RIGHT = "right"  # 9: it gives no right to publish, or the right was taken away since
    PUBLISHER = "publisher"  # 10: it is somebody else's, or nobody of that name is enrolled
    REVOKED = "revoked"  # 11: the publisher was revoked
    EPOCH = "epoch"  # 12: of an epoch that is over
    SIGNATURE = "signature"  # 13: the header's signature is not the publisher's
    TIME = "time"  # 14: published too far in the future, or too long ago
    REPLAY = "replay"  # 15: it was here before, or is too far behind to tell
    BUDGET = "budget"  # 16: its publisher published more than it may
    SCHEMA = "schema"  # 17: made for another schema
    SEAL = "seal"  # 18: the body does not open under the publisher's key
    ROOT = "root"  # 19: the events are not those that were signed
    EVENT = "event"  # 20: one event is off the schema; the rest of its frame goes on


@dataclass(frozen=True, slots=True)
class Rejection:
    """One refusal. `row` of the position is -1 when the whole frame was refused."""

    position: Position
    reason: Reason
    detail: str
    #: Events refused with it; 0 when the frame was too broken to tell.
    events: int
