"""A publisher's lane to one broker: the partition it writes to there, the frames that wait in it, and what seals them.

On most topics a publisher has one lane. On a `layered` one it has one to every root broker of the overlay. Where peers
carry events, its one lane ends in a log of its own.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path

from sealcast.errors import Bug
from sealcast.log.ledger import LedgerReader
from sealcast.primitives.secrets import Unpicklable
from sealcast.protections.frames import FrameSealer
from sealcast.trust.handles import EntityRealm


class Lane(Unpicklable):
    """One publisher, one topic, one broker. Close it: it has files open."""

    def __init__(self, realm: EntityRealm, topic: str, broker: str, publisher: str) -> None:
        self.broker = broker
        about, paths = realm.state().topic(topic), realm.paths.topic(topic, broker)
        self._log = realm.outbox(topic, broker) if about.protection.peers else realm.frames(topic, broker)
        self.partition = self._log.own[partition_of(publisher, about.partitions)]
        self._ledger = LedgerReader((paths.sent if about.protection.peers else paths).ledger)
        #: Numbers and nonces are a sealer's own: another lane, or another epoch, has another.
        self.sealer: FrameSealer | None = None

    @property
    def sealing(self) -> FrameSealer:
        if self.sealer is None:
            raise Bug(f"the lane to {self.broker!r} has no keys yet")
        return self.sealer

    def waiting(self) -> int:
        """Frames in its partition that the pipeline has not taken yet."""
        last = self._ledger.last_span()
        taken = last.end.partitions if last is not None else ()
        at = self._log.numbered(self.partition)
        return max(0, self._log.partition(self.partition).end() - (taken[at] if at < len(taken) else 0))

    @property
    def directory(self) -> Path:
        """Where the partition that it writes to lies."""
        return self._log.partition(self.partition).directory

    def append(self, frames: Sequence[bytes]) -> range:
        """Their offsets; durable on return."""
        return self._log.partition(self.partition).append(frames)

    def newest(self, most: int, most_bytes: int) -> list[bytes]:
        """The last frames in its partition, at most so many, the oldest first."""
        log = self._log.partition(self.partition)
        end = log.end()
        start = max(log.start(), end - most)
        sizes = log.sizes(start, end)
        while sizes and sum(sizes) > most_bytes:
            start, sizes = start + 1, sizes[1:]
        return [record.data for record in log.read(start, end)]

    def close(self) -> None:
        self._ledger.close()
        self._log.close()


def partition_of(publisher: str, partitions: int) -> int:
    """The partition a publisher writes to: the same on every machine and in every run."""
    return int.from_bytes(hashlib.sha256(publisher.encode()).digest()[:8], "big") % partitions
