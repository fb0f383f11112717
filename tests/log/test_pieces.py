"""Staged pieces: once however often, verified whenever read, collected only if the ledger does not name them."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from sealcast.errors import Corrupt, DiskFull, Misuse, NotFound
from sealcast.log import files
from sealcast.log.pieces import Pieces
from sealcast.model.event import Position
from tests.log.topics import TopicMaker


def test_staging_twice_is_staging_once(tmp_path: Path) -> None:
    pieces = Pieces(tmp_path / "pieces")
    staged = pieces.stage(3, 10, 20, b"sealed")
    assert pieces.stage(3, 10, 20, b"sealed") == staged
    assert pieces.names() == [staged.name]
    assert staged.name.startswith("0003-0000000000010-0000000000020-")
    assert pieces.read(staged.name, staged.digest) == b"sealed"
    assert pieces.stage(3, 10, 20, b"other").name != staged.name
    assert os.stat(pieces.path(staged.name)).st_mode & 0o777 == 0o600


def test_a_damaged_leftover_is_written_again(tmp_path: Path) -> None:
    pieces = Pieces(tmp_path)
    staged = pieces.stage(0, 0, 1, b"sealed")
    for damage in (b"", b"seal", b"Sealed", b"sealed and more"):
        pieces.path(staged.name).write_bytes(damage)
        with pytest.raises(Corrupt, match="not the piece that was committed"):
            pieces.read(staged.name, staged.digest)
        assert pieces.stage(0, 0, 1, b"sealed") == staged
        assert pieces.read(staged.name, staged.digest) == b"sealed"


@pytest.mark.parametrize(
    "name", ["../../realm.json", "/etc/passwd", "x.piece", "", "0000-0000000000000-0000000000001-00.piece"]
)
def test_only_names_of_pieces_are_opened(tmp_path: Path, name: str) -> None:
    with pytest.raises(Misuse, match="not the name of a piece"):
        Pieces(tmp_path).read(name, bytes(32))


def test_a_missing_piece(tmp_path: Path) -> None:
    with pytest.raises(NotFound):
        Pieces(tmp_path).read("0000-0000000000000-0000000000001-0123456789abcdef.piece", bytes(32))


@pytest.mark.parametrize(
    ("partition", "first", "end", "data"), [(0, 1, 1, b"x"), (0, 2, 1, b"x"), (-1, 0, 1, b"x"), (0, 0, 1, b"")]
)
def test_a_piece_covers_something(tmp_path: Path, partition: int, first: int, end: int, data: bytes) -> None:
    with pytest.raises(Misuse):
        Pieces(tmp_path).stage(partition, first, end, data)


def test_a_full_disk_leaves_no_piece_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(fd: int, raw: bytes, position: int) -> None:
        os.write(fd, raw[:3])
        raise OSError(28, "No space left on device")

    pieces = Pieces(tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(files, "write_all", full)
        with pytest.raises(DiskFull):
            pieces.stage(0, 0, 1, b"sealed")
    assert os.listdir(tmp_path) == []
    pieces.stage(0, 0, 1, b"sealed")


def test_garbage_is_what_no_record_names_and_no_batch_is_making(tmp_path: Path) -> None:
    topic = TopicMaker(tmp_path, partitions=1)
    entry = topic.batch([3], {Position(0, 0, 1): [5]})
    dead = topic.pieces.stage(0, 3, 4, b"of a batch that died")
    half = tmp_path / "pieces" / f".{dead.name}.abc.tmp"
    half.write_bytes(b"half")
    (tmp_path / "pieces" / "README").write_text("not ours")
    past = time.time() - 100
    for path in (tmp_path / "pieces").iterdir():
        os.utime(path, (past, past))
    began = time.time_ns() // 1000 - 50_000_000
    running = topic.pieces.stage(0, 3, 4, b"of the running batch")
    assert topic.ledger.collect(topic.pieces, began) == sorted([half.name, dead.name])
    assert topic.pieces.names() == sorted([running.name, *(piece.name for piece in entry.pieces)])
    assert topic.ledger.collect(topic.pieces, began) == []
    assert (tmp_path / "pieces" / "README").exists()


def test_a_piece_that_is_staged_again_is_young_again(tmp_path: Path) -> None:
    topic = TopicMaker(tmp_path, partitions=1)
    staged = topic.pieces.stage(0, 0, 1, b"first attempt")
    os.utime(topic.pieces.path(staged.name), (1, 1))
    began = time.time_ns() // 1000 - 1_000_000
    topic.pieces.stage(0, 0, 1, b"first attempt")
    assert topic.ledger.collect(topic.pieces, began) == []
