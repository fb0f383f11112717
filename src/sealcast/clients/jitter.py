"""A jitter buffer: events reach the application with the spacing that their publisher gave them.

Batches, queues and retries change how far apart events arrive. Each event says when it was published, so that the
spacing can be restored by holding it back: an event is due a fixed delay after it would have come on the way that the
first one took.

    due = arrival of the first + (published - published of the first) + delay

The publisher's clock and ours need not agree: only differences are used, publisher by publisher. Every event that takes
at most `delay` longer than the first is due in time, and then spacing is restored to the microsecond.

What cannot be restored is bounded and counted:

    late        due before it came: handed out at once, or dropped where a late event is worth nothing (`LateEvents`)
    shifted     so many late in a row are no jitter but a slower way, and a publisher's clock may jump: the schedule
                starts anew with the event at hand, which is due after `delay`
    early       more than `capacity` events wait: the first due is handed out before its time
    held        no event waits longer than `longest`; what is due later than that starts the schedule anew (a backlog
                that is caught up on is not slowed down to the pace at which it was once published)

Events of a publisher keep their order. Everything is a function of the times that are passed in, in microseconds.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from heapq import heappop, heappush
from typing import TYPE_CHECKING, Final, Generic, TypeVar

from sealcast.errors import Misuse
from sealcast.model.moments import micros

if TYPE_CHECKING:
    from sealcast.clients.subscriber import Subscriber
    from sealcast.model.event import OpenedEvent
    from sealcast.protections.stays import Place

E = TypeVar("E")

CAPACITY: Final = 100_000
#: An event waits at most so many times the delay.
LONGEST: Final = 3
#: So many late events in a row, and the schedule moves.
LATE_RUN: Final = 8
EVENTS_PER_POLL: Final = 1_000
#: How long a reader sleeps at most before it looks for new events.
LOOK_SECONDS: Final = 0.05


class LateEvents(StrEnum):
    """What becomes of an event that came after it was due."""

    HAND_OUT = "hand-out"
    DROP = "drop"


@dataclass(slots=True)
class Counts:
    """What was handed out and how; `dropped` was not."""

    in_time: int = 0
    late: int = 0
    early: int = 0
    dropped: int = 0
    shifted: int = 0


@dataclass(slots=True)
class _Schedule:
    """When events of one publisher are due: at `published` plus `base`."""

    base: int
    published: int
    due: int
    late_in_a_row: int = 0


class JitterBuffer(Generic[E]):
    """Holds events of any number of publishers until they are due."""

    def __init__(
        self,
        delay_us: int,
        *,
        late: LateEvents = LateEvents.HAND_OUT,
        longest_us: int | None = None,
        capacity: int = CAPACITY,
    ) -> None:
        longest = LONGEST * delay_us if longest_us is None else longest_us
        if delay_us < 1 or longest < delay_us or capacity < 1:
            raise Misuse(
                f"a jitter buffer has a delay, waits at least that long, and holds an event or more: "
                f"{delay_us} us, {longest} us, {capacity}"
            )
        self._delay = delay_us
        self._longest = longest
        self._late = late
        self._capacity = capacity
        self._schedules: dict[Hashable, _Schedule] = {}
        #: By when they are due; of equals, in the order in which they came.
        self._waiting: list[tuple[int, int, E]] = []
        self._number = 0
        self.counts = Counts()

    def __len__(self) -> int:
        return len(self._waiting)

    def push(self, publisher: Hashable, published_us: int, event: E, now_us: int) -> bool:
        """Takes an event in; False if it was late and dropped."""
        schedule = self._schedules.get(publisher)
        if schedule is None:
            schedule = self._schedules[publisher] = _Schedule(0, published_us, now_us)
            self._start(schedule, published_us, now_us)
        due = self._due(schedule, published_us, now_us)
        if due < now_us:
            if self._late is LateEvents.DROP:
                self.counts.dropped += 1
                return False
            self.counts.late += 1
            due = now_us
        else:
            self.counts.in_time += 1
        # Order before spacing: never before the one that was published before it.
        schedule.due = due = max(due, schedule.due)
        heappush(self._waiting, (due, self._number, event))
        self._number += 1
        return True

    def _due(self, schedule: _Schedule, published: int, now: int) -> int:
        due = published + schedule.base
        schedule.late_in_a_row = schedule.late_in_a_row + 1 if due < now else 0
        backwards = published < schedule.published
        schedule.published = published
        if backwards or due > now + self._longest or schedule.late_in_a_row >= LATE_RUN:
            self.counts.shifted += 1
            self._start(schedule, published, now)
        return published + schedule.base

    def _start(self, schedule: _Schedule, published: int, now: int) -> None:
        schedule.base = now + self._delay - published
        schedule.late_in_a_row = 0

    def pop(self, now_us: int) -> list[E]:
        """Everything that is due by now, in the order in which it is, and what there is no room for."""
        out = []
        while self._waiting and (self._waiting[0][0] <= now_us or len(self._waiting) > self._capacity):
            due, _, event = heappop(self._waiting)
            if due > now_us:
                self.counts.in_time -= 1
                self.counts.early += 1
            out.append(event)
        return out

    def next_due(self) -> int | None:
        """When there is something to pop; None while nothing waits."""
        if not self._waiting:
            return None
        return self._waiting[0][0]


# --- at a subscriber ------------------------------------------------------------------------------------


class SpacedReader:
    """A subscriber's events with their publishers' spacing.

    The subscriber reads ahead of what is handed out, so that acknowledging goes through here, too: a poll's events are
    acknowledged when all of them were handed out. After a crash, those that waited come again.
    """

    def __init__(
        self,
        subscriber: Subscriber,
        buffer: JitterBuffer[tuple[int, OpenedEvent]],
        *,
        limit: int | None = None,
        clock: Callable[[], int] = lambda: time.monotonic_ns() // 1000,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        """`limit`: take no more than so many events out of the mailbox."""
        self._subscriber = subscriber
        self._buffer = buffer
        self._left = limit
        self._clock = clock
        self._sleep = sleep
        #: Of each poll, in order: events not handed out yet, and how far to acknowledge when there are none.
        self._polls: deque[_Poll] = deque()
        self._first = 0

    def follow(self, stop: Callable[[], bool] = lambda: False) -> Iterator[list[OpenedEvent]]:
        """Events as they become due, those that are due together at a time, until the limit or `stop` says so."""
        while not stop() and (self._left != 0 or len(self._buffer)):
            self._take()
            due = self._buffer.pop(self._clock())
            if due:
                for number, _ in due:
                    self._done(number)  # now it is the caller's: it acknowledges when it is done with them
                yield [event for _, event in due]
            else:
                self._sleep(self._until_next())

    def ack(self) -> None:
        """Durably done with what was handed out so far, as far as nothing before it still waits."""
        mark: Place | None = None
        while self._polls and not self._polls[0].left:
            mark = self._polls.popleft().mark
            self._first += 1
        if mark is not None:
            self._subscriber.ack(mark)

    def _take(self) -> None:
        # As long as there is room: what does not fit waits in the mailbox, which is durable.
        while len(self._buffer) < CAPACITY // 2 and self._left != 0:
            events = self._subscriber.poll(EVENTS_PER_POLL if self._left is None else min(EVENTS_PER_POLL, self._left))
            if not events:
                break
            if self._left is not None:
                self._left -= len(events)
            number = self._first + len(self._polls)
            self._polls.append(_Poll(len(events), self._subscriber.handed_out))
            for event in events:
                if not self._buffer.push(event.publisher, micros(event.published_at), (number, event), self._clock()):
                    self._done(number)

    def _done(self, number: int) -> None:
        self._polls[number - self._first].left -= 1

    def _until_next(self) -> float:
        due = self._buffer.next_due()
        if due is None:
            return LOOK_SECONDS
        return min(LOOK_SECONDS, max(0.0, (due - self._clock()) / 1e6))


@dataclass(slots=True)
class _Poll:
    left: int
    mark: Place | None
