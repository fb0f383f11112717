"""Ctrl-C, or a polite request from elsewhere, for commands that run until then: what is under way ends first."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def stop_asked() -> Iterator[threading.Event]:
    """Is set when the process is asked to stop, while the block lasts."""
    asked = threading.Event()
    numbers = (signal.SIGINT, signal.SIGTERM)
    before = [signal.signal(number, lambda number, frame: asked.set()) for number in numbers]
    try:
        yield asked
    finally:
        for number, handler in zip(numbers, before, strict=True):
            signal.signal(number, handler)
