"""Taking frames in for others: what is checked before a frame is appended, and how one that came before is known.

Whoever appends for publishers that are elsewhere (the MQTT bridge, a gateway) appends nothing that does not pass:

(1) it is a frame (`wire.frame`), and not over its limits;
(2) it came for a topic and a broker that takes its frames, and its header names that topic;
(3) its publisher is enrolled, and signed the header.

So nobody but entities of the realm can fill the log. All else is for admission to judge, as it is for every frame.

A frame comes again when its acknowledgement was lost. Admission would refuse it as a replay. It is not even appended:
where frames of late stand is remembered, also those that an earlier run appended.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from functools import lru_cache
from typing import Final

from sealcast.errors import FrameRejected, Rejected
from sealcast.log.port import SharedLog
from sealcast.primitives.sign import VerifyKey
from sealcast.trust.realm.state import RealmState
from sealcast.wire import frame
from sealcast.wire.frame import Header

#: Frames that are recognised when they come again; and how much of a log is read for them at the start.
MAX_RECENT: Final = 65_536
RECENT_FRAMES: Final = 4_096
RECENT_BYTES: Final = 64 << 20
#: In place of an offset, for whoever does not need it.
SOMEWHERE: Final = -1
_DIGEST_BYTES: Final = 16


class NotAppended(Rejected):
    """A frame that is not appended; the reason is what it is counted by."""

    code = "not-appended"

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason

    def as_json(self) -> dict[str, object]:
        return {**super().as_json(), "reason": self.reason}


class FrameChecks:
    """The checks above. Verifying keys are kept, since most frames are of few publishers."""

    def __init__(self) -> None:
        self._verify_key = lru_cache(4_096)(VerifyKey)

    def check(self, state: RealmState, topic: str, broker: str, data: bytes) -> Header:
        """The header of a frame that may be appended; NotAppended."""
        # (1)
        try:
            found = frame.parse(data)
        except FrameRejected as error:
            raise NotAppended("frame", error.message) from None
        # (2)
        if broker not in state.serving(topic):
            raise NotAppended("broker", f"broker {broker!r} takes no frames of topic {topic!r}")
        if found.header.topic != state.topic(topic).id:
            raise NotAppended("topic", f"it was published on another topic than {topic!r}")
        # (3)
        entity = state.entities.get(found.header.publisher)
        if entity is None or not self._verify_key(entity.verify_key).verify(found.to_be_signed, found.signature):
            raise NotAppended("signature", "no entity of the realm signed it")
        return found.header


def digest_of(data: bytes) -> bytes:
    """By what a frame is recognised. Its header is in it, with publisher, boot and sequence: a frame under the same
    numbers that says something else is another one, and for admission to judge."""
    return hashlib.sha256(data).digest()[:_DIGEST_BYTES]


class RecentFrames:
    """Where the newest frames stand, by digest. Not for several threads."""

    def __init__(self, most: int = MAX_RECENT) -> None:
        self._most = most
        self._places: OrderedDict[bytes, int] = OrderedDict()

    def learn(self, log: SharedLog, most: int = RECENT_FRAMES, most_bytes: int = RECENT_BYTES) -> None:
        """What an earlier run, or another process, appended last."""
        end = log.end()
        start = max(log.start(), end - most)
        sizes = log.sizes(start, end) if start < end else []
        while sizes and sum(sizes) > most_bytes:
            start, sizes = start + 1, sizes[1:]
        for record in log.read(start, end) if sizes else ():
            self.remember(digest_of(record.data), record.offset)

    def place(self, digest: bytes) -> int | None:
        """The offset that a frame has already."""
        return self._places.get(digest)

    def remember(self, digest: bytes, offset: int) -> None:
        self._places[digest] = offset
        while len(self._places) > self._most:
            self._places.popitem(last=False)
