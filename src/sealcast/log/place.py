"""A place in what a ledger has for one reader: the durable cursor, and where to start.

What a reader gets, and how it is found in a piece, differs by protection; where it stands does not. A part is a piece
with something for the reader, a delivery is one of those things, and a cursor is (record, piece, rank within the part).

Where to start (`locate`, the `--from` of `sub`):

    17                       an ordinal: after the mailbox's first 17 deliveries; 0 is the very beginning
    2/1041/7                 an event, as `pub` and `sub` print it: from there on
    2026-03-01T12:00:00Z     a time: what was committed (delivered, not published) then or later
    end                      only what is yet to come
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Final, Generic, Protocol, TypeVar

from sealcast.errors import Corrupt, Misuse, NotFound
from sealcast.log.cursor import Cursor, CursorFile, Saved
from sealcast.log.ledger import GENESIS, Committed, LedgerReader
from sealcast.model.event import Position

POLL_SECONDS: Final = 0.05
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


class Part(Protocol):
    """A piece, and what of it is the reader's."""

    @property
    def entry(self) -> int: ...
    @property
    def number(self) -> int: ...
    @property
    def skip(self) -> int:
        """Deliveries of it that lie before the cursor."""

    @property
    def size(self) -> int:
        """All deliveries of it."""


class Delivered(Protocol):
    @property
    def cursor(self) -> Cursor:
        """Itself; acknowledging goes to the place after it."""


class Records(Protocol):
    @property
    def ledger(self) -> LedgerReader: ...
    def record(self, index: int) -> Committed: ...


D = TypeVar("D", bound=Delivered)


class Mail(ABC, Generic[D]):
    """What a ledger has for one reader, after its durable cursor."""

    def __init__(self, records: Records, file: CursorFile) -> None:
        self._records = records
        self._file = file

    @abstractmethod
    def deliveries(self, start: Cursor | None = None, *, end: int | None = None) -> Iterator[D]:
        """Everything after the cursor (or from `start`) that is committed by now, before ledger record `end`."""

    @abstractmethod
    def at_position(self, position: Position) -> Cursor:
        """At this event."""

    @abstractmethod
    def _parts(self, at: Cursor, end: int | None = None) -> Iterable[Part]:
        """The pieces from `at` on in which the reader finds something."""

    def follow(
        self, start: Cursor | None = None, *, stop: Callable[[], bool], poll_seconds: float = POLL_SECONDS
    ) -> Iterator[D]:
        """`deliveries`, and then those of every batch as it is committed, until `stop` says so."""
        at = self.cursor() if start is None else start
        while not stop():
            end = self._records.ledger.end()
            if end > at.entry:
                yield from self.deliveries(at, end=end)
                at = Cursor(end)
            else:
                time.sleep(poll_seconds)

    def lag(self, start: Cursor | None = None) -> int:
        """How many deliveries wait after the cursor."""
        return sum(part.size - part.skip for part in self._parts(self.cursor() if start is None else start))

    # --- the cursor ------------------------------------------------------------------------------

    def cursor(self) -> Cursor:
        """The durable cursor, checked against the ledger."""
        saved, end = self._file.load(), self._records.ledger.end()
        cursor = saved.cursor
        if cursor.entry > end or (cursor.entry == end and cursor > Cursor(end)):
            raise Corrupt(
                f"{self._file.path} stands at record {cursor.entry} of the ledger, which has only {end}: "
                "its newest records were removed",
                hint="restore the ledger from a copy",
            )
        if self._tag_before(cursor) != saved.tag:
            raise Corrupt(f"{self._file.path}: the ledger is not the one that this cursor was saved with")
        return cursor

    def acknowledge(self, delivery: D) -> bool:
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
            self._file.save(Saved(cursor, self._tag_before(cursor)))
            return True

    def _tag_before(self, cursor: Cursor) -> bytes:
        return self._records.record(cursor.entry - 1).tag if cursor.entry else GENESIS

    # --- where to start --------------------------------------------------------------------------

    def locate(self, text: str) -> Cursor:
        """The place that `--from` names; see the top of this file."""
        if text == "end":
            return Cursor(self._records.ledger.end())
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
            if left < part.size:
                return Cursor(part.entry, part.number, left)
            left -= part.size
        if left:
            raise NotFound(f"the mailbox has {ordinal - left} deliveries so far, fewer than {ordinal}")
        return Cursor(self._records.ledger.end())

    def at_time(self, moment: datetime) -> Cursor:
        """At the first batch that was committed then or later."""
        return Cursor(self._records.ledger.index_at((moment - _EPOCH) // timedelta(microseconds=1)))
