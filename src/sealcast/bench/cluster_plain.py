"""A plain Kafka -> Spark -> Kafka job, to measure against: a row per event in, a row per delivery out, no protection.

It reads and writes by the same client, with the same acknowledgements, as a topic on a carrier does. It matches
nothing, keeps no state, and a row that Spark writes again is there twice.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import islice
from typing import Any, Final

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    DataSourceStreamArrowWriter,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
    InputPartition,
    WriterCommitMessage,
)
from pyspark.sql.streaming.datasource import ReadLimit
from pyspark.sql.types import StructType

from sealcast.log.carriers import Carrier, CarrierAddress, CarrierPartition, connect

PARTITIONS: Final = 2
_COLUMNS: Final = "partition INT, value BINARY"
_ARROW: Final = pa.schema([("partition", pa.int32()), ("value", pa.binary())])
_ROWS_AT_ONCE: Final = 4_096


@lru_cache
def _carrier(address: str) -> Carrier:
    """Once in a process: workers live longer than tasks."""
    return connect(CarrierAddress.parse(address), {})


@lru_cache
def partition(address: str, topic: str, number: int) -> CarrierPartition:
    """A partition of a plain topic, open for as long as the process lives."""
    return _carrier(address).partition(topic, number)


class PlainKafka(DataSource):
    """Options: `address`; `topic`, to read or to write."""

    @classmethod
    def name(cls) -> str:
        return "sealcast-bench-plain-kafka"

    def schema(self) -> str:
        return _COLUMNS

    def _place(self) -> tuple[str, str]:
        return self.options["address"], self.options["topic"]

    def reader(self, schema: StructType) -> DataSourceReader:
        return _Reader(self._place(), int(self.options.get("begin", 0)))

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        return _Writer(self._place())

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        return _StreamReader(self._place())

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        return _StreamWriter(self._place())


def _ends(place: tuple[str, str]) -> list[int]:
    return [partition(*place, number).bounds()[1] for number in range(PARTITIONS)]


def _read(place: tuple[str, str], number: int, first: int, end: int) -> Iterator[pa.RecordBatch]:
    stored = partition(*place, number).fetch(first, end)
    while some := [each.data for each in islice(stored, _ROWS_AT_ONCE)]:
        yield pa.RecordBatch.from_pydict({"partition": [number] * len(some), "value": some}, schema=_ARROW)


def _write(place: tuple[str, str], batches: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
    for batch in batches:
        numbers, values = batch.column(0).to_pylist(), batch.column(1).to_pylist()
        for number in set(numbers):
            some = [(b"", value) for at, value in zip(numbers, values, strict=True) if at == number]
            partition(*place, number).append(some)
    return WriterCommitMessage()


class _Reader(DataSourceReader):
    """All that is there from a position on, the same in each partition."""

    def __init__(self, place: tuple[str, str], begin: int) -> None:
        self._place, self._begin = place, begin

    def partitions(self) -> Sequence[InputPartition]:
        return [InputPartition((number, self._begin, end)) for number, end in enumerate(_ends(self._place))]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return _read(self._place, *partition.value)


class _Writer(DataSourceArrowWriter):
    def __init__(self, place: tuple[str, str]) -> None:
        self._place = place

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        return _write(self._place, iterator)


class _StreamReader(DataSourceStreamReader):
    def __init__(self, place: tuple[str, str]) -> None:
        self._place = place

    def initialOffset(self) -> dict[str, Any]:
        return {"ends": [0] * PARTITIONS}

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        return {"ends": _ends(self._place)}

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        spans = zip(start["ends"], end["ends"], strict=True)
        return [InputPartition((number, *span)) for number, span in enumerate(spans) if span[0] < span[1]]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return _read(self._place, *partition.value)


class _StreamWriter(DataSourceStreamArrowWriter):
    def __init__(self, place: tuple[str, str]) -> None:
        self._place = place

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        return _write(self._place, iterator)
