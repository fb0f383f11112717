"""The rows of a consumer group, inside somebody's transaction.

The statements stand here once. A file has the rows of one group (`group_file`), a database that several machines share
has those of all groups of a realm (`trust.shared_groups`): there each row says of which group it is.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any, Final, NamedTuple


class MemberRow(NamedTuple):
    """A member. One that is `here` holds a lock for as long as it lives; any other one has a lease."""

    id: str
    about: str
    here: int
    seen_us: int


class ShareRow(NamedTuple):
    """A share: who has it, how often it changed hands and was acknowledged, and by which record last."""

    number: int
    owner: str | None
    fence: int
    seq: int
    ack: int


class AckRecord(NamedTuple):
    """One record of the ledger of acknowledgements."""

    id: int
    at_us: int
    member: str
    statement: bytes
    signature: bytes
    events: bytes


class TableNames(NamedTuple):
    """What the tables are called, and the column that names the group where they have the rows of several."""

    member: str
    share: str
    ack: str
    group: str | None = None


_COUNT: Final = "SELECT count(*) FROM {share} WHERE {own}"
_MEMBERS: Final = "SELECT id, about, here, seen_us FROM {member} WHERE {own} ORDER BY id"
_PUT_MEMBER: Final = (
    "INSERT INTO {member} ({column}id, about, here, seen_us) VALUES ({value}:id, :about, :here, :seen_us)"
)
_SEEN: Final = "UPDATE {member} SET seen_us = :seen_us WHERE {own} AND id = :id"
_DROP_MEMBER: Final = "DELETE FROM {member} WHERE {own} AND id = :id"
_SHARES: Final = "SELECT number, owner, fence, seq, ack FROM {share} WHERE {own} ORDER BY number"
_HAD: Final = "SELECT had FROM {share} WHERE {own} AND number = :number"
_ADD_SHARE: Final = (
    "INSERT INTO {share} ({column}number, owner, fence, seq, ack, had) "
    "VALUES ({value}:number, :owner, :fence, :seq, :ack, :had)"
)
_GIVE: Final = "UPDATE {share} SET owner = :owner, fence = fence + 1 WHERE {own} AND number = :number"
_FREE: Final = "UPDATE {share} SET owner = NULL WHERE {own} AND number = :number"
_FREE_ALL: Final = "UPDATE {share} SET owner = NULL WHERE {own} AND owner = :owner"
_MOVE: Final = "UPDATE {share} SET seq = :seq, ack = :ack, had = :had WHERE {own} AND number = :number"
_ACK: Final = "id, at_us, member, statement, signature, events"
_NEWEST: Final = "SELECT coalesce(max(id), 0) FROM {ack} WHERE {own}"
_ACKS: Final = f"SELECT {_ACK} FROM {{ack}} WHERE {{own}} AND id > :after ORDER BY id LIMIT :most"
_ADD_ACK: Final = (
    f"INSERT INTO {{ack}} ({{column}}{_ACK}) VALUES ({{value}}:id, :at_us, :member, :statement, :signature, :events)"
)
_LAST: Final = "SELECT id, statement, signature FROM {ack} WHERE {own} AND id IN (SELECT ack FROM {share} WHERE {own})"
_TRIM: Final = "DELETE FROM {ack} WHERE {own} AND id <= :last AND id NOT IN (SELECT ack FROM {share} WHERE {own})"


@cache
def _for(statement: str, names: TableNames) -> str:
    """A statement for tables of these names."""
    group = names.group
    words = {"column": f"{group}, ", "value": f":{group}, ", "own": f"{group} = :{group}"} if group else _ONE_GROUP
    return statement.format(**words, **names._asdict())


_ONE_GROUP: Final = {"column": "", "value": "", "own": "1 = 1"}


class GroupRows(ABC):
    """The rows of one group, as one transaction sees them."""

    def __init__(self, names: TableNames, group: int | None = None) -> None:
        """`group` is its number, where the tables have the rows of several."""
        self._names = names
        self._group: Mapping[str, object] = {} if names.group is None else {names.group: group}

    @abstractmethod
    def _found(self, statement: str, values: Mapping[str, object]) -> Sequence[Any]:
        """What a statement finds, a sequence of columns each."""

    @abstractmethod
    def _done(self, statement: str, values: Sequence[Mapping[str, object]]) -> None:
        """Carries a statement out with each of these values, of which there are some."""

    @abstractmethod
    def now_us(self) -> int:
        """The time, by one clock for all who share the group."""

    @abstractmethod
    def holds(self, member: str) -> bool:
        """Whether somebody holds the lock of a member that is here."""

    def _ask(self, statement: str, **values: object) -> Sequence[Any]:
        return self._found(_for(statement, self._names), {**self._group, **values})

    def _do(self, statement: str, *values: Mapping[str, object]) -> None:
        if values:
            self._done(_for(statement, self._names), [{**self._group, **each} for each in values])

    def exist(self) -> bool:
        """Whether there is such a group: it has its shares."""
        ((count,),) = self._ask(_COUNT)
        return bool(count)

    # --- members ------------------------------------------------------------------------------------

    def members(self) -> list[MemberRow]:
        return list(map(MemberRow._make, self._ask(_MEMBERS)))

    def put_member(self, row: MemberRow) -> None:
        """Adds a member, or brings what is known of it up to date."""
        self._do(_DROP_MEMBER, {"id": row.id})
        self._do(_PUT_MEMBER, row._asdict())

    def seen(self, member: str, at_us: int) -> None:
        self._do(_SEEN, {"id": member, "seen_us": at_us})

    def remove_member(self, member: str) -> None:
        """Frees its shares, and forgets it."""
        self._do(_FREE_ALL, {"owner": member})
        self._do(_DROP_MEMBER, {"id": member})

    # --- shares -------------------------------------------------------------------------------------

    def shares(self) -> dict[int, ShareRow]:
        return {row[0]: ShareRow._make(row) for row in self._ask(_SHARES)}

    def had(self, number: int) -> bytes:
        """What was had of a share."""
        ((had,),) = self._ask(_HAD, number=number)
        return bytes(had)

    def add_shares(self, rows: Sequence[tuple[ShareRow, bytes]]) -> None:
        """Shares, and what was had of each."""
        self._do(_ADD_SHARE, *({**row._asdict(), "had": had} for row, had in rows))

    def give(self, owner: str, numbers: Sequence[int]) -> None:
        """Gives free shares to a member. Whoever had one before has an earlier fence."""
        self._do(_GIVE, *({"owner": owner, "number": number} for number in numbers))

    def free(self, numbers: Sequence[int]) -> None:
        self._do(_FREE, *({"number": number} for number in numbers))

    def move(self, ack: int, moved: Sequence[tuple[int, int, bytes]]) -> None:
        """Moves the places of shares on, by an acknowledgement: the number of each, how many it has now, what was
        had of it."""
        self._do(_MOVE, *({"number": n, "seq": seq, "ack": ack, "had": had} for n, seq, had in moved))

    # --- the ledger of acknowledgements ---------------------------------------------------------------

    def newest(self) -> int:
        """The number of the last acknowledgement, which is never forgotten; 0 if there is none."""
        ((newest,),) = self._ask(_NEWEST)
        return int(newest)

    def acks(self, after: int, most: int) -> list[AckRecord]:
        return [_record(row) for row in self._ask(_ACKS, after=after, most=most)]

    def add_acks(self, records: Sequence[AckRecord]) -> None:
        self._do(_ADD_ACK, *(record._asdict() for record in records))

    def last(self) -> dict[int, tuple[bytes, bytes]]:
        """The statement and the signature of each acknowledgement that is the last one of a share."""
        return {int(id): (bytes(statement), bytes(signature)) for id, statement, signature in self._ask(_LAST)}

    def trim(self, last: int) -> None:
        """Forgets acknowledgements up to one, but for the last of each share."""
        self._do(_TRIM, {"last": last})


def copy(source: GroupRows, to: GroupRows, at_once: int) -> None:
    """Copies a group without its members: its shares are free."""
    after = 0
    while page := source.acks(after, at_once):
        to.add_acks(page)
        after = page[-1].id
    to.add_shares([(row._replace(owner=None), source.had(row.number)) for row in source.shares().values()])


def _record(row: Sequence[Any]) -> AckRecord:
    id, at_us, member, *signed = row
    return AckRecord(int(id), int(at_us), member, *map(bytes, signed))
