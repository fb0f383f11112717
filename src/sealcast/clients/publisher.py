"""The publisher's side of the path: events are checked, sealed in frames, signed, and appended to the topic's log.

What `publish` returns is durable: it survives the loss of power, and the pipeline will take it from there. Events of
one publisher keep their order, because it always writes to the same partition.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING, Final

from sealcast.clients.intake import Given, taken
from sealcast.clients.intake import admissible as admissible
from sealcast.clients.lanes import Lane
from sealcast.clients.lanes import partition_of as partition_of
from sealcast.clients.unfinished import Made, Unfinished
from sealcast.control.wallet import Held, Wallet
from sealcast.errors import Busy, EventRejected, Misuse, Queued, SealcastError, Unavailable
from sealcast.log.closing import Closing
from sealcast.log.lane_log import Confirmation, LaneLog
from sealcast.model.bounded import bounded
from sealcast.model.dataclass import dataclass
from sealcast.model.event import Event, Position, Positions
from sealcast.model.schema import Schema
from sealcast.protections.checked import CheckedBatch
from sealcast.protections.frames import FrameSealer
from sealcast.protections.port import client_side
from sealcast.trust.handles import EntityRealm
from sealcast.trust.layout import FIRST_BROKER
from sealcast.trust.realm.changes import Right
from sealcast.trust.realm.machine import RealmState
from sealcast.trust.tokens import gates
from sealcast.wire.records import RecordCodec

if TYPE_CHECKING:
    from sealcast.telemetry.traces import Traces

#: Large enough to share a signature among many events, small enough not to keep the first one waiting.
EVENTS_PER_FRAME: Final = 1_000
BYTES_PER_FRAME: Final = 4 << 20
#: Frames that are made durable by one sync, at most; it also bounds what is in memory at a time.
BYTES_PER_APPEND: Final = 32 << 20
#: Frames that may wait in a publisher's partition before it is asked to wait, too: a pipeline that is down for a while
#: is no reason, one that does not keep up is.
MAX_WAITING: Final = 1_000_000
#: How often it is looked how many there are.
_LOOK_SECONDS: Final = 0.25


@dataclass(frozen=True, slots=True)
class PublishRefusal:
    """An event that was not published, by its index in what was given."""

    index: int
    error: EventRejected


@dataclass(frozen=True, slots=True)
class Published:
    """Where the admissible events went, in order, and which were none."""

    positions: Positions
    refusals: list[PublishRefusal]
    #: Admissible events that wait on this machine, because the gateway cannot be reached.
    queued: int = 0


class Publisher(Closing):
    """One entity publishing on one topic. Threads may share it. A child process that has it from its parent takes a new
    boot."""

    def __init__(
        self,
        realm: EntityRealm | str | Path,
        topic: str,
        as_: str,
        *,
        broker: str = FIRST_BROKER,
        max_waiting: int = MAX_WAITING,
        traces: Traces | None = None,
    ) -> None:
        """At one of the brokers that serve the topic: wherever one publishes, subscribers of all of them get it. On a
        topic with an overlay, at every root broker.

        With more than `max_waiting` frames in its partition that the pipeline has not taken yet, publishing is Busy.

        With `traces` (`sealcast.telemetry.traces`), each call of `publish` is a trace that brokers and subscribers may
        add to.
        """
        self.topic = topic
        self.name = as_
        self._broker = broker
        self._max_waiting = max_waiting
        self._traces = traces
        self._start(realm if isinstance(realm, EntityRealm) else EntityRealm(realm))

    def _start(self, realm: EntityRealm) -> None:
        """Opens everything that belongs to one process: files, locks, keys with their numbers."""
        self.realm = realm
        self._process = os.getpid()
        self._lock = threading.Lock()
        self._state: RealmState | None = None
        self._held: Held
        state = realm.state()
        state.require(Right.PUBLISH, self.topic, self.name)
        self._identity = realm.identity(self.name)
        self._wallet = Wallet(realm, self.name, identity=self._identity)
        self._way = client_side(state.topic(self.topic).protection).way(realm, self.topic, self._identity, self._broker)
        self._lanes: list[Lane] = []
        #: Whether too many frames wait, as far as is known, and when that was seen.
        self._is_full: bool | None = None
        self._looked = -_LOOK_SECONDS
        #: Of what was published last: events that wait on this machine.
        self._queued = 0
        #: The context of the trace that is published under now; empty where nobody traces.
        self._trace = b""
        #: The call before, if somebody did not answer in it.
        self._unfinished: Unfinished | None = None
        self._refresh()

    def _turn(self) -> threading.Lock:
        """What one thread at a time publishes under. After a fork, the child starts anew: what it has is its parent's,
        and under the same boot both would give the same numbers to different events."""
        if os.getpid() != self._process:
            self._start(self.realm.reopen())
        return self._lock

    @contextmanager
    def _publishing(self) -> Iterator[None]:
        """One turn, traced if somebody wants that."""
        with self._turn():
            if self._traces is None:
                yield
                return
            try:
                with self._traces.publishing(self.topic) as self._trace:
                    yield
            finally:
                self._trace = b""

    @property
    def partition(self) -> int:
        """Where it writes."""
        return self._lanes[0].partition

    @property
    def log(self) -> LaneLog:
        """What it writes to: for frames that `seal` made."""
        return self._lanes[0].log

    @property
    def directory(self) -> Path:
        """Where the log lies that it writes to; Misuse if that is on another machine."""
        return self.log.directory

    def publish(self, events: Given, *, readers: str = "") -> Positions:
        """All of them, durable on return; or none, and EventRejected names the first that the schema does not admit.

        Events, or a table of them: Arrow's or pandas', with a column for each attribute, and `payload` and
        `content_type` if there are any. A batch at a time is a great deal faster than one event at a time.

        Where they are in the topic's log. While a gateway cannot be reached, events wait on this machine, on disk: they
        have no place in the log yet, so there are fewer places. They are sent before any that come later (`flush`).

        Unavailable: a carrier, the registry or a gateway did not answer, and the events may be in the log all the same.
        Publish the same events again, with this publisher: they go as the same frames, and are delivered once
        (`unfinished`).

        `readers` is a filter over entities, by `name`: of those whose filters match, only whom it is true of can open
        these events. A protection that cannot narrow that refuses it.
        """
        with self._publishing():
            return self._append(self._all(events, readers), readers)

    def publish_one(self, event: Event) -> Position:
        """A frame of one; Queued when it waits on this machine, and so has no place yet."""
        positions = self.publish((event,))
        if not positions:
            raise Queued("the gateway cannot be reached: the event waits on this disk, and is sent when it can be")
        return positions[0]

    def publish_admissible(self, events: Given, *, readers: str = "") -> Published:
        """Those that the schema admits, durable on return; the others are named, with the reason."""
        with self._publishing():
            checked, refusals = self._checked(events, readers)
            positions = self._append(checked, readers)
            return Published(positions, refusals, self._queued)

    def seal(self, events: Given) -> list[bytes]:
        """The frames that `publish` would append: for somebody who appends them later, once, to `partition`."""
        with self._publishing():
            lacks = self.realm.state().topic(self.topic).protection.lacks
            if "spark-write" in lacks:
                raise Misuse(
                    f"frames of topic {self.topic!r} cannot be sealed now and appended later: {lacks['spark-write']}",
                    hint="publish its events by sealcast.Publisher, or sealcast pub",
                )
            return [frame for _, (frame,) in self._frames(self._all(events))]

    def frames_for_brokers(self, events: Given) -> list[tuple[str, bytes]]:
        """The frames that `publish` would append, each with the broker into whose log it belongs: for a carrier that
        brings them there, in this order. They are not in any log yet."""
        with self._publishing():
            made = [frames for _, frames in self._frames(self._all(events))]
            return [(lane.broker, frame) for frames in made for lane, frame in zip(self._lanes, frames, strict=True)]

    def flush(self) -> int:
        """Sends what waits on this machine, if the gateway can be reached; how many frames still wait."""
        with self._turn():
            return sum(lane.flush() for lane in self._lanes)

    def confirm(self) -> Confirmation:
        """Asks the brokers what became of the frames that a gateway acknowledged, as far as that was not confirmed
        before: found in the signed ledger, waiting for the pipeline, or lost. What was lost comes with the evidence:
        the gateway's receipt and the broker's word, both signed. Publish it again, by another gateway.

        Nothing stands between a publisher and a log on its own machine, so that there is nothing to ask about.
        """
        with self._turn():
            found = Confirmation()
            for lane in self._lanes:
                found.add(lane.confirm(partial(self._standing, lane.broker)))
            return found

    def _standing(self, broker: str, partition: int, frames: Sequence[tuple[int, bytes]]) -> tuple[list[str], bytes]:
        state, ask = self.realm.state(), self._wallet.correspondent.ask_broker
        place = (self.realm.id, state.topic(self.topic).id, broker)
        key = gates.verify_key_of(state, broker)
        from sealcast.control.standings import ask_standing

        said = ask_standing(partial(ask, broker), place, self.topic, partition, frames, key)
        return [str(each.standing) for each in said.told], said.evidence

    def close(self) -> None:
        self._wallet.close()
        for lane in self._lanes:
            lane.close()

    # --- inside -------------------------------------------------------------------------------------

    def _refresh(self) -> Schema:
        """Goes by the newest registry: a right that was taken away is noticed here, not silently at the broker."""
        state, now = self.realm.state(), self.realm.clock()
        state.require(Right.PUBLISH, self.topic, self.name, now)
        if state is not self._state or self._held.half_over(now):
            self._take(state)
        return state.topic(self.topic).schema

    def _take(self, state: RealmState) -> None:
        """Token and key from the wallet: a sealer goes on with a newer token, another epoch has another sealer."""
        about = state.topic(self.topic)
        held = self._wallet.get(self.topic, Right.PUBLISH, state)
        self._open(self._way.take(state, held.epoch), state)
        renewed = self._state is None or self._held.epoch != held.epoch or self._state.topic(self.topic) != about
        pair = self._wallet.pair_key(held) if renewed else None
        for lane in self._lanes:
            if pair is not None or lane.sealer is None:
                # A new sealer draws a new boot: its numbers and nonces share nothing with those before.
                lane.sealer = FrameSealer(
                    RecordCodec(about.schema),
                    about.id,
                    held.epoch,
                    self.name,
                    pair or self._wallet.pair_key(held),
                    self._identity.signer,
                    key_bits=about.parameters.key_bits,
                )
            lane.sealer.token = held.token
        self._state, self._held = state, held

    def _open(self, brokers: Sequence[str], state: RealmState) -> None:
        """A lane to each of them, and to no others, each to where its broker's log is now."""
        known = {lane.broker: lane for lane in self._lanes}
        for lane in self._lanes:
            lane.follow(state)
        self._lanes = [
            known.pop(broker) if broker in known else Lane(self.realm, self.topic, broker, self.name)
            for broker in brokers
        ]
        for gone in known.values():
            gone.close()

    def _checked(self, events: Given, readers: str = "") -> tuple[list[CheckedBatch], list[PublishRefusal]]:
        """By the newest registry: those that can go, and why the others cannot."""
        schema = self._refresh()
        self._check_readers(readers)
        batches, refusals, first = list[CheckedBatch](), list[PublishRefusal](), 0
        for count, batch, refused in taken(schema, events):
            if self._trace:
                batch = batch.traced(self._trace)
            unfit = self._way.check(batch)
            if unfit:
                # The batch has only those rows that the schema admits.
                left = [row for row in range(count) if row not in refused]
                refused |= {left[row]: error for row, error in unfit.items()}
                batch = batch.without(unfit)
            refusals += [PublishRefusal(first + row, error) for row, error in sorted(refused.items())]
            batches.append(batch)
            first += count
        return batches, refusals

    def _all(self, events: Given, readers: str = "") -> list[CheckedBatch]:
        """All of them, or EventRejected for the first that cannot go."""
        checked, refusals = self._checked(events, readers)
        for refusal in refusals:
            raise _at(refusal.index, refusal.error)
        return checked

    def waiting(self) -> int:
        """Frames in its partition that the pipeline has not taken yet; of several brokers, where most wait."""
        return max(lane.waiting() for lane in self._lanes)

    def _check_room(self) -> None:
        """Backpressure: what nobody takes out must not be put in without end."""
        if self._is_full is not False and (waiting := self._look()) >= self._max_waiting:
            raise Busy(
                f"topic {self.topic!r} has {waiting} frames waiting, {self._max_waiting} may; nothing was published",
                hint="try again a little later; is the pipeline running? sealcast run; how far is it? sealcast status",
            )

    def _look(self) -> int:
        """Sees how many frames wait."""
        waiting = self.waiting()
        self._is_full, self._looked = waiting >= self._max_waiting, time.monotonic()
        return waiting

    def _look_afterwards(self) -> None:
        """For the next time: while it looks, what was published is on its way. What cannot be asked now is asked
        then."""
        if time.monotonic() - self._looked >= _LOOK_SECONDS:
            self._is_full = None
            with suppress(SealcastError):
                self._look()

    def _check_readers(self, readers: str) -> None:
        if not readers:
            return
        protection = self.realm.state().topic(self.topic).protection
        if "readers" in protection.lacks:
            raise Misuse(
                f"who may open an event of topic {self.topic!r} cannot be narrowed: it is protected by "
                f"{protection.name!r}, and {protection.lacks['readers']}"
            )
        from sealcast.filters.readers import predicate

        predicate(readers)

    def _append(self, batches: Sequence[CheckedBatch], readers: str = "") -> Positions:
        self._check_room()
        sealed_by = (self._held.token, *(lane.sealer for lane in self._lanes))
        stale_after_s = self.realm.state().topic(self.topic).parameters.stale_after_s
        before, self._unfinished = self._unfinished, None
        if before is None or not before.is_repeated(batches, readers, sealed_by, stale_after_s):
            before = Unfinished(batches, readers, sealed_by)
        done, ended, self._queued = [*before.done], before.ended, before.queued
        made = chain(before.doubtful, self._frames(batches, readers, begin=ended + len(before.doubtful)))
        for some in bounded(made, lambda each: sum(map(len, each[1])), BYTES_PER_APPEND):
            try:
                done += self._appended(some)
            except Unavailable:  # also of the registry, which is asked after each append whether the log was moved
                self._unfinished = Unfinished(
                    batches, readers, sealed_by, done, ended, self._queued, some, since=before.since
                )
                raise
            ended += len(some)
        self._look_afterwards()
        return Positions(self.partition, done)

    def _appended(self, made: Sequence[Made]) -> Iterator[tuple[int, int]]:
        """Where they are now, by the first lane's log, the one that an event is named by: offset and count of each."""
        counts, frames = zip(*made, strict=True)
        offsets = [lane.append(own) for lane, own in zip(self._lanes, zip(*frames, strict=True), strict=True)]
        if offsets[0] is None:  # what waits on this machine has no place in the log yet
            self._queued += sum(counts)
            return iter(())
        return zip(offsets[0], counts, strict=True)

    def _frames(self, checked: Iterable[CheckedBatch], readers: str = "", begin: int = 0) -> Iterator[Made]:
        """Frames for neighbouring events, from the `begin`-th on: how many events, and a frame for each lane."""
        messages = chain.from_iterable(map(self._way.messages, _batches(checked)))
        for count, own in islice(messages, begin, None):
            now = time.time_ns() // 1000
            sealed = (lane.sealing.seal_messages(own[lane.broker], now, readers, self._trace) for lane in self._lanes)
            yield count, tuple(sealed)


def _at(index: int, error: EventRejected) -> EventRejected:
    return EventRejected(f"event {index}: {error.message}", attribute=error.attribute, hint=error.hint)


def _batches(checked: Iterable[CheckedBatch]) -> Iterator[CheckedBatch]:
    """A frame's worth each."""
    return chain.from_iterable(batch.parts(BYTES_PER_FRAME, EVENTS_PER_FRAME) for batch in checked)
