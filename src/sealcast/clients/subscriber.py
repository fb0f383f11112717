"""The subscriber's side of the path: its mailboxes, opened with its own keys, from its own durable cursor.

    poll() or iteration     events, in order; the cursor stays
    ack()                   everything handed out so far is done with: durable, and never handed out again

Between the two a crash means that events are handed out once more after a restart, never that one is lost. What is
handed out was opened and verified: the publisher's signature, for this topic, over this event. How it is opened is the
protection's business (`protections.port`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path
from typing import Final

from sealcast.errors import CannotOpen, Misuse, SealcastError
from sealcast.log.closing import Closing
from sealcast.model.event import OpenedEvent, Position
from sealcast.primitives.secrets import Unpicklable
from sealcast.protections.port import DEFAULT_KEY_MEMORY, Ask, Measured, Reader, client_side
from sealcast.protections.stays import Place
from sealcast.trust.handles import EntityRealm
from sealcast.trust.realm.changes import Right
from sealcast.trust.realm.state import RealmState

EVENTS_PER_POLL: Final = 1_000
#: How often a waiting subscriber looks for new batches.
LOOK_SECONDS: Final = 0.05


class Subscriber(Closing, Unpicklable):
    """One entity's mailbox on one topic. Not shared between threads. Close it, or use it in a `with` block."""

    def __init__(
        self,
        realm: EntityRealm | str | Path,
        topic: str,
        as_: str,
        *,
        from_: str | int | Position | datetime | None = None,
        until_us: int | None = None,
        unopenable: Callable[[Position, CannotOpen], None] | None = None,
        key_memory: int = DEFAULT_KEY_MEMORY,
        ask: Ask | None = None,
        broker: str | None = None,
    ) -> None:
        """Starts at the durable cursor, or at `from_` (see `log.mailbox`), which leaves the cursor where it is. Ends
        before what was committed at `until_us` or later. With a `broker` that is not its home it moves there, and goes
        on where it was.

        An event that does not open stops the reader with CannotOpen, unless `unopenable` takes the report of it. Keys
        that come with events take at most `key_memory` bytes; those that it has let go, it asks for by `ask`, the way
        to the broker's desk, or looks for in the ledger again.
        """
        self.realm = realm if isinstance(realm, EntityRealm) else EntityRealm(realm)
        self.topic = topic
        self.name = as_
        self._until_us = until_us
        self._unopenable = unopenable
        side = client_side(self._current().topic(topic).protection)
        self._inbox = side.inbox(Reader(self.realm, topic, as_, broker, ask, key_memory))
        if from_ is not None:
            self._inbox.mail.locate(_place_named(from_))

    def poll(self, max_events: int = EVENTS_PER_POLL, timeout: float = 0.0) -> list[OpenedEvent]:
        """The next events, at most so many; waits up to `timeout` seconds for the first, and may return none."""
        deadline = time.monotonic() + timeout
        while True:
            self._inbox.look(self._current())
            events = self._take(max_events)
            left = deadline - time.monotonic()
            if events or left <= 0:
                return events
            time.sleep(min(LOOK_SECONDS, left))

    def __iter__(self) -> Iterator[OpenedEvent]:
        """Everything that is there by now."""
        while events := self.poll():
            yield from events

    def follow(self, stop: Callable[[], bool] = lambda: False) -> Iterator[OpenedEvent]:
        """Everything, and then every event as it is delivered, until `stop` says so."""
        while not stop():
            yield from self.poll(timeout=1.0)

    def between(self, first: int, end: int) -> Iterator[OpenedEvent]:
        """What the records `first` to before `end` of its broker's ledger hold for it: for a reader that keeps its
        place itself."""
        self._current()
        return map(self._inbox.open, self._inbox.mail.between(first, end))

    @property
    def handed_out(self) -> Place | None:
        """How far events were handed out and not acknowledged: how far `ack` goes, now or later."""
        return self._inbox.mail.handed_out

    def ack(self, upto: Place | None = None) -> None:
        """Durably done with everything that was handed out so far, or up to what was `handed_out` before."""
        self._inbox.mail.acknowledge(upto)

    def lag(self) -> int:
        """How many events wait after the durable cursor."""
        return self._inbox.mail.lag()

    @property
    def keys(self) -> Measured:
        """What became of keys so far: how many were given, derived, asked for, let go; and bytes of those held."""
        return self._inbox.keys

    @property
    def trouble(self) -> SealcastError | None:
        """Why its broker does not know yet what it has to know, if so."""
        return self._inbox.trouble

    def close(self) -> None:
        self._inbox.close()

    # --- inside -------------------------------------------------------------------------------------

    def _current(self) -> RealmState:
        """The newest registry. Reading obeys the rights of now, also for what was delivered before."""
        state = self.realm.state()
        state.require(Right.SUBSCRIBE, self.topic, self.name, self.realm.clock())
        return state

    def _take(self, max_events: int) -> list[OpenedEvent]:
        events: list[OpenedEvent] = []
        for found in self._inbox.mail.deliveries():
            delivery = found.delivery
            if len(events) >= max_events or (self._until_us is not None and delivery.committed_us >= self._until_us):
                break
            try:
                events.append(self._inbox.open(found))
            except CannotOpen as error:
                if self._unopenable is None and events:
                    break  # hand out what is good; the next poll says what is wrong with this one
                if self._unopenable is None:
                    raise
                self._unopenable(delivery.position, error)
            self._inbox.mail.passed(found)
        return events


def _place_named(given: str | int | Position | datetime) -> str:
    """A place in a mailbox, as `log.mailbox` reads it."""
    if isinstance(given, bool):
        raise Misuse(f"{given!r} is no place in a mailbox")
    return given.isoformat() if isinstance(given, datetime) else str(given)
