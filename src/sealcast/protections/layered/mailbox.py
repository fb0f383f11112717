"""What a broker of a layered topic has for one recipient: the next broker below it, or one of its own subscribers.

    directory/ledger, directory/pieces        a broker's `hops/`; or a root's own topic directory, for what it admitted

A record of that ledger is a batch of its broker's; its number is the offset of whoever reads on from here. A recipient
has no journal key of the broker above. It checks all that is public: the ledger's chains, every piece against the
digest that the ledger names; and a subscriber checks every event against its publisher's signature, so that a broker,
or whoever writes its files, can withhold events and never invent one.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from sealcast.errors import Corrupt, NotFound
from sealcast.log.cursor import Cursor, CursorFile
from sealcast.log.entry import PieceRef
from sealcast.log.ledger import Committed, LedgerReader
from sealcast.log.parsed import ParsedPieces
from sealcast.log.pieces import Pieces
from sealcast.log.place import Mail
from sealcast.model.event import Position
from sealcast.primitives.merkle import HASH_BYTES
from sealcast.primitives.secrets import Secret
from sealcast.wire import hops, notifications
from sealcast.wire.hops import HopPiece
from sealcast.wire.notifications import Core, WireEntry

#: Of pieces kept parsed by one reader.
CACHE_BYTES: Final = 64 << 20
#: Recipients have names, not slots.
_NO_SLOT: Final = 0


@dataclass(frozen=True, slots=True)
class HopDelivery:
    """One event for one recipient, as it stands in its piece."""

    #: Itself, in its recipient's mailbox; `cursor.entry` is the ledger's record. Acknowledging goes to the place after.
    cursor: Cursor
    committed_us: int
    piece: HopPiece
    #: The event's index in the piece, and the row that has its entries.
    event: int
    row: int

    @property
    def position(self) -> Position:
        """At its root broker: partition, offset of the frame, and which event of it."""
        return self.piece.position(self.event)

    @property
    def event_id(self) -> bytes:
        return self.piece.event_id(self.event)

    @property
    def generation(self) -> int:
        return int(self.piece.generation[self.event])

    @property
    def body(self) -> bytes:
        return self.piece.body(self.event)

    @property
    def signed(self) -> bytes:
        """The header of its frame with its publisher's signature (`wire.frame.parse_signed`)."""
        return self.piece.frame(self.event).signed

    @property
    def core(self) -> bytes:
        """The message that the publisher hashed into its signature: leaf `leaf` of its frame's tree."""
        return notifications.encode_core(Core(self.event_id, self.generation, self.body))

    @property
    def leaf(self) -> int:
        return notifications.MESSAGES_PER_EVENT * int(self.piece.row[self.event])

    @property
    def path(self) -> tuple[bytes, ...]:
        """What proves that leaf (`merkle.verify`)."""
        joined = self.piece.path(self.event)
        return tuple(joined[at : at + HASH_BYTES] for at in range(0, len(joined), HASH_BYTES))

    @property
    def entries(self) -> tuple[WireEntry, ...]:
        """FrameRejected when the broker above wrote something else."""
        return notifications.parse_entries(self.piece.entries_of(self.row))


class HopReader:
    """A broker's hop pieces, verified; the last ones are kept parsed. Not for several threads."""

    def __init__(self, directory: Path | str, *, key: Secret | None = None, cache_bytes: int = CACHE_BYTES) -> None:
        """With the ledger's journal key its tags are verified, too."""
        self.root = Path(directory)
        self.ledger = LedgerReader(self.root / "ledger", key)
        self._parsed = ParsedPieces(Pieces(self.root / "pieces"), hops.parse, cache_bytes)
        self._last: Committed | None = None

    def end(self) -> int:
        """How many records there are. Cheap: ask as often as you like."""
        return self.ledger.end()

    def record(self, index: int) -> Committed:
        """A record; walking forward, each is verified to follow the one before."""
        before, found = self._last, self.ledger.at(index)
        if before is not None and before.index == index - 1 and found.previous != before.tag:
            raise Corrupt(f"{self.ledger.directory}: record {index} does not follow record {index - 1}")
        self._last = found
        return found

    def piece(self, ref: PieceRef) -> HopPiece:
        """A piece that the ledger names, verified."""
        return self._parsed.get(ref)

    def pieces(self, first: int, end: int) -> Iterator[HopPiece]:
        """All pieces of records `first` to before `end`."""
        for index in range(first, end):
            for ref in self.record(index).entry.pieces:
                yield self.piece(ref)

    def close(self) -> None:
        self.ledger.close()


class HopMailbox(Mail[HopDelivery]):
    """What one recipient gets from one broker, after its durable cursor."""

    def __init__(self, reader: HopReader | Path | str, recipient: str) -> None:
        self._owns_reader = not isinstance(reader, HopReader)
        self.reader = reader if isinstance(reader, HopReader) else HopReader(reader)
        self.recipient = recipient
        super().__init__(self.reader, CursorFile(self.reader.root / "cursors", recipient, _NO_SLOT))

    def deliveries(self, start: Cursor | None = None, *, end: int | None = None) -> Iterator[HopDelivery]:
        for part in self._parts(self.cursor() if start is None else start, end):
            for rank in range(part.skip, len(part.rows)):
                row = part.rows[rank]
                here = Cursor(part.entry, part.number, rank)
                yield HopDelivery(here, part.committed_us, part.piece, part.piece.event_of(row), row)

    def _parts(self, at: Cursor, end: int | None = None) -> Iterator[_Part]:
        for index in range(at.entry, self.reader.end() if end is None else end):
            committed = self.reader.record(index)
            for number, ref in enumerate(committed.entry.pieces):
                if (index, number) < (at.entry, at.piece):
                    continue
                piece = self.reader.piece(ref)
                rows = piece.rows_for(self.recipient)
                if rows:
                    skip = min(at.rank, len(rows)) if (index, number) == (at.entry, at.piece) else 0
                    yield _Part(index, number, committed.time_us, piece, rows, skip)

    def at_position(self, position: Position) -> Cursor:
        """At this event, which is in the mailbox. Brokers above number their own records, so all are looked at."""
        for delivery in self.deliveries(Cursor()):
            if delivery.position == position:
                return delivery.cursor
        raise NotFound(f"event {position} is not in this mailbox", hint="it did not match, or has not come this far")

    def close(self) -> None:
        if self._owns_reader:
            self.reader.close()


@dataclass(frozen=True, slots=True)
class _Part:
    """A piece, and what of it is this recipient's."""

    entry: int
    number: int
    committed_us: int
    piece: HopPiece
    rows: range
    skip: int

    @property
    def size(self) -> int:
        return len(self.rows)
