"""Transactions on a registry's database, whichever it is.

A connection belongs to one thread of one process: SQLite's handles survive neither a fork nor another thread, and two
processes that talk through one socket to a server confuse it. A child must not even close its parent's: that would
release the parent's locks, or end its session, behind its back.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Any, Final, Protocol, TypeVar

from sqlalchemy import Connection, Engine, text
from sqlalchemy.exc import DBAPIError, SQLAlchemyError

from sealcast.errors import Corrupt, Misuse, NotFound, SealcastError, Unavailable
from sealcast.trust.storage import schema, tables
from sealcast.trust.storage.address import Address
from sealcast.trust.storage.rows import Rows
from sealcast.trust.storage.trouble import CommitLost, damaged

T = TypeVar("T")

_inherited: Final[list[Connection]] = []


class Database(Protocol):
    """What SQLite and PostgreSQL do differently."""

    shown: str

    @property
    def migrates_itself(self) -> bool: ...
    def make(self) -> None: ...
    def engine(self) -> Engine: ...
    def begin_making(self, connection: Connection) -> None: ...
    def furnish(self, connection: Connection) -> None: ...
    def take_turn_to_make(self, connection: Connection) -> None: ...
    def begin_exclusive(self, connection: Connection) -> None: ...
    def begin_beside(self, connection: Connection, what: str) -> None: ...
    def take_turn(self, connection: Connection, what: str) -> bool: ...
    def is_taken(self, connection: Connection, what: str) -> bool: ...
    def settle(self, connection: Connection) -> None: ...
    def revision(self, connection: Connection) -> str | None: ...
    def remarks(self, connection: Connection) -> tuple[str, str | None]: ...
    def trouble(self, error: BaseException | None) -> SealcastError: ...


class SqlRows(Rows):
    """Rows by a connection of SQLAlchemy's."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def _found(self, statement: str, values: Mapping[str, object]) -> Sequence[Any]:
        return self._connection.execute(_text(statement), values).all()

    def _done(self, statement: str, values: Sequence[Mapping[str, object]]) -> None:
        self._connection.execute(_text(statement), values)


#: Compiled once each: they are few.
_text: Final = cache(text)


def database(address: Address) -> Database:
    """SQLite for a file, PostgreSQL for a server."""
    if isinstance(address, Path):
        from sealcast.trust.storage.sqlite import SqliteFile

        return SqliteFile(address)
    from sealcast.trust.storage.postgres import PostgresDatabase

    return PostgresDatabase(address)


class Store:
    """One registry's database. Cheap to make; connects when it is first used."""

    def __init__(self, address: Address) -> None:
        self._database = database(address)
        self.shown = self._database.shown
        self._local = threading.local()
        #: Of this process; a lock in it that another thread held during a fork would stay locked in the child.
        self._engine: tuple[int, Engine] | None = None

    def create(self, fill: Callable[[Rows], None]) -> None:
        """The tables, and what `fill` puts in them; Misuse if there are some."""
        with self._translated():
            self._database.make()
            with self._connect() as connection, connection.begin():
                self._database.begin_making(connection)
                tables.create(connection)
                self._database.furnish(connection)
                fill(SqlRows(connection))

    def catch_up(self, believe: Callable[[Rows, int, int], object]) -> None:
        """Takes in what others have, once it is believed: nothing, where the registry itself is."""

    def come_to(self, version: int, seconds: float) -> bool:
        """Whether a version is here, or comes within that time: what was committed is."""
        return True

    def read(self, ask: Callable[[Rows], T]) -> T:
        """What `ask` finds, in one transaction. Asked again when a connection turns out to have been cut."""
        with self._translated():
            try:
                return self._read(ask)
            except DBAPIError as error:
                if not error.connection_invalidated:
                    raise
                return self._read(ask)

    def write(self, change: Callable[[Rows], T]) -> T:
        """What `change` writes, all of it or nothing, while nobody else writes; durable on return.

        CommitLost when nobody knows: then whoever wants to look does so in another `write`, which comes to its turn
        only after this one has ended.
        """
        with self._translated():
            connection = self._begun(self._database.begin_exclusive)
            try:
                # Somebody may have brought the schema forward since this connection was made.
                if self._judged(self._database.revision(connection)) != schema.NEWEST:
                    raise damaged(self.shown, "its schema went back")
                result = change(SqlRows(connection))
            except BaseException:
                self._give_up(connection)
                raise
            self._commit(connection)
            self._database.settle(connection)
            return result

    @contextmanager
    def beside(self, what: str) -> Iterator[Connection]:
        """A transaction on other tables than the registry's, all of it or nothing, while nobody else is in one for the
        same thing; durable at the end. CommitLost as for `write`."""
        with self._translated():
            connection = self._begun(lambda made: self._database.begin_beside(made, what))
            try:
                yield connection
            except BaseException:
                self._give_up(connection)
                raise
            self._commit(connection)

    def take_turn_to_make(self, connection: Connection) -> None:
        """So that nobody else makes tables before a transaction of `beside` ends."""
        self._database.take_turn_to_make(connection)

    def is_taken(self, what: str, within: Connection | None = None) -> bool:
        """Whether somebody has that turn; asked by the connection of a transaction, if one is named."""
        if within is not None:
            return self._database.is_taken(within, what)
        with self._translated(), self._connect() as connection:
            return self._database.is_taken(connection, what)

    @contextmanager
    def turn(self, what: str) -> Iterator[bool]:
        """For one process at a time, of all machines that share the database: whether this one has it. It goes with its
        holder, and with the holder's connection."""
        with self._translated():
            connection = self._connect().execution_options(isolation_level="AUTOCOMMIT")
            taken = self._database.take_turn(connection, what)
        try:
            yield taken
        finally:
            with suppress(SQLAlchemyError):
                connection.close()

    def revision(self) -> str:
        """Which schema it has, also when it is not the one that this release reads."""
        with self._translated(), self._connect() as connection:
            return self._known_revision(connection)

    def remarks(self) -> tuple[str, str | None]:
        """What it runs on, and what should be changed about that."""
        with self._translated(), self._connect() as connection:
            return self._database.remarks(connection)

    def migrate(self) -> str:
        """Brings an older schema to the newest; the revision it had."""
        with self._translated(), self._connect() as connection:
            return self._migrate(connection)

    # --- inside -------------------------------------------------------------------------------------

    def _read(self, ask: Callable[[Rows], T]) -> T:
        connection = self._connection()
        try:
            with connection.begin():
                return ask(SqlRows(connection))
        except DBAPIError as error:
            if error.connection_invalidated:
                self._forget(connection)
            raise

    def _begun(self, begin: Callable[[Connection], None]) -> Connection:
        """A connection whose turn it is to write. Nothing was written yet, so a cut one is simply made again."""
        for last in (False, True):
            connection = self._connection()
            try:
                begin(connection)
                return connection
            except BaseException as error:
                self._give_up(connection)
                if last or not (isinstance(error, DBAPIError) and error.connection_invalidated):
                    raise
        raise AssertionError("unreachable")

    def _commit(self, connection: Connection) -> None:
        try:
            connection.commit()
        except DBAPIError as error:
            self._give_up(connection)
            if error.connection_invalidated:
                raise CommitLost(
                    f"the connection to {self.shown} broke while a change was committed: it is not known whether"
                    " it was made",
                    hint="when the server is back, look at what is there before you try again",
                ) from None
            raise

    def _give_up(self, connection: Connection) -> None:
        with suppress(SQLAlchemyError):
            connection.rollback()
        if connection.invalidated or connection.closed:
            self._forget(connection)

    def _connection(self) -> Connection:
        mine: tuple[int, Connection] | None = getattr(self._local, "connection", None)
        if mine is not None and mine[0] == os.getpid():
            return mine[1]
        if mine is not None:
            _inherited.append(mine[1])
            self._local.connection = None
        connection = self._connect()
        try:
            self._admit(connection)
        except BaseException:
            connection.close()
            raise
        self._local.connection = os.getpid(), connection
        return connection

    def _connect(self) -> Connection:
        engine = self._engine
        if engine is None or engine[0] != os.getpid():
            engine = self._engine = os.getpid(), self._database.engine()
        return engine[1].connect()

    def _forget(self, connection: Connection) -> None:
        self._local.connection = None
        with suppress(SQLAlchemyError):
            connection.close()

    def _admit(self, connection: Connection) -> None:
        """Only a registry of the schema that this release reads; an older one is brought there if that is safe."""
        found = self._known_revision(connection)
        if found == schema.NEWEST:
            return
        if not self._database.migrates_itself:
            raise Unavailable(
                f"{self.shown} has schema {found}, and this release needs {schema.NEWEST}",
                hint="when every machine runs this release: sealcast registry migrate",
            )
        self._migrate(connection)

    def _known_revision(self, connection: Connection) -> str:
        with connection.begin():
            return self._judged(self._database.revision(connection))

    def _judged(self, found: str | None) -> str:
        """The revision, if there is one that this release knows."""
        if found in schema.REVISIONS:
            return found
        if found is None and self._database.migrates_itself:
            raise Corrupt(f"{self.shown} is a database, but no registry of Sealcast", hint="restore it from a copy")
        if found is None:
            raise NotFound(
                f"there is no registry in {self.shown}",
                hint="make a realm with it: sealcast init DIR --registry URL; or correct the URL",
            )
        if not schema.is_revision(found):
            raise damaged(self.shown, "the revision of its schema cannot be read")
        raise Misuse(
            f"{self.shown} has schema {found}, which is newer than this release ({schema.NEWEST})",
            hint="use the release that made it, or a newer one",
        )

    def _migrate(self, connection: Connection) -> str:
        from sealcast.trust.storage import migrate

        self._database.begin_exclusive(connection)
        try:
            # Again, now that nobody else can be at it.
            found = self._judged(self._database.revision(connection))
            if found != schema.NEWEST:
                migrate.upgrade(connection)
            self._database.furnish(connection)
            connection.commit()
        except BaseException:
            with suppress(SQLAlchemyError):
                connection.rollback()
            raise
        self._database.settle(connection)
        return found

    @contextmanager
    def _translated(self) -> Iterator[None]:
        """The databases' errors as ours: what happened, to which registry, and what helps."""
        try:
            yield
        except DBAPIError as error:
            # The driver's own words: SQLAlchemy's have the statement and its parameters in them.
            raise self._database.trouble(error.orig) from None
        except SQLAlchemyError as error:
            raise self._database.trouble(error) from None
