"""How often a carrier is asked: each question is a round trip, and a commit that asks a dozen times is late by them."""

from __future__ import annotations

import secrets
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from sealcast.bench.carrier_servers import KafkaServer
from sealcast.log import kafka_waiting
from sealcast.log.carried import NUMBERED, RecordHead
from sealcast.log.carried_journal import CarriedJournal
from sealcast.log.carried_pieces import SMALL_BYTES
from sealcast.log.carriers import CarrierAddress, Placement, Stored, connect
from sealcast.log.entry import Entry
from sealcast.log.kafka import KafkaCarrier
from sealcast.log.kafka_partition import KafkaPartition
from sealcast.log.ledger import Ledger, LedgerReader
from sealcast.log.offsets import PinnedOffset
from sealcast.primitives.secrets import Secret

KEY = Secret(bytes(32))


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Questions so far, by kind."""
    counted, appending = Counter[str](), [0]
    for name in ("bounds", "_some", "become_writer", "append_alone"):
        honest = getattr(KafkaPartition, name)

        def counting(self, *given, _name=name, _honest=honest):  # type: ignore[no-untyped-def]
            counted[_name] += not appending[0]  # an append waits until readers see it, however often that is asked
            appending[0] += _name == "append_alone"
            try:
                return _honest(self, *given)
            finally:
                appending[0] -= _name == "append_alone"

        monkeypatch.setattr(KafkaPartition, name, counting)
    return counted


@pytest.fixture
def journal(kafka: KafkaServer) -> Iterator[CarriedJournal]:
    carrier = connect(CarrierAddress.parse(kafka.address), {})
    made = CarriedJournal(carrier, secrets.token_hex(6), 1)
    made.create(Placement(1))
    yield made
    carrier.close()


def batch(number: int) -> Entry:
    at = PinnedOffset((0,), 1, 1)
    return Entry("q", number, at if number else PinnedOffset.initial(1), at, (), {})


def test_a_writer_asks_nobody_where_its_ledger_ends(
    journal: CarriedJournal, asked: Counter[str], tmp_path: Path
) -> None:
    ledger = Ledger(tmp_path / "ledger", KEY, journal)
    with ledger.exclusive() as term:
        ledger.commit(batch(0), term)
        for number in range(1, 4):
            asked.clear()
            assert ledger.commit(batch(number), term, ledger.newest())
            assert +asked == {"append_alone": 1}, "the writer knows where it ends"
        assert ledger.verify() == 4


def test_a_record_that_was_read_is_asked_for_no_more(journal: CarriedJournal, asked: Counter[str]) -> None:
    log = journal.log("ledger")
    log.fence()
    log.append([b"one", b"two", b"three"])
    with LedgerReader(journal) as reader:
        seen = reader._reading()
        assert seen is not None and seen.end() == 3
        asked.clear()
        assert [record.data for record in seen.read(0, 3)] == [b"one", b"two", b"three"]
        assert [record.data for record in seen.read(1, 2)] == [b"two"]
        assert +asked == {}
        log.append([b"four"])
        assert seen.end() == 4, "and what is new is seen"


def test_whoever_waits_is_told_what_came(journal: CarriedJournal, asked: Counter[str]) -> None:
    log = journal.writer("ledger")
    log.fence()
    log.append([b"one"])
    with LedgerReader(journal) as reader:
        seen = reader._reading()
        assert seen is not None and seen.end() == 1
        assert journal.wait(1, 0.3) == 1, "nothing came"
        late = threading.Timer(0.3, log.append, [[b"two"]])
        late.start()
        assert journal.wait(1, 30.0) == 2
        late.join()
        asked.clear()
        assert [record.data for record in seen.read(1, 2)] == [b"two"]
        assert +asked == {}, "what came was handed on"
        assert seen.end() == 2, "and it is what a look finds"


def test_places_of_pieces_are_known_before_anybody_asks(journal: CarriedJournal, asked: Counter[str]) -> None:
    staging = CarriedJournal(journal._carrier, journal._name, 1).pieces
    journal.pieces.hear()
    made = [b"piece %d" % first * (SMALL_BYTES if first else 1) for first in range(3)]
    names = [staging.stage(0, first, first + 1, data).name for first, data in enumerate(made)]
    until = time.monotonic() + 30
    while time.monotonic() < until and set(names) - set(journal.pieces._known):
        journal.pieces.hear()
        time.sleep(0.01)
    asked.clear()
    assert journal.pieces.bytes_of(names[0]) == made[0]
    assert +asked == {}, "a small piece has come with its place"
    assert [journal.pieces.bytes_of(name) for name in names] == made
    assert asked["bounds"] == 0, "only the pieces themselves are fetched"


@pytest.mark.parametrize("number", [0, 1, 3])
def test_what_does_not_follow_is_left_for_the_next_look(journal: CarriedJournal, number: int) -> None:
    log = journal.log("ledger")
    log.fence()
    log.append([b"one", b"two"])
    position = log._tail.position
    forged = Stored(position, RecordHead(NUMBERED, 1, number).sealed(b"forged"), b"forged")
    log.came([forged])
    assert log.known_end == 2 and [record.data for record in log.read(0)] == [b"one", b"two"]


def test_a_consumer_asks_for_nothing_while_nobody_reads(journal: CarriedJournal) -> None:
    """It asked for what comes next fifty times in a second, and the next question waited for that answer."""
    log = journal.log("ledger")
    log.fence()
    log.append([b"one"])
    partition = log._partition
    assert isinstance(partition, KafkaPartition)
    assert list(partition.fetch(*partition.bounds()))
    assert partition._consumer is not None and partition._consumer.assignment() == []
    some = partition.fetch(*partition.bounds())
    next(some)
    some.close()  # type: ignore[attr-defined]
    assert partition._consumer.assignment() == []


def test_the_more_wait_without_a_seat_the_less_often_each_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    seats, pauses = kafka_waiting.Seats(), list[float]()

    def sleep(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) < 100:
            seats.stand(60.0)  # one more, while the others wait

    monkeypatch.setattr(kafka_waiting, "time", SimpleNamespace(sleep=sleep))
    seats.stand(60.0)
    assert pauses == [max(0.05, waiting / 400) for waiting in range(1, 101)], "they look 400 times a second together"
    pauses.clear()
    seats.stand(0.01)
    assert pauses[0] == 0.01, "and nobody longer than it waits"


def test_more_than_have_seats_wait_all_the_same(kafka: KafkaServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that follows very many topics has so many consumers that wait, and no more. The others look."""
    monkeypatch.setattr(kafka_waiting, "MAX_SEATS", 2)
    carrier = connect(CarrierAddress.parse(kafka.address), {})
    assert isinstance(carrier, KafkaCarrier)
    name = secrets.token_hex(6)
    carrier.create(name, Placement(4))
    partitions = [carrier.partition(name, number) for number in range(4)]
    came = dict[int, float]()

    def follow(number: int) -> None:
        partitions[number].wait(0, 20)
        came[number] = time.monotonic()

    waiting = [threading.Thread(target=follow, args=(number,)) for number in range(4)]
    for each in waiting:
        each.start()
    time.sleep(0.5)
    assert len(carrier.seats) == 2 and not came
    appended = time.monotonic()
    for partition in partitions:
        partition.append([(b"", b"something")])
    for each in waiting:
        each.join(20)
    assert sorted(came) == [0, 1, 2, 3] and max(came.values()) - appended < 10, "nobody waited for its time to be over"
    without = next(each for each in partitions if each._waiting not in carrier.seats._taken)
    assert without.heard(0) == [] and len(carrier.seats) == 2
    monkeypatch.setattr(kafka_waiting, "IDLE_S", 0.0)
    assert [each.data for each in without.wait(0, 20)] == [b"something"], "who is idle gives its seat away"
    assert len(carrier.seats) == 2
    for partition in partitions:
        partition.close()
    assert not len(carrier.seats)
    carrier.close()
