"""A client's own copy of a registry that somebody else serves: in its home, and only what it has verified.

    catch up    ask for what is newer; believe it, from the version that the copy has; then write it down
    write       make a transaction on the copy, post it; it stands in the copy when it was accepted

Rows are verified before they enter: chain, rules and signatures (`history`), from the root that the home pins. So the
copy never has to be doubted, whoever serves it lies only about what is new, and a lie leaves nothing behind.

**How old a state may be.** Every answer of a gateway names the newest version, so that a client that is talking to one
knows of changes at once. One that has heard nothing for FRESH_S asks. While the gateway cannot be reached a client goes
by what it has; brokers and centers decide by what is newest.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Protocol, TypeVar

from sealcast.errors import Bug, Corrupt, Unavailable
from sealcast.trust.storage.reading import FileStore
from sealcast.trust.storage.rows import AT_ONCE, ChangeRow, Owner, Rows
from sealcast.trust.storage.trouble import another_history, damaged

T = TypeVar("T")
FRESH_S: Final = 1.0
#: How often a transaction is made again because others were faster.
_ATTEMPTS: Final = 8


class Upstream(Protocol):
    """Whoever serves the registry."""

    @property
    def shown(self) -> str: ...

    def newer(self, version: int) -> bool:
        """Whether it is time to ask for what comes after a version."""

    def changes(self, after: int, wait_s: float = 0.0, *, patient: bool) -> tuple[Sequence[ChangeRow], int]:
        """The next rows after a version, and the newest version there is. Those who are not patient are told soon that
        nobody answers."""

    def transact(self, after: int, chain: bytes, rows: Sequence[ChangeRow]) -> bool:
        """Has a transaction added; False when the registry is newer than that."""


#: Verifies rows after a version that is believed already, up to another.
Believe = Callable[[Rows, int, int], object]


class Mirror(FileStore):
    """What a `Store` is for a registry that is here."""

    def __init__(self, copy: Path, upstream: Upstream) -> None:
        super().__init__(copy)
        self._upstream = upstream
        self._believe: Believe | None = None
        self._turn = threading.RLock()
        #: A version that the copy has, as this process last saw it: a copy only grows.
        self._had = 0

    def catch_up(self, believe: Believe) -> None:
        """Takes in what is newer, if it is time to ask for it. Goes on with what is there, if there is anything, while
        nobody answers."""
        with self._turn:
            self._believe = believe
            if self._had and not self._upstream.newer(self._had):
                return  # a publisher looks with every frame, and need not ask the database whether it has to
            self._had = newest = self.read(lambda rows: rows.newest())
            if newest and not self._upstream.newer(newest):
                return
            try:
                self._pull(believe, newest, patient=False)
            except Corrupt:
                raise
            except Unavailable:
                if not newest:
                    raise

    def write(self, change: Callable[[Rows], T]) -> T:
        """What `change` writes, added to the registry and to the copy. It is run again when others were faster."""
        with self._turn:
            believe = self._believe
            if believe is None:
                return super().write(change)  # nothing but saying whose it is
            for _ in range(_ATTEMPTS):
                newest = self._pull(believe, self.read(lambda rows: rows.newest()), patient=True)
                result, chain, added = self.read(lambda rows: _tried(rows, change))
                if not added or self._upstream.transact(newest, chain, added):
                    self._take_in(added)
                    return result
        raise Unavailable(
            f"others changed the registry at {self._upstream.shown} {_ATTEMPTS} times meanwhile; nothing was changed",
            hint="try again",
        )

    def come_to(self, version: int, seconds: float) -> bool:
        """Whether the registry comes to a version within that time."""
        until = time.monotonic() + seconds
        with self._turn:
            while (newest := self.read(lambda rows: rows.newest())) < version:
                if self._believe is None or time.monotonic() >= until:
                    return False
                self._upstream.changes(newest, 1.0, patient=False)  # returns when there is something new
                self._pull(self._believe, newest, patient=False)
        return True

    # --- inside -------------------------------------------------------------------------------------

    def _pull(self, believe: Believe, newest: int, *, patient: bool) -> int:
        """Takes in everything that is newer; the version that the copy has then."""
        while True:
            page, upto = self._upstream.changes(newest, patient=patient)
            if upto < newest:
                what = f"it went back from version {newest}, which this copy has, to version {upto}"
                raise another_history(self._upstream.shown, what, "rollback", None)
            if not page:
                if upto > newest:
                    raise damaged(self._upstream.shown, f"it keeps change {newest + 1} to itself")
                return newest
            page = list(page)
            last = page[-1].version
            if [row.version for row in page] != list(range(newest + 1, last + 1)):
                raise damaged(self._upstream.shown, f"changes after {newest} are missing or out of order")
            self._hold(believe, page, newest)
            self._take_in(page)
            newest = last

    def _hold(self, believe: Believe, page: list[ChangeRow], known: int) -> None:
        self.read(lambda rows: believe(_WithPending(rows, page), known, page[-1].version))

    def _take_in(self, rows: Sequence[ChangeRow]) -> None:
        def add(stored: Rows) -> None:
            # Another process of the same home may have been faster. What it wrote it has verified.
            known = stored.newest()
            stored.add([row for row in rows if row.version > known])

        if rows:
            super().write(add)


def _tried(rows: Rows, change: Callable[[Rows], T]) -> tuple[T, bytes, list[ChangeRow]]:
    """What a change makes of the copy, the chain that it is made from, and the rows that it would add."""
    tried = _WithPending(rows, [])
    newest = tried.newest()
    chain = tried.chain_at(newest) or bytes(32)
    result = change(tried)
    return result, chain, tried.pending


class _WithPending(Rows):
    """The rows of a copy, and rows after them that are not in it."""

    def __init__(self, rows: Rows, pending: list[ChangeRow]) -> None:
        self._rows, self.pending = rows, pending

    def _found(self, statement: str, values: Mapping[str, object]) -> Sequence[Any]:
        raise Bug("what is asked of pending rows is asked by name")

    def _done(self, statement: str, values: Sequence[Mapping[str, object]]) -> None:
        raise Bug("pending rows are not written")

    def newest(self) -> int:
        return self.pending[-1].version if self.pending else self._rows.newest()

    def between(self, known: int, last: int) -> Sequence[ChangeRow]:
        stored = self._rows.between(known, last)
        if len(stored) >= AT_ONCE or not self.pending:
            return stored
        # Another process of the same home may have written some of the pending ones meanwhile.
        reached = stored[-1].version if stored else known
        return [*stored, *(row for row in self.pending if reached < row.version <= last)][:AT_ONCE]

    def signed_from(self, version: int) -> int | None:
        found = self._rows.signed_from(version)
        if found is not None:
            return found
        return next((row.version for row in self.pending if row.version >= version and row.signed), None)

    def chain_at(self, version: int) -> bytes | None:
        found = self._rows.chain_at(version)
        if found is not None:
            return found
        return next((row.chain for row in self.pending if row.version == version), None)

    def add(self, rows: Sequence[ChangeRow]) -> None:
        self.pending.extend(rows)

    def owner(self) -> Owner | None:
        return self._rows.owner()
