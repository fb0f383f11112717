"""Where the time of an operation goes, without a word about it in the code that is measured.

Time is CPU time: nothing in these operations waits for anything but the processor, and others may be using that.

Functions are named as `module:name` or `module:Class.method`, each with the part that its time counts for. For the time
of a measurement they are replaced by ones that also look at the clock. A part within a part counts for the inner one
alone, so that the parts and the rest add up to the whole. What looking costs, about a microsecond a call, is in there.
"""

from __future__ import annotations

import functools
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Final

#: What is in no part.
REST: Final = "the rest"


@dataclass(frozen=True, slots=True)
class MeasuredRun:
    """One run: CPU seconds, and by part, what is in none included; and how long it took by the clock on the wall."""

    seconds: float
    wall: float
    parts: Mapping[str, float]


class Parts:
    """Measures runs by part: CPU time counts for the innermost part that is under way. Of one thread."""

    def __init__(self) -> None:
        self._seconds: defaultdict[str, float] = defaultdict(float)
        self._open = [REST]
        self._since = 0.0

    def begin(self, name: str) -> None:
        self._count()
        self._open.append(name)

    def end(self) -> None:
        self._count()
        self._open.pop()

    def _count(self) -> None:
        now = time.process_time()
        self._seconds[self._open[-1]] += now - self._since
        self._since = now

    def measured(self, run: Callable[[], object]) -> MeasuredRun:
        """Measures one run."""
        wall, began = time.perf_counter(), time.process_time()
        self._seconds.clear()
        self._since = began
        run()
        self._count()
        return MeasuredRun(self._since - began, time.perf_counter() - wall, dict(self._seconds))


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
