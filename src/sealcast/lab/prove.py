"""Opening to prove: every subscriber opens what it was sent, with its own keys and nobody else's, as a Spark job.

A worker gets the names of some subscribers. Of each it makes the inbox that the subscriber itself would read, from that
entity's own key file, and opens all that is in it. Piece by piece, so that each is read and verified once for all of
them. Where it proves the same, a body is opened once by each worker: that a second subscriber comes by the very same
key proves that it opens the very same event, since a body is committed to its key (`Inbox.prove`).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray
from pyspark.sql import SparkSession

from sealcast.log.mailbox import Mailbox
from sealcast.log.piece_reader import PieceReader
from sealcast.pipeline.failures import explained
from sealcast.protections.port import DEFAULT_KEY_MEMORY, Inbox, Reader, client_side
from sealcast.trust.handles import EntityRealm
from sealcast.trust.realm.state import RealmState

#: Inboxes that a worker has open at a time: each group of them reads every piece, so that fewer would only cost.
INBOXES: Final = 512
Ints = NDArray[np.int64]
_ROWS: Final = 1 << 16


class OpenedRows(NamedTuple):
    """What a subscriber opened of one piece and partition: where the events stand, packed as `place` does. Or,
    where not everything of a piece opened: how much did not, and why the first did not."""

    subscriber: int
    partition: int
    places: bytes
    unopened: int = 0
    why: str | None = None


@dataclass(frozen=True, slots=True)
class OpenedSample:
    """Every delivery that was opened: the event at (partition, place), by the subscriber of that number."""

    subscriber: Ints
    partition: Ints
    place: Ints
    unopened: int
    why: str | None


def place(offset: Ints | int, row: Ints | int) -> Ints:
    """Offset and row of a position in one number: offsets have 40 bits, rows 16."""
    return np.asarray(offset, np.int64) * _ROWS + np.asarray(row, np.int64)


def open_all(spark: SparkSession, realm: str, topic: str, subscribers: Sequence[str]) -> OpenedSample:
    """What each subscriber, by its number, opens of everything that was delivered."""
    tasks = max(1, min(len(subscribers), spark.sparkContext.defaultParallelism))
    with explained():
        job = spark.sparkContext.parallelize(range(tasks), tasks)
        return opened(job.flatMap(_opening(realm, topic, subscribers, tasks)).collect())


def opened(found: Iterable[OpenedRows]) -> OpenedSample:
    """All of them together."""
    rows = list(found)
    lengths = [len(row.places) // 8 for row in rows]
    return OpenedSample(
        subscriber=np.repeat(np.array([row.subscriber for row in rows], np.int64), lengths),
        partition=np.repeat(np.array([row.partition for row in rows], np.int64), lengths),
        place=np.frombuffer(b"".join(row.places for row in rows), "<i8"),
        unopened=sum(row.unopened for row in rows),
        why=next((row.why for row in rows if row.why is not None), None),
    )


def _opening(realm: str, topic: str, subscribers: Sequence[str], tasks: int) -> Callable[[int], Iterator[OpenedRows]]:
    """What a task does; only names are in it. Keys are read where they are used."""

    def run(task: int) -> Iterator[OpenedRows]:
        mine = range(task, len(subscribers), tasks)
        for first in range(0, len(mine), INBOXES):
            some = {number: subscribers[number] for number in mine[first : first + INBOXES]}
            yield from open_some(_realm(realm, os.getpid()), topic, some)

    return run


class SettledRealm(EntityRealm):
    """A realm in which nothing is decided any more: its newest state is read once."""

    @cached_property
    def _newest(self) -> RealmState:
        return super().state()

    def state(self, version: int | None = None) -> RealmState:
        return self._newest if version is None else super().state(version)


@lru_cache(1)
def _realm(realm: str, process: int) -> SettledRealm:
    return SettledRealm(realm)


@dataclass(frozen=True, slots=True)
class _Opening:
    """A subscriber at work."""

    number: int
    inbox: Inbox
    mailbox: Mailbox[Any]


def open_some(realm: EntityRealm, topic: str, subscribers: dict[int, str]) -> Iterator[OpenedRows]:
    """All that is in the mailboxes of these, in rows of `OPENED`."""
    side = client_side(realm.state().topic(topic).protection)
    at = dict[str, list[_Opening]]()
    with ExitStack() as held:
        for number, name in subscribers.items():
            reader = Reader(realm, topic, name, broker=None, ask=None, key_memory=DEFAULT_KEY_MEMORY)
            inbox = held.enter_context(closing(side.inbox(reader)))
            at.setdefault(inbox.mail.home, []).append(_Opening(number, inbox, inbox.mail.only))
        for broker, openings in at.items():
            yield from _open_at(broker, openings[0].mailbox.reader, openings)


def _open_at(broker: str, ledger: PieceReader[Any], openings: Sequence[_Opening]) -> Iterator[OpenedRows]:
    for index in range(ledger.end()):
        for number, ref in enumerate(ledger.record(index).entry.pieces):
            concerned = [one for one in openings if one.mailbox.recipient.concerns(ref)]
            if concerned:
                piece, known = ledger.piece_of(index, number), dict[int, bytes]()
                at = _positions(piece)
                for one in concerned:
                    yield from _rows(one.number, at, *one.inbox.prove(broker, piece, known))


def _positions(piece: Any) -> Ints:
    """Returns partition and `place` of all events of a piece."""
    found = piece.places(np.arange(len(piece)))
    return np.stack((found.partition, place(found.offset, found.row)), axis=1)


def _rows(number: int, positions: Ints, events: Sequence[int], unopened: int, why: str | None) -> Iterator[OpenedRows]:
    found = positions[np.asarray(events, np.int64)]
    for partition in np.unique(found[:, 0]).tolist():
        yield OpenedRows(number, partition, found[found[:, 0] == partition, 1].astype("<i8").tobytes())
    if unopened:
        yield OpenedRows(number, 0, b"", unopened, why)
