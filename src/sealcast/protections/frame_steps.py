"""Steps that read a broker's frame log. How frames are admitted is the same for all; the piece is the protection's.

    in the driver    the windows of replay, as the batches before have left them (`FramesStep.tasks`, `took`)
    in a worker      frames --authenticate, rule--> rulings --admit, ...--> pieces (`read`, `make`)

`MatchingStep` goes on as every broker does that matches events with filters of the registry: match, group, seal,
deliver (broker/path.py). A protection gives it its own sealing, and its own index where brokers do not read.
"""

from __future__ import annotations

import time
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import replace
from functools import cache, cached_property
from itertools import chain, islice
from secrets import token_bytes
from types import MappingProxyType
from typing import Final

import numpy as np
import pyarrow as pa

from sealcast.broker.authenticate import authenticate
from sealcast.broker.columns import PIECES, REJECTED, TAKEN, piece_row
from sealcast.broker.context import Context, Sealing, by_version, gate_at
from sealcast.broker.copies import FramesAnywhere, copies_of, needed
from sealcast.broker.equivocation import equivocations
from sealcast.broker.filter_conditions import OpenedFilters
from sealcast.broker.frames import HeldFrames, frames_of
from sealcast.broker.gate import RULING, Gate, Rulings, bounds_of
from sealcast.broker.history import History, RefusingPiece
from sealcast.broker.kept_windows import KeptWindows
from sealcast.broker.looks import Looks
from sealcast.broker.path import handle_bounded, room
from sealcast.broker.replay import CLAIM, Windows
from sealcast.broker.rulings import Span as Range
from sealcast.broker.rulings import gathered, pack_taken, rule, rule_part
from sealcast.broker.snapshots import SealedSnapshots
from sealcast.broker.tables import FilterIndexes, Indexing, TableCache
from sealcast.errors import Bug, Corrupt
from sealcast.log.carried import CarriedLog
from sealcast.log.entry import Entry, slot_bits
from sealcast.log.equivocations import Equivocations
from sealcast.log.forwarded import BrokerTopic
from sealcast.log.ledger import Committed
from sealcast.log.offsets import Arrival, PinnedOffset
from sealcast.model.rejection import Reason
from sealcast.model.stages import Received
from sealcast.primitives.secrets import Secret
from sealcast.primitives.sign import VerifyKey
from sealcast.protections.past import AskedPast, PastMatching, ReadPast
from sealcast.protections.port import broker_side
from sealcast.protections.steps import FRAMES, EmptiedPiece, OpenStep, Span, Task
from sealcast.trust.handles import BrokerRealm
from sealcast.trust.heads import Head, Pin
from sealcast.trust.keys.broker import BrokerSecrets
from sealcast.trust.keys.filter_texts import BrokerFilters
from sealcast.trust.layout import FIRST_BROKER
from sealcast.trust.realm.changes import BeginIncarnation
from sealcast.trust.realm.machine import RealmState, Topic
from sealcast.trust.realm.rules.topics import INCARNATION_BYTES
from sealcast.trust.shared_windows import windows_of
from sealcast.trust.tokens.token import VerifiedTokens
from sealcast.wire import sealed
from sealcast.wire.emptied import emptied
from sealcast.wire.sealed import SealedPiece

#: Records of a ledger after which it is noted that there was nothing in them, so that nobody looks again.
_NOTED_EVERY: Final = 4_096
#: Spans whose sizes are remembered.
_SIZED: Final = 64


class FramesStep(OpenStep):
    """A step that reads frames. It is pinned to a version of the registry."""

    step = FRAMES
    max_bytes = 64 << 20
    #: Starting a task costs as much as handling that many bytes.
    min_task_bytes = 512 << 10
    #: Records of the ledger that were looked through for equivocations; None before the first look.
    _looked_through: int | None = None
    #: Sizes of spans that were planned last. Whoever divides a batch asks again for what was asked to plan it.
    _sized: Mapping[tuple[int, int, int], list[int]] = MappingProxyType({})

    @abstractmethod
    def parse(self, data: bytes) -> RefusingPiece:
        """A piece that this step made."""

    @abstractmethod
    def make(self, pinned: Mapping[str, int], rulings: Rulings, frames: HeldFrames) -> Iterator[pa.RecordBatch]:
        """In a worker: the pieces of frames that were ruled on, as rows of PIECES."""

    def stands_alone(self, piece: RefusingPiece) -> bool:
        """Whether nobody needs the frames that a piece was made of: what can be sealed again after a compromise can be
        without them. Where nothing can be, frames are of no use for it."""
        return True

    @cached_property
    def _looks(self) -> Looks:
        return Looks()

    @cached_property
    def secrets(self) -> BrokerSecrets:
        return self.realm.broker(self.name.broker)

    @cached_property
    def journal_key(self) -> Secret:
        return self.secrets.journal_key(self.about.id)

    @cached_property
    def gate(self) -> Callable[[int], Gate]:
        """For admission alone: no table is compiled for it."""
        tokens = VerifiedTokens()  # which tokens were signed does not change with the version

        def load(version: int) -> Gate:
            state = self.realm.state_at(self.name.broker, version)
            self.realm.trust(state)  # the root is the one that this realm was made with
            topic = state.topic(self.name.topic)
            return gate_at(state, topic, self.secrets, tokens, broker_side(topic.protection).unfit)

        return by_version(load)

    @cached_property
    def frames(self) -> BrokerTopic:
        """The frame log. Publishers may not have been here yet: then it is made, empty."""
        self.realm.frames(self.name.topic, self.name.broker).close()
        return self.realm.frames(self.name.topic, self.name.broker, read_only=True)

    def history(self, version: int | None = None) -> History:
        """What the ledger says of replay, by the bounds of a version; without one, by those that this process knows."""
        bounds = bounds_of(self.about) if version is None else self.gate(version).bounds
        return History(self.ledger, self.pieces, self.frames, bounds, self.parse)

    @cached_property
    def kept_windows(self) -> KeptWindows:
        shared = windows_of(self.realm.registry.address, self.about.id, self.name.broker)
        return KeptWindows(self.paths.windows, self.journal_key, shared)

    def prepare(self) -> None:
        super().prepare()
        self.note_equivocations()

    def note_equivocations(self) -> None:
        """Keeps what batches since the last look show of publishers that signed two things for one number."""
        kept, end = Equivocations(self.paths.root, self.journal_key), self.ledger.end()
        with closing(kept):
            begin = self._looked_through if self._looked_through is not None else kept.through()
            entries = [c.entry for c in self.ledger.entries(begin) if c.entry.counts.get(REJECTED[Reason.REPLAY])]
            known, history = self.realm.state().entities, self.history()
            found = [
                pair
                for entry in entries
                for pair in equivocations(
                    entry, self.pieces, self.parse, self.frames, history, lambda name: VerifyKey(known[name].verify_key)
                )
            ]
            if entries or end - begin >= _NOTED_EVERY:
                kept.add(found, end)
        self._looked_through = end

    @property
    def initial(self) -> PinnedOffset:
        return PinnedOffset.initial(self.about.partitions)

    def available(self) -> tuple[int, ...]:
        now = time.time_ns() // 1000
        ends = tuple(self.frames.partition(p).end() for p in range(self.frames.partitions))
        self._looks.saw(ends, now)
        return ends

    def sizes(self, partition: int, first: int, end: int, most: int | None = None) -> list[int]:
        # Of a batch that is in the ledger already, and comes again because Spark did not note it, frames may be gone.
        key, log = (partition, first, end), self.frames.partition(partition)
        if key not in self._sized or most is not None:
            kept = max(first, min(end, log.start()))
            found = [0] * (kept - first) + (log.sizes(kept, end, most) if kept < end else [])
            self._sized = {(partition, first, first + len(found)): found, **dict(islice(self._sized.items(), _SIZED))}
            return found
        return self._sized[key]

    def version(self) -> int:
        return self.realm.registry.version()

    def settled(self, ends: tuple[int, ...]) -> int:
        return self._looks.last_before(ends)

    def pinned(self, start: PinnedOffset, ends: tuple[int, ...], now_us: int) -> PinnedOffset:
        self._looks.forget(start.partitions)
        return super().pinned(start, ends, now_us)

    def tasks(
        self, divided: Sequence[tuple[Span, ...]], start: PinnedOffset, end: PinnedOffset, last: Committed | None
    ) -> list[Task]:
        if not divided:
            return []
        windows = self.kept_windows.after(last, self.history(end.version))
        batch, each = tuple(start.ranges(end)), self.about.partitions
        packed = cache(lambda lanes: windows.of_lanes(lanes, each).pack())
        late = ((s.partition, s.first, s.end) for s in chain.from_iterable(divided) if s.retained is not None)
        told = copies_of(self.frames, (*batch, *late), self._published)
        return [
            Task(spans, batch, packed(lanes := _lanes(spans, each)), needed(told, _partitions(spans), lanes, each))
            for spans in divided
        ]

    def _published(self, partition: int) -> CarriedLog | None:
        """A partition of another broker's, where it was published; None where workers cannot read it there, or need
        not: a broker whose own frames are in its directory shares that with them."""
        state, topic = self.realm.state(), self.name.topic
        if (topic, self.name.broker) not in state.carried:
            return None
        origin, number = divmod(partition, self.about.partitions)
        return self.realm.carriers.published(state, topic, state.brokers()[origin], number)

    def warm(self) -> None:
        self.kept_windows.after(self.ledger.newest(), self.history(self.version()))

    def took(self, last: Committed | None, entry: Entry, taken: Sequence[bytes]) -> None:
        self.kept_windows.took(last, entry, taken, self.history(entry.version))

    def read(self, task: Task) -> Iterator[pa.RecordBatch]:
        log = FramesAnywhere(self.frames, task.copies, self._published) if task.copies else self.frames
        pinned, frames = task.spans[0].batch_end.pinned, HeldFrames(log)
        rulings, taken = self._ruled(task, frames)
        late = [(span.partition, span.first, span.retained) for span in task.spans if span.retained is not None]
        for made in self.make(pinned, np.concatenate([np.array(late, RULING), rulings]), frames):
            # Its first piece says it for all of the task: without a frame there is neither.
            at = made.schema.get_field_index(TAKEN)
            yield made.set_column(at, PIECES.field(at), pa.array([taken, *[None] * (len(made) - 1)], pa.binary()))
            taken = None

    def _ruled(self, task: Task, frames: HeldFrames) -> tuple[Rulings, bytes | None]:
        """Rulings on a task's own frames, and what replay took of them."""
        spans = [(span.partition, span.first, span.end) for span in task.spans if span.retained is None]
        if not spans:
            return np.empty(0, RULING), None
        end, each = task.spans[0].batch_end, self.about.partitions
        gate, arrival = self.gate(end.version), Arrival(end.since_us, end.time_us)
        asked, refused = [np.empty(0, CLAIM)], [np.empty(0, RULING)]
        for span in spans:
            for received in gathered(span[0], frames.first(*span), arrival):
                for parts, found in zip((asked, refused), authenticate(received, gate), strict=True):
                    parts.append(found)
        lanes = _lanes(task.spans, each)
        beside = [span for whole in task.batch if whole[0] % each in lanes for span in _without(whole, spans)]

        def others() -> Iterator[Received]:
            for span in beside:
                yield from gathered(span[0], frames.read(*span), arrival)

        claims = np.concatenate(asked)
        verdicts = rule_part(Windows.unpack(task.windows, gate.bounds), claims, others, gate)
        return np.concatenate([*refused, rule(claims, verdicts)]), pack_taken(claims, verdicts)

    def ends(self) -> tuple[int, ...]:
        with self.realm.frames(self.name.topic, self.name.broker) as log:
            return tuple(log.partition(number).end() for number in range(log.partitions))

    def chain(self, version: int) -> bytes:
        return self.realm.registry.chain_at(version)

    def check_history(self) -> None:
        last = self.ledger.last_span()
        if last is not None and last.chain:
            seen = Pin(self.paths.ledger, f"the ledger of broker {self.name.broker!r}", may_go=False)
            self.realm.registry.hold_to(Head(last.version, last.chain), seen)

    def outdated(self, version: int) -> Corrupt:
        return Corrupt(
            f"{self.realm.registry.address} is at version {self.version()}, but the last batch was made under version "
            f"{version}: its newest changes were lost, or an old copy was put back",
            hint="restore the newest copy: subscriptions, rights or revocations are missing from this one",
        )

    def shortened(self, partition: int, done: int, end: int) -> Corrupt:
        return Corrupt(
            f"{self.frames.partition(partition).shown} has {end} frames, but the ledger has delivered {done}: "
            "frames were removed, or an old copy was put back",
            hint="restore frames and ledger from one copy, the newest, or make a new topic: what is published here "
            "now would take the places of events that the ledger has delivered",
        )


class MatchingStep(FramesStep):
    """The one step of a broker that matches events with filters of the registry: from frames to sealed pieces."""

    def parse(self, data: bytes) -> SealedPiece:
        return sealed.parse(data)

    def emptied(self, data: bytes, version: int) -> EmptiedPiece:
        piece = self.parse(data)
        counts = np.diff(np.asarray(piece.mailbox_start, np.int64)).tolist()
        return EmptiedPiece(
            sealed.encode(emptied(piece, version)), dict(zip(piece.slots.tolist(), counts, strict=True))
        )

    def stands_alone(self, piece: RefusingPiece) -> bool:
        # What publishers sealed for readers no broker opens: it takes the message as it was shown to brokers.
        return isinstance(piece, SealedPiece) and not np.any(np.asarray(piece.key_kind) == sealed.TOPIC)

    @classmethod
    def brokers(cls, realm: BrokerRealm, state: RealmState, topic: str, here: Sequence[str]) -> list[str]:
        serving = state.serving(topic)
        return [broker for broker in here if broker == FIRST_BROKER or broker in serving]

    #: What the keys of this process's run depend on; None before it has begun.
    _begun: bytes | None = None
    #: How a run of this process left off: its incarnation, and how the ledger ended.
    _left: tuple[bytes, int, bytes] | None = None

    def begin(self, continues: bytes = b"") -> None:
        """Draws an incarnation and has the registry know it. Events are sealed under their positions, and this run may
        go on from a directory that was lost or put back from a copy: positions come again, keys never."""
        if continues and continues == self.incarnation(self.version()):
            self._begun = continues
            return
        drawn = token_bytes(INCARNATION_BYTES)
        self.realm.registry.apply(BeginIncarnation(self.name.topic, self.name.broker, drawn))
        self._begun = drawn

    @contextmanager
    def going_on(self) -> Iterator[bytes]:
        """A run of this process, which holds the ledger: what it may continue with, or nothing.

        Only this process's memory says so, which nobody puts back from a copy; and only after a run that ended well,
        so that all it sealed is in the ledger, while the ledger still ends there. Then no position comes again.
        """
        left, self._left = self._left, None
        continues = left[0] if left is not None and left == self._ending() else b""
        before, *_ = self._ending()
        yield continues
        after = self._ending()
        if after[0] != before or continues:
            self._left = after

    def _ending(self) -> tuple[bytes, int, bytes]:
        end = self.ledger.end()
        return self.incarnation(self.version()), end, self.ledger.at(end - 1).tag if end else b""

    def incarnation(self, version: int) -> bytes:
        """What the keys depend on that this broker seals with at a version."""
        return self.realm.state(version).incarnation(self.name.topic, self.name.broker)

    def pinned(self, start: PinnedOffset, ends: tuple[int, ...], now_us: int) -> PinnedOffset:
        at = super().pinned(start, ends, now_us)
        if self._begun is None:
            raise Bug("a batch was planned by a run that has not begun")
        if self.incarnation(at.version) != self._begun:
            raise Corrupt(
                f"the registry names another incarnation of broker {self.name.broker!r} on topic {self.name.topic!r} "
                "than this run began: nothing is sealed, or a nonce might be used twice",
                hint="is another pipeline running this topic? If not, the registry was altered: restore it, and run",
            )
        return at

    @abstractmethod
    def sealing(self, state: RealmState, topic: Topic) -> Sealing:
        """How events are sealed at this version."""

    def indexing(self) -> Indexing:
        """How filters are compiled, for as long as this process runs the step: as a broker does that reads them."""
        tables = self.realm.paths.tables(self.name.topic, self.name.broker)
        filters = OpenedFilters(BrokerFilters(self.secrets))
        return FilterIndexes(filters, SealedSnapshots(tables, self.secrets.tables_key(self.about.id)))

    def past(self, state: RealmState, asked: AskedPast, template: str) -> PastMatching:
        """How what was admitted once is matched with what a reader asks now, by its right: as a broker does that reads
        filters."""
        return ReadPast(asked, template)

    @cached_property
    def _context(self) -> Callable[[int], Context]:
        tables = TableCache(self.indexing(), self.name.broker)

        def load(version: int) -> Context:
            gate = self.gate(version)
            return Context(gate, tables.at(gate.state, gate.topic), self.sealing(gate.state, gate.topic))

        return by_version(load)

    def at(self, version: int, time_us: int | None = None) -> Context:
        """What a batch needs that is pinned to this version and time; without a time, for whoever has a token at
        all."""
        found = self._context(version)
        return found if time_us is None else replace(found, table=found.table.at(time_us))

    def make(self, pinned: Mapping[str, int], rulings: Rulings, frames: HeldFrames) -> Iterator[pa.RecordBatch]:
        at = self.at(pinned["version"], pinned["time"])
        for ruled in frames_of(rulings, frames, pinned, room(at.table)):
            for piece, suspended, traced in handle_bounded(ruled, at):
                data = sealed.encode(piece)
                at.sealing.made(piece, data)
                # A key that is handed out concerns its receiver as much as an event does.
                slots = slot_bits([*piece.slots.tolist(), *piece.handout_slot.tolist()])
                yield piece_row(self.name.broker, piece, data, pinned, slots, suspended=suspended, traced=traced)


def _lanes(spans: Iterable[Span], partitions: int) -> frozenset[int]:
    """In which partitions, of so many that each broker has, publishers of these frames may be."""
    return frozenset(span.partition % partitions for span in spans if span.retained is None)


def _partitions(spans: Iterable[Span]) -> frozenset[int]:
    return frozenset(span.partition for span in spans)


def _without(whole: Range, spans: Iterable[Range]) -> Iterator[Range]:
    """What is left of one span without others, which are in order."""
    partition, first, end = whole
    for other, begin, stop in spans:
        if other == partition:
            if first < begin:
                yield partition, first, begin
            first = max(first, stop)
    if first < end:
        yield partition, first, end
