"""`end-to-end` of suite `end-to-end`: from a publisher's table to what readers opened, beside a job without protection.

Ours is the path as a user has it, on an `endpoint` topic: a publisher publishes a table, a pipeline that runs already
admits, matches, groups, seals and commits it, and every reader opens what is for it. Each of 20 readers has 50
subscriptions, and an event reaches two readers on average.

The reference is a plain streaming job in the same session that runs already, too: a table is written as Parquet, Spark
reads it, `mapInArrow` matches it against the same filters by the same index and copies each event for each reader, and
Spark writes one row per delivery as Parquet. `end-to-end-sealed-rows` is the same job, and in it each delivery is
sealed by AES-GCM under its reader's key: what one would write first, without signatures, replay defence, exactly-once
mailboxes or an audit.

CPU is that of all processes. All three have handled as many events before: nobody's start is counted.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from pyspark.sql import SparkSession

from sealcast.bench.end_to_end_publish import SCHEMA, TOPIC, events
from sealcast.bench.report import BenchRow, tree_by_kind
from sealcast.clients.intake import taken
from sealcast.clients.publisher import Publisher
from sealcast.clients.subscriber import Subscriber
from sealcast.errors import Bug, Unavailable
from sealcast.filters.check import fit
from sealcast.filters.index import Index
from sealcast.filters.parse import parse
from sealcast.lab import scratch
from sealcast.pipeline.queries import Pipeline
from sealcast.pipeline.run import start
from sealcast.pipeline.session import session
from sealcast.protections.steps import OpenStep, StepName
from sealcast.trust.deployment import Realm

EVENTS: Final = 200_000
#: As many before: what the JVM compiles on the way is start-up, too.
WARM_EVENTS: Final = EVENTS
READERS: Final = 20
FILTERS_EACH: Final = 50
_SYMBOLS: Final = 500
_PATIENCE_SECONDS: Final = 300.0
_LOOK_SECONDS: Final = 0.05

#: Where CPU time goes: the processes of this bench, its JVM, and the workers of Spark.
Parts = Mapping[str, float]


def rows(count: int = EVENTS, warm: int = WARM_EVENTS) -> Iterator[BenchRow]:
    """CPU microseconds per event, and how many times the reference."""
    spark = session(app_name="sealcast bench", driver_memory="2g", clients=False)
    warming, table = events(warm), events(count)
    texts = filters_of_readers()
    with scratch.realm(2 << 30) as realm, scratch.directory(1 << 30) as files:
        ours, opened = _ours(spark, realm, texts, warming, table)
        plain, written = _plain(spark, files / "plain", texts, warming, table, seal=False)
        sealed, _ = _plain(spark, files / "sealed", texts, warming, table, seal=True)
    if opened != written:
        raise Bug(f"{opened} deliveries were opened, and the plain job wrote {written}")
    told = {"end-to-end": (plain, "plain Spark with Arrow, a row per delivery, no protection")}
    told["end-to-end-sealed-rows"] = (sealed, "the same plain job, with AES-GCM for each delivery")
    mine = {part: seconds / count * 1e6 for part, seconds in ours.items()}
    for name, (parts, about) in told.items():
        theirs = {part: seconds / count * 1e6 for part, seconds in parts.items()}
        spent, reference = sum(mine.values()), sum(theirs.values())
        unit = f"CPU us per event, {opened / count:.2f} deliveries each"
        yield BenchRow(name, spent, reference, about, spent / reference, unit, mine, theirs)


def filters_of_readers() -> list[list[str]]:
    """Of each reader. A symbol is one in 500, and a reader asks for 50 of them."""
    random = np.random.default_rng(2)
    wanted = [random.choice(_SYMBOLS, FILTERS_EACH, replace=False).tolist() for _ in range(READERS)]
    return [[f"symbol = 'S{symbol}' AND volume >= 100" for symbol in symbols] for symbols in wanted]


@contextmanager
def _measured(into: dict[str, float], own: str) -> Iterator[None]:
    """CPU seconds of what happens within: this process's under one name, the others' under theirs."""
    before = tree_by_kind()
    yield
    for kind, seconds in tree_by_kind().items():
        name = own if kind == "own" else kind
        into[name] = into.get(name, 0.0) + seconds - before.get(kind, 0.0)


# --- ours ---------------------------------------------------------------------------------------------


def _ours(
    spark: SparkSession, realm: Realm, texts: list[list[str]], warming: pa.Table, table: pa.Table
) -> tuple[Parts, int]:
    names = [f"reader-{number}" for number in range(READERS)]
    realm.create_topic(TOPIC, SCHEMA, access="members")
    realm.enrol_many(["publisher", *names])
    wanted = [(name, text, None) for name, filters in zip(names, texts, strict=True) for text in filters]
    realm.subscribe_many(TOPIC, wanted)
    parts, step = dict[str, float](), StepName(str(realm.paths.root), TOPIC).open()
    with (
        start(realm, [TOPIC], spark=spark) as pipeline,
        Publisher(realm, TOPIC, as_="publisher") as publisher,
    ):
        publisher.publish(warming)
        _wait(pipeline, step)
        for name in names:
            with Subscriber(realm, TOPIC, name) as reader:
                _open_all(reader)
                reader.ack()
        with _measured(parts, "publish"):
            publisher.publish(table)
        with _measured(parts, "driver"):
            _wait(pipeline, step)
        opened = 0
        for name in names:
            with Subscriber(realm, TOPIC, name) as reader, _measured(parts, "open"):
                opened += _open_all(reader)
    return parts, opened


def _open_all(reader: Subscriber) -> int:
    opened = 0
    while found := reader.poll_arrow().num_rows:
        opened += found
    return opened


def _wait(pipeline: Pipeline, step: OpenStep) -> None:
    """Until the ledger has all frames that were published; raises why not."""
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while (done := step.committed().partitions) != (published := step.available()):
        if not pipeline.running:
            pipeline.wait()
        if time.monotonic() > deadline:
            raise Unavailable(f"of {published} frames, {done} were handled within {_PATIENCE_SECONDS:.0f} s")
        time.sleep(_LOOK_SECONDS)


# --- without protection -------------------------------------------------------------------------------


def _plain(
    spark: SparkSession, files: Path, texts: list[list[str]], warming: pa.Table, table: pa.Table, *, seal: bool
) -> tuple[Parts, int]:
    given, out = files / "given", files / "out"
    given.mkdir(parents=True)
    flat = tuple(text for filters in texts for text in filters)
    columns, parts = ", ".join(f"{name} {kind}" for name, kind in COLUMNS.items()), dict[str, float]()

    def delivered(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            yield deliver(flat, batch, seal)

    rows = spark.readStream.schema(columns).parquet(str(given)).mapInArrow(delivered, f"{columns}, reader INT")
    writer = rows.writeStream.format("parquet").option("checkpointLocation", str(files / "checkpoint"))
    query = writer.start(str(out))
    try:
        write(given, "warming", warming)
        query.processAllAvailable()
        before = _written(out)
        with _measured(parts, "publish"):
            write(given, "table", table)
        with _measured(parts, "driver"):
            query.processAllAvailable()
        return parts, _written(out) - before
    finally:
        query.stop()


#: As Spark reads them: physical columns, and the payload.
COLUMNS: Final = {"symbol": "STRING", "price": "BIGINT", "volume": "BIGINT", "at": "BIGINT", "payload": "BINARY"}


def write(directory: Path, name: str, table: pa.Table) -> None:
    """Checks and converts events as a publisher does, and writes them for Spark to find, in several files."""
    at = 0
    for number, (count, batch, _) in enumerate(taken(SCHEMA, table)):
        payloads = table["payload"].slice(at, count).combine_chunks()
        columns, hidden, at = (
            batch.columns.append_column("payload", payloads),
            directory / f".{name}-{number}",
            at + count,
        )
        pq.write_table(pa.Table.from_batches([columns]), hidden)
        os.rename(hidden, directory / f"{name}-{number}.parquet")


def _written(out: Path) -> int:
    return sum(pq.read_metadata(path).num_rows for path in out.glob("*.parquet"))


def deliver(texts: tuple[str, ...], batch: pa.RecordBatch, seal: bool) -> pa.RecordBatch:
    """A row for each delivery."""
    found, wanted = _index(texts).pairs(batch)
    deliveries = batch.take(pa.array(found))
    readers = (wanted // FILTERS_EACH).astype(np.int32)
    if seal:
        keys, at = _keys(), deliveries.schema.get_field_index("payload")
        payloads = zip(readers.tolist(), deliveries.column(at).to_pylist(), strict=True)
        # That the nonce repeats is the benchmark's privilege.
        closed = pa.array([keys[reader].encrypt(bytes(12), payload, None) for reader, payload in payloads], pa.binary())
        deliveries = deliveries.set_column(at, "payload", closed)
    return deliveries.append_column("reader", pa.array(readers))


@lru_cache(1)
def _index(texts: tuple[str, ...]) -> Index:
    return Index.build([fit(parse(text), SCHEMA) for text in texts], SCHEMA)


@lru_cache(1)
def _keys() -> list[AESGCM]:
    return [AESGCM(os.urandom(32)) for _ in range(READERS)]
