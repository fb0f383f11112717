"""A log on a carrier that many append to: the carrier's positions are its numbers.

    carrier    ... | 1000 | 1001 | 1002 | ...        positions, as the carrier gives them
    numbers          0      1      2                 from the position at which our topic begins on it

Nobody appends to such a partition in a transaction, and nothing compacts it, so its positions have no gaps: one that is
missing was lost or is withheld, and is named. Each record has a head beside its data:

    head = "SC1" | kind, u8 | time_us, u64 | number, u64 | SHA-256(the head so far | data), 16 bytes   (big-endian)

The digest finds accidents. Against a carrier that lies it proves nothing, and need not: publishers sign frames, brokers
sign ledgers. A record without a head was written by somebody else; it is handed on as it is, and admission refuses it.
"""

from __future__ import annotations

import hashlib
import struct
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Final, NamedTuple

from sealcast.errors import Corrupt, Misuse, SealcastError
from sealcast.log.carriers import CarrierPartition, Stored
from sealcast.log.closing import Closing
from sealcast.log.layout import check_sizes, check_span
from sealcast.log.port import Record
from sealcast.log.segment import gone

#: Kinds of records: one of many writers', one of the one writer's, its word that it is the writer now, with its term if
#: it has one, and a part of a piece.
SHARED: Final = 0
NUMBERED: Final = 1
FENCE: Final = 2
PART: Final = 3

_HEAD: Final = struct.Struct(">3sBQQ")
_MAGIC: Final = b"SC1"
_DIGEST_BYTES: Final = 16
HEAD_BYTES: Final = _HEAD.size + _DIGEST_BYTES
#: What is read of a span to know how large its records are; those after it are taken to be of the same mean size. A
#: driver plans for all, and must not read all.
SIZED_BYTES: Final = 1 << 20


class RecordHead(NamedTuple):
    """What we keep beside the data of a record."""

    kind: int
    time_us: int
    number: int

    def sealed(self, data: bytes) -> bytes:
        said = _HEAD.pack(_MAGIC, self.kind, self.time_us, self.number)
        return said + _digest(said, data)

    @classmethod
    def read(cls, stored: Stored, where: str) -> RecordHead | None:
        """None if the record is not ours; Corrupt if it was, and its bytes have changed."""
        if len(stored.head) != HEAD_BYTES or not stored.head.startswith(_MAGIC):
            return None
        said, digest = stored.head[: _HEAD.size], stored.head[_HEAD.size :]
        if _digest(said, stored.data) != digest:
            raise Corrupt(f"{where} is not what was written: its digest differs", hint="restore it from a replica")
        _, kind, time_us, number = _HEAD.unpack(said)
        return cls(kind, time_us, number)


def _digest(said: bytes, data: bytes) -> bytes:
    hasher = hashlib.sha256(said)
    hasher.update(data)
    return hasher.digest()[:_DIGEST_BYTES]


class CarriedLog(Closing):
    """One partition of a topic on a carrier (`port.SharedLog`). Threads may share it; a child process opens its own."""

    def __init__(
        self,
        partition: CarrierPartition,
        first_position: int = 0,
        first_number: int = 0,
        still_here: Callable[[], None] = lambda: None,
    ) -> None:
        """The record at `first_position` has the number `first_number`: there our topic begins on the carrier.

        `still_here` raises Moved when the log is being moved elsewhere: for whoever appends, and so not for whoever
        moves it. It is asked after each append: whoever moves it says so first and looks then where the log ends. So a
        record that was appended before it was said is moved, and of any other one its writer is told that it does not
        count.
        """
        self._partition, self._first, self._still_here = partition, (first_position, first_number), still_here
        self._shift = first_number - first_position
        self._guard = threading.Lock()
        self._seen_end = first_number

    @property
    def shown(self) -> str:
        """As messages call it."""
        return self._partition.shown

    # --- appending -------------------------------------------------------------------------------

    def append(self, records: Sequence[bytes]) -> list[int]:
        now = time.time_ns() // 1000
        try:
            numbers = self.copy([(now, data) for data in records])
        except SealcastError:
            self._still_here()  # what was moved is removed from the carrier
            raise
        self._still_here()
        return numbers

    def copy(self, records: Sequence[tuple[int, bytes]]) -> list[int]:
        """Appends records that were another log's, with the times that they had there."""
        check_sizes([data for _, data in records])
        stored = [(RecordHead(SHARED, at, 0).sealed(data), data) for at, data in records]
        return [position + self._shift for position in self._partition.append(stored)]

    def cut(self, before: int) -> None:
        """A carrier drops records one by one."""

    def drop(self, before: int) -> int:
        start = self.start()
        if before > start:
            self._partition.drop(min(before, self.end()) - self._shift)
        return self.start()

    # --- reading ---------------------------------------------------------------------------------

    def start(self) -> int:
        return self.bounds()[0]

    def end(self) -> int:
        return self.bounds()[1]

    def bounds(self) -> tuple[int, int]:
        """Start and end, by one question."""
        try:
            first, past = self._partition.bounds()
        except SealcastError:
            self._still_here()
            raise
        start, end = max(first, self._first[0]) + self._shift, max(past, self._first[0]) + self._shift
        with self._guard:
            if end < self._seen_end:
                raise Corrupt(
                    f"{self.shown} ends at {end} and ended at {self._seen_end} before: records {end} to "
                    f"{self._seen_end - 1} are gone",
                    hint="the carrier lost what it had acknowledged: bring back the replica that has them",
                )
            self._seen_end = end
        return start, end

    def read(self, start: int, end: int | None = None, max_bytes: int | None = None) -> Iterator[Record]:
        first, past = self.bounds()
        self._check(start, end, max_bytes, first, past)
        return self.read_seen(start, past if end is None else end, max_bytes)

    def read_seen(self, start: int, stop: int, max_bytes: int | None = None) -> Iterator[Record]:
        try:
            yield from self._read(start, stop, max_bytes)
        except Corrupt:
            if start < (first := self.bounds()[0]):
                raise gone(self.shown, start, first) from None
            raise

    def _read(self, start: int, stop: int, max_bytes: int | None) -> Iterator[Record]:
        expected, taken = start, 0
        if start >= stop:
            return
        for stored in self._partition.fetch(start - self._shift, stop - self._shift):
            number = stored.position + self._shift
            if number != expected:
                raise self._missing(expected, number)
            if max_bytes is not None and taken and taken + len(stored.data) > max_bytes:
                return
            taken += len(stored.data)
            head = RecordHead.read(stored, f"{self.shown}: record {number}")
            yield Record(number, 0 if head is None else head.time_us, stored.data)
            expected += 1
        if expected < stop:
            raise self._missing(expected, stop)

    def heard(self, start: int) -> list[Record]:
        """What is here already from there on, without a question (`CarrierPartition.heard`)."""
        found = list[Record]()
        for stored in self._partition.heard(start - self._shift):
            number = stored.position + self._shift
            head = RecordHead.read(stored, f"{self.shown}: record {number}")
            if number != start + len(found):
                break  # whoever asks for it finds out what is missing
            found.append(Record(number, 0 if head is None else head.time_us, stored.data))
        return found

    def sizes(self, start: int, end: int, max_bytes: int | None = None) -> list[int]:
        first, past = self.bounds()
        self._check(start, end, max_bytes, first, past)
        known = [len(record.data) for record in self.read_seen(start, end, SIZED_BYTES)]
        if known and len(known) < end - start:
            known += [max(1, sum(known) // len(known))] * (end - start - len(known))
        return _within(known, max_bytes)

    def offset_at(self, time_us: int) -> int:
        raise Misuse(f"{self.shown} has its writers' clocks: when something came, the ledger of its reader says")

    def close(self) -> None:
        self._partition.close()

    def _check(self, start: int, end: int | None, max_bytes: int | None, first: int, past: int) -> None:
        check_span(self.shown, start, end, max_bytes, past)
        if start < first:
            raise gone(self.shown, start, first)

    def _missing(self, expected: int, found: int) -> Corrupt:
        which = f"record {expected} is" if found - expected == 1 else f"records {expected} to {found - 1} are"
        return Corrupt(
            f"{self.shown}: {which} missing",
            hint="the carrier lost or withholds them: bring back the replica that has them. A topic that is compacted, "
            "or that others write to in transactions, cannot carry frames",
        )


def _within(sizes: list[int], max_bytes: int | None) -> list[int]:
    """The first of them that fit, and one at least."""
    if max_bytes is None:
        return sizes
    total = 0
    for at, size in enumerate(sizes):
        total += size
        if total > max_bytes and at:
            return sizes[:at]
    return sizes
