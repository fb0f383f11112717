"""A mailbox: a cursor, and an index into the pieces of one ledger. Never a copy (decision 6).

    ledger record -> its pieces -> the piece's own index -> this recipient's deliveries, in the order of the ledger

A recipient has no journal key. It verifies its broker's signature on every record, that each follows the one before
(`piece_reader`), and that the ledger still contains what it had when the cursor was saved. What it opens it verifies
against the publisher's signature: a broker could withhold events and never invent one, and whoever writes the broker's
files can do neither unnoticed.

A part is what a piece has for the recipient, a delivery is one of those things, and a cursor is (record, piece,
rank within the part). Where to start (`locate`, the `--from` of `sub`):

    17                       an ordinal: after the mailbox's first 17 deliveries; 0 is the very beginning
    2/1041/7                 an event, as `pub` and `sub` print it: from there on
    2026-03-01T12:00:00Z     a time: what was committed (delivered, not published) then or later
    start                    the very beginning
    end                      only what is yet to come
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import ClassVar, Final, Generic, Protocol, TypeVar

import numpy as np

from sealcast.errors import Bug, Corrupt, Misuse, NotFound
from sealcast.log.annals import JournalSigner
from sealcast.log.cursor import Cursor, CursorFile, Saved
from sealcast.log.entry import REMOVED_ABOVE, PieceRef
from sealcast.log.had import Had
from sealcast.log.journal import DirectoryJournal, NotYours
from sealcast.log.ledger import GENESIS
from sealcast.log.piece_reader import P, Piece, PieceReader, Source, hop_reader, peer_reader, sealed_reader
from sealcast.model.dataclass import dataclass
from sealcast.model.event import Position
from sealcast.wire import excerpts, hops, notifications, peer_pieces, sealed
from sealcast.wire.hops import HopPiece
from sealcast.wire.peer_pieces import PeerPiece
from sealcast.wire.sealed import SealedPiece

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
#: Of a recipient's deliveries in a piece: their events, and how each is opened.
Rows = tuple[Sequence[int], Sequence[int]]
P_contra = TypeVar("P_contra", bound=Piece, contravariant=True)


class Recipient(Protocol[P_contra]):
    """Whose mailbox it is, and how a piece says what is for it."""

    @property
    def name(self) -> str: ...
    @property
    def slot(self) -> int: ...
    @property
    def noted(self) -> int:
        """Its number in notes on deliveries that were removed (`Resealed.withdrawn`)."""

    #: Whether pieces cover frames by the very offsets that positions have: then an event is found by its offset.
    by_offset: ClassVar[bool]

    def concerns(self, ref: PieceRef) -> bool:
        """Whether the recipient may find something in a piece, by the ledger's word."""

    def rows(self, piece: P_contra) -> Rows:
        """Its deliveries in a piece, in order."""

    def excerpt(self, piece: P_contra, events: Sequence[int], handles: Sequence[int]) -> bytes:
        """Some of its deliveries in a piece, as a piece of their own with nothing in it that is for others."""


@dataclass(frozen=True, slots=True)
class SlotRecipient:
    """A subscriber by its slot: of sealed pieces. A delivery is opened through one of the uses of its event."""

    name: str
    slot: int
    by_offset: ClassVar[bool] = True

    @property
    def noted(self) -> int:
        return self.slot

    def concerns(self, ref: PieceRef) -> bool:
        return ref.concerns(self.slot)

    def rows(self, piece: SealedPiece) -> Rows:
        events, uses = piece.rows_for(self.slot)
        return events.tolist(), uses.tolist()

    def excerpt(self, piece: SealedPiece, events: Sequence[int], handles: Sequence[int]) -> bytes:
        return sealed.encode(excerpts.of_sealed(piece, self.slot, events, handles))


@dataclass(frozen=True, slots=True)
class NamedRecipient:
    """A subscriber, or a broker, by its name: of hop pieces. A delivery is opened by the row that has its entries."""

    name: str
    #: A broker that subscribes finds also what is only on its way through: that is not for its mailbox.
    routes: bool = False
    #: Among the realm's entities, in the order in which they were enrolled.
    noted: int = -1
    slot: ClassVar[int] = 0
    #: Brokers number the records of those above them.
    by_offset: ClassVar[bool] = False

    def concerns(self, ref: PieceRef) -> bool:
        return True

    def rows(self, piece: HopPiece) -> Rows:
        rows: Sequence[int] = piece.rows_for(self.name)
        if self.routes:
            rows = [row for row in rows if any(e.final for e in notifications.parse_entries(piece.entries_of(row)))]
        return [piece.event_of(row) for row in rows], rows

    def excerpt(self, piece: HopPiece, events: Sequence[int], handles: Sequence[int]) -> bytes:
        return hops.encode(excerpts.of_hops(piece, self.name, handles))


@dataclass(frozen=True, slots=True)
class OwnRecipient:
    """A subscriber that is its own peer: everything in its inbox is for it."""

    name: str
    slot: ClassVar[int] = 0
    noted: ClassVar[int] = 0
    #: Pieces number arrivals, and positions are places in publishers' logs.
    by_offset: ClassVar[bool] = False

    def concerns(self, ref: PieceRef) -> bool:
        return ref.deliveries > 0

    def rows(self, piece: PeerPiece) -> Rows:
        return range(len(piece)), range(len(piece))

    def excerpt(self, piece: PeerPiece, events: Sequence[int], handles: Sequence[int]) -> bytes:
        return peer_pieces.encode(piece.excerpt(events))


@dataclass(frozen=True, slots=True)
class Delivery(Generic[P]):
    """One event for one recipient, still sealed: where it stands in its piece, and how the recipient opens it."""

    #: Itself, in its mailbox; acknowledging goes to the place after it.
    cursor: Cursor
    committed_us: int
    piece: P
    #: The event's index in the piece, and what the recipient opens it by (`Recipient`).
    event: int
    handle: int
    #: Of a frame that an earlier batch took, for a filter that came since (`Entry.late`).
    late: bool = False

    @property
    def position(self) -> Position:
        return self.piece.position(self.event)

    @property
    def after(self) -> Cursor:
        return Cursor(self.cursor.entry, self.cursor.piece, self.cursor.rank + 1)


@dataclass(frozen=True, slots=True)
class Part(Generic[P]):
    """Deliveries of one piece for one recipient, still sealed, in order: what is opened together."""

    #: The record of the ledger, and which of its pieces.
    entry: int
    number: int
    committed_us: int
    piece: P
    events: Sequence[int]
    handles: Sequence[int]
    #: Which of the recipient's deliveries in the piece each is.
    ranks: Sequence[int]
    late: bool = False
    #: Other events were taken out of its record: the ranks of these have changed, and some may come again.
    again: bool = False

    def __len__(self) -> int:
        return len(self.events)

    def cut(self, start: int, end: int) -> Part[P]:
        """Some that follow each other."""
        if (start, end) == (0, len(self)):
            return self
        span = slice(start, end)
        return replace(self, events=self.events[span], handles=self.handles[span], ranks=self.ranks[span])

    def reach(self, start: int, most: int, most_bytes: int) -> int:
        """How far to cut from a row on: at most so many deliveries and sealed bytes, one delivery at least."""
        events, starts = np.asarray(self.events[start : start + most], np.int64), self.piece.body_start
        sizes = np.cumsum((starts[events + 1] - starts[events]).astype(np.int64))
        return start + max(1, int(np.searchsorted(sizes, most_bytes, side="right")))

    def only(self, rows: Sequence[int]) -> Part[P]:
        """Those in these rows, in their order."""
        if len(rows) == len(self):
            return self
        lists = (self.events, self.handles, self.ranks)
        events, handles, ranks = ([each[row] for row in rows] for each in lists)
        return replace(self, events=events, handles=handles, ranks=ranks)

    def place(self, row: int) -> Cursor:
        """Where a delivery stands in its mailbox."""
        return Cursor(self.entry, self.number, self.ranks[row])

    def after(self, rows: int) -> Cursor:
        """The place after the first so many of them, one at least."""
        return Cursor(self.entry, self.number, self.ranks[rows - 1] + 1)

    def delivery(self, row: int) -> Delivery[P]:
        return Delivery(self.place(row), self.committed_us, self.piece, self.events[row], self.handles[row], self.late)

    def deliveries(self) -> Iterator[Delivery[P]]:
        return map(self.delivery, range(len(self)))


class Mailbox(Generic[P]):
    """What one recipient gets from one ledger, after its durable cursor."""

    def __init__(
        self,
        reader: PieceReader[P],
        recipient: Recipient[P],
        cursors: Path,
        told: Callable[[Saved], None] | None = None,
        *,
        owns_reader: bool = False,
    ) -> None:
        """`cursors` is the directory that the recipient keeps its own cursor in; `told` hears when it has moved."""
        self.reader, self.recipient, self._owns_reader = reader, recipient, owns_reader
        self._told = told
        self._file = CursorFile(cursors, recipient.name, recipient.slot)
        #: How many records the ledger had when it was last read to its end, and how many it has as far as was told
        #: since.
        self._known_end = self._told_end = 0
        #: A place with nothing between it and that end; None where it was not read that far.
        self._read_through: Cursor | None = None
        #: Of records that were come to: deliveries that were there for the recipient, and were removed before.
        self.missed: dict[int, int] = {}
        #: Of records that were come to: events that never reached the broker, some of which may have been for the
        #: recipient.
        self.perhaps_missed: dict[int, int] = {}

    def deliveries(self, start: Cursor | None = None, *, end: int | None = None) -> Iterator[Delivery[P]]:
        """Everything after the cursor (or from `start`) that is committed by now, before ledger record `end`."""
        for part in self.parts(self.cursor() if start is None else start, end):
            yield from part.deliveries()

    def lag(self, start: Cursor | None = None) -> int:
        """How many deliveries wait after the cursor."""
        return sum(map(len, self.parts(self.cursor() if start is None else start)))

    def pieces_before(self, at: Cursor, most: int) -> Iterator[P]:
        """The last pieces before a place that concern this recipient, at most so many, the oldest first."""
        found: list[PieceRef] = []
        for index in range(min(at.entry, self.reader.end() - 1), -1, -1):
            if len(found) >= most:
                break
            refs = self.reader.record(index).entry.pieces[: at.piece if index == at.entry else None]
            found += [ref for ref in reversed(refs) if self.recipient.concerns(ref)]
        return map(self.reader.piece, reversed(found[:most]))

    def close(self) -> None:
        if self._owns_reader:
            self.reader.close()

    def wait(self, seconds: float) -> None:
        """Returns when there may be more than was read, and in any case when the time is over."""
        self._told_end = self.reader.wait(self._known_end, seconds)

    def parts(self, at: Cursor, end: int | None = None) -> Iterator[Part[P]]:
        """`deliveries`, piece by piece."""
        looked, to_its_end, last = False, end is None, at
        if end is None:
            # Whoever was told of something asks for nothing else first.
            told, self._told_end, known = self._told_end, 0, self._known_end
            end = self._known_end = told if told > known else self.reader.end()
            through, self._read_through = self._read_through, None
            if told > known and through is not None and at >= through:
                at = max(at, Cursor(known))
            # Of what has just come, no piece was exchanged yet: if one is all the same, it is not there any more.
            looked = at.entry >= known and told > known
        for index in range(at.entry, end):
            if not looked:
                self.reader.look()
                looked = True
            committed = self.reader.seen_record(index)
            if Cursor(index) >= at and (unknown := committed.entry.counts.get(REMOVED_ABOVE, 0)):
                self.perhaps_missed[index] = unknown
            if index not in self.missed and committed.resealed is not None and committed.resealed.removal is not None:
                # Of a record that was read in part before this mailbox was opened, what comes after that part.
                had = at.rank if (index, 0) == (at.entry, at.piece) else 0
                self.missed[index] = max(0, committed.resealed.withdrawn_from(self.recipient.noted) - had)
            for number, ref in enumerate(committed.entry.pieces):
                if (index, number) < (at.entry, at.piece) or not self.recipient.concerns(ref):
                    continue
                if not looked:
                    self.reader.look()
                    looked = True
                piece = self._piece(index, number)
                if piece is None:
                    continue
                events, handles = self.recipient.rows(piece)
                skip = min(at.rank, len(events)) if (index, number) == (at.entry, at.piece) else 0
                late = number < committed.entry.late
                every = range(len(events))
                again = committed.resealed is not None and committed.resealed.removal is not None
                part = Part(index, number, committed.time_us, piece, events, handles, every, late, again)
                if skip < len(part):
                    last = part.after(len(part))
                    yield part.cut(skip, len(part))
                    looked = False  # who knows how long that took
        if to_its_end and end == self._known_end:
            self._read_through = last

    def _piece(self, index: int, number: int) -> P | None:
        """None where whoever serves it says that nothing in it is for us, and the ledger does not say otherwise."""
        try:
            return self.reader.seen_piece(index, number)
        except NotYours as error:
            if self.recipient.by_offset:
                raise Corrupt(
                    f"{self.reader.journal.shown}: record {index} has something for {self.recipient.name!r}, which is "
                    f"withheld: {error.message}",
                    hint="ask whoever runs the gateway",
                ) from None
            return None

    # --- the cursor ------------------------------------------------------------------------------

    def saved(self) -> Cursor:
        """The durable cursor as it lies here, without a look at the ledger."""
        return self._file.load().cursor

    def cursor(self) -> Cursor:
        """The durable cursor, checked against the ledger."""
        saved = self._file.load()
        self.hold_to(saved.cursor, saved.tag, str(self._file.path))
        return saved.cursor

    def hold_to(self, cursor: Cursor, tag: bytes, where: str) -> None:
        """Corrupt unless the ledger is the one that a place was kept of, with the tag before it; `where` names whoever
        kept it."""
        end = self.reader.end()
        if cursor.entry > end or (cursor.entry == end and cursor > Cursor(end)):
            raise Corrupt(
                f"{where} stands at record {cursor.entry} of the ledger, which has only {end}: "
                "its newest records were removed",
                hint="restore the ledger from a copy",
            )
        if self.tag_before(cursor) != tag:
            raise Corrupt(f"{where}: the ledger is not the one that this cursor was saved with")

    def resume(self) -> Cursor:
        """Where to read on from the durable cursor. Where some events were taken out of the record that it stands in,
        that is the record's beginning: ranks are others there. Who keeps an account drops what comes again."""
        cursor = self.cursor()
        if cursor.entry < self.reader.end():
            found = self.reader.record(cursor.entry)
            changed = found.resealed is not None and found.resealed.removal is not None
            if changed and any(ref.events for ref in found.entry.pieces):
                return Cursor(cursor.entry)
        return cursor

    def acknowledge(self, delivery: Delivery[P]) -> bool:
        """Durably: this delivery and all before it are done with. False when they were already: it never goes back."""
        return self.advance(delivery.after)

    def advance(self, cursor: Cursor, had: Had | None = None, head: tuple[int, bytes] | None = None) -> bool:
        """Durably: everything before a place is done with, these events were had, and the registry had come to this
        head. False when it was already."""
        with self._file.locked():
            if self.cursor() >= cursor:
                return False
            before = self._file.load()
            before.had.take(had or Had())
            newest = max((each for each in (before.head, head) if each is not None), default=None)
            saved = Saved(cursor, self.tag_before(cursor), before.had, newest)
            self._file.save(saved)
        if self._told is not None:
            self._told(saved)
        return True

    def head(self) -> tuple[Path, tuple[int, bytes] | None]:
        """The file of the cursor, and which head of the registry was kept there."""
        return self._file.path, self._file.load().head

    def had(self) -> Had:
        """All that is remembered of what was acknowledged here."""
        return self._file.load().had

    def tag_before(self, cursor: Cursor) -> bytes:
        """Of the record before a place."""
        return self.reader.record(cursor.entry - 1).tag if cursor.entry else GENESIS

    # --- where to start --------------------------------------------------------------------------

    def locate(self, text: str) -> Cursor:
        """The place that `--from` names; see the top of this file."""
        if text == "end":
            return Cursor(self.reader.end())
        if text == "start":
            return self.at_ordinal(0)
        if text.isascii() and text.isdigit():
            return self.at_ordinal(int(text))
        if "/" in text:
            return self.at_position(Position.parse(text))
        try:
            moment = datetime.fromisoformat(text)
        except ValueError:
            raise Misuse(
                f"{text!r} is not a valid start position. Use a number of deliveries, an event (partition/offset/row), "
                "a time such as 2026-03-01 or 2026-03-01T12:00Z, `start` or `end`."
            ) from None
        return self.at_time(moment if moment.tzinfo else moment.replace(tzinfo=UTC))

    def at_ordinal(self, ordinal: int) -> Cursor:
        """After the mailbox's first `ordinal` deliveries."""
        left = ordinal
        for part in self.parts(Cursor()):
            if left < len(part):
                return Cursor(part.entry, part.number, left)
            left -= len(part)
        if left:
            raise NotFound(f"the mailbox has {ordinal - left} deliveries so far, fewer than {ordinal}")
        return Cursor(self.reader.end())

    def at_time(self, moment: datetime) -> Cursor:
        """At the first batch that was committed then or later."""
        return Cursor(self.reader.ledger.index_at((moment - _EPOCH) // timedelta(microseconds=1)))

    def at_position(self, position: Position) -> Cursor:
        """At this event, also where it was delivered late. Where events are found by offset it need not be in the
        mailbox: what follows it in its piece is next. Elsewhere all deliveries are looked at, and NotFound is raised
        when it is not among them."""
        if not self.recipient.by_offset:
            for delivery in self.deliveries(Cursor()):
                if delivery.position == position:
                    return delivery.cursor
            raise NotFound(
                f"event {position} is not in this mailbox", hint="it did not match, or has not come this far"
            )
        index, number, ref = self.reader.find(position.partition, position.offset)
        if ref is None:
            return Cursor(index)
        place, here = self._place(index, number, ref, position)
        if not here:
            for late in self.reader.late(position.partition, position.offset, index):
                found, here = self._place(*late, position)
                if here:
                    return found
        return place

    def _place(self, index: int, number: int, ref: PieceRef, position: Position) -> tuple[Cursor, bool]:
        """Where an event stands in a piece, or would; and whether it is in it for this recipient."""
        piece = self.reader.piece(ref)
        events = self.recipient.rows(piece)[0]
        rank = bisect_left(events, position, key=piece.position)
        return Cursor(index, number, rank), rank < len(events) and piece.position(events[rank]) == position


def slot_mailbox(
    topic: PieceReader[SealedPiece] | Source,
    slot: int,
    name: str,
    by: JournalSigner | None = None,
    cursors: Path | None = None,
    told: Callable[[Saved], None] | None = None,
) -> Mailbox[SealedPiece]:
    """A subscriber's mailbox at a broker that seals for slots. Without a place for cursors, it is in the directory."""
    shared = isinstance(topic, PieceReader)
    reader = topic if isinstance(topic, PieceReader) else sealed_reader(topic, key=by)
    return Mailbox(reader, SlotRecipient(name, slot), cursors or _beside(reader), told, owns_reader=not shared)


def hop_mailbox(
    source: Source,
    name: str,
    by: JournalSigner | None = None,
    cursors: Path | None = None,
    told: Callable[[Saved], None] | None = None,
    *,
    routes: bool = False,
    noted: int = -1,
) -> Mailbox[HopPiece]:
    """A subscriber's mailbox at a broker of an overlay."""
    reader, recipient = hop_reader(source, key=by), NamedRecipient(name, routes, noted)
    return Mailbox(reader, recipient, cursors or _beside(reader), told, owns_reader=True)


def inbox_mailbox(directory: Path | str, name: str, by: JournalSigner | None = None) -> Mailbox[PeerPiece]:
    """The inbox of a subscriber that is a peer."""
    return Mailbox(peer_reader(directory, key=by), OwnRecipient(name), Path(directory) / "cursors", owns_reader=True)


def _beside(reader: PieceReader[P]) -> Path:
    if not isinstance(reader.journal, DirectoryJournal):
        raise Bug(f"{reader.journal.shown} is elsewhere: a cursor is kept by its owner")
    return reader.journal.root / "cursors"
