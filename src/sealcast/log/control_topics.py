"""Control topics: what requests and replies travel over. Each is a log of its own, named by 128 random bits.

    REALM/control/<32 hexadecimal digits>/        an embedded log of envelopes, mode 0700
      taken                                       how far its listener has read: what is beyond it, is queued
      reply                                       marks the topic of someone who waits for an answer
      maker                                       who made it through a gateway

Nobody learns from a topic who listens to it or where: it is found through discovery, by who may find it, and whoever
cannot find it has 128 bits to guess. A queue is bounded, in all and for each origin; a post beyond that is refused with
`Busy`, which is backpressure and not an error of anyone's. A topic that was dropped is gone: who still posts to it is
told to look for the new one.

The origin is where a post came from, as the one who takes it in sees it: for a process on this machine, its user. It
is what a budget can be charged to before anything is proven; it is no identity.
"""

from __future__ import annotations

import os
import re
import shutil
import time
from collections import Counter, OrderedDict, deque
from contextlib import suppress
from pathlib import Path
from typing import Final, Protocol

from sealcast.errors import Busy, FrameRejected, Misuse, NotFound
from sealcast.log import files, queue_mark
from sealcast.log.closing import Closing
from sealcast.log.embedded import EmbeddedLog
from sealcast.model.dataclass import dataclass
from sealcast.model.names import NAME
from sealcast.wire import cbor
from sealcast.wire.limits import MAX_ENVELOPE_BYTES

ID_BYTES: Final = 16
MAX_ORIGIN_BYTES: Final = 64
#: Larger records are not even read as envelopes.
MAX_POST_BYTES: Final = MAX_ENVELOPE_BYTES + MAX_ORIGIN_BYTES + 16
MAX_QUEUE: Final = 1_024
MAX_QUEUE_BYTES: Final = 16 << 20
#: Who listens to nothing else reads a turn's worth at a time.
READ_RECORDS: Final = 256
READ_BYTES: Final = 8 << 20
#: Nobody waits this long for an answer.
ABANDONED_US: Final = 3_600_000_000
#: How often one who waits for an answer looks.
LOOK_SECONDS: Final = 0.01
_SEGMENT_BYTES: Final = 4 << 20
_MAX_OPEN: Final = 32
_NAME: Final = re.compile(r"[0-9a-f]{32}", re.ASCII)
_UNSTAMPED: Final = "?"
_MAKER: Final = "maker"


@dataclass(frozen=True, slots=True)
class Posted:
    """One record of a control topic."""

    offset: int
    #: When the log took it in.
    time_us: int
    origin: str
    data: bytes


def new_topic_id() -> bytes:
    """128 bits that nobody guesses."""
    return os.urandom(ID_BYTES)


class AskingPlane(Protocol):
    """Control topics, as one who asks over them uses them."""

    def create(self, topic: bytes | None = None, *, reply: bool = False) -> bytes: ...
    def exists(self, topic: bytes) -> bool: ...
    def drop(self, topic: bytes) -> None: ...
    def sweep(self) -> int: ...
    def post(self, topic: bytes, data: bytes) -> int: ...
    def read(self, topic: bytes, offset: int) -> list[Posted]: ...
    def wait(self, topic: bytes, offset: int, seconds: float) -> None: ...
    def end(self, topic: bytes) -> int: ...
    def close(self) -> None: ...


class ServingPlane(AskingPlane, Protocol):
    """Control topics, as one who answers over them uses them."""

    def awaits_reply(self, topic: bytes) -> bool: ...
    def read(self, topic: bytes, offset: int, *, records: int = READ_RECORDS) -> list[Posted]: ...
    def take(self, topic: bytes, offset: int) -> None: ...


class ControlPlane(Closing):
    """The control topics of a realm in its directory, as one origin sees them. A child process makes its own."""

    def __init__(
        self,
        realm_dir: Path | str,
        *,
        origin: str | None = None,
        max_queue: int = MAX_QUEUE,
        max_queue_bytes: int = MAX_QUEUE_BYTES,
    ) -> None:
        self.root = Path(realm_dir) / "control"
        self.origin = f"user {os.getuid()}" if origin is None else origin
        if not 0 < len(self.origin.encode()) <= MAX_ORIGIN_BYTES:
            raise Misuse(f"an origin has 1 to {MAX_ORIGIN_BYTES} bytes")
        if max_queue < 1 or max_queue_bytes < MAX_POST_BYTES:
            raise Misuse("a queue holds one envelope at least")
        self._max_queue, self._max_bytes = max_queue, max_queue_bytes
        self._max_mine = max(1, max_queue // 4)
        self._open: OrderedDict[bytes, EmbeddedLog] = OrderedDict()
        #: What this origin has in each queue.
        self._mine: dict[bytes, deque[int]] = {}

    # --- topics ----------------------------------------------------------------------------------

    def create(self, topic: bytes | None = None, *, reply: bool = False, maker: str | None = None) -> bytes:
        """A topic, under a new random id unless it has one already; creating it again is fine."""
        topic = new_topic_id() if topic is None else topic
        directory = self._directory(topic)
        files.make_directory(directory)
        if maker is not None:
            files.replace_file(directory / _MAKER, maker.encode())
        if reply:
            with files.named(directory, "marking"):
                (directory / "reply").touch(mode=files.FILE_MODE)
        self._log(topic)
        return topic

    def exists(self, topic: bytes) -> bool:
        return self._directory(topic).is_dir()

    def awaits_reply(self, topic: bytes) -> bool:
        """Whether someone made it to be answered on. Answers go nowhere else: no service is made to flood another."""
        return (self._directory(topic) / "reply").exists()

    def maker(self, topic: bytes) -> str | None:
        """Who made it through a gateway; None if nobody did."""
        try:
            name = (self._directory(topic) / _MAKER).read_bytes()[:65].decode("ascii", "replace")
        except (FileNotFoundError, NotADirectoryError):
            return None
        return name if NAME.fullmatch(name) else None

    def makers(self) -> Counter[str]:
        """How many topics each has made through gateways."""
        found = sorted(self.root.glob(f"*/{_MAKER}")) if self.root.is_dir() else []
        return Counter(path.read_bytes()[:65].decode("ascii", "replace") for path in found)

    def drop(self, topic: bytes) -> None:
        """Unsubscribe for good: what is queued is thrown away. Dropping twice is fine."""
        log = self._open.pop(topic, None)
        if log is not None:
            log.close()
        self._mine.pop(topic, None)
        directory = self._directory(topic)
        # Renamed first: from one moment to the next it is no topic any more, whatever then happens to its files.
        gone = directory.with_name(f".dropped-{topic.hex()}-{os.getpid()}")
        with files.named(directory, "dropping"), suppress(FileNotFoundError):
            directory.rename(gone)
            shutil.rmtree(gone, ignore_errors=True)

    def sweep(self, older_than_us: int = ABANDONED_US) -> int:
        """Drop the reply topics of those who stopped waiting, and what drops left behind; how many."""
        # By the files' own clock: it is their times that are looked at.
        swept, before_us = 0, time.time_ns() // 1000 - older_than_us
        with files.named(self.root, "sweeping"):
            for directory in sorted(self.root.iterdir()) if self.root.is_dir() else ():
                if directory.name.startswith(".dropped-"):
                    shutil.rmtree(directory, ignore_errors=True)
                elif _NAME.fullmatch(directory.name):
                    with suppress(FileNotFoundError):
                        if (directory / "reply").stat().st_mtime_ns // 1000 < before_us:
                            self.drop(bytes.fromhex(directory.name))
                            swept += 1
        return swept

    # --- posts -----------------------------------------------------------------------------------

    def post(self, topic: bytes, data: bytes) -> int:
        """Queue `data` for whoever listens to `topic`, durably; Busy when the queue is full, NotFound when it is gone.

        Two who post at the same moment may both find the last place: a queue is exceeded by their number at most.
        """
        if not 0 < len(data) <= MAX_ENVELOPE_BYTES:
            raise Misuse(f"an envelope has 1 to {MAX_ENVELOPE_BYTES} bytes, not {len(data)}")
        log, taken = self._log(topic, must_exist=True), queue_mark.read(self._directory(topic))
        mine = self._mine.setdefault(topic, deque())
        while mine and mine[0] < taken:
            mine.popleft()
        end = log.end()
        queued = end - max(taken, log.start())
        if queued >= self._max_queue or len(mine) >= self._max_mine or self._bytes(log, taken, end) >= self._max_bytes:
            raise Busy("the queue of this control topic is full", hint="try again a little later")
        (offset,) = log.append([cbor.encode([self.origin, data])])
        mine.append(offset)
        return offset

    def read(
        self, topic: bytes, offset: int, *, records: int = READ_RECORDS, max_bytes: int = READ_BYTES
    ) -> list[Posted]:
        """What stands in `topic` from `offset` on, at most so much."""
        log = self._log(topic, must_exist=True)
        first = max(offset, log.start())
        found = log.read(first, min(log.end(), first + records), max_bytes)
        return [_posted(record.offset, record.time_us, record.data) for record in found]

    def wait(self, topic: bytes, offset: int, seconds: float) -> None:
        """Returns when something may stand at `offset`, and in any case when the time is over."""
        time.sleep(min(LOOK_SECONDS, seconds))

    def end(self, topic: bytes) -> int:
        return self._log(topic, must_exist=True).end()

    def taken(self, topic: bytes) -> int:
        """How far its listener has read."""
        return queue_mark.read(self._directory(topic))

    def take(self, topic: bytes, offset: int) -> None:
        """Its listener needs nothing before `offset` any more: there is room in the queue, and files can go."""
        log = self._log(topic, must_exist=True)
        queue_mark.write(self._directory(topic), offset)
        # Twice the queue: posts that raced past the bound are never among what retention removes.
        log.retain(max_bytes=2 * self._max_bytes + _SEGMENT_BYTES)

    # --- handles ---------------------------------------------------------------------------------

    def close(self) -> None:
        while self._open:
            self._open.popitem()[1].close()

    def _directory(self, topic: bytes) -> Path:
        if len(topic) != ID_BYTES:
            raise Misuse(f"a control topic's id has {ID_BYTES} bytes, not {len(topic)}")
        return self.root / topic.hex()

    def _log(self, topic: bytes, *, must_exist: bool = False) -> EmbeddedLog:
        directory = self._directory(topic)
        if must_exist and not directory.is_dir():
            log = self._open.pop(topic, None)
            if log is not None:
                log.close()
            raise NotFound("there is no such control topic", hint="it has moved, or was never here: find it again")
        log = self._open.get(topic)
        if log is None:
            log = self._open[topic] = EmbeddedLog(directory, segment_bytes=_SEGMENT_BYTES)
            if len(self._open) > _MAX_OPEN:
                oldest, handle = self._open.popitem(last=False)
                handle.close()
                self._mine.pop(oldest, None)
        self._open.move_to_end(topic)
        return log

    def _bytes(self, log: EmbeddedLog, taken: int, end: int) -> int:
        first = max(taken, log.start())
        return sum(log.sizes(first, end)) if first < end else 0


def _posted(offset: int, time_us: int, data: bytes) -> Posted:
    # Whoever can write to the files can leave anything there: without a stamp it is of unknown origin, and no envelope.
    if len(data) > MAX_POST_BYTES:
        return Posted(offset, time_us, _UNSTAMPED, data)
    try:
        stamped = cbor.decode(data, max_bytes=MAX_POST_BYTES, max_depth=1, max_items=4)
    except FrameRejected:
        return Posted(offset, time_us, _UNSTAMPED, data)
    match stamped:
        case [str(origin), bytes(inside)] if 0 < len(origin.encode()) <= MAX_ORIGIN_BYTES:
            return Posted(offset, time_us, origin, inside)
        case _:
            return Posted(offset, time_us, _UNSTAMPED, data)
