"""What a benchmark says, and the clocks it reads: CPU time, both sides in one run, never a bare time.

A ratio of two measurements of one run on one machine means something tomorrow and elsewhere; a time does not.
"""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from sealcast.errors import Unavailable


@dataclass(frozen=True, slots=True)
class BenchRow:
    """One measurement beside its reference. What the ratio divides by what, the suite's documentation says."""

    name: str
    ours: float
    reference: float
    reference_name: str
    ratio: float
    unit: str
    #: What both consist of, in the same unit, where a row says so.
    parts: Mapping[str, float] | None = None
    reference_parts: Mapping[str, float] | None = None

    def as_json(self) -> dict[str, object]:
        rounded = {"ours": round(self.ours, 4), "reference": round(self.reference, 4), "ratio": round(self.ratio, 3)}
        return {name: value for name, value in asdict(self).items() if value is not None} | rounded


def side_by_side(
    ours: Callable[[], object],
    reference: Callable[[], object],
    rounds: int,
    of: Callable[[Iterable[float]], float] = statistics.median,
) -> tuple[float, float]:
    """Measures the CPU time of both, their rounds alternating: whatever slows the machine down slows down both.

    The median round counts, or the one that `of` takes: `min` suits arithmetic that is the same in all rounds.
    """
    ours()
    reference()
    spent = [(_once(ours), _once(reference)) for _ in range(rounds)]
    return of(a for a, _ in spent), of(b for _, b in spent)


def _once(work: Callable[[], object]) -> float:
    start = time.process_time()
    work()
    return time.process_time() - start


def tree_seconds(work: Callable[[], object]) -> float:
    """CPU time of this process and everything below it for `work`: the JVM, and the Python workers that it forks."""
    before = _tree_now()
    work()
    return _tree_now() - before


def tree_by_kind() -> dict[str, float]:
    """CPU seconds so far of this process (`own`), its JVM (`JVM`) and everything else below it (`workers`)."""
    spent = {"own": 0.0, "JVM": 0.0, "workers": 0.0}
    for pid, (name, seconds) in _tree().items():
        spent["own" if pid == os.getpid() else "JVM" if name == "java" else "workers"] += seconds
    return spent


def _tree_now() -> float:
    return sum(seconds for _, seconds in _tree().values())


def _tree() -> dict[int, tuple[str, float]]:
    """Name and seconds of CPU, by process. One that ended in between is in its parent's sum, once its parent has waited
    for it."""
    if not Path("/proc/self/stat").exists():
        raise Unavailable("CPU time of other processes is read from /proc, which this system does not have")
    pids = [int(name) for name in os.listdir("/proc") if name.isdigit()]
    stats = {pid: fields for pid in pids if (fields := _stat(pid)) is not None}
    ours: set[int] = set()
    found = {os.getpid()}
    while found:
        ours |= found
        found = {pid for pid, fields in stats.items() if int(fields[2]) in ours} - ours
    # Fields 14 to 17 of proc(5): user, system, and the same of children that were waited for.
    tick = os.sysconf("SC_CLK_TCK")
    return {pid: (stats[pid][0], sum(map(int, stats[pid][12:16])) / tick) for pid in ours if pid in stats}


def _stat(pid: int) -> list[str] | None:
    """Reads a process's fields from the second on, a name in parentheses that may hold anything."""
    try:
        name, _, rest = Path(f"/proc/{pid}/stat").read_text().partition("(")[2].rpartition(")")
        return [name, *rest.split()]
    except OSError:
        return None
