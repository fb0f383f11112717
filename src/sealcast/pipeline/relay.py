"""A relay of a topic without brokers, on Spark: the routing test over Arrow batches of sealed events.

    events: (event)  ── mapInArrow ──>  (event, children, why)

The pairing library holds the interpreter's lock and hashing is Python's own, so that work is spread over processes, a
task for each core. A plan has the path of the relay's table in it, and no token.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa

from sealcast.errors import FrameRejected
from sealcast.protections.attribute.relay import RelayTable
from sealcast.wire.attribute import AttributeRejected, EventHeader
from sealcast.wire.carried import CarriedEvent

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

#: An event as it is carried, the children that get it, and what is wrong with it if nobody does for that.
ROUTED: Final = "event binary, children array<bigint>, why string"
_ARROW: Final = pa.schema([("event", pa.binary()), ("children", pa.list_(pa.int64())), ("why", pa.string())])


def routed(events: DataFrame, table: Path) -> DataFrame:
    """Carried events (a column `event`), with those of the relay's children that get each."""
    return events.select("event").mapInArrow(_routing(str(table)), ROUTED)


def _routing(table: str) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return (route(_table(table, Path(table).stat().st_mtime_ns), batch) for batch in batches)

    return run


def route(table: RelayTable, events: pa.RecordBatch) -> pa.RecordBatch:
    """The routing test of a batch. An event that is none goes to nobody, and is no reason to stop."""
    headers: list[EventHeader] = []
    why: list[str | None] = []
    for data in events.column("event").to_pylist():
        try:
            header, _ = EventHeader.read(CarriedEvent.from_bytes(data).message)
            headers.append(header)
            why.append(None)
        except (FrameRejected, AttributeRejected) as error:
            why.append(error.message)
    gets = np.zeros((len(why), table.children.size), np.bool_)
    gets[[reason is None for reason in why]] = table.routed(headers)
    rows, columns = np.nonzero(gets)
    offsets = np.searchsorted(rows, np.arange(len(why) + 1)).astype(np.int32)
    children = pa.ListArray.from_arrays(pa.array(offsets), pa.array(table.children[columns], pa.int64()))
    return pa.RecordBatch.from_arrays([events.column("event"), children, pa.array(why, pa.string())], schema=_ARROW)


@lru_cache(2)
def _table(path: str, written_ns: int) -> RelayTable:
    return RelayTable.read(Path(path))
