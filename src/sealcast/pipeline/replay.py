"""replay: CLAIMS -> RULINGS. The windows of a topic's publishers as Spark state, a few dozen buckets (decision 8).

    claims --groupBy(bucket)--> transformWithState --by task--> rulings

A bucket's windows are one packed value (broker/replay.py) in Spark's state store, which keeps a version of it for every
batch: a batch that is run again after a crash finds what the one before it left, and decides the same. They name
hashes of publishers and numbers, no keys, and carry a MAC of the broker's, because Spark believes whatever it finds in
its checkpoint.

A checkpoint can be lost or dropped, and what was delivered must not be delivered again for that. So a new one begins
with windows that are worked out from the frames themselves (`History`), which the ledger says were accepted. The state
is a function of those, so they are the same windows.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

from sealcast.broker.columns import PINNED, REFUSED, RULINGS, SEEDS, ddl
from sealcast.broker.replay import BUCKETS, CLAIM, Windows
from sealcast.broker.rulings import rule
from sealcast.errors import Corrupt
from sealcast.primitives import mac
from sealcast.primitives.secrets import Secret
from sealcast.protections.frame_steps import FramesStep
from sealcast.protections.steps import StepName

if TYPE_CHECKING:
    from pyspark.sql.streaming.stateful_processor import TimerValues

_CONTEXT: Final = b"sealcast replay windows 1"
_STATE: Final = "windows BINARY"


def ruled(claims: DataFrame, name: StepName, seeds: DataFrame | None, tasks: int) -> DataFrame:
    """Claims -> rulings, each where the task that handles its frame will find it."""
    decided = claims.groupBy("bucket").transformWithState(
        Replay(name),
        ddl(RULINGS),
        outputMode="Append",
        timeMode="None",
        initialState=None if seeds is None else seeds.groupBy("bucket"),
    )
    return decided.repartitionById(tasks, "task")


def ruled_once(claims: DataFrame, name: StepName, seeds: DataFrame | None, tasks: int) -> DataFrame:
    """The same for a batch job, which leaves no state behind: windows are what it begins with, and nobody keeps
    them. A state store for each partition, and a process that serves it, would be made for nothing."""

    def decide(claims: pa.Table, stored: list[bytes]) -> pa.Table:
        given = claims.to_pylist()
        decided = _decide(name, given, stored[0] if stored else None)[0] if given else []
        return pa.Table.from_pylist(decided, schema=RULINGS)

    def alone(claims: pa.Table) -> pa.Table:
        return decide(claims, [])

    def after(claims: pa.Table, begin: pa.Table) -> pa.Table:
        return decide(claims, begin.column("windows").to_pylist())

    grouped = claims.groupBy("bucket")
    if seeds is None:
        decided = grouped.applyInArrow(alone, ddl(RULINGS))
    else:
        decided = grouped.cogroup(seeds.groupBy("bucket")).applyInArrow(after, ddl(RULINGS))
    return decided.repartitionById(tasks, "task")


def _decide(name: StepName, given: Sequence[Any], stored: bytes | None) -> tuple[list[dict[str, Any]], bytes | None]:
    """Rows of RULINGS on all claims of a batch on one bucket, and its windows afterwards, sealed; None where they are
    empty."""
    bucket = int(given[0]["bucket"])
    if bucket == REFUSED:
        return [_row(row, bytes(row["claims"])) for row in given if not row["again"]], stored
    step = FramesStep.of(name)
    bounds = step.gate(given[0]["version"]).bounds
    opened = b"" if stored is None else _opened(step.journal_key, bucket, stored)
    windows = Windows(bounds) if stored is None else Windows.unpack(opened, bounds)
    parts = [np.frombuffer(row["claims"], CLAIM) for row in given]
    rulings = rule(windows, np.concatenate(parts), given[0]["settled"])
    ends = np.cumsum([part.size for part in parts])
    pairs = zip(given, np.split(rulings, ends[:-1]), strict=True)
    decided = [_row(row, part.tobytes()) for row, part in pairs if part.size and not row["again"]]
    return decided, _sealed(step.journal_key, bucket, windows) if len(windows) else None


def seeds(spark: SparkSession, step: FramesStep, windows: Windows | None) -> DataFrame | None:
    """What the state of a new query begins with; None when that is nothing. Spark reads it for the first batch alone,
    and yet has tasks that bring it in every micro-batch, as many as those of the state itself."""
    key = step.journal_key
    packed = [] if windows is None else windows.split(BUCKETS)
    rows = [(bucket, bytearray(_sealed(key, bucket, part))) for bucket, part in enumerate(packed) if len(part)]
    return spark.createDataFrame(rows, ddl(SEEDS)) if rows else None


class Replay(StatefulProcessor):
    """One bucket at a time. Only names travel with it; the key of the state is read where it is used."""

    def __init__(self, name: StepName) -> None:
        self._name = name

    def init(self, handle: StatefulProcessorHandle) -> None:
        # Spark also calls this in a process of its own on the driver, and says of whatever goes wrong there that it
        # crashed: nothing that can go wrong belongs here.
        self._state = handle.getValueState("windows", _STATE)

    def handleInitialState(self, key: Any, initialState: Row, timerValues: TimerValues) -> None:
        self._state.update((bytes(initialState.windows),))

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: TimerValues) -> Iterator[Row]:
        given, found = list(rows), None if int(key[0]) == REFUSED else self._state.get()
        decided, windows = _decide(self._name, given, None if found is None else bytes(found[0]))
        if int(key[0]) != REFUSED:
            self._save(windows)
        return (Row(**row) for row in decided)

    def close(self) -> None:
        pass

    def _save(self, windows: bytes | None) -> None:
        if windows is not None:
            self._state.update((windows,))
        elif self._state.exists():
            self._state.clear()


def _row(about: Any, rulings: bytes) -> dict[str, Any]:
    return {"task": about["task"], **{name: about[name] for name in PINNED}, "rulings": rulings}


def _sealed(key: Secret, bucket: int, windows: Windows) -> bytes:
    packed = windows.pack()
    return mac.tag(key, _CONTEXT, bucket.to_bytes(4, "big"), packed) + packed


def _opened(key: Secret, bucket: int, stored: bytes) -> bytes:
    tag, packed = stored[: mac.TAG_BYTES], stored[mac.TAG_BYTES :]
    if not mac.verify(key, tag, _CONTEXT, bucket.to_bytes(4, "big"), packed):
        raise Corrupt(
            "the replay windows in Spark's checkpoint were altered: their tag is not ours",
            hint="remove the checkpoint; a new one goes on where the ledger ends",
        )
    return packed
