"""The embedded log against a plain list, through every operation, reopening and what a dead writer leaves behind."""

from __future__ import annotations

import os
import stat
import struct
import time
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from sealcast.errors import Corrupt, Misuse, NotFound
from sealcast.log import files, reader, segment
from sealcast.log.embedded import EmbeddedLog, EmbeddedTopic
from sealcast.log.forwarded import ForwardedLog
from sealcast.log.layout import MAX_RECORD_BYTES
from sealcast.log.port import PartitionLog, TopicLog
from tests.children import forked


def datas(log: EmbeddedLog, start: int = 0, end: int | None = None, max_bytes: int | None = None) -> list[bytes]:
    return [record.data for record in log.read(start, end, max_bytes)]


def test_what_is_appended_is_read(tmp_path: Path) -> None:
    with EmbeddedLog(tmp_path / "log") as log:
        assert log.append([b"one", b"", b"three"]) == range(3)
        assert log.append([b"four"]) == range(3, 4)
        assert (log.start(), log.end()) == (0, 4)
        assert datas(log) == [b"one", b"", b"three", b"four"]
        assert datas(log, 1, 3) == [b"", b"three"]
        assert [r.offset for r in log.read(2)] == [2, 3]
        assert log.verify() == (0, 4, 12)
    with EmbeddedLog(tmp_path / "log", read_only=True) as reader:
        assert datas(reader) == [b"one", b"", b"three", b"four"]


def test_it_implements_the_port(tmp_path: Path) -> None:
    with EmbeddedTopic(tmp_path / "frames", 2) as topic:
        assert isinstance(topic, TopicLog)
        assert isinstance(topic.partition(1), PartitionLog)


def test_a_topic_keeps_its_partitions(tmp_path: Path) -> None:
    with EmbeddedTopic(tmp_path / "frames", 2) as topic:
        topic.partition(1).append([b"x"])
    with EmbeddedTopic(tmp_path / "frames", 3) as topic:
        assert topic.partitions == 3
        assert datas(topic.partition(1)) == [b"x"]
        with pytest.raises(NotFound, match="partitions 0 to 2, not 3"):
            topic.partition(3)
    with pytest.raises(Misuse, match="never shrinks"):
        EmbeddedTopic(tmp_path / "frames", 2)
    with pytest.raises(NotFound, match="no partitions"):
        EmbeddedTopic(tmp_path / "elsewhere", read_only=True)


def test_files_are_private(tmp_path: Path) -> None:
    with EmbeddedLog(tmp_path / "a" / "log", segment_bytes=256) as log:
        log.append([b"x" * 300])
        log.append([b"x" * 300])
    for path in [*tmp_path.glob("a/**/*"), tmp_path / "a"]:
        assert stat.S_IMODE(path.stat().st_mode) == (0o700 if path.is_dir() else 0o600), path


def test_an_empty_log_is_no_error(tmp_path: Path) -> None:
    with EmbeddedLog(tmp_path) as log:
        assert (log.start(), log.end(), log.offset_at(0), datas(log), log.verify()) == (0, 0, 0, [], (0, 0, 0))
    (tmp_path / "nothing").mkdir()
    with EmbeddedLog(tmp_path / "nothing", read_only=True) as log:
        assert (log.start(), log.end(), log.offset_at(0), datas(log), log.verify()) == (0, 0, 0, [], (0, 0, 0))
        with EmbeddedLog(tmp_path / "nothing") as writer:
            writer.append([b"x"])
        assert datas(log) == [b"x"], "a reader that came first sees what comes later"


@pytest.mark.parametrize(
    ("call", "error", "says"),
    [
        (lambda log: log.append([]), Misuse, "at least one record"),
        (lambda log: log.append([bytes(MAX_RECORD_BYTES + 1)]), Misuse, "at most 33554432 bytes"),
        (lambda log: log.read(-1), Misuse, "cannot read from -1"),
        (lambda log: log.read(2, 1), Misuse, "cannot read from 2 to 1"),
        (lambda log: log.read(0, max_bytes=0), Misuse, "at most 0 bytes"),
        (lambda log: log.read(3), NotFound, "ends at record 2"),
        (lambda log: log.read(0, 3), NotFound, "ends at record 2; record 2 is not there"),
        (lambda log: log.retain(), Misuse, "an age or a size"),
        (lambda log: EmbeddedLog(log.directory, segment_bytes=10), Misuse, "at least 256 bytes"),
        (lambda log: EmbeddedLog(log.directory, read_only=True).append([b"x"]), Misuse, "read-only"),
        (lambda log: EmbeddedLog(log.directory / "no", read_only=True), NotFound, "not the directory of a log"),
    ],
)
def test_calls_that_make_no_sense_are_refused_at_once(tmp_path: Path, call, error, says) -> None:  # type: ignore[no-untyped-def]
    with EmbeddedLog(tmp_path) as log:
        log.append([b"x", b"y"])
        with pytest.raises(error, match=says):
            call(log)
        assert datas(log) == [b"x", b"y"]


def test_a_child_process_must_open_its_own(tmp_path: Path) -> None:
    with EmbeddedLog(tmp_path) as log:
        log.append([b"x"])

        def child() -> None:
            with pytest.raises(Misuse, match="a child process opens the log itself"):
                log.append([b"y"])

        forked(child)
        assert datas(log) == [b"x"]


def test_a_closed_log_says_so(tmp_path: Path) -> None:
    log = EmbeddedLog(tmp_path)
    log.close()
    log.close()
    for call in (log.end, log.start, log.verify, lambda: log.append([b"x"]), lambda: log.read(0)):
        with pytest.raises(Misuse, match="was closed"):
            call()


def test_max_bytes_stops_early_but_always_makes_progress(tmp_path: Path) -> None:
    with EmbeddedLog(tmp_path) as log:
        log.append([b"x" * 10] * 5)
        assert len(datas(log, max_bytes=1)) == 1
        assert len(datas(log, max_bytes=29)) == 2
        assert len(datas(log, max_bytes=30)) == 3
        assert len(datas(log, 3, max_bytes=100)) == 2


def test_an_iterator_outlives_the_cache_of_open_segments(tmp_path: Path) -> None:
    before = len(os.listdir("/proc/self/fd"))
    with EmbeddedLog(tmp_path, segment_bytes=256) as log:
        for number in range(60):
            log.append([bytes([number]) * 100])
        slow = log.read(0)
        assert next(slow).offset == 0
        assert len(datas(log)) == 60
        assert [r.offset for r in slow] == list(range(1, 60))
        assert len(os.listdir("/proc/self/fd")) < before + 40


# --- retention and time --------------------------------------------------------------------------


def test_retention_removes_the_oldest_segments(tmp_path: Path) -> None:
    with EmbeddedLog(tmp_path, segment_bytes=1000) as log, EmbeddedLog(tmp_path, read_only=True) as reader:
        for number in range(50):
            log.append([bytes([number]) * 100])
        assert datas(reader)[0] == bytes(100)
        start = log.retain(max_bytes=3000)
        assert 0 < start < 50
        assert sum(path.stat().st_size for path in tmp_path.glob("*.seg")) <= 3000
        assert log.start() == reader.start() == start
        assert [r.offset for r in reader.read(start)] == list(range(start, 50))
        assert log.verify().start == start
        with pytest.raises(NotFound, match=f"the first available is {start}"):
            list(log.read(start - 1))
        with pytest.raises(NotFound, match=f"the first available is {start}"):
            list(EmbeddedLog(tmp_path, read_only=True).read(0))
        assert log.offset_at(0) == start
    with EmbeddedLog(tmp_path, segment_bytes=1000) as log:
        assert log.append([b"next"]) == range(50, 51)


def test_retention_by_age_keeps_what_is_younger(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = _Clock(monkeypatch)
    with EmbeddedLog(tmp_path, segment_bytes=256) as log:
        for number in range(10):
            clock.now_us = 1_000 * number
            log.append([bytes(250)])
        assert log.retain(max_age_us=5_500, now_us=9_000) == 4, "records at 0 to 3 ms are older than 3.5 ms"
        assert log.retain(max_age_us=0, now_us=10**9) == 9, "the segment that is appended to stays"
        assert log.end() == 10


def test_offset_at_finds_the_first_of_that_time_or_later(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = _Clock(monkeypatch)
    monkeypatch.setattr("sealcast.log.sync.INDEX_EVERY_BYTES", 100)
    times = [10, 10, 20, 20, 20, 30, 25, 31, 31, 90]  # the clock is set back once
    with EmbeddedLog(tmp_path, segment_bytes=300) as log:
        for now in times:
            clock.now_us = now
            log.append([b"x" * 20, b"y" * 30])
        kept = [record.time_us for record in log.read(0)]
        assert kept == sorted(kept)
        for moment in range(100):
            expected = next((i for i, t in enumerate(kept) if t >= moment), len(kept))
            assert log.offset_at(moment) == expected, moment


class _Clock:
    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now_us = 0
        monkeypatch.setattr(time, "time_ns", lambda: self.now_us * 1000)


# --- the index -----------------------------------------------------------------------------------


def test_reading_in_the_middle_skips_what_is_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sealcast.log.sync.INDEX_EVERY_BYTES", 10_000)
    with EmbeddedLog(tmp_path) as log:
        for _ in range(40):
            log.append([bytes(500)] * 50)
    assert (tmp_path / f"{0:020}.idx").stat().st_size > 0
    read = []
    pread = segment.Segment.pread
    monkeypatch.setattr(segment.Segment, "pread", lambda self, n, at: (read.append(n), pread(self, n, at))[1])
    with EmbeddedLog(tmp_path, read_only=True) as log:
        assert next(log.read(1990, 1991)).offset == 1990
        assert sum(read) < 300_000, "a million bytes stand before it"
        (tmp_path / f"{0:020}.idx").unlink()
    with EmbeddedLog(tmp_path, read_only=True) as log:
        assert next(log.read(1990, 1991)).offset == 1990, "the index is dispensable"


# --- a model -------------------------------------------------------------------------------------


class LogMachine(RuleBasedStateMachine):
    """Does what users and crashes do, on the log and on a list."""

    root: Path
    count = 0

    @initialize(segment_bytes=st.sampled_from([256, 700, 1 << 20]))
    def open(self, segment_bytes: int) -> None:
        LogMachine.count += 1
        self.directory = self.root / str(LogMachine.count)
        self.segment_bytes = segment_bytes
        self.model: list[bytes] = []
        self.first = 0
        self.log = EmbeddedLog(self.directory, segment_bytes=segment_bytes)
        self.reader = EmbeddedLog(self.directory, read_only=True)
        self.other = EmbeddedLog(self.directory, segment_bytes=segment_bytes)

    @rule(records=st.lists(st.binary(max_size=120), min_size=1, max_size=4), other=st.booleans())
    def append(self, records: list[bytes], other: bool) -> None:
        offsets = (self.other if other else self.log).append(records)
        assert offsets == range(len(self.model), len(self.model) + len(records))
        self.model += records

    @rule(data=st.data(), limit=st.none() | st.integers(1, 200))
    def read(self, data: st.DataObject, limit: int | None) -> None:
        start = data.draw(st.integers(self.first, len(self.model)))
        end = data.draw(st.none() | st.integers(start, len(self.model)))
        got = datas(self.reader, start, end, limit)
        expected, size = [], 0
        for record in self.model[start:end]:
            size += len(record)
            if limit is not None and size > limit and expected:
                break
            expected.append(record)
        assert got == expected
        if end is not None:
            assert self.reader.sizes(start, end, limit) == [len(record) for record in expected]

    @rule()
    def reopen(self) -> None:
        self.log.close()
        self.log = EmbeddedLog(self.directory, segment_bytes=self.segment_bytes)

    @rule(garbage=st.binary(min_size=1, max_size=100))
    def die_while_writing(self, garbage: bytes) -> None:
        """A writer wrote some bytes and no more; it lets go of its lock by dying."""
        last = sorted(self.directory.glob("*.seg"))[-1]
        with last.open("ab") as file:
            file.write(garbage)

    @rule()
    def die_while_beginning_a_segment(self) -> None:
        if self.model and self.log.end() not in segment.list_segments(self.directory):
            segment.path_of(self.directory, self.log.end()).write_bytes(b"SEAL")

    @precondition(lambda self: self.model)
    @rule()
    def lose_power(self) -> None:
        """The frontier is as it was some appends ago; all that was acknowledged is there."""
        path = self.directory / "frontier"
        old = path.read_bytes()
        self.append([b"after the frontier was last written back"], False)
        if sorted(self.directory.glob("*.seg"))[-1].name[:20] == f"{self._segment_of(old):020}":
            self.log.close()
            path.write_bytes(old)
            self.log = EmbeddedLog(self.directory, segment_bytes=self.segment_bytes)

    def _segment_of(self, raw: bytes) -> int:
        slots = [raw[at : at + 512] for at in (1024, 1536)]
        newest = max(slots, key=lambda slot: struct.unpack_from("<Q", slot, 4)[0])
        return int(struct.unpack_from("<Q", newest, 36)[0])

    @precondition(lambda self: self.model)
    @rule()
    def lose_index(self) -> None:
        for path in self.directory.glob("*.idx"):
            path.unlink()

    @rule(size=st.integers(200, 2000))
    def retain(self, size: int) -> None:
        self.first = self.log.retain(max_bytes=size)

    @invariant()
    def holds(self) -> None:
        if hasattr(self, "log"):
            assert self.reader.end() == len(self.model)
            assert self.reader.start() == self.first
            assert self.reader.verify().end == len(self.model)

    def teardown(self) -> None:
        for log in (self.log, self.reader, self.other):
            log.close()


def test_it_behaves_like_a_list(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "sync_data", lambda fd: None)
    monkeypatch.setattr(files, "sync_directory", lambda path: None)
    LogMachine.root = tmp_path
    run_state_machine_as_test(LogMachine, settings=settings(max_examples=100, stateful_step_count=30))


@given(cut=st.integers(0, 400))
@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_record_cut_anywhere_beyond_the_frontier_is_dropped_whole(tmp_path: Path, cut: int) -> None:
    directory = tmp_path / str(len(list(tmp_path.iterdir())))
    with EmbeddedLog(directory) as log:
        log.append([b"kept"])
        before = (directory / "frontier").read_bytes()
        size = sorted(directory.glob("*.seg"))[-1].stat().st_size
        log.append([b"x" * 100, b"y" * 100])
    path = sorted(directory.glob("*.seg"))[-1]
    (directory / "frontier").write_bytes(before)
    raw = path.read_bytes()
    path.write_bytes(raw[: size + cut])
    whole = [b"x" * 100, b"y" * 100][: min(2, cut // 144)]
    with EmbeddedLog(directory, read_only=True) as reader:
        assert datas(reader) == [b"kept"], "a reader goes by the frontier"
    with EmbeddedLog(directory) as log:
        assert datas(log) == [b"kept", *whole]
        log.append([b"next"])
        assert datas(log) == [b"kept", *whole, b"next"]


@pytest.mark.parametrize("made", ["nothing", "an empty frontier"])
def test_a_log_that_is_made_while_a_reader_looks_is_not_taken_for_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, made: str
) -> None:
    if made == "an empty frontier":
        (tmp_path / "frontier").touch()
    look = segment.list_segments

    def after_a_first_append(directory: Path) -> list[int]:
        """The reader has seen no frontier; before it looks for records, a writer makes the log and appends one."""
        monkeypatch.setattr(reader, "list_segments", look)
        with EmbeddedLog(directory) as writer:
            writer.append([b"first"])
        return look(directory)

    monkeypatch.setattr(reader, "list_segments", after_a_first_append)
    with EmbeddedLog(tmp_path, read_only=True) as log:
        assert log.end() == 1
        assert datas(log) == [b"first"]


def test_a_lost_frontier_is_made_again_only_if_every_byte_is_right(tmp_path: Path) -> None:
    with EmbeddedLog(tmp_path, segment_bytes=256) as log:
        for number in range(5):
            log.append([bytes([number]) * 100])
    (tmp_path / "frontier").unlink()
    with pytest.raises(Corrupt, match="the frontier is lost; records are there"):
        EmbeddedLog(tmp_path, read_only=True).end()
    with EmbeddedLog(tmp_path, segment_bytes=256) as log:
        assert log.verify().end == 5
    (tmp_path / "frontier").unlink()
    with sorted(tmp_path.glob("*.seg"))[-1].open("ab") as file:
        file.write(b"torn")
    with pytest.raises(Corrupt, match="cannot be told from an interrupted write"):
        EmbeddedLog(tmp_path, segment_bytes=256)


# --- dropping ---------------------------------------------------------------------------------------------------


def test_dropping_everything_leaves_an_empty_log_that_goes_on(tmp_path: Path) -> None:
    with EmbeddedLog(tmp_path / "log") as log:
        log.append([b"dropped", b"b", b"c"])
        assert log.drop(2) == 0, "they share a file with a younger one"
        assert log.drop(3) == 3 == log.start() == log.end()
        with pytest.raises(NotFound):
            list(log.read(2))
        assert log.append([b"d"]) == range(3, 4)
        assert log.drop(3) == 3
    with EmbeddedLog(tmp_path / "log") as again:
        assert [record.data for record in again.read(3)] == [b"d"]
        assert again.verify()[:2] == (3, 4)
    assert b"dropped" not in b"".join(path.read_bytes() for path in (tmp_path / "log").glob("*.seg"))


def test_dropping_takes_whole_segments(tmp_path: Path) -> None:
    with EmbeddedLog(tmp_path / "log", segment_bytes=256) as log:
        for number in range(12):
            log.append([bytes([number]) * 60])
        kept = log.drop(5)
        assert 0 < kept <= 5 and [record.offset for record in log.read(kept)] == list(range(kept, 12))


def test_what_was_forwarded_and_dropped_is_not_taken_again(tmp_path: Path) -> None:
    with ForwardedLog(tmp_path / "log") as log:
        log.take([(4, b"x"), (9, b"y")])
        assert log.drop(1) == 0, "all or none"
        assert log.through(2) == log.next_origin() == 10
        assert log.drop(2) == 2
        assert log.through(2) == log.next_origin() == 10 and log.index_of(10) == 2
        assert log.take([(9, b"y"), (12, b"z")]) == 1
        assert (log.origin_of(2), log.next_origin(), log.index_of(12), log.through(2)) == (12, 13, 2, 10)
