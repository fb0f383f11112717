"""What a subscriber has had, in bounded memory: so that a delivery that is repeated is not handed out again.

A publisher numbers its events, anew with each boot, and signs the numbers. So an event is known by (publisher, boot,
number), wherever it lies and whoever repeats it. Of such an event it is

    fresh        never had
    repeated     had before
    too old      so far behind what was had that nobody remembers: what is not known to be fresh is not handed out

A boot is a set of runs, intervals without a gap, and a floor below which everything is too old. Honest deliveries of a
boot come in the order of their numbers, some few of them late: they never meet the floor. Memory is bounded, and who
takes most of it gives way first. A publisher that begins boot after boot makes this forget its own, and nobody else's.

No clock, no file, no key: `cursor.py` keeps it beside the place that was acknowledged.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import field
from enum import Enum, auto
from heapq import heapify, heapreplace
from itertools import islice
from operator import lt
from typing import Any, Final, NamedTuple

from sealcast.model.dataclass import dataclass

#: Runs of one boot; and runs of all boots together, each of which has one at least.
MAX_RUNS_EACH: Final = 1_024
MAX_RUNS: Final = 8_192
#: Publishers of which something is remembered, if only when their forgotten boots ended.
MAX_PUBLISHERS: Final = 4_096


class EventId(NamedTuple):
    """One event, as its publisher signed it."""

    publisher: str
    boot: bytes
    number: int
    #: When its publisher says that it was published, in microseconds since 1970.
    time_us: int


class HadVerdict(Enum):
    FRESH = auto()
    REPEATED = auto()
    TOO_OLD = auto()


@dataclass(slots=True)
class _Boot:
    """Numbers of one boot that were had: runs [start, end), in order and apart; all below the floor are too old."""

    floor: int = 0
    newest_us: int = 0
    runs: list[tuple[int, int]] = field(default_factory=list)

    def judge(self, number: int) -> HadVerdict:
        at = bisect_right(self.runs, (number, _ENDLESS)) - 1
        if at >= 0 and number < self.runs[at][1]:
            return HadVerdict.REPEATED
        return HadVerdict.TOO_OLD if number < self.floor else HadVerdict.FRESH

    def add(self, start: int, end: int) -> None:
        """A run more, joined with those that it meets."""
        first = bisect_right(self.runs, (start, -1))
        if first and self.runs[first - 1][1] >= start:
            first -= 1
        last = first
        while last < len(self.runs) and self.runs[last][0] <= end:
            start, end = min(start, self.runs[last][0]), max(end, self.runs[last][1])
            last += 1
        self.runs[first:last] = [(start, end)]
        if len(self.runs) > MAX_RUNS_EACH:
            self.close(len(self.runs) - MAX_RUNS_EACH)

    def add_all(self, runs: list[tuple[int, int]]) -> None:
        """Runs more, which are in order and apart. Those that follow all others need not be put in their place."""
        if self.runs and runs and self.runs[-1][1] > runs[0][0]:
            for start, end in runs:
                self.add(start, end)
            return
        if self.runs and runs and self.runs[-1][1] == runs[0][0]:
            runs = [(self.runs.pop()[0], runs[0][1]), *runs[1:]]
        self.runs += runs
        if len(self.runs) > MAX_RUNS_EACH:
            self.close(len(self.runs) - MAX_RUNS_EACH)

    def close(self, count: int) -> None:
        """Forgets the lowest runs: what lies as low is too old from now on."""
        self.floor = max(self.floor, self.runs[count - 1][1])
        del self.runs[:count]


_ENDLESS: Final = 1 << 64


@dataclass(slots=True)
class _Publisher:
    #: Boots, the one that was heard last at the end.
    boots: dict[bytes, _Boot] = field(default_factory=dict)
    #: The newest time in boots that were forgotten: an unknown boot that is not newer may be one of them.
    forgotten_us: int = -1

    @property
    def runs(self) -> int:
        return sum(len(boot.runs) for boot in self.boots.values())

    def give_way(self) -> None:
        """Forgets the lower half of its only boot, or else the boot that was silent longest."""
        boot, found = next(iter(self.boots.items()))
        if len(self.boots) == 1 and len(found.runs) > 1:
            found.close(len(found.runs) // 2)
        else:
            self.forgotten_us = max(self.forgotten_us, found.newest_us)
            del self.boots[boot]


class Had:
    """What one subscriber has had on one topic."""

    def __init__(self) -> None:
        #: The one that was heard last at the end.
        self._publishers: dict[str, _Publisher] = {}
        self._size = 0

    def __bool__(self) -> bool:
        return bool(self._publishers)

    def judge(self, event: EventId) -> HadVerdict:
        known = self._publishers.get(event.publisher)
        if known is None:
            return HadVerdict.FRESH
        boot = known.boots.get(event.boot)
        if boot is None:
            return HadVerdict.FRESH if event.time_us > known.forgotten_us else HadVerdict.TOO_OLD
        return boot.judge(event.number)

    def add(self, event: EventId) -> None:
        """Remembers an event."""
        self._add(event.publisher, event.boot, event.time_us, [(event.number, event.number + 1)])

    def add_all(self, first: EventId, numbers: Sequence[int]) -> None:
        """Remembers events of one boot and time, those of `numbers`."""
        if len(numbers) > 1 and self._all_fresh(first, numbers):
            self._add(first.publisher, first.boot, first.time_us, _as_runs(numbers))
        else:
            for number in numbers:
                self.add(first._replace(number=number))

    def admit(self, first: EventId, numbers: Sequence[int], *, late: bool = False) -> list[bool]:
        """Which events of one boot and time are to be handed out, in order, those of `numbers`: they are remembered
        from now on. Whose are `late` may be older than anybody remembers."""
        if self._all_fresh(first, numbers):
            self._add(first.publisher, first.boot, first.time_us, _as_runs(numbers))
            return [True] * len(numbers)
        admitted = list[bool]()
        for event in (first._replace(number=number) for number in numbers):
            verdict = self.judge(event)
            fresh = verdict is HadVerdict.FRESH or (verdict is HadVerdict.TOO_OLD and late)
            if fresh:
                self.add(event)
            admitted.append(fresh)
        return admitted

    def _all_fresh(self, first: EventId, numbers: Sequence[int]) -> bool:
        """Whether they follow all that was had of their boot, each the one before, and there is room for all of them:
        then judging and adding them one by one comes to the same."""
        known = self._publishers.get(first.publisher)
        boot = None if known is None else known.boots.get(first.boot)
        runs = boot.runs if boot is not None else []
        return (
            (known is not None or len(self._publishers) < MAX_PUBLISHERS)
            and self._size + len(numbers) <= MAX_RUNS
            and (not runs or runs[-1][1] <= numbers[0])
            and all(map(lt, numbers, islice(numbers, 1, None)))
            and self.judge(first._replace(number=numbers[0])) is HadVerdict.FRESH
        )

    def take(self, other: Had) -> None:
        """Remembers whatever another one does."""
        for name, theirs in other._publishers.items():
            for boot, found in theirs.boots.items():
                self._add(name, boot, found.newest_us, found.runs, found.floor)
            if theirs.forgotten_us >= 0:
                mine = self._publishers.setdefault(name, _Publisher())
                mine.forgotten_us = max(mine.forgotten_us, theirs.forgotten_us)
        self._shrink()

    def _add(self, name: str, boot: bytes, time_us: int, runs: list[tuple[int, int]], floor: int = 0) -> None:
        known = self._publishers.pop(name, None) or _Publisher()
        self._publishers[name] = known
        found = known.boots.pop(boot, None) or _Boot()
        known.boots[boot] = found
        before = len(found.runs)
        found.newest_us, found.floor = max(found.newest_us, time_us), max(found.floor, floor)
        found.add_all(runs)
        self._size += len(found.runs) - before
        if self._size > MAX_RUNS or len(self._publishers) > MAX_PUBLISHERS:
            self._shrink()

    def _shrink(self) -> None:
        """Whoever takes most gives way, until there is room again for a while."""
        while len(self._publishers) > MAX_PUBLISHERS:
            self._size -= self._publishers.pop(next(iter(self._publishers))).runs
        if self._size <= MAX_RUNS:
            return
        largest = [(-known.runs, name) for name, known in self._publishers.items()]
        heapify(largest)
        while self._size > MAX_RUNS - MAX_RUNS // 4:
            before, name = largest[0]
            self._publishers[name].give_way()
            heapreplace(largest, (-self._publishers[name].runs, name))
            self._size += before + self._publishers[name].runs

    # --- as a file has it ---------------------------------------------------------------------------

    def to_json(self) -> list[Any]:
        return [
            [name, known.forgotten_us, [_boot_to_json(boot, found) for boot, found in known.boots.items()]]
            for name, known in self._publishers.items()
        ]

    @classmethod
    def from_json(cls, body: Any) -> Had:
        """ValueError or TypeError when it is none."""
        made = cls()
        for name, forgotten_us, boots in body:
            known = made._publishers[str(name)] = _Publisher(forgotten_us=int(forgotten_us))
            for boot, floor, newest_us, numbers in boots:
                found = known.boots[bytes.fromhex(boot)] = _Boot(int(floor), int(newest_us), _runs(numbers))
                made._size += len(found.runs)
        return made


def _as_runs(numbers: Sequence[int]) -> list[tuple[int, int]]:
    """Ascending numbers, as runs."""
    runs, start, end = list[tuple[int, int]](), numbers[0], numbers[0]
    for number in numbers:
        if number != end:
            runs.append((start, end))
            start = number
        end = number + 1
    runs.append((start, end))
    return runs


def _boot_to_json(boot: bytes, found: _Boot) -> list[Any]:
    """Runs as gaps and lengths, which are small numbers."""
    numbers, at = list[int](), 0
    for start, end in found.runs:
        numbers += (start - at, end - start)
        at = end
    return [boot.hex(), found.floor, found.newest_us, numbers]


def _runs(numbers: list[Any]) -> list[tuple[int, int]]:
    runs, at = list[tuple[int, int]](), 0
    for gap, length in zip(numbers[::2], numbers[1::2], strict=True):
        if not (isinstance(gap, int) and isinstance(length, int) and gap >= 0 and length > 0):
            raise ValueError(gap, length)
        runs.append((at + gap, at + gap + length))
        at += gap + length
    return runs
