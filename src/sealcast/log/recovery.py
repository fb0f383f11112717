"""What is done, under the append lock, before anything is written: find the true end of the log, repair a torn tail.

    below the durable frontier   nothing is ever repaired: what does not verify is Corrupt, and says where
    beyond it                    whole records are kept (the frontier may lag); the rest was never acknowledged and
                                 is cut off

A cut is refused where damage cannot be told from an interrupted write: when the frontier itself was damaged or is
missing.
"""

from __future__ import annotations

import os
import secrets
from contextlib import closing
from pathlib import Path

from sealcast.errors import Corrupt
from sealcast.log import files
from sealcast.log.frontier import Frontier, State, boot
from sealcast.log.layout import CHAIN_BYTES, SEGMENT, Mark, segment_header
from sealcast.log.segment import Segment, index_path, list_segments, never_used, path_of
from sealcast.model.dataclass import dataclass


@dataclass(frozen=True, slots=True)
class End:
    """Where the next record goes."""

    mark: Mark
    generation: int


def true_end(directory: Path, frontier: Frontier, sync_lock: files.FileLock) -> End:
    """The end of the log, which may be appended to when this returns. The caller holds the append lock."""
    state = frontier.read()
    if _trustworthy(directory, state):
        assert state.written is not None
        return End(state.written.mark, state.written.generation)
    with sync_lock:
        state = frontier.read()
        if state.durable is None:
            return _without_frontier(directory, frontier, state)
        end, generation = state.durable.mark, state.durable.generation
        sync_failed = state.written is not None and state.written.generation != generation
        if not sync_failed:
            end = _walk_on(directory, end, may_cut=not state.damaged)
        _cut(directory, end)
        frontier.rewrite(end, generation)
        return End(end, generation)


def _trustworthy(directory: Path, state: State) -> bool:
    """Was the last write of this boot finished, and has no sync failed since?"""
    written, durable = state.written, state.durable
    if written is None or durable is None or written.boot != boot() or written.generation != durable.generation:
        return False
    if written.mark.offset < durable.mark.offset:
        return False
    try:
        return os.stat(path_of(directory, written.mark.segment)).st_size == written.mark.position
    except OSError:
        return False


def _walk_on(directory: Path, mark: Mark, *, may_cut: bool) -> Mark:
    """From a durable mark over whole records to the end of its segment: the log's last, as `_cut` makes sure."""
    with closing(Segment(directory, mark.segment)) as segment:
        size = segment.size()
        if size < mark.position:
            raise Corrupt(
                f"{segment.path}: byte {size}: the file was cut short; "
                f"it was durable to byte {mark.position} (record {mark.offset})"
            )
        try:
            for step in segment.walk(mark, size):
                mark = Mark(mark.segment, step.offset + 1, step.position, step.time_us, step.chain)
        except Corrupt as damage:
            if not may_cut:
                raise Corrupt(
                    f"{damage.message}; it cannot be told from an interrupted write, so nothing was repaired",
                    hint="restore the file from a copy; the records before this one can be read",
                ) from damage
        return mark


def _cut(directory: Path, end: Mark) -> None:
    """Remove what stands beyond `end`, so that the next record is the next byte."""
    path = path_of(directory, end.segment)
    with files.named(path, "repairing"):
        _drop_unused(directory, end.segment)
        with files.opened(path, os.O_RDWR) as fd:
            if os.fstat(fd).st_size != end.position:
                os.ftruncate(fd, end.position)
            files.sync_data(fd)
        files.sync_directory(directory)


def _drop_unused(directory: Path, last: int) -> None:
    """Remove what someone who died left of a segment after `last`.

    It is empty: whoever begins a segment moves the frontier into it, durably, and only then writes a record there.
    """
    for first in list_segments(directory):
        path = path_of(directory, first)
        if first > last and path.stat().st_size > SEGMENT.size:
            raise Corrupt(f"{path}: byte {SEGMENT.size}: record {first} is there, but the frontier is behind it")
        if first > last:
            path.unlink()


def _without_frontier(directory: Path, frontier: Frontier, state: State) -> End:
    """A new log, or one whose frontier was lost: then every byte of every segment must be right."""
    segments = list_segments(directory)
    if not state.damaged and never_used(directory, segments):
        segments = []
    mark: Mark | None = None
    for first in segments:
        with closing(Segment(directory, first)) as segment:
            try:
                begin = segment.begin
                if mark is not None and (first, begin.chain) != (mark.offset, mark.chain):
                    raise Corrupt(f"{segment.path}: byte 0: this segment does not follow record {mark.offset - 1}")
                mark = begin
                for step in segment.walk(begin, segment.size()):
                    mark = Mark(first, step.offset + 1, step.position, step.time_us, step.chain)
            except Corrupt as damage:
                lost = frontier.path.name
                raise Corrupt(
                    f"{damage.message}; {lost} is lost too, so this cannot be told from an interrupted write",
                    hint=f"restore {lost} or the segment from a copy",
                ) from damage
    if mark is None:
        mark = begin_segment(directory, Mark(0, 0, 0, 0, secrets.token_bytes(CHAIN_BYTES)))
    else:
        _cut(directory, mark)
    with files.named(frontier.path, "writing"):
        frontier.rewrite(mark, 0)
        files.sync_directory(directory)
    return End(mark, 0)


def begin_segment(directory: Path, end: Mark) -> Mark:
    """A new segment that starts where the log ends, durable; the mark of its first record."""
    path = path_of(directory, end.offset)
    with files.named(path, "creating"):
        _drop_unused(directory, end.segment if end.position else -1)
        with files.opened(path, os.O_RDWR | os.O_CREAT | os.O_EXCL) as fd:
            try:
                files.write_all(fd, segment_header(end), 0)
                files.sync_data(fd)
            except BaseException:
                os.unlink(path)
                raise
        index_path(directory, end.offset).unlink(missing_ok=True)
        files.sync_directory(directory)
    return Mark(end.offset, end.offset, SEGMENT.size, end.time_us, end.chain)
