"""The state of a consumer group: who takes part, who has which share, and the ledger of acknowledgements.

The publishers of a topic fall into SHARES shares, by their names. A share has one owner at a time, and a place of its
own in the mailbox. So a publisher's events are handed out in their order, by one member at a time.

    turn           a member says that it is there, and hears which shares are its own and which to give back
    acknowledge    moves the places of shares that the member still owns, all of them or none
    leave          frees its shares at once

An acknowledgement is taken only from the owner, and only if it follows the last one of its share. So every event is in
the ledger of acknowledgements once, whoever died between. What a member was handed and did not acknowledge goes to the
next owner of the share.

A member of this machine holds a lock, which the kernel lets go when it dies. One from elsewhere has a lease.
"""

from __future__ import annotations

import fcntl
import os
import sqlite3
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple, Protocol

from sealcast.errors import Misuse, NotFound, Unavailable
from sealcast.log import files, group_statement
from sealcast.log.closing import Closing
from sealcast.log.cursor import Cursor
from sealcast.log.database import ServiceDatabase
from sealcast.log.group_statement import SHARES, digest, lowest

FORMAT: Final = 1
#: How long a member from elsewhere may be silent before its shares go to others.
LEASE_US: Final = 30_000_000
MAX_MEMBERS: Final = 1_024
#: Acknowledgements that are kept; older ones are forgotten, but for the last of each share.
MAX_ACKS: Final = 100_000
MAX_HAD_BYTES: Final = 2 << 20
NAME: Final = r"[A-Za-z0-9_][A-Za-z0-9._-]{0,63}"
_SCHEMA: Final = """
CREATE TABLE member (id TEXT PRIMARY KEY, about TEXT NOT NULL, here INTEGER NOT NULL, seen_us INTEGER NOT NULL);
CREATE TABLE share (number INTEGER PRIMARY KEY, owner TEXT, fence INTEGER NOT NULL, seq INTEGER NOT NULL,
                    ack INTEGER NOT NULL, had BLOB NOT NULL);
CREATE TABLE ack (id INTEGER PRIMARY KEY AUTOINCREMENT, at_us INTEGER NOT NULL, member TEXT NOT NULL,
                  statement BLOB NOT NULL, signature BLOB NOT NULL, events BLOB NOT NULL);
"""


class ShareLost(Unavailable):
    """A share went to another member: what this one was handed of it is handed out there."""

    code = "share-lost"

    def __init__(self, numbers: Sequence[int]) -> None:
        super().__init__(
            f"{len(numbers)} of this member's shares went to other members, which get what it did not acknowledge",
            hint="a member from elsewhere that neither polls nor acknowledges for 30 seconds is taken for dead",
        )
        self.numbers = tuple(numbers)


class ShareState(NamedTuple):
    """A share as its new owner gets it. `statement` and `signature` say how far it is, `had` what was had of it."""

    number: int
    #: How often it changed hands: whoever has an earlier number has lost it.
    fence: int
    statement: bytes
    signature: bytes
    had: bytes


class MemberTurn(NamedTuple):
    """What a member hears."""

    #: Its shares, and the fence of each.
    mine: Mapping[int, int]
    #: Those of its shares that it did not know yet.
    new: Sequence[ShareState]
    #: Those that others wait for.
    give: Sequence[int]
    #: How far all shares are: broker, first record of the stay, place.
    low: Sequence[tuple[str, int, Cursor]]
    members: int


class SignedAck(NamedTuple):
    """An acknowledgement as it is sent and kept."""

    statement: bytes
    signature: bytes
    #: The events, as `log.had` writes them, and what each share has had by now.
    events: bytes
    had: Mapping[int, bytes]
    fences: Mapping[int, int]


class AckRecord(NamedTuple):
    """One record of the ledger of acknowledgements."""

    id: int
    at_us: int
    member: str
    statement: bytes
    signature: bytes
    events: bytes


class MemberRow(NamedTuple):
    id: str
    about: str
    seen_us: int
    shares: int


class ConsumerGroup(Protocol):
    """A group, for its members."""

    def begin(self, first: SignedAck) -> bool:
        """Makes the group, unless there is one; whether it did."""

    def turn(self, member: str, about: str, known: Mapping[int, int], done: Sequence[int]) -> MemberTurn:
        """NotFound when there is no such group. `known` are the member's shares with their fences; it gives those of
        `done` back."""

    def acknowledge(self, member: str, ack: SignedAck) -> None:
        """ShareLost names the shares that are not the member's any more; then nothing was done."""

    def leave(self, member: str) -> None: ...
    def close(self) -> None: ...


@dataclass(slots=True)
class _Presence:
    """The lock that a member of this machine holds."""

    path: Path
    fd: int


class GroupFile(Closing):
    """A group in a file of this machine."""

    def __init__(
        self, path: Path, *, here: bool = True, lease_us: int = LEASE_US, clock: Callable[[], int] | None = None
    ) -> None:
        """`here` says that members are processes of this machine, which hold locks. `clock` tells the time in
        microseconds, if not the machine's."""
        self.path, self._here, self._lease_us = path, here, lease_us
        self._clock = clock or (lambda: time.time_ns() // 1000)
        self._open: ServiceDatabase | None = None
        self._present: dict[str, _Presence] = {}

    # --- for members --------------------------------------------------------------------------------

    def begin(self, first: SignedAck) -> bool:
        about = group_statement.parse(first.statement)
        if {share.number for share in about.shares} != set(range(SHARES)) or any(s.seq for s in about.shares):
            raise Misuse("a new group begins with all of its shares")
        with self._database(make=True).transaction() as db:
            if db.execute("SELECT 1 FROM share").fetchone():
                return False
            ack = self._insert(db, about.member, first)
            rows = [(number, ack, first.had[number]) for number in range(SHARES)]
            db.executemany("INSERT INTO share VALUES (?, NULL, 0, 0, ?, ?)", rows)
            return True

    def turn(self, member: str, about: str, known: Mapping[int, int], done: Sequence[int]) -> MemberTurn:
        database = self._database()
        self._be_present(member)
        with database.transaction(synced=False) as db:
            self._bury(db)
            here = int(self._here)
            db.execute("INSERT OR REPLACE INTO member VALUES (?, ?, ?, ?)", (member, about, here, self._clock()))
            db.executemany("UPDATE share SET owner = NULL WHERE number = ? AND owner = ?", [(n, member) for n in done])
            give = _balance(db, member)
            mine = dict(db.execute("SELECT number, fence FROM share WHERE owner = ?", (member,)).fetchall())
            new = [n for n, fence in mine.items() if known.get(n) != fence]
            (members,) = db.execute("SELECT count(*) FROM member").fetchone()
            return MemberTurn(mine, [_state(db, number) for number in new], give, _low(db), members)

    def acknowledge(self, member: str, ack: SignedAck) -> None:
        about = group_statement.parse(ack.statement)
        if about.events != digest(ack.events) or any(s.had != digest(ack.had[s.number]) for s in about.shares):
            raise Misuse("the acknowledgement is not what was signed")
        with self._database().transaction() as db:
            found = {n: rest for n, *rest in db.execute("SELECT number, owner, fence, seq FROM share").fetchall()}
            lost = [s.number for s in about.shares if found[s.number][:2] != [member, ack.fences.get(s.number)]]
            if lost:
                raise ShareLost(lost)
            if all(_state(db, s.number).statement == ack.statement for s in about.shares):
                return  # sent twice, because the answer to the first was lost
            if any(s.seq != found[s.number][2] + 1 for s in about.shares):
                raise Misuse("an acknowledgement follows the last one of its share")
            id = self._insert(db, member, ack)
            rows = [(s.seq, id, ack.had[s.number], s.number) for s in about.shares]
            db.executemany("UPDATE share SET seq = ?, ack = ?, had = ? WHERE number = ?", rows)
            db.execute("UPDATE member SET seen_us = ? WHERE id = ?", (self._clock(), member))
            db.execute("DELETE FROM ack WHERE id <= ? AND id NOT IN (SELECT ack FROM share)", (id - MAX_ACKS,))

    def leave(self, member: str) -> None:
        with self._database().transaction(synced=False) as db:
            _remove(db, member)
        self._depart(member)

    def close(self) -> None:
        for member in list(self._present):
            self._depart(member)
        if self._open is not None:
            self._open.close()
            self._open = None

    # --- for whoever looks on ---------------------------------------------------------------------

    def members(self) -> list[MemberRow]:
        """Those that are alive."""
        database = self._database()
        with database.transaction(synced=False) as db:
            self._bury(db)
        return [
            MemberRow(*row)
            for row in database.rows(
                "SELECT id, about, seen_us, (SELECT count(*) FROM share WHERE owner = id) FROM member ORDER BY id"
            )
        ]

    def acks(self, after: int = 0, most: int = MAX_ACKS) -> list[AckRecord]:
        """The ledger of acknowledgements, the oldest first. The first record makes the group."""
        rows = self._database().rows("SELECT * FROM ack WHERE id > ? ORDER BY id LIMIT ?", after, most)
        return [AckRecord(*row) for row in rows]

    def low(self) -> list[tuple[str, int, Cursor]]:
        """How far all shares are."""
        with self._database().transaction(synced=False) as db:
            return _low(db)

    def remove(self) -> None:
        """Forgets the group; Misuse while it has members."""
        if found := self.members():
            raise Misuse(f"the group has {len(found)} members", hint="stop them first")
        self.close()
        for path in (self.path, *self.path.parent.glob(f"{self.path.name}-*")):
            path.unlink(missing_ok=True)
        files.sync_directory(self.path.parent)

    # --- inside -------------------------------------------------------------------------------------

    def _database(self, *, make: bool = False) -> ServiceDatabase:
        if self._open is None:
            if not make and not self.path.exists():
                raise NotFound(f"there is no group {self.path.stem!r}")
            files.make_directory(self.path.parent)
            with files.locked(self.path.with_suffix(".lock")):
                self._open = ServiceDatabase(self.path, _SCHEMA, format=FORMAT, hint="remove the group: its readers "
                                             "begin a new one where the subscriber's cursor is")  # fmt: skip
        if not make and self._open.row("SELECT 1 FROM share") is None:
            raise NotFound(f"there is no group {self.path.stem!r}")
        return self._open

    def _insert(self, db: sqlite3.Connection, member: str, ack: SignedAck) -> int:
        row = (self._clock(), member, ack.statement, ack.signature, ack.events)
        made = db.execute("INSERT INTO ack (at_us, member, statement, signature, events) VALUES (?, ?, ?, ?, ?)", row)
        assert made.lastrowid is not None
        return made.lastrowid

    def _bury(self, db: sqlite3.Connection) -> None:
        """Frees the shares of members that are dead."""
        too_late = self._clock() - self._lease_us
        for member, here, seen_us in db.execute("SELECT id, here, seen_us FROM member").fetchall():
            if (seen_us < too_late) if not here else not self._holds(member):
                _remove(db, member)

    def _holds(self, member: str) -> bool:
        """Whether somebody holds the lock of a member."""
        if member in self._present:
            return True
        path = self._lock_of(member)
        with suppress(FileNotFoundError), files.opened(path, os.O_RDWR) as fd:
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return True
            path.unlink(missing_ok=True)
        return False

    def _be_present(self, member: str) -> None:
        if not self._here or member in self._present:
            return
        path = self._lock_of(member)
        files.make_directory(path.parent)
        fd = os.open(path, os.O_RDWR | os.O_CREAT, files.FILE_MODE)
        fcntl.flock(fd, fcntl.LOCK_EX)
        self._present[member] = _Presence(path, fd)

    def _depart(self, member: str) -> None:
        found = self._present.pop(member, None)
        if found is not None:
            found.path.unlink(missing_ok=True)
            os.close(found.fd)

    def _lock_of(self, member: str) -> Path:
        return self.path.with_suffix(".members") / member


def _balance(db: sqlite3.Connection, member: str) -> list[int]:
    """Gives a member free shares up to its part; those beyond it, it should give back.

    Parts differ by one at most, and add up to all shares. So once everybody has had its turn, everybody has its part.
    """
    members = [id for (id,) in db.execute("SELECT id FROM member ORDER BY id").fetchall()]
    if len(members) > MAX_MEMBERS:
        raise Misuse(f"a group has at most {MAX_MEMBERS} members, of which {SHARES} have something to do")
    each, over = divmod(SHARES, len(members))
    part = each + (members.index(member) < over)
    mine = [n for (n,) in db.execute("SELECT number FROM share WHERE owner = ? ORDER BY number", (member,)).fetchall()]
    free = db.execute(
        "SELECT number FROM share WHERE owner IS NULL ORDER BY number LIMIT ?", (max(0, part - len(mine)),)
    ).fetchall()
    db.executemany("UPDATE share SET owner = ?, fence = fence + 1 WHERE number = ?", [(member, n) for (n,) in free])
    return mine[part:]


def _remove(db: sqlite3.Connection, member: str) -> None:
    db.execute("UPDATE share SET owner = NULL WHERE owner = ?", (member,))
    db.execute("DELETE FROM member WHERE id = ?", (member,))


def _state(db: sqlite3.Connection, number: int) -> ShareState:
    row = db.execute(
        "SELECT number, fence, statement, signature, had FROM share JOIN ack ON ack.id = share.ack WHERE number = ?",
        (number,),
    ).fetchone()
    return ShareState(*row)


def _low(db: sqlite3.Connection) -> list[tuple[str, int, Cursor]]:
    rows = db.execute("SELECT number, statement FROM share JOIN ack ON ack.id = share.ack").fetchall()
    parsed = {data: group_statement.parse(data) for _, data in rows}
    return lowest(list(dict.fromkeys(parsed[data].share(number).place for number, data in rows)))
