"""The writing half of `format("sealcast")`: tasks seal a publisher's events, and when all of them are done the driver
publishes them, exactly once (`outbox`)."""

from __future__ import annotations

import sys
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import BinaryType, StringType, StructType

from sealcast.clients.publisher import Publisher
from sealcast.errors import Bug, Misuse
from sealcast.model.event import own_column
from sealcast.pipeline.options import Client
from sealcast.pipeline.outbox import Outbox, StagedFrames, hand_over, has_mark, leave_mark, remove_mark


@dataclass(frozen=True)
class TaskFrames(WriterCommitMessage):
    """What a task tells the driver: a file's name, digest and length, if it had anything to publish; or the frames
    themselves, where the driver does not see the task's disk."""

    query: str
    task: int
    staged: StagedFrames | None = None
    handed: tuple[bytes, ...] = ()


class _Writes:
    """What both writers do."""

    def __init__(self, client: Client) -> None:
        self._client = client
        #: Left where the driver stages, and looked for by tasks.
        self._mark = leave_mark(client.outbox)


class EventsStreamWriter(_Writes, DataSourceStreamArrowWriter):
    def __init__(self, client: Client, *, takes_over: bool = False) -> None:
        super().__init__(client)
        self._takes_over = takes_over

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        query = _task().getLocalProperty("sql.streaming.queryId")
        if query is None:
            raise Bug("a streaming task that does not know its query")
        return _seal(self._client, query, self._mark, iterator)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        sealed = _of_all(messages)
        if sealed:
            Outbox(self._client.outbox, sealed[0].query).begin(batchId, self._takes_over)
        _publish(self._client, sealed, batchId)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        _give_up(self._client, messages)


class EventsBatchWriter(_Writes, DataSourceArrowWriter):
    """A batch job is a query of one batch, under a name that no other has."""

    def __init__(self, client: Client) -> None:
        super().__init__(client)
        self._query = str(uuid.uuid4())

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        return _seal(self._client, self._query, self._mark, iterator)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        _publish(self._client, _of_all(messages), 0)
        Outbox(self._client.outbox, self._query).forget()
        remove_mark(self._client.outbox, self._mark)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        _give_up(self._client, messages)
        remove_mark(self._client.outbox, self._mark)


def checked(options: Mapping[str, str], columns: StructType, overwrite: bool) -> Client:
    """Refuses at planning what no row could make right."""
    if overwrite:
        raise Misuse('what was published stays published: there is no overwriting, use mode("append")')
    client = Client.from_options(options)
    schema = client.here().state().topic(client.topic).schema
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


def _seal(client: Client, query: str, mark: str, batches: Iterator[pa.RecordBatch]) -> TaskFrames:
    task = _task().partitionId()
    # A publisher of its own for each attempt of each task, so a boot of its own: no sequence number, and with it no
    # nonce, is ever used by two attempts.
    with Publisher(client.here(), client.topic, client.entity) as publisher:
        frames = (frame for batch in batches for frame in publisher.seal(batch))
        if has_mark(client.outbox, mark):
            staged = Outbox(client.outbox, query).stage(task, frames)
            return TaskFrames(query, task, staged)
        return TaskFrames(query, task, handed=hand_over(frames))


def _of_all(messages: Sequence[WriterCommitMessage | None]) -> list[TaskFrames]:
    """What tasks sealed, in their order."""
    sealed = sorted((m for m in messages if isinstance(m, TaskFrames)), key=lambda m: m.task)
    if len(sealed) != len(messages):
        raise Bug("Spark asks to commit a batch of which a task is missing")
    return sealed


def _publish(client: Client, sealed: Sequence[TaskFrames], batch: int) -> None:
    if not any(message.staged or message.handed for message in sealed):
        return
    with Publisher(client.here(), client.topic, client.entity) as publisher:
        outbox = Outbox(client.outbox, sealed[0].query)
        staged = (message.staged or outbox.stage(message.task, message.handed) for message in sealed)
        outbox.publish(batch, [each for each in staged if each is not None], publisher.log)
        waiting = publisher.flush()
    if waiting:
        told = f"{waiting} frames of topic {client.topic!r} wait in {publisher.realm.paths.root}: no gateway answers"
        sys.stderr.write(f"sealcast: {told}; they are sent before the next that is published\n")


def _give_up(client: Client, messages: Sequence[WriterCommitMessage | None]) -> None:
    for query in {m.query for m in messages if isinstance(m, TaskFrames)}:
        Outbox(client.outbox, query).discard()
