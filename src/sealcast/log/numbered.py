"""A log on a carrier with one writer at a time: the writer numbers its records, in their heads.

    carrier    | 0: record 0 | 1: mark | 2: record 1 | 3: record 2 | 4: mark | ...

Fencing costs positions: a transaction of Kafka ends with a mark, a new writer on NATS begins with one. So positions are
not numbers here. A reader finds number n without reading all before it: of n records after a known place, none comes
before n positions, so it leaps there, looks which number that is, and leaps on.

A writer may be several processes, one after the other: a pipeline's driver becomes the writer, and another process of
the pipeline appends. They know each other by a term. Whoever begins one (`fence`) writes it into the log, and whoever
goes on with it (`resume`) becomes the writer first and reads then whether the term is still the newest. So the order of
terms is the carrier's order of records, and a process of an older term finds out before it appends anything.
"""

from __future__ import annotations

import threading
import time
from bisect import bisect_right, insort
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from typing import Final

from sealcast.errors import Corrupt, Locked, SealcastError
from sealcast.log.carried import FENCE, NUMBERED, RecordHead
from sealcast.log.carriers import CarrierPartition
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


class NumberedLog(Closing):
    """One partition with one writer (`port.FencedLog`). Threads may share it; a child process opens its own."""

    def __init__(self, partition: CarrierPartition, still_here: Callable[[], None] = lambda: None) -> None:
        """`still_here` raises Moved when the log was moved elsewhere: the carrier has none then."""
        self._partition, self._still_here = partition, still_here
        self._guard = threading.RLock()
        #: (number, position) of records that were seen, ascending.
        self._places: list[tuple[int, int]] = []
        #: The position that the log ended at when it was looked at, and the number and time of its last record then.
        self._tail: tuple[int, int, int] = (-1, -1, 0)
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
                head = RecordHead(FENCE, time.time_ns() // 1000, 0).sealed(term)
                self._partition.append_alone([(head, term)])
            self._next = self.end()
            self._writes = True

    def resume(self, term: bytes) -> None:
        """Become its writer in a term that has begun; Locked when another one has begun since."""
        with self._guard:
            self._writes = False
            self._partition.become_writer()
            # Read after it became the writer: no term begins now without ending that.
            if (newest := self.term()) != term:
                raise Locked(
                    f"another run has taken over {self.shown} with term {_shown(newest)} since this one began with "
                    f"term {_shown(term)}, which commits nothing more",
                    hint=TAKEN_OVER,
                )
            self._next = self.end()
            self._writes = True

    @property
    def writes(self) -> bool:
        """Whether this is the writer, as far as it knows."""
        return self._writes

    def append(self, records: Sequence[bytes]) -> range:
        now = max(time.time_ns() // 1000, self._tail[2], self._written_us)
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
                positions = self._partition.append_alone(
                    [(head, data) for head, (_, data) in zip(heads, records, strict=True)]
                )
            except BaseException:
                # What became of it nobody knows here: whoever goes on becomes the writer anew, and looks.
                self._writes = False
                raise
            self._remember(first, positions[0])
            self._next, self._written_us = first + len(records), records[-1][0]
            return range(first, first + len(records))

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
        with self._guard:
            try:
                first, past = self._partition.bounds()
            except SealcastError:
                self._still_here()
                raise
            if past < self._tail[0]:
                raise Corrupt(f"{self.shown} ended at position {self._tail[0]} before and ends at {past} now")
            if past != self._tail[0]:
                self._tail = (past, *self._last(first, past))
            return self._tail[1] + 1

    def _last(self, first: int, past: int) -> tuple[int, int]:
        """The number and time of the last record; -1 where there is none."""
        looked = _TAIL
        while True:
            begin = max(first, self._tail[0], past - looked)
            last = None
            for found in self._records(begin, past):
                if last is not None and found[0].offset != last[0].offset + 1:
                    raise self._misplaced(found[0].offset, last[0].offset + 1, found[1])
                last = found
            if last is not None:
                self._remember(last[0].offset, last[1])
                self._keep(last[0])
                return last[0].offset, last[0].time_us
            if begin <= max(first, self._tail[0]):
                return self._tail[1], self._tail[2]
            looked *= 16

    def term(self) -> bytes:
        """The newest term that has begun; empty where none has."""
        first, past = self._partition.bounds()
        looked = _TAIL
        while True:
            begin, found = max(first, past - looked), b""
            for stored in self._partition.fetch(begin, past) if begin < past else ():
                head = RecordHead.read(stored, f"{self.shown}: position {stored.position}")
                if head is not None and head.kind == FENCE and stored.data:
                    found = stored.data
            if found or begin <= first:
                return found
            looked *= 16

    def read(self, start: int, end: int | None = None, max_bytes: int | None = None) -> Iterator[Record]:
        past = self.end()
        check_span(self.shown, start, end, max_bytes, past)
        stop = past if end is None else end
        if start >= stop:
            return iter(())
        if stop == start + 1 and (known := self._recent.get(start)) is not None:
            return iter((known,))
        if start < (first := self.start()):
            raise gone(self.shown, start, first)
        return self._read(start, stop, max_bytes)

    def _read(self, start: int, stop: int, max_bytes: int | None) -> Iterator[Record]:
        expected, taken, past = start, 0, self._partition.bounds()[1]
        for record, position in self._records(self._find(start), past):
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
            first, past = self._partition.bounds()
            at = bisect_right(self._places, (number, past)) - 1
            known, position = self._places[at] if at >= 0 else (None, first)
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
        if start >= end:
            return
        for stored in self._partition.fetch(start, end):
            where = f"{self.shown}: position {stored.position}"
            head = RecordHead.read(stored, where)
            if head is None:
                raise Corrupt(f"{where} was written by somebody else", hint="nobody but its writer may write here")
            if head.kind == NUMBERED:
                yield Record(head.number, head.time_us, stored.data), stored.position

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
