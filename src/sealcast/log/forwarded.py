"""Frames that came from other brokers: each in the log of the broker that took it in, with where it came from.

    record = "SCO1" | the frame's offset in its origin's log, u64 little-endian | the frame, as it was

The log of a topic has a block of partitions for every broker, in the order of their numbers, so that partition q means
the same at all of them: origin q // n, partition q % n of that origin, where n is how many partitions the topic has.
Of its own block a broker's log holds bare frames, as publishers append them; of the others', these records. Whoever
reads them sees frames: where they came from is asked for apart.

The origin's offsets ascend. So the end of this log says what is next to be forwarded: a forwarder that dies needs no
note of its own, and one that comes twice appends nothing twice (`ForwardedLog.take`).
"""

from __future__ import annotations

import hashlib
import struct
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Final

from sealcast.errors import Corrupt, Misuse
from sealcast.log import files
from sealcast.log.embedded import EmbeddedLog, EmbeddedTopic, FrameLog
from sealcast.log.layout import DEFAULT_SEGMENT_BYTES
from sealcast.log.port import Record, SharedLog
from sealcast.log.segment import list_segments

_HEAD: Final = struct.Struct("<4sQ")
_MAGIC: Final = b"SCO1"
#: Beside a log of which records were dropped: where it begins, and the origin's offset that comes there; before it, the
#: same of where it began before. A killed drop leaves it beginning at either, or between.
_NOTE: Final = "next-origin"
_NOTED: Final = struct.Struct("<QQ")
#: As it was noted before: of a log whose records were all dropped, the origin's offset that comes next.
_NOTED_ALONE: Final = struct.Struct("<Q")


class ForwardedLog(FrameLog):
    """One partition of another broker's, as far as it was forwarded. One forwarder at a time appends."""

    # --- as frames ----------------------------------------------------------------------------------

    def read(self, start: int, end: int | None = None, max_bytes: int | None = None) -> Iterator[Record]:
        for record in super().read(start, end, max_bytes):
            yield Record(record.offset, record.time_us, self._split(record)[1])

    def sizes(self, start: int, end: int, max_bytes: int | None = None) -> list[int]:
        return [max(0, size - _HEAD.size) for size in super().sizes(start, end, max_bytes)]

    def append(self, records: Sequence[bytes]) -> range:
        raise Misuse(f"{self.directory} holds another broker's frames: they are taken over, not published here")

    def read_with_origins(self, start: int, end: int) -> Iterator[tuple[int, Record]]:
        """Frames, each with its offset in its origin's log."""
        for record in super().read(start, end):
            origin, data = self._split(record)
            yield origin, Record(record.offset, record.time_us, data)

    # --- as what came from somewhere ----------------------------------------------------------------

    def origin_of(self, offset: int) -> int:
        """Where the record was in its origin's log."""
        (record,) = super().read(offset, offset + 1)
        return self._split(record)[0]

    def next_origin(self) -> int:
        """One past the last that was taken over; 0 when none was."""
        end = self.end()
        return self.origin_of(end - 1) + 1 if end > self.start() else self._noted()

    def index_of(self, origin: int) -> int:
        """How many records came from before that offset of the origin."""
        start = self.start()
        return start + bisect_left(range(start, self.end()), origin, key=self.origin_of)

    def drop(self, before: int) -> int:
        """Drops the segments whose records are all older. First it notes which offset of the origin comes where the log
        begins then, since afterwards no record says so."""
        with files.locked(self.directory / "forward.lock"):
            start, end = self.start(), self.end()
            begins = end if before >= end else max(s for s in list_segments(self.directory) if s <= max(before, start))
            if begins > start:
                notes = ((start, self._noted()), (begins, self.origin_of(begins - 1) + 1))
                raw = b"".join(_NOTED.pack(*note) for note in notes)
                files.replace_file(self.directory / _NOTE, raw + _check(raw))
            return super().drop(before)

    def through(self, taken: int) -> int:
        """One past the origin's offset of the last of the first `taken` records; 0 when there is none."""
        return self.origin_of(taken - 1) + 1 if taken > self.start() else self._noted()

    def _noted(self) -> int:
        """The origin's offset that comes where this log begins, as `drop` noted it; 0 where nothing was ever dropped.
        Of a drop that was killed half way, that of where it began before."""
        try:
            raw = (self.directory / _NOTE).read_bytes()
        except FileNotFoundError:
            return 0
        if len(raw) == _NOTED_ALONE.size:
            return int(_NOTED_ALONE.unpack(raw)[0])
        said, check = raw[: 2 * _NOTED.size], raw[2 * _NOTED.size :]
        # Releases before wrote no check.
        if len(said) != 2 * _NOTED.size or (check and check != _check(said)):
            raise Corrupt(
                f"{self.directory / _NOTE} does not say where its origin is gone on with", hint="restore it from a copy"
            )
        start = self.start()
        return max((origin for at, origin in _NOTED.iter_unpack(said) if at <= start), default=0)

    def take(self, frames: Sequence[tuple[int, bytes]]) -> int:
        """Append (origin's offset, frame) pairs, ascending, durably, leaving out what is here already; how many were
        not."""
        with files.locked(self.directory / "forward.lock"):
            begin = self.next_origin()
            fresh = [(offset, data) for offset, data in frames if offset >= begin]
            if any(b <= a for (a, _), (b, _) in pairwise(fresh)):
                raise Misuse("frames are forwarded in their origin's order")
            if fresh:
                super().append([_HEAD.pack(_MAGIC, offset) + data for offset, data in fresh])
            return len(fresh)

    def _split(self, record: Record) -> tuple[int, bytes]:
        if len(record.data) < _HEAD.size or record.data[:4] != _MAGIC:
            raise Corrupt(f"{self.directory}: record {record.offset} does not say where it came from")
        return int(_HEAD.unpack_from(record.data)[1]), record.data[_HEAD.size :]


def publisher_number(publisher: str) -> int:
    """What a publisher is called where names are too long: the same on every machine and in every run."""
    return int.from_bytes(hashlib.sha256(publisher.encode()).digest()[:8], "big")


def partition_of(publisher: str, partitions: int) -> int:
    """The partition of a broker's own block that a publisher writes to."""
    return publisher_number(publisher) % partitions


def publishers_for(partitions: int, prefix: str = "publisher-") -> list[str]:
    """Names of publishers, one for each partition, in their order."""
    found, number = dict[int, str](), 0
    while len(found) < partitions:
        found.setdefault(partition_of(f"{prefix}{number}", partitions), f"{prefix}{number}")
        number += 1
    return [found[partition] for partition in range(partitions)]


class BrokerTopic(EmbeddedTopic):
    """A topic's log at one broker: its own block of partitions, and the other brokers'."""

    def __init__(
        self,
        directory: Path | str,
        each: int,
        number: int,
        brokers: int,
        *,
        segment_bytes: int = DEFAULT_SEGMENT_BYTES,
        read_only: bool = False,
        carried: Callable[[int], SharedLog] | None = None,
    ) -> None:
        """Of the broker with that number, among so many; `each` has so many partitions. Where its own block is on a
        carrier, `carried` opens its partitions, counted from 0."""
        self._each, self._number, self._carried = each, number, carried
        self.directory = Path(directory)
        # Others may know of more brokers than whoever opens this does.
        wanted = None if read_only else max(each * brokers, self._count())
        super().__init__(directory, wanted, segment_bytes=segment_bytes, read_only=read_only)

    @property
    def own(self) -> range:
        """The partitions that publishers append to here."""
        return range(self._each * self._number, self._each * (self._number + 1))

    def numbered(self, partition: int) -> int:
        """The number that a partition has in the ledger of whoever takes its frames: the same."""
        return partition

    @property
    def partitions(self) -> int:
        """Brokers come, and their blocks with them."""
        self._partitions = max(self._partitions, self._count())
        return self._partitions

    def forwarded(self, number: int) -> ForwardedLog:
        """A partition of another broker's."""
        found = self.partition(number)
        if not isinstance(found, ForwardedLog):
            raise Misuse(f"{self.directory}: partition {number} is this broker's own")
        return found

    def _opened(self, number: int) -> SharedLog:
        if self._carried is not None and number in self.own:
            return self._carried(number - self.own.start)
        return super()._opened(number)

    def _kind(self, number: int) -> type[EmbeddedLog]:
        return FrameLog if number in self.own else ForwardedLog


def _check(raw: bytes) -> bytes:
    """Finds accidents: another number would leave frames out, or take them twice."""
    return hashlib.sha256(raw).digest()[:8]
