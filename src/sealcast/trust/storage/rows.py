"""What a registry asks of its tables, inside somebody's transaction."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple, cast

from sqlalchemy import Connection, bindparam, func, select

from sealcast.trust.storage import schema

#: Rows that are fetched at once: memory is bounded, and no reader keeps a transaction open while it works.
AT_ONCE: Final = 20_000

_version = schema.changes.c.version
_NEWEST: Final = select(func.coalesce(func.max(_version), 0))
_BETWEEN: Final = (
    select(schema.changes)
    .where(_version > bindparam("known"), _version <= bindparam("last"))
    .order_by(_version)
    .limit(AT_ONCE)
)

_SIGNED_FROM: Final = (
    select(_version).where(_version >= bindparam("first"), schema.changes.c.signed != "").order_by(_version).limit(1)
)
_CHAIN_AT: Final = select(schema.changes.c.chain).where(_version == bindparam("version"))


class ChangeRow(NamedTuple):
    """A row of `changes`."""

    version: int
    at_us: int
    kind: str
    body: str
    chain: bytes
    #: The signatures on the transaction that ends here; empty inside of one.
    signed: str = ""


class Owner(NamedTuple):
    """The row of `realm`."""

    one: int
    id: bytes
    chain: bytes


class Rows:
    """The rows, as one transaction sees them."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def newest(self) -> int:
        """The version of the last change, 0 if there is none."""
        return int(self._connection.execute(_NEWEST).scalar_one())

    def between(self, known: int, last: int) -> Sequence[ChangeRow]:
        """Changes after version `known` up to `last`, in order; no more than AT_ONCE of them."""
        # SQLAlchemy's rows are tuples with these names.
        return cast(Sequence[ChangeRow], self._connection.execute(_BETWEEN, {"known": known, "last": last}).all())

    def signed_from(self, version: int) -> int | None:
        """The end of the transaction that a version is in; None if it is signed by nobody."""
        found = self._connection.execute(_SIGNED_FROM, {"first": version}).scalar_one_or_none()
        return None if found is None else int(found)

    def chain_at(self, version: int) -> bytes | None:
        """The chain at a version; None if there is no such change."""
        return self._connection.execute(_CHAIN_AT, {"version": version}).scalar_one_or_none()

    def add(self, rows: Sequence[ChangeRow]) -> None:
        if rows:
            self._connection.execute(schema.changes.insert(), [row._asdict() for row in rows])

    def owner(self) -> Owner | None:
        return cast(Owner | None, self._connection.execute(schema.realm.select()).one_or_none())

    def claim(self, id: bytes, chain: bytes) -> None:
        self._connection.execute(schema.realm.insert(), Owner(1, id, chain)._asdict())
