"""The promises of `log/port.py`, held by whoever keeps a log: the embedded one, Kafka and NATS."""

from __future__ import annotations

import threading
import time

import pytest

from sealcast.errors import Locked, Misuse, NotFound
from sealcast.log.layout import MAX_RECORD_BYTES
from sealcast.log.port import FencedLog, SharedLog
from tests.log.keepers import CarrierKeeper, Keeper


def made(begin: int, end: int, size: int = 1) -> list[bytes]:
    return [f"record {n}".encode() * size for n in range(begin, end)]


def test_the_kinds_are_what_the_port_says(keeper: Keeper) -> None:
    assert isinstance(keeper.shared(), SharedLog)
    assert isinstance(keeper.fenced(), FencedLog)


# --- 1 to 4: what is acknowledged is there, in order, numbered without gaps ------------------------


def test_what_was_appended_is_read_by_another_handle(keeper: Keeper) -> None:
    log, other = keeper.shared(), keeper.shared()
    assert (other.start(), other.end(), list(other.read(0))) == (0, 0, [])
    before = time.time_ns() // 1000
    assert list(log.append(made(0, 3))) == [0, 1, 2]
    assert list(log.append(made(3, 4))) == [3]
    assert other.end() == 4
    records = list(other.read(0))
    assert [(r.offset, r.data) for r in records] == list(enumerate(made(0, 4)))
    assert all(before <= r.time_us <= time.time_ns() // 1000 for r in records)
    assert [r.data for r in other.read(1, 3)] == made(1, 3)
    assert [r.data for r in other.read(3)] == made(3, 4)
    assert list(other.read(4)) == []
    assert [r.data for r in other.read(0, 2)] == made(0, 2)  # back to what was read before


def test_reading_stops_before_the_bytes_are_exceeded_but_gives_one(keeper: Keeper) -> None:
    log = keeper.shared()
    log.append([b"x" * 100] * 10)
    assert [r.offset for r in log.read(2, max_bytes=250)] == [2, 3]
    assert [r.offset for r in log.read(2, max_bytes=1)] == [2]
    assert log.sizes(2, 10, 250) == [100, 100]
    assert log.sizes(2, 10) == [100] * 8
    assert log.sizes(2, 10, 1) == [100]


def test_what_is_not_there_is_refused(keeper: Keeper) -> None:
    log = keeper.shared()
    log.append(made(0, 2))
    for start, end in ((3, None), (0, 3)):
        with pytest.raises(NotFound, match="ends at record 2"):
            list(log.read(start, end))
    for start, end, most in ((-1, None, None), (1, 0, None), (0, 1, 0)):
        with pytest.raises(Misuse):
            list(log.read(start, end, most))
    with pytest.raises(Misuse, match="at least one"):
        log.append([])
    with pytest.raises(Misuse, match=f"at most {MAX_RECORD_BYTES}"):
        log.append([bytes(MAX_RECORD_BYTES + 1)])
    assert log.end() == 2


def test_writers_interleave_and_each_keeps_its_order(keeper: Keeper) -> None:
    places: dict[int, list[int]] = {}

    def write(writer: int) -> None:
        log = keeper.shared()
        places[writer] = [n for i in range(10) for n in log.append([f"{writer} {i} {j}".encode() for j in range(5)])]

    threads = [threading.Thread(target=write, args=(writer,)) for writer in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(n for some in places.values() for n in some) == list(range(200))
    found = [r.data.decode() for r in keeper.shared().read(0)]
    for writer, numbers in places.items():
        assert numbers == sorted(numbers)
        assert [found[n] for n in numbers] == [f"{writer} {i} {j}" for i in range(10) for j in range(5)]


def test_one_handle_serves_many_readers(keeper: Keeper) -> None:
    log = keeper.shared()
    log.append(made(0, 300, 50))
    halves = log.read(0), log.read(150)
    for n in range(150):
        assert (next(halves[0]).offset, next(halves[1]).offset) == (n, 150 + n)


def test_large_records(keeper: Keeper) -> None:
    log = keeper.shared()
    large = [bytes([n]) * (3 << 20) for n in range(3)]
    log.append(large)
    assert [r.data for r in keeper.shared().read(0)] == large


# --- 5: retention ---------------------------------------------------------------------------------


def test_only_the_oldest_are_dropped(keeper: Keeper) -> None:
    log = keeper.shared()
    for begin in range(0, 100, 10):
        log.append(made(begin, begin + 10, 60))
    log.cut(60)
    log.append(made(100, 110))
    start = log.drop(60)
    assert 0 < start <= 60
    other = keeper.shared()
    assert (other.start(), other.end()) == (start, 110)
    assert [r.offset for r in other.read(start)] == list(range(start, 110))
    with pytest.raises(NotFound, match=f"record {start - 1} is no longer kept"):
        list(other.read(start - 1))
    assert list(log.append(made(110, 111))) == [110]


def test_all_can_be_dropped_and_numbers_go_on(keeper: Keeper) -> None:
    log = keeper.shared()
    log.append(made(0, 5))
    log.cut(5)
    assert log.drop(5) == 5
    assert (log.start(), log.end()) == (5, 5)
    assert list(keeper.shared().append(made(5, 6))) == [5]
    assert [r.data for r in log.read(5)] == made(5, 6)


# --- 6: time --------------------------------------------------------------------------------------


def test_time_is_searched_where_one_party_writes_and_refused_elsewhere(keeper: Keeper) -> None:
    log = keeper.fenced()
    log.fence()
    for n in range(6):
        log.append(made(n, n + 1))
        time.sleep(0.002)
    times = [r.time_us for r in log.read(0)]
    assert times == sorted(times)
    assert [log.offset_at(t) for t in times] == list(range(6))
    assert log.offset_at(0) == 0
    assert log.offset_at(times[-1] + 1) == 6
    with pytest.raises(Misuse, match="clocks"):
        keeper.shared().offset_at(0)


# --- 7: fencing -----------------------------------------------------------------------------------


def test_one_writer_numbers_densely_and_others_read(keeper: Keeper) -> None:
    log, other = keeper.fenced(), keeper.fenced()
    assert other.end() == 0
    log.fence()
    for begin in range(0, 60, 3):
        assert list(log.append(made(begin, begin + 3))) == [begin, begin + 1, begin + 2]
    assert other.end() == 60
    assert [(r.offset, r.data) for r in other.read(0)] == list(enumerate(made(0, 60)))
    for n in (59, 0, 31, 7, 58):
        assert [r.data for r in other.read(n, n + 1)] == made(n, n + 1)
    assert [r.data for r in keeper.fenced().read(40)] == made(40, 60)
    with pytest.raises(NotFound):
        list(other.read(61))


def test_a_writer_that_was_fenced_off_appends_nothing(keeper: Keeper) -> None:
    old, new = keeper.fenced(), keeper.fenced()
    with pytest.raises(Locked):
        old.append(made(0, 1))  # it is not the writer yet
    old.fence()
    old.append(made(0, 2))
    new.fence()
    with pytest.raises(Locked):
        old.append([b"stale"])  # before the new one has written anything
    assert list(new.append(made(2, 4))) == [2, 3]
    with pytest.raises(Locked):
        old.append([b"stale"])
    with pytest.raises(Locked):
        old.append([b"stale"])  # and once more: it does not become the writer by trying
    assert [r.data for r in keeper.fenced().read(0)] == made(0, 4)
    old.fence()  # by asking for it
    assert list(old.append(made(4, 5))) == [4]
    with pytest.raises(Locked):
        new.append([b"stale"])
    assert [r.data for r in keeper.fenced().read(0)] == made(0, 5)


# --- kill -9 of the server ------------------------------------------------------------------------


def outlives_kills(keeper: CarrierKeeper, kills: int) -> None:
    """What was acknowledged is there after each kill, once and in order; handles go on by themselves."""
    shared, fenced, other = keeper.shared(), CarrierKeeper(keeper.server), keeper.shared()
    ledger = fenced.fenced()
    ledger.fence()
    stop, acknowledged, attempts = threading.Event(), dict[int, bytes](), 0

    def write() -> None:
        nonlocal attempts
        while not stop.is_set():
            data = f"attempt {attempts}".encode()
            attempts += 1
            try:
                (number,) = shared.append([data])
            except Exception:  # noqa: BLE001
                continue
            acknowledged[number] = data

    thread = threading.Thread(target=write)
    thread.start()
    committed = list[bytes]()
    for kill in range(kills):
        committed.append(f"commit {kill}".encode())
        assert list(ledger.append(committed[-1:])) == [kill]
        before = len(acknowledged)
        keeper.server.kill()
        keeper.server.start()
        ledger.fence()
        assert [r.data for r in ledger.read(0)] == committed
        end = time.monotonic() + 60
        while len(acknowledged) < before + 20:
            assert time.monotonic() < end
            time.sleep(0.02)
    stop.set()
    thread.join()
    found = {r.offset: r.data for r in other.read(0)}
    assert sorted(found) == list(range(len(found)))
    assert acknowledged.items() <= found.items()
    fenced.close()


def test_nats_killed_loses_nothing_that_it_acknowledged(nats: object) -> None:
    keeper = CarrierKeeper(nats)  # type: ignore[arg-type]
    outlives_kills(keeper, 1)
    keeper.close()


@pytest.mark.soak
def test_kafka_killed_loses_nothing_that_it_acknowledged(kafka: object) -> None:
    keeper = CarrierKeeper(kafka)  # type: ignore[arg-type]
    outlives_kills(keeper, 5)
    keeper.close()


@pytest.mark.soak
def test_nats_killed_many_times_loses_nothing(nats: object) -> None:
    keeper = CarrierKeeper(nats)  # type: ignore[arg-type]
    outlives_kills(keeper, 5)
    keeper.close()
