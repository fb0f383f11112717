"""Consumer groups of a realm whose registry is on a server: their rows are in the same database, for all machines.

So gateways on several machines, and members on machines that have the realm's directory each for itself, serve one
group without a disk in common. Whoever changes a group holds a lock of the database's on it until the transaction
ends. A member that is where the realm is holds another lock, by a connection of its own: it goes when the process dies,
and some 15 seconds after its machine is gone. Leases are judged by the server's clock alone.

A group that is in a file here (it was begun by an earlier release, or restored from a backup) goes on in the database.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from sealcast.errors import Locked, NotFound, Unavailable
from sealcast.log import group_rows
from sealcast.log.group_file import GroupFile, GroupFiles
from sealcast.log.group_rows import GroupRows
from sealcast.log.group_statement import GroupName
from sealcast.log.groups import KeptGroup, TopicGroups
from sealcast.trust.storage import group_tables
from sealcast.trust.storage.address import Address, Server
from sealcast.trust.storage.beside import as_text
from sealcast.trust.storage.opening import open_server

if TYPE_CHECKING:
    from sqlalchemy import Connection

#: Acknowledgements that are copied at once, from a file.
AT_ONCE: Final = 1_000
_FIND: Final = "SELECT id, format FROM sealcast_groups WHERE topic = :topic AND reader = :reader AND name = :name"
_ADD: Final = (
    "INSERT INTO sealcast_groups (topic, reader, name, format) VALUES (:topic, :reader, :name, :format) RETURNING id"
)
_DROP: Final = "DELETE FROM sealcast_groups WHERE topic = :topic AND reader = :reader AND name = :name"
_OF_TOPIC: Final = "SELECT reader, name FROM sealcast_groups WHERE topic = :topic ORDER BY reader, name"
_DROP_TOPIC: Final = "DELETE FROM sealcast_groups WHERE topic = :topic"
_NOW: Final = "SELECT CAST(extract(epoch FROM clock_timestamp()) * 1000000 AS bigint)"


class SharedGroupRows(GroupRows):
    """The rows of one group in the database."""

    def __init__(self, connection: Connection, group: int, holds: Callable[[Connection, str], bool]) -> None:
        super().__init__(group_tables.NAMES, group)
        self._connection, self._holds = connection, holds

    def _found(self, statement: str, values: Mapping[str, object]) -> Sequence[Any]:
        return self._connection.execute(as_text(statement), values).all()

    def _done(self, statement: str, values: Sequence[Mapping[str, object]]) -> None:
        self._connection.execute(as_text(statement), values)

    def now_us(self) -> int:
        now: int = self._connection.execute(as_text(_NOW)).scalar_one()
        return now

    def holds(self, member: str) -> bool:
        return self._holds(self._connection, member)


class SharedGroup(KeptGroup):
    """A group in the database of the registry."""

    def __init__(self, server: Server, about: GroupName, file: GroupFile, *, here: bool = True) -> None:
        """`file` is where the group would be, were it in a file."""
        super().__init__(about.reader, about.group, here=here, lease_us=None)
        self._store, self._file = open_server(server), file.path
        self._key = {"topic": about.topic, "reader": about.reader, "name": about.group}
        self._what = f"group {about.realm.hex()} {about.topic.hex()} {about.reader} {about.group}"
        self._present: dict[str, ExitStack] = {}

    def close(self) -> None:
        for member in list(self._present):
            self._depart(member)

    @contextmanager
    def _transaction(self, *, make: bool = False, synced: bool = True) -> Iterator[SharedGroupRows]:
        if self._file.exists():
            self._take_over()
        with self._rows(make=make) as rows:
            yield rows

    @contextmanager
    def _rows(self, *, make: bool) -> Iterator[SharedGroupRows]:
        with self._store.beside(self._what) as connection:
            if not group_tables.are_there(connection):
                if not make:
                    raise self._missing()
                self._store.take_turn_to_make(connection)
                group_tables.make(connection)
            yield SharedGroupRows(connection, self._number(connection, make=make), self._held)

    def _number(self, connection: Connection, *, make: bool) -> int:
        known = group_tables.FORMAT
        if (found := connection.execute(as_text(_FIND), self._key).first()) is None:
            if not make:
                raise self._missing()
            made: int = connection.execute(as_text(_ADD), {**self._key, "format": known}).scalar_one()
            return made
        number, format = found
        if format != known:
            raise Unavailable(f"group {self.name!r} has format {format}; this release knows {known}")
        return int(number)

    def _missing(self) -> NotFound:
        return NotFound(f"there is no group {self.name!r}")

    def _forget(self) -> None:
        self.close()
        with self._store.beside(self._what) as connection:
            connection.execute(as_text(_DROP), self._key)

    # --- who is alive -------------------------------------------------------------------------------

    def _held(self, connection: Connection, member: str) -> bool:
        return self._store.is_taken(self._lock_of(member), connection)

    def _be_present(self, rows: GroupRows, member: str) -> None:
        if rows.holds(member) and member in self._present:
            return
        self._depart(member)  # its connection broke, and the lock went with it
        stack = ExitStack()
        if not stack.enter_context(self._store.turn(self._lock_of(member))):
            stack.close()
            raise Locked(f"another process takes part in group {self.name!r} as member {member}")
        self._present[member] = stack

    def _depart(self, member: str) -> None:
        if (held := self._present.pop(member, None)) is not None:
            held.close()

    def _lock_of(self, member: str) -> str:
        return f"{self._what} member {member}"

    # --- a group that is to be in a file, or was in one --------------------------------------------

    def copy_to(self, file: GroupFile) -> None:
        """Copies the group, without its members, into a file that has none."""
        with file, self._transaction() as source, file._transaction(make=True) as to:
            group_rows.copy(source, to, AT_ONCE)

    def _take_over(self) -> None:
        """Copies a group from its file, once nobody takes part there, and removes the file."""
        with GroupFile(self._file) as kept:
            try:
                if kept.members():
                    raise Locked(
                        f"group {self.name!r} is in {self._file}, and has members there",
                        hint="stop them: they are of an earlier release. Then the group goes on in the database",
                    )
                with kept._transaction() as source, self._rows(make=True) as to:
                    if not to.exist():
                        group_rows.copy(source, to, AT_ONCE)
                    elif not _is_part(source, to):
                        raise self._twice()
            except NotFound:
                pass  # an empty file, of a group that was never begun
            kept._forget()

    def _twice(self) -> Unavailable:
        return Unavailable(
            f"group {self.name!r} is in {self._file}, and in {self._store.shown} with other acknowledgements",
            hint="move the file away: it is an old copy. To go on with the file instead, then remove the group "
            "(sealcast group remove), and put the file back",
        )


class SharedGroups:
    """The groups of a topic in the database, and those that are still in files here."""

    def __init__(self, server: Server, realm: bytes, topic: bytes, files: GroupFiles) -> None:
        self._server, self._realm, self._topic, self._files = server, realm, topic, files

    def of(self, reader: str, name: str, *, here: bool = True) -> SharedGroup:
        about = GroupName(self._realm, self._topic, reader, name)
        return SharedGroup(self._server, about, self._files.of(reader, name), here=here)

    def names(self) -> list[tuple[str, str]]:
        return sorted({*self.stored(), *self._files.names()})

    def stored(self) -> list[tuple[str, str]]:
        """Those that are in the database."""
        return [(reader, name) for reader, name in _of_topic(self._server, self._topic, _OF_TOPIC)]


def groups_of(registry: Address, realm: bytes, topic: bytes, root: Path) -> TopicGroups:
    """The groups of a topic: in files below `root`, or where the registry is, if that is on a server."""
    files = GroupFiles(root)
    return files if isinstance(registry, Path) else SharedGroups(registry, realm, topic, files)


def remove_all(registry: Address, topic: bytes) -> None:
    """Removes the groups of a topic that was deleted. Those in files go with its directory."""
    if isinstance(registry, Server) and _of_topic(registry, topic, _OF_TOPIC):
        _of_topic(registry, topic, _DROP_TOPIC)


def _of_topic(server: Server, topic: bytes, statement: str) -> Sequence[Any]:
    with open_server(server).beside(f"groups {topic.hex()}") as connection:
        if not group_tables.are_there(connection):
            return ()
        done = connection.execute(as_text(statement), {"topic": topic})
        return done.all() if done.returns_rows else ()


def _is_part(source: GroupRows, to: GroupRows) -> bool:
    """Whether a group has the last acknowledgement of another: then it has all that the other one has."""
    newest = source.newest()
    return source.acks(newest - 1, 1) == to.acks(newest - 1, 1)
