"""Compiled tables on disk, for the next worker: sealed under a key of the broker's own.

    TOPIC/tables/NAME.table = magic | salt (16) | commitment (32) | ciphertext
      opened                = count u32 | places of unreadable filters, u32 each | the index (filters/index/snapshot.py)

A table is made of filters, which are for brokers alone, and the topic's directory may be everybody's to read. So the
file is sealed, and its name is keyed: nobody learns from it what a table holds, nor by guessing. The salt is random, so
that a key seals one file and its nonce can be constant.
"""

from __future__ import annotations

import contextlib
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np

from sealcast.errors import CannotOpen, Corrupt, NotFound
from sealcast.filters.index import Index, snapshot
from sealcast.primitives import kdf
from sealcast.primitives.aead import COMMITMENT_BYTES, NONCE_BYTES, SealingKey
from sealcast.primitives.secrets import Secret, Unpicklable

#: Snapshots kept of a topic: the newest, and those that workers on their way out may still open.
MAX_SNAPSHOTS: Final = 4
#: What AES-GCM seals at once; a larger table is compiled again by every worker.
MAX_BYTES: Final = (1 << 31) - (1 << 20)

_MAGIC: Final = b"sealcast table 1"
_SALT_BYTES: Final = 16
_HEAD: Final = len(_MAGIC) + _SALT_BYTES
_BODY: Final = _HEAD + COMMITMENT_BYTES
_NONCE: Final = bytes(NONCE_BYTES)
_PLACES: Final = "<u4"


@dataclass(frozen=True, slots=True)
class StoredTable:
    """A compiled table, and which of its filters could not be read."""

    index: Index
    unreadable: tuple[int, ...]


class SealedSnapshots(Unpicklable):
    """The compiled tables of one topic at one broker."""

    def __init__(self, directory: Path, secret: Secret) -> None:
        self._directory, self._secret = directory, secret
        # Releases before this one left tables there in clear.
        with contextlib.suppress(OSError):
            for old in directory.glob("*.index"):
                old.unlink(missing_ok=True)

    def load(self, digest: bytes) -> StoredTable:
        """The table that was made from what has this digest; NotFound, or Corrupt if it is not what was written."""
        path = self._path(digest)
        try:
            data = path.read_bytes()
        except FileNotFoundError:
            raise NotFound(f"there is no table at {path}") from None
        if data[: len(_MAGIC)] != _MAGIC:
            raise Corrupt(f"{path} does not begin as a table does")
        try:
            opened = self._key(digest, data[len(_MAGIC) : _HEAD]).open(_NONCE, data[_HEAD:_BODY], data[_BODY:])
        except CannotOpen:
            raise Corrupt(f"{path} was altered", hint="delete it; it is built again from the subscriptions") from None
        end = 4 + 4 * int.from_bytes(opened[:4], "little")
        places = np.frombuffer(opened, _PLACES, offset=4, count=end // 4 - 1)
        return StoredTable(snapshot.from_bytes(opened[end:]), tuple(places.tolist()))

    def keep(self, digest: bytes, table: StoredTable) -> None:
        """For the next worker. A snapshot only saves time: where none can be written (a full disk, say), the next
        worker compiles again."""
        body = snapshot.to_bytes(table.index)
        if len(body) > MAX_BYTES:
            return
        salt, count = os.urandom(_SALT_BYTES), len(table.unreadable).to_bytes(4, "little")
        key = self._key(digest, salt)
        sealed = key.seal(_NONCE, count + np.array(table.unreadable, _PLACES).tobytes() + body)
        with contextlib.suppress(OSError):
            self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            path = self._path(digest)
            unfinished = path.with_name(f".{path.name}.{os.getpid()}")
            try:
                unfinished.write_bytes(_MAGIC + salt + key.commitment + sealed)
                unfinished.replace(path)
            finally:
                unfinished.unlink(missing_ok=True)
            kept = self._directory.glob("*.table")
            for old in sorted(kept, key=lambda p: p.stat().st_mtime_ns, reverse=True)[MAX_SNAPSHOTS:]:
                old.unlink(missing_ok=True)

    def _path(self, digest: bytes) -> Path:
        return self._directory / f"{kdf.derive(self._secret, b'name', digest).reveal().hex()}.table"

    def _key(self, digest: bytes, salt: bytes) -> SealingKey:
        return SealingKey(kdf.derive(self._secret, b"table", digest, salt), _MAGIC)
