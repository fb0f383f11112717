"""CPU time of small things, measured so that a busy machine matters least."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

#: A measurement is cut into blocks, of which the quickest counts: what others do on the machine only adds.
BLOCKS: Final = 15


def cpu_seconds(run: Callable[[], object], least: float) -> float:
    """CPU seconds of one call, from about `least` seconds of calling it."""
    run()
    began = time.process_time()
    run()
    once = max(time.process_time() - began, 1e-7)
    calls = max(1, round(least / BLOCKS / once))
    best = float("inf")
    for _ in range(BLOCKS):
        began = time.process_time()
        for _ in range(calls):
            run()
        best = min(best, (time.process_time() - began) / calls)
    return max(best, 1e-9)
