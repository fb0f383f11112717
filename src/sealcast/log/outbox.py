"""A publisher's own log on a topic that peers carry: one partition, which has its publisher's number in the realm.

Positions of a topic name events over all of its publishers. Each appends to a log of its own, so the partition of a
position says whose log it is.
"""

from __future__ import annotations

from pathlib import Path

from sealcast.errors import NotFound
from sealcast.log.embedded import EmbeddedTopic
from sealcast.log.port import SharedLog


class OutboxTopic(EmbeddedTopic):
    """The frames of one publisher."""

    def __init__(self, directory: Path | str, number: int, *, read_only: bool = False) -> None:
        super().__init__(directory, 1, read_only=read_only)
        self._number = number

    @property
    def own(self) -> range:
        """The one partition that its publisher appends to, by the number that positions have."""
        return range(self._number, self._number + 1)

    def numbered(self, partition: int) -> int:
        """The number that the partition has in the ledger of its publisher's peer, which takes no other."""
        return 0

    def partition(self, number: int) -> SharedLog:
        """By the number that positions have, or by 0, which the ledger of its peer has."""
        if number not in (0, self._number):
            raise NotFound(f"{self.directory} is the log of publisher {self._number}, not of {number}")
        return super().partition(0)
