"""The registry: every change to a realm, in order, in one SQLite file that any number of processes share.

The version is the number of changes, and version n always means the same (decision 1): rows are only ever added, each
is chained to the one before by its digest, and reading folds them with the pure rules of `realm`. A reader that has
folded version n before reads only what is new.
"""

from __future__ import annotations

import hashlib
import json
import os
import sqlite3
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from sealcast.errors import Corrupt, DiskFull, Locked, Misuse, NotFound, Rejected, Unavailable
from sealcast.trust import changes as stored
from sealcast.trust.changes import Change
from sealcast.trust.realm import EMPTY, Fold, RealmState
from sealcast.trust.vetting import vet

#: How long a writer waits for another before it gives up.
BUSY_SECONDS: Final = 30.0
#: States kept in memory: the newest, and the versions that batches in flight are pinned to.
STATES_KEPT: Final = 4
APPLICATION_ID: Final = 0x5EA1CA57
_CHAIN_START: Final = bytes(32)

_inherited: Final[list[sqlite3.Connection]] = []

_TABLES: Final = """
CREATE TABLE changes (
    version INTEGER PRIMARY KEY,
    at_us   INTEGER NOT NULL,
    kind    TEXT NOT NULL,
    body    TEXT NOT NULL,
    chain   BLOB NOT NULL
) STRICT;
CREATE TRIGGER no_update BEFORE UPDATE ON changes BEGIN SELECT RAISE(ABORT, 'changes are only added'); END;
CREATE TRIGGER no_delete BEFORE DELETE ON changes BEGIN SELECT RAISE(ABORT, 'changes are only added'); END;
"""


class Registry:
    """One realm's registry. Cheap to make; safe to use from several threads and processes."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._local = threading.local()
        self._lock = threading.Lock()
        #: version -> (state, chain), least recently used first
        self._states: OrderedDict[int, tuple[RealmState, bytes]] = OrderedDict({0: (EMPTY, _CHAIN_START)})

    @classmethod
    def create(cls, path: Path) -> Registry:
        """A new, empty registry."""
        if path.exists():
            raise Misuse(f"{path} exists already")
        registry = cls(path)
        with _translated(path):
            connection = sqlite3.connect(path, isolation_level=None)
            try:
                connection.execute("PRAGMA journal_mode = WAL")
                connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
                connection.executescript(f"BEGIN IMMEDIATE; {_TABLES} COMMIT;")
            finally:
                connection.close()
        return registry

    # --- reading ------------------------------------------------------------------------------------

    def version(self) -> int:
        """The newest version."""
        with _translated(self.path):
            row = self._connection().execute("SELECT coalesce(max(version), 0) FROM changes").fetchone()
        return int(row[0])

    def state(self, version: int | None = None) -> RealmState:
        """The realm at `version`; the newest without one."""
        with self._lock, _translated(self.path):
            connection = self._connection()
            newest = int(connection.execute("SELECT coalesce(max(version), 0) FROM changes").fetchone()[0])
            wanted = newest if version is None else version
            if not 0 <= wanted <= newest:
                raise NotFound(f"the registry has versions 0 to {newest}, not {wanted}")
            return self._read(connection, wanted)[0]

    def subscription_table(self, topic: str, version: int | None = None) -> list[tuple[str, int, str]]:
        """(id, slot, filter) of the topic's live subscriptions, in the order of their bits."""
        return self.state(version).subscription_table(topic)

    def changes(self, start: int = 1, end: int | None = None) -> Iterator[tuple[int, int, Change]]:
        """(version, time in microseconds, change), from version `start` to `end`, both included."""
        with _translated(self.path):
            rows = self._connection().execute(
                "SELECT version, at_us, kind, body FROM changes WHERE version BETWEEN ? AND ? ORDER BY version",
                (start, 2**62 if end is None else end),
            )
            for version, at_us, kind, body in rows:
                yield version, at_us, _decode(self.path, version, kind, body)

    # --- writing ------------------------------------------------------------------------------------

    def apply(self, change: Change) -> int:
        """Adds one change, if the rules admit it; the new version, durable on return."""
        return self.apply_many((change,))

    def apply_many(self, changes: Sequence[Change]) -> int:
        """Adds all changes, or none."""
        return self.transact(lambda _: changes).version

    def transact(self, decide: Callable[[RealmState], Sequence[Change]]) -> RealmState:
        """Adds what `decide` makes of the newest state, which nobody changes in between; the state after, durable."""
        with self._lock, _translated(self.path):
            connection = self._connection()
            connection.execute("BEGIN IMMEDIATE")
            try:
                newest = int(connection.execute("SELECT coalesce(max(version), 0) FROM changes").fetchone()[0])
                before, chain = self._read(connection, newest)
                after, chain = self._add(connection, before, chain, decide(before))
                connection.execute("COMMIT")
            except BaseException:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
                raise
            _settle(connection)
            self._keep(after, chain)
            return after

    def _add(
        self, connection: sqlite3.Connection, before: RealmState, chain: bytes, changes: Sequence[Change]
    ) -> tuple[RealmState, bytes]:
        fold, now, rows = Fold(before), time.time_ns() // 1000, []
        for change in changes:
            fold.apply(change)
            vet(fold, change)
            body = json.dumps(stored.to_json(change), separators=(",", ":"), ensure_ascii=False)
            chain = _link(chain, fold.version, now, change.kind, body)
            rows.append((fold.version, now, change.kind, body, chain))
        connection.executemany("INSERT INTO changes VALUES (?, ?, ?, ?, ?)", rows)
        return fold.state(), chain

    # --- inside -------------------------------------------------------------------------------------

    def _read(self, connection: sqlite3.Connection, version: int) -> tuple[RealmState, bytes]:
        known = max(v for v in self._states if v <= version)
        state, chain = self._states[known]
        if known == version:
            self._states.move_to_end(known)
            return state, chain
        fold = Fold(state)
        rows = connection.execute(
            "SELECT version, at_us, kind, body, chain FROM changes WHERE version > ? AND version <= ? ORDER BY version",
            (known, version),
        )
        for number, at_us, kind, body, link in rows:
            chain = _link(chain, number, at_us, kind, body)
            if chain != link or number != fold.version + 1:
                raise _damaged(
                    self.path, f"change {number} is not the one that was written, or one before it is missing"
                )
            try:
                fold.apply(_decode(self.path, number, kind, body))
            except (Misuse, Rejected) as error:
                raise _damaged(self.path, f"change {number} contradicts those before it: {error.message}") from None
        if fold.version != version:
            raise _damaged(self.path, f"change {fold.version + 1} is missing")
        state = fold.state()
        self._keep(state, chain)
        return state, chain

    def _keep(self, state: RealmState, chain: bytes) -> None:
        self._states[state.version] = (state, chain)
        self._states.move_to_end(state.version)
        while len(self._states) > STATES_KEPT + 1:
            # Version 0 stays: an old version that fell out is folded again from there.
            del self._states[next(v for v in self._states if v)]

    def _connection(self) -> sqlite3.Connection:
        # SQLite's handles survive neither a fork nor another thread.
        mine: tuple[int, sqlite3.Connection] | None = getattr(self._local, "connection", None)
        if mine is None or mine[0] != os.getpid():
            if mine is not None:
                # A child must not even close its parent's: that would release the parent's locks behind its back.
                _inherited.append(mine[1])
            mine = os.getpid(), self._open()
            self._local.connection = mine
        return mine[1]

    def _open(self) -> sqlite3.Connection:
        if not self.path.exists():
            raise Unavailable(
                f"the registry {self.path} is missing",
                hint="restore it from a copy, or name another realm with --realm",
            )
        connection = sqlite3.connect(
            f"{self.path.absolute().as_uri()}?mode=rw", uri=True, timeout=BUSY_SECONDS, isolation_level=None
        )
        # Acknowledged changes survive a power cut: in WAL mode only FULL syncs at every commit.
        connection.execute("PRAGMA synchronous = FULL")
        if connection.execute("PRAGMA application_id").fetchone()[0] != APPLICATION_ID:
            connection.close()
            raise Corrupt(f"{self.path} is a database, but no registry of Sealcast", hint="restore it from a copy")
        return connection


def _settle(connection: sqlite3.Connection) -> None:
    """Move what was committed from the write-ahead log to the table, where damage is found.

    SQLite takes a log with a flipped byte for one that ends there: changes would silently be undone. While somebody
    reads this may not be possible; then the next change does it. What is committed stays so either way.
    """
    with suppress(sqlite3.Error):
        connection.execute("PRAGMA busy_timeout = 0")
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    connection.execute(f"PRAGMA busy_timeout = {BUSY_SECONDS * 1000:.0f}")


def _link(chain: bytes, version: int, at_us: int, kind: str, body: str) -> bytes:
    return hashlib.sha256(chain + f"{version}\0{at_us}\0{kind}\0{body}".encode()).digest()


def _decode(path: Path, version: int, kind: str, body: str) -> Change:
    try:
        return stored.from_json(kind, json.loads(body))
    except (ValueError, Corrupt) as error:
        raise _damaged(path, f"change {version} cannot be read ({error})") from None


def _damaged(path: Path, what: str) -> Corrupt:
    return Corrupt(
        f"the registry {path} is damaged: {what}", hint="restore registry.sqlite from a copy; nothing was changed"
    )


@contextmanager
def _translated(path: Path) -> Iterator[None]:
    """SQLite's errors as ours: what happened, to which file, and what helps."""
    try:
        yield
    except sqlite3.Error as error:
        code = getattr(error, "sqlite_errorcode", 0) & 0xFF
        if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
            raise Locked(
                f"another process kept {path} locked for {BUSY_SECONDS:.0f} seconds", hint="try again"
            ) from None
        if code == sqlite3.SQLITE_FULL:
            raise DiskFull(f"no space left to write {path}; nothing was changed") from None
        if code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB) or isinstance(error, sqlite3.IntegrityError):
            raise _damaged(path, str(error)) from None
        raise Unavailable(
            f"{path}: {error}", hint="check that the file and its directory can be read and written"
        ) from None
