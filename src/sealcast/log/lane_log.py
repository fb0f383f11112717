"""The end of a publisher's lane: the partition that it appends to, at a broker or in its own log.

a log on this machine     `LocalLaneLog`: the embedded log, and the ledger of whoever takes frames out of it
a gateway                 `transports.frames`
"""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import field
from pathlib import Path
from typing import Final, NamedTuple, Protocol

from sealcast.errors import Misuse
from sealcast.log.closing import Closing
from sealcast.log.embedded import EmbeddedLog
from sealcast.log.forwarded import BrokerTopic
from sealcast.log.journal import Journal
from sealcast.log.ledger import LedgerReader
from sealcast.log.outbox import OutboxTopic
from sealcast.log.port import Record
from sealcast.model.bounded import bounded
from sealcast.model.dataclass import dataclass

#: Frames that a broker is asked about at once; what it says of them (control/standings.py).
MAX_ASKED: Final = 128
DONE: Final = ("committed", "removed")
WAITING: Final = "waiting"
LOST: Final = ("other", "missing")
#: Frames that a publisher remembers of those that a carrier acknowledged.
_MAX_SAID: Final = 65_536


class LostFrame(NamedTuple):
    """A frame that was acknowledged, and is not there."""

    partition: int
    offset: int
    #: `other` or `missing` (control/standings.py).
    standing: str
    #: The signed receipt of whoever acknowledged it, which a carrier does not give, and the broker's signed word.
    receipt: bytes
    statement: bytes


@dataclass(slots=True)
class Confirmation:
    """What became of acknowledged frames."""

    #: Accounted for by a record of the signed ledger.
    committed: int = 0
    #: In the log, and not taken yet: ask again.
    waiting: int = 0
    lost: list[LostFrame] = field(default_factory=list)

    def add(self, other: Confirmation) -> None:
        self.committed += other.committed
        self.waiting += other.waiting
        self.lost += other.lost


#: Asks for frames of a partition, by offset and digest: the standing of each in a word, and the signed statement.
AskStanding = Callable[[int, Sequence[tuple[int, bytes]]], tuple[list[str], bytes]]


class LaneLog(Protocol):
    """One partition, as its publisher sees it."""

    @property
    def partition(self) -> int:
        """Its number, as positions have it."""

    def append(self, frames: Sequence[bytes]) -> Sequence[int] | None:
        """Their offsets; None where they wait on this machine until they can be sent. Durable on return."""

    def flush(self) -> int:
        """Sends what waits on this machine, if it can be sent now; how many frames still do."""

    def waiting(self) -> int:
        """Frames in it that nobody has taken yet."""

    def newest(self, most: int, most_bytes: int) -> list[bytes]:
        """The last frames in it, at most so many, the oldest first."""

    def confirm(self, standing: AskStanding) -> Confirmation:
        """Asks its broker what became of frames that somebody else acknowledged; nothing where nobody else did."""

    def end(self) -> int:
        """Where it ends now; 0 where the log is elsewhere."""

    def read(self, start: int) -> Iterator[Record]:
        """What was appended from there on, as far as it can be read here. Of a log elsewhere that is nothing: whoever
        is not sure that a frame arrived appends it again, and it counts once."""

    @property
    def directory(self) -> Path:
        """Where it lies on this machine; Misuse if it does not."""

    def close(self) -> None:
        """Lets go of everything that is held."""


class LocalLaneLog(Closing):
    """A partition of a log on this machine."""

    def __init__(self, log: BrokerTopic | OutboxTopic, number: int, ledger: Path | Journal) -> None:
        """`number` counts the partitions that publishers append to; `ledger` is of whoever takes the frames."""
        self._topic, self._ledger = log, LedgerReader(ledger)
        self.partition = log.own[number]
        self._log = log.partition(self.partition)
        #: What a carrier acknowledged to this publisher, by offset and digest; of a directory nobody doubts it.
        self._said: deque[tuple[int, bytes]] | None = None
        if not isinstance(self._log, EmbeddedLog):
            self._said = deque(maxlen=_MAX_SAID)

    def append(self, frames: Sequence[bytes]) -> Sequence[int]:
        offsets = self._log.append(frames)
        if self._said is not None:
            digests = (hashlib.sha256(data).digest() for data in frames)
            self._said.extend(zip(offsets, digests, strict=True))
        return offsets

    def flush(self) -> int:
        return 0

    def waiting(self) -> int:
        last = self._ledger.last_span()
        taken = last.end.partitions if last is not None else ()
        at = self._topic.numbered(self.partition)
        return max(0, self._log.end() - (taken[at] if at < len(taken) else 0))

    def confirm(self, standing: AskStanding) -> Confirmation:
        """What the broker says of frames that a carrier acknowledged: it found them, or others, or none. Those that are
        done with are not asked about again."""
        found, left = Confirmation(), list[tuple[int, bytes]]()
        for some in bounded(self._said or (), lambda _: 1, MAX_ASKED):
            words, statement = standing(self.partition, some)
            for said, word in zip(some, words, strict=True):
                if word in LOST:
                    found.lost.append(LostFrame(self.partition, said[0], word, b"", statement))
                found.committed += word in DONE
                found.waiting += word == WAITING
                if word not in DONE:
                    left.append(said)
        if self._said is not None:
            self._said = deque(left, _MAX_SAID)
        return found

    def newest(self, most: int, most_bytes: int) -> list[bytes]:
        end = self._log.end()
        start = max(self._log.start(), end - most)
        sizes = self._log.sizes(start, end)
        while sizes and sum(sizes) > most_bytes:
            start, sizes = start + 1, sizes[1:]
        return [record.data for record in self._log.read(start, end)]

    def end(self) -> int:
        return self._log.end()

    def read(self, start: int) -> Iterator[Record]:
        return self._log.read(start)

    @property
    def directory(self) -> Path:
        if not isinstance(self._log, EmbeddedLog):
            raise Misuse(f"{self._log.shown} is on a carrier, not in a directory")
        return self._log.directory

    def close(self) -> None:
        self._ledger.close()
        self._topic.close()
