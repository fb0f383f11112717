"""A log on a carrier with one writer at a time: the writer numbers its records, in their heads.

    carrier    | 0: record 0 | 1: mark | 2: record 1 | 3: record 2 | 4: mark | ...

Fencing costs positions: a transaction of Kafka ends with a mark, a new writer on NATS begins with one. So positions are
not numbers here. A reader finds number n without reading all before it: of n records after a known place, none comes
before n positions, so it leaps there, looks which number that is, and leaps on.

A writer may be several processes, one after the other: a pipeline's driver becomes the writer, and another process of
the pipeline appends. They know each other by a term. Whoever begins one (`fence`) writes it into the log, and whoever
goes on with it (`resume`) becomes the writer first and reads then whether the term is still the newest. So the order of
terms is the carrier's order of records, and a process of an older term finds out before it appends anything.

**Who is fenced off was not always taken over.** A carrier that comes back may still find a request to become the writer
that this very process gave up as unanswered, and obeys it. Only a term says who took over: whoever is refused looks
whether a newer one has begun, and if none has, becomes the writer again (ADR 69).
"""

from __future__ import annotations

import threading
import time
from bisect import bisect_right, insort
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from typing import Final, NamedTuple

from sealcast.errors import Corrupt, Locked, SealcastError
from sealcast.log.carried import FENCE, NUMBERED, RecordHead
from sealcast.log.carriers import CarrierAway, CarrierPartition, Fenced, Stored
from sealcast.log.closing import Closing
from sealcast.log.driver_lock import TAKEN_OVER
from sealcast.log.layout import check_sizes, check_span
from sealcast.log.port import Record
from sealcast.log.segment import gone

#: Places that a reader remembers, evenly forgotten when there are more.
_MAX_PLACES: Final = 4_096
#: Positions from the end on that are looked at first for the last record.
_TAIL: Final = 64
#: Records that a reader keeps: the last ones are asked for again and again, and each question goes to a server.
_KEPT: Final = 32
_KEPT_BYTES: Final = 4 << 20
#: How often a writer that was fenced off, and by no newer term, becomes the writer again before it gives up.
TRIES: Final = 8


class _Tail(NamedTuple):
    """What a log ended with when it was looked at."""

    #: One past the last position.
    position: int = -1
    #: Of the last record; -1 where there is none.
    number: int = -1
    time_us: int = 0
    #: The newest term, empty where none has begun; None where that was not looked for.
    term: bytes | None = None


class NumberedLog(Closing):
    """One partition with one writer (`port.FencedLog`). Threads may share it; a child process opens its own."""

    def __init__(self, partition: CarrierPartition, still_here: Callable[[], None] = lambda: None) -> None:
        """`still_here` raises Moved when the log was moved elsewhere: the carrier has none then."""
        self._partition, self._still_here = partition, still_here
        self._guard = threading.RLock()
        #: (number, position) of records that were seen, ascending.
        self._places: list[tuple[int, int]] = []
        self._tail = _Tail()
        #: The first position that was kept when it was looked at, and the number of the first record from there on.
        self._begin: tuple[int, int] | None = None
        #: Records that were read lately, by number.
        self._recent: OrderedDict[int, Record] = OrderedDict()
        self._writes = False
        #: Of the writer: the number of the next record, and the time of the last.
        self._next = 0
        self._written_us = 0

    @property
    def shown(self) -> str:
        """As messages call it."""
        return self._partition.shown

    # --- writing ---------------------------------------------------------------------------------

    def fence(self, term: bytes = b"") -> None:
        """`port.FencedLog`; with a term, that one begins."""
        with self._guard:
            self._writes = False
            self._partition.become_writer()
            if term:
                self._begin_term(term)
            self._next = self.end()
            self._writes = True

    def _begin_term(self, term: bytes) -> None:
        """Writes the term down; Locked when another one has begun since this became the writer."""
        before = self.term()
        for _ in range(TRIES):
            head = RecordHead(FENCE, time.time_ns() // 1000, 0).sealed(term)
            try:
                _, past = self._partition.append_alone([(head, term)])
                self._tail = self._tail._replace(position=past, term=term)
                return
            except Fenced:
                self._partition.become_writer()
            # It may be there all the same: refused when it was asked for again, after the answer was lost.
            if (newest := self.term()) == term:
                return
            if newest != before:
                raise self._taken_over(newest, term)
        raise self.unsettled()

    def resume(self, term: bytes) -> None:
        """Become its writer in a term that has begun; Locked when another one has begun since."""
        with self._guard:
            self._writes = False
            # Looked at before, so that a process of an older term fences nobody off in vain; and after it became the
            # writer, since from then on no term begins without ending that.
            self._check_newest(term)
            self._partition.become_writer()
            self._check_newest(term)
            self._next = self.end()
            self._writes = True

    def _check_newest(self, term: bytes) -> None:
        if (newest := self.term()) != term:
            raise self._taken_over(newest, term)

    def _taken_over(self, newest: bytes, term: bytes) -> Locked:
        return Locked(
            f"another run has taken over {self.shown} with term {_shown(newest)} since this one began with "
            f"term {_shown(term)}, which commits nothing more",
            hint=TAKEN_OVER,
        )

    def unsettled(self) -> CarrierAway:
        """What a writer says that is fenced off again and again, though no newer term has begun."""
        return CarrierAway(
            f"{self.shown} was refused {TRIES} times as by another writer, and no newer term has begun",
            hint="is the carrier still starting? nothing was appended that is not there when it is looked for again",
        )

    @property
    def writes(self) -> bool:
        """Whether this is the writer, as far as it knows."""
        return self._writes

    def append(self, records: Sequence[bytes]) -> range:
        now = max(time.time_ns() // 1000, self._tail.time_us, self._written_us)
        return self.copy([(now, data) for data in records])

    def copy(self, records: Sequence[tuple[int, bytes]]) -> range:
        """Appends records that were another log's, with the times that they had there; times ascend."""
        check_sizes([data for _, data in records])
        with self._guard:
            if not self._writes:
                raise Locked(f"{self.shown} has another writer, or none", hint="become its writer first")
            first = self._next  # its own count: nobody else has written since it became the writer
            heads = [RecordHead(NUMBERED, at, first + i).sealed(data) for i, (at, data) in enumerate(records)]
            try:
                positions, past = self._partition.append_alone(
                    [(head, data) for head, (_, data) in zip(heads, records, strict=True)]
                )
            except BaseException:
                # What became of it nobody knows here: whoever goes on becomes the writer anew, and looks.
                self._writes = False
                raise
            self._written(first, records, positions, past)
            return range(first, first + len(records))

    def _written(self, first: int, records: Sequence[tuple[int, bytes]], positions: Sequence[int], past: int) -> None:
        """Remembers what this has appended, so that nobody asks for it."""
        self._remember(first, positions[0])
        self._next = first + len(records)
        (self._written_us, data), number = records[-1], self._next - 1
        self._remember(number, positions[-1])
        self._keep(Record(number, self._written_us, data))
        # It was at the end when it became the writer, and whatever came since is its own.
        self._tail = _Tail(past, number, self._written_us, self._tail.term)

    # --- reading ---------------------------------------------------------------------------------

    def start(self) -> int:
        with self._guard:
            position, end = self._partition.bounds()
            if self._begin is None or self._begin[0] != position:
                first = next(self._records(position, end), None)
                if first is None:
                    return self.end()
                self._begin = position, first[0].offset
            return self._begin[1]

    def end(self) -> int:
        return self._look().number + 1

    @property
    def known_end(self) -> int:
        """How far it goes as far as is known, without a question."""
        return self._tail.number + 1

    def wait(self, known: int, seconds: float) -> list[Stored]:
        """Returns when there may be more than `known` records, and in any case when the time is over. What came, for
        others who read the same (`came`)."""
        tail = self._tail if self._tail.position >= 0 else self._look()
        if tail.number >= known:
            return []
        came = self._partition.wait(tail.position, seconds)
        self.came(came)
        return came

    def came(self, stored: Sequence[Stored]) -> None:
        """Goes by what came, where it follows what is known. What does not is left for the next look, which says what
        is wrong, if anything is."""
        with self._guard:
            for each in stored:
                head = RecordHead.read(each, f"{self.shown}: position {each.position}")
                if head is None or head.kind != NUMBERED or head.number != self._tail.number + 1:
                    return
                if 0 <= self._tail.position <= each.position:
                    self._remember(head.number, each.position)
                    self._keep(Record(head.number, head.time_us, each.data))
                    # Whoever else looked further may have passed a term.
                    self._tail = _Tail(each.position + 1, head.number, head.time_us, None)

    def _look(self) -> _Tail:
        """What the log ends with now. What came since the last look is read, as far back as a record takes."""
        with self._guard:
            try:
                first, past = self._partition.bounds()
            except SealcastError:
                self._still_here()
                raise
            if past < self._tail.position:
                raise Corrupt(f"{self.shown} ended at position {self._tail.position} before and ends at {past} now")
            if past != self._tail.position:
                self._tail = self._tail_at(first, past)
            return self._tail

    def _tail_at(self, first: int, past: int) -> _Tail:
        known, looked = self._tail, _TAIL
        least = max(first, known.position)
        while True:
            begin = max(least, past - looked)
            last: Record | None = None
            at = -1
            # What was read before begins where this ends, or there is nothing before it.
            term = None if begin > least else known.term if known.position >= first else b""
            for head, stored in self._heads(begin, past):
                if head.kind == FENCE:
                    term = stored.data or term
                elif head.kind == NUMBERED:
                    if last is not None and head.number != last.offset + 1:
                        raise self._misplaced(head.number, last.offset + 1, stored.position)
                    last, at = Record(head.number, head.time_us, stored.data), stored.position
                    self._keep(last)
            if last is not None:
                self._remember(last.offset, at)
                return _Tail(past, last.offset, last.time_us, term)
            if begin <= least:
                return _Tail(past, known.number, known.time_us, term)
            looked *= 16

    def term(self) -> bytes:
        """The newest term that has begun; empty where none has."""
        with self._guard:
            tail, looked = self._look(), _TAIL
            first = self._partition.bounds()[0] if tail.term is None else 0
            while tail.term is None:
                begin = max(first, tail.position - looked)
                found = [s.data for h, s in self._heads(begin, tail.position) if h.kind == FENCE and s.data]
                if found or begin <= first:
                    tail = tail._replace(term=found[-1] if found else b"")
                looked *= 16
            self._tail = tail
            return tail.term

    def read(self, start: int, end: int | None = None, max_bytes: int | None = None) -> Iterator[Record]:
        # Records stay what they are: of those that were seen, nobody is asked whether they are there.
        past = seen if end is not None and end <= (seen := self._tail.number + 1) else self.end()
        check_span(self.shown, start, end, max_bytes, past)
        stop = past if end is None else end
        if start >= stop:
            return iter(())
        with self._guard:
            if (stop - start) <= len(self._recent) and max_bytes is None:
                kept = [found for n in range(start, stop) if (found := self._recent.get(n)) is not None]
                if len(kept) == stop - start:
                    return iter(kept)
        if start < (first := self.start()):
            raise gone(self.shown, start, first)
        return self._read(start, stop, max_bytes)

    def _read(self, start: int, stop: int, max_bytes: int | None) -> Iterator[Record]:
        expected, taken = start, 0
        for record, position in self._records(self._find(start), self._tail.position):
            if record.offset != expected:
                raise self._misplaced(record.offset, expected, position)
            if max_bytes is not None and taken and taken + len(record.data) > max_bytes:
                return
            taken += len(record.data)
            yield record
            expected += 1
            if expected == stop:
                self._remember(record.offset, position)
                self._keep(record)
                return
        raise Corrupt(f"{self.shown}: record {expected} is missing", hint="the carrier lost or withholds it")

    def _misplaced(self, number: int, expected: int, position: int) -> Corrupt:
        return Corrupt(
            f"{self.shown}: record {number} is where record {expected} should be (position {position})",
            hint="the carrier lost, repeated or moved records: bring back the replica that has them",
        )

    def _find(self, number: int) -> int:
        """A position from which on the record of that number is the first."""
        with self._guard:
            past = self._tail.position
            at = bisect_right(self._places, (number, past)) - 1
            known, position = self._places[at] if at >= 0 else (None, self._partition.bounds()[0])
            while known != number:
                leap = position if known is None else position + number - known
                found = next(self._records(leap, past), None)
                if found is None or found[0].offset > number:
                    raise Corrupt(f"{self.shown}: record {number} is missing", hint="the carrier lost or withholds it")
                known, position = found[0].offset, found[1]
                self._remember(known, position)
            return position

    def offset_at(self, time_us: int) -> int:
        low, high = self.start(), self.end()
        while low < high:
            middle = (low + high) // 2
            (record,) = self._read(middle, middle + 1, None)
            low, high = (low, middle) if record.time_us >= time_us else (middle + 1, high)
        return low

    def _records(self, start: int, end: int) -> Iterator[tuple[Record, int]]:
        """Our records at these positions, and where each is; marks are passed over."""
        for head, stored in self._heads(start, end):
            if head.kind == NUMBERED:
                yield Record(head.number, head.time_us, stored.data), stored.position

    def _heads(self, start: int, end: int) -> Iterator[tuple[RecordHead, Stored]]:
        """What is at these positions, of whatever kind."""
        for stored in self._partition.fetch(start, end) if start < end else ():
            where = f"{self.shown}: position {stored.position}"
            head = RecordHead.read(stored, where)
            if head is None:
                raise Corrupt(f"{where} was written by somebody else", hint="nobody but its writer may write here")
            yield head, stored

    def _keep(self, record: Record) -> None:
        with self._guard:
            self._recent[record.offset] = record
            self._recent.move_to_end(record.offset)
            while len(self._recent) > 1 and (
                len(self._recent) > _KEPT or sum(len(each.data) for each in self._recent.values()) > _KEPT_BYTES
            ):
                self._recent.popitem(last=False)

    def _remember(self, number: int, position: int) -> None:
        with self._guard:
            if (number, position) not in self._places[-1:]:
                insort(self._places, (number, position))
            if len(self._places) > _MAX_PLACES:
                self._places = self._places[::2]

    def close(self) -> None:
        self._partition.close()


def _shown(term: bytes) -> str:
    """A term for a message. What a carrier has in its place may be anything."""
    return term[:16].decode("ascii", "replace") if term[:16].isalnum() else f"of {len(term)} bytes"
