"""What a benchmark says, and the clocks it reads: CPU time, both sides in one run, never a bare time.

A ratio of two measurements of one run on one machine means something tomorrow and elsewhere; a time does not.
"""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from sealcast.errors import Unavailable

ROUNDS: Final = 5


@dataclass(frozen=True, slots=True)
class Row:
    """One measurement beside its reference. What the ratio divides by what, the suite's documentation says."""

    name: str
    ours: float
    reference: float
    reference_name: str
    ratio: float
    unit: str

    def as_json(self) -> dict[str, object]:
        return {
            "name": self.name,
            "ours": round(self.ours, 4),
            "reference": round(self.reference, 4),
            "reference_name": self.reference_name,
            "ratio": round(self.ratio, 3),
            "unit": self.unit,
        }


def cpu_seconds(work: Callable[[], object], rounds: int = ROUNDS) -> float:
    """CPU time of this process for `work`: the median of several runs, after one that warms up."""
    work()
    return statistics.median(_once(work) for _ in range(rounds))


def side_by_side(ours: Callable[[], object], reference: Callable[[], object], rounds: int) -> tuple[float, float]:
    """CPU time of both, their rounds alternating: whatever slows the machine down slows down both."""
    ours()
    reference()
    spent = [(_once(ours), _once(reference)) for _ in range(rounds)]
    return statistics.median(a for a, _ in spent), statistics.median(b for _, b in spent)


def best_of(ours: Callable[[], object], reference: Callable[[], object], slices: int) -> tuple[float, float]:
    """CPU time of the best slice of each: for arithmetic that is the same in all of them."""
    ours()
    reference()
    spent = [(_once(ours), _once(reference)) for _ in range(slices)]
    return min(a for a, _ in spent), min(b for _, b in spent)


def _once(work: Callable[[], object]) -> float:
    start = time.process_time()
    work()
    return time.process_time() - start


class TreeClock:
    """CPU time of this process and everything below it: the JVM, and the Python workers that it forks."""

    def __init__(self) -> None:
        if not Path("/proc/self/stat").exists():
            raise Unavailable("CPU time of other processes is read from /proc, which this system does not have")
        self._tick = os.sysconf("SC_CLK_TCK")

    @contextmanager
    def measure(self, into: list[float]) -> Iterator[None]:
        before = self.now()
        yield
        into.append(self.now() - before)

    def now(self) -> float:
        """Seconds of CPU. A process that ended in between is in its parent's sum, once its parent has waited for it."""
        stats = {pid: fields for pid in _pids() if (fields := _stat(pid)) is not None}
        ours = {os.getpid()}
        pending = True
        while pending:
            found = {pid for pid, fields in stats.items() if int(fields[1]) in ours} - ours
            ours |= found
            pending = bool(found)
        # Fields 14 to 17 of proc(5): user, system, and the same of children that were waited for.
        return sum(sum(map(int, stats[pid][11:15])) for pid in ours if pid in stats) / self._tick


def _pids() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def _stat(pid: int) -> list[str] | None:
    """From the third field on: the second is a name in parentheses that may hold anything."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
