"""What the plain Kafka job of suite `cluster` reads and writes, without Spark; the rows themselves start a cluster."""

from __future__ import annotations

import secrets
from contextlib import closing

import pyarrow as pa
import pytest

from sealcast.bench import cluster_plain
from sealcast.bench.carrier_servers import KafkaServer
from sealcast.bench.cluster_plain import PARTITIONS, PlainKafka
from sealcast.bench.suites import QUICK, SUITES
from sealcast.log.carriers import CarrierAddress, Placement, connect
from sealcast.log.forwarded import partition_of, publishers_for
from tests.log.conftest import kafka

__all__ = ["kafka"]


def test_the_suite_knows_small_sizes_and_uses_every_partition() -> None:
    assert set(SUITES["cluster"]) <= QUICK
    publishers = publishers_for(PARTITIONS)
    assert [partition_of(name, PARTITIONS) for name in publishers] == [*range(PARTITIONS)]


@pytest.mark.soak
def test_the_plain_job_reads_every_record_and_writes_each_of_them(kafka: KafkaServer) -> None:
    given, out = secrets.token_hex(6), secrets.token_hex(6)
    with closing(connect(CarrierAddress.parse(kafka.address), {})) as there:
        for name in (given, out):
            there.create(name, Placement(PARTITIONS))
    records = [b"%d" % n for n in range(5_000)]
    for number in range(PARTITIONS):
        cluster_plain.partition(kafka.address, given, number).append([(b"", data) for data in records])
    reader = PlainKafka({"address": kafka.address, "topic": given, "begin": "10"}).reader(None)  # type: ignore[arg-type]
    batches = [batch for each in reader.partitions() for batch in reader.read(each)]
    writer = PlainKafka({"address": kafka.address, "topic": out}).writer(None, False)  # type: ignore[arg-type]
    writer.write(iter(batches))  # type: ignore[arg-type]
    assert pa.Table.from_batches(batches).num_rows == PARTITIONS * (len(records) - 10)
    for number in range(PARTITIONS):
        written = cluster_plain.partition(kafka.address, out, number)
        assert [stored.data for stored in written.fetch(*written.bounds())] == records[10:]
