"""A broker's ledger, checked from its first record to its last. This much holds whatever the protection:

    every record is authentic, follows the one before, and begins where that one ended
    its pieces cover what it says it took, are those that were committed, and are what it says they are
    its counts are the sums of theirs
    subscribers' cursors have not seen more of it than is there (ends.py)
    no subscriber gets an event twice, or after a later one (order.py)

Doing the step again, and saying what disagrees, is for whoever knows the step: `judge`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import zip_longest
from typing import Final, Generic, Protocol, TypeVar

from sealcast.errors import Corrupt, FrameRejected, NotFound
from sealcast.log.annals import JournalSigner
from sealcast.log.entry import Entry, PieceRef
from sealcast.log.journal import KeptJournal
from sealcast.log.ledger import GENESIS, Committed, LedgerReader
from sealcast.log.offsets import PinnedOffset
from sealcast.log.piece_reader import Piece
from sealcast.log.reseals import Resealed
from sealcast.model.rejection import Rejection
from sealcast.primitives.secrets import Secret
from sealcast.protections.witness import ends
from sealcast.protections.witness.report import CheckReport, Kind
from sealcast.trust.layout import TopicPaths
from sealcast.trust.realm.machine import Topic

#: What depends on who gets something, of all that is counted.
_DELIVERED: Final = {"matched", "deliveries", "encryptions"}

Span = tuple[int, int, int]
Told = Callable[[int], None]


class WitnessedPiece(Piece, Protocol):
    """What is asked of a piece of any kind."""

    @property
    def topic(self) -> bytes: ...
    @property
    def version(self) -> int: ...
    @property
    def counts(self) -> Mapping[str, int]: ...
    @property
    def rejected(self) -> tuple[Rejection, ...]: ...


P = TypeVar("P", bound=WitnessedPiece)


class LedgerAudit(ABC, Generic[P]):
    """One ledger, from its first record to the last that is there when the audit begins."""

    def __init__(
        self,
        report: CheckReport,
        about: Topic,
        paths: TopicPaths,
        journal: KeptJournal,
        parse: Callable[[bytes], P],
        key: Secret | None,
        by: JournalSigner,
        name: str = "",
    ) -> None:
        """Records' signatures are verified, which readers go by, and with the journal key their tags, which the broker
        goes by. `name` stands before every problem."""
        self.report = report
        self._about, self._paths, self._journal, self._name = about, paths, journal, name
        self._parse = parse
        self._ledger = LedgerReader(journal, by)
        self._tagged = LedgerReader(journal, key)
        self._pieces = journal.pieces

    # --- what differs -------------------------------------------------------------------------------

    @abstractmethod
    def available(self) -> Sequence[int]:
        """How far the input goes, by partition."""

    @abstractmethod
    def newest(self) -> int | None:
        """The newest version that a batch can be pinned to, where that is known."""

    @abstractmethod
    def judge(self, piece: P | None, ref: PieceRef, version: int, where: str, later: Resealed | None) -> None:
        """Does the step again for one piece and says what disagrees. None: it could not be read, which was said."""

    def begin(self, entry: Entry, reached: PinnedOffset) -> None:
        """Before the pieces of a batch."""

    def late(self, found: Sequence[tuple[P | None, PieceRef]], committed: Committed, before: int, where: str) -> None:
        """Does the late part of a batch again and says what disagrees: `found` are its late pieces, None for one that
        could not be read. The batch before was pinned to version `before`."""
        for _, ref in found:
            self.add(Kind.LEDGER, f"{where}: {ref.name} is of frames that an earlier batch has delivered")

    def missing(self, span: Span, version: int, where: str) -> None:
        """A part of a batch's input is in no piece, which was said."""

    def wait(self, waiting: int) -> None:
        """So much of the input was not taken yet."""
        self.report.waiting += waiting

    def slots(self) -> Mapping[str, int]:
        """The slot of each subscriber that may have a cursor here."""
        return {}

    def close(self) -> None:
        self._ledger.close()
        self._tagged.close()

    # --- what does not ------------------------------------------------------------------------------

    def size(self) -> int:
        """How much there is to do: what `run` reports progress in."""
        return sum(self.available())

    def run(self, told: Told = lambda done: None) -> CheckReport:
        """Checks everything; `told` hears how much of `size` is done with."""
        last: Committed | None = None
        reached: PinnedOffset | None = None
        end = self._ledger.end()
        for index in range(end):
            committed = self._record(index, last)
            if committed is not None:
                entry = committed.entry
                self._batch(committed, reached or PinnedOffset.initial(len(entry.start.partitions)), told)
                reached, last = entry.end, committed
        self.check_ends(end, reached or PinnedOffset.initial(self._about.partitions))
        self.close()
        return self.report

    def add(self, kind: Kind, text: str) -> None:
        self.report.add(kind, f"{self._name}{text}")

    def read(self, ref: PieceRef) -> P:
        """A piece that the ledger names; NotFound, Corrupt or FrameRejected."""
        return self._parse(self._pieces.read(ref.name, ref.digest))

    def _record(self, index: int, last: Committed | None) -> Committed | None:
        """Authentic and following the last one that was; None when it cannot be read at all."""
        try:
            self._tagged.at(index)
            committed = self._ledger.at(index)
        except Corrupt as error:
            self.add(Kind.LEDGER, error.message)
            return None
        self.report.batches += 1
        before = last.tag if last is not None else GENESIS
        if committed.previous != before and committed.index == (last.index + 1 if last else 0):
            self.add(Kind.LEDGER, f"record {index} does not follow record {index - 1}: its chain is broken")
        return committed

    def _batch(self, committed: Committed, reached: PinnedOffset, told: Told) -> None:
        entry, where, newest = committed.entry, f"record {committed.index}", self.newest()
        if entry.start != reached:
            self.add(Kind.LEDGER, f"{where} starts at {entry.start}, and the one before ended at {reached}")
        if newest is not None and entry.version > newest:
            self.add(Kind.LEDGER, f"{where} is pinned to version {entry.version}, and {newest} is the newest")
            return
        self.begin(entry, reached)
        counts: dict[str, int] = {}
        late = list[tuple[P | None, PieceRef]]()
        for number, ref in enumerate(entry.pieces):
            later = resealing(committed, ref)
            piece = self._piece(ref, entry.version if later is None else later.version, where)
            if number < entry.late:
                late.append((piece, ref))
            else:
                self.judge(piece, ref, entry.version, where, later)
                told(ref.end - ref.first)
            for name, count in piece.counts.items() if piece is not None else ():
                counts[name] = counts.get(name, 0) + count
        if committed.resealed is not None and committed.resealed.removal is not None:
            self.report.removed += sum(count for _, count in committed.resealed.withdrawn)
        else:
            self.late(late, committed, reached.version, where)
        for span in _uncovered(reached, entry, entry.own):
            partition, first, end = span
            self.add(Kind.LEDGER, f"{where}: {first} to {end - 1} of partition {partition} are in no piece")
            self.missing(span, entry.version, where)
        # Sealed again for fewer, they deliver less than the batch did; what was admitted and refused stays.
        said = set(counts.keys() | entry.counts.keys()) - (_DELIVERED if committed.resealed is not None else set())
        if any(counts.get(name, 0) != entry.counts.get(name, 0) for name in said):
            self.add(Kind.COUNTS, f"{where}: the counts of the batch are not the sums of its pieces'")

    def _piece(self, ref: PieceRef, version: int, where: str) -> P | None:
        try:
            piece = self.read(ref)
        except (NotFound, Corrupt, FrameRejected) as error:
            gone = "it is gone" if isinstance(error, NotFound) else error.message
            self.add(Kind.PIECE, f"{where}: {ref.name} cannot be read: {gone}")
            return None
        for text in self._misfits(piece, ref, version):
            self.add(Kind.PIECE, f"{where}, {ref.name}: {text}")
        return piece

    def _misfits(self, piece: P, ref: PieceRef, version: int) -> Iterator[str]:
        if (piece.partition, piece.first_offset, piece.end_offset) != (ref.partition, ref.first, ref.end):
            yield "it covers something else than the ledger says"
        if piece.topic != self._about.id:
            yield "it belongs to another topic"
        if piece.version != version:
            yield f"it was made under version {piece.version}, its batch is pinned to {version}"

    def check_ends(self, end: int, reached: PinnedOffset) -> None:
        """Whether the input and the ledger end where they should."""
        both = zip_longest(reached.partitions, self.available(), fillvalue=0)
        for partition, (first, last) in enumerate(both):
            self.wait(max(0, last - first))
            if first > last:
                self.add(Kind.LOG, f"the ledger has taken {first} of partition {partition}, and there are only {last}")
        for text in ends.cursors(self._paths.cursors, self._ledger, end, self.slots()):
            self.add(Kind.LEDGER, text)


def resealing(committed: Committed, ref: PieceRef) -> Resealed | None:
    """How a piece of a record took the place of another, if it did."""
    return committed.resealed if ref not in committed.committed_pieces else None


def _uncovered(reached: PinnedOffset, entry: Entry, pieces: Iterable[PieceRef]) -> Iterator[Span]:
    """What lies between what was reached and where the batch ends, and is in no piece of it."""
    began = reached if entry.start.reaches(reached) else entry.start
    for partition, first, last in began.ranges(entry.end):
        at = first
        for ref in sorted((r for r in pieces if r.partition == partition), key=lambda r: r.first):
            if ref.first > at:
                yield partition, at, ref.first
            at = max(at, ref.end)
        if at < last:
            yield partition, at, last
