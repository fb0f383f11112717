"""Every byte of a small log flipped, every file cut at every length: damage is named or harmless, data never wrong."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from sealcast.errors import Corrupt, NotFound
from sealcast.log import files
from sealcast.log.embedded import EmbeddedLog
from sealcast.log.layout import SEGMENT

RECORDS = [bytes([65 + number]) * (11 * number) for number in range(7)]
SEGMENT_BYTES = 300


@pytest.fixture
def log_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A log of three segments with an index that has many marks."""
    monkeypatch.setattr("sealcast.log.sync.INDEX_EVERY_BYTES", 1)
    monkeypatch.setattr(files, "sync_data", lambda fd: None)
    monkeypatch.setattr(files, "sync_directory", lambda path: None)
    directory = tmp_path / "log"
    with EmbeddedLog(directory, segment_bytes=SEGMENT_BYTES) as log:
        for record in RECORDS:
            log.append([record])
    assert len(list(directory.glob("*.seg"))) == 3
    assert len(list(directory.glob("*.idx"))) == 3
    return directory


def _flips(path: Path, masks: tuple[int, ...] = (0x01, 0xFF)) -> Iterator[tuple[int, bytes]]:
    raw = path.read_bytes()
    for at in range(len(raw)):
        for mask in masks:
            yield at, raw[:at] + bytes([raw[at] ^ mask]) + raw[at + 1 :]


def _read(directory: Path, start: int = 0) -> list[bytes]:
    with EmbeddedLog(directory, read_only=True) as log:
        return [record.data for record in log.read(start)]


def _named(damage: Corrupt, path: Path) -> int:
    found = re.search(rf"{re.escape(str(path))}: byte (\d+)", damage.message)
    assert found, damage.message
    return int(found[1])


def test_a_flipped_byte_of_a_segment_is_found_and_named(log_directory: Path) -> None:
    for path in log_directory.glob("*.seg"):
        good = path.read_bytes()
        for at, bad in _flips(path):
            path.write_bytes(bad)
            with pytest.raises(Corrupt) as raised:
                _read(log_directory)
            assert _named(raised.value, path) <= at
            assert "record" in raised.value.message
            for start in range(len(RECORDS)):
                try:
                    assert _read(log_directory, start) == RECORDS[start:], (path.name, at, start)
                except Corrupt as damage:
                    _named(damage, path)
        path.write_bytes(good)


def test_a_writer_repairs_no_flipped_byte_below_the_frontier(log_directory: Path, tmp_path: Path) -> None:
    for name in [path.name for path in log_directory.glob("*.seg")]:
        for at, bad in _flips(log_directory / name, (0x10,)):
            copy = tmp_path / "copy"
            shutil.copytree(log_directory, copy)
            (copy / name).write_bytes(bad)
            added = []
            try:
                with EmbeddedLog(copy, segment_bytes=SEGMENT_BYTES) as log:
                    log.append([b"added"])
                    added = [b"added"]
            except Corrupt as damage:
                _named(damage, copy / name)
            with pytest.raises(Corrupt):
                _read(copy)
            good = (log_directory / name).read_bytes()
            now = (copy / name).read_bytes()
            assert now[: len(good)] == bad, "not a byte below the frontier was touched"
            (copy / name).write_bytes(good + now[len(good) :])
            assert _read(copy) == RECORDS + added, at
            shutil.rmtree(copy)


def test_a_flipped_byte_of_the_frontier_loses_nothing(log_directory: Path, tmp_path: Path) -> None:
    path = log_directory / "frontier"
    good = path.read_bytes()
    for at, bad in _flips(path, (0x10,)):
        if at % 512 > 150 and at % 16:
            continue  # most of a slot is padding; some of it will do
        path.write_bytes(bad)
        seen = _read(log_directory)
        assert seen == RECORDS[: len(seen)] and len(seen) >= len(RECORDS) - 1, "one append behind at most"
        copy = tmp_path / "copy"
        shutil.copytree(log_directory, copy)
        with EmbeddedLog(copy, segment_bytes=SEGMENT_BYTES) as log:
            assert log.append([b"added"]) == range(len(RECORDS), len(RECORDS) + 1), at
        assert _read(copy) == [*RECORDS, b"added"]
        shutil.rmtree(copy)
    path.write_bytes(good)


@pytest.mark.parametrize("pattern", ["*.idx", "*.lock"])
def test_a_flipped_byte_of_an_index_or_a_lock_changes_nothing(log_directory: Path, pattern: str) -> None:
    for path in log_directory.glob(pattern):
        good = path.read_bytes()
        for at, bad in [*_flips(path), (0, good + b"more"), (0, good[:-1]), (0, b"")]:
            path.write_bytes(bad)
            for start in range(len(RECORDS)):
                assert _read(log_directory, start) == RECORDS[start:], at
        path.write_bytes(good)
        with EmbeddedLog(log_directory, segment_bytes=SEGMENT_BYTES) as log:
            assert log.offset_at(0) == 0


def test_a_segment_cut_at_any_length_is_refused_and_left_alone(log_directory: Path) -> None:
    for path in log_directory.glob("*.seg"):
        good = path.read_bytes()
        for length in range(len(good)):
            path.write_bytes(good[:length])
            with pytest.raises(Corrupt) as raised:
                _read(log_directory)
            assert _named(raised.value, path) <= length
            if path == max(log_directory.glob("*.seg")):
                with pytest.raises(Corrupt, match="cut short|header"):
                    EmbeddedLog(log_directory)
            assert path.read_bytes() == good[:length]
        path.write_bytes(good)
    assert _read(log_directory) == RECORDS


def test_a_frontier_cut_at_any_length_loses_nothing(log_directory: Path, tmp_path: Path) -> None:
    raw = (log_directory / "frontier").read_bytes()
    for length in range(0, len(raw), 37):
        copy = tmp_path / "copy"
        shutil.copytree(log_directory, copy)
        (copy / "frontier").write_bytes(raw[:length])
        try:
            seen = _read(copy)
            assert seen == RECORDS[: len(seen)] and len(seen) >= len(RECORDS) - 1
        except Corrupt as damage:
            assert "frontier" in damage.message
        with EmbeddedLog(copy, segment_bytes=SEGMENT_BYTES) as log:
            assert [r.data for r in log.read(0)] == RECORDS
        shutil.rmtree(copy)


def test_a_writer_that_dies_in_its_first_frontier_leaves_an_empty_log(log_directory: Path, tmp_path: Path) -> None:
    """Half of the first copy that readers go by, and no second one. If there are records, it is damage."""
    new = tmp_path / "new"
    EmbeddedLog(new, segment_bytes=SEGMENT_BYTES).close()
    for directory in (new, log_directory):
        raw = (directory / "frontier").read_bytes()
        (directory / "frontier").write_bytes(raw[:1024] + bytes(512) + raw[1536 : 1536 + 40])
    assert _read(new) == []
    with EmbeddedLog(new, segment_bytes=SEGMENT_BYTES) as log:
        log.append(RECORDS[:1])
    assert _read(new) == RECORDS[:1]
    with pytest.raises(Corrupt, match="the frontier is lost; records are there"):
        _read(log_directory)


def test_a_damaged_frontier_forbids_cutting_the_tail(log_directory: Path) -> None:
    """Two faults at once: then a broken last record may be an acknowledged one, and is not thrown away."""
    last = max(log_directory.glob("*.seg"))
    good, frontier = last.read_bytes(), (log_directory / "frontier").read_bytes()
    slot = max((1024, 1536), key=lambda at: int.from_bytes(frontier[at + 4 : at + 12], "little"))
    bad = bytearray(frontier)
    bad[slot + 60] ^= 1
    (log_directory / "frontier").write_bytes(bad)
    broken = good[:-1] + bytes([good[-1] ^ 1]) + b"torn"
    last.write_bytes(broken)
    with pytest.raises(Corrupt, match="nothing was repaired"):
        EmbeddedLog(log_directory)
    assert last.read_bytes() == broken


# --- whole files ---------------------------------------------------------------------------------


def test_a_removed_segment_is_missed(log_directory: Path, tmp_path: Path) -> None:
    first, middle, last = sorted(log_directory.glob("*.seg"))
    aside = tmp_path / "aside"
    middle.rename(aside)
    with pytest.raises(Corrupt, match="what follows begins with"):
        _read(log_directory)
    aside.rename(middle)
    last.rename(aside)
    with pytest.raises(Corrupt, match="is gone; it was durable"):
        _read(log_directory)
    with pytest.raises(NotFound, match="does not exist"):
        EmbeddedLog(log_directory)
    aside.rename(last)
    first.unlink()
    assert _read(log_directory, int(middle.stem)) == RECORDS[int(middle.stem) :], "as retention does it"


def test_a_segment_of_another_log_does_not_fit(log_directory: Path, tmp_path: Path) -> None:
    """The same records, appended to another log: every checksum in it is right."""
    with EmbeddedLog(tmp_path / "other", segment_bytes=SEGMENT_BYTES) as log:
        for record in RECORDS:
            log.append([record])
    name = sorted(log_directory.glob("*.seg"))[1].name
    shutil.copy(tmp_path / "other" / name, log_directory / name)
    with pytest.raises(Corrupt, match="does not continue the chain"):
        _read(log_directory)


def test_records_cannot_be_moved_repeated_or_left_out(log_directory: Path) -> None:
    path = min(log_directory.glob("*.seg"))
    raw = path.read_bytes()
    head, one, two, rest = raw[: SEGMENT.size], raw[44:88], raw[88:143], raw[143:]
    assert len(one) == 44 and two.endswith(RECORDS[1])
    for forged in (head + two + one + rest, head + one + one + two + rest, head + two + rest, head + one + rest):
        path.write_bytes(forged)
        with pytest.raises(Corrupt):
            _read(log_directory)
