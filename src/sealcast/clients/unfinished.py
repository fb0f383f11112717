"""A call of `publish` in which somebody did not answer: what is known of it, so that the same call again does the rest.

A carrier that does not answer may have the frames all the same. So may one that did, if the registry then does not say
whether the log is still there. Whoever hears that publishes the events again. Sealed anew they would be other frames,
and be delivered twice. So the same events, given again to the same publisher, go as the same frames: what was
acknowledged is not sent again, and what was there all the same is dropped as a replay (ADR 59).
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import field
from itertools import chain

from sealcast.model.dataclass import dataclass
from sealcast.primitives.secrets import Unpicklable
from sealcast.protections.checked import CheckedBatch

#: A frame for each lane, and how many events are in it.
Made = tuple[int, tuple[bytes, ...]]


@dataclass(frozen=True, slots=True)
class Unfinished(Unpicklable):
    """How far a call came."""

    events: Sequence[CheckedBatch] = field(repr=False)
    readers: str
    #: What its frames were sealed by, and with which token.
    sealed_by: tuple[object, ...] = field(repr=False)
    #: Frames that were acknowledged: offset and number of events of each.
    done: Sequence[tuple[int, int]] = ()
    #: How many frames come before the doubtful ones: those, and what waits on this machine.
    ended: int = 0
    #: Events that wait on this machine.
    queued: int = 0
    #: Those that nobody knows of whether they were appended.
    doubtful: Sequence[Made] = field(default=(), repr=False)
    since: float = field(default_factory=time.monotonic)

    def is_repeated(
        self, events: Sequence[CheckedBatch], readers: str, sealed_by: tuple[object, ...], stale_after_s: float
    ) -> bool:
        """Whether this call is that one again, and brokers would still take its frames. They take none that are stale,
        and none under keys or a token from before."""
        return (
            time.monotonic() - self.since < stale_after_s / 2
            and (readers, sealed_by) == (self.readers, self.sealed_by)
            and sum(map(len, events)) == sum(map(len, self.events))
            and all(a == b for a, b in zip(chain.from_iterable(events), chain.from_iterable(self.events), strict=True))
        )
