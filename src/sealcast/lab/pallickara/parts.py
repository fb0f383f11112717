"""Where the time of an operation goes, without a word about it in the code that is measured.

Time is CPU time: nothing in these operations waits for anything but the processor, and others may be using that.

Functions are named as `module:name` or `module:Class.method`, each with the part that its time counts for. For the time
of a measurement they are replaced by ones that also look at the clock. A part within a part counts for the inner one
alone, so that the parts and the rest add up to the whole. What looking costs, about a microsecond a call, is in there.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Final

#: What is in no part.
REST: Final = "the rest"


@dataclass(frozen=True, slots=True)
class Measured:
    """One run: CPU seconds, and by part, what is in none included; and how long it took by the clock on the wall."""

    seconds: float
    wall: float
    parts: Mapping[str, float]


class Parts:
    """Seconds by part, of everything between two readings. Of one thread."""

    def __init__(self) -> None:
        self._seconds: dict[str, float] = {}
        #: Of each part that is under way, outermost first: its name, and when its own time began or went on.
        self._open: list[tuple[str, float]] = []

    def take(self) -> dict[str, float]:
        """What was spent since the last reading."""
        spent, self._seconds = self._seconds, {}
        return spent

    def begin(self, name: str) -> None:
        now = time.process_time()
        if self._open:
            self._count(now)
        self._open.append((name, now))

    def end(self) -> None:
        now = time.process_time()
        self._count(now)
        self._open.pop()
        if self._open:
            self._open[-1] = (self._open[-1][0], now)

    def _count(self, now: float) -> None:
        name, since = self._open[-1]
        self._seconds[name] = self._seconds.get(name, 0.0) + now - since

    def measured(self, run: Callable[[], object]) -> Measured:
        """One run."""
        self.take()
        wall, began = time.perf_counter(), time.process_time()
        run()
        whole, wall = time.process_time() - began, time.perf_counter() - wall
        spent = self.take()
        return Measured(whole, wall, {**spent, REST: max(0.0, whole - sum(spent.values()))})


@contextmanager
def watched(where: Mapping[str, str]) -> Iterator[Parts]:
    """Counts the time of the functions named, in this process, until the end of the block."""
    parts, before = Parts(), list[tuple[Any, str, Any]]()
    try:
        for place, part in where.items():
            owner, name = _owner(place)
            original = vars(owner)[name]
            setattr(owner, name, _timed(original, part, parts))
            before.append((owner, name, original))
        yield parts
    finally:
        for owner, name, original in before:
            setattr(owner, name, original)


def _owner(place: str) -> tuple[Any, str]:
    module, _, path = place.partition(":")
    *classes, name = path.split(".")
    return functools.reduce(getattr, classes, import_module(module)), name


def _timed(function: Callable[..., Any], part: str, parts: Parts) -> Callable[..., Any]:
    @functools.wraps(function)
    def run(*args: Any, **kwargs: Any) -> Any:
        parts.begin(part)
        try:
            return function(*args, **kwargs)
        finally:
            parts.end()

    return run
