"""The search of every disk of a cluster campaign for payloads, filters that are sealed, and keys."""

from __future__ import annotations

import mmap
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import re2

from tests.pipeline.test_canaries import written
from tests.soak.cluster.realm import HIDDEN
from tests.soak.world import CANARY

#: What an operator puts on each machine to open keys with. Journals have the names and numbers of events, no payloads.
_GIVEN: Final = ("unlock.key", ".pgpass")
#: Where something is planted, so that the search is known to look there: below the root, or in the database.
_PLACES: Final = ("worker-0/work", "worker-1/work", "carrier/server/data", "state", "driver/own")


@dataclass
class Found:
    size: int = 0
    leaks_by_file: list[tuple[str, str]] = field(default_factory=list)
    #: Files in which something was planted and found, and those in which it was not.
    planted: list[str] = field(default_factory=list)
    blind: list[str] = field(default_factory=list)

    @property
    def leaks(self) -> list[str]:
        return [f"{what}: {path}" for path, what in self.leaks_by_file]


def search(root: Path, database: Path, secrets: Mapping[str, str]) -> Found:
    """All files below `root` and of the database."""
    needles = dict[bytes, str]()
    for raw, what in {CANARY: "a payload", **{bytes.fromhex(key): name for key, name in secrets.items()}}.items():
        for spelling in written(raw):
            needles.setdefault(spelling, what)
    for name, text in HIDDEN.items():
        needles[text.encode()] = needles[text.encode("utf-16-le")] = f"the filter of {name}"
    pattern = _pattern(needles)
    result = Found()
    for directory in (root, database):
        for path in sorted(directory.rglob("*")):
            for what in _in_file(path, pattern, needles, result):
                result.leaks_by_file.append((str(path), what))
    _plant(root, database, pattern, needles, result)
    return result


def _pattern(needles: Mapping[bytes, str]):  # type: ignore[no-untyped-def]
    options = re2.Options()
    options.encoding, options.max_mem = re2.Options.Encoding.LATIN1, 1 << 30
    return re2.compile(b"|".join(map(re2.escape, sorted(needles, key=len, reverse=True))), options)


def _in_file(path: Path, pattern, needles: Mapping[bytes, str], result: Found) -> Iterator[str]:  # type: ignore[no-untyped-def]
    try:
        if path.name in _GIVEN or path.is_symlink() or not path.is_file() or not (size := path.stat().st_size):
            return
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
            result.size += size
            yield from sorted({needles[match.group()] for match in pattern.finditer(content[:])})
    except (FileNotFoundError, ValueError):
        return  # it went away meanwhile


def _plant(root: Path, database: Path, pattern, needles: Mapping[bytes, str], result: Found) -> None:  # type: ignore[no-untyped-def]
    """A needle of each kind in the middle of a copy of a real file of each place: it is found there, or the search is
    worth nothing."""
    kinds = {what: needle for needle, what in needles.items()}
    for place in (*(root / name for name in _PLACES), database / "data" / "base"):
        files = [path for path in place.rglob("*") if path.is_file() and path.stat().st_size]
        largest = max(files, key=lambda path: path.stat().st_size, default=None)
        if largest is None:
            result.blind.append(f"{place}, which has no file")
            continue
        raw, planted = largest.read_bytes(), largest.with_name("planted")
        middle = len(raw) // 2
        for what, needle in kinds.items():
            planted.write_bytes(raw[:middle] + needle + raw[middle:])
            seen = what in list(_in_file(planted, pattern, needles, Found()))
            (result.planted if seen else result.blind).append(f"{planted}: {what}")
        planted.unlink()
