"""One moment of a realm that runs on: which files there are, and how much of each belongs to it.

    (1) cursors, heads and notes      whoever wrote them had seen less than what follows. Consumer groups are cursors,
                                      also where they are in the registry's database
    (2) logs                          how far each is durable, all asked while nobody can append to any of them; on
                                      carriers, those who take from others first (`carried`)
    (3) the registry                  ledgers are pinned to versions that it has
    (4) keys                          what the registry names is there already
    (5) pieces                        those that the ledgers name, as far as (2)

What a log has up to a mark never changes. So logs are held for as long as their marks are read, and copied afterwards.
A piece or a segment that is gone by then was replaced or dropped: then the moment has passed, and the next is taken.

A registry on a server is copied into a file, which has the name that a registry has in a realm's directory.

Left out is what is made again by itself: Spark's checkpoints, compiled tables, snapshots of the registry, locks.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, closing
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from types import MappingProxyType
from typing import Final

from sealcast.errors import Corrupt
from sealcast.log import files
from sealcast.log.frontier import NAME as FRONTIER
from sealcast.log.frontier import Frontier
from sealcast.log.group_file import GroupFiles
from sealcast.log.layout import Mark
from sealcast.log.segment import list_segments, path_of
from sealcast.trust.backups.carried import CarriedMoment, MomentPassed
from sealcast.trust.layout import Layout
from sealcast.trust.shared_groups import SharedGroups
from sealcast.trust.storage import copying
from sealcast.trust.storage.address import Server

_MADE_AGAIN: Final = frozenset({"checkpoint", "tables", "snapshots"})
_SQLITE: Final = ".sqlite"
_SEGMENTS: Final = (".seg", ".idx")
_LATER: Final = ("secrets", "entities")
#: Locks, files that are just being written, and what SQLite keeps beside a database.
_NOT_KEPT: Final = ("lock", ".tmp", "-wal", "-shm", "-journal")
_SCRATCH: Final = ".backup-"


@dataclass(frozen=True, slots=True)
class BackupPart:
    """A file of a backup: where it is put, where it is read from, and how much of it."""

    name: str
    path: Path
    #: None: all of it, as it is when it is read.
    size: int | None = None


class BackupMoment:
    """One moment of the realm in a directory."""

    def __init__(
        self,
        root: Path,
        scratch: Path,
        carried: CarriedMoment,
        registry: Server | None = None,
        groups: Mapping[str, SharedGroups] = MappingProxyType({}),
    ) -> None:
        """Copies of databases are put into `scratch`, also of a `registry` that is on a server, and of the `groups`
        there, by topic."""
        self._root, self._scratch, self._registry, self._carried = root, scratch, registry, carried
        self._groups = groups
        self.parts: list[BackupPart] = []

    def take(self) -> list[BackupPart]:
        """Fixes the moment: what is to be copied, in any order."""
        plain = [path for path in self._files() if path.suffix != _SQLITE]
        logs = sorted({path.parent for path in plain if path.suffix in _SEGMENTS or path.name == FRONTIER})
        within = set(logs)
        early, late = list[Path](), list[Path]()
        for path in plain:
            if path.suffix in _SEGMENTS or path.name == FRONTIER or path.suffix == ".piece":
                continue
            of_keys = path.relative_to(self._root).parts[0] in _LATER and path.suffix != ".head"
            (late if of_keys else early).append(path)
        self._copy(early)  # (1)
        for group in sorted(path for path in _files(self._root) if _is_group(path)):
            self._copy_database(group)
        self._copy_groups()
        marks = _marks(logs)  # (2)
        self._carried.mark()
        for database in sorted(path for path in _files(self._root) if path.suffix == _SQLITE):  # (3)
            if _is_group(database):
                continue
            if self._registry is None or database != Layout(self._root).registry:
                self._copy_database(database)
        if self._registry is not None:
            self._copy_server(self._registry)
        self._copy(late)  # (4)
        for log, mark in marks.items():
            self._add_log(log, mark)
        for path in self._files():  # (5), and those that no ledger names yet: they are garbage, and few
            if path.suffix == ".piece" and path.parent not in within:
                self._add(path)
        self._add_carried()
        return self.parts

    def _files(self) -> Iterator[Path]:
        return (path for path in _files(self._root) if not self._carried.leaves_out(path))

    def _add_carried(self) -> None:
        """What carriers have, as files in their place."""
        self._carried.copy()
        for path in _files(self._carried.into) if self._carried.into.is_dir() else ():
            if path.name != FRONTIER and path.suffix != ".idx":
                self.parts.append(BackupPart(path.relative_to(self._carried.into).as_posix(), path))

    def _name(self, path: Path) -> str:
        return path.relative_to(self._root).as_posix()

    def _add(self, path: Path, size: int | None = None) -> None:
        self.parts.append(BackupPart(self._name(path), path, size))

    def _copy(self, paths: list[Path]) -> None:
        """Small files that others replace: as they are now."""
        for path in paths:
            kept = self._scratch / str(len(self.parts))
            try:
                kept.write_bytes(path.read_bytes())
            except FileNotFoundError:
                continue  # replaced or removed while we looked: nobody relies on it
            self.parts.append(BackupPart(self._name(path), kept))

    def _copy_groups(self) -> None:
        for topic, groups in self._groups.items():
            there = GroupFiles(Layout(self._root).topic(topic).groups)
            for reader, name in groups.stored():
                kept = GroupFiles(self._scratch / str(len(self.parts))).of(reader, name)
                groups.of(reader, name).copy_to(kept)
                self.parts.append(BackupPart(self._name(there.of(reader, name).path), kept.path))

    def _copy_database(self, path: Path) -> None:
        kept = self._scratch / str(len(self.parts))
        try:
            source, to = sqlite3.connect(f"{path.as_uri()}?mode=rw", uri=True), sqlite3.connect(kept)
            with closing(source), closing(to):
                source.backup(to)
        except sqlite3.Error as error:
            raise Corrupt(
                f"{path} cannot be copied: {error}", hint="see what is wrong: sealcast registry show"
            ) from None
        self.parts.append(BackupPart(self._name(path), kept))

    def _copy_server(self, registry: Server) -> None:
        kept = self._scratch / str(len(self.parts))
        copying.copy(registry, kept)
        self.parts.append(BackupPart(self._name(Layout(self._root).registry), kept))

    def _add_log(self, log: Path, mark: Mark | None) -> None:
        if mark is None:
            return  # it was never appended to, and is made again by whoever does
        for first in list_segments(log):
            path = path_of(log, first)
            if first < mark.segment:
                self._add(path, _size(path))
            elif first == mark.segment:
                self._add(path, mark.position)


def _marks(logs: list[Path]) -> dict[Path, Mark | None]:
    """How far each log is durable, while none of them can be appended to."""
    with ExitStack() as held:
        for log in logs:
            if (log / "append.lock").exists():
                lock = files.FileLock(log / "append.lock")
                held.callback(lock.close)
                held.enter_context(lock)
        return {log: _durable(log) for log in logs}


def _durable(log: Path) -> Mark | None:
    try:
        with closing(Frontier(log, writable=False)) as frontier:
            return frontier.durable()
    except FileNotFoundError:
        return None


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        raise MomentPassed(f"{path} was removed while it was to be copied", hint="try again") from None


def _is_group(path: Path) -> bool:
    """Whether it is the database of a consumer group."""
    return path.suffix == _SQLITE and path.parent.parent.name == "groups"


def _files(root: Path) -> Iterator[Path]:
    """Every file of a realm that is not made again by itself."""
    for path in sorted(root.iterdir()):
        if path.is_dir() and not path.is_symlink():
            if path.name not in _MADE_AGAIN and not path.name.startswith(_SCRATCH):
                yield from _files(path)
        elif path.is_file() and not path.name.endswith(_NOT_KEPT):
            yield path


def scratch(root: Path) -> TemporaryDirectory[str]:
    """Where copies are put meanwhile: in the realm, so that it is as private as what is copied."""
    return TemporaryDirectory(prefix=_SCRATCH, dir=root)
