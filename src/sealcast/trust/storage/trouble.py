"""What both databases say when something is wrong."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from sealcast.errors import Corrupt, Unavailable

#: How long a writer waits for another before it gives up.
BUSY_SECONDS: Final = 30.0


class CommitLost(Unavailable):
    """The connection broke while the database was told to commit: whether it did is not known yet."""


def damaged(where: str, what: str) -> Corrupt:
    return Corrupt(f"the registry {where} is damaged: {what}", hint="restore it from a copy; nothing was changed")


def not_believed(where: str, what: str, reason: str = "unsigned") -> Corrupt:
    """Rows that nobody stated who may."""
    return Corrupt(
        f"the registry {where} is not believed ({reason}): {what}",
        hint="somebody wrote to it without the key for it: restore the newest copy",
    )


def another_history(where: str, what: str, reason: str, kept: Path | None) -> Corrupt:
    """A history that is not the one that was seen before; `kept` is where that is noted."""
    forget = "" if kept is None else f"; if you put an old copy back on purpose, remove {kept}"
    return Corrupt(
        f"the registry {where} is not believed ({reason}): {what}",
        hint=f"somebody put an old copy in its place: restore the newest one{forget}",
    )
