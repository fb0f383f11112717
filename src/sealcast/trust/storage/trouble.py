"""What both databases say when something is wrong."""

from __future__ import annotations

from typing import Final

from sealcast.errors import Corrupt, Unavailable

#: How long a writer waits for another before it gives up.
BUSY_SECONDS: Final = 30.0


class CommitLost(Unavailable):
    """The connection broke while the database was told to commit: whether it did is not known yet."""


def damaged(where: str, what: str) -> Corrupt:
    return Corrupt(f"the registry {where} is damaged: {what}", hint="restore it from a copy; nothing was changed")
