"""A compiled index as one file, which workers map into memory.

    file = magic | length of the header | SHA-256 of the header | header (JSON) | arrays, each at a multiple of 64 bytes

The header names every array with its type, shape, place and SHA-256. A file is written beside its name and then
renamed, so that a reader sees all of it or nothing; whatever is not what was written is refused, never half used.
No pickle: a snapshot can say what the bounds are, not what to run.
"""

from __future__ import annotations

import hashlib
import json
import mmap
import os
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import numpy as np

from sealcast.errors import Corrupt, NotFound
from sealcast.filters.index.arrays import Array, Arrays, from_arrays, to_arrays
from sealcast.filters.index.core import Index

_MAGIC: Final = b"sealcast index 2"
_PREFIX: Final = struct.Struct(f"<{len(_MAGIC)}sQ32s")
_ALIGN: Final = 64
_TYPES: Final = frozenset({"int64", "float64", "uint64", "bool", "uint8"})
#: Bytes of a header at most: a few hundred arrays need some tens of kilobytes.
MAX_HEADER_BYTES: Final = 1 << 20


def to_bytes(index: Index) -> bytes:
    """The index as one file has it."""
    return b"".join(_parts(index))


def from_bytes(data: bytes) -> Index:
    """The index in `data`, its arrays not copied. Corrupt if it is not what was written."""
    if len(data) < _PREFIX.size:
        raise Corrupt("too short to be an index")
    return from_arrays(_read(data))


def _parts(index: Index) -> Iterator[bytes]:
    arrays = {name: np.ascontiguousarray(array) for name, array in to_arrays(index).items()}
    header = _header(arrays)
    yield _PREFIX.pack(_MAGIC, len(header), hashlib.sha256(header).digest()) + header
    yield from map(_stored, arrays.values())


def save(path: Path, index: Index) -> None:
    """Write the index to `path`, all of it or nothing."""
    unfinished = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with unfinished.open("wb") as file:
            file.writelines(_parts(index))
            file.flush()
            os.fsync(file.fileno())
        unfinished.replace(path)
    finally:
        unfinished.unlink(missing_ok=True)


def load(path: Path) -> Index:
    """The index in `path`, its arrays mapped, not copied. Corrupt, naming the file, if it is not what was written."""
    try:
        with path.open("rb") as file:
            if os.fstat(file.fileno()).st_size < _PREFIX.size:
                raise Corrupt(f"{path}: too short to be an index")
            # Not closed here: the arrays stand on it, and the last of them lets it go.
            mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    except FileNotFoundError:
        raise NotFound(f"there is no index at {path}") from None
    try:
        return from_arrays(_read(mapped))
    except Corrupt as error:
        raise Corrupt(f"{path}: {error.message}", hint="delete it; it is built again from the subscriptions") from None


def _padded(size: int) -> int:
    return size + -size % _ALIGN


def _stored(array: Array) -> bytes:
    """An array's bytes as they lie in the file, up to the next array."""
    return array.tobytes().ljust(_padded(array.nbytes), b"\0")


def _header(arrays: Arrays) -> bytes:
    entries: list[dict[str, object]] = []
    at = 0
    for name, array in arrays.items():
        digest = hashlib.sha256(_stored(array)).hexdigest()
        entries.append({"name": name, "type": array.dtype.name, "shape": array.shape, "at": at, "sha256": digest})
        at += _padded(array.nbytes)
    header = json.dumps({"arrays": entries, "bytes": at}).encode()
    return header + b" " * (-(_PREFIX.size + len(header)) % _ALIGN)


def _read(mapped: mmap.mmap | bytes) -> Arrays:
    magic, length, digest = _PREFIX.unpack_from(mapped)
    if magic != _MAGIC:
        raise Corrupt("does not begin as an index does")
    if length > min(MAX_HEADER_BYTES, len(mapped) - _PREFIX.size):
        raise Corrupt(f"cut off at byte {len(mapped)}, within the header")
    raw = mapped[_PREFIX.size : _PREFIX.size + length]
    if hashlib.sha256(raw).digest() != digest:
        raise Corrupt(f"the header at byte {_PREFIX.size} was altered")
    header: dict[str, Any] = json.loads(raw)
    start = _PREFIX.size + length
    if len(mapped) != start + header["bytes"]:
        raise Corrupt(f"has {len(mapped)} bytes, not {start + header['bytes']}")
    return {entry["name"]: _array(mapped, start + entry["at"], entry) for entry in header["arrays"]}


def _array(mapped: mmap.mmap | bytes, at: int, entry: dict[str, Any]) -> Array:
    if entry["type"] not in _TYPES:
        raise Corrupt(f"array {entry['name']!r} has type {entry['type']!r}")
    size = int(np.prod(entry["shape"], dtype=np.int64))
    with memoryview(mapped) as whole, whole[at : at + _padded(size * np.dtype(entry["type"]).itemsize)] as stored:
        if hashlib.sha256(stored).hexdigest() != entry["sha256"]:
            raise Corrupt(f"array {entry['name']!r} at byte {at} was altered")
    array = np.frombuffer(mapped, entry["type"], count=size, offset=at) if size else np.empty(0, entry["type"])
    return array.reshape(entry["shape"])
