"""Who is fenced off by Kafka was not always taken over: one run that outlives Kafka's deaths ends by none of them."""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from sealcast.bench.carrier_servers import KafkaServer
from sealcast.errors import Locked, SealcastError
from sealcast.log.carried_journal import CarriedJournal
from sealcast.log.carriers import CarrierAddress, CarrierAway, Placement
from sealcast.log.entry import Entry
from sealcast.log.kafka import KafkaCarrier
from sealcast.log.ledger import Ledger, LedgerReader
from sealcast.log.numbered import TRIES, NumberedLog
from sealcast.log.offsets import PinnedOffset
from sealcast.primitives.secrets import Secret

PATIENCE_S = 2.0
KEY = Secret(bytes(32))


@pytest.fixture
def connect(kafka: KafkaServer) -> Iterator[Callable[[], KafkaCarrier]]:
    """One process's way to Kafka, each time it is called."""
    with ExitStack() as held:
        address = CarrierAddress.parse(kafka.address)
        yield lambda: held.enter_context(KafkaCarrier(address, {}, PATIENCE_S))


@pytest.fixture
def name(connect: Callable[[], KafkaCarrier]) -> str:
    made = secrets.token_hex(6)
    again(lambda: CarriedJournal(connect(), made, 1).create(Placement(1)))
    return made


def again(work: Callable[[], object]) -> object:
    """What a caller does who was told that a carrier is away."""
    end = time.monotonic() + 120
    while True:
        try:
            return work()
        except CarrierAway:
            if time.monotonic() >= end:
                raise
            time.sleep(0.1)


def batch(number: int) -> Entry:
    at = PinnedOffset((0,), 1, 1)
    return Entry("q", number, at if number else PinnedOffset.initial(1), at, (), {})


class Ghost:
    """Becomes the writer after a log does, so many times, as a request does that was given up and found later."""

    def __init__(self, log: NumberedLog, ghost: NumberedLog, times: int) -> None:
        self._become, self._ghost, self.left = log._partition.become_writer, ghost, times

    def __call__(self) -> None:
        self._become()
        if self.left:
            self.left -= 1
            self._ghost.fence()


def test_a_request_to_be_the_writer_that_was_given_up_is_never_obeyed(
    kafka: KafkaServer, connect: Callable[[], KafkaCarrier], name: str
) -> None:
    """An error that is kept kept the client that had asked, and that asked on. When Kafka was back, it became the
    writer after the one that was."""
    log = CarriedJournal(connect(), name, 1).log("ledger")
    log.fence(b"first")
    kafka.kill()
    kept = list[SealcastError]()
    for _ in range(2):
        with pytest.raises(CarrierAway) as refused:
            log.fence(b"second")
        kept.append(refused.value)
    kafka.start()
    again(lambda: log.fence(b"third"))
    end, count = time.monotonic() + 3, 0
    while time.monotonic() < end:
        log.append([b"record"])
        count += 1
        time.sleep(0.1)
    assert log.end() == count and len(kept) == 2


@pytest.mark.parametrize("kills", [2, pytest.param(20, marks=pytest.mark.soak)])
@pytest.mark.timeout(1_800)
def test_kafka_killed_while_a_run_commits(
    kills: int, kafka: KafkaServer, connect: Callable[[], KafkaCarrier], name: str, tmp_path: Path
) -> None:
    """The one run there is takes its ledger anew whenever Kafka was away, as a pipeline does, and each process of it
    commits. It is never told of another one, and each batch is there once."""
    carriers = [connect(), connect()]
    driver, sink = (Ledger(tmp_path / "ledger", KEY, CarriedJournal(each, name, 1)) for each in carriers)
    stop, done, locked = threading.Event(), [0], list[Locked]()
    kept = list[SealcastError]()  # as a pipeline keeps what went wrong last

    def run() -> None:
        while not stop.is_set() and not locked:
            try:
                with driver.exclusive() as term:
                    while not stop.is_set():
                        sink.commit(batch(done[0]), term)
                        done[0] += 1
            except Locked as error:
                locked.append(error)
            except CarrierAway as error:
                kept.append(error)
                time.sleep(0.1)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        for kill in range(kills):
            before, end = done[0], time.monotonic() + 120
            while done[0] < before + 3 and not locked:
                assert time.monotonic() < end, (kill, done, kept)
                time.sleep(0.001)
            kafka.kill()
            time.sleep(PATIENCE_S * (0.5 + 2 * (kill % 2)))  # long enough to be given up, or not
            kafka.start()
    finally:
        stop.set()
        thread.join()
    assert locked == []
    with LedgerReader(CarriedJournal(connect(), name, 1), KEY) as ledger:
        batches = [committed.entry.batch for committed in ledger.entries()]
    assert batches in ([*range(done[0])], [*range(done[0] + 1)])
    assert len(batches) >= 3 * kills


@pytest.mark.parametrize("times", [1, 3])
def test_whoever_is_fenced_off_without_a_newer_term_goes_on(
    times: int, connect: Callable[[], KafkaCarrier], name: str, tmp_path: Path
) -> None:
    journal, ghost = CarriedJournal(connect(), name, 1), CarriedJournal(connect(), name, 1).log("ledger")
    ledger = Ledger(tmp_path / "ledger", KEY, journal)
    log = ledger._fenced
    assert isinstance(log, NumberedLog)
    haunted = Ghost(log, ghost, times)
    log._partition.become_writer = haunted  # type: ignore[method-assign]
    with ledger.exclusive() as term:  # before its term is written down
        assert haunted.left == 0
        for number in range(3):
            ghost.fence()  # after that: it finds out when it commits
            haunted.left = times
            assert ledger.commit(batch(number), term)
            assert not ledger.commit(batch(number), term), "the same once more"
            assert haunted.left == 0
    assert ledger.verify() == 3


def test_one_that_is_fenced_off_for_ever_says_so_and_commits_nothing(
    connect: Callable[[], KafkaCarrier], name: str, tmp_path: Path
) -> None:
    journal, ghost = CarriedJournal(connect(), name, 1), CarriedJournal(connect(), name, 1).log("ledger")
    ledger = Ledger(tmp_path / "ledger", KEY, journal)
    log = ledger._fenced
    assert isinstance(log, NumberedLog)
    with ledger.exclusive() as term:
        ghost.fence()
        log._partition.become_writer = Ghost(log, ghost, 10 * TRIES)  # type: ignore[method-assign]
        with pytest.raises(CarrierAway, match="no newer term has begun"):
            ledger.commit(batch(0), term)
    with pytest.raises(CarrierAway, match="no newer term has begun"), ledger.exclusive():
        pass
    assert ledger.verify() == 0


def test_a_second_run_is_the_writer_from_its_term_on(
    connect: Callable[[], KafkaCarrier], name: str, tmp_path: Path
) -> None:
    """Two machines: each has its own locks. Whoever began first is refused, however often it tries."""
    one, two = (Ledger(tmp_path / at, KEY, CarriedJournal(connect(), name, 1)) for at in ("one", "two"))
    with one.exclusive() as before:
        assert one.commit(batch(0), before)
        with two.exclusive() as since:
            for number in (1, 2):
                with pytest.raises(Locked, match=f"another run has taken over .* with term {since} .* term {before}"):
                    one.commit(batch(number), before)
                assert two.commit(batch(number), since)
            assert two.verify() == 3


def test_of_two_that_begin_at_once_the_one_whose_term_is_written_first_runs(
    connect: Callable[[], KafkaCarrier], name: str
) -> None:
    one, two = (CarriedJournal(connect(), name, 1).log("ledger") for _ in range(2))
    term = one.term

    def overtaken() -> bytes:
        found = term()
        one.term = term  # type: ignore[method-assign]
        two.fence(b"theirs")
        return found

    one.term = overtaken  # type: ignore[method-assign]
    with pytest.raises(Locked, match="another run has taken over .* with term theirs since this one began with term m"):
        one.fence(b"mine")
    with pytest.raises(Locked):
        one.append([b"mine"])
    two.resume(b"theirs")
    assert list(two.append([b"theirs"])) == [0]
