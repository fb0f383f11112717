"""The ledger checker: proves from the frame log, the registry and the ledger that a topic delivered what it should.

    the ledger    every record authentic, each following the one before, without a gap and without going back
    the pieces    those that were committed, byte for byte, and what the ledger says of them true
    deliveries    worked out again without the index (expected.py) and compared:
                    lost          should have been delivered, and was not, or does not open for its receiver
                    unexpected    was delivered, and should not have been
                    duplicated    was delivered to the same subscriber before
                    out of order  comes after a later event of the same partition, or of the same publisher

It needs the broker's secrets, since it opens frames: it is broker-side code. It needs no Spark.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import cache
from typing import Final

import numpy as np
from numpy.typing import NDArray

from sealcast.broker.gate import Codes, bounds_of
from sealcast.broker.history import History, believe
from sealcast.broker.replay import Windows
from sealcast.broker.rulings import received_of, rule_frames
from sealcast.errors import Corrupt, FrameRejected, NotFound, SealcastError
from sealcast.groupkeys.interface import KeyRef
from sealcast.log.embedded import EmbeddedLog
from sealcast.log.entry import Entry, PieceRef
from sealcast.log.ledger import GENESIS, Committed, LedgerReader
from sealcast.log.offsets import PinnedOffset
from sealcast.log.pieces import Pieces
from sealcast.log.reseals import Resealed
from sealcast.model.stages import FrameProof, Ruled
from sealcast.protections.endpoint import audit_ends, audit_piece
from sealcast.protections.endpoint.audit_keys import KeyAudit
from sealcast.protections.endpoint.audit_piece import Delivered, position
from sealcast.protections.endpoint.expected import Expectation, Expected
from sealcast.protections.endpoint.order import Order
from sealcast.protections.endpoint.sealer import EndpointSealer, sealer_of
from sealcast.trust.handles import BrokerRealm
from sealcast.trust.layout import FIRST_BROKER
from sealcast.trust.realm.machine import FIRST_EPOCH, RealmState
from sealcast.wire import sealed
from sealcast.wire.sealed import SealedPiece

#: Of each kind of problem, so many are described; all are counted.
MAX_DESCRIBED: Final = 20
#: Frames worked out again at a time where no piece says how many belong together.
_FRAMES_AT_A_TIME: Final = 256

#: What depends on who gets something, of all that is counted.
_DELIVERED: Final = {"matched", "deliveries", "encryptions"}

Ints = NDArray[np.int64]
Span = tuple[int, int, int]


class Kind(StrEnum):
    LOST = "lost"
    DUPLICATED = "duplicated"
    OUT_OF_ORDER = "out-of-order"
    UNEXPECTED = "unexpected"
    LEDGER = "ledger"
    PIECE = "piece"
    COUNTS = "counts"
    REFUSED = "refused"
    KEYS = "keys"
    LOG = "log"


@dataclass(frozen=True, slots=True)
class Problem:
    kind: Kind
    message: str


@dataclass(slots=True)
class Report:
    """What was checked and what was found."""

    topic: str
    batches: int = 0
    #: Events that were admitted, and deliveries that were made of them.
    events: int = 0
    deliveries: int = 0
    #: Frames that no batch has taken yet, and frames that retention has removed: nothing can be said of those.
    waiting: int = 0
    unchecked: int = 0
    found: dict[Kind, int] = field(default_factory=lambda: dict.fromkeys(Kind, 0))
    problems: list[Problem] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        return not any(self.found.values())

    def add(self, kind: Kind, message: str) -> None:
        if self.found[kind] < MAX_DESCRIBED:
            self.problems.append(Problem(kind, message))
        self.found[kind] += 1

    def as_json(self) -> dict[str, object]:
        return {
            "ok": self.ok,
            "batches": self.batches,
            "events": self.events,
            "deliveries": self.deliveries,
            "lost": self.found[Kind.LOST],
            "duplicated": self.found[Kind.DUPLICATED],
            "out_of_order": self.found[Kind.OUT_OF_ORDER],
            "unexpected": self.found[Kind.UNEXPECTED],
            "waiting_frames": self.waiting,
            "unchecked_frames": self.unchecked,
            "problems": [{"kind": str(p.kind), "message": p.message} for p in self.problems],
        }


class Audit:
    """One topic, from its first record to the last that is there when the audit begins."""

    def __init__(
        self, realm: BrokerRealm, topic: str, *, broker: str = FIRST_BROKER, by_reference: bool = False
    ) -> None:
        self._broker = realm.broker(broker)
        self._about = realm.state().topic(topic)
        self._paths = realm.paths.topic(topic, broker)
        self._log = realm.frames(topic, broker, read_only=True)
        self._journal_key = self._broker.journal_key(self._about.id)
        self._ledger = LedgerReader(self._paths.ledger, self._journal_key)
        self._pieces = Pieces(self._paths.pieces)
        self._expectation = Expectation(realm, topic, self._broker, by_reference=by_reference)
        self._order = Order(self._delivered_again)
        newest = realm.state()
        self._names = list(newest.slots_of(topic))
        # The newest version still has the keys of every epoch.
        self._keys = cache(lambda epoch: KeyAudit(self._sealer(newest, epoch)))
        bounds = bounds_of(self._about)
        self._history = History(self._ledger, self._pieces, self._log, bounds)
        self._windows = Windows(bounds)
        #: Of the batch at hand: the first frame of each partition, and the codes of the frames from there on.
        self._ruled: dict[int, tuple[int, Codes]] = {}
        self._blind = False
        self._time_us = 0
        #: A piece could not be read: what it handed out is unknown.
        self._lost_keys = False
        self.report = Report(topic)

    def frames(self) -> int:
        """How many frames the log has: what `run` reports progress in."""
        return sum(log.end() for log in self._partitions())

    def run(self, told: Callable[[int], None] = lambda frames: None) -> Report:
        """Check everything; `told` hears how many frames are done with."""
        last: Committed | None = None
        reached, end = PinnedOffset.initial(self._about.partitions), self._ledger.end()
        for index in range(end):
            committed = self._record(index, last)
            if committed is not None:
                self._batch(committed, reached, told)
                reached, last = committed.entry.end, committed
        self._check_ends(end, reached)
        self._ledger.close()
        self._log.close()
        return self.report

    def _check_ends(self, end: int, reached: PinnedOffset) -> None:
        """Whether the log and the ledger end where they should."""
        available = [log.end() for log in self._partitions()]
        taken = reached.partitions + (0,) * (len(available) - len(reached.partitions))
        for partition, (first, last) in enumerate(zip(taken, available, strict=False)):
            self.report.waiting += max(0, last - first)
            if first > last:
                text = f"the ledger has delivered {first} frames of partition {partition}, and the log has only {last}"
                self.report.add(Kind.LOG, text)
        slots = {name: slot for slot, name in enumerate(self._names)}
        for text in audit_ends.contradictions(self._paths, self._ledger, end, reached, slots, self._journal_key):
            self.report.add(Kind.LEDGER, text)

    # --- the ledger ---------------------------------------------------------------------------------

    def _record(self, index: int, last: Committed | None) -> Committed | None:
        """Authentic and following the last one that was; None when it cannot be read at all."""
        try:
            committed = self._ledger.at(index)
        except Corrupt as error:
            self.report.add(Kind.LEDGER, error.message)
            return None
        self.report.batches += 1
        before = last.tag if last is not None else GENESIS
        if committed.previous != before and committed.index == (last.index + 1 if last else 0):
            self.report.add(Kind.LEDGER, f"record {index} does not follow record {index - 1}: its chain is broken")
        return committed

    def _batch(self, committed: Committed, reached: PinnedOffset, told: Callable[[int], None]) -> None:
        entry, where = committed.entry, f"record {committed.index}"
        if entry.start != reached:
            self.report.add(Kind.LEDGER, f"{where} starts at {entry.start}, and the one before ended at {reached}")
        if entry.version > self._expectation.newest():
            self.report.add(Kind.LEDGER, f"{where} is pinned to version {entry.version}, which the registry lacks")
            return
        self._rule(entry, reached)
        counts: dict[str, int] = {}
        for ref in entry.pieces:
            piece = self._piece(ref, where)
            later = committed.resealed if ref not in committed.committed_pieces else None
            self._check(piece, ref, entry.version, where, later)
            for name, count in piece.counts.items() if piece is not None else ():
                counts[name] = counts.get(name, 0) + count
            told(ref.end - ref.first)
        for span in _uncovered(reached, entry.start, entry.end, entry.pieces):
            self._missing(span, entry.version, where)
        # Sealed again for fewer, they deliver less than the batch did; what was admitted and refused stays.
        said = set(counts.keys() | entry.counts.keys()) - (_DELIVERED if committed.resealed is not None else set())
        if any(counts.get(name, 0) != entry.counts.get(name, 0) for name in said):
            self.report.add(Kind.COUNTS, f"{where}: the counts of the batch are not the sums of its pieces'")

    def _rule(self, entry: Entry, reached: PinnedOffset) -> None:
        """Replay and rates of the whole batch, again. One that goes back is judged by itself: whether it delivered what
        others had delivered is for `_follow` to say."""
        self._time_us = entry.end.time_us
        forward, kept = entry.start.reaches(reached), {p: log.start() for p, log in enumerate(self._partitions())}
        began = reached if forward else entry.start
        spans = [(p, max(first, kept.get(p, end)), end) for p, first, end in began.ranges(entry.end)]
        self._blind = not self._history.knows(began.settled_us)
        try:
            codes = rule_frames(
                self._windows if forward else Windows(bounds_of(self._about)),
                self._log,
                [span for span in spans if span[1] < span[2]],
                self._expectation.at(entry.version).gate,
                entry.end.settled_us,
            )
        except SealcastError:
            codes = {}  # whoever needs these frames will meet the same, and say so
        self._ruled = {p: (first, codes[p]) for p, first, _ in spans if p in codes}

    def _missing(self, span: Span, version: int, where: str) -> None:
        partition, first, end = span
        self.report.add(Kind.LEDGER, f"{where}: frames {first} to {end - 1} of partition {partition} are in no piece")
        for start in range(first, end, _FRAMES_AT_A_TIME):
            expected = self._expected(partition, start, min(start + _FRAMES_AT_A_TIME, end), version, None)
            if expected is not None:
                self._lose(expected, partition, where)

    # --- a piece ------------------------------------------------------------------------------------

    def _piece(self, ref: PieceRef, where: str) -> SealedPiece | None:
        try:
            piece = sealed.parse(self._pieces.read(ref.name, ref.digest))
        except NotFound:
            self.report.add(Kind.PIECE, f"{where}: {ref.name} is gone")
        except Corrupt as error:
            self.report.add(Kind.PIECE, f"{where}: {error.message}")
        except FrameRejected as error:
            self.report.add(Kind.PIECE, f"{where}: {ref.name} is what was committed, and no piece: {error.message}")
        else:
            return piece
        return None

    def _check(
        self, piece: SealedPiece | None, ref: PieceRef, version: int, where: str, later: Resealed | None
    ) -> None:
        expected = self._expected(ref.partition, ref.first, ref.end, version, piece)
        if later is not None:
            expected = None if expected is None else self._expectation.of_those(expected, later.version, later.time_us)
            version = later.version
        if expected is not None:
            self.report.events += len(expected.admitted.messages)
        if piece is None:
            self._lost_keys = True
            if expected is not None:
                self._lose(expected, ref.partition, where)
            return
        delivered = Delivered.of(piece)
        self.report.deliveries += int(delivered.slot.size)
        where = f"{where}, {ref.name}"
        for text in self._misfits(piece, ref, version):
            self.report.add(Kind.PIECE, f"{where}: {text}")
        for text in audit_piece.contradictions(piece, ref, delivered):
            self.report.add(Kind.COUNTS, f"{where}: {text}")
        refs = self._take_keys(piece, delivered, expected, where)
        if expected is not None:
            self._compare(piece, delivered, expected, refs, where)
        proofs = piece.frames if expected is None else expected.admitted.frames
        self._follow(ref, delivered, proofs, where)

    def _misfits(self, piece: SealedPiece, ref: PieceRef, version: int) -> Iterator[str]:
        if (piece.partition, piece.first_offset, piece.end_offset) != (ref.partition, ref.first, ref.end):
            yield "it covers other frames than the ledger says"
        if piece.topic != self._about.id:
            yield "it belongs to another topic"
        if piece.version != version:
            yield f"it was made under version {piece.version}, its batch is pinned to {version}"

    def _take_keys(
        self, piece: SealedPiece, delivered: Delivered, expected: Expected | None, where: str
    ) -> dict[int, KeyRef]:
        """What the keys of a piece are; those that are not what they should be are left out."""
        beyond = delivered.slot.size and int(delivered.slot.max()) >= len(self._names)
        if beyond or not FIRST_EPOCH <= piece.epoch <= self._about.epoch:
            self._lost_keys = True
            return {}  # to a slot that nobody has, or in no epoch: said elsewhere, and there is no key to try
        keys = self._keys(piece.epoch)
        keys.blind |= self._lost_keys
        refs, problems = keys.take(piece, audit_piece.groups_of(piece, delivered, expected))
        for text in problems:
            self.report.add(Kind.KEYS, f"{where}: {text}")
        return refs

    def _sealer(self, state: RealmState, epoch: int) -> EndpointSealer:
        return sealer_of(state, replace(self._about, epoch=epoch), self._broker, lambda slot: self._names[slot])

    def _compare(
        self, piece: SealedPiece, delivered: Delivered, expected: Expected, refs: dict[int, KeyRef], where: str
    ) -> None:
        for text in audit_piece.refusals(piece, expected):
            self.report.add(Kind.REFUSED, f"{where}: {text}")
        difference = audit_piece.compare(delivered, expected)
        for slot, place in difference.lost:
            self.report.add(Kind.LOST, f"{where}: {self._named(piece.partition, place, slot)} was not delivered")
        for slot, place in difference.unexpected:
            text = f"{where}: {self._named(piece.partition, place, slot)} was delivered and should not have been"
            self.report.add(Kind.UNEXPECTED, text)
        if delivered.slot.size and int(delivered.slot.max()) >= len(self._names):
            return  # to a slot that nobody has: said above, and there is no key to try
        beyond = set(difference.unexpected)
        sealer = self._keys(piece.epoch).sealer
        for slot, place in audit_piece.unopenable(piece, delivered, expected, sealer, refs):
            if (slot, place) in beyond:
                continue
            text = f"{where}: {self._named(piece.partition, place, slot)} was delivered and does not open for it"
            self.report.add(Kind.LOST, text)

    def _follow(self, ref: PieceRef, delivered: Delivered, proofs: tuple[FrameProof, ...], where: str) -> None:
        late = self._order.take(ref, delivered, proofs)
        for slot, place in late.duplicated:
            text = f"{where}: {self._named(ref.partition, place, slot)} was delivered before"
            self.report.add(Kind.DUPLICATED, text)
        for slot, place in late.out_of_order:
            text = f"{where}: {self._named(ref.partition, place, slot)} comes after a later one"
            self.report.add(Kind.OUT_OF_ORDER, text)

    # --- what is needed for it ----------------------------------------------------------------------

    def _partitions(self) -> list[EmbeddedLog]:
        return [self._log.partition(number) for number in range(self._log.partitions)]

    def _expected(
        self, partition: int, first: int, end: int, version: int, piece: SealedPiece | None
    ) -> Expected | None:
        """What these frames should deliver; None when they cannot be read any more."""
        try:
            log = self._log.partition(partition)
            kept = max(first, min(log.start(), end))
            self.report.unchecked += kept - first
            records = list(log.read(kept, end)) if kept < end else []
        except SealcastError as error:
            self.report.add(Kind.LOG, error.message)
            return None
        if kept > first or not records:
            return None
        begun, codes = self._ruled.get(partition, (first, np.empty(0, np.uint8)))
        mine = codes[first - begun : end - begun]
        if mine.size != end - first:
            return None  # they cannot be read; said where that was found
        if self._blind and piece is not None:
            mine = believe(mine, first, piece)
        return self._expectation.of(Ruled(received_of(partition, records), mine), version, self._time_us)

    def _lose(self, expected: Expected, partition: int, where: str) -> None:
        places = audit_piece.admitted_places(expected.admitted)[expected.event].tolist()
        for slot, place in zip(expected.slot.tolist(), places, strict=True):
            self.report.add(Kind.LOST, f"{where}: {self._named(partition, place, slot)} was not delivered")

    def _delivered_again(self, ref: PieceRef) -> Delivered | None:
        try:
            return Delivered.of(sealed.parse(self._pieces.read(ref.name, ref.digest)))
        except (NotFound, Corrupt, FrameRejected):
            return None

    def _named(self, partition: int, place: int, slot: int) -> str:
        who = self._names[slot] if slot < len(self._names) else f"slot {slot}, which nobody has,"
        return f"event {position(partition, place)} for {who}"


def _uncovered(
    reached: PinnedOffset, start: PinnedOffset, end: PinnedOffset, pieces: tuple[PieceRef, ...]
) -> Iterator[Span]:
    """Frames between what was reached and where the batch ends that no piece of it covers."""
    began = reached if start.reaches(reached) else start
    for partition, first, last in began.ranges(end):
        at = first
        for ref in sorted((r for r in pieces if r.partition == partition), key=lambda r: r.first):
            if ref.first > at:
                yield partition, at, ref.first
            at = max(at, ref.end)
        if at < last:
            yield partition, at, last
