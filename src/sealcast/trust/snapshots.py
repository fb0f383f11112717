"""Snapshots of a realm's state: what a process verified once, kept for the next process of the same home.

    REALM/snapshots/UID/key       32 random bytes, that user's alone
    REALM/snapshots/UID/newest    magic | size of head u32 | head | HMAC-SHA256 of the head | core | tables

The head is JSON: the realm's id and root, the shape of what is kept, the registry's head (version and chain), and size
and SHA-256 of the core and of each table. The core is the state without its large tables, which are read when somebody
asks for their rows.

A snapshot saves time and decides nothing. It is believed if it was written by this very user, which the HMAC says, and
only for a registry that has the same chain at that version. Everything else is folded from change one, as if there were
no snapshot. ADR 39 argues this.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import pickle
import stat
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, NamedTuple

from sealcast.errors import Bug, Corrupt, SealcastError
from sealcast.log import files
from sealcast.primitives import mac
from sealcast.primitives.secrets import KEY_BYTES, Secret, Unpicklable
from sealcast.trust.history import KnownVersion
from sealcast.trust.realm.kept import KeptTable
from sealcast.trust.realm.kinds import KINDS, shape
from sealcast.trust.realm.state import RealmState
from sealcast.trust.vault import private

MAGIC: Final = b"sealcast snapshot 1\n"
#: Tables with fewer rows are part of the core.
MIN_ROWS: Final = 256
#: A snapshot is written when so many changes are not in the last one, and an eighth of those that are: so writing
#: costs a part of what folding those changes cost.
MIN_CHANGES: Final = 1_024
GROWTH: Final = 8
_MAX_HEAD_BYTES: Final = 1 << 24
_OTHERS_WRITE: Final = stat.S_IWGRP | stat.S_IWOTH
_LABEL: Final = b"sealcast/1 registry snapshot"


def is_due(version: int, kept: int) -> bool:
    """Whether a version is worth a snapshot, when the last one was of version `kept`."""
    return version - kept >= max(MIN_CHANGES, kept // GROWTH)


class _Part(NamedTuple):
    """A run of bytes in the file, and what it has to be."""

    offset: int
    size: int
    digest: bytes


class Snapshots(Unpicklable):
    """The snapshots of one realm that this process's user keeps in one home."""

    def __init__(self, root: Path, realm: bytes, authority: bytes) -> None:
        """In the home `root`, of the realm with that id and that root's fingerprint."""
        self._directory = root / "snapshots" / str(os.geteuid())
        self.path = self._directory / "newest"
        self._about = [realm.hex(), authority.hex(), shape()]

    # --- reading ------------------------------------------------------------------------------------

    def load(self) -> KnownVersion | None:
        """The last one, if this user wrote it; None if there is none that counts."""
        with suppress(OSError, SealcastError, ValueError, KeyError, TypeError, IndexError):
            return self._read()
        return None

    def _read(self) -> KnownVersion:
        key = self._key()
        file = _Closing(os.open(self.path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW))
        start = os.pread(file.fd, len(MAGIC) + 4, 0)
        size = int.from_bytes(start[len(MAGIC) :], "big")
        if start[: len(MAGIC)] != MAGIC or size > _MAX_HEAD_BYTES:
            raise Corrupt(f"{self.path} does not begin as a snapshot does")
        raw = os.pread(file.fd, size + mac.TAG_BYTES, len(start))
        head, tag = raw[:size], raw[size:]
        # Before anything of it is read: whoever cannot make this tag has no say.
        if not self._is_ours(key, tag, head):
            raise Corrupt(f"{self.path} was not written by this user")
        body = json.loads(head)
        if body["about"] != self._about:
            raise Corrupt(f"{self.path} is of another realm or release")
        offset, parts = len(start) + len(raw), list[_Part]()
        for length, digest in body["parts"]:
            parts.append(_Part(offset, length, bytes.fromhex(digest)))
            offset += length

        def table(number: int) -> KeptTable[Any, Any]:
            part = parts[1 + number]
            return KeptTable(body["rows"][number], lambda: _unpickled(file.read(part), {}))

        state = _unpickled(file.read(parts[0]), {number: table(number) for number in range(len(parts) - 1)})
        if not isinstance(state, RealmState) or state.version != body["version"]:
            raise Corrupt(f"{self.path} holds something else than it says")
        return KnownVersion(state, bytes.fromhex(body["chain"]))

    def _is_ours(self, key: Secret, tag: bytes, head: bytes) -> bool:
        return mac.verify(key, tag, _LABEL, head)

    def _key(self) -> Secret:
        """This user's key. A directory or a key that others could have put there is none."""
        for path in (self._directory, self._directory / "key"):
            found = path.lstat()
            if found.st_uid != os.geteuid() or found.st_mode & _OTHERS_WRITE or path.is_symlink():
                raise Corrupt(f"{path} is not this user's own")
        key = private.read(self._directory / "key", KEY_BYTES)
        if len(key) != KEY_BYTES:
            raise Corrupt(f"{self._directory / 'key'} is no key")
        return Secret(key)

    # --- writing ------------------------------------------------------------------------------------

    def keep(self, known: KnownVersion) -> None:
        """For the next process. A snapshot only saves time: where none can be written, the next one folds."""
        with suppress(OSError, SealcastError):
            if not (self._directory / "key").exists():
                private.create(self._directory / "key", os.urandom(KEY_BYTES), again=True)
            self._write(self._key(), known)

    def _write(self, key: Secret, known: KnownVersion) -> None:
        core, tables = _pickled(known.state)
        parts = [core, *(part for _, part in tables)]
        head = json.dumps(
            {
                "about": self._about,
                "version": known.state.version,
                "chain": known.chain.hex(),
                "rows": [rows for rows, _ in tables],
                "parts": [[len(part), hashlib.sha256(part).hexdigest()] for part in parts],
            }
        ).encode()
        made = self.path.with_name(f".{self.path.name}.{os.urandom(6).hex()}")
        try:
            with files.opened(made, os.O_WRONLY | os.O_CREAT | os.O_EXCL) as fd:
                at = 0
                # Not synced: half a snapshot after a power cut is none, by its digests.
                for each in (MAGIC, len(head).to_bytes(4, "big"), head, mac.tag(key, _LABEL, head), *parts):
                    files.write_all(fd, each, at)
                    at += len(each)
            os.replace(made, self.path)
        except OSError:
            made.unlink(missing_ok=True)
            raise


class _Closing:
    """An open file, for as long as some table may still be read from it. It may have another name by then, or none."""

    def __init__(self, fd: int) -> None:
        self.fd = fd

    def read(self, part: _Part) -> bytes:
        found = bytearray()
        while len(found) < part.size and (more := os.pread(self.fd, part.size - len(found), part.offset + len(found))):
            found += more
        if hashlib.sha256(found).digest() != part.digest:
            raise Corrupt(
                "a snapshot of the registry was altered after it was opened",
                hint="delete the realm's directory `snapshots`; it is made again from the registry",
            )
        return bytes(found)

    def __del__(self) -> None:
        os.close(self.fd)


# --- states as bytes ----------------------------------------------------------------------------------


def _pickled(state: RealmState) -> tuple[bytes, list[tuple[int, bytes]]]:
    """The core, and the tables that it refers to by number: how many rows each has, and its bytes."""
    tables = list[tuple[int, bytes]]()

    class Cut(pickle.Pickler):
        def persistent_id(self, obj: object) -> int | None:
            rows = obj.rows() if isinstance(obj, KeptTable) else obj
            # Topics stay: each has tables of its own.
            if type(rows) is not dict or len(rows) < MIN_ROWS or obj is state.topics:
                return None
            tables.append((len(rows), pickle.dumps(rows, pickle.HIGHEST_PROTOCOL)))
            return len(tables) - 1

    core = io.BytesIO()
    Cut(core, pickle.HIGHEST_PROTOCOL).dump(state)
    return core.getvalue(), tables


def _unpickled(raw: bytes, tables: Mapping[int, KeptTable[Any, Any]]) -> Any:
    """What `_pickled` made. Values of a realm's state are made, and nothing is called but their classes."""

    class Known(pickle.Unpickler):
        def find_class(self, module: str, name: str) -> Callable[..., object]:
            found = KINDS.get((module, name))
            if found is None:
                raise Bug(f"a snapshot has a {module}.{name} in it, which no state has")
            return found

        def persistent_load(self, number: int) -> KeptTable[Any, Any]:
            return tables[number]

    return Known(io.BytesIO(raw)).load()
