"""Reading an embedded log: any process, no lock, every record verified, nothing beyond the durable frontier."""

from __future__ import annotations

import threading
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

from sealcast.errors import Corrupt, NotFound
from sealcast.log import files
from sealcast.log.frontier import Frontier
from sealcast.log.layout import Mark, check_span
from sealcast.log.port import Record
from sealcast.log.segment import Segment, Step, gone, list_segments, never_used, path_of

#: Segments a handle keeps open.
MAX_OPEN_SEGMENTS: Final = 8


class Verified(NamedTuple):
    """What a walk over everything found to be right."""

    start: int
    end: int
    bytes: int


class LogReader:
    """The reading half of `EmbeddedLog`."""

    def __init__(self, directory: Path, frontier: Frontier | None = None, *, ordered: bool = True) -> None:
        self._directory = directory
        self._frontier = frontier
        self._owns_frontier = frontier is None
        self._ordered = ordered
        self._guard = threading.Lock()
        self._open: OrderedDict[int, Segment] = OrderedDict()
        self._segments: list[int] = []
        if not directory.is_dir():
            raise NotFound(f"{directory} is not the directory of a log")

    def close(self) -> None:
        with self._guard:
            while self._open:
                self._open.popitem()[1].close()
            if self._owns_frontier and self._frontier is not None:
                self._frontier.close()
                self._frontier = None

    # --- the port --------------------------------------------------------------------------------

    def start(self) -> int:
        segments = self._list()
        return segments[0] if segments else 0

    def end(self) -> int:
        mark = self._durable()
        return mark.offset if mark is not None else 0

    def read(self, start: int, end: int | None, max_bytes: int | None) -> Iterator[Record]:
        # Refused here and not at the first `next`: an argument that makes no sense should fail where it is given.
        frontier = self._check_range(start, end, max_bytes)
        if frontier is None or start == (frontier.offset if end is None else end):
            return iter(())
        stop = frontier.offset if end is None else end
        return self._records(start, stop, max_bytes, frontier, self._kept(start, frontier))

    def offset_at(self, time_us: int) -> int:
        frontier = self._durable()
        if frontier is None:
            return 0
        segments = self._kept(self.start(), frontier)
        # The last segment that begins before that time: its header tells the time of the record before its first.
        at = max(bisect_right(segments, time_us - 1, key=self.last_time) - 1, 0)
        segment = self._segment(segments[at])
        return segment.find_time(time_us, _limit(segment, frontier))

    def sizes(self, start: int, end: int, max_bytes: int | None) -> list[int]:
        frontier = self._check_range(start, end, max_bytes)
        if frontier is None or start == end:
            return []
        segments, found, size = self._kept(start, frontier), list[int](), 0
        for first in segments[bisect_right(segments, start) - 1 :]:
            segment = self._segment(first)
            for length in segment.lengths(max(start, first), _limit(segment, frontier)):
                size += length
                if start + len(found) == end or (max_bytes is not None and size > max_bytes and found):
                    return found
                found.append(length)
        return found

    def verify(self) -> Verified:
        frontier = self._durable()
        if frontier is None:
            return Verified(0, 0, 0)
        start, size = self.start(), 0
        for record in self._records(start, frontier.offset, None, frontier, self._kept(start, frontier)):
            size += len(record.data)
        return Verified(start, frontier.offset, size)

    # --- segments --------------------------------------------------------------------------------

    def last_time(self, first: int) -> int:
        """When the record before segment `first` was appended."""
        return self._segment(first).begin.time_us

    def _records(
        self, start: int, end: int, max_bytes: int | None, frontier: Mark, segments: list[int]
    ) -> Iterator[Record]:
        at = bisect_right(segments, start) - 1
        offset, size, before = start, 0, None
        while offset < end:
            segment = self._segment(segments[at])
            if before is not None and segment.begin.chain != before:
                raise Corrupt(
                    f"{segment.path}: byte 0: this segment does not continue the chain of record {offset - 1}"
                )
            limit = _limit(segment, frontier)
            last: Step | None = None
            begin = segment.find(offset, limit)
            last_us = begin.time_us
            for step in segment.walk(begin, limit):
                if self._ordered and step.time_us < last_us:
                    raise Corrupt(f"{segment.path}: the time of record {step.offset} is before that of the last one")
                last_us = step.time_us
                size += len(step.data)
                if max_bytes is not None and size > max_bytes and offset > start:
                    end = offset
                    break
                last = step
                offset, before = step.offset + 1, step.chain
                yield Record(step.offset, step.time_us, step.data)
                if offset >= end:
                    break
            if last is not None:
                segment.remember(Mark(segment.first, offset, last.position, last.time_us, last.chain))
            at += 1
            follows = segments[at] if at < len(segments) else frontier.offset
            if offset < end and (offset != follows or at == len(segments)):
                raise Corrupt(
                    f"{segment.path}: byte {limit}: the segment ends with record {offset - 1}, "
                    f"what follows begins with {follows}"
                )

    def _check_range(self, start: int, end: int | None, max_bytes: int | None) -> Mark | None:
        """The frontier, if all that is asked for lies before it."""
        frontier = self._durable()
        check_span(self._directory, start, end, max_bytes, frontier.offset if frontier is not None else 0)
        return frontier

    def _kept(self, offset: int, frontier: Mark) -> list[int]:
        """The segments that are there, to the frontier's; beyond it may lie one that was begun and never used."""
        if frontier.segment not in self._segments or offset < self._segments[0]:
            self._list()
        if frontier.segment not in self._segments:
            path = path_of(self._directory, frontier.segment)
            raise Corrupt(f"{path} is gone; it was durable to byte {frontier.position}")
        if offset < self._segments[0]:
            raise gone(self._directory, offset, self._segments[0])
        return [first for first in self._segments if first <= frontier.segment]

    def _segment(self, first: int) -> Segment:
        with self._guard:
            segment = self._open.get(first)
            if segment is None:
                segment = self._open_segment(first)
                self._open[first] = segment
                while len(self._open) > MAX_OPEN_SEGMENTS:
                    self._open.popitem(last=False)
            self._open.move_to_end(first)
            return segment

    def _open_segment(self, first: int) -> Segment:
        try:
            return Segment(self._directory, first)
        except NotFound:
            start = self.start()
            if first < start:
                raise gone(self._directory, first, start) from None
            path = path_of(self._directory, first)
            raise Corrupt(f"{path} is gone: records from {first} on were durable") from None

    def _list(self) -> list[int]:
        with files.named(self._directory, "listing"):
            self._segments = list_segments(self._directory)
        return self._segments

    def _durable(self) -> Mark | None:
        mark = self._published()
        if mark is None and not never_used(self._directory, list_segments(self._directory)):
            # A log's maker publishes the frontier before it writes the first record. So whoever has seen a record and
            # looks again finds the frontier of a log that was made in the meantime; otherwise it is lost.
            mark = self._published()
            if mark is None:
                raise Corrupt(
                    f"{self._directory}: the frontier is lost; records are there",
                    hint="open the log for appending: if its records are whole, the frontier is made again",
                )
        return mark

    def _published(self) -> Mark | None:
        """What the frontier's file says now; None if there is no such file yet, or nothing in it."""
        if self._frontier is None:
            try:
                self._frontier = Frontier(self._directory, writable=False)
            except FileNotFoundError:
                return None
            except OSError as error:
                raise files.trouble(error, self._directory, "opening") from error
        return self._frontier.durable()


def _limit(segment: Segment, frontier: Mark) -> int:
    """Up to which byte of a segment a reader may look."""
    return frontier.position if segment.first == frontier.segment else segment.size()
