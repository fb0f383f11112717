"""A broker's copies of other brokers' frames, for tasks on machines that do not have them.

A broker that takes frames from others keeps a copy of each in its directory (`log.forwarded`), which executors on other
machines do not see. Where the origin's own log is on a carrier, they need not: the driver tells each task which frame
of the origin each copy is, when it was stamped, and what its digest is. A task reads the frame from the carrier and
holds it to that. So a carrier that shows another frame than it showed before is found out, and a batch is the same
wherever its frames are read.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator
from collections.abc import Set as AbstractSet
from typing import Final, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from sealcast.errors import Corrupt
from sealcast.log.forwarded import BrokerTopic, ForwardedLog
from sealcast.log.port import PartitionLog, Record, SharedLog

#: Of one copy: its frame's offset in the origin's log, when it was appended here, and its SHA-256.
COPY: Final = np.dtype([("origin", "<u8"), ("time", "<i8"), ("digest", "V32")])


class Copies(NamedTuple):
    """What the copies in a partition are, from one offset on."""

    partition: int
    first: int
    packed: bytes

    def rows(self, first: int, end: int) -> NDArray[np.void] | None:
        """Those of a span; None if not all of it is told of."""
        rows = np.frombuffer(self.packed, COPY)
        if not self.first <= first < end <= self.first + rows.size:
            return None
        return rows[first - self.first : end - self.first]


def copies_of(
    log: BrokerTopic, spans: Iterable[tuple[int, int, int]], origin: Callable[[int], PartitionLog | None]
) -> list[Copies]:
    """What there is to tell of spans (partition, first, end): where they are of copies, and their origin's log is on a
    carrier. `origin` opens a partition where publishers appended to it."""
    told = list[Copies]()
    for partition, first, end in spans:
        part = log.partition(partition)
        if isinstance(part, ForwardedLog) and origin(partition) is not None:
            since = max(first, part.start())
            rows = [
                (at, record.time_us, hashlib.sha256(record.data).digest())
                for at, record in part.read_with_origins(since, end)
            ]
            told.append(Copies(partition, since, np.array(rows, COPY).tobytes()))
    return told


def needed(told: Iterable[Copies], own: AbstractSet[int], lanes: AbstractSet[int], each: int) -> tuple[Copies, ...]:
    """Those that a task may read which has these partitions: its own, and those of the same publishers."""
    return tuple(copies for copies in told if copies.partition in own or copies.partition % each in lanes)


class FrameReader(Protocol):
    """A partition, as a task reads it."""

    def read(self, start: int, end: int | None = None, max_bytes: int | None = None) -> Iterator[Record]: ...

    def read_seen(self, start: int, stop: int, max_bytes: int | None = None) -> Iterator[Record]: ...

    def start(self) -> int: ...


class FramesAnywhere:
    """A broker's log as a task reads it: what is here, and of what is not, the frames that it is a copy of."""

    def __init__(
        self, log: BrokerTopic, copies: Iterable[Copies], origin: Callable[[int], PartitionLog | None]
    ) -> None:
        """`origin` as for `copies_of`."""
        self._log, self._origin = log, origin
        #: Those that were read: an origin's log is opened once.
        self._elsewhere = dict[int, _Elsewhere]()
        self._told = dict[int, list[Copies]]()
        for each in copies:
            self._told.setdefault(each.partition, []).append(each)

    def partition(self, number: int) -> FrameReader:
        here = self._log.partition(number)
        told = self._told.get(number)
        # Of a log in a directory the end costs nothing to look at.
        if not told or not isinstance(here, ForwardedLog) or here.end() >= max(map(_end_of, told)):
            return here
        if number not in self._elsewhere:
            self._elsewhere[number] = _Elsewhere(here, told, self._origin(number))
        return self._elsewhere[number]


class _Elsewhere:
    """A partition of copies that are not here."""

    def __init__(self, here: SharedLog, told: list[Copies], origin: PartitionLog | None) -> None:
        self._here, self._told, self._origin = here, told, origin

    def start(self) -> int:
        return min(each.first for each in self._told)

    def read(self, start: int, end: int | None = None, max_bytes: int | None = None) -> Iterator[Record]:
        return self.read_seen(start, max(map(_end_of, self._told)) if end is None else end, max_bytes)

    def read_seen(self, start: int, stop: int, max_bytes: int | None = None) -> Iterator[Record]:
        rows = next((rows for each in self._told if (rows := each.rows(start, stop)) is not None), None)
        if rows is None or self._origin is None:
            yield from self._here.read(start, stop, max_bytes)  # which says what is missing
            return
        taken = 0
        origins = rows["origin"].astype(np.int64)
        for run in np.split(np.arange(rows.size), np.flatnonzero(np.diff(origins) != 1) + 1):
            first = int(origins[run[0]])
            for at, record in zip(run.tolist(), self._origin.read(first, first + run.size), strict=True):
                if hashlib.sha256(record.data).digest() != rows["digest"][at].tobytes():
                    raise Corrupt(
                        f"{self._here.shown}: frame {start + at} was taken from its origin's frame {record.offset}, "
                        "and the carrier shows another one there now",
                        hint="bring back the replica that has it",
                    )
                if max_bytes is not None and taken and taken + len(record.data) > max_bytes:
                    return
                taken += len(record.data)
                yield Record(start + at, int(rows["time"][at]), record.data)


def _end_of(copies: Copies) -> int:
    return copies.first + len(copies.packed) // COPY.itemsize
