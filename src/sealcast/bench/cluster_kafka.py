"""`kafka` and `latency` of suite `cluster`: the path over Kafka beside a plain Kafka -> Spark -> Kafka job.

`kafka`: events per second, from frames that are on Kafka until they are committed, as one batch job, beside as many
plain records that a batch job reads from Kafka and writes to Kafka, one by one (`cluster_plain`). Every event has one
delivery. Publishing and opening are not counted, and each job has handled as many events before.

`latency`: from `publish` until a follower has the event, opened and verified, beside the time from a plain record's
append until it can be read from the plain job's output. Both queries run all the time, and events go to them in turns.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from pyspark.sql import SparkSession

from sealcast.bench.carrier_servers import KafkaServer
from sealcast.bench.cluster_plain import PARTITIONS, PlainKafka, partition
from sealcast.bench.end_to_end_publish import SCHEMA, TOPIC, events
from sealcast.bench.report import BenchRow
from sealcast.clients.publisher import Publisher
from sealcast.clients.subscriber import Subscriber
from sealcast.errors import Bug, Unavailable
from sealcast.lab import scratch
from sealcast.log.carriers import CarrierAddress, Placement, connect
from sealcast.log.forwarded import publishers_for
from sealcast.pipeline.run import run_batch, start
from sealcast.pipeline.session import session
from sealcast.trust.deployment import Realm

EVENTS: Final = 200_000
QUICK_EVENTS: Final = 20_000
SINGLES: Final = 40
WARM_SINGLES: Final = 10
_PATIENCE_SECONDS: Final = 120.0
_LOOK_SECONDS: Final = 0.001
_READER: Final = "reader"
_IN, _OUT, _ONE_IN, _ONE_OUT = "plain.in", "plain.out", "plain.one.in", "plain.one.out"
_BYTES: Final = 300


def rows(count: int | None = None, *, quick: bool = False) -> Iterator[BenchRow]:
    """Events per second, and the share of the plain job's; then milliseconds, and how many times the plain job's."""
    number = count or (QUICK_EVENTS if quick else EVENTS)
    spark = session(app_name="sealcast bench", driver_memory="2g", clients=False)
    spark.dataSource.register(PlainKafka)
    with (
        scratch.realm(2 << 30) as realm,
        scratch.directory(2 << 30) as files,
        KafkaServer(files / "kafka") as server,
    ):
        address = server.start().address
        there = connect(CarrierAddress.parse(address), {})
        for name in (_IN, _OUT, _ONE_IN, _ONE_OUT):
            there.create(name, Placement(PARTITIONS))
        realm.add_carrier("kafka", address)
        realm.create_topic(TOPIC, SCHEMA, partitions=PARTITIONS, access="members")
        realm.move_topic(TOPIC, "kafka")
        publishers = publishers_for(PARTITIONS)
        realm.enrol_many([*publishers, _READER])
        realm.subscribe(TOPIC, _READER, "volume >= 0")
        yield _throughput(spark, realm, address, publishers, number)
        yield _latency(spark, realm, address, publishers[0], files)
        there.close()


def _throughput(spark: SparkSession, realm: Realm, address: str, publishers: list[str], count: int) -> BenchRow:
    each = count // PARTITIONS
    table, spent = events(each), dict[str, float]()
    for time_ in ("warm", "measured"):
        for name in publishers:
            with Publisher(realm, TOPIC, as_=name) as publisher:
                publisher.publish(table)
        began = time.perf_counter()
        done = run_batch(spark, realm.paths.root, TOPIC)
        spent[f"ours {time_}"] = time.perf_counter() - began
        if done.get("deliveries") != each * PARTITIONS:
            raise Bug(f"of {each * PARTITIONS} events, {done.get('deliveries')} were delivered")
    for turn, time_ in enumerate(("warm", "measured")):
        for number in range(PARTITIONS):
            partition(address, _IN, number).append([(b"", bytes(_BYTES))] * each)
        began = time.perf_counter()
        place = {"address": address}
        rows = spark.read.format(PlainKafka.name()).options(topic=_IN, begin=str(turn * each), **place).load()
        rows.write.format(PlainKafka.name()).options(topic=_OUT, **place).mode("append").save()
        spent[f"plain {time_}"] = time.perf_counter() - began
        written = sum(partition(address, _OUT, number).bounds()[1] for number in range(PARTITIONS))
        if written != (turn + 1) * each * PARTITIONS:
            raise Bug(f"the plain job wrote {written} records")
    mine, theirs = (each * PARTITIONS / spent[f"{who} measured"] for who in ("ours", "plain"))
    told = "a plain Kafka -> Spark -> Kafka job, a record per event and per delivery"
    return BenchRow("kafka", mine, theirs, told, mine / theirs, "events/s, one delivery each")


def _latency(spark: SparkSession, realm: Realm, address: str, publisher: str, files: Path) -> BenchRow:
    place, table = {"address": address}, events(WARM_SINGLES + SINGLES)
    rows = spark.readStream.format(PlainKafka.name()).options(topic=_ONE_IN, **place).load()
    writer = rows.writeStream.format(PlainKafka.name()).options(topic=_ONE_OUT, **place)
    query = writer.option("checkpointLocation", str(files / "checkpoint")).start()
    source, sink = partition(address, _ONE_IN, 0), partition(address, _ONE_OUT, 0)
    try:
        with (
            start(realm, [TOPIC], spark=spark),
            Publisher(realm, TOPIC, as_=publisher) as writing,
            Subscriber(realm, TOPIC, _READER, from_="end") as reading,
        ):

            def ours(number: int) -> None:
                writing.publish(table.slice(number, 1))
                if len(reading.poll(timeout=_PATIENCE_SECONDS)) != 1:
                    raise Unavailable("an event was not delivered within two minutes")

            def plain(number: int) -> None:
                wanted, deadline = sink.bounds()[1] + 1, time.monotonic() + _PATIENCE_SECONDS
                source.append([(b"", bytes(_BYTES))])
                while sink.bounds()[1] < wanted:
                    if time.monotonic() > deadline or not query.isActive:
                        raise Unavailable("the plain query did not commit within two minutes")
                    time.sleep(_LOOK_SECONDS)

            spent = [(_seconds(ours, n), _seconds(plain, n)) for n in range(WARM_SINGLES + SINGLES)]
    finally:
        query.stop()
    mine, theirs = (statistics.median(each) * 1e3 for each in zip(*spent[WARM_SINGLES:], strict=True))
    told = "the plain job, from the append until its output can be read"
    return BenchRow("latency", mine, theirs, told, mine / theirs, "ms, median of single events")


def _seconds(work: Callable[[int], None], number: int) -> float:
    began = time.perf_counter()
    work(number)
    return time.perf_counter() - began
