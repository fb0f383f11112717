"""A mailbox: a cursor, and an index into the sealed pieces. Never a copy (decision 6).

    ledger record -> its pieces -> the piece's own index -> this slot's deliveries, in the order of the ledger

A subscriber has no journal key. It checks all that is public: the ledger's two chains, each piece against the digest
that the ledger names, and that the ledger still contains what it had when the cursor was saved. What it opens it
verifies against the publisher's signature, so a forged ledger could withhold events and never invent one.

Where to start (`Mailbox.locate`, the `--from` of `sub`):

    17                       an ordinal: after the mailbox's first 17 deliveries; 0 is the very beginning
    2/1041/7                 an event, as `pub` and `sub` print it: from there on
    2026-03-01T12:00:00Z     a time: what was committed (delivered, not published) then or later
    end                      only what is yet to come
"""

from __future__ import annotations

import threading
import time
from bisect import bisect_left, bisect_right
from collections import OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

from sealcast.errors import Corrupt, FrameRejected, Misuse, NotFound
from sealcast.log.cursor import Cursor, CursorFile, Saved
from sealcast.log.entry import Entry, PieceRef
from sealcast.log.ledger import GENESIS, Committed, LedgerReader
from sealcast.log.pieces import Pieces
from sealcast.model.event import Position
from sealcast.primitives.secrets import Secret
from sealcast.wire import sealed
from sealcast.wire.sealed import Array, SealedPiece

#: Of pieces kept parsed. Mailboxes of one process share them: each piece is read and verified once for all of them.
CACHE_BYTES: Final = 256 << 20
CACHE_RECORDS: Final = 4096
POLL_SECONDS: Final = 0.05
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Delivery:
    """One event for one subscriber, still sealed: where it stands in its piece, and how the subscriber opens it."""

    #: Itself, in its mailbox; acknowledging goes to the place after it.
    cursor: Cursor
    committed_us: int
    piece: SealedPiece
    #: The event's index in the piece, and the index of the key use through which the subscriber opens it.
    event: int
    use: int
    position: Position


class TopicReader:
    """A topic's ledger and pieces, verified and cached, for any number of mailboxes and threads."""

    def __init__(self, topic: Path | str, *, cache_bytes: int = CACHE_BYTES, key: Secret | None = None) -> None:
        """With the topic's journal key, the ledger's tags are verified, too."""
        self.root = Path(topic)
        self.ledger = LedgerReader(self.root / "ledger", key)
        self._pieces = Pieces(self.root / "pieces")
        self._cache_bytes = cache_bytes
        self._guard = threading.Lock()
        self._parsed: OrderedDict[str, tuple[SealedPiece, int]] = OrderedDict()
        self._records: OrderedDict[int, Committed] = OrderedDict()
        self._reseals = 0

    def record(self, index: int) -> Committed:
        """A record of the ledger; walking forward, each is verified to follow the one before."""
        with self._guard:
            if (reseals := self.ledger.reseals.count()) != self._reseals:
                self._records.clear()
                self._reseals = reseals
            known = self._records.get(index)
            if known is None:
                before = self._records.get(index - 1)
                known = self.ledger.at(index)
                if before is not None and known.previous != before.tag:
                    raise Corrupt(f"{self.ledger.directory}: record {index} does not follow record {index - 1}")
                self._records[index] = known
                while len(self._records) > CACHE_RECORDS:
                    self._records.popitem(last=False)
            return known

    def piece_of(self, index: int, number: int) -> SealedPiece:
        """A piece by its place, also when another has just taken it: then that one."""
        while True:
            before = self.ledger.reseals.count()
            try:
                return self.piece(self.record(index).entry.pieces[number])
            except Corrupt:
                if self.ledger.reseals.count() == before:
                    raise

    def piece(self, ref: PieceRef) -> SealedPiece:
        """A piece that the ledger names, verified."""
        with self._guard:
            found = self._parsed.get(ref.name)
            if found is None:
                found = self._load(ref), ref.size
                self._parsed[ref.name] = found
                while len(self._parsed) > 1 and sum(size for _, size in self._parsed.values()) > self._cache_bytes:
                    self._parsed.popitem(last=False)
            self._parsed.move_to_end(ref.name)
            return found[0]

    def find(self, partition: int, offset: int) -> tuple[int, int, PieceRef | None]:
        """Where a frame was delivered: the ledger's record, which of its pieces, and that piece; NotFound when no batch
        has taken it yet, and None where no piece of its batch covers it."""
        end = self.ledger.end()
        index = bisect_right(range(end), offset, key=lambda i: _reached(self.record(i).entry, partition))
        if index == end:
            raise NotFound(f"frame {offset} of partition {partition} was not delivered yet, to anyone")
        for number, ref in enumerate(self.record(index).entry.pieces):
            if ref.partition == partition and ref.first <= offset < ref.end:
                return index, number, ref
        return index, 0, None

    def _load(self, ref: PieceRef) -> SealedPiece:
        path = self._pieces.path(ref.name)
        try:
            piece = sealed.parse(self._pieces.read(ref.name, ref.digest))
        except NotFound:
            raise Corrupt(f"{path} is gone; the ledger names it", hint="restore it from a copy") from None
        except FrameRejected as problem:
            raise Corrupt(f"{path} is the piece that was committed, and no piece: {problem.message}") from None
        if (piece.partition, piece.first_offset, piece.end_offset) != (ref.partition, ref.first, ref.end):
            raise Corrupt(f"{path} covers other frames than the ledger says")
        return piece

    def close(self) -> None:
        self.ledger.close()


class Mailbox:
    """What one subscriber gets on one topic, by its slot, after its durable cursor."""

    def __init__(self, topic: TopicReader | Path | str, slot: int, name: str) -> None:
        self._owns_topic = not isinstance(topic, TopicReader)
        self.topic = topic if isinstance(topic, TopicReader) else TopicReader(topic)
        self.slot = slot
        self._file = CursorFile(self.topic.root / "cursors", name, slot)

    # --- the cursor ------------------------------------------------------------------------------

    def cursor(self) -> Cursor:
        """The durable cursor, checked against the ledger."""
        saved = self._file.load()
        self._check(saved)
        return saved.cursor

    def acknowledge(self, delivery: Delivery) -> bool:
        """Durably: this delivery and all before it are done with. False when they were already: it never goes back."""
        done = delivery.cursor
        return self._move(Cursor(done.entry, done.piece, done.rank + 1), only_forward=True)

    def seek(self, cursor: Cursor) -> None:
        """Go to a place that `locate` found, durably, also backwards."""
        self._move(cursor, only_forward=False)

    def _move(self, cursor: Cursor, *, only_forward: bool) -> bool:
        with self._file.locked():
            if only_forward and self.cursor() >= cursor:
                return False
            tag = self.topic.record(cursor.entry - 1).tag if cursor.entry else GENESIS
            self._file.save(Saved(cursor, tag))
            return True

    def _check(self, saved: Saved) -> None:
        cursor, end = saved.cursor, self.topic.ledger.end()
        if cursor.entry > end or (cursor.entry == end and cursor > Cursor(end)):
            raise Corrupt(
                f"{self._file.path} stands at record {cursor.entry} of the ledger, which has only {end}: "
                "its newest records were removed",
                hint="restore the ledger from a copy",
            )
        if (self.topic.record(cursor.entry - 1).tag if cursor.entry else GENESIS) != saved.tag:
            raise Corrupt(f"{self._file.path}: the ledger is not the one that this cursor was saved with")

    # --- deliveries ------------------------------------------------------------------------------

    def deliveries(self, start: Cursor | None = None, *, end: int | None = None) -> Iterator[Delivery]:
        """Everything after the cursor (or from `start`) that is committed by now, before ledger record `end`."""
        for part in self._parts(self.cursor() if start is None else start, end):
            for rank in range(part.skip, part.events.size):
                event, use = int(part.events[rank]), int(part.uses[rank])
                here = Cursor(part.entry, part.number, rank)
                yield Delivery(here, part.committed_us, part.piece, event, use, part.piece.position(event))

    def follow(
        self, start: Cursor | None = None, *, stop: Callable[[], bool], poll_seconds: float = POLL_SECONDS
    ) -> Iterator[Delivery]:
        """`deliveries`, and then those of every batch as it is committed, until `stop` says so."""
        at = self.cursor() if start is None else start
        while not stop():
            end = self.topic.ledger.end()
            if end > at.entry:
                yield from self.deliveries(at, end=end)
                at = Cursor(end)
            else:
                time.sleep(poll_seconds)

    def lag(self, start: Cursor | None = None) -> int:
        """How many deliveries wait after the cursor."""
        at = self.cursor() if start is None else start
        return sum(part.events.size - part.skip for part in self._parts(at))

    def pieces_before(self, at: Cursor, most: int) -> Iterator[SealedPiece]:
        """The last pieces before a place in which this slot finds something, at most so many, the oldest first."""
        found: list[PieceRef] = []
        for index in range(min(at.entry, self.topic.ledger.end() - 1), -1, -1):
            if len(found) >= most:
                break
            refs = self.topic.record(index).entry.pieces[: at.piece if index == at.entry else None]
            found += [ref for ref in reversed(refs) if ref.concerns(self.slot)]
        return map(self.topic.piece, reversed(found[:most]))

    def _parts(self, at: Cursor, end: int | None = None) -> Iterator[_Part]:
        """The pieces from `at` on in which this slot finds something."""
        for index in range(at.entry, self.topic.ledger.end() if end is None else end):
            committed = self.topic.record(index)
            for number, ref in enumerate(committed.entry.pieces):
                if (index, number) < (at.entry, at.piece) or not ref.concerns(self.slot):
                    continue
                piece = self.topic.piece_of(index, number)
                events, uses = piece.rows_for(self.slot)
                skip = min(at.rank, events.size) if (index, number) == (at.entry, at.piece) else 0
                yield _Part(index, number, committed.time_us, piece, events, uses, skip)

    # --- where to start --------------------------------------------------------------------------

    def locate(self, text: str) -> Cursor:
        """The place that `--from` names; see the top of this file."""
        if text == "end":
            return Cursor(self.topic.ledger.end())
        if text.isascii() and text.isdigit():
            return self.at_ordinal(int(text))
        if "/" in text:
            return self.at_position(Position.parse(text))
        try:
            moment = datetime.fromisoformat(text)
        except ValueError:
            raise Misuse(
                f"{text!r} is no place in a mailbox: a number of deliveries, an event (partition/offset/row), "
                "a time (RFC 3339) or `end` is"
            ) from None
        return self.at_time(moment if moment.tzinfo else moment.replace(tzinfo=UTC))

    def at_ordinal(self, ordinal: int) -> Cursor:
        """After the mailbox's first `ordinal` deliveries."""
        left = ordinal
        for part in self._parts(Cursor()):
            if left < part.events.size:
                return Cursor(part.entry, part.number, left)
            left -= part.events.size
        if left:
            raise NotFound(f"the mailbox has {ordinal - left} deliveries so far, fewer than {ordinal}")
        return Cursor(self.topic.ledger.end())

    def at_position(self, position: Position) -> Cursor:
        """At this event, if it is in the mailbox; at what follows it in its piece, else."""
        index, number, ref = self.topic.find(position.partition, position.offset)
        if ref is None:
            return Cursor(index)
        piece = self.topic.piece(ref)
        events = piece.rows_for(self.slot)[0].tolist()
        return Cursor(index, number, bisect_left(events, position, key=piece.position))

    def at_time(self, moment: datetime) -> Cursor:
        """At the first batch that was committed then or later."""
        return Cursor(self.topic.ledger.index_at((moment - _EPOCH) // timedelta(microseconds=1)))

    def close(self) -> None:
        if self._owns_topic:
            self.topic.close()


@dataclass(frozen=True, slots=True)
class _Part:
    """A piece, and what of it is this mailbox's."""

    entry: int
    number: int
    committed_us: int
    piece: SealedPiece
    events: Array
    uses: Array
    #: Deliveries of it that lie before the cursor.
    skip: int


def _reached(entry: Entry, partition: int) -> int:
    return entry.end.partitions[partition] if partition < len(entry.end.partitions) else 0
