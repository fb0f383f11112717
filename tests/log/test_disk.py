"""A full disk, short writes, failing syncs; and that many appenders share few syncs."""

from __future__ import annotations

import ctypes
import errno
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from sealcast.errors import DiskFull, Unavailable
from sealcast.log import files
from sealcast.log.embedded import EmbeddedLog

Pwrite = Callable[[int, bytes, int], int]


class Disk:
    """Between us and `os.pwrite`: takes `room` bytes of segments, a few at a time, then fails."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.room: int | None = None
        self.bite = 1 << 30
        self.error = errno.ENOSPC
        self._real: Pwrite = os.pwrite
        monkeypatch.setattr(os, "pwrite", self.pwrite)

    def pwrite(self, fd: int, raw: bytes, position: int) -> int:
        if not os.readlink(f"/proc/self/fd/{fd}").endswith(".seg"):
            return self._real(fd, raw, position)
        size = min(len(raw), self.bite)
        if self.room is not None:
            if not self.room:
                raise OSError(self.error, os.strerror(self.error))
            size = min(size, self.room)
            self.room -= size
        return self._real(fd, raw[:size], position)


@pytest.mark.parametrize("room", [0, 1, 43, 44, 45, 100, 144, 200, 287])
@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO])
def test_a_full_disk_acknowledges_nothing_and_harms_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, room: int, code: int
) -> None:
    disk = Disk(monkeypatch)
    disk.error = code
    with EmbeddedLog(tmp_path) as log, EmbeddedLog(tmp_path) as other:
        log.append([b"before"])
        size = next(tmp_path.glob("*.seg")).stat().st_size
        disk.room = room
        with pytest.raises(Unavailable, match="nothing was acknowledged") as raised:
            log.append([b"x" * 100, b"y" * 100])
        assert isinstance(raised.value, DiskFull) == (code != errno.EIO)
        assert next(tmp_path.glob("*.seg")).stat().st_size == size, "what was written of it is taken back"
        assert [r.data for r in log.read(0)] == [b"before"]
        disk.room = None
        assert other.append([b"other"]) == range(1, 2)
        assert log.append([b"after"]) == range(2, 3), "the log is usable when there is space again"
        assert [r.data for r in log.read(0)] == [b"before", b"other", b"after"]


def test_a_disk_that_takes_small_bites_is_fed_all_of_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    disk = Disk(monkeypatch)
    disk.bite = 7
    with EmbeddedLog(tmp_path) as log:
        log.append([b"x" * 100, b"y" * 100])
        assert [len(r.data) for r in log.read(0)] == [100, 100]
        log.verify()


def test_no_space_for_a_new_segment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    disk = Disk(monkeypatch)
    with EmbeddedLog(tmp_path, segment_bytes=256) as log:
        log.append([b"x" * 200])
        for room in (0, 20, 44, 60):
            disk.room = room
            with pytest.raises(DiskFull):
                log.append([b"y" * 200])
            assert log.verify().end == 1
        disk.room = None
        assert log.append([b"z"]) == range(1, 2)
        assert log.append([b"y" * 200]) == range(2, 3)
        assert log.verify().end == 3


_FILL = """
import resource, sys
from sealcast.errors import DiskFull
from sealcast.log.embedded import EmbeddedLog
log = EmbeddedLog(sys.argv[1])
resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, resource.RLIM_INFINITY))
count = 0
try:
    while True:
        count = log.append([bytes(999)] * 7).stop
except DiskFull:
    print(count)
log.append([b"small"])
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
log.append([bytes(999)] * 7)
"""


def test_the_kernel_itself_refuses_a_larger_file(tmp_path: Path) -> None:
    """No imitation: a limit on the size of files, in a process of its own."""
    done = subprocess.run([sys.executable, "-c", _FILL, str(tmp_path)], capture_output=True, text=True, check=True)
    count = int(done.stdout)
    assert count == 100_000 // (7 * 1043) * 7
    with EmbeddedLog(tmp_path) as log:
        assert [len(r.data) for r in log.read(count)] == [5, *[999] * 7]
        log.verify()


# --- syncs ---------------------------------------------------------------------------------------


def test_many_directories_are_synced_by_one_sync_of_each_file_system(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced, paths = list[int](), [tmp_path, tmp_path / "a", Path("/dev"), Path("/proc")]
    (tmp_path / "a").mkdir()
    monkeypatch.setattr(files, "_SYNCFS", lambda fd: synced.append(os.fstat(fd).st_dev))
    files.sync_directories(paths)
    assert sorted(synced) == sorted({path.stat().st_dev for path in paths})


def test_a_file_system_that_fails_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(fd: int) -> int:
        ctypes.set_errno(errno.EIO)
        return -1

    monkeypatch.setattr(files, "_SYNCFS", fail)
    with pytest.raises(Unavailable, match=f"syncing {tmp_path} failed: Input/output error; nothing was acknowledged"):
        files.sync_file_systems([tmp_path])


class Syncs:
    """Between us and fdatasync: counts, can fail, can be slow."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.count = 0
        self.fail = 0
        self.gate: threading.Event | None = None
        self._real = files.sync_data
        monkeypatch.setattr(files, "sync_data", self.sync)

    def sync(self, fd: int) -> None:
        if not os.readlink(f"/proc/self/fd/{fd}").endswith(".seg"):
            return self._real(fd)
        self.count += 1
        if self.gate is not None:
            self.gate.wait(10)
        if self.fail:
            self.fail -= 1
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return self._real(fd)


def test_appends_that_wait_together_share_a_sync(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    syncs = Syncs(monkeypatch)
    with EmbeddedLog(tmp_path) as log, EmbeddedLog(tmp_path) as other:
        log.append([b"first"])
        before, syncs.gate = syncs.count, threading.Event()
        threads = [threading.Thread(target=(log if i % 2 else other).append, args=([bytes(10)],)) for i in range(12)]
        for thread in threads:
            thread.start()
        while _written(tmp_path) < 13:
            pass
        assert log.end() == 1, "written, not durable: nobody sees them"
        syncs.gate.set()
        for thread in threads:
            thread.join()
        assert log.end() == 13
        assert syncs.count - before <= 3, "one was under way; the next covers everyone, in both handles"


def _written(directory: Path) -> int:
    return (next(directory.glob("*.seg")).stat().st_size - 44 - 49) // 54 + 1


def test_many_threads_need_fewer_syncs_than_appends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    syncs = Syncs(monkeypatch)
    with EmbeddedLog(tmp_path) as log:

        def work(number: int) -> None:
            for i in range(25):
                log.append([bytes([number, i])])

        threads = [threading.Thread(target=work, args=(n,)) for n in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert syncs.count < 200
        records = [r.data for r in log.read(0)]
        assert len(records) == 200
        for number in range(8):
            assert [r[1] for r in records if r[0] == number] == list(range(25)), "each writer's order is kept"


def test_a_failed_sync_is_final_for_the_handle_and_what_was_in_doubt_is_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    syncs = Syncs(monkeypatch)
    with EmbeddedLog(tmp_path) as log, EmbeddedLog(tmp_path) as other:
        log.append([b"before"])
        syncs.fail = 1
        with pytest.raises(Unavailable, match="syncing"):
            log.append([b"in doubt"])
        with pytest.raises(Unavailable, match="an earlier sync failed"):
            log.append([b"more"])
        assert other.append([b"after"]) == range(1, 2), "its offset is free: it was never acknowledged, nor seen"
        assert [r.data for r in log.read(0)] == [b"before", b"after"]
    with EmbeddedLog(tmp_path) as again:
        again.append([b"again"])
        assert [r.data for r in again.read(0)] == [b"before", b"after", b"again"]


def test_whoever_waits_for_a_sync_that_fails_is_not_acknowledged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    syncs = Syncs(monkeypatch)
    with EmbeddedLog(tmp_path) as log, EmbeddedLog(tmp_path) as other:
        log.append([b"first"])
        syncs.gate, syncs.fail = threading.Event(), 1
        failures: list[Unavailable] = []

        def work(handle: EmbeddedLog) -> None:
            try:
                handle.append([bytes(10)])
            except Unavailable as failure:
                failures.append(failure)

        threads = [threading.Thread(target=work, args=(handle,)) for handle in (log, log, other, other)]
        for thread in threads:
            thread.start()
        while _written(tmp_path) < 5:
            pass
        syncs.gate.set()
        for thread in threads:
            thread.join()
        assert len(failures) == 4
        assert log.end() == 1
    with EmbeddedLog(tmp_path) as again:
        assert again.append([b"second"]) == range(1, 2)


def test_a_failed_sync_at_open_is_no_open_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with EmbeddedLog(tmp_path) as log:
        log.append([b"x"])
    with next(tmp_path.glob("*.seg")).open("ab") as file:
        file.write(b"torn")
    syncs = Syncs(monkeypatch)
    syncs.fail = 1
    with pytest.raises(Unavailable, match="repairing"):
        EmbeddedLog(tmp_path)
    with EmbeddedLog(tmp_path) as log:
        assert [r.data for r in log.read(0)] == [b"x"]


def test_a_directory_that_cannot_be_synced_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever makes one gets an error of ours, not the operating system's."""

    def fail(fd: int) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(Unavailable, match=f"syncing {tmp_path} failed"):
        files.make_directory(tmp_path / "new")
    with pytest.raises(Unavailable, match="nothing was acknowledged"):
        files.replace_file(tmp_path / "file", b"content")
