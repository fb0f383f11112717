"""A mailbox: a cursor, and an index into the sealed pieces. Never a copy (decision 6).

    ledger record -> its pieces -> the piece's own index -> this slot's deliveries, in the order of the ledger

A subscriber has no journal key. It checks all that is public: the ledger's two chains, each piece against the digest
that the ledger names, and that the ledger still contains what it had when the cursor was saved. What it opens it
verifies against the publisher's signature, so a forged ledger could withhold events and never invent one.
"""

from __future__ import annotations

import threading
from bisect import bisect_left, bisect_right
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from sealcast.errors import Corrupt, NotFound
from sealcast.log.cursor import Cursor, CursorFile
from sealcast.log.entry import Entry, PieceRef
from sealcast.log.ledger import Committed, LedgerReader
from sealcast.log.parsed import ParsedPieces
from sealcast.log.pieces import Pieces
from sealcast.log.place import Mail
from sealcast.model.event import Position
from sealcast.primitives.secrets import Secret
from sealcast.wire import sealed
from sealcast.wire.sealed import Array, SealedPiece

#: Of pieces kept parsed. Mailboxes of one process share them: each piece is read and verified once for all of them.
CACHE_BYTES: Final = 256 << 20
CACHE_RECORDS: Final = 4096


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
        self._parsed = ParsedPieces(Pieces(self.root / "pieces"), sealed.parse, cache_bytes)
        self._guard = threading.Lock()
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
        return self._parsed.get(ref)

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

    def close(self) -> None:
        self.ledger.close()


class Mailbox(Mail[Delivery]):
    """What one subscriber gets on one topic, by its slot, after its durable cursor."""

    def __init__(self, topic: TopicReader | Path | str, slot: int, name: str) -> None:
        self._owns_topic = not isinstance(topic, TopicReader)
        self.topic = topic if isinstance(topic, TopicReader) else TopicReader(topic)
        self.slot = slot
        super().__init__(self.topic, CursorFile(self.topic.root / "cursors", name, slot))

    def deliveries(self, start: Cursor | None = None, *, end: int | None = None) -> Iterator[Delivery]:
        for part in self._parts(self.cursor() if start is None else start, end):
            for rank in range(part.skip, part.events.size):
                event, use = int(part.events[rank]), int(part.uses[rank])
                here = Cursor(part.entry, part.number, rank)
                yield Delivery(here, part.committed_us, part.piece, event, use, part.piece.position(event))

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
        for index in range(at.entry, self.topic.ledger.end() if end is None else end):
            committed = self.topic.record(index)
            for number, ref in enumerate(committed.entry.pieces):
                if (index, number) < (at.entry, at.piece) or not ref.concerns(self.slot):
                    continue
                piece = self.topic.piece_of(index, number)
                events, uses = piece.rows_for(self.slot)
                skip = min(at.rank, events.size) if (index, number) == (at.entry, at.piece) else 0
                yield _Part(index, number, committed.time_us, piece, events, uses, skip)

    def at_position(self, position: Position) -> Cursor:
        """At this event, if it is in the mailbox; at what follows it in its piece, else."""
        index, number, ref = self.topic.find(position.partition, position.offset)
        if ref is None:
            return Cursor(index)
        piece = self.topic.piece(ref)
        events = piece.rows_for(self.slot)[0].tolist()
        return Cursor(index, number, bisect_left(events, position, key=piece.position))

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
    skip: int

    @property
    def size(self) -> int:
        return int(self.events.size)


def _reached(entry: Entry, partition: int) -> int:
    return entry.end.partitions[partition] if partition < len(entry.end.partitions) else 0
