"""The port: what the pipeline and the clients ask of a durable log, whoever keeps it.

The embedded log implements it with files; Kafka, NATS and MQTT implement it with their own. The contract:

1. **Durable on return.** `append` returns only when every record of the call survives the loss of power. When it
   raises, nothing was acknowledged: the records may or may not be there later, each of them whole.
2. **Order.** The records of one call are neighbours, in the order given. Calls of one writer keep their order.
   Writers interleave.
3. **Dense offsets.** The records of a partition are numbered 0, 1, 2, ... without gaps; a number is never used twice.
4. **Readers see what is durable**, and only that: never beyond `end()`, which never goes back. A record read once
   reads the same for ever, until retention removes it; what was altered in storage raises `Corrupt`, naming the
   place.
5. **Retention** removes the oldest records only; `start()` is the first that is left, and asking for less raises
   `NotFound`.
6. **Time** is the writer's word. Where one party writes (ledgers, annals) it never runs backwards, and `offset_at` can
   search it. Where strangers append (frames), each stamps what it appends with a clock of its own, and that counts for
   nothing else: whoever takes records judges their time by its own clock (`offsets.Arrival`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple, Protocol, runtime_checkable


class Record(NamedTuple):
    """One record of a partition. A named tuple and not a dataclass: readers make millions of them."""

    offset: int
    #: When it was appended, in microseconds since 1970, by the clock of whoever appended it.
    time_us: int
    data: bytes


@runtime_checkable
class PartitionLog(Protocol):
    """One partition of a topic's log."""

    def append(self, records: Sequence[bytes]) -> range:
        """Write the records, durably; their offsets."""

    def read(self, start: int, end: int | None = None, max_bytes: int | None = None) -> Iterator[Record]:
        """Records `start` to before `end` (to the present end without one), verified.

        Stops before `max_bytes` of data are exceeded, but always after one record at least: a reader makes progress.
        """

    def start(self) -> int:
        """The first offset that is still kept."""

    def end(self) -> int:
        """One past the last durable record: the frontier of what readers may see."""

    def offset_at(self, time_us: int) -> int:
        """The first offset appended at that time or later; `end()` when there is none."""

    def close(self) -> None:
        """Let go of files and connections. Closing twice is fine."""


@runtime_checkable
class TopicLog(Protocol):
    """A topic's log: its partitions, numbered from 0."""

    @property
    def partitions(self) -> int:
        """How many partitions the topic has; it never shrinks."""

    def partition(self, number: int) -> PartitionLog:
        """One of them."""

    def close(self) -> None:
        """Close every partition."""
