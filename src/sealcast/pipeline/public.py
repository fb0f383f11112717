"""`format("sealcast")` for Spark users: a subscriber's opened events to read, a publisher's events to write.

    spark.readStream.format("sealcast").option("realm", DIR).option("topic", T).option("as", SUBSCRIBER).load()
    df.write.format("sealcast").option("realm", DIR).option("topic", T).option("as", PUBLISHER).mode("append").save()

Streaming and batch, both ways. Reading gives `position`, `publisher`, `published_at`, `sequence`, the attributes of the
topic's schema as typed columns, `payload`, `content_type`; an attribute of one of these names keeps it, and the other
column gets an underscore. Writing takes the attributes' columns (a missing one is NULL), and `payload` and
`content_type` if they are there. Written events are published exactly once, also by a stream that is restarted.

This is a client that happens to run inside Spark: each worker reads the key file of the entity named by `as`, which
must be there. It is no part of the broker, and the broker does not import it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
    InputPartition,
)
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from sealcast.clients.subscriber import Subscriber
from sealcast.errors import Misuse
from sealcast.model.schema import Schema
from sealcast.pipeline.options import Client, positive, switch
from sealcast.pipeline.public_writing import EventsBatchWriter, EventsStreamWriter, checked
from sealcast.protections.port import client_side
from sealcast.protections.stays import Stays
from sealcast.wire import handed

#: Ledger records in one micro-batch of a reader, unless told.
DEFAULT_MAX_RECORDS: Final = 64


class SealcastSource(DataSource):
    """Options: `realm`, `topic`, `as`; for reading also `from` (start, end or a time) and `max_records_per_trigger`;
    for writing a stream also `takes_over` (`Outbox.begin`)."""

    @classmethod
    def name(cls) -> str:
        return "sealcast"

    def schema(self) -> StructType:
        client = Client.from_options(self.options)
        return columns_of(client.here().state().topic(client.topic).schema)

    def reader(self, schema: StructType) -> DataSourceReader:
        return EventsBatch(Client.from_options(self.options), self.options.get("from", "start"))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        limit = positive(self.options, "max_records_per_trigger", DEFAULT_MAX_RECORDS)
        return EventsStream(Client.from_options(self.options), self.options.get("from", "start"), limit)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        return EventsBatchWriter(checked(self.options, schema, overwrite))

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        client = checked(self.options, schema, overwrite)
        return EventsStreamWriter(client, takes_over=switch(self.options, "takes_over"))


def columns_of(schema: Schema) -> StructType:
    """What reading a topic gives."""
    return from_arrow_schema(handed.columns_of(schema))


# --- reading --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Records(InputPartition):
    """Records of the ledger: what one task opens."""

    first: int
    end: int


class _Reads:
    """What both readers do."""

    def __init__(self, client: Client, begin: str) -> None:
        self._client = client
        self._begin = begin

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, Records)
        return _open(self._client, partition)


class EventsStream(_Reads, DataSourceStreamReader, SupportsTriggerAvailableNow):
    """The place in the ledger is Spark's to keep, in the user's own checkpoint; the subscriber's cursor stays put."""

    def __init__(self, client: Client, begin: str, limit: int) -> None:
        super().__init__(client, begin)
        self._limit = limit
        self._target: int | None = None

    def initialOffset(self) -> dict[str, int]:
        return {"record": _locate(self._client, self._begin)}

    def getDefaultReadLimit(self) -> ReadLimit:
        return ReadMaxRows(self._limit)

    def prepareForTriggerAvailableNow(self) -> None:
        self._target = _ledger_end(self._client)

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:
        end = _ledger_end(self._client) if self._target is None else self._target
        if not isinstance(limit, ReadAllAvailable):
            end = min(end, start["record"] + self._limit)
        return {"record": max(start["record"], end)}

    def reportLatestOffset(self) -> dict[str, int]:
        return {"record": _ledger_end(self._client)}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[InputPartition]:
        return _tasks(start["record"], end["record"])


class EventsBatch(_Reads, DataSourceReader):
    """Everything up to now."""

    def partitions(self) -> list[InputPartition]:
        tasks = _tasks(_locate(self._client, self._begin), _ledger_end(self._client))
        return [*tasks] or [Records(0, 0)]


def _tasks(first: int, end: int) -> list[Records]:
    """A few records a task; a record is a whole micro-batch of the pipeline."""
    size = max(1, -(-(end - first) // 16))
    return [Records(at, min(at + size, end)) for at in range(first, end, size)]


def _ledger_end(client: Client) -> int:
    return _locate(client, "end")


def _locate(client: Client, begin: str) -> int:
    """The record of the ledger where a stream begins."""
    if begin == "start":
        return 0
    with _mail(client) as mail:
        if begin == "end":
            return mail.only.reader.end()
        try:
            moment = datetime.fromisoformat(begin)
        except ValueError:
            raise Misuse(f"option from is start, end or a time (RFC 3339), not {begin!r}") from None
        return mail.only.at_time(moment if moment.tzinfo else moment.replace(tzinfo=UTC)).entry


def _mail(client: Client) -> Stays[Any]:
    """At the broker that the subscriber is at. A stream's place is a place in one ledger."""
    realm = client.here()
    return client_side(realm.state().topic(client.topic).protection).mail(realm, client.topic, client.entity)


def _open(client: Client, task: Records) -> Iterator[pa.RecordBatch]:
    with Subscriber(client.here(), client.topic, client.entity, from_="end") as subscriber:
        yield from subscriber.between(task.first, task.end)
