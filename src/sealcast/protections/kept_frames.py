"""Frames that are removed from a log: committed, and older than the topic keeps them, or more than it keeps.

    committed --- 3/4 of the time: kept --- by the end of the time: removed

A frame is as old as the ledger's record of it, by the clock of whoever committed it. A log lets whole files go, so a
new file is begun whenever the present one is an eighth of the time old; what a file holds is then at most that far
apart. By their size, frames go only when nobody looks back at them any more (`Topic.looked_back_us`).
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Mapping
from functools import partial
from typing import Final, Protocol

from sealcast.log.ledger import LedgerReader
from sealcast.log.port import SharedLog
from sealcast.trust.realm.parameters import NO_LIMIT
from sealcast.trust.realm.topics import Topic

#: Files begin so many times within the time that frames are kept; they go when they are this much younger than it.
_SLICES: Final = 8
_EARLIER: Final = 2

#: How far each partition begins, and how far its frames are old or too many: how far nobody needs them.
Unneeded = Callable[[Mapping[int, int], Mapping[int, int]], Mapping[int, int]]


class DroppedLogs(Protocol):
    """Logs that frames can be removed from, by partition."""

    @property
    def partitions(self) -> int: ...
    def partition(self, number: int) -> SharedLog: ...


def have_an_end(topic: Topic) -> bool:
    """Whether frames of the topic are removed at all."""
    return topic.frames_kept_us is not None or topic.parameters.frames_kept_bytes < NO_LIMIT


def drop(
    topic: Topic, ledger: LedgerReader, log: DroppedLogs, now_us: int, known: dict[int, int], unneeded: Unneeded
) -> int:
    """Removes what is due; how many frames. `known` has the bytes that each record of the ledger took, as far as they
    are kept, for the next time."""
    kept_us, most, removed = topic.frames_kept_us, topic.parameters.frames_kept_bytes, 0
    slice_us = (topic.least_kept_us if kept_us is None else kept_us) // _SLICES
    young = _taken_by(ledger, now_us - slice_us)
    old = {} if kept_us is None else _taken_by(ledger, now_us - (kept_us - _EARLIER * slice_us))
    starts = {p: log.partition(p).start() for p in range(log.partitions)}
    if most < NO_LIMIT:
        looked_at = _taken_by(ledger, now_us - topic.looked_back_us)
        old = _further(old, _at_most(_too_many(ledger, log, starts, most, known), looked_at))
    least = unneeded(starts, old) if any(old.values()) else {}
    for partition, start in starts.items():
        part, before = log.partition(partition), least.get(partition, 0)
        part.cut(young.get(partition, 0))
        if before > start:
            removed += part.drop(before) - start
    return removed


def _too_many(
    ledger: LedgerReader, log: DroppedLogs, starts: Mapping[int, int], most: int, known: dict[int, int]
) -> dict[int, int]:
    """By partition, how far the oldest committed frames go, so that the others have so many bytes at the most. What a
    record of the ledger took is measured once."""
    first = first_with(ledger, starts)
    for gone in [index for index in known if index < first]:
        del known[gone]
    for index in range(first, ledger.end()):
        if index not in known:
            known[index] = sum(_sizes(log, ledger, partition, index, start) for partition, start in starts.items())
    size, index = sum(known.values()), first
    while size > most:
        size -= known[index]
        index += 1
    return reached(ledger, index) if index > first else {}


def _taken_by(ledger: LedgerReader, time_us: int) -> dict[int, int]:
    """By partition, how many frames had been committed at a time."""
    end = bisect_right(range(ledger.end()), time_us, key=lambda index: ledger.at(index).entry.end.time_us)
    return dict(enumerate(ledger.at(end - 1).entry.end.partitions)) if end else {}


def _sizes(log: DroppedLogs, ledger: LedgerReader, partition: int, index: int, start: int) -> int:
    """The bytes of frames that a record took from a partition, and that are still there."""
    begin = max(start, end_of(ledger, partition, index - 1) if index else 0)
    end, part = end_of(ledger, partition, index), log.partition(partition)
    return sum(part.sizes(begin, end)) if end > begin else 0


def _further(one: Mapping[int, int], other: Mapping[int, int]) -> dict[int, int]:
    return {partition: max(one.get(partition, 0), other.get(partition, 0)) for partition in {**one, **other}}


def _at_most(ends: Mapping[int, int], limits: Mapping[int, int]) -> dict[int, int]:
    return {partition: min(end, limits.get(partition, 0)) for partition, end in ends.items()}


def first_with(ledger: LedgerReader, starts: Mapping[int, int]) -> int:
    """The first record of which a frame is left: the frames of those before it are gone."""

    def first(partition: int) -> int:
        ended = partial(end_of, ledger, partition)
        return bisect_right(range(ledger.end()), starts[partition], key=ended)

    return min(map(first, starts), default=0)


def end_of(ledger: LedgerReader, partition: int, index: int) -> int:
    """How far a record goes in a partition."""
    return ledger.at(index).entry.reached(partition)


def reached(ledger: LedgerReader, records: int) -> dict[int, int]:
    """By partition, how far so many records go."""
    return dict(enumerate(ledger.at(records - 1).entry.end.partitions)) if records else {}
