"""Sealed pieces: staged by tasks, named by the ledger, immutable. As files; `carried_pieces` has them on a carrier.

A task writes its piece under a temporary name, syncs, and renames it to a name made of its offset range and its
digest. A task that is run again makes the same bytes, or others that say the same, under another name: doing it twice
is doing it once. A piece exists for readers when a ledger record names it; one that no record ever named is garbage,
and is collected.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Final, Protocol

from sealcast.errors import Corrupt, Misuse, NotFound
from sealcast.log import files
from sealcast.model.dataclass import dataclass
from sealcast.wire.limits import MAX_PIECE_BYTES

DIGEST_BYTES: Final = 32
_NAME: Final = re.compile(r"[0-9]{4}-[0-9]{13}-[0-9]{13}-[0-9a-f]{16}\.piece")
#: What a task that died while writing leaves behind (files.replace_file).
_TEMPORARY: Final = re.compile(r"\.[0-9a-f-]+\.piece\..*\.tmp")


@dataclass(frozen=True, slots=True)
class StagedPiece:
    """A piece that is on disk, durable, and not yet committed."""

    name: str
    digest: bytes
    size: int


class PieceStore(Protocol):
    """The pieces of a topic, wherever they are kept."""

    def stage(self, partition: int, first: int, end: int, data: bytes) -> StagedPiece:
        """Keep the piece made from frames `first` to before `end` of a partition, durably."""

    def read(self, name: str, digest: bytes) -> bytes:
        """The bytes of a piece, verified."""

    def bytes_of(self, name: str) -> bytes:
        """The bytes of a piece, whatever they are; NotFound if there is none of that name."""

    def has(self, name: str) -> bool:
        """Whether there is a piece of that name."""

    def names(self) -> list[str]:
        """Every piece, committed or not, by partition and offset."""

    def untouched_since(self, time_us: int) -> list[str]:
        """Pieces that nobody has touched since that time: perhaps garbage."""

    def remove(self, names: Iterable[str]) -> None:
        """Delete pieces. `Ledger.collect` calls this, and knows which are garbage."""


def described(partition: int, first: int, end: int, data: bytes) -> StagedPiece:
    """How the piece made from frames `first` to before `end` of a partition is called."""
    if not 0 <= first < end or partition < 0:
        raise Misuse(f"a piece covers at least one frame, not {first} to {end} of partition {partition}")
    if not 0 < len(data) <= MAX_PIECE_BYTES:
        raise Misuse(f"a piece has 1 to {MAX_PIECE_BYTES} bytes, not {len(data)}")
    digest = hashlib.sha256(data).digest()
    return StagedPiece(f"{partition:04}-{first:013}-{end:013}-{digest.hex()[:16]}.piece", digest, len(data))


class Pieces:
    """The pieces of a topic, in a directory of their own."""

    def __init__(self, directory: Path | str) -> None:
        self.directory = Path(directory)

    def stage(self, partition: int, first: int, end: int, data: bytes) -> StagedPiece:
        """Write the piece made from frames `first` to before `end` of a partition, durably."""
        staged = described(partition, first, end, data)
        files.make_directory(self.directory)
        if not self._settle(staged):
            files.replace_file(self.directory / staged.name, data)
        return staged

    def _settle(self, staged: StagedPiece) -> bool:
        """Is the very piece there already? Whoever wrote it may have died before it was durable: sync it."""
        try:
            self.read(staged.name, staged.digest)
        except (NotFound, Corrupt):
            return False
        path = self.directory / staged.name
        with files.named(path, "syncing"):
            # Its age is counted from its last use: a batch that runs again must not find it collected.
            os.utime(path)
            with files.opened(path, os.O_RDONLY) as fd:
                files.sync_data(fd)
            files.sync_directory(self.directory)
        return True

    def read(self, name: str, digest: bytes) -> bytes:
        """The bytes of a piece, verified."""
        return verified(self.bytes_of(name), digest, str(self.path(name)))

    def bytes_of(self, name: str) -> bytes:
        """The bytes of a piece, whatever they are.

        Read and not mapped: what is verified then is what the caller gets, whatever happens to the file meanwhile.
        """
        path = self.path(name)
        fd = files.open_existing(path)
        with files.named(path, "reading"), os.fdopen(fd, "rb") as file:
            size = os.fstat(file.fileno()).st_size
            if size > MAX_PIECE_BYTES:
                raise Corrupt(f"{path} has {size} bytes; a piece has at most {MAX_PIECE_BYTES}")
            return file.read(size)

    def has(self, name: str) -> bool:
        return self.path(name).exists()

    def path(self, name: str) -> Path:
        return self.directory / checked_name(name)

    def names(self) -> list[str]:
        """Every piece on disk, committed or not, by partition and offset."""
        if not self.directory.is_dir():
            return []
        return sorted(name for name in os.listdir(self.directory) if _NAME.fullmatch(name))

    def untouched_since(self, time_us: int) -> list[str]:
        """Files of ours, half-written ones included, that nobody has touched since that time: perhaps garbage."""
        if not self.directory.is_dir():
            return []
        with files.named(self.directory, "listing"), os.scandir(self.directory) as found:
            ours = [f for f in found if _NAME.fullmatch(f.name) or _TEMPORARY.fullmatch(f.name)]
            return sorted(f.name for f in ours if f.stat().st_mtime_ns // 1000 < time_us)

    def remove(self, names: Iterable[str]) -> None:
        """Delete files. `Ledger.collect` calls this, and knows which are garbage."""
        if not self.directory.is_dir():
            return  # nothing was ever staged
        with files.named(self.directory, "collecting in"):
            for name in names:
                (self.directory / name).unlink(missing_ok=True)
            files.sync_directory(self.directory)


def checked_name(name: str) -> str:
    """The name, if a piece can have it."""
    if not _NAME.fullmatch(name):
        raise Misuse(f"{name!r} is not the name of a piece")
    return name


def verified(data: bytes, digest: bytes, where: str) -> bytes:
    """The bytes, if they are those that were committed."""
    if hashlib.sha256(data).digest() != digest:
        raise Corrupt(f"{where} is not the piece that was committed: its digest differs", hint="restore it from a copy")
    return data
