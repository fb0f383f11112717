"""The subscriber's side of the path: its mailboxes, opened with its own keys, from its own durable cursor.

    poll() or iteration         events, in order; the cursor stays
    poll_arrow(), to_arrow()    the same, in columns
    reject(event, why)          it cannot be processed: put aside as a dead letter, so that reading goes on
    ack()                       everything handed out so far is done with: durable, and never handed out again
    group=NAME                  several processes share the mailbox: each event goes to one of them (`group.py`)

Between the two a crash means that events are handed out once more after a restart, never that one is lost. What is
handed out was opened and verified: the publisher's signature, for this topic, over this event. How it is opened is the
protection's business (`protections.port`). Deliveries of one piece are opened together, so many at a time that memory
stays bounded.

Some deliveries are passed over, and counted (`dropped`):

    poisoned      signed by its publisher, and it will never open
    misrouted     it opens, and none of the subscriber's own filters is true of it, where it can tell
    repeated      it was handed out before, or nobody remembers whether it was (`log.had`)
    missed        it was removed before it was read: by the topic's retention, or because it was to be forgotten

What a broker above removed before the next one took it, no broker can say whom it was for. Everyone who reads below is
told how much that was (`perhaps_missed`).
"""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Callable, Iterator
from dataclasses import field
from datetime import datetime
from itertools import compress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from sealcast.errors import CannotOpen, Misuse, Poisoned, Rejected, SealcastError, Unavailable
from sealcast.log.closing import Closing
from sealcast.log.dead_letters import DeadLetter, DeadLetters
from sealcast.log.had import Had
from sealcast.log.mailbox import Part
from sealcast.log.reading import ReadingClaim
from sealcast.model.dataclass import dataclass
from sealcast.model.event import OpenedEvent, Position
from sealcast.primitives.secrets import Unpicklable
from sealcast.protections.opened import OpenedBatch, OpenedPart
from sealcast.protections.port import DEFAULT_KEY_MEMORY, Ask, Measured, Reader, client_side
from sealcast.protections.stays import FoundPart, Place
from sealcast.trust.handles import EntityRealm
from sealcast.trust.heads import Head, Pin
from sealcast.trust.realm.changes import Right
from sealcast.trust.realm.state import RealmState
from sealcast.wire.handed import columns_of

if TYPE_CHECKING:
    from sealcast.clients.group import GroupMember
    from sealcast.telemetry.traces import Traces

EVENTS_PER_POLL: Final = 1_000
#: In columns, where more of them together cost less each.
ROWS_PER_POLL: Final = 16_384
#: What one poll holds of sealed events; the last one may go beyond. Opened, they take a few times as much.
BYTES_PER_POLL: Final = 32 << 20
#: How long a member of a group waits for mail before it looks whether a share came to it.
GROUP_LOOKS_S: Final = 0.2
#: Misrouted events that are kept until they are reported.
MISROUTED_KEPT: Final = 8


@dataclass(slots=True)
class DroppedEvents:
    """Deliveries that a subscriber passed over, and why."""

    #: By publisher.
    poisoned: Counter[str] = field(default_factory=Counter)
    misrouted: int = 0
    repeated: int = 0
    missed: int = 0
    #: At most so many more, which no broker can tell.
    perhaps_missed: int = 0

    def __bool__(self) -> bool:
        return bool(self.poisoned or self.misrouted or self.repeated or self.missed or self.perhaps_missed)


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
        traces: Traces | None = None,
        group: str | None = None,
        peek: bool = False,
        dead_letters: bool = False,
    ) -> None:
        """Starts at the durable cursor, or at `from_` (see `log.mailbox`), which leaves the cursor where it is. Ends
        before what was committed at `until_us` or later. With a `broker` that is not its home it moves there, and goes
        on where it was.

        Processes that name the same `group` share the mailbox, each with a part of the publishers. The group goes on
        where it is; `from_` says where a new one begins. Without a group, a mailbox has one reading process at a time:
        Locked names it. With `peek` it looks on from the cursor, whoever else reads, and does not acknowledge.

        An event that does not open stops the reader with CannotOpen, unless `unopenable` takes the report of it, or
        `dead_letters` puts it aside. One that never will, by its publisher's doing, is passed over in any case. Keys
        that come with events take at most `key_memory` bytes; those that it has let go, it asks for by `ask`, the way
        to the broker's desk, or looks for in the ledger again. With `traces` (`sealcast.telemetry.traces`), opening a
        traced event is a span of its trace.
        """
        self.realm = realm if isinstance(realm, EntityRealm) else EntityRealm(realm)
        self.topic = topic
        self.name = as_
        self._until_us = until_us
        self._unopenable = unopenable
        #: What was put aside.
        self.letters = DeadLetters(self.realm.paths.topic(topic).dead_letters(as_))
        self._buries = dead_letters
        self._traces = traces
        side = client_side(self._current().topic(topic).protection)
        self._inbox = side.inbox(Reader(self.realm, topic, as_, broker, ask, key_memory))
        self._hold_to_what_brokers_saw()
        #: What was passed over so far.
        self.dropped = DroppedEvents()
        #: Of those that were misrouted, how many were reported; and the last of those that were not.
        self.reported = 0
        self._misrouted: deque[OpenedEvent] = deque(maxlen=MISROUTED_KEPT)
        if from_ is not None:
            self._inbox.mail.locate(_place_named(from_))
        self._peeks, self._claims = peek, from_ is None and not peek
        self._claim: ReadingClaim | None = None
        self._group: GroupMember | None = None
        if group is not None:
            self._group = self._joined(group, new=from_ is not None)
        #: What must not be handed out again: what was acknowledged, unless that is asked for, and what came since.
        self._had = self._inbox.mail.had() if from_ is None else Had()
        #: What came since, and was not acknowledged: up to places that somebody may acknowledge, and after them.
        self._marks: list[tuple[Place, Had]] = []
        self._new = Had()

    def _hold_to_what_brokers_saw(self) -> None:
        """The registry must have the history that the brokers of this mailbox signed their ledgers on."""
        for where, (version, chain) in self._inbox.mail.heads():
            if isinstance(where, str) and version > self.realm.registry.version():
                continue  # the broker is ahead of a registry that is served from elsewhere, and may be late
            seen = Pin(Path(where), f"{self.name!r}, by {where},", may_go=isinstance(where, Path))
            self.realm.registry.hold_to(Head(version, chain), seen)

    def poll(self, max_events: int = EVENTS_PER_POLL, timeout: float = 0.0) -> list[OpenedEvent]:
        """The next events, at most so many; waits up to `timeout` seconds for the first, and may return none."""
        return [event for opened in self._polled(max_events, timeout) for event in opened.events()]

    def poll_arrow(self, max_events: int = ROWS_PER_POLL, timeout: float = 0.0) -> pa.Table:
        """`poll` in columns (`wire.handed`): for many events, at a fraction of what each would cost."""
        batches = [opened.arrow() for opened in self._polled(max_events, timeout)]
        return pa.Table.from_batches(batches, self._columns())

    def to_arrow(self) -> pa.RecordBatchReader:
        """Everything that is there by now, in columns, read as it is asked for. `ack` covers what was read so far."""
        return pa.RecordBatchReader.from_batches(self._columns(), self._batches())

    def __iter__(self) -> Iterator[OpenedEvent]:
        """Everything that is there by now."""
        while events := self.poll():
            yield from events

    def follow(self, stop: Callable[[], bool] = lambda: False) -> Iterator[OpenedEvent]:
        """Everything, and then every event as it is delivered, until `stop` says so."""
        while not stop():
            yield from self.poll(timeout=1.0)

    def between(self, first: int, end: int) -> Iterator[pa.RecordBatch]:
        """What the records `first` to before `end` of its broker's ledger hold for it, in columns: for a reader that
        keeps its place itself. It may ask for the same once more, so nothing is taken for repeated here."""
        self._current()
        for found in self._inbox.mail.between(first, end):
            done = 0
            while done < len(found.part):
                some = found.cut(done, found.part.reach(done, ROWS_PER_POLL, BYTES_PER_POLL))
                opened, passed, error = self._opened(some, stops=True)
                if len(opened):
                    yield opened.arrow()
                if error is not None:
                    raise error
                done += passed

    @property
    def handed_out(self) -> Place | None:
        """How far events were handed out and not acknowledged: how far `ack` goes, now or later."""
        place = self._inbox.mail.handed_out
        if place is not None and self._new:
            self._marks.append((place, self._new))
            self._new = Had()
        return place

    def ack(self, upto: Place | None = None) -> None:
        """Durably done with everything that was handed out so far, or up to what was `handed_out` before."""
        if self._peeks:
            raise Misuse("whoever peeks does not acknowledge", hint="read without peek=True")
        if self._group is not None:
            if upto is not None:
                raise Misuse("a member of a group acknowledges all that it was handed: leave `upto` away")
            self._group.acknowledge()
            self._report()
            return
        self._claimed()
        done, left = Had(), list[tuple[Place, Had]]()
        for place, had in [*self._marks, ({}, self._new)] if upto is None else self._marks:
            if upto is None or all(key in upto and cursor <= upto[key] for key, cursor in place.items()):
                done.take(had)
            else:
                left.append((place, had))
        self._inbox.mail.acknowledge(upto, done, self.realm.registry.head())
        self._report()
        self._marks, self._new = left, Had() if upto is None else self._new

    def reject(self, event: OpenedEvent, why: str) -> None:
        """Puts an event aside that cannot be processed, durably: `sealcast dead-letters` lists and replays it. It is
        acknowledged like any other, with the next `ack`."""
        where = (event.publisher, event.boot.hex(), event.sequence)
        self.letters.add(DeadLetter(str(event.position), self.realm.clock(), "rejected", why, *where))

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
        if self._group is not None:
            self._group.close()
        if self._claim is not None:
            self._claim.close()
        self._inbox.close()

    # --- inside -------------------------------------------------------------------------------------

    def _report(self) -> None:
        """Tells whoever should know of misrouted events that it has not told of yet. What keeps it from that is tried
        again with the next acknowledgement, and is no reason not to go on."""
        count = self.dropped.misrouted - self.reported
        if not count:
            return
        try:
            self._inbox.report(list(self._misrouted), count)
        except (Unavailable, Rejected):
            return
        self.reported = self.dropped.misrouted
        self._misrouted.clear()

    def _current(self) -> RealmState:
        """The newest registry. Reading obeys the rights of now, also for what was delivered before."""
        state = self.realm.state()
        state.require(Right.SUBSCRIBE, self.topic, self.name, self.realm.clock())
        return state

    def _columns(self) -> pa.Schema:
        return columns_of(self.realm.state().topic(self.topic).schema)

    def _batches(self) -> Iterator[pa.RecordBatch]:
        while (table := self.poll_arrow()).num_rows:
            yield from table.to_batches()

    def _polled(self, max_events: int, timeout: float) -> list[OpenedBatch]:
        deadline = time.monotonic() + timeout
        while True:
            self._inbox.look(self._current())
            if self._claims:
                self._claimed()
            if self._group is not None:
                self._group.turn()
            taken = self._take(max_events) if self._group is None or self._group else []
            self.dropped.missed = self._inbox.mail.missed
            self.dropped.perhaps_missed = self._inbox.mail.perhaps_missed
            left = deadline - time.monotonic()
            if taken or left <= 0:
                return taken
            # Whoever takes part in a group looks up now and then: a share may have come to it.
            self._inbox.mail.wait(left if self._group is None else min(left, GROUP_LOOKS_S))

    def _take(self, max_events: int) -> list[OpenedBatch]:
        taken, events, size = list[OpenedBatch](), 0, 0
        for whole in self._inbox.mail.parts():
            found = whole if self._group is None else self._group.own(whole)
            part, done = found.part, 0
            if self._until_us is not None and part.committed_us >= self._until_us:
                break
            while done < len(part):
                if events >= max_events or size >= BYTES_PER_POLL:
                    return taken
                some = found.cut(done, part.reach(done, max_events - events, BYTES_PER_POLL))
                opened, passed, error = self._opened(some, stops=self._unopenable is None and not self._buries)
                opened = self._new_ones(opened, part.late, again=part.again)
                self._passed(some, passed)
                if len(opened):
                    taken.append(opened)
                if error is not None and not taken:
                    raise error
                if error is not None:
                    return taken  # hand out what is good; the next poll says what is wrong with this one
                events, size, done = events + len(opened), size + opened.nbytes, done + passed
            self._passed(whole, len(whole.part))
        return taken

    def _passed(self, found: FoundPart[Any], rows: int) -> None:
        """Done with the first rows of a part."""
        self._inbox.mail.passed_part(found, rows)
        if self._group is not None and rows:
            self._group.passed(found.stay, found.part.after(rows))

    def _claimed(self) -> None:
        """Nobody else moves this cursor, as long as this is open: Locked otherwise."""
        if self._claim is None and self._group is None:
            self._claim = ReadingClaim(self._claim_file(), shared=False)

    def _claim_file(self) -> Path:
        return self.realm.paths.topic(self.topic).cursors / f"{self.name}.reading"

    def _joined(self, group: str, *, new: bool) -> GroupMember:
        from sealcast.clients.group import GroupMember

        self._claims, self._claim = False, ReadingClaim(self._claim_file(), shared=True)
        signer = self.realm.identity(self.name).signer
        return GroupMember(self.realm, self.topic, self.name, group, self._inbox.mail, signer, new=new)

    def _opened(self, found: FoundPart[Any], *, stops: bool) -> tuple[OpenedBatch, int, CannotOpen | None]:
        """Opens the first deliveries of a part: the events that a reader hands out, how many deliveries it is done
        with, and what stops it there, if one that does not open `stops` it."""
        began = time.time_ns()
        tried = self._inbox.open(found)
        # What will never open is passed over in any case.
        errors = ((row, error) for row, error in tried.refused.items() if stops and not isinstance(error, Poisoned))
        passed, error = next(errors, (tried.tried, None))
        opened = tried.before(passed)
        if self._traces is not None:
            self._traces.opened(self.topic, opened.contexts(), began)
        self._report_refused(found.part, tried, passed)
        unwanted = self._inbox.unwanted(opened)
        if unwanted:
            self.dropped.misrouted += len(unwanted)
            self._misrouted += opened.take(np.array(unwanted[-MISROUTED_KEPT:], np.int64)).events()
            opened = opened.take(np.delete(np.arange(len(opened)), unwanted))
        return opened, passed, error

    def _report_refused(self, part: Part[Any], tried: OpenedPart, end: int) -> None:
        """Counts and tells of those before a row that were refused."""
        for row, error in tried.refused.items():
            if row >= end:
                break
            if isinstance(error, Poisoned):
                self.dropped.poisoned[error.publisher] += 1
            if self._buries:
                place, whose = str(part.piece.position(part.events[row])), getattr(error, "publisher", None)
                self.letters.add(DeadLetter(place, self.realm.clock(), error.code, error.message, whose))
            if self._unopenable is not None:
                self._unopenable(part.piece.position(part.events[row]), error)

    def _new_ones(self, opened: OpenedBatch, late: bool, *, again: bool) -> OpenedBatch:
        """Those that were not handed out before; `again` says that some may have been, by nobody's fault. What comes
        late, for a new filter, may be older than anybody remembers: then its broker's word counts."""
        admitted = list[bool]()
        for first, numbers in opened.frames():
            if self._group is not None:
                fresh = self._group.admit(first, numbers, late=late)
            else:
                fresh = self._had.admit(first, numbers, late=late)
                self._new.add_all(first, numbers if all(fresh) else list(compress(numbers, fresh)))
            admitted += fresh
        repeated = admitted.count(False)
        self.dropped.repeated += 0 if again else repeated
        return opened.take(np.flatnonzero(admitted)) if repeated else opened


def _place_named(given: str | int | Position | datetime) -> str:
    """A place in a mailbox, as `log.mailbox` reads it."""
    if isinstance(given, bool):
        raise Misuse(f"{given!r} is not a valid start position. Use a number, an event, a datetime or a text.")
    return given.isoformat() if isinstance(given, datetime) else str(given)
