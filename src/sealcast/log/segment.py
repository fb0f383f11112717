"""One segment file, for reading: walk its records, verified; find a record by offset or by time; its sparse index.

The index (`.idx` beside the segment) is the history of the durable frontier, thinned out: marks that were durable
once, and therefore right for ever. It saves a scan and decides nothing: each mark has its own CRC, a damaged one is
ignored, and a missing file costs only time.
"""

from __future__ import annotations

import hashlib
import os
import threading
from bisect import bisect_right
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final, NamedTuple

from sealcast.errors import Corrupt, NotFound
from sealcast.log import files
from sealcast.log.layout import (
    HEAD,
    MARK,
    MAX_RECORD_BYTES,
    RECORD,
    RECORD_MAGIC,
    SEGMENT,
    SEGMENT_MAGIC,
    Mark,
    chain_of,
    intact,
)

#: A mark is kept for about every so many bytes: what a reader skips over at most, header by header.
INDEX_EVERY_BYTES: Final = 256 << 10
#: Reads start small (someone wants one record) and double (someone wants them all).
_FIRST_READ: Final = 64 << 10
_LARGEST_READ: Final = 4 << 20
_SKIP_READ: Final = 16 << 10
_SUFFIX: Final = ".seg"


class Step(NamedTuple):
    """A record that was walked over, and the place after it."""

    offset: int
    time_us: int
    data: bytes
    position: int
    chain: bytes


def path_of(directory: Path, first: int) -> Path:
    return directory / f"{first:020}{_SUFFIX}"


def index_path(directory: Path, first: int) -> Path:
    return directory / f"{first:020}.idx"


def list_segments(directory: Path) -> list[int]:
    """First offsets of the segments that are there, ascending."""
    stems = (name.removesuffix(_SUFFIX) for name in os.listdir(directory) if name.endswith(_SUFFIX))
    return sorted(int(stem) for stem in stems if len(stem) == 20 and stem.isascii() and stem.isdigit())


def never_used(directory: Path, segments: list[int]) -> bool:
    """Can there be no record yet? Then a missing frontier is no loss: the log's maker died before it was made."""
    return not segments or (segments == [0] and path_of(directory, 0).stat().st_size <= SEGMENT.size)


class Segment(files.OpenFile):
    """An open segment file. Threads may share it: reads are positional, what it remembers is replaced whole."""

    def __init__(self, directory: Path, first: int) -> None:
        self.first = first
        self.path = path_of(directory, first)
        self._index_path = index_path(directory, first)
        self._fd = files.open_existing(self.path)
        try:
            self.begin = self._read_header()
        except BaseException:
            self.close()
            raise
        self._marks: list[Mark] = [self.begin]
        self._index_bytes = 0
        self._resume = self.begin
        self._guard = threading.Lock()

    #: A reader forgets a segment while an iterator may still walk it: the last of them to let go closes the file.
    __del__ = files.OpenFile.close

    def size(self) -> int:
        return os.fstat(self._fd).st_size

    def _read_header(self) -> Mark:
        raw = self.pread(SEGMENT.size, 0)
        if len(raw) < SEGMENT.size or not intact(raw):
            raise Corrupt(
                f"{self.path}: byte 0: the segment's header is not what was written (before record {self.first})"
            )
        magic, first, time_us, chain, _ = SEGMENT.unpack(raw)
        if magic != SEGMENT_MAGIC or first != self.first:
            raise Corrupt(
                f"{self.path}: byte 0: this is segment {first} of version {magic!r}, not segment {self.first}"
            )
        return Mark(first, first, SEGMENT.size, time_us, chain)

    # --- walking ---------------------------------------------------------------------------------

    def walk(self, mark: Mark, limit: int) -> Iterator[Step]:
        """Every record from `mark` to byte `limit`, verified against the chain."""
        offset, position, chain = mark.offset, mark.position, mark.chain
        window = _Window(self, limit, _FIRST_READ)
        while position < limit:
            header = window.at(position, RECORD.size, offset)
            length, time_us, stored = self._parse_head(header, offset, position, limit)
            head = bytes(header[: HEAD.size])
            data = bytes(window.at(position + RECORD.size, length, offset))
            chain = chain_of(chain, head, hashlib.sha256(data).digest())
            if chain != stored:
                raise Corrupt(
                    f"{self.path}: byte {position}: record {offset} is not what was written there: "
                    f"the chain of digests breaks after record {offset - 1}",
                )
            position += RECORD.size + length
            yield Step(offset, time_us, data, position, chain)
            offset += 1

    def _parse_head(self, raw: memoryview, offset: int, position: int, limit: int) -> tuple[int, int, bytes]:
        """Length, time and chain of the record at `position`, which must be record `offset`."""
        magic, length, found, time_us, chain, _ = RECORD.unpack(raw)
        if magic != RECORD_MAGIC or not intact(raw):
            raise Corrupt(f"{self.path}: byte {position}: the header of record {offset} is not what was written")
        if found != offset:
            raise Corrupt(f"{self.path}: byte {position}: record {found} stands where record {offset} was written")
        if length > MAX_RECORD_BYTES or position + RECORD.size + length > limit:
            raise Corrupt(f"{self.path}: byte {position}: record {offset} claims {length} bytes, more than are there")
        return length, time_us, chain

    def pread(self, size: int, position: int) -> bytes:
        with files.named(self.path, "reading"):
            return os.pread(self._fd, size, position)

    # --- finding ---------------------------------------------------------------------------------

    def find(self, offset: int, limit: int) -> Mark:
        """The mark before record `offset`, by the index and then header by header."""
        resume = self._resume
        if resume.offset == offset:
            return resume
        best = self._nearest(lambda mark: mark.offset, offset, limit)
        if best.offset < resume.offset <= offset and resume.position <= limit:
            best = resume
        for mark in self._skip(best, limit):
            if mark.offset >= offset:
                return mark
        raise Corrupt(f"{self.path}: byte {limit}: the segment ends before record {offset}, which was written to it")

    def find_time(self, time_us: int, limit: int) -> int:
        """The first offset of that time or later; one past the last when there is none."""
        # Records of one append share a time, and a mark tells the time of the record *before* it: strictly before it.
        before = last = self._nearest(lambda mark: mark.time_us + 1, time_us, limit)
        for last in self._skip(before, limit):
            if last.offset > before.offset and last.time_us >= time_us:
                return last.offset - 1
        return last.offset

    def lengths(self, offset: int, limit: int) -> Iterator[int]:
        """Bytes of each record's data from `offset` on, from headers alone."""
        before = self.find(offset, limit)
        for mark in self._skip(before, limit):
            if mark.offset > before.offset:
                yield mark.position - before.position - RECORD.size
            before = mark

    def remember(self, mark: Mark) -> None:
        """A reader stopped here, and will probably go on from here."""
        self._resume = mark

    def _nearest(self, key: Callable[[Mark], int], wanted: int, limit: int) -> Mark:
        marks = self._load_index()
        at = bisect_right(marks, wanted, key=key)
        while at > 0 and marks[at - 1].position > limit:
            at -= 1
        return marks[max(at - 1, 0)]

    def _skip(self, mark: Mark, limit: int) -> Iterator[Mark]:
        """This mark and every later one to `limit`, from headers alone: their CRC is checked, the data is not read."""
        offset, position = mark.offset, mark.position
        window = _Window(self, limit, _SKIP_READ, growing=False)
        yield mark
        while position < limit:
            header = window.at(position, RECORD.size, offset)
            length, time_us, chain = self._parse_head(header, offset, position, limit)
            offset, position = offset + 1, position + RECORD.size + length
            yield Mark(self.first, offset, position, time_us, chain)

    def _load_index(self) -> list[Mark]:
        with self._guard:
            try:
                raw = self._index_path.read_bytes()
            except OSError:
                return self._marks  # dispensable: without it the walk starts at the segment's first record
            if len(raw) != self._index_bytes:
                self._index_bytes = len(raw)
                self._marks = [self.begin, *_ascending(raw, self.first)]
            return self._marks


class Tail(files.OpenFile):
    """The segment that is being written to, open; another one as soon as the log has come to it."""

    def __init__(self, directory: Path) -> None:
        self._directory, self._segment = directory, -1

    def open(self, segment: int) -> int:
        """The descriptor of that segment."""
        if self._segment != segment:
            self.close()
            self._fd, self._segment = os.open(path_of(self._directory, segment), os.O_RDWR), segment
        return self._fd

    def close(self) -> None:
        self._segment = -1
        super().close()


class _Window:
    """A stretch of the file in memory, moved forward as the walk needs it."""

    def __init__(self, segment: Segment, limit: int, size: int, *, growing: bool = True) -> None:
        self._segment, self._limit, self._size, self._growing = segment, limit, size, growing
        self._base, self._view = 0, memoryview(b"")

    def at(self, position: int, need: int, offset: int) -> memoryview:
        """`need` bytes at `position`, of record `offset`."""
        at = position - self._base
        if at + need > len(self._view):
            size = min(max(self._size, need), self._limit - position)
            self._base, self._view, at = position, memoryview(self._segment.pread(size, position)), 0
            if self._growing:
                self._size = min(self._size * 2, _LARGEST_READ)
            if len(self._view) < need:
                end = position + len(self._view)
                raise Corrupt(f"{self._segment.path}: byte {end}: the file was cut short within record {offset}")
        return self._view[at : at + need]


def _ascending(raw: bytes, first: int) -> Iterator[Mark]:
    """The marks of an index file that are whole, of this segment and in order."""
    last = first
    for at in range(0, len(raw) - MARK.size + 1, MARK.size):
        mark = Mark.unpack(raw[at : at + MARK.size])
        if mark is not None and mark.segment == first and mark.offset > last:
            last = mark.offset
            yield mark


def note(directory: Path, mark: Mark) -> None:
    """Add a durable mark to its segment's index; failing is no loss."""
    try:
        with files.opened(index_path(directory, mark.segment), os.O_RDWR | os.O_CREAT) as fd:
            files.write_all(fd, mark.pack(), os.fstat(fd).st_size // MARK.size * MARK.size)
    except OSError:
        return


def gone(shown: object, offset: int, first: int) -> NotFound:
    """The error for a record that retention has removed."""
    return NotFound(
        f"{shown}: record {offset} is no longer kept; the first available is {first}",
        hint=f"read from {first}, or keep records longer",
    )
