"""Several writer processes, and writers that are killed: nothing acknowledged is lost, nothing is torn."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from sealcast.log.embedded import EmbeddedLog

#: Appends until killed or done; says on stdout, unbuffered, what was acknowledged.
_WRITER = """
import os, sys
from sealcast.log.embedded import EmbeddedLog
if sys.argv[5] == "bites":  # many small writes instead of one: most deaths come in the middle of a record
    pwrite = os.pwrite
    os.pwrite = lambda fd, raw, at: pwrite(fd, raw[:97], at) if len(raw) != 512 else pwrite(fd, raw, at)
directory, name, count, seed = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
log = EmbeddedLog(directory, segment_bytes=20_000)
number = 0
while number < count:
    many = 1 + (number * 7 + seed) % 4
    records = [f"{name} {number + i} ".encode() + bytes((number * 131 + seed) % 3000) for i in range(many)]
    offsets = log.append(records)
    assert len(offsets) == many
    for i, offset in enumerate(offsets):
        sys.stdout.write(f"{number + i} {offset}\\n")
    sys.stdout.flush()
    number += many
"""


def _start(directory: Path, name: str, count: int, seed: int, out: Path, how: str = "whole") -> subprocess.Popen[bytes]:
    with out.open("wb") as file:
        command = [sys.executable, "-c", _WRITER, str(directory), name, str(count), str(seed), how]
        return subprocess.Popen(command, stdout=file)


def _acknowledged(out: Path) -> list[tuple[int, int]]:
    """Whole lines only: the writer may have died while it was writing one."""
    lines = out.read_text().split("\n")[:-1]
    return [(int(number), int(offset)) for number, offset in (line.split() for line in lines)]


def _check(directory: Path, outs: dict[str, Path]) -> int:
    """Everything acknowledged stands where it was said to; each writer's records are in order; the rest is whole."""
    acknowledged = {name: _acknowledged(out) for name, out in outs.items()}
    with EmbeddedLog(directory, read_only=True) as log:
        records = {record.offset: record.data for record in log.read(0)}
        assert log.verify().end >= len(records)
    for name, pairs in acknowledged.items():
        for number, offset in pairs:
            writer, said, _ = records[offset].split(b" ", 2)
            assert (writer, int(said)) == (name.encode(), number)
    return len(records)


def test_processes_interleave_and_lose_nothing(tmp_path: Path) -> None:
    names = ["ada", "bob", "cyd"]
    outs = {name: tmp_path / name for name in names}
    writers = [_start(tmp_path / "log", name, 200, seed, outs[name]) for seed, name in enumerate(names)]
    assert [writer.wait(60) for writer in writers] == [0, 0, 0]
    total = _check(tmp_path / "log", outs)
    with EmbeddedLog(tmp_path / "log") as log:
        said = [record.data.split(b" ", 2)[:2] for record in log.read(0)]
        assert total == sum(len(_acknowledged(out)) for out in outs.values())
        for name in names:
            assert [int(n) for who, n in said if who == name.encode()] == list(range(len(_acknowledged(outs[name]))))
        assert len({who for who, _ in said[: total // 2]}) > 1, "they did interleave"


def test_a_reader_sees_only_whole_records_in_order_while_others_write(tmp_path: Path) -> None:
    writer = _start(tmp_path / "log", "ada", 400, 1, tmp_path / "out")
    while not (tmp_path / "log" / "frontier").exists() and writer.poll() is None:
        time.sleep(0.01)
    seen = 0
    with EmbeddedLog(tmp_path / "log", read_only=True) as log:
        while writer.poll() is None or seen < log.end():
            acknowledged = len(_acknowledged(tmp_path / "out"))
            end = log.end()
            assert end >= acknowledged
            for record in log.read(seen, end):
                assert int(record.data.split(b" ", 2)[1]) == record.offset == seen
                seen += 1
    assert seen >= 400


def _killing(directory: Path, kills: int, seed: int) -> None:
    """Two writers; one of them is killed at a random moment, and starts again, many times over."""
    dice = random.Random(seed)
    log = directory / "log"
    outs = {"steady": directory / "steady"}
    steady = _start(log, "steady", 100_000, 0, outs["steady"])
    before = 0
    try:
        for kill in range(kills):
            name = f"victim{kill}"
            outs[name] = directory / name
            victim = _start(log, name, 100_000, kill, outs[name], "bites")
            while victim.poll() is None and not outs[name].stat().st_size:
                time.sleep(0.005)
            time.sleep(dice.random() * 0.05)
            victim.send_signal(signal.SIGKILL)
            assert victim.wait() == -signal.SIGKILL
            assert _acknowledged(outs[name])
            if kill % 5 == 4:
                after = _check(log, outs)
                assert after > before
                before = after
    finally:
        steady.kill()
        steady.wait()
    EmbeddedLog(log, segment_bytes=20_000).close()
    _check(log, outs)


@pytest.mark.parametrize(("kills", "seed"), [(7, 2), pytest.param(200, 3, marks=pytest.mark.soak)])
def test_killed_writers_lose_nothing_acknowledged(tmp_path: Path, kills: int, seed: int) -> None:
    _killing(tmp_path, kills, seed)
