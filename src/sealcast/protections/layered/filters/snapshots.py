"""Snapshots of a broker's tables: so that a restart costs the rows that there are, not all that ever were.

    filters/snapshots/VERSION.snap = "SCFT2" | head length u32 | head (CBOR) | columns | tag (HMAC, by the journal key)

The head says what the columns are, and the tag of the last turn in it: a snapshot belongs to one log, at one version,
and to no other. One that is damaged, forged or of another log is not used: the log is folded instead, which is slower
and gives the same. Only the newest few are kept.

Columns of a tree, little-endian: slots a row u32; by which slot a row is found u32; tokens a slot u32; bytes a token
u16; all tokens, joined; then the streams' rows, in their order: row u32, path u32, count u32.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import suppress
from itertools import chain
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from sealcast.errors import FrameRejected
from sealcast.log import files
from sealcast.primitives import mac
from sealcast.primitives.groups import Element
from sealcast.primitives.secrets import Secret, Unpicklable
from sealcast.protections.layered import tree as trees
from sealcast.protections.layered.filters.fold import PostCredential, TableFold, TreeTable, size_of
from sealcast.protections.layered.filters.kept import Kept
from sealcast.protections.layered.filters.records import CONTEXT, Stream
from sealcast.protections.layered.tree import TreeId, TreePlace
from sealcast.wire import cbor

MAGIC: Final = b"SCFT2"
#: The newest, and those that batches which are run again may still ask for.
KEPT: Final = 3
_U32: Final = np.dtype("<u4")
_U16: Final = np.dtype("<u2")


class TableSnapshots(Unpicklable):
    """Those of one broker and topic. The keeper writes; whoever has the broker's journal key reads."""

    def __init__(self, directory: Path, key: Secret, about: bytes) -> None:
        self.directory = directory
        self._key, self._about = key, about

    def versions(self) -> list[int]:
        """Those that are there, ascending."""
        if not self.directory.is_dir():
            return []
        return sorted(int(p.stem) for p in self.directory.glob("*.snap") if p.stem.isdecimal())

    def save(self, fold: TableFold, last_tag: bytes) -> None:
        """`last_tag` is that of the log's record `fold.version - 1`."""
        files.make_directory(self.directory)
        payload = b"".join(_written(fold, last_tag))
        tag = mac.tag(self._key, CONTEXT, b"snapshot", self._about, hashlib.sha256(payload).digest())
        files.replace_file(self._path(fold.version), payload + tag)
        for version in self.versions()[:-KEPT]:
            with suppress(FileNotFoundError):
                self._path(version).unlink()

    def load(self, name: str, version: int, last_tag: bytes) -> TableFold | None:
        """The tables at that version; None if the snapshot is not what this broker wrote then, of this log."""
        try:
            raw = self._path(version).read_bytes()
        except FileNotFoundError:
            return None
        payload, tag = raw[: -mac.TAG_BYTES], raw[-mac.TAG_BYTES :]
        if not mac.verify(self._key, tag, CONTEXT, b"snapshot", self._about, hashlib.sha256(payload).digest()):
            return None
        size = int.from_bytes(payload[len(MAGIC) : len(MAGIC) + 4], "big")
        start = len(MAGIC) + 4
        try:
            head = cbor.decode(payload[start : start + size], max_bytes=size, max_items=1 << 28)
        except FrameRejected:
            return None
        match head:
            case [int(at), bytes(follows), *_] if payload.startswith(MAGIC) and (at, follows) == (version, last_tag):
                return _read(name, head, memoryview(payload)[start + size :])
        return None

    def _path(self, version: int) -> Path:
        return self.directory / f"{version:020d}.snap"


# --- writing --------------------------------------------------------------------------------------


def _written(fold: TableFold, last_tag: bytes) -> Iterator[bytes]:
    heads, columns = [], list[bytes]()
    for number, tree in fold.trees.items():
        described, data = _tree(tree)
        heads.append([number, *tree.id, tree.place.chain, tree.place.layers, *described])
        columns.extend(data)
    credentials = [[name, c.token, c.until_us] for name, c in fold.credentials.items()]
    numbers = [fold.taken, fold.opened, fold.changed, *fold.kept, fold.scanned]
    head = cbor.encode([fold.version, last_tag, numbers, dict(fold.refused), credentials, heads])
    yield from (MAGIC, len(head).to_bytes(4, "big"), head, *columns)


def _tree(tree: TreeTable) -> tuple[list[object], list[bytes]]:
    rows = list(tree.table.rows())
    at = {row.slots: i for i, row in enumerate(rows)}
    slots = list(chain.from_iterable(row.slots for row in rows))
    tokens = list(chain.from_iterable(slots))
    entries = [(at[s], path, count) for each in tree.rows.values() for (s, path), count in each.items()]
    paths = {path: i for i, path in enumerate(dict.fromkeys(path for _, path, _ in entries))}
    streams = [[*stream, len(each)] for stream, each in tree.rows.items()]
    heads = [[*stream, number] for stream, number in tree.heads.items()]
    columns = [
        _column(_U32, (len(row.slots) for row in rows), len(rows)),
        _column(_U32, (row.found_by for row in rows), len(rows)),
        _column(_U32, map(len, slots), len(slots)),
        _column(_U16, map(len, tokens), len(tokens)),
        b"".join(tokens),
        _column(_U32, (row for row, _, _ in entries), len(entries)),
        _column(_U32, (paths[path] for _, path, _ in entries), len(entries)),
        _column(_U32, (count for _, _, count in entries), len(entries)),
    ]
    return [heads, streams, list(paths), [len(rows), len(slots), len(tokens), len(columns[4])]], columns


def _column(kind: np.dtype[Any], values: Any, count: int) -> bytes:
    return np.fromiter(values, kind, count).tobytes()


# --- reading: the tag was verified, so this is what was written ---------------------------------------


def _read(name: str, head: list[Any], columns: memoryview) -> TableFold:
    version, _, (taken, opened, changed, epoch, generation, *scanned), refused, credentials, described = head
    fold = TableFold(name)
    fold.version, fold.taken, fold.opened, fold.changed = version, taken, opened, changed
    fold.kept, fold.scanned = Kept(epoch, generation), max([taken, *scanned])
    fold.refused.update(refused)
    fold.credentials = {who: PostCredential(token, until_us) for who, token, until_us in credentials}
    at = 0
    for number, publisher, epoch, generation, above, layers, heads, streams, paths, sizes in described:
        id = TreeId(publisher, epoch, generation)
        tree = fold.trees[number] = TreeTable(id, TreePlace(name, tuple(above), publisher, layers))
        fold.numbers[id] = number
        tree.heads = {Stream(sender, own): n for sender, own, n in heads}
        at = _fill(tree, streams, [tuple(path) for path in paths], sizes, columns, at)
    return fold


def _fill(
    tree: TreeTable, streams: list[Any], paths: list[trees.Path], sizes: list[int], columns: memoryview, at: int
) -> int:
    """The rows of one tree; where the next one's begin."""
    rows, slots, tokens, size = sizes
    entries = sum(n for _, _, n in streams)

    def column(kind: np.dtype[Any], count: int) -> NDArray[Any]:
        nonlocal at
        found = np.frombuffer(columns, kind, count, at) if count else np.empty(0, kind)
        at += kind.itemsize * count
        return found

    slots_each, found_by = column(_U32, rows).tolist(), column(_U32, rows).tolist()
    tokens_each, lengths = column(_U32, slots).tolist(), column(_U16, tokens)
    raw = bytes(columns[at : at + size])
    at += size
    ends = np.cumsum(lengths, dtype=np.int64).tolist()
    elements = [Element(raw[a:b]) for a, b in zip([0, *ends], ends, strict=False)]
    conjunctions = _grouped(_grouped(elements, tokens_each), slots_each)
    made = [tree.table.restore(s, by, {}) for s, by in zip(conjunctions, found_by, strict=True)]
    row_of, path_of, counts = (column(_U32, entries).tolist() for _ in range(3))
    sizes_of = list(map(size_of, conjunctions))
    first = 0
    for sender, own, n in streams:
        mine = tree.rows[Stream(sender, own)] = {}
        size = 0
        for i in range(first, first + n):
            row, path, count = made[row_of[i]], paths[path_of[i]], counts[i]
            mine[row.slots, path] = count
            row.paths[path] = row.paths.get(path, 0) + count
            size += sizes_of[row_of[i]]
        tree.tokens[Stream(sender, own)] = size
        first += n
    return at


def _grouped(items: list[Any], sizes: list[int]) -> list[tuple[Any, ...]]:
    found, start = [], 0
    for size in sizes:
        found.append(tuple(items[start : start + size]))
        start += size
    return found
