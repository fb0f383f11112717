"""The registry: every change to a realm, in order, in one database that any number of processes share.

The version is the number of changes, and version n always means the same (decision 1): rows are only ever added, each
is chained to the one before by its digest, and reading folds them with the pure rules of `realm`. A reader that has
folded version n before reads only what is new. Where the rows lie, in a file or on a server, is `storage`'s.
"""

from __future__ import annotations

import hashlib
import json
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Final

from sealcast.errors import Corrupt, Misuse, NotFound, Rejected, Unavailable
from sealcast.trust.realm import changes as stored
from sealcast.trust.realm.changes import Change
from sealcast.trust.realm.machine import EMPTY, Fold, RealmState
from sealcast.trust.storage import address as addresses
from sealcast.trust.storage.address import Server
from sealcast.trust.storage.trouble import CommitLost, damaged
from sealcast.trust.vetting import vet

if TYPE_CHECKING:
    from sealcast.trust.storage.rows import Rows
    from sealcast.trust.storage.store import Store

#: States kept in memory: the newest, and the versions that batches in flight are pinned to.
STATES_KEPT: Final = 4
#: Servers that one process keeps connections to.
MAX_SERVERS: Final = 16
_CHAIN_START: Final = bytes(32)


def now_us() -> int:
    """Microseconds since 1970, by this machine's clock."""
    return time.time_ns() // 1000


class Registry:
    """One realm's registry. Cheap to make; safe to use from several threads and processes."""

    def __init__(
        self, address: Path | str | Server, realm: bytes | None = None, clock: Callable[[], int] = now_us
    ) -> None:
        """By path or URL. A registry of another realm than `realm` is refused; without one, nobody asks."""
        self.address = addresses.parse(address)
        self._clock = clock
        self._realm = realm
        self._lock = threading.Lock()
        self._opened: Store | None = None
        #: version -> (state, chain), least recently used first
        self._states: OrderedDict[int, tuple[RealmState, bytes]] = OrderedDict({0: (EMPTY, _CHAIN_START)})

    @classmethod
    def create(
        cls, address: Path | str | Server, realm: bytes | None = None, clock: Callable[[], int] = now_us
    ) -> Registry:
        """A new, empty registry."""
        registry = cls(address, realm, clock)

        _store(registry.address).create(lambda rows: None if realm is None else _claim(rows, realm))
        return registry

    # --- reading ------------------------------------------------------------------------------------

    def version(self) -> int:
        """The newest version."""
        return self._store().read(lambda rows: rows.newest())

    def state(self, version: int | None = None) -> RealmState:
        """The realm at `version`; the newest without one."""

        def read(rows: Rows) -> RealmState:
            newest = rows.newest()
            wanted = newest if version is None else version
            if not 0 <= wanted <= newest:
                raise NotFound(f"the registry has versions 0 to {newest}, not {wanted}")
            return self._fold(rows, wanted)[0]

        with self._lock:
            return self._store().read(read)

    def changes(self, start: int = 1, end: int | None = None) -> Iterator[tuple[int, int, Change]]:
        """(version, time in microseconds, change), from version `start` to `end`, both included."""
        known, last = start - 1, 2**62 if end is None else end
        while page := self._store().read(lambda rows, known=known: rows.between(known, last)):  # type: ignore[misc]
            for version, at_us, kind, body, _ in page:
                yield version, at_us, self._decode(version, kind, body)
            known = page[-1].version

    # --- writing ------------------------------------------------------------------------------------

    def apply(self, change: Change) -> int:
        """Adds one change, if the rules admit it; the new version, durable on return."""
        return self.apply_many((change,))

    def apply_many(self, changes: Sequence[Change]) -> int:
        """Adds all changes, or none."""
        return self.transact(lambda _: changes).version

    def transact(self, decide: Callable[[RealmState], Sequence[Change]]) -> RealmState:
        """Adds what `decide` makes of the newest state, which nobody changes in between; the state after, durable."""
        made: list[tuple[RealmState, bytes]] = []

        def write(rows: Rows) -> None:
            before, chain = self._fold(rows, rows.newest())
            made.append(_add(rows, before, chain, decide(before), self._clock()))

        with self._lock:
            store = self._store()
            try:
                store.write(write)
            except CommitLost as lost:
                self._look_into(store, lost, *made[0])
            after, chain = made[0]
            self._keep(after, chain)
            return after

    # --- the database -------------------------------------------------------------------------------

    def revision(self) -> str:
        """The revision of its schema, also of one that this release would not read."""
        return _store(self.address).revision()

    def remarks(self) -> tuple[str, str | None]:
        """What it runs on, and what should be changed about that."""
        return _store(self.address).remarks()

    def migrate(self) -> str:
        """Brings its schema to the newest revision; the one it had."""
        return _store(self.address).migrate()

    def _look_into(self, store: Store, lost: CommitLost, state: RealmState, chain: bytes) -> None:
        """Whether a commit was made after all: our turn comes when it has ended either way; the chain tells which."""
        try:
            there = store.write(lambda rows: _is_there(rows, state, chain))
        except Unavailable:
            raise lost from None
        if not there:
            raise Unavailable(
                f"the connection to {self.address} broke before a change was committed; nothing was changed",
                hint="try again",
            ) from None

    # --- inside -------------------------------------------------------------------------------------

    def _store(self) -> Store:
        if self._opened is None:
            store = _store(self.address)
            if self._realm is not None and not store.read(self._is_mine):
                mine = self._realm
                store.write(lambda rows: None if self._is_mine(rows) else _claim(rows, mine))
            self._opened = store
        return self._opened

    def _is_mine(self, rows: Rows) -> bool:
        """Whether it is this realm's; False if nobody has claimed it, as in a registry from before realms did."""
        owner = rows.owner()
        if owner is None:
            return False
        if owner.chain != _owned(owner.id):
            raise damaged(str(self.address), "whose it is cannot be read")
        if owner.id != self._realm:
            raise Misuse(
                f"{self.address} is the registry of another realm ({owner.id.hex()})",
                hint="a realm has a registry of its own: name another database or schema, or the other realm",
            )
        return True

    def _fold(self, rows: Rows, version: int) -> tuple[RealmState, bytes]:
        known = max(v for v in self._states if v <= version)
        state, chain = self._states[known]
        if known == version:
            self._states.move_to_end(known)
            return state, chain
        fold = Fold(state)
        while fold.version < version:
            page = rows.between(fold.version, version)
            if not page:
                raise damaged(str(self.address), f"change {fold.version + 1} is missing")
            for number, at_us, kind, body, link in page:
                chain = _link(chain, number, at_us, kind, body)
                if chain != link or number != fold.version + 1:
                    raise damaged(
                        str(self.address),
                        f"change {number} is not the one that was written, or one before it is missing",
                    )
                try:
                    fold.apply(self._decode(number, kind, body))
                except (Misuse, Rejected) as error:
                    what = f"change {number} contradicts those before it: {error.message}"
                    raise damaged(str(self.address), what) from None
        state = fold.state()
        self._keep(state, chain)
        return state, chain

    def _keep(self, state: RealmState, chain: bytes) -> None:
        self._states[state.version] = (state, chain)
        self._states.move_to_end(state.version)
        while len(self._states) > STATES_KEPT + 1:
            # Version 0 stays: an old version that fell out is folded again from there.
            del self._states[next(v for v in self._states if v)]

    def _decode(self, version: int, kind: str, body: str) -> Change:
        try:
            return stored.from_json(kind, json.loads(body))
        except (ValueError, Corrupt) as error:
            raise damaged(str(self.address), f"change {version} cannot be read ({error})") from None


def _store(address: addresses.Address) -> Store:
    # Half a second of SQLAlchemy, for those who come to read.
    from sealcast.trust.storage.store import Store

    return Store(address) if isinstance(address, Path) else _server(address)


@lru_cache(MAX_SERVERS)
def _server(address: Server) -> Store:
    """One for all handles in this process: a server counts its connections, a file does not."""
    from sealcast.trust.storage.store import Store

    return Store(address)


# --- rows ---------------------------------------------------------------------------------------------


def _add(rows: Rows, before: RealmState, chain: bytes, changes: Sequence[Change], now: int) -> tuple[RealmState, bytes]:
    fold, made = Fold(before), list[tuple[int, int, str, str, bytes]]()
    for change in changes:
        fold.apply(change)
        vet(fold, change, now)
        body = json.dumps(stored.to_json(change), separators=(",", ":"), ensure_ascii=False)
        chain = _link(chain, fold.version, now, change.kind, body)
        made.append((fold.version, now, change.kind, body, chain))
    rows.add(made)
    return fold.state(), chain


def _is_there(rows: Rows, state: RealmState, chain: bytes) -> bool:
    return any(row.chain == chain for row in rows.between(state.version - 1, state.version))


def _claim(rows: Rows, realm: bytes) -> None:
    rows.claim(realm, _owned(realm))


def _owned(realm: bytes) -> bytes:
    return _link(_CHAIN_START, 0, 0, "realm", realm.hex())


def _link(chain: bytes, version: int, at_us: int, kind: str, body: str) -> bytes:
    return hashlib.sha256(chain + f"{version}\0{at_us}\0{kind}\0{body}".encode()).digest()
