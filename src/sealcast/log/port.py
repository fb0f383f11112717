"""The port: what the pipeline and the clients ask of a durable log, whoever keeps it.

The embedded log implements it with files, `kafka` and `nats` with a server's. One suite of tests holds all of them to
the contract (ADR 40):

1. **Durable on return.** `append` returns only when every record of the call survives the loss of a machine's power:
   the embedded log has synced it, a carrier has it on as many machines as its settings demand, or has synced it where
   it has one only. When it raises, nothing was acknowledged: the records may or may not be there later, each of them
   whole.
2. **Order.** The records of one call are in the order given, and so are the calls of one writer. Writers interleave:
   where many append, records of others may come between those of one call.
3. **Dense numbers.** The records of a partition are numbered 0, 1, 2, ... without gaps; a number is never used twice.
   A carrier's own positions may have gaps. They are not these numbers: `carried` and `numbered` say how they are made.
4. **Readers see what is durable**, and only that: never beyond `end()`, which never goes back. A record read once
   reads the same for ever, until retention removes it. What was altered in storage, or is missing between `start()` and
   `end()`, raises `Corrupt`, naming the place.
5. **Retention** removes the oldest records only; `start()` is the first that is left, and asking for less raises
   `NotFound`.
6. **Time** is the writer's word. Where one party writes (ledgers, annals) it never runs backwards, and `offset_at` can
   search it. Where strangers append (frames), each stamps what it appends with a clock of its own, and that counts for
   nothing else: whoever takes records judges their time by its own clock (`offsets.Arrival`).
7. **Fencing.** A `FencedLog` has one writer at a time. When `fence` returns, whoever was its writer before can append
   nothing any more, whatever it still has under way: it gets `Locked`, and no reader ever sees a record of it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple, Protocol, runtime_checkable

from sealcast.errors import SealcastError


class Record(NamedTuple):
    """One record of a partition. A named tuple and not a dataclass: readers make millions of them."""

    offset: int
    #: When it was appended, in microseconds since 1970, by the clock of whoever appended it.
    time_us: int
    data: bytes


@runtime_checkable
class PartitionLog(Protocol):
    """One partition of a topic's log."""

    def append(self, records: Sequence[bytes]) -> Sequence[int]:
        """Write the records, durably; their offsets, ascending."""

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
class SharedLog(PartitionLog, Protocol):
    """A partition that many append to, as publishers do, and that one party takes records out of."""

    @property
    def shown(self) -> str:
        """As messages call it."""

    def read_seen(self, start: int, stop: int, max_bytes: int | None = None) -> Iterator[Record]:
        """`read`, for whoever knows that they are there: nobody is asked first where the log begins and ends."""

    def sizes(self, start: int, end: int, max_bytes: int | None = None) -> list[int]:
        """About how many bytes each of the records has that `read` would give, for who plans the reading."""

    def cut(self, before: int) -> None:
        """Lets `drop` remove what is older than `before` without what comes after it."""

    def drop(self, before: int) -> int:
        """Removes records that are all older than `before`, as many as can be removed together; the new start."""


@runtime_checkable
class FencedLog(PartitionLog, Protocol):
    """A log with one writer at a time."""

    def fence(self) -> None:
        """Become its writer. `append` before that, or after somebody else did, raises Locked."""


@runtime_checkable
class TermedLog(FencedLog, Protocol):
    """A log whose writer may be several processes, one after the other, which know each other by a term."""

    @property
    def writes(self) -> bool:
        """Whether this is the writer, as far as it knows."""

    @property
    def known_end(self) -> int:
        """How far it goes as far as is known, without a question. While this is the writer, that is its end."""

    def fence(self, term: bytes = b"") -> None:
        """The same; with a term, that one begins."""

    def resume(self, term: bytes) -> None:
        """Become its writer in a term that has begun; Locked when another one has begun since."""

    def unsettled(self) -> SealcastError:
        """What its writer raises that is fenced off again and again, though no newer term has begun."""


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
