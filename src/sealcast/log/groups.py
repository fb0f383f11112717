"""The state of a consumer group: who takes part, who has which share, and the ledger of acknowledgements.

The publishers of a topic fall into SHARES shares, by their names. A share has one owner at a time, and a place of its
own in the mailbox. So a publisher's events are handed out in their order, by one member at a time.

    turn           a member says that it is there, and hears which shares are its own and which to give back
    acknowledge    moves the places of shares that the member still owns, all of them or none
    leave          frees its shares at once

An acknowledgement is taken only from the owner, and only if it follows the last one of its share. So every event is in
the ledger of acknowledgements once, whoever died between. What a member was handed and did not acknowledge goes to the
next owner of the share.

The rules stand here. The rows (`group_rows`) are in a file (`group_file`), or in a database that several machines share
(`trust.shared_groups`). A member that is where the rows are holds a lock, which goes when it dies. One that comes
through a gateway has a lease.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Final, NamedTuple, Protocol

from sealcast.errors import Misuse, Unavailable
from sealcast.log import group_statement
from sealcast.log.closing import Closing
from sealcast.log.cursor import Cursor
from sealcast.log.group_rows import AckRecord, GroupRows, MemberRow, ShareRow
from sealcast.log.group_statement import SHARES, digest, lowest

#: How long a member from elsewhere may be silent before its shares go to others.
LEASE_US: Final = 30_000_000
MAX_MEMBERS: Final = 1_024
#: Acknowledgements that are kept; older ones are forgotten, but for the last of each share.
MAX_ACKS: Final = 100_000
MAX_HAD_BYTES: Final = 2 << 20
NAME: Final = r"[A-Za-z0-9_][A-Za-z0-9._-]{0,63}"


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


class PresentMember(NamedTuple):
    """A member that is alive, and how many shares it has."""

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


class KeptGroup(Closing):
    """A group whose rows can be reached from here."""

    def __init__(self, reader: str, name: str, *, here: bool, lease_us: int | None) -> None:
        """`here` says that members hold locks; others have a lease."""
        self.reader, self.name = reader, name
        self._here, self._lease_us = here, LEASE_US if lease_us is None else lease_us

    # --- for members --------------------------------------------------------------------------------

    def begin(self, first: SignedAck) -> bool:
        about = group_statement.parse(first.statement)
        if {share.number for share in about.shares} != set(range(SHARES)) or any(s.seq for s in about.shares):
            raise Misuse("a new group begins with all of its shares")
        with self._transaction(make=True) as rows:
            if rows.exist():
                return False
            ack = _add(rows, about.member, first)
            rows.add_shares([(ShareRow(number, None, 0, 0, ack), first.had[number]) for number in range(SHARES)])
            return True

    def turn(self, member: str, about: str, known: Mapping[int, int], done: Sequence[int]) -> MemberTurn:
        with self._transaction(synced=False) as rows:
            if self._here:
                self._be_present(rows, member)
            self._bury(rows)
            rows.put_member(MemberRow(member, about, int(self._here), rows.now_us()))
            give = _balance(rows, member, done)
            shares, last = rows.shares(), rows.last()
            mine = {number: share.fence for number, share in shares.items() if share.owner == member}
            new = [n for n, fence in mine.items() if known.get(n) != fence]
            states = [ShareState(n, mine[n], *last[shares[n].ack], rows.had(n)) for n in new]
            return MemberTurn(mine, states, give, _low(shares, last), len(rows.members()))

    def acknowledge(self, member: str, ack: SignedAck) -> None:
        about = group_statement.parse(ack.statement)
        if about.events != digest(ack.events) or any(s.had != digest(ack.had[s.number]) for s in about.shares):
            raise Misuse("the acknowledgement is not what was signed")
        with self._transaction() as rows:
            found, last = rows.shares(), rows.last()
            whose = {number: (share.owner, share.fence) for number, share in found.items()}
            lost = [s.number for s in about.shares if whose[s.number] != (member, ack.fences.get(s.number))]
            if lost:
                raise ShareLost(lost)
            if all(last[found[s.number].ack][0] == ack.statement for s in about.shares):
                return  # sent twice, because the answer to the first was lost
            if any(s.seq != found[s.number].seq + 1 for s in about.shares):
                raise Misuse("an acknowledgement follows the last one of its share")
            id = _add(rows, member, ack)
            rows.move(id, [(s.number, s.seq, ack.had[s.number]) for s in about.shares])
            rows.seen(member, rows.now_us())
            rows.trim(id - MAX_ACKS)

    def leave(self, member: str) -> None:
        with self._transaction(synced=False) as rows:
            rows.remove_member(member)
        self._depart(member)

    # --- for whoever looks on ---------------------------------------------------------------------

    def members(self) -> list[PresentMember]:
        """Those that are alive."""
        with self._transaction(synced=False) as rows:
            self._bury(rows)
            owners = [share.owner for share in rows.shares().values()]
            return [PresentMember(m.id, m.about, m.seen_us, owners.count(m.id)) for m in rows.members()]

    def acks(self, after: int = 0, most: int = MAX_ACKS) -> list[AckRecord]:
        """The ledger of acknowledgements, the oldest first. The first record makes the group."""
        with self._transaction(synced=False) as rows:
            return rows.acks(after, most)

    def low(self) -> list[tuple[str, int, Cursor]]:
        """How far all shares are."""
        with self._transaction(synced=False) as rows:
            return _low(rows.shares(), rows.last())

    def remove(self) -> None:
        """Forgets the group; Misuse while it has members."""
        if found := self.members():
            raise Misuse(f"the group has {len(found)} members", hint="stop them first")
        self._forget()

    # --- where it is --------------------------------------------------------------------------------

    @abstractmethod
    def _transaction(self, *, make: bool = False, synced: bool = True) -> AbstractContextManager[GroupRows]:
        """The group's rows, while nobody else has them: all that is done, or nothing. NotFound when there is no such
        group, unless it is to be made. Without `synced`, it may be lost when the machine stops."""

    @abstractmethod
    def _be_present(self, rows: GroupRows, member: str) -> None:
        """Holds the lock of a member that is here."""

    @abstractmethod
    def _depart(self, member: str) -> None:
        """Lets that lock go, if it is held."""

    @abstractmethod
    def _forget(self) -> None:
        """Removes all rows."""

    # --- inside -------------------------------------------------------------------------------------

    def _bury(self, rows: GroupRows) -> None:
        """Frees the shares of members that are dead."""
        too_late = rows.now_us() - self._lease_us
        for member in rows.members():
            if (member.seen_us < too_late) if not member.here else not rows.holds(member.id):
                rows.remove_member(member.id)


class TopicGroups(Protocol):
    """The groups of one topic, where they are kept."""

    def of(self, reader: str, name: str, *, here: bool = True) -> KeptGroup:
        """One of them, which need not exist yet; `here` as for `KeptGroup`."""

    def names(self) -> list[tuple[str, str]]:
        """The reader and the name of each."""


def _balance(rows: GroupRows, member: str, done: Sequence[int]) -> list[int]:
    """Takes back shares that a member is done with, and gives it free ones up to its part; those beyond it, it should
    give back.

    Parts differ by one at most, and add up to all shares. So once everybody has had its turn, everybody has its part.
    """
    members = [each.id for each in rows.members()]
    if len(members) > MAX_MEMBERS:
        raise Misuse(f"a group has at most {MAX_MEMBERS} members, of which {SHARES} have something to do")
    owners = {number: share.owner for number, share in rows.shares().items()}
    back = [number for number in done if owners.get(number) == member]
    rows.free(back)
    owners |= dict.fromkeys(back)
    each, over = divmod(SHARES, len(members))
    part = each + (members.index(member) < over)
    mine = [number for number, owner in owners.items() if owner == member]
    free = [number for number, owner in owners.items() if owner is None]
    rows.give(member, free[: max(0, part - len(mine))])
    return mine[part:]


def _add(rows: GroupRows, member: str, ack: SignedAck) -> int:
    id = rows.newest() + 1
    rows.add_acks([AckRecord(id, rows.now_us(), member, ack.statement, ack.signature, ack.events)])
    return id


def _low(shares: Mapping[int, ShareRow], last: Mapping[int, tuple[bytes, bytes]]) -> list[tuple[str, int, Cursor]]:
    parsed = {id: group_statement.parse(statement) for id, (statement, _) in last.items()}
    return lowest(list(dict.fromkeys(parsed[s.ack].share(s.number).place for s in shares.values())))
