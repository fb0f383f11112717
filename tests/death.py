"""Death at any moment: a process that ends before the k-th thing that it does to the disk."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from typing import Any


class Death:
    """Comes before the k-th thing that a process does to the disk; of a write, half is done."""

    CALLS = (
        "pwrite",
        "write",
        "fsync",
        "fdatasync",
        "rename",
        "replace",
        "truncate",
        "ftruncate",
        "unlink",
        "mkdir",
        "utime",
    )

    def __init__(self, at: int) -> None:
        self._left = at
        for name in self.CALLS:
            setattr(os, name, self._counted(name, getattr(os, name)))

    def _counted(self, name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **options: Any) -> Any:
            self._left -= 1
            if self._left:
                return real(*arguments, **options)
            if name in ("pwrite", "write"):
                fd, raw, *rest = arguments
                real(fd, bytes(raw)[: len(raw) // 2], *rest)
            os.kill(os.getpid(), signal.SIGKILL)

        return call
