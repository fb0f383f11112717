"""Reads a ledger and the pieces that it names: verified, taken apart, and kept for the next reader.

Every kind of piece is read in the same way. It must be there, it must be the bytes that were committed, and it must
cover what the ledger says. Whoever knows the broker verifies that each record is the broker's (`annals.py`) and follows
the one before, and holds every piece to the digest that its record names.
"""

from __future__ import annotations

import threading
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Final, Generic, Protocol, TypeVar

from sealcast.errors import Corrupt, FrameRejected, NotFound
from sealcast.log.annals import VerifiedBy
from sealcast.log.entry import PieceRef
from sealcast.log.journal import DirectoryJournal, Journal
from sealcast.log.ledger import Committed, LedgerReader
from sealcast.log.pieces import checked_name, verified
from sealcast.model.event import Position
from sealcast.model.rejection import Rejection
from sealcast.wire import hops, peer_pieces, sealed
from sealcast.wire.hops import HopPiece
from sealcast.wire.peer_pieces import PeerPiece
from sealcast.wire.place_columns import Ints, PlaceColumns
from sealcast.wire.sealed import SealedPiece
from sealcast.wire.typed import Array

#: Of pieces kept parsed. Mailboxes of one process share them: each piece is read and verified once for all of them.
CACHE_BYTES: Final = 256 << 20
#: The same for hop pieces: a process may read the ledgers of a whole tree.
HOP_CACHE_BYTES: Final = 64 << 20
CACHE_RECORDS: Final = 4096
#: A journal, or the directory that it is in.
Source = Path | str | Journal


class SourceFrame(Protocol):
    """The frame that an event came in."""

    @property
    def signed(self) -> bytes:
        """Its header with the publisher's signature (`wire.frame.parse_signed`)."""


class Piece(Protocol):
    """What every kind of piece says of itself."""

    @property
    def partition(self) -> int: ...
    @property
    def first_offset(self) -> int: ...
    @property
    def end_offset(self) -> int: ...
    @property
    def rejected(self) -> Sequence[Rejection]: ...
    @property
    def frame_index(self) -> Array:
        """The frame that each event came in."""

    @property
    def body_start(self) -> Array:
        """Where the sealed bytes of each event begin, and the end."""

    def position(self, event: int) -> Position: ...
    def places(self, events: Ints) -> PlaceColumns: ...
    def frame(self, event: int) -> SourceFrame: ...


P = TypeVar("P", bound=Piece)


class PieceReader(Generic[P]):
    """One ledger and its pieces, for any number of mailboxes and threads."""

    def __init__(
        self, source: Source, parse: Callable[[bytes], P], *, cache_bytes: int, key: VerifiedBy | None = None
    ) -> None:
        """A journal, or the directory that it is in; `parse` raises FrameRejected for what is no such piece. `key` is
        what the ledger's records are verified by."""
        self.journal = DirectoryJournal(source) if isinstance(source, Path | str) else source
        self.ledger = LedgerReader(self.journal, key)
        self._parse, self._cache_bytes = parse, cache_bytes
        self._guard = threading.Lock()
        self._records: OrderedDict[int, Committed] = OrderedDict()
        self._reseals = 0
        self._parsing = threading.Lock()
        self._parsed: OrderedDict[str, tuple[P, int]] = OrderedDict()

    def end(self) -> int:
        """How many records there are. Cheap: ask as often as you like."""
        return self.ledger.end()

    def wait(self, known: int, seconds: float) -> int:
        """Returns when there may be more than `known` records, and in any case when the time is over. How many there
        are as far as that was told (`Journal.wait`)."""
        return self.journal.wait(known, seconds)

    def look(self) -> None:
        """Looks whether pieces were exchanged since the last look: what was remembered of records may be out of
        date."""
        with self._guard, self.ledger.reseals.at_once() as reseals:
            if reseals != self._reseals:
                self._records.clear()
                self._reseals = reseals

    def record(self, index: int) -> Committed:
        """A record of the ledger, verified to follow the one before, with the pieces that it has now."""
        self.look()
        return self.seen_record(index)

    def seen_record(self, index: int) -> Committed:
        """The same, with the pieces that it had at the last look."""
        with self._guard:
            known = self._records.get(index)
            if known is None:
                before = self._records.get(index - 1)
                with self.ledger.reseals.as_seen():
                    known = self.ledger.at(index)
                    tag = before.tag if before is not None else self.ledger.tag_before(index)
                if known.previous != tag:
                    raise Corrupt(f"{self.ledger.shown}: record {index} does not follow record {index - 1}")
                self.journal.pinned(known.entry.end.version, known.entry.chain)
                self._records[index] = known
                while len(self._records) > CACHE_RECORDS:
                    self._records.popitem(last=False)
            return known

    def piece(self, ref: PieceRef) -> P:
        """A piece that the ledger names, verified."""
        with self._parsing:
            found = self._parsed.get(ref.name)
            if found is None:
                found = self._parsed[ref.name] = self._load(ref), ref.size
                while len(self._parsed) > 1 and sum(size for _, size in self._parsed.values()) > self._cache_bytes:
                    self._parsed.popitem(last=False)
            self._parsed.move_to_end(ref.name)
            return found[0]

    def piece_of(self, index: int, number: int) -> P:
        """A piece by its place, also when another has just taken it: then that one."""
        self.look()
        return self.seen_piece(index, number)

    def seen_piece(self, index: int, number: int) -> P:
        """The same, at the last look."""
        while True:
            before = self._reseals
            try:
                return self.piece(self.seen_record(index).entry.pieces[number])
            except Corrupt:
                self.look()
                if self._reseals == before:
                    raise

    def pieces(self, first: int, end: int) -> Iterator[P]:
        """All pieces of records `first` to before `end`."""
        for index in range(first, end):
            for number in range(len(self.record(index).entry.pieces)):
                yield self.piece_of(index, number)

    def find(self, partition: int, offset: int) -> tuple[int, int, PieceRef | None]:
        """Where a frame was delivered: the ledger's record, which of its pieces, and that piece; NotFound when no batch
        has taken it yet, and None where no piece of its batch covers it."""
        end = self.end()
        index = bisect_right(range(end), offset, key=lambda i: self.record(i).entry.reached(partition))
        if index == end:
            raise NotFound(f"frame {offset} of partition {partition} was not delivered yet, to anyone")
        entry = self.record(index).entry
        for number, ref in enumerate(entry.own, entry.late):
            if _covers(ref, partition, offset):
                return index, number, ref
        return index, entry.late, None

    def late(self, partition: int, offset: int, after: int) -> Iterator[tuple[int, int, PieceRef]]:
        """Where a frame was delivered late, by batches after record `after`: record, which of its pieces, and that."""
        for index in range(after + 1, self.end()):
            entry = self.record(index).entry
            for number, ref in enumerate(entry.pieces[: entry.late]):
                if _covers(ref, partition, offset):
                    yield index, number, ref

    def close(self) -> None:
        self.ledger.close()

    def _load(self, ref: PieceRef) -> P:
        where = f"{self.journal.shown}/pieces/{checked_name(ref.name)}"
        try:
            piece = self._parse(verified(self.journal.piece(ref.name), ref.digest, where))
        except NotFound:
            raise Corrupt(f"{where} is gone; the ledger names it", hint="restore it from a copy") from None
        except FrameRejected as problem:
            raise Corrupt(f"{where} is the piece that was committed, and no piece: {problem.message}") from None
        if (piece.partition, piece.first_offset, piece.end_offset) != (ref.partition, ref.first, ref.end):
            raise Corrupt(f"{where} covers something else than the ledger says")
        return piece


def _covers(ref: PieceRef, partition: int, offset: int) -> bool:
    return ref.partition == partition and ref.first <= offset < ref.end


def sealed_reader(
    topic: Source, *, cache_bytes: int = CACHE_BYTES, key: VerifiedBy | None = None
) -> PieceReader[SealedPiece]:
    """What one broker sealed for a topic's subscribers."""
    return PieceReader(topic, sealed.parse, cache_bytes=cache_bytes, key=key)


def hop_reader(
    source: Source, *, cache_bytes: int = HOP_CACHE_BYTES, key: VerifiedBy | None = None
) -> PieceReader[HopPiece]:
    """What one broker of an overlay handed on (its `hops/`), or what a root admitted (its topic's directory)."""
    return PieceReader(source, hops.parse, cache_bytes=cache_bytes, key=key)


def peer_reader(
    source: Source, *, cache_bytes: int = HOP_CACHE_BYTES, key: VerifiedBy | None = None
) -> PieceReader[PeerPiece]:
    """What one peer of a topic took in: its inbox, or what it says of its own log."""
    return PieceReader(source, peer_pieces.parse, cache_bytes=cache_bytes, key=key)
