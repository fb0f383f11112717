"""The embedded log: a directory of segment files that any number of processes append to and read. No server.

    DIR/00000000000000000000.seg   records from offset 0, back to back (layout.py)
    DIR/00000000000000000000.idx   that segment's sparse index, dispensable (segment.py)
    DIR/frontier                   how far the log is written and durable (frontier.py)
    DIR/append.lock, sync.lock     empty; held by whoever writes, and by whoever syncs

An append, and why it is safe:

    1. hash the data, holding nothing
    2. take the append lock: no other writer, in this process or another. What a dead writer left behind is repaired
       first
    3. write the records at the end; publish the new end as `written`; release the lock
    4. sync, or let someone else: the first to come syncs for all who have written so far, in this process (threads
       wait for their leader) and across processes (who gets the sync lock next finds its bytes already covered and
       syncs nothing)
    5. publish the new end as `durable`: readers see the records now. Only then return

A reader takes no lock: bytes before `durable` never change. Locks are taken in the order append, sync.
"""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from typing import ClassVar, Final

from sealcast.errors import Misuse, NotFound, Unavailable
from sealcast.log import files, recovery
from sealcast.log.closing import Closing
from sealcast.log.frontier import Frontier
from sealcast.log.layout import (
    DEFAULT_SEGMENT_BYTES,
    MIN_SEGMENT_BYTES,
    RECORD,
    SEGMENT,
    check_sizes,
    encode,
    encode_timed,
)
from sealcast.log.port import Record, SharedLog
from sealcast.log.reader import LogReader, Verified
from sealcast.log.recovery import End
from sealcast.log.segment import Tail, index_path, list_segments, path_of
from sealcast.log.sync import Syncer

#: Beside a log that nobody appends to any more: where the partition is now.
RETIRED: Final = "moved"


class Moved(Unavailable):
    """A partition is elsewhere since it was opened: open it again."""

    code = "moved"


class EmbeddedLog(Closing):
    """One partition in a directory of its own. Threads may share a handle; a child process opens its own.

    Opening for appending repairs what a crash left. `read_only` touches nothing, takes no lock and needs no right
    to write; after a loss of power it may see less than was acknowledged until someone has opened the log for
    appending.
    """

    #: Whether time never runs backwards in it (`port`, 6). It does where strangers append, each with its own clock.
    ordered: ClassVar[bool] = True

    def __init__(
        self, directory: Path | str, *, segment_bytes: int = DEFAULT_SEGMENT_BYTES, read_only: bool = False
    ) -> None:
        if segment_bytes < MIN_SEGMENT_BYTES:
            raise Misuse(f"a segment has at least {MIN_SEGMENT_BYTES} bytes, not {segment_bytes}")
        self.directory = Path(directory)
        self.read_only = read_only
        self._segment_bytes = segment_bytes
        self._process = os.getpid()
        self._closed = False
        self._tail = Tail(self.directory)
        self._append_lock: files.FileLock | None = None
        self._syncer: Syncer | None = None
        if read_only:
            self._reader = LogReader(self.directory, ordered=self.ordered)
            return
        files.make_directory(self.directory)
        with files.named(self.directory, "opening"):
            self._frontier = Frontier(self.directory, writable=True)
        self._append_lock = files.FileLock(self.directory / "append.lock")
        self._syncer = Syncer(self.directory, self._frontier)
        try:
            with self._append_lock:
                end = recovery.true_end(self.directory, self._frontier, self._syncer.lock)
            # Whole records that their writer did not live to sync: make them durable, or nobody may ever do so.
            self._syncer.make_durable(end)
        except BaseException:
            self.close()
            raise
        self._reader = LogReader(self.directory, self._frontier, ordered=self.ordered)

    @property
    def shown(self) -> str:
        return str(self.directory)

    # --- appending -------------------------------------------------------------------------------

    def append(self, records: Sequence[bytes]) -> range:
        """Write the records, durably; their offsets. Raises DiskFull when they do not fit: then none was written."""
        return self._append(records, None)

    def copy(self, records: Sequence[tuple[int, bytes]]) -> range:
        """Appends records that were another log's, with the times that they had there."""
        return self._append([data for _, data in records], [at for at, _ in records])

    def _append(self, records: Sequence[bytes], times: Sequence[int] | None) -> range:
        lock, syncer = self._writable()
        check_sizes(records)
        hashed = [(data, hashlib.sha256(data).digest()) for data in records]
        room = sum(map(len, records)) + RECORD.size * len(records)
        syncer.check()
        with lock:
            self._check_writer()
            end = recovery.true_end(self.directory, self._frontier, syncer.lock)
            if end.mark.position + room > self._segment_bytes and end.mark.position > SEGMENT.size:
                end = self._roll(end, syncer)
            now_us = time.time_ns() // 1000
            # A clock that was set back must not unsort the log, and one that is ahead must not move other writers'.
            if times is None:
                raw, after = encode(end.mark, hashed, max(now_us, end.mark.time_us) if self.ordered else now_us)
            else:
                raw, after = encode_timed(end.mark, hashed, times, ordered=self.ordered)
            self._write(raw, end)
            with files.named(self._frontier.path, "writing"):
                self._frontier.write(after, end.generation)
        syncer.make_durable(End(after, end.generation))
        return range(end.mark.offset, after.offset)

    def _check_writer(self) -> None:
        """Under the append lock: Locked where this handle may not append. Here anybody may."""

    def _write(self, raw: bytes, end: End) -> None:
        path = path_of(self.directory, end.mark.segment)
        try:
            files.write_all(self._tail.open(end.mark.segment), raw, end.mark.position)
        except OSError as error:
            # Take back what was written of it. Should that fail too, the next writer cuts it off as a torn tail.
            with suppress(OSError):
                os.truncate(path, end.mark.position)
            raise files.trouble(error, path, "writing") from error

    def _roll(self, end: End, syncer: Syncer) -> End:
        """Begin a new segment. The old one is durable first: only the last segment is ever in doubt."""
        syncer.make_durable(end)
        begin = recovery.begin_segment(self.directory, end.mark)
        with files.named(self._frontier.path, "writing"), syncer.lock:
            # Both copies: a frontier with one of them damaged must not point into the segment before.
            self._frontier.rewrite(begin, end.generation)
        return End(begin, end.generation)

    def retain(self, *, max_age_us: int | None = None, max_bytes: int | None = None, now_us: int | None = None) -> int:
        """Delete the oldest whole segments, those past the age and those over the size; the new start.

        The segment that is appended to always stays.
        """
        lock, syncer = self._writable()
        if max_age_us is None and max_bytes is None:
            raise Misuse("retention needs an age or a size; neither would mean keep everything")
        if max_age_us is not None:
            self._check_ordered()
        oldest = None if max_age_us is None else (now_us or time.time_ns() // 1000) - max_age_us
        with lock, files.named(self.directory, "deleting in"):
            active = recovery.true_end(self.directory, self._frontier, syncer.lock).mark.segment
            segments = [first for first in list_segments(self.directory) if first <= active]
            sizes = [path_of(self.directory, first).stat().st_size for first in segments]
            total = sum(sizes)
            for first, following, size in zip(segments, segments[1:], sizes, strict=False):
                too_large = max_bytes is not None and total > max_bytes
                too_old = oldest is not None and self._reader.last_time(following) < oldest
                if not (too_large or too_old):
                    break
                self._delete(first)
                total -= size
            files.sync_directory(self.directory)
        return self.start()

    def cut(self, before: int) -> None:
        """Begins a new segment if the one that is appended to has a record older than `before`, so that those can be
        dropped without the ones to come."""
        lock, syncer = self._writable()
        with lock, files.named(self.directory, "writing"):
            end = recovery.true_end(self.directory, self._frontier, syncer.lock)
            if end.mark.segment < before and end.mark.position > SEGMENT.size:
                self._roll(end, syncer)

    def drop(self, before: int) -> int:
        """Delete the segments whose records are all older than `before`; the new start. When that is every record, a
        new segment is begun, and nothing is left."""
        lock, syncer = self._writable()
        with lock, files.named(self.directory, "deleting in"):
            end = recovery.true_end(self.directory, self._frontier, syncer.lock)
            if before >= end.mark.offset and end.mark.position > SEGMENT.size:
                end = self._roll(end, syncer)
            segments = [first for first in list_segments(self.directory) if first <= end.mark.segment]
            for first, following in pairwise(segments):
                if following <= before:
                    self._delete(first)
            files.sync_directory(self.directory)
        return self.start()

    def _delete(self, segment: int) -> None:
        """Oldest first: however far this gets, what is left has no hole."""
        path_of(self.directory, segment).unlink()
        index_path(self.directory, segment).unlink(missing_ok=True)

    # --- reading ---------------------------------------------------------------------------------

    def read(self, start: int, end: int | None = None, max_bytes: int | None = None) -> Iterator[Record]:
        return self._reading().read(start, end, max_bytes)

    def read_seen(self, start: int, stop: int, max_bytes: int | None = None) -> Iterator[Record]:
        """`port.SharedLog`: here, nothing is saved."""
        return self.read(start, stop, max_bytes)

    def sizes(self, start: int, end: int, max_bytes: int | None = None) -> list[int]:
        """How many bytes the records have that `read` would give, without reading them: for who plans the reading."""
        return self._reading().sizes(start, end, max_bytes)

    def start(self) -> int:
        return self._reading().start()

    def end(self) -> int:
        return self._reading().end()

    def offset_at(self, time_us: int) -> int:
        self._check_ordered()
        return self._reading().offset_at(time_us)

    def verify(self) -> Verified:
        """Walk everything that is kept, without the index; Corrupt names the first damage."""
        return self._reading().verify()

    # --- handles ---------------------------------------------------------------------------------

    def close(self) -> None:
        self._closed = True
        self._tail.close()
        if hasattr(self, "_reader"):
            self._reader.close()
        if self._append_lock is not None:
            self._append_lock.close()
        if self._syncer is not None:
            self._syncer.close()
            self._frontier.close()

    def _writable(self) -> tuple[files.FileLock, Syncer]:
        if self._append_lock is None or self._syncer is None:
            raise Misuse(f"{self.directory} was opened read-only")
        self._reading()
        return self._append_lock, self._syncer

    def _check_ordered(self) -> None:
        if not self.ordered:
            raise Misuse(
                f"{self.directory} has its writers' clocks: when something came, the ledger of its reader says"
            )

    def _reading(self) -> LogReader:
        if self._closed:
            raise Misuse(f"{self.directory} was closed")
        # A fork shares the parent's locks with it: both would believe that they alone hold them.
        if os.getpid() != self._process:
            raise Misuse(
                f"{self.directory} was opened by process {self._process}; a child process opens the log itself"
            )
        return self._reader


class RetiringLog(EmbeddedLog):
    """A partition that many append to, and that may be moved elsewhere while they do."""

    def retire(self, to: str) -> int:
        """Lets nobody append here any more, because the partition is elsewhere from now on; its end, which is final.
        What was being appended is there, or its writer was told that it is not."""
        lock, syncer = self._writable()
        with lock:
            files.replace_file(self.directory / RETIRED, to.encode())
            end = recovery.true_end(self.directory, self._frontier, syncer.lock)
        syncer.make_durable(end)
        return end.mark.offset

    def _check_writer(self) -> None:
        if (self.directory / RETIRED).exists():
            raise Moved(f"{self.directory} takes nothing more: the topic was moved", hint="open the topic again")


class FrameLog(RetiringLog):
    """A partition that publishers append to, each with a clock of its own: a stamp is its writer's word."""

    ordered = False


class EmbeddedTopic(Closing):
    """A topic's partitions, DIR/0 to DIR/n-1, opened when they are first asked for."""

    def __init__(
        self,
        directory: Path | str,
        partitions: int | None = None,
        *,
        segment_bytes: int = DEFAULT_SEGMENT_BYTES,
        read_only: bool = False,
    ) -> None:
        self.directory = Path(directory)
        self._segment_bytes, self._read_only = segment_bytes, read_only
        self._open: dict[int, SharedLog] = {}
        found = self._count()
        if partitions is not None and partitions < found:
            raise Misuse(
                f"{self.directory} has {found} partitions and cannot be opened with {partitions}: a topic never shrinks"
            )
        if partitions is not None and not read_only:
            for number in range(found, partitions):
                FrameLog(self.directory / str(number), segment_bytes=segment_bytes).close()
        self._partitions = self._count()
        if self._partitions == 0:
            raise NotFound(f"{self.directory} holds no partitions")

    def _count(self) -> int:
        count = 0
        while (self.directory / str(count)).is_dir():
            count += 1
        return count

    @property
    def partitions(self) -> int:
        return self._partitions

    def partition(self, number: int) -> SharedLog:
        if number not in self._open:
            if not 0 <= number < self.partitions:
                raise NotFound(f"{self.directory} has partitions 0 to {self.partitions - 1}, not {number}")
            self._open[number] = self._opened(number)
        return self._open[number]

    def _opened(self, number: int) -> SharedLog:
        return self._kind(number)(
            self.directory / str(number), segment_bytes=self._segment_bytes, read_only=self._read_only
        )

    def _kind(self, number: int) -> type[EmbeddedLog]:
        return FrameLog

    def close(self) -> None:
        while self._open:
            self._open.popitem()[1].close()
