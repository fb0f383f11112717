"""A Kafka that is away: whoever asks hears so within the patience, and the same handles go on when it is back."""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterator

import pytest

from sealcast.bench.carrier_servers import KafkaServer
from sealcast.errors import Locked
from sealcast.log.carriers import CarrierAddress, CarrierAway, Placement
from sealcast.log.kafka import KafkaCarrier
from sealcast.log.kafka_partition import KafkaPartition

PATIENCE_S = 2.0
RECORD = (b"head", b"data")


@pytest.fixture
def carrier(kafka: KafkaServer) -> Iterator[KafkaCarrier]:
    with KafkaCarrier(CarrierAddress.parse(kafka.address), {}, PATIENCE_S) as connected:
        yield connected


@pytest.fixture
def partitions(carrier: KafkaCarrier) -> tuple[KafkaPartition, KafkaPartition]:
    """One that many append to, and one that has a writer."""
    names = [secrets.token_hex(6) for _ in range(2)]
    for name in names:
        carrier.create(name, Placement(1))
    shared, alone = (carrier.partition(name, 0) for name in names)
    return shared, alone


def test_one_that_is_killed_is_away_and_comes_back_to_the_same_handles(
    kafka: KafkaServer, carrier: KafkaCarrier, partitions: tuple[KafkaPartition, KafkaPartition]
) -> None:
    """librdkafka says of a Kafka that is away that it has no such partition. A run that believed it ended."""
    shared, alone = partitions
    alone.become_writer()
    assert shared.append([RECORD]) == alone.append_alone([RECORD])[0] == [0]
    before = carrier.shared_producer()
    kafka.kill()
    began = time.monotonic()
    for _ in range(2):
        for ask in (
            shared.bounds,
            lambda: list(shared.fetch(0, 1)),
            lambda: shared.append([RECORD]),
            alone.become_writer,
        ):
            with pytest.raises(CarrierAway):
                ask()
    assert time.monotonic() - began < 60
    with pytest.raises(Locked):
        alone.append_alone([RECORD])
    kafka.start()
    carrier.patience_s = 60
    assert _again(lambda: shared.append([RECORD]))[0] >= 1, "what nobody acknowledged may be there, too"
    assert carrier.shared_producer() is not before, "one that failed is not asked again"
    _again(alone.become_writer)
    alone.append_alone([RECORD])
    first, past = alone.bounds()
    assert len(list(alone.fetch(first, past))) == 2, "nothing of a writer that was not told so"


def test_a_topic_that_somebody_removed_is_named_with_what_may_be_the_matter(
    carrier: KafkaCarrier, partitions: tuple[KafkaPartition, KafkaPartition]
) -> None:
    name = partitions[0].shown.split("/")[-2]
    carrier.remove(name)
    with pytest.raises(CarrierAway, match=f"{name}/0 cannot be found") as refused:
        partitions[0].bounds()
    assert "somebody removed the topic" in (refused.value.hint or "")
    assert carrier.partitions(name) is None


def _again(work):  # type: ignore[no-untyped-def]
    """What a caller does who was told that a carrier is away."""
    end = time.monotonic() + 120
    while True:
        try:
            return work()
        except CarrierAway:
            if time.monotonic() >= end:
                raise
            time.sleep(0.1)
