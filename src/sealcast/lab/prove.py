"""Opening to prove: every subscriber opens what it was sent, with its own keys and nobody else's, as a Spark job.

A worker gets the names of some subscribers. Of each it loads that entity's own key file, and unwraps the key of every
event that was delivered to it. A body is opened, hashed up to its frame's root and checked against the publisher's
signature once by each worker; that a second subscriber unwraps the very same content key proves that it opens the very
same event, since a body is committed to its key.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from sealcast.errors import CannotOpen
from sealcast.log.piece_reader import PieceReader, sealed_reader
from sealcast.pipeline.failures import explain
from sealcast.primitives.secrets import KEY_BYTES
from sealcast.primitives.sign import VerifyKey
from sealcast.protections.endpoint.open import Opener
from sealcast.trust.deployment import Realm
from sealcast.trust.realm.machine import RealmState
from sealcast.wire.sealed import SealedPiece

#: Chunks of subscribers per core: each reads every piece and opens every body once, so more would only cost.
CHUNKS_PER_CORE: Final = 1
Ints = NDArray[np.int64]
_ROWS: Final = 1 << 16

#: A row for each subscriber and piece: where the events that it opened stand, packed as `place` does; why the first
#: one did not open, if one did not.
OPENED: Final = pa.schema(
    [
        pa.field("slot", pa.int32(), nullable=False),
        pa.field("partition", pa.int32(), nullable=False),
        pa.field("places", pa.binary(), nullable=False),
        pa.field("unopened", pa.int64(), nullable=False),
        pa.field("why", pa.string()),
    ]
)
_DDL: Final = "slot INT NOT NULL, partition INT NOT NULL, places BINARY NOT NULL, unopened BIGINT NOT NULL, why STRING"


@dataclass(frozen=True, slots=True)
class Opened:
    """Every delivery that was opened: the event at (partition, place), by the subscriber at `slot`."""

    slot: NDArray[np.int64]
    partition: NDArray[np.int64]
    place: NDArray[np.int64]
    unopened: int
    why: str | None


def place(offset: NDArray[np.int64] | int, row: NDArray[np.int64] | int) -> NDArray[np.int64]:
    """Offset and row of a position in one number: offsets have 40 bits, rows 16."""
    return np.asarray(offset, np.int64) * _ROWS + np.asarray(row, np.int64)


def open_all(spark: SparkSession, realm: str, topic: str, subscribers: int) -> Opened:
    """What each of the topic's first `subscribers` slots opens of everything that was delivered."""
    chunks = max(1, min(subscribers, CHUNKS_PER_CORE * spark.sparkContext.defaultParallelism))
    job = spark.range(0, chunks, 1, chunks).mapInArrow(_opening(realm, topic, subscribers, chunks), _DDL)
    try:
        rows = job.toArrow()
    except PySparkException as failure:
        raise explain(failure) from failure
    packed = [np.frombuffer(raw, "<i8") for raw in rows.column("places").to_pylist()]
    lengths = [len(places) for places in packed]
    return Opened(
        slot=np.repeat(rows.column("slot").to_numpy().astype(np.int64), lengths),
        partition=np.repeat(rows.column("partition").to_numpy().astype(np.int64), lengths),
        place=np.concatenate(packed) if packed else np.empty(0, np.int64),
        unopened=int(rows.column("unopened").to_numpy().sum()) if rows.num_rows else 0,
        why=next((why for why in rows.column("why").to_pylist() if why is not None), None),
    )


def _opening(
    realm: str, topic: str, subscribers: int, chunks: int
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """What is captured is names and numbers."""

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for chunk in batch.column("id").to_pylist():
                slots = range(subscribers * chunk // chunks, subscribers * (chunk + 1) // chunks)
                yield from _open_chunk(_topic(realm, topic, os.getpid()), slots)

    return run


@dataclass(frozen=True, slots=True)
class _Topic:
    realm: Realm
    state: RealmState
    name: str
    reader: PieceReader[SealedPiece]
    names: Sequence[str]


@lru_cache(1)
def _topic(realm: str, topic: str, process: int) -> _Topic:
    here = Realm(Path(realm))
    state = here.state()
    return _Topic(here, state, topic, sealed_reader(here.paths.topic(topic).root), list(state.slots_of(topic)))


def _open_chunk(topic: _Topic, slots: range) -> Iterator[pa.RecordBatch]:
    opener = lru_cache(None)(lambda slot: _opener(topic, slot))
    for committed in map(topic.reader.record, range(topic.reader.ledger.end())):
        for ref in committed.entry.pieces:
            piece = topic.reader.piece(ref)
            proven = _Proven(len(piece))
            rows = [_open_rows(piece, slot, opener(slot), proven) for slot in slots if ref.concerns(slot)]
            if rows:
                yield pa.RecordBatch.from_pylist(rows, schema=OPENED)


def _opener(topic: _Topic, slot: int) -> Opener:
    name = topic.names[slot]
    about = topic.state.topic(topic.name)
    pair = topic.realm.identity(name).pair_key(topic.state, topic.name)
    bits = about.parameters.key_bits
    return Opener(about.schema, about.id, about.epoch, slot, pair, lambda who: _verify_key(topic.state, who), bits)


def _verify_key(state: RealmState, publisher: str) -> VerifyKey:
    return VerifyKey(state.entity(publisher).verify_key)


class _Proven:
    """The content keys under which events of a piece were opened in this worker."""

    def __init__(self, events: int) -> None:
        self._keys = np.zeros((events, KEY_BYTES), np.uint8)

    def by(self, events: Ints, keys: NDArray[np.uint8]) -> NDArray[np.bool_]:
        """Which of the events these keys are known to open. Zeros are no key, and prove nothing."""
        same: NDArray[np.bool_] = (self._keys[events] == keys).all(axis=1)
        return same & keys.any(axis=1)

    def add(self, event: int, key: NDArray[np.uint8]) -> None:
        self._keys[event] = key


def _open_rows(piece: SealedPiece, slot: int, opener: Opener, proven: _Proven) -> dict[str, object]:
    """One subscriber's mailbox in one piece: its own key unwraps everything, bodies are opened where that is news."""
    events, uses = (np.asarray(array, np.int64) for array in piece.rows_for(slot))
    try:
        keys = opener.content_keys(piece, events, uses)
    except CannotOpen as error:
        return _row(piece, slot, events[:0], events.size, error.message)
    opened, why = proven.by(events, keys), None
    for at in np.flatnonzero(~opened).tolist():
        try:
            opener.open(piece, int(events[at]), int(uses[at]))
        except CannotOpen as error:
            why = why or error.message
        else:
            opened[at] = True
            proven.add(int(events[at]), keys[at])
    return _row(piece, slot, events[opened], int(np.count_nonzero(~opened)), why)


def _row(piece: SealedPiece, slot: int, events: Ints, unopened: int, why: str | None) -> dict[str, object]:
    offsets = np.array([proof.offset for proof in piece.frames], np.int64)[piece.frame_index[events]]
    places = place(offsets, piece.row[events]).astype("<i8").tobytes()
    return {"slot": slot, "partition": piece.partition, "places": places, "unopened": unopened, "why": why}
