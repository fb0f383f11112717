"""The registry: every change to a realm, in order, in one database that any number of processes share.

The version is the number of changes, and version n always means the same (decision 1): rows are only ever added, each
is chained to the one before by its digest, and reading folds them with the pure rules of `realm`. Each transaction is
signed by those who stated it, and believed by what the realm's mark pins (`history`, `statements`). A reader that has
folded version n before reads and verifies only what is new. Where the rows lie, in a file or on a server, is
`storage`'s.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from sealcast.errors import Misuse, NotFound, Unavailable
from sealcast.primitives.sign import VerifyKey
from sealcast.trust import history
from sealcast.trust.heads import ChainAt, Head, Pin, SeenHeads
from sealcast.trust.history import KnownVersion, StatingKeys
from sealcast.trust.realm.changes import Change
from sealcast.trust.realm.machine import Fold, RealmState
from sealcast.trust.snapshots import Snapshots, is_due
from sealcast.trust.statements import NOBODY, Author, AuthorKeys, Judge
from sealcast.trust.storage import address as addresses
from sealcast.trust.storage.address import Server
from sealcast.trust.storage.opening import open_store
from sealcast.trust.storage.trouble import CommitLost, another_history, damaged

if TYPE_CHECKING:
    from sealcast.trust.storage.opening import AnyStore
    from sealcast.trust.storage.rows import ChangeRow, Rows

#: States kept in memory: the newest, and the versions that batches in flight are pinned to.
STATES_KEPT: Final = 4
#: How long a version that somebody named is waited for.
PATIENCE_S: Final = 10.0
#: Rows that are read at once for somebody elsewhere.
_ROWS_AT_ONCE: Final = 1_024


class Behind(Unavailable):
    """A transaction was made from a version that is not the newest any more: nothing was changed."""

    code = "behind"

    def __init__(self, newest: int) -> None:
        super().__init__(f"the registry is at version {newest}", hint="read what is new, and make the change again")
        self.newest = newest


def now_us() -> int:
    """Microseconds since 1970, by this machine's clock."""
    return time.time_ns() // 1000


class Registry:
    """One realm's registry. Cheap to make; safe to use from several threads and processes."""

    def __init__(
        self,
        address: Path | str | Server,
        realm: bytes | None = None,
        clock: Callable[[], int] = now_us,
        judge: Judge | None = None,
        authors: AuthorKeys = NOBODY,
        opens: Callable[[], AnyStore] | None = None,
        snapshots: Snapshots | None = None,
    ) -> None:
        """By path or URL. A registry of another realm than `realm` is refused; without one, nobody asks. `opens` gives
        the database, where it is not simply the one at that address. With `snapshots`, reading begins at the last
        one.

        With a `judge`, what is read is believed only for its authors' signatures, and what is written is signed: by the
        authors that are given with it, or by those in `authors`.
        """
        self.address = addresses.parse(address)
        self._clock = clock
        self._realm = realm
        self._judge, self._authors = judge, authors
        #: Whoever writes may ask for its keys meanwhile, which are held to what their owners saw.
        self._lock = threading.RLock()
        self._opens = opens
        self._opened: AnyStore | None = None
        #: By version, least recently used first.
        self._known: OrderedDict[int, KnownVersion] = OrderedDict({0: history.START})
        self._seen = SeenHeads(str(self.address))
        self._snapshots, self._kept = snapshots, 0
        #: The rows from here on are those that were verified: here, or by whoever wrote the snapshot.
        self._held = Head(0, history.START.chain)

    @classmethod
    def create(
        cls,
        address: Path | str | Server,
        realm: bytes | None = None,
        clock: Callable[[], int] = now_us,
        judge: Judge | None = None,
        authors: AuthorKeys = NOBODY,
    ) -> Registry:
        """A new, empty registry."""
        registry = cls(address, realm, clock, judge, authors)
        open_store(registry.address).create((lambda rows: None) if realm is None else history.claim(realm))
        return registry

    # --- reading ------------------------------------------------------------------------------------

    def version(self) -> int:
        """The newest version."""
        # Known before it is asked for: what others add meanwhile is no reason to think that something is missing.
        seen = self._seen.own
        newest = self._current().read(lambda rows: rows.newest())
        if newest < seen.version:
            self.state()
        return newest

    def state(self, version: int | None = None) -> RealmState:
        """The realm at `version`; the newest without one."""

        def read(rows: Rows) -> RealmState:
            newest = self._newest(rows)
            wanted = newest if version is None else version
            if not 0 <= wanted <= newest:
                raise NotFound(f"the registry has versions 0 to {newest}, not {wanted}")
            return self._at(rows, wanted).state

        with self._lock:
            return self._current().read(read)

    def head(self) -> Head:
        """The newest version, and the chain up to it."""

        def read(rows: Rows) -> Head:
            newest = self._at(rows, self._newest(rows))
            return Head(newest.state.version, newest.chain)

        with self._lock:
            return self._current().read(read)

    def chain_at(self, version: int) -> bytes:
        """The chain up to a version, verified."""
        if not self.state(version).version:
            return history.START.chain
        found = self._store().read(lambda rows: rows.chain_at(version))
        assert found is not None
        return found

    def come_to(self, version: int) -> None:
        """Somebody said that this version is there: waits for it a while, where the registry is served from afar."""
        self._current().come_to(version, PATIENCE_S)

    def hold(self, pin: Pin) -> None:
        """Holds all that is read from now on to what somebody saw before, and keeps for it what is seen. Whoever reads
        gets Corrupt if this is not the history that was seen."""
        with self._lock:
            self._seen.hold(pin)

    def hold_to(self, seen: Head, pin: Pin) -> None:
        """Corrupt, unless this is the history that somebody saw, and noted elsewhere than in a file beside its key."""
        with self._lock:
            self._store().read(lambda rows: self._seen.hold_to(seen, rows.newest(), self._chain_of(rows), pin))

    def key_of(self, author: str) -> VerifyKey:
        """The key that an author is known by now; StatementRejected for one who is not, or not any more."""
        if self._judge is None:
            raise Misuse("nobody is known here: this registry was opened without its realm")
        state = self.state()
        return self._judge.key_of(author, Fold(state), state.version + 1)

    def changes(self, start: int = 1, end: int | None = None) -> Iterator[tuple[int, int, Change]]:
        """(version, time in microseconds, change), from version `start` to `end`, both included, once all of them were
        verified."""
        newest = self.state().version
        known, last = start - 1, newest if end is None else min(end, newest)
        self._hold_rows(known)
        while page := self._store().read(lambda rows, known=known: rows.between(known, last)):  # type: ignore[misc]
            for version, at_us, kind, body, *_ in page:
                yield version, at_us, history.decode(str(self.address), version, kind, body)
            known = page[-1].version

    # --- writing ------------------------------------------------------------------------------------

    def apply(self, change: Change, *authors: Author) -> int:
        """Adds one change, if the rules admit it; the new version, durable on return."""
        return self.apply_many((change,), *authors)

    def apply_many(self, changes: Sequence[Change], *authors: Author) -> int:
        """Adds all changes, or none."""
        return self.transact(lambda _: changes, *authors).version

    def time_of(self, version: int) -> int:
        """When a version was written, by its writer's clock; 0 for the empty registry."""
        return next((at_us for _, at_us, _ in self.changes(version, version)), 0)

    def transact(self, decide: Callable[[RealmState], Sequence[Change]], *authors: Author) -> RealmState:
        """Adds what `decide` makes of the newest state, which nobody changes in between; the state after, durable.

        It is stated by these authors as far as they may, else by others whose keys this handle reaches.
        """
        made: list[KnownVersion] = []

        def write(rows: Rows) -> None:
            made.clear()  # it is run again where others were faster
            before = self._at(rows, self._newest(rows))
            keys = StatingKeys(authors, self._authors)
            made.append(history.add(rows, before, decide(before.state), self._clock(), self._judge, keys))

        with self._lock:
            store = self._current()
            try:
                store.write(write)
            except CommitLost as lost:
                self._look_into(store, lost, made[0])
            self._take(made[0])
            return made[0].state

    def adopt(self, decide: Callable[[RealmState], Sequence[Change]], author: Author) -> RealmState:
        """Takes over all that was written before changes were signed, and adds what `decide` makes of it: from now on
        all of it is the author's word. Once; Misuse when anything is signed."""

        def write(rows: Rows) -> RealmState:
            if rows.signed_from(1) is not None:
                raise Misuse(f"the changes in {self.address} are signed already")
            before = history.read(rows, history.START, rows.newest(), None, str(self.address))
            keys, changes = StatingKeys((author,), NOBODY), decide(before.state)
            return history.add(rows, before, changes, self._clock(), self._judge, keys, history.START).state

        with self._lock:
            return self._store().write(write)

    def take_over(self, after: Head, rows: Sequence[ChangeRow], *, drift_us: int) -> int:
        """Adds a transaction that somebody made and signed elsewhere, if it is all that one made here must be; the
        version after it, durable. `Behind` when it does not follow the newest version. One that is there already
        is not added again.

        Its times are its maker's word: Misuse when they are further than `drift_us` from this clock.
        """
        made: list[KnownVersion] = []

        def write(taken: Rows) -> int:
            last = rows[-1]
            if taken.chain_at(last.version) == last.chain and taken.newest() >= last.version:
                return last.version
            before = self._at(taken, self._newest(taken))
            if Head(before.state.version, before.chain) != after:
                raise Behind(before.state.version)
            made.append(history.take_over(taken, before, rows, self._clock(), drift_us, self._judge))
            return last.version

        with self._lock:
            version = self._store().write(write)
            for each in made:
                self._take(each)
            return version

    def rows(self, after: int, max_bytes: int) -> tuple[list[ChangeRow], int]:
        """Rows as they are stored, of the transactions after a version, as many as come to so many bytes and at least
        one; and the newest version. What is given was verified here, and ends where a transaction ends."""
        newest, size, at = self.state().version, 0, after
        self._hold_rows(after)
        found: list[ChangeRow] = []
        while at < newest:
            until = min(newest, at + _ROWS_AT_ONCE)
            page = self._store().read(lambda rows, at=at, until=until: rows.between(at, until))  # type: ignore[misc]
            for row in page:
                found.append(row)
                size += len(row.body) + len(row.signed) + len(row.chain)
                if row.signed and size >= max_bytes:
                    return found, newest
            at = until
        return found, newest

    # --- the database -------------------------------------------------------------------------------

    def revision(self) -> str:
        """The revision of its schema, also of one that this release would not read."""
        return open_store(self.address).revision()

    def is_signed(self) -> bool:
        """Whether anybody signed anything, or there is nothing yet."""
        return self._store().read(lambda rows: not rows.newest() or rows.signed_from(1) is not None)

    def remarks(self) -> tuple[str, str | None]:
        """What it runs on, and what should be changed about that."""
        return open_store(self.address).remarks()

    def migrate(self) -> str:
        """Brings its schema to the newest revision; the one it had."""
        return open_store(self.address).migrate()

    def _look_into(self, store: AnyStore, lost: CommitLost, made: KnownVersion) -> None:
        """Whether a commit was made after all: our turn comes when it has ended either way; the chain tells which."""
        try:
            there = store.write(lambda rows: rows.chain_at(made.state.version) == made.chain)
        except Unavailable:
            raise lost from None
        if not there:
            raise Unavailable(
                f"the connection to {self.address} broke before a change was committed; nothing was changed",
                hint="try again",
            ) from None

    # --- inside -------------------------------------------------------------------------------------

    def _store(self) -> AnyStore:
        if self._opened is None:
            store = open_store(self.address) if self._opens is None else self._opens()
            if self._realm is not None and not store.read(self._is_mine):
                claim = history.claim(self._realm)
                store.write(lambda rows: None if self._is_mine(rows) else claim(rows))
            self._opened = store
            if self._snapshots is not None:
                store.read(self._begin)
        return self._opened

    def _current(self) -> AnyStore:
        """The database, with everything in it that there is by now."""
        store = self._store()
        store.catch_up(self._believe)
        return store

    def _believe(self, rows: Rows, known: int, version: int) -> None:
        """Verifies rows that somebody serves, after those that are here up to a version, before they are written
        down."""
        chain = rows.chain_at(known) or history.START.chain
        for first in rows.between(known, known + 1):
            if history.linked(chain, first) != first.chain:
                what = f"change {first.version} does not follow version {known}, which is known here: it was forked"
                raise another_history(str(self.address), what, "fork", None)
        self._at(rows, version)

    @property
    def known(self) -> RealmState | None:
        """The newest state that was verified in this process; None when none was."""
        newest = max(version for version, known in self._known.items() if known.whole)
        return self._known[newest].state if newest else None

    def _is_mine(self, rows: Rows) -> bool:
        """Whether it is this realm's; False if nobody has claimed it, as in a registry from before realms did."""
        owner = rows.owner()
        if owner is None:
            return False
        if not isinstance(owner.id, bytes) or owner.chain != history.owned(owner.id):
            raise damaged(str(self.address), "whose it is cannot be read")
        if owner.id != self._realm:
            raise Misuse(
                f"{self.address} is the registry of another realm ({owner.id.hex()})",
                hint="a realm has a registry of its own: name another database or schema, or the other realm",
            )
        return True

    def _at(self, rows: Rows, version: int) -> KnownVersion:
        """A version, from the nearest one before it that is kept."""
        found = self._known.get(version)
        if found is not None:
            self._keep(found)
            return found
        self._seen.hold_to_own(rows.newest(), self._chain_of(rows))
        start = self._known[max(v for v, known in self._known.items() if v <= version and known.whole)]
        self._hold(rows, start.state.version)
        found = history.read(rows, start, version, self._judge, str(self.address))
        self._take(found)
        return found

    def _newest(self, rows: Rows) -> int:
        newest = rows.newest()
        self._seen.ask(newest, self._chain_of(rows))
        return newest

    # --- beginning at a snapshot --------------------------------------------------------------------

    def _begin(self, rows: Rows) -> None:
        """Begins at the last snapshot, if it is of this history; otherwise at change one."""
        assert self._snapshots is not None
        found = self._snapshots.load()
        if found is not None and rows.chain_at(found.state.version) == found.chain:
            self._kept = found.state.version
            self._held = Head(self._kept, found.chain)
            self._keep(found)

    def _hold(self, rows: Rows, version: int) -> None:
        """Holds the rows after a version to what was verified, where a snapshot spared us reading them. Nothing that
        stands in the database before the snapshot is given to anybody without this."""
        if version < self._held.version:
            start = Head(version, (rows.chain_at(version) if version else None) or history.START.chain)
            history.hold(rows, start, self._held, str(self.address))
            self._held = start

    def _hold_rows(self, version: int) -> None:
        with self._lock:
            self._store().read(lambda rows: self._hold(rows, max(0, version)))

    def _chain_of(self, rows: Rows) -> ChainAt:
        """The chain at a version, of rows that are held to what was verified."""

        def chain_at(version: int) -> bytes | None:
            self._hold(rows, version)
            return rows.chain_at(version)

        return chain_at

    def _take(self, known: KnownVersion) -> None:
        """Keeps a version that was verified here, and shows it to those who hold a head."""
        self._keep(known)
        self._see(known)
        if self._snapshots is not None and known.whole and is_due(known.state.version, self._kept):
            self._kept = known.state.version
            self._snapshots.keep(known)

    def _see(self, known: KnownVersion) -> None:
        if known.whole:
            self._seen.see(Head(known.state.version, known.chain))

    def _keep(self, known: KnownVersion) -> None:
        self._known[known.state.version] = known
        self._known.move_to_end(known.state.version)
        while len(self._known) > STATES_KEPT + 1:
            # Version 0 stays: an old version that fell out is folded again from there.
            del self._known[next(v for v in self._known if v)]
