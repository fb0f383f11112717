"""Frames sealed by the tasks of a user's job, published exactly once when the job commits.

    stage     in a worker: its frames in one durable file that nobody reads
    publish   in the driver: the frames of all tasks into the topic's log, in order

A worker that shares no disk with the driver hands its sealed frames to the driver, which stages them. Tasks find out
which of the two it is: the driver leaves a mark in its outbox, under a name that no copy of the outbox can have.

The log cannot append many frames as one, so a driver may die half way, and Spark will run the batch again. Therefore a
journal, one a query: before the first frame is appended it says which files are to be published and where the log
ended; afterwards it says that they were. Run again, `publish` finds in the log what was appended already (frames are
unique: each carries fresh random bytes) and appends the rest, of the *first* run's files. Frames that were sealed again
meanwhile are thrown away: they have other nonces and other bytes, and the same events.

A log behind a gateway cannot be read. Then all frames of the first run are sent again. The gateway answers where those
are that it has, and the broker refuses as a replay what came twice nevertheless.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import struct
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path
from typing import BinaryIO, Final, Protocol

from sealcast.errors import Corrupt, Misuse
from sealcast.log import files
from sealcast.log.port import Record
from sealcast.model.bounded import bounded
from sealcast.wire.limits import MAX_FRAME_BYTES

#: Frames that are made durable by one sync, at most.
BYTES_PER_APPEND: Final = 32 << 20
#: Nobody comes back for a file that was staged this long ago.
ABANDONED_SECONDS: Final = 30 * 24 * 3600
#: What one task hands to the driver, at most: Spark keeps it in the memory of both.
MAX_HANDED_BYTES: Final = 128 << 20
#: How a journal begins: with a batch that comes before all others.
_BEFORE_ALL: Final = -1
_MARK: Final = ".mark"
_LENGTH: Final = struct.Struct("<I")
_SAFE: Final = re.compile(r"[A-Za-z0-9-]{1,64}")


@dataclass(frozen=True, slots=True)
class StagedFrames:
    """One task's frames, on disk."""

    file: str
    digest: str
    frames: int


class AppendedFrames(Protocol):
    """What frames are appended to (`log.lane_log`)."""

    def append(self, frames: Sequence[bytes], /) -> Sequence[int] | None: ...
    def end(self) -> int: ...
    def read(self, start: int, /) -> Iterator[Record]: ...


@dataclass(frozen=True, slots=True)
class _Note:
    """What the journal says: the batch at hand, or the last one."""

    batch: int
    done: bool
    #: Where the log ended before.
    since: int
    staged: tuple[StagedFrames, ...]

    def encode(self) -> bytes:
        return json.dumps(asdict(self)).encode()

    @classmethod
    def decode(cls, raw: bytes) -> _Note:
        body = json.loads(raw)
        staged = tuple(StagedFrames(**each) for each in body.pop("staged"))
        return cls(**body, staged=staged)


def leave_mark(directory: Path) -> str:
    """Puts a mark into the driver's outbox; its name, for tasks to look for."""
    files.make_directory(directory)
    name = os.urandom(16).hex() + _MARK
    files.replace_file(directory / name, b"")
    return name


def remove_mark(directory: Path, name: str) -> None:
    """For a driver that has no more tasks. A stream's stays: it may go on for as long as its driver lives."""
    (directory / name).unlink(missing_ok=True)


def has_mark(directory: Path, name: str) -> bool:
    """Whether the outbox here is the driver's. Where it is not, or nobody can tell, frames are handed over."""
    return (directory / name).is_file()


def hand_over(frames: Iterable[bytes]) -> tuple[bytes, ...]:
    """The frames of a task whose worker shares no disk with the driver."""
    kept, size = list[bytes](), 0
    for frame in frames:
        kept.append(frame)
        size += len(frame)
        if size > MAX_HANDED_BYTES:
            raise Misuse(
                f"a task has more than {MAX_HANDED_BYTES >> 20} MiB to publish, and its worker shares no disk with the "
                "driver, through which it goes",
                hint="make tasks smaller (repartition), or put the home on a network file system that both mount",
            )
    return tuple(kept)


class Outbox:
    """The outbox of one query that writes to one partition of a topic."""

    def __init__(self, directory: Path, query: str) -> None:
        if not _SAFE.fullmatch(query):
            raise Misuse(f"{query!r} is not the id of a query")
        self._directory = directory
        self._query = query
        files.make_directory(directory)

    def stage(self, task: int, frames: Iterable[bytes]) -> StagedFrames | None:
        """Writes them as they come, so that a task of any size needs the memory of one frame. No frames, no file."""
        path = self._directory / f"{self._query}.{task}.{os.urandom(8).hex()}.frames"
        file: BinaryIO | None = None
        digest, count = hashlib.sha256(), 0
        with ExitStack() as held:
            for frame in frames:
                file = file or held.enter_context(_staging(path))
                for part in (_LENGTH.pack(len(frame)), frame):
                    digest.update(part)
                    file.write(part)
                count += 1
        if file is None:
            return None
        with files.named(path, "writing"):
            files.sync_directory(self._directory)
        return StagedFrames(path.name, digest.hexdigest(), count)

    def begin(self, batch: int, takes_over: bool = False) -> None:
        """Begins the journal with a query's first batch. A later batch has to find the journal that the first one
        began: without it nobody knows whether this batch was published before, by a driver on another machine."""
        with files.locked(self._directory / f"{self._query}.lock"):
            if self._read_note() is not None:
                return
            if batch > 0 and not takes_over:
                raise Misuse(
                    f"batch {batch} of this stream is not its first one, and {self._note_path} does not exist: whether "
                    "the batch was published before is not known here",
                    hint="bring that file and those beside it from the machine where the stream ran before. Where it "
                    'is lost, .option("takes_over", "true") goes on, and may publish the events of one batch twice',
                )
            self._write_note(_Note(_BEFORE_ALL, True, 0, ()))

    def publish(self, batch: int, staged: Sequence[StagedFrames], log: AppendedFrames) -> int:
        """Appends the frames of this batch, if they are not there yet; how many it appended."""
        with files.locked(self._directory / f"{self._query}.lock"):
            return self._publish(batch, staged, log)

    def _publish(self, batch: int, staged: Sequence[StagedFrames], log: AppendedFrames) -> int:
        note, appended = self._read_note(), 0
        if note is not None and not note.done:
            appended = self._append(note, log, self._known(note, log))
            note = self._write_note(_Note(note.batch, True, note.since, ()))
        if note is None or note.batch < batch:
            begun = self._write_note(_Note(batch, False, log.end(), tuple(staged)))
            appended += self._append(begun, log, 0)
            self._write_note(_Note(batch, True, begun.since, ()))
        self.discard()
        return appended

    def discard(self) -> None:
        """Removes what is staged and no longer needed: the batch is done, or was given up before it began."""
        note = self._read_note()
        keep = {s.file for s in note.staged} if note is not None else set()
        abandoned = time.time() - ABANDONED_SECONDS  # by tasks that outlived a job which had failed
        for path in self._directory.glob("*.frames"):
            ours = path.name.startswith(f"{self._query}.") and path.name not in keep
            with suppress(FileNotFoundError):
                if ours or path.stat().st_mtime < abandoned:
                    path.unlink()
        for mark in self._directory.glob(f"*{_MARK}"):  # of drivers that ended; a task that misses one hands over
            with suppress(FileNotFoundError):
                if mark.stat().st_mtime < abandoned:
                    mark.unlink()

    def forget(self) -> None:
        """For a query that never comes again: a batch job that is done."""
        for path in self._directory.glob(f"{self._query}.*"):
            path.unlink(missing_ok=True)

    def _append(self, note: _Note, log: AppendedFrames, skip: int) -> int:
        appended = 0
        for batch in bounded(islice(self._frames(note.staged), skip, None), len, BYTES_PER_APPEND):
            log.append(batch)  # durable on return, also where they wait on this disk until a gateway answers
            appended += len(batch)
        return appended

    def _known(self, note: _Note, log: AppendedFrames) -> int:
        """How many of the batch's frames the log has. Appends keep their order, so these are its first ones."""
        ours = {hashlib.sha256(frame).digest() for frame in self._frames(note.staged)}
        return sum(hashlib.sha256(record.data).digest() in ours for record in log.read(note.since))

    def _frames(self, staged: Sequence[StagedFrames]) -> Iterator[bytes]:
        for each in staged:
            path, digest, count = self._directory / each.file, hashlib.sha256(), 0
            with files.named(path, "reading"), path.open("rb") as file:
                while head := file.read(_LENGTH.size):
                    (length,) = _LENGTH.unpack(head) if len(head) == _LENGTH.size else (MAX_FRAME_BYTES + 1,)
                    frame = file.read(length) if length <= MAX_FRAME_BYTES else b""
                    digest.update(head + frame)
                    count += 1
                    yield frame
            if digest.hexdigest() != each.digest or count != each.frames:
                raise Corrupt(f"{path} is not what was staged: its digest differs")

    @property
    def _note_path(self) -> Path:
        return self._directory / f"{self._query}.json"

    def _read_note(self) -> _Note | None:
        try:
            return _Note.decode(self._note_path.read_bytes())
        except FileNotFoundError:
            return None
        except (ValueError, TypeError, KeyError):
            raise Corrupt(f"{self._note_path} cannot be read", hint="restore it from a copy") from None

    def _write_note(self, note: _Note) -> _Note:
        files.replace_file(self._note_path, note.encode())
        return note


@contextmanager
def _staging(path: Path) -> Iterator[BinaryIO]:
    """A new private file: durable when the block ends, gone when it fails."""
    with files.named(path, "writing"):
        file = os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, files.FILE_MODE), "wb")
        try:
            with file:
                yield file
                file.flush()
                files.sync_data(file.fileno())
        except BaseException:
            path.unlink(missing_ok=True)
            raise
