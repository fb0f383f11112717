"""The end of a publisher's lane: the partition that it appends to, at a broker or in its own log.

a log on this machine     `LocalLaneLog`: the embedded log, and the ledger of whoever takes frames out of it
a gateway                 `transports.frames`
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple, Protocol

from sealcast.log.closing import Closing
from sealcast.log.forwarded import BrokerTopic
from sealcast.log.ledger import LedgerReader
from sealcast.log.outbox import OutboxTopic
from sealcast.log.port import Record


class LostFrame(NamedTuple):
    """A frame that was acknowledged, and is not there."""

    partition: int
    offset: int
    #: `other` or `missing` (control/standings.py).
    standing: str
    #: The signed receipt of whoever acknowledged it, and the broker's signed word.
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

    def __init__(self, log: BrokerTopic | OutboxTopic, number: int, ledger: Path) -> None:
        """`number` counts the partitions that publishers append to; `ledger` is of whoever takes the frames."""
        self._topic, self._ledger = log, LedgerReader(ledger)
        self.partition = log.own[number]
        self._log = log.partition(self.partition)

    def append(self, frames: Sequence[bytes]) -> Sequence[int]:
        return self._log.append(frames)

    def flush(self) -> int:
        return 0

    def waiting(self) -> int:
        last = self._ledger.last_span()
        taken = last.end.partitions if last is not None else ()
        at = self._topic.numbered(self.partition)
        return max(0, self._log.end() - (taken[at] if at < len(taken) else 0))

    def confirm(self, standing: AskStanding) -> Confirmation:
        return Confirmation()

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
        return self._log.directory

    def close(self) -> None:
        self._ledger.close()
        self._topic.close()
