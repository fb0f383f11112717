"""Death while something is removed: for children, which end by it."""

from __future__ import annotations

import os
import signal
from typing import Never

from sealcast.protections import withdrawing


def die_at(moment: str) -> None:
    """From here on, this process is killed after the first note (`notes`), or before any file is removed (`files`)."""
    inner = withdrawing._withdraw

    def noted(*given: object) -> None:
        inner(*given)  # type: ignore[arg-type]
        _die()

    what = ("_withdraw", noted) if moment == "notes" else ("remove_superseded", lambda step: _die())
    setattr(withdrawing, *what)


def _die() -> Never:
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError("killed, and still here")
