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

import sys
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

import pyarrow as pa
from pyspark import TaskContext
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
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow
from pyspark.sql.types import (
    BinaryType,
    StringType,
    StructType,
)

from sealcast.clients.publisher import Publisher
from sealcast.clients.subscriber import Subscriber
from sealcast.errors import Bug, Misuse
from sealcast.model.event import own_column
from sealcast.model.schema import Schema
from sealcast.pipeline.options import positive
from sealcast.pipeline.outbox import Outbox, StagedFrames
from sealcast.protections.port import client_side
from sealcast.protections.stays import Stays
from sealcast.trust.handles import EntityRealm
from sealcast.wire import handed

#: Ledger records in one micro-batch of a reader, unless told.
DEFAULT_MAX_RECORDS: Final = 64


@dataclass(frozen=True, slots=True)
class Client:
    """Who reads or writes what: names, which may travel in a plan. Keys stay in the entity's own file."""

    realm: str
    topic: str
    entity: str

    @classmethod
    def from_options(cls, options: Mapping[str, str]) -> Client:
        missing = [name for name in ("realm", "topic", "as") if not options.get(name)]
        if missing:
            raise Misuse(
                f'format("sealcast") needs the option{"s" if len(missing) > 1 else ""} {", ".join(missing)}',
                hint='.option("realm", DIR).option("topic", TOPIC).option("as", ENTITY)',
            )
        return cls(options["realm"], options["topic"], options["as"])


class SealcastSource(DataSource):
    """Options: `realm`, `topic`, `as`; for reading also `from` (start, end or a time) and `max_records_per_trigger`."""

    @classmethod
    def name(cls) -> str:
        return "sealcast"

    def schema(self) -> StructType:
        client = Client.from_options(self.options)
        return columns_of(EntityRealm(client.realm).state().topic(client.topic).schema)

    def reader(self, schema: StructType) -> DataSourceReader:
        return EventsBatch(Client.from_options(self.options), self.options.get("from", "start"))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        limit = positive(self.options, "max_records_per_trigger", DEFAULT_MAX_RECORDS)
        return EventsStream(Client.from_options(self.options), self.options.get("from", "start"), limit)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        return EventsBatchWriter(_checked(self.options, schema, overwrite))

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        return EventsStreamWriter(_checked(self.options, schema, overwrite))


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
    realm = EntityRealm(client.realm)
    return client_side(realm.state().topic(client.topic).protection).mail(realm, client.topic, client.entity)


def _open(client: Client, task: Records) -> Iterator[pa.RecordBatch]:
    with Subscriber(client.realm, client.topic, client.entity, from_="end") as subscriber:
        yield from subscriber.between(task.first, task.end)


# --- writing --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class PublishedFile(WriterCommitMessage):
    """What a task tells the driver: a file's name, digest and length, if it had anything to publish."""

    query: str
    task: int
    staged: StagedFrames | None


class EventsStreamWriter(DataSourceStreamArrowWriter):
    def __init__(self, client: Client) -> None:
        self._client = client

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        query = _task().getLocalProperty("sql.streaming.queryId")
        if query is None:
            raise Bug("a streaming task that does not know its query")
        return _seal(self._client, query, iterator)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        _publish(self._client, messages, batchId)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        _give_up(self._client, messages)


class EventsBatchWriter(DataSourceArrowWriter):
    """A batch job is a query of one batch, under a name that no other has."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._query = str(uuid.uuid4())

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        return _seal(self._client, self._query, iterator)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        _publish(self._client, messages, 0)
        _outbox(EntityRealm(self._client.realm), self._client.topic, self._query).forget()

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        _give_up(self._client, messages)


def _checked(options: Mapping[str, str], columns: StructType, overwrite: bool) -> Client:
    """Refuses at planning what no row could make right."""
    if overwrite:
        raise Misuse('what was published stays published: there is no overwriting, use mode("append")')
    client = Client.from_options(options)
    schema = EntityRealm(client.realm).state().topic(client.topic).schema
    payload, content_type = (own_column(name, schema.names) for name in ("payload", "content_type"))
    for field in columns.fields:
        name, kind = field.name, field.dataType
        if name in schema.by_name:
            continue
        if name == payload and isinstance(kind, BinaryType | StringType):
            continue
        if name == content_type and isinstance(kind, StringType):
            continue
        raise Misuse(
            f"column {name!r} ({kind.simpleString()}) is neither an attribute of topic {client.topic!r} "
            f"({', '.join(schema.names)}), nor {payload} (binary or string), nor {content_type} (string)",
            hint="select or rename columns before writing",
        )
    return client


def _task() -> TaskContext:
    task = TaskContext.get()
    if task is None:
        raise Bug("a writer outside of a task")
    return task


def _outbox(realm: EntityRealm, topic: str, query: str) -> Outbox:
    return Outbox(realm.paths.topic(topic).root / "outbox", query)


def _seal(client: Client, query: str, batches: Iterator[pa.RecordBatch]) -> PublishedFile:
    task = _task().partitionId()
    # A publisher of its own for each attempt of each task, so a boot of its own: no sequence number, and with it no
    # nonce, is ever used by two attempts.
    with Publisher(client.realm, client.topic, client.entity) as publisher:
        frames = (frame for batch in batches for frame in publisher.seal(batch))
        staged = _outbox(publisher.realm, client.topic, query).stage(task, frames)
    return PublishedFile(query, task, staged)


def _publish(client: Client, messages: Sequence[WriterCommitMessage | None], batch: int) -> None:
    sealed = sorted((m for m in messages if isinstance(m, PublishedFile)), key=lambda m: m.task)
    if len(sealed) != len(messages):
        raise Bug("Spark asks to commit a batch of which a task is missing")
    staged = [message.staged for message in sealed if message.staged is not None]
    if not staged:
        return
    with Publisher(client.realm, client.topic, client.entity) as publisher:
        outbox = _outbox(publisher.realm, client.topic, sealed[0].query)
        outbox.publish(batch, staged, publisher.log)
        waiting = publisher.flush()
    if waiting:
        told = f"{waiting} frames of topic {client.topic!r} wait in {publisher.realm.paths.root}: no gateway answers"
        sys.stderr.write(f"sealcast: {told}; they are sent before the next that is published\n")


def _give_up(client: Client, messages: Sequence[WriterCommitMessage | None]) -> None:
    realm = EntityRealm(client.realm)
    for query in {m.query for m in messages if isinstance(m, PublishedFile)}:
        _outbox(realm, client.topic, query).discard()
