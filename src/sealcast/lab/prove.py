"""Opening to prove: every subscriber opens what it was sent, with its own keys and nobody else's, as a Spark job.

A worker gets the names of some subscribers. Of each it makes the inbox that the subscriber itself would read, from that
entity's own key file, and opens all that is in it. Piece by piece, so that each is read and verified once for all of
them. Where it proves the same, a body is opened once by each worker: that a second subscriber comes by the very same
key proves that it opens the very same event, since a body is committed to its key (`Inbox.prove`).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from sealcast.log.mailbox import Mailbox
from sealcast.log.piece_reader import PieceReader
from sealcast.pipeline.failures import explain
from sealcast.protections.port import DEFAULT_KEY_MEMORY, Inbox, Reader, client_side
from sealcast.trust.handles import EntityRealm
from sealcast.trust.realm.state import RealmState

#: Inboxes that a worker has open at a time: each group of them reads every piece, so that fewer would only cost.
INBOXES: Final = 512
Ints = NDArray[np.int64]
_ROWS: Final = 1 << 16

#: A row for each subscriber, piece and partition: where the events that it opened stand, packed as `place` does. And a
#: row for each subscriber and piece of which not everything opened: how much, and why the first did not.
OPENED: Final = pa.schema(
    [
        pa.field("subscriber", pa.int32(), nullable=False),
        pa.field("partition", pa.int32(), nullable=False),
        pa.field("places", pa.binary(), nullable=False),
        pa.field("unopened", pa.int64(), nullable=False),
        pa.field("why", pa.string()),
    ]
)
_DDL: Final = (
    "subscriber INT NOT NULL, partition INT NOT NULL, places BINARY NOT NULL, unopened BIGINT NOT NULL, why STRING"
)


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
    job = spark.range(0, tasks, 1, tasks).mapInArrow(_opening(realm, topic, subscribers, tasks), _DDL)
    try:
        return opened(job.toArrow())
    except PySparkException as failure:
        raise explain(failure) from failure


def opened(rows: pa.Table) -> OpenedSample:
    """What rows of `OPENED` say."""
    packed = [np.frombuffer(raw, "<i8") for raw in rows.column("places").to_pylist()]
    lengths = [len(places) for places in packed]
    return OpenedSample(
        subscriber=np.repeat(rows.column("subscriber").to_numpy().astype(np.int64), lengths),
        partition=np.repeat(rows.column("partition").to_numpy().astype(np.int64), lengths),
        place=np.concatenate(packed) if packed else np.empty(0, np.int64),
        unopened=int(rows.column("unopened").to_numpy().sum()) if rows.num_rows else 0,
        why=next((why for why in rows.column("why").to_pylist() if why is not None), None),
    )


def _opening(
    realm: str, topic: str, subscribers: Sequence[str], tasks: int
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """What is captured is names and numbers."""

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for task in batch.column("id").to_pylist():
                # In turn: those who stand next to each other may want much, or little.
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


def open_some(realm: EntityRealm, topic: str, subscribers: dict[int, str]) -> Iterator[pa.RecordBatch]:
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


def _open_at(broker: str, ledger: PieceReader[Any], openings: Sequence[_Opening]) -> Iterator[pa.RecordBatch]:
    for index in range(ledger.end()):
        for number, ref in enumerate(ledger.record(index).entry.pieces):
            concerned = [one for one in openings if one.mailbox.recipient.concerns(ref)]
            if concerned:
                piece, known = ledger.piece_of(index, number), dict[int, bytes]()
                at = _positions(piece)
                rows = [
                    row for one in concerned for row in _rows(one.number, at, *one.inbox.prove(broker, piece, known))
                ]
                yield pa.RecordBatch.from_pylist(rows, schema=OPENED)


def _positions(piece: Any) -> Ints:
    """Of all events of a piece: partition and `place`."""
    positions = (piece.position(event) for event in range(len(piece)))
    found = np.array([(at.partition, at.offset, at.row) for at in positions], np.int64).reshape(-1, 3)
    return np.stack((found[:, 0], place(found[:, 1], found[:, 2])), axis=1)


def _rows(
    number: int, positions: Ints, events: Sequence[int], unopened: int, why: str | None
) -> Iterator[dict[str, object]]:
    found = positions[np.asarray(events, np.int64)]
    for partition in np.unique(found[:, 0]).tolist():
        places = found[found[:, 0] == partition, 1].astype("<i8").tobytes()
        yield {"subscriber": number, "partition": partition, "places": places, "unopened": 0, "why": None}
    if unopened:
        yield {"subscriber": number, "partition": 0, "places": b"", "unopened": unopened, "why": why}
